//! Operators for quantization and dequantization, and element-wise operators of quantized values.

use super::describe::*;
use super::*;

operators! {
    quantized;
    FAKE_QUANTIZE_PER_TENSOR_TENSOR(
        input: Tensor, scale: Tensor, zero_point: Tensor, fake_quant_enabled: Tensor,
        quant_min: Int, quant_max: Int
    ) = aten::_fake_quantize_per_tensor_affine_cachemask_tensor_qparams.default <- out;
    DEQUANTIZE_SELF(UnaryArgs) = aten::dequantize.self <- self_out;
    FAKE_QUANTIZE_PER_CHANNEL(
        input: Tensor, scale: Tensor, zero_point: Tensor, axis: Int, quant_min: Int,
        quant_max: Int
    ) = aten::fake_quantize_per_channel_affine_cachemask.default <- out;
    FAKE_QUANTIZE_PER_TENSOR(
        input: Tensor, scale: Float, zero_point: Int, quant_min: Int, quant_max: Int
    ) = aten::fake_quantize_per_tensor_affine_cachemask.default <- out;
    ET_VK_Q8TA_ADD(Q8taAddArgs {
        input_a: Tensor, input_b: Tensor, input_a_scale: Float, input_a_zero_point: Int,
        input_b_scale: Float, input_b_zero_point: Int, output_scale: Float,
        output_zero_point: Int, alpha: Float
    }) = et_vk::q8ta_add.default {
        elementwise: ArgumentSet::of(&[0, 1]), cost: Cost::Arithmetic, shape: Shape::Broadcast(2)
    };
    ET_VK_Q8TA_PIXEL_SHUFFLE(Q8taPixelShuffleArgs {
        input: Tensor, input_scale: Float, input_zero_point: Int, output_inv_scale: Float,
        output_zero_point: Int, upscale_factor: Int
    }) = et_vk::q8ta_pixel_shuffle.default;
    ET_VK_Q8TA_RELU(Q8taReluArgs {
        input: Tensor, input_scale: Float, input_zero_point: Int, output_scale: Float,
        output_zero_point: Int
    }) = et_vk::q8ta_relu.default
        { elementwise: ArgumentSet::of(&[0]), cost: Cost::Arithmetic, shape: Shape::Same };
    ETVK_CHOOSE_QPARAMS_PER_ROW(..) = etvk::choose_qparams_per_row.default;
    QUANTIZED_DECOMPOSED_ADD(
        a: Tensor, a_scale: Float, a_zero_point: Int, a_quant_min: Int, a_quant_max: Int,
        b: Tensor, b_scale: Float, b_zero_point: Int, b_quant_min: Int, b_quant_max: Int,
        out_scale: Float, out_zero_point: Int, out_quant_min: Int, out_quant_max: Int
    ) = quantized_decomposed::add.default <- out;
    QUANTIZED_DECOMPOSED_CHOOSE_QPARAMS_TENSOR(ChooseQparamsTensorArgs {
        input: Tensor, quant_min: Int, quant_max: Int, eps: Float, dtype: Dtype
    }) = quantized_decomposed::choose_qparams.tensor <- Tensor_out;
    QUANTIZED_DECOMPOSED_CHOOSE_QPARAMS_PER_TOKEN_ASYMMETRIC(ChooseQparamsPerTokenArgs {
        input: Tensor, dtype: Dtype
    }) = quantized_decomposed::choose_qparams_per_token_asymmetric.default <- out {
        batching: Batching::Leading(ArgumentSet::of(&[0]))
    };
    QUANTIZED_DECOMPOSED_DEQUANTIZE_PER_CHANNEL(DequantizePerChannelArgs {
        input: Tensor, scales: Tensor, zero_points: OptionalTensor, axis: Int, quant_min: Int,
        quant_max: Int, dtype: Dtype, out_dtype: OptionalDtype = None
    }) = quantized_decomposed::dequantize_per_channel.default <- out;
    QUANTIZED_DECOMPOSED_DEQUANTIZE_PER_TENSOR(DequantizePerTensorArgs {
        input: Tensor, scale: Float, zero_point: Int, quant_min: Int, quant_max: Int,
        dtype: Dtype, out_dtype: OptionalDtype = None
    }) = quantized_decomposed::dequantize_per_tensor.default <- out
        { elementwise: ArgumentSet::of(&[0]), batching: Batching::Broadcast };
    QUANTIZED_DECOMPOSED_DEQUANTIZE_PER_TENSOR_TENSOR(DequantizePerTensorTensorArgs {
        input: Tensor, scale: Tensor, zero_point: Tensor, quant_min: Int, quant_max: Int,
        dtype: Dtype, out_dtype: OptionalDtype = None
    }) = quantized_decomposed::dequantize_per_tensor.tensor <- Tensor_out;
    QUANTIZED_DECOMPOSED_DEQUANTIZE_PER_TOKEN(DequantizePerTokenArgs {
        input: Tensor, scales: Tensor, zero_points: Tensor, quant_min: Int, quant_max: Int,
        dtype: Dtype, output_dtype: Dtype
    }) = quantized_decomposed::dequantize_per_token.default <- out {
        batching: Batching::Leading(ArgumentSet::of(&[0, 1, 2]))
    };
    QUANTIZED_DECOMPOSED_EMBEDDING_2BIT(
        weight: Tensor, weight_scales: Tensor, weight_zero_points: OptionalTensor,
        weight_quant_min: Int, weight_quant_max: Int, indices: Tensor
    ) = quantized_decomposed::embedding_2bit.default <- out {
        batching: Batching::Leading(ArgumentSet::of(&[5]))
    };
    QUANTIZED_DECOMPOSED_EMBEDDING_2BIT_DTYPE(
        weight: Tensor, weight_scales: Tensor, weight_zero_points: OptionalTensor,
        weight_quant_min: Int, weight_quant_max: Int, indices: Tensor, dtype: OptionalDtype = None
    ) = quantized_decomposed::embedding_2bit.dtype <- dtype_out {
        batching: Batching::Leading(ArgumentSet::of(&[5]))
    };
    QUANTIZED_DECOMPOSED_EMBEDDING_4BIT(
        weight: Tensor, weight_scales: Tensor, weight_zero_points: OptionalTensor,
        weight_quant_min: Int, weight_quant_max: Int, indices: Tensor
    ) = quantized_decomposed::embedding_4bit.default <- out {
        batching: Batching::Leading(ArgumentSet::of(&[5]))
    };
    QUANTIZED_DECOMPOSED_EMBEDDING_4BIT_DTYPE(
        weight: Tensor, weight_scales: Tensor, weight_zero_points: OptionalTensor,
        weight_quant_min: Int, weight_quant_max: Int, indices: Tensor, dtype: OptionalDtype = None
    ) = quantized_decomposed::embedding_4bit.dtype <- dtype_out {
        batching: Batching::Leading(ArgumentSet::of(&[5]))
    };
    QUANTIZED_DECOMPOSED_EMBEDDING_BYTE(
        weight: Tensor, weight_scales: Tensor, weight_zero_points: OptionalTensor,
        weight_quant_min: Int, weight_quant_max: Int, indices: Tensor
    ) = quantized_decomposed::embedding_byte.default <- out {
        batching: Batching::Leading(ArgumentSet::of(&[5]))
    };
    QUANTIZED_DECOMPOSED_EMBEDDING_BYTE_DTYPE(
        weight: Tensor, weight_scales: Tensor, weight_zero_points: OptionalTensor,
        weight_quant_min: Int, weight_quant_max: Int, indices: Tensor, dtype: OptionalDtype = None
    ) = quantized_decomposed::embedding_byte.dtype <- dtype_out {
        batching: Batching::Leading(ArgumentSet::of(&[5]))
    };
    QUANTIZED_DECOMPOSED_QUANTIZE_PER_CHANNEL(
        input: Tensor, scales: Tensor, zero_points: Tensor, axis: Int, quant_min: Int,
        quant_max: Int, dtype: Dtype
    ) = quantized_decomposed::quantize_per_channel.default <- out;
    QUANTIZED_DECOMPOSED_QUANTIZE_PER_TENSOR(QuantizePerTensorArgs {
        input: Tensor, scale: Float, zero_point: Int, quant_min: Int, quant_max: Int, dtype: Dtype
    }) = quantized_decomposed::quantize_per_tensor.default <- out
        { elementwise: ArgumentSet::of(&[0]), batching: Batching::Broadcast };
    QUANTIZED_DECOMPOSED_QUANTIZE_PER_TENSOR_TENSOR(
        input: Tensor, scale: Tensor, zero_point: Tensor, quant_min: Int, quant_max: Int,
        dtype: Dtype
    ) = quantized_decomposed::quantize_per_tensor.tensor <- Tensor_out;
    QUANTIZED_DECOMPOSED_QUANTIZE_PER_TOKEN(QuantizePerTokenArgs {
        input: Tensor, scales: Tensor, zero_points: Tensor, quant_min: Int, quant_max: Int,
        dtype: Dtype
    }) = quantized_decomposed::quantize_per_token.default <- out {
        batching: Batching::Leading(ArgumentSet::of(&[0, 1, 2]))
    };
    TORCHAO_CHOOSE_QPARAMS_AFFINE(TorchaoChooseQparamsAffineArgs {
        input: OptionalTensor, mapping_type: Str, block_size: Ints, target_dtype: Dtype,
        quant_min: OptionalScalar = None, quant_max: OptionalScalar = None,
        eps: OptionalFloat = None, scale_dtype: OptionalDtype = None,
        zero_point_dtype: OptionalDtype = None, keepdim: Bool = false
    }) = torchao::choose_qparams_affine.default;
    TORCHAO_DEQUANTIZE_AFFINE(TorchaoDequantizeAffineArgs {
        input: Tensor, block_size: Ints, scale: Tensor, zero_point: OptionalTensor,
        input_dtype: Dtype, quant_min: OptionalScalar = None, quant_max: OptionalScalar = None,
        output_dtype: Dtype = 6
    }) = torchao::dequantize_affine.default;
    TORCHAO_QUANTIZE_AFFINE(TorchaoQuantizeAffineArgs {
        input: Tensor, block_size: Ints, scale: Tensor, zero_point: OptionalTensor,
        output_dtype: Dtype, quant_min: OptionalScalar = None, quant_max: OptionalScalar = None
    }) = torchao::quantize_affine.default;
    Q8TA_AVG_POOL2D(Q8taAvgPool2dArgs {
        input: Tensor, kernel_size: Ints, stride: Ints, padding: Ints, ceil_mode: Bool
    }) = "torchlet.q8ta_avg_pool2d" { shape: Shape::Pool };
    Q8TA_LOOKUP(LookupArgs { input: Tensor, lut: Tensor }) = "torchlet.q8ta_lookup"
        { elementwise: ArgumentSet::of(&[0]), shape: Shape::Same, batching: Batching::Broadcast };
    Q8TA_MUL(Q8taMulArgs {
        a: Tensor, b: Tensor, a_scale: Float, a_zero_point: Int, b_scale: Float,
        b_zero_point: Int, output_scale: Float, output_zero_point: Int
    }) = "torchlet.q8ta_mul" {
        elementwise: ArgumentSet::of(&[0, 1]), shape: Shape::Broadcast(2),
        batching: Batching::Broadcast
    };
    Q8TA_SOFTMAX(Q8taSoftmaxArgs {
        input: Tensor, input_scale: Float, input_zero_point: Int, dim: Int
    }) = "torchlet.q8ta_softmax" { shape: Shape::Same };
    RESCALED_ARITHMETIC(RescaledArithmeticArgs {
        a: Tensor, b: Tensor, tables: Tensor, operation: Int, scale: Float, zero_point: Int
    }) = "torchlet.rescaled_arithmetic" {
        elementwise: ArgumentSet::of(&[0, 1]), shape: Shape::Broadcast(2)
    };
    ROUNDED_ROWS(UnaryArgs) = "torchlet.rounded_rows" {
        batching: Batching::Leading(ArgumentSet::of(&[0]))
    };
}
