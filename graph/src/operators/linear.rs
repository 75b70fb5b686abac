//! Operators for matrix multiplications and distances.

use super::describe::*;
use super::*;

operators! {
    linear;
    CDIST_BACKWARD(grad_output: Tensor, x1: Tensor, x2: Tensor, p: Float, cdist: Tensor)
        = aten::_cdist_backward.default <- out;
    CDIST_FORWARD(CdistArgs { x1: Tensor, x2: Tensor, p: Float, compute_mode: OptionalInt })
        = aten::_cdist_forward.default <- out { cost: Cost::Gemm(0) };
    INT_MM(MmArgs { input: Tensor, mat2: Tensor }) = aten::_int_mm.default <- out { folds: false };
    PDIST_BACKWARD(grad_output: Tensor, input: Tensor, p: Float, pdist: Tensor)
        = aten::_pdist_backward.default <- out;
    PDIST_FORWARD(input: Tensor, p: Float = 2.0) = aten::_pdist_forward.default <- out
        { folds: false };
    TRILINEAR(
        i1: Tensor, i2: Tensor, i3: Tensor, expand1: Ints, expand2: Ints, expand3: Ints,
        sumdim: Ints, unroll_dim: Int = 1
    ) = aten::_trilinear.default <- out { folds: false };
    WEIGHT_INT8PACK_MM(WeightInt8packMmArgs { input: Tensor, mat2: Tensor, scales: Tensor })
        = aten::_weight_int8pack_mm.default {
        cost: Cost::Gemm(0), batching: Batching::Folded(ArgumentSet::of(&[0]))
    };
    ADDBMM(BaddbmmArgs {
        input: Tensor, batch1: Tensor, batch2: Tensor, beta: Scalar = 1, alpha: Scalar = 1
    }) = aten::addbmm.default <- out { folds: false };
    ADDMM(AddmmArgs {
        input: Tensor, mat1: Tensor, mat2: Tensor, beta: Scalar = 1, alpha: Scalar = 1
    }) = aten::addmm.default <- out {
        weights: Some(2), cost: Cost::Gemm(1), shape: Shape::Gemm(1),
        batching: Batching::Folded(ArgumentSet::of(&[1]))
    };
    ADDMV(input: Tensor, mat: Tensor, vec: Tensor, beta: Scalar = 1, alpha: Scalar = 1)
        = aten::addmv.default <- out { folds: false };
    BADDBMM(BaddbmmArgs) = aten::baddbmm.default <- out {
        cost: Cost::Gemm(1), shape: Shape::Gemm(1),
        batching: Batching::Folded(ArgumentSet::of(&[0, 1, 2]))
    };
    BMM(MmArgs) = aten::bmm.default <- out {
        weights: Some(1), cost: Cost::Gemm(0), shape: Shape::Gemm(0),
        batching: Batching::Folded(ArgumentSet::of(&[0, 1]))
    };
    DOT(input: Tensor, tensor: Tensor) = aten::dot.default <- out;
    LINEAR(LinearArgs { input: Tensor, weight: Tensor, bias: OptionalTensor = None })
        = aten::linear.default <- out {
        prepacks_weights: true, weights: Some(1), cost: Cost::Gemm(0), shape: Shape::Linear,
        batching: Batching::Leading(ArgumentSet::of(&[0]))
    };
    MM(MmArgs) = aten::mm.default <- out {
        weights: Some(1), cost: Cost::Gemm(0), shape: Shape::Gemm(0),
        batching: Batching::Folded(ArgumentSet::of(&[0]))
    };
    ET_VK_LINEAR_D_W(LinearDWArgs { d_out: Tensor, x: Tensor }) = et_vk::linear_dW.default;
    ET_VK_LINEAR_DQ8CA_Q4GSW(LinearDq8caQ4gswArgs {
        input: Tensor, input_scales: Tensor, input_zp: Tensor, weights: Tensor,
        weight_sums: Tensor, weight_scales: Tensor, group_size: Int, bias: OptionalTensor = None
    }) = et_vk::linear_dq8ca_q4gsw.default { cost: Cost::Gemm(0) };
    ET_VK_LINEAR_Q4GSW(LinearQ4gswArgs {
        input: Tensor, weights: Tensor, weight_scales: Tensor, group_size: Int,
        bias: OptionalTensor = None
    }) = et_vk::linear_q4gsw.default {
        cost: Cost::Gemm(0), batching: Batching::Leading(ArgumentSet::of(&[0]))
    };
    ET_VK_LINEAR_Q4GSW_BACKWARD(LinearQ4gswBackwardArgs {
        d_out: Tensor, weights: Tensor, weight_scales: Tensor, group_size: Int
    }) = et_vk::linear_q4gsw_backward.default;
    ET_VK_LINEAR_Q8CSW(LinearQ8cswArgs {
        input: Tensor, weights: Tensor, weight_scales: Tensor, bias: OptionalTensor = None
    }) = et_vk::linear_q8csw.default { cost: Cost::Gemm(0) };
    ET_VK_LINEAR_Q8TA_Q8CSW(LinearQ8taQ8cswArgs {
        input: Tensor, input_scale: Float, input_zero_point: Int, weights: Tensor,
        weight_sums: Tensor, weight_scales: Tensor, bias: OptionalTensor = None
    }) = et_vk::linear_q8ta_q8csw.default { cost: Cost::Gemm(0) };
    ET_VK_LINEAR_QCS4W(LinearQcs4wArgs { input: Tensor, weight: Tensor, scales: Tensor })
        = et_vk::linear_qcs4w.default { cost: Cost::Gemm(0) };
    ET_VK_Q4GSW_LINEAR(LinearQ4gswArgs) = et_vk::q4gsw_linear.default { cost: Cost::Gemm(0) };
    ET_VK_Q8TA_LINEAR(Q8taLinearArgs {
        input: Tensor, input_scale: Float, input_zero_point: Int, weights: Tensor,
        weight_sums: Tensor, weight_scales: Tensor, output_scale: Float, output_zero_point: Int,
        bias: OptionalTensor = None, activation: Str = "none"
    }) = et_vk::q8ta_linear.default { cost: Cost::Gemm(0), shape: Shape::QuantizedLinear };
    ET_VK_Q8TA_LINEAR_GEMV(Q8taLinearArgs) = et_vk::q8ta_linear_gemv.default
        { cost: Cost::Gemm(0) };
    QUANTIZED_DECOMPOSED_MIXED_LINEAR(
        input: Tensor, weight: Tensor, weight_scales: Tensor, weight_zero_points: OptionalTensor,
        dtype: OptionalDtype = None
    ) = quantized_decomposed::mixed_linear.default <- out { cost: Cost::Gemm(0) };
    QUANTIZED_DECOMPOSED_MIXED_MM(
        input: Tensor, weight: Tensor, weight_scales: Tensor, weight_zero_points: OptionalTensor
    ) = quantized_decomposed::mixed_mm.default <- out { cost: Cost::Gemm(0) };
    DYNAMIC_LINEAR(DynamicLinearArgs {
        input: Tensor, weights: Tensor, weight_scales: Tensor, weight_sums: Tensor,
        bias: OptionalTensor, bits: Int
    }) = "torchlet.dynamic_linear" {
        cost: Cost::Gemm(0), shape: Shape::Linear,
        batching: Batching::Leading(ArgumentSet::of(&[0]))
    };
    LINEAR_INT8(LinearInt8Args {
        input: Tensor, weights: Tensor, weight_scales: Tensor, bias: OptionalTensor, bits: Int
    }) = "torchlet.linear_int8" { batching: Batching::Leading(ArgumentSet::of(&[0])) };
}
