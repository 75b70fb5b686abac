//! Integer operators of TOSA whose arithmetic no ATen operator has. Images are channels-last.

use super::describe::*;
use super::*;

operators! {
    tosa;
    TOSA_ARITHMETIC_RIGHT_SHIFT(input: Tensor, other: Tensor, round: Bool)
        = tosa::arithmetic_right_shift.default <- out { shape: Shape::Broadcast(2) };
    TOSA_AVG_POOL2D(TosaAvgPool2dArgs {
        input: Tensor, kernel_size: Ints, stride: Ints, padding: Ints, input_zp: Int,
        output_zp: Int
    }) = tosa::avg_pool2d.default <- out { folds: false };
    TOSA_CLZ(UnaryArgs) = tosa::clz.default <- out { shape: Shape::Same };
    TOSA_CONV2D(TosaConvArgs {
        input: Tensor, weight: Tensor, bias: Tensor, padding: Ints, stride: Ints, dilation: Ints,
        input_zp: Int, weight_zp: Int
    }) = tosa::conv2d.default <- out { cost: Cost::Convolution, weights: Some(1) };
    TOSA_CONV3D(TosaConvArgs) = tosa::conv3d.default <- out
        { cost: Cost::Convolution, weights: Some(1) };
    TOSA_DEPTHWISE_CONV2D(TosaConvArgs) = tosa::depthwise_conv2d.default <- out
        { cost: Cost::Convolution, weights: Some(1) };
    TOSA_LOGICAL_RIGHT_SHIFT(BinaryArgs) = tosa::logical_right_shift.default <- out
        { shape: Shape::Broadcast(2) };
    TOSA_MATMUL(TosaMatmulArgs { a: Tensor, b: Tensor, a_zp: Int, b_zp: Int })
        = tosa::matmul.default <- out { cost: Cost::Gemm(0), shape: Shape::Gemm(0) };
    TOSA_MUL(input: Tensor, other: Tensor, shift: Int) = tosa::mul.default <- out
        { cost: Cost::Arithmetic, shape: Shape::Broadcast(2) };
    TOSA_RESCALE(TosaRescaleArgs {
        input: Tensor, multiplier: Tensor, shift: Tensor, input_zp: Int, output_zp: Int,
        scale32: Bool, double_round: Bool, per_channel: Bool, input_unsigned: Bool,
        output_unsigned: Bool
    }) = tosa::rescale.default <- out { cost: Cost::Arithmetic, shape: Shape::Same };
    TOSA_RESIZE(TosaResizeArgs {
        input: Tensor, scale: Ints, offset: Ints, border: Ints, bilinear: Bool
    }) = tosa::resize.default <- out { folds: false };
    TOSA_TABLE(LookupArgs) = tosa::table.default <- out
        { cost: Cost::Arithmetic, shape: Shape::Same };
    TOSA_TRANSPOSE_CONV2D(TosaTransposeConvArgs {
        input: Tensor, weight: Tensor, bias: Tensor, out_padding: Ints, stride: Ints,
        input_zp: Int, weight_zp: Int
    }) = tosa::transpose_conv2d.default <- out { cost: Cost::Convolution, weights: Some(1) };
}
