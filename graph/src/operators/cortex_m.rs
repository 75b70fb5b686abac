//! Quantized operators of ExecuTorch's Cortex-M backend.

use super::describe::*;
use super::*;

operators! {
    cortex_m;
    CORTEX_M_DEQUANTIZE_PER_TENSOR(QuantizePerTensorArgs) = cortex_m::dequantize_per_tensor.default
        <- out;
    CORTEX_M_MAXIMUM(BinaryArgs) = cortex_m::maximum.default <- out;
    CORTEX_M_MINIMUM(BinaryArgs) = cortex_m::minimum.default <- out;
    CORTEX_M_PAD(input: Tensor, pre_pad: Ints, post_pad: Ints, pad_value: Int)
        = cortex_m::pad.default <- out;
    CORTEX_M_QUANTIZE_PER_TENSOR(QuantizePerTensorArgs) = cortex_m::quantize_per_tensor.default
        <- out;
    CORTEX_M_QUANTIZED_ACTIVATION(LookupArgs) = cortex_m::quantized_activation.default <- out
        { elementwise: ArgumentSet::of(&[0]) };
    CORTEX_M_QUANTIZED_ADD(
        input: Tensor, input_zero_point: Int, input_multiplier: Int, input_shift: Int,
        other: Tensor, other_zero_point: Int, other_multiplier: Int, other_shift: Int,
        output_zero_point: Int, output_multiplier: Int, output_shift: Int, activation_min: Int,
        activation_max: Int
    ) = cortex_m::quantized_add.default <- out { elementwise: ArgumentSet::of(&[0, 4]) };
    CORTEX_M_QUANTIZED_AVG_POOL2D(CortexMQuantizedAvgPool2dNhwcArgs {
        input: Tensor, kernel_size: Ints, stride: Ints, padding: Ints, ceil_mode: Bool,
        zero_point: Int, multiplier: Int, shift: Int, scratch: Tensor
    }) = cortex_m::quantized_avg_pool2d.default <- out;
    CORTEX_M_QUANTIZED_AVG_POOL2D_NHWC(CortexMQuantizedAvgPool2dNhwcArgs)
        = cortex_m::quantized_avg_pool2d_nhwc.default <- out;
    CORTEX_M_QUANTIZED_BATCH_MATMUL(
        lhs: Tensor, lhs_zero_point: Int, rhs_transposed: Tensor, rhs_zero_point: Int,
        output_zero_point: Int, output_multiplier: Int, output_shift: Int, scratch: Tensor
    ) = cortex_m::quantized_batch_matmul.default <- out;
    CORTEX_M_QUANTIZED_CONV2D(CortexMQuantizedConv2dNhwcArgs {
        input: Tensor, weight: Tensor, bias: OptionalTensor, stride: Ints, padding: Ints,
        dilation: Ints, input_offset: Int, output_offset: Int, requantize_multipliers: Tensor,
        requantize_shifts: Tensor, activation_min: Int, activation_max: Int, scratch: Tensor
    }) = cortex_m::quantized_conv2d.default <- out;
    CORTEX_M_QUANTIZED_CONV2D_NHWC(CortexMQuantizedConv2dNhwcArgs)
        = cortex_m::quantized_conv2d_nhwc.default <- out;
    CORTEX_M_QUANTIZED_DEPTHWISE_CONV2D(CortexMQuantizedDepthwiseConv2dNhwcArgs {
        input: Tensor, weight: Tensor, bias: OptionalTensor, stride: Ints, padding: Ints,
        dilation: Ints, depth_multiplier: Int, input_offset: Int, output_offset: Int,
        requantize_multipliers: Tensor, requantize_shifts: Tensor, activation_min: Int,
        activation_max: Int, scratch: Tensor
    }) = cortex_m::quantized_depthwise_conv2d.default <- out;
    CORTEX_M_QUANTIZED_DEPTHWISE_CONV2D_NHWC(CortexMQuantizedDepthwiseConv2dNhwcArgs)
        = cortex_m::quantized_depthwise_conv2d_nhwc.default <- out;
    CORTEX_M_QUANTIZED_DIV(
        input: Tensor, input_zero_point: Int, other: Tensor, other_zero_point: Int,
        output_zero_point: Int, output_scale: Float
    ) = cortex_m::quantized_div.default <- out;
    CORTEX_M_QUANTIZED_LINEAR(
        input: Tensor, weights: Tensor, bias: OptionalTensor, kernel_sum: OptionalTensor,
        input_offset: Int, filter_offset: Int, output_offset: Int, requantize_multipliers: Ints,
        requantize_shifts: Ints, activation_max: Int, activation_min: Int
    ) = cortex_m::quantized_linear.default <- out;
    CORTEX_M_QUANTIZED_MAX_POOL2D(CortexMQuantizedMaxPool2dNhwcArgs {
        input: Tensor, kernel_size: Ints, stride: Ints, padding: Ints, dilation: Ints,
        ceil_mode: Bool, input_zero_point: Int, output_zero_point: Int, activation_min: Int,
        activation_max: Int
    }) = cortex_m::quantized_max_pool2d.default <- out;
    CORTEX_M_QUANTIZED_MAX_POOL2D_NHWC(CortexMQuantizedMaxPool2dNhwcArgs)
        = cortex_m::quantized_max_pool2d_nhwc.default <- out;
    CORTEX_M_QUANTIZED_MUL(
        input: Tensor, input_zero_point: Int, other: Tensor, other_zero_point: Int,
        output_zero_point: Int, output_multiplier: Int, output_shift: Int
    ) = cortex_m::quantized_mul.default <- out { elementwise: ArgumentSet::of(&[0, 2]) };
    CORTEX_M_QUANTIZED_TRANSPOSE_CONV2D(CortexMQuantizedTransposeConv2dNhwcArgs {
        input: Tensor, weight: Tensor, bias: OptionalTensor, stride: Ints, padding: Ints,
        output_padding: Ints, dilation: Ints, input_offset: Int, output_offset: Int,
        requantize_multipliers: Tensor, requantize_shifts: Tensor, activation_min: Int,
        activation_max: Int, scratch: Tensor, output_scratch: Tensor
    }) = cortex_m::quantized_transpose_conv2d.default <- out;
    CORTEX_M_QUANTIZED_TRANSPOSE_CONV2D_NHWC(CortexMQuantizedTransposeConv2dNhwcArgs)
        = cortex_m::quantized_transpose_conv2d_nhwc.default <- out;
    CORTEX_M_SOFTMAX(
        input: Tensor, dim: Int, input_zero_point: Int, output_zero_point: Int,
        input_multiplier: Int, input_shift: Int, diff_min: Int
    ) = cortex_m::softmax.default <- out;
    CORTEX_M_TRANSPOSE(input: Tensor, perm: Ints) = cortex_m::transpose.default <- out;
}
