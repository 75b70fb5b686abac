//! Element-wise operators: arithmetic, comparisons, bitwise operators and activations.

use super::describe::*;
use super::*;

operators! {
    elementwise: ELEMENTWISE;
    LSHIFT_SCALAR(BinaryScalarArgs { input: Tensor, other: Scalar }) = aten::__lshift__.Scalar
        <- Scalar_out { range: Range::ShiftedLeft };
    LSHIFT_TENSOR(BinaryArgs { input: Tensor, other: Tensor }) = aten::__lshift__.Tensor
        <- Tensor_out { range: Range::ShiftedLeft };
    RSHIFT_SCALAR(BinaryScalarArgs) = aten::__rshift__.Scalar <- Scalar_out
        { range: Range::TowardsZero };
    RSHIFT_TENSOR(BinaryArgs) = aten::__rshift__.Tensor <- Tensor_out { range: Range::TowardsZero };
    CONJ_PHYSICAL(UnaryArgs { input: Tensor }) = aten::_conj_physical.default <- out;
    ABS(UnaryArgs) = aten::abs.default <- out
        { is_unary_function: true, cost: Cost::Arithmetic, range: Range::Absolute };
    ACOS(UnaryArgs) = aten::acos.default <- out;
    ACOSH(UnaryArgs) = aten::acosh.default <- out;
    ADD_SCALAR(AddScalarArgs { input: Tensor, other: Scalar, alpha: Scalar = 1 })
        = aten::add.Scalar <- Scalar_out { cost: Cost::Arithmetic, range: Range::Sum };
    ADD_TENSOR(AddArgs { input: Tensor, other: Tensor, alpha: Scalar = 1 }) = aten::add.Tensor
        <- out {
        elementwise: ArgumentSet::of(&[0, 1]), cost: Cost::Arithmetic, shape: Shape::Broadcast(2),
        range: Range::Sum
    };
    ANGLE(UnaryArgs) = aten::angle.default <- out;
    ASIN(UnaryArgs) = aten::asin.default <- out;
    ASINH(UnaryArgs) = aten::asinh.default <- out;
    ATAN(UnaryArgs) = aten::atan.default <- out;
    ATAN2(BinaryArgs) = aten::atan2.default <- out;
    ATANH(UnaryArgs) = aten::atanh.default <- out;
    BITWISE_AND_SCALAR(BinaryScalarArgs) = aten::bitwise_and.Scalar <- Scalar_out
        { range: Range::And };
    BITWISE_AND_SCALAR_TENSOR(BinaryScalarTensorArgs { input: Scalar, other: Tensor })
        = aten::bitwise_and.Scalar_Tensor <- Scalar_Tensor_out { range: Range::And };
    BITWISE_AND_TENSOR(BinaryArgs) = aten::bitwise_and.Tensor <- Tensor_out { range: Range::And };
    BITWISE_LEFT_SHIFT_SCALAR_TENSOR(BinaryScalarTensorArgs)
        = aten::bitwise_left_shift.Scalar_Tensor <- Scalar_Tensor_out { range: Range::ShiftedLeft };
    BITWISE_LEFT_SHIFT_TENSOR(BinaryArgs) = aten::bitwise_left_shift.Tensor <- Tensor_out
        { range: Range::ShiftedLeft };
    BITWISE_LEFT_SHIFT_TENSOR_SCALAR(BinaryScalarArgs) = aten::bitwise_left_shift.Tensor_Scalar
        <- Tensor_Scalar_out { range: Range::ShiftedLeft };
    BITWISE_NOT(UnaryArgs) = aten::bitwise_not.default <- out { range: Range::Not };
    BITWISE_OR_SCALAR(BinaryScalarArgs) = aten::bitwise_or.Scalar <- Scalar_out
        { range: Range::Or };
    BITWISE_OR_SCALAR_TENSOR(BinaryScalarTensorArgs) = aten::bitwise_or.Scalar_Tensor
        <- Scalar_Tensor_out { range: Range::Or };
    BITWISE_OR_TENSOR(BinaryArgs) = aten::bitwise_or.Tensor <- Tensor_out { range: Range::Or };
    BITWISE_RIGHT_SHIFT_SCALAR_TENSOR(BinaryScalarTensorArgs)
        = aten::bitwise_right_shift.Scalar_Tensor <- Scalar_Tensor_out
        { range: Range::TowardsZero };
    BITWISE_RIGHT_SHIFT_TENSOR(BinaryArgs) = aten::bitwise_right_shift.Tensor <- Tensor_out
        { range: Range::TowardsZero };
    BITWISE_RIGHT_SHIFT_TENSOR_SCALAR(BinaryScalarArgs) = aten::bitwise_right_shift.Tensor_Scalar
        <- Tensor_Scalar_out { range: Range::TowardsZero };
    BITWISE_XOR_SCALAR(BinaryScalarArgs) = aten::bitwise_xor.Scalar <- Scalar_out
        { range: Range::Or };
    BITWISE_XOR_SCALAR_TENSOR(BinaryScalarTensorArgs) = aten::bitwise_xor.Scalar_Tensor
        <- Scalar_Tensor_out { range: Range::Or };
    BITWISE_XOR_TENSOR(BinaryArgs) = aten::bitwise_xor.Tensor <- Tensor_out { range: Range::Or };
    CEIL(UnaryArgs) = aten::ceil.default <- out;
    CLAMP_TENSOR(ClampTensorArgs {
        input: Tensor, min: OptionalTensor = None, max: OptionalTensor = None
    }) = aten::clamp.Tensor <- Tensor_out;
    CLAMP(ClampArgs { input: Tensor, min: OptionalScalar = None, max: OptionalScalar = None })
        = aten::clamp.default <- out {
        elementwise: ArgumentSet::of(&[0]), is_unary_function: true, cost: Cost::Arithmetic,
        shape: Shape::Same, range: Range::Clamped, saturation: Saturation::Clamped
    };
    CLAMP_MIN(input: Tensor, min: Scalar) = aten::clamp_min.default <- out;
    COMPLEX(real: Tensor, imag: Tensor) = aten::complex.default <- out;
    COPYSIGN_SCALAR(BinaryScalarArgs) = aten::copysign.Scalar <- Scalar_out;
    COPYSIGN(BinaryArgs) = aten::copysign.Tensor <- out;
    COS(UnaryArgs) = aten::cos.default <- out { cost: Cost::Function };
    COSH(UnaryArgs) = aten::cosh.default <- out;
    DIV_SCALAR(BinaryScalarArgs) = aten::div.Scalar <- Scalar_out
        { cost: Cost::Arithmetic, shape: Shape::Same };
    DIV_SCALAR_MODE(input: Tensor, other: Scalar, rounding_mode: OptionalStr)
        = aten::div.Scalar_mode <- Scalar_mode_out { range: Range::Quotient };
    DIV_TENSOR(BinaryArgs) = aten::div.Tensor <- out
        { cost: Cost::Arithmetic, shape: Shape::Broadcast(2) };
    DIV_TENSOR_MODE(DivModeArgs { input: Tensor, other: Tensor, rounding_mode: OptionalStr })
        = aten::div.Tensor_mode <- out_mode { range: Range::Quotient };
    ELU(EluArgs { input: Tensor, alpha: Scalar = 1, scale: Scalar = 1, input_scale: Scalar = 1 })
        = aten::elu.default <- out
        { elementwise: ArgumentSet::of(&[0]), is_unary_function: true, narrow_inputs: 1 };
    EQ_SCALAR(BinaryScalarArgs) = aten::eq.Scalar <- Scalar_out
        { shape: Shape::Same, saturation: Saturation::Compared };
    EQ_TENSOR(BinaryArgs) = aten::eq.Tensor <- Tensor_out { saturation: Saturation::Compared };
    EXP(UnaryArgs) = aten::exp.default <- out
        { is_unary_function: true, narrow_inputs: 1, cost: Cost::Function };
    EXP2(UnaryArgs) = aten::exp2.default <- out;
    EXPM1(UnaryArgs) = aten::expm1.default <- out;
    FLOOR(UnaryArgs) = aten::floor.default <- out;
    FLOOR_DIVIDE(BinaryArgs) = aten::floor_divide.default <- out { range: Range::Quotient };
    FMAX(BinaryArgs) = aten::fmax.default <- out { range: Range::Maximum };
    FMIN(BinaryArgs) = aten::fmin.default <- out { range: Range::Minimum };
    FMOD_SCALAR(BinaryScalarArgs) = aten::fmod.Scalar <- Scalar_out { range: Range::TowardsZero };
    FMOD_TENSOR(BinaryArgs) = aten::fmod.Tensor <- Tensor_out { range: Range::TowardsZero };
    FREXP(UnaryArgs) = aten::frexp.Tensor <- Tensor_out;
    GCD(BinaryArgs) = aten::gcd.default <- out;
    GE_SCALAR(BinaryScalarArgs) = aten::ge.Scalar <- Scalar_out
        { saturation: Saturation::Compared };
    GE_TENSOR(BinaryArgs) = aten::ge.Tensor <- Tensor_out { saturation: Saturation::Compared };
    GELU(GeluArgs { input: Tensor, approximate: Str = "none" }) = aten::gelu.default <- out {
        elementwise: ArgumentSet::of(&[0]), is_unary_function: true, narrow_inputs: 1,
        cost: Cost::Function, shape: Shape::Same
    };
    GLU(input: Tensor, dim: Int = -1) = aten::glu.default <- out
        { batching: Batching::Dims(ArgumentSet::of(&[1])) };
    GT_SCALAR(BinaryScalarArgs) = aten::gt.Scalar <- Scalar_out
        { saturation: Saturation::Compared };
    GT_TENSOR(BinaryArgs) = aten::gt.Tensor <- Tensor_out { saturation: Saturation::Compared };
    HARDSHRINK(HardshrinkArgs { input: Tensor, lambd: Scalar = 0.5 }) = aten::hardshrink.default;
    HARDSIGMOID(UnaryArgs) = aten::hardsigmoid.default <- out {
        elementwise: ArgumentSet::of(&[0]), is_unary_function: true, narrow_inputs: 1,
        cost: Cost::Arithmetic, shape: Shape::Same
    };
    HARDSWISH(UnaryArgs) = aten::hardswish.default <- out {
        elementwise: ArgumentSet::of(&[0]), is_unary_function: true, narrow_inputs: 1,
        cost: Cost::Arithmetic, shape: Shape::Same
    };
    HARDTANH(HardtanhArgs { input: Tensor, min_val: Scalar = -1, max_val: Scalar = 1 })
        = aten::hardtanh.default <- out {
        elementwise: ArgumentSet::of(&[0]), is_unary_function: true, cost: Cost::Arithmetic,
        shape: Shape::Same
    };
    HYPOT(BinaryArgs) = aten::hypot.default <- out;
    ISINF(UnaryArgs) = aten::isinf.default <- out;
    ISNAN(UnaryArgs) = aten::isnan.default <- out;
    LCM(BinaryArgs) = aten::lcm.default <- out;
    LDEXP(BinaryArgs) = aten::ldexp.Tensor <- out;
    LE_SCALAR(BinaryScalarArgs) = aten::le.Scalar <- Scalar_out
        { saturation: Saturation::Compared };
    LE_TENSOR(BinaryArgs) = aten::le.Tensor <- Tensor_out { saturation: Saturation::Compared };
    LEAKY_RELU(LeakyReluArgs { input: Tensor, negative_slope: Scalar = 0.01 })
        = aten::leaky_relu.default <- out
        { elementwise: ArgumentSet::of(&[0]), is_unary_function: true, cost: Cost::Arithmetic };
    LOG(UnaryArgs) = aten::log.default <- out { narrow_inputs: 1, cost: Cost::Function };
    LOG10(UnaryArgs) = aten::log10.default <- out;
    LOG1P(UnaryArgs) = aten::log1p.default <- out;
    LOG2(UnaryArgs) = aten::log2.default <- out;
    LOGICAL_AND(BinaryArgs) = aten::logical_and.default <- out { saturation: Saturation::Sign };
    LOGICAL_NOT(UnaryArgs) = aten::logical_not.default <- out
        { shape: Shape::Same, saturation: Saturation::Sign };
    LOGICAL_OR(BinaryArgs) = aten::logical_or.default <- out { saturation: Saturation::Sign };
    LOGICAL_XOR(BinaryArgs) = aten::logical_xor.default <- out { saturation: Saturation::Sign };
    LOGIT(input: Tensor, eps: OptionalFloat = None) = aten::logit.default <- out;
    LT_SCALAR(BinaryScalarArgs) = aten::lt.Scalar <- Scalar_out
        { saturation: Saturation::Compared };
    LT_TENSOR(BinaryArgs) = aten::lt.Tensor <- Tensor_out { saturation: Saturation::Compared };
    MAXIMUM(BinaryArgs) = aten::maximum.default <- out
        { cost: Cost::Arithmetic, range: Range::Maximum };
    MINIMUM(BinaryArgs) = aten::minimum.default <- out
        { cost: Cost::Arithmetic, range: Range::Minimum };
    MUL_SCALAR(BinaryScalarArgs) = aten::mul.Scalar <- Scalar_out
        { cost: Cost::Arithmetic, shape: Shape::Same, range: Range::Product };
    MUL_TENSOR(BinaryArgs) = aten::mul.Tensor <- out {
        elementwise: ArgumentSet::of(&[0, 1]), cost: Cost::Arithmetic, shape: Shape::Broadcast(2),
        range: Range::Product
    };
    NE_SCALAR(BinaryScalarArgs) = aten::ne.Scalar <- Scalar_out
        { saturation: Saturation::Compared };
    NE_TENSOR(BinaryArgs) = aten::ne.Tensor <- Tensor_out { saturation: Saturation::Compared };
    NEG(UnaryArgs) = aten::neg.default <- out
        { is_unary_function: true, cost: Cost::Arithmetic, range: Range::Negated };
    NEXTAFTER(BinaryArgs) = aten::nextafter.default <- out;
    POLAR(abs: Tensor, angle: Tensor) = aten::polar.default <- out;
    POW_SCALAR(input: Scalar, exponent: Tensor) = aten::pow.Scalar <- Scalar_out;
    POW_TENSOR_SCALAR(PowArgs { input: Tensor, exponent: Scalar }) = aten::pow.Tensor_Scalar
        <- Tensor_Scalar_out { cost: Cost::Function, shape: Shape::Same };
    POW_TENSOR_TENSOR(input: Tensor, exponent: Tensor) = aten::pow.Tensor_Tensor
        <- Tensor_Tensor_out { cost: Cost::Function };
    RECIPROCAL(UnaryArgs) = aten::reciprocal.default <- out { cost: Cost::Function };
    RELU(UnaryArgs) = aten::relu.default <- out {
        elementwise: ArgumentSet::of(&[0]), is_unary_function: true, cost: Cost::Arithmetic,
        range: Range::Relu
    };
    RELU6(UnaryArgs) = aten::relu6.default { cost: Cost::Arithmetic };
    REMAINDER_SCALAR(BinaryScalarArgs) = aten::remainder.Scalar <- Scalar_out
        { range: Range::Remainder };
    REMAINDER_SCALAR_TENSOR(BinaryScalarTensorArgs) = aten::remainder.Scalar_Tensor
        <- Scalar_Tensor_out { range: Range::Remainder };
    REMAINDER_TENSOR(BinaryArgs) = aten::remainder.Tensor <- Tensor_out { range: Range::Remainder };
    ROUND_DECIMALS(RoundDecimalsArgs { input: Tensor, decimals: Int }) = aten::round.decimals
        <- decimals_out;
    ROUND(UnaryArgs) = aten::round.default <- out;
    RSQRT(UnaryArgs) = aten::rsqrt.default <- out
        { narrow_inputs: 1, cost: Cost::Function, shape: Shape::Same };
    RSUB_SCALAR(AddScalarArgs) = aten::rsub.Scalar <- Scalar_out
        { range: Range::ReversedDifference };
    SIGMOID(UnaryArgs) = aten::sigmoid.default <- out {
        elementwise: ArgumentSet::of(&[0]), is_unary_function: true, narrow_inputs: 1,
        cost: Cost::Function, shape: Shape::Same
    };
    SIGN(UnaryArgs) = aten::sign.default <- out
        { range: Range::Within(-1, 1), saturation: Saturation::Sign };
    SIGNBIT(UnaryArgs) = aten::signbit.default <- out { saturation: Saturation::Sign };
    SILU(UnaryArgs) = aten::silu.default <- out {
        elementwise: ArgumentSet::of(&[0]), is_unary_function: true, narrow_inputs: 1,
        cost: Cost::Function, shape: Shape::Same
    };
    SILU_BACKWARD(grad_output: Tensor, input: Tensor) = aten::silu_backward.default <- grad_input;
    SIN(UnaryArgs) = aten::sin.default <- out { cost: Cost::Function };
    SINH(UnaryArgs) = aten::sinh.default <- out;
    SOFTPLUS(input: Tensor, beta: Scalar = 1, threshold: Scalar = 20) = aten::softplus.default
        <- out;
    SQRT(UnaryArgs) = aten::sqrt.default <- out { narrow_inputs: 1, cost: Cost::Function };
    SUB_SCALAR(AddScalarArgs) = aten::sub.Scalar <- Scalar_out
        { cost: Cost::Arithmetic, range: Range::Difference };
    SUB_TENSOR(AddArgs) = aten::sub.Tensor <- out {
        elementwise: ArgumentSet::of(&[0, 1]), cost: Cost::Arithmetic, shape: Shape::Broadcast(2),
        range: Range::Difference
    };
    TAN(UnaryArgs) = aten::tan.default <- out;
    TANH(UnaryArgs) = aten::tanh.default <- out {
        elementwise: ArgumentSet::of(&[0]), is_unary_function: true, narrow_inputs: 1,
        cost: Cost::Function, shape: Shape::Same
    };
    TRUNC(UnaryArgs) = aten::trunc.default <- out;
    WHERE_SELF(WhereArgs { condition: Tensor, input: Tensor, other: Tensor }) = aten::where.self
        <- self_out
        { cost: Cost::Arithmetic, shape: Shape::Broadcast(3), range: Range::Either(1, 2) };
}
