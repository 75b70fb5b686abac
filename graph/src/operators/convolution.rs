//! Convolution operators, in floating point and quantized.

use super::describe::*;
use super::*;

operators! {
    convolution;
    COL2IM(
        input: Tensor, output_size: Ints, kernel_size: Ints, dilation: Ints, padding: Ints,
        stride: Ints
    ) = aten::col2im.default <- out;
    CONVOLUTION(ConvolutionArgs {
        input: Tensor, weight: Tensor, bias: OptionalTensor, stride: Ints, padding: Ints,
        dilation: Ints, transposed: Bool, output_padding: Ints, groups: Int
    }) = aten::convolution.default <- out {
        prepacks_weights: true, weights: Some(1), cost: Cost::Convolution,
        batching: Batching::Folded(ArgumentSet::of(&[0]))
    };
    CONVOLUTION_BACKWARD(
        grad_output: Tensor, input: Tensor, weight: Tensor, bias_sizes: OptionalInts,
        stride: Ints, padding: Ints, dilation: Ints, transposed: Bool, output_padding: Ints,
        groups: Int, output_mask: Bools
    ) = aten::convolution_backward.default <- out { folds: false };
    CONV_WITH_CLAMP(ConvolutionWithClampArgs {
        input: Tensor, weight: Tensor, bias: OptionalTensor, stride: Ints, padding: Ints,
        dilation: Ints, transposed: Bool, output_padding: Ints, groups: Int,
        output_min: OptionalScalar, output_max: OptionalScalar
    }) = "conv_with_clamp.default" { cost: Cost::Convolution };
    ET_VK_CONV1D_DW(Conv1dArgs {
        input: Tensor, weight: Tensor, bias: OptionalTensor, stride: Int, padding: Int,
        dilation: Int, groups: Int, output_min: OptionalScalar, output_max: OptionalScalar
    }) = et_vk::conv1d_dw.default { prepacks_weights: true, cost: Cost::Convolution };
    ET_VK_CONV1D_PW(Conv1dArgs) = et_vk::conv1d_pw.default
        { prepacks_weights: true, cost: Cost::Convolution };
    ET_VK_CONV2D_GEMM(ConvolutionWithClampArgs) = et_vk::conv2d_gemm.default
        { cost: Cost::Convolution };
    ET_VK_CONV2D_Q8CSW(Conv2dQ8cswArgs {
        input: Tensor, weights: Tensor, weight_scales: Tensor, bias: OptionalTensor,
        kernel_size: Ints, stride: Ints, padding: Ints, dilation: Ints, groups: Int
    }) = et_vk::conv2d_q8csw.default { cost: Cost::Convolution };
    ET_VK_CONV2D_Q8TA_Q8CSW(Conv2dQ8taQ8cswArgs {
        input: Tensor, input_scale: Float, input_zero_point: Int, weights: Tensor,
        weight_sums: Tensor, weight_scales: Tensor, bias: OptionalTensor, kernel_size: Ints,
        stride: Ints, padding: Ints, dilation: Ints, groups: Int
    }) = et_vk::conv2d_q8ta_q8csw.default { cost: Cost::Convolution };
    ET_VK_CONV2D_Q8TA_Q8CSW_Q8TO(Q8taConv2dArgs {
        input: Tensor, input_scale: Float, input_zero_point: Int, weights: Tensor,
        weight_sums: Tensor, weight_scales: Tensor, output_scale: Float, output_zero_point: Int,
        bias: OptionalTensor, kernel_size: Ints, stride: Ints, padding: Ints, dilation: Ints,
        groups: Int, activation: Str = "none"
    }) = et_vk::conv2d_q8ta_q8csw_q8to.default { cost: Cost::Convolution };
    ET_VK_CONV2D_Q8TA_Q8CSW_Q8TO_DW(Q8taConv2dArgs) = et_vk::conv2d_q8ta_q8csw_q8to_dw.default
        { cost: Cost::Convolution };
    ET_VK_CONV_WITH_CLAMP(ConvolutionWithClampArgs) = et_vk::conv_with_clamp.default
        { prepacks_weights: true, cost: Cost::Convolution };
    ET_VK_Q8TA_CONV2D(Q8taConv2dArgs) = et_vk::q8ta_conv2d.default
        { cost: Cost::Convolution, shape: Shape::QuantizedConvolution };
    ET_VK_Q8TA_CONV2D_DW(Q8taConv2dArgs) = et_vk::q8ta_conv2d_dw.default
        { cost: Cost::Convolution, shape: Shape::QuantizedConvolution };
    ET_VK_Q8TA_CONV2D_GENERAL(Q8taConv2dArgs) = et_vk::q8ta_conv2d_general.default
        { cost: Cost::Convolution };
    ET_VK_Q8TA_CONV2D_IM2COL(Q8taConv2dArgs) = et_vk::q8ta_conv2d_im2col.default
        { cost: Cost::Convolution };
    ET_VK_Q8TA_CONV2D_PW(Q8taConv2dArgs) = et_vk::q8ta_conv2d_pw.default
        { cost: Cost::Convolution };
    ET_VK_Q8TA_CONV2D_TRANSPOSED(Q8taConv2dTransposedArgs {
        input: Tensor, input_scale: Float, input_zero_point: Int, weights: Tensor,
        weight_sums: Tensor, weight_scales: Tensor, output_scale: Float, output_zero_point: Int,
        bias: OptionalTensor, kernel_size: Ints, stride: Ints, padding: Ints,
        output_padding: Ints, dilation: Ints, groups: Int, activation: Str
    }) = et_vk::q8ta_conv2d_transposed.default
        { cost: Cost::Convolution, shape: Shape::QuantizedConvolution };
    ETVK_TEST_CONV2D_Q8TA_Q8CSW_Q8TO(Q8taConv2dTestArgs {
        input: Tensor, input_scale: Float, input_zero_point: Int, weights: Tensor,
        weight_sums: Tensor, weight_scales: Tensor, output_scale: Float, output_zero_point: Int,
        bias: OptionalTensor, kernel_size: Ints, stride: Ints, padding: Ints, dilation: Ints,
        groups: Int, layout: Str
    }) = etvk::test_conv2d_q8ta_q8csw_q8to.default;
    DEPTHWISE_LAST(DepthwiseLastArgs {
        input: Tensor, weight: Tensor, bias: OptionalTensor, stride: Ints, padding: Ints,
        dilation: Ints
    }) = "torchlet.depthwise_last";
    DYNAMIC_CONVOLUTION(DynamicConvolutionArgs {
        input: Tensor, weights: Tensor, weight_scales: Tensor, bias: OptionalTensor,
        kernel_size: Ints, stride: Ints, padding: Ints, output_padding: Ints, dilation: Ints,
        groups: Int, transposed: Bool
    }) = "torchlet.dynamic_convolution"
        { cost: Cost::Convolution, shape: Shape::DynamicConvolution };
}
