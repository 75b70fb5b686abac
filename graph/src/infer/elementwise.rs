//! Element-wise operators: broadcasting and dtype promotion.

use super::{Call, Results, Rule, TensorType, floating, one};
use crate::operators::Operator as O;
use alloc::format;
use torchlet_core::ScalarType;

pub(super) fn rule(operator: O) -> Option<Rule> {
    Some(match operator {
        O::ABS => |call| {
            let tensor = call.tensor(0)?;
            one(real(tensor.scalar_type), tensor.sizes)
        },
        O::NEG
        | O::SIGN
        | O::CEIL
        | O::FLOOR
        | O::ROUND
        | O::ROUND_DECIMALS
        | O::TRUNC
        | O::RELU
        | O::RELU6
        | O::HARDTANH
        | O::HARDSWISH
        | O::HARDSIGMOID
        | O::LEAKY_RELU
        | O::ELU
        | O::CELU
        | O::SELU
        | O::GELU
        | O::SILU
        | O::MISH
        | O::SOFTPLUS
        | O::SOFTSHRINK
        | O::HARDSHRINK
        | O::LOG_SIGMOID
        | O::THRESHOLD
        | O::RRELU
        | O::BITWISE_NOT
        | O::FRAC
        | O::CONJ_PHYSICAL
        | O::NAN_TO_NUM
        | O::FILL_SCALAR
        | O::FILL_TENSOR
        | O::DROPOUT => same,
        O::SQUARE => square,
        O::ACOS
        | O::ACOSH
        | O::ASIN
        | O::ASINH
        | O::ATAN
        | O::ATANH
        | O::COS
        | O::COSH
        | O::SIN
        | O::SINH
        | O::TAN
        | O::TANH
        | O::EXP
        | O::EXP2
        | O::EXPM1
        | O::LOG
        | O::LOG10
        | O::LOG1P
        | O::LOG2
        | O::SQRT
        | O::RSQRT
        | O::RECIPROCAL
        | O::SIGMOID
        | O::LOGIT
        | O::ERF
        | O::ERFC
        | O::ERFINV
        | O::LGAMMA
        | O::DIGAMMA
        | O::I0
        | O::SPECIAL_I0E
        | O::SPECIAL_I1
        | O::SPECIAL_I1E
        | O::SPECIAL_ERFCX
        | O::SPECIAL_NDTRI => floats,
        O::ANGLE => |call| {
            let tensor = call.tensor(0)?;
            one(floating(real(tensor.scalar_type)), tensor.sizes)
        },
        O::ISINF
        | O::ISNAN
        | O::ISFINITE
        | O::ISNEGINF
        | O::ISPOSINF
        | O::LOGICAL_NOT
        | O::SIGNBIT => truths,
        O::ADD_TENSOR
        | O::ADD_SCALAR
        | O::SUB_TENSOR
        | O::SUB_SCALAR
        | O::RSUB_TENSOR
        | O::RSUB_SCALAR
        | O::MUL_TENSOR
        | O::MUL_SCALAR
        | O::MAXIMUM
        | O::MINIMUM
        | O::FMAX
        | O::FMIN
        | O::FMOD_TENSOR
        | O::FMOD_SCALAR
        | O::REMAINDER_TENSOR
        | O::REMAINDER_SCALAR
        | O::REMAINDER_SCALAR_TENSOR
        | O::FLOOR_DIVIDE
        | O::GCD
        | O::LCM
        | O::BITWISE_AND_TENSOR
        | O::BITWISE_AND_SCALAR
        | O::BITWISE_AND_SCALAR_TENSOR
        | O::BITWISE_OR_TENSOR
        | O::BITWISE_OR_SCALAR
        | O::BITWISE_OR_SCALAR_TENSOR
        | O::BITWISE_XOR_TENSOR
        | O::BITWISE_XOR_SCALAR
        | O::BITWISE_XOR_SCALAR_TENSOR
        | O::LSHIFT_TENSOR
        | O::LSHIFT_SCALAR
        | O::RSHIFT_TENSOR
        | O::RSHIFT_SCALAR
        | O::BITWISE_LEFT_SHIFT_TENSOR
        | O::BITWISE_LEFT_SHIFT_TENSOR_SCALAR
        | O::BITWISE_LEFT_SHIFT_SCALAR_TENSOR
        | O::BITWISE_RIGHT_SHIFT_TENSOR
        | O::BITWISE_RIGHT_SHIFT_TENSOR_SCALAR
        | O::BITWISE_RIGHT_SHIFT_SCALAR_TENSOR
        | O::HYPOT
        | O::NEXTAFTER
        | O::LOGADDEXP
        | O::POW_SCALAR
        | O::POW_TENSOR_SCALAR
        | O::POW_TENSOR_TENSOR => binary,
        O::DIV_TENSOR | O::DIV_SCALAR | O::ATAN2 | O::COPYSIGN | O::COPYSIGN_SCALAR | O::LDEXP => {
            float_binary
        }
        O::DIV_TENSOR_MODE | O::DIV_SCALAR_MODE => |call| match call.text(2) {
            None => float_binary(call),
            Some(_) => binary(call),
        },
        O::FLOAT_POWER_SCALAR => |call| one(ScalarType::Double, call.tensor(0)?.sizes),
        O::EQ_TENSOR
        | O::EQ_SCALAR
        | O::NE_TENSOR
        | O::NE_SCALAR
        | O::LT_TENSOR
        | O::LT_SCALAR
        | O::LE_TENSOR
        | O::LE_SCALAR
        | O::GT_TENSOR
        | O::GT_SCALAR
        | O::GE_TENSOR
        | O::GE_SCALAR
        | O::LOGICAL_AND
        | O::LOGICAL_OR
        | O::LOGICAL_XOR => |call| {
            call.promoted(&[0, 1])?;
            one(ScalarType::Bool, call.broadcast(&[0, 1])?)
        },
        O::CLAMP | O::CLAMP_TENSOR => clamp,
        O::CLAMP_MIN | O::CLAMP_MAX => binary,
        O::WHERE_SELF => |call| one(call.promoted(&[1, 2])?, call.broadcast(&[0, 1, 2])?),
        O::ADDCMUL | O::ADDCDIV => {
            |call| one(call.promoted(&[0, 1, 2])?, call.broadcast(&[0, 1, 2])?)
        }
        O::LERP_SCALAR => |call| one(call.tensor(0)?.scalar_type, call.broadcast(&[0, 1])?),
        O::LERP_TENSOR => |call| one(call.tensor(0)?.scalar_type, call.broadcast(&[0, 1, 2])?),
        O::MASKED_FILL_SCALAR | O::MASKED_FILL_TENSOR => {
            |call| one(call.tensor(0)?.scalar_type, call.broadcast(&[0, 1])?)
        }
        O::PRELU => prelu,
        O::GLU => glu,
        _ => return None,
    })
}

/// The dtype of the real part.
fn real(scalar_type: ScalarType) -> ScalarType {
    match scalar_type {
        ScalarType::ComplexHalf => ScalarType::Half,
        ScalarType::ComplexFloat => ScalarType::Float,
        ScalarType::ComplexDouble => ScalarType::Double,
        real => real,
    }
}

pub(super) fn same(call: &Call<'_>) -> Results {
    let tensor = call.tensor(0)?;
    one(tensor.scalar_type, tensor.sizes)
}

/// `pow(2)`, which turns booleans into integers.
fn square(call: &Call<'_>) -> Results {
    let TensorType { scalar_type, sizes } = call.tensor(0)?;
    let is_bool = scalar_type == ScalarType::Bool;
    one(if is_bool { ScalarType::Long } else { scalar_type }, sizes)
}

fn floats(call: &Call<'_>) -> Results {
    let tensor = call.tensor(0)?;
    one(floating(tensor.scalar_type), tensor.sizes)
}

fn truths(call: &Call<'_>) -> Results {
    one(ScalarType::Bool, call.tensor(0)?.sizes)
}

fn binary(call: &Call<'_>) -> Results {
    one(call.promoted(&[0, 1])?, call.broadcast(&[0, 1])?)
}

fn float_binary(call: &Call<'_>) -> Results {
    one(floating(call.promoted(&[0, 1])?), call.broadcast(&[0, 1])?)
}

fn clamp(call: &Call<'_>) -> Results {
    if call.operand(1).is_none() && call.operand(2).is_none() {
        return Err("expected `min`, `max` or both".into());
    }
    one(call.promoted(&[0, 1, 2])?, call.broadcast(&[0, 1, 2])?)
}

fn prelu(call: &Call<'_>) -> Results {
    let (input, weight) = (call.tensor(0)?, call.tensor(1)?);
    let channels = input.sizes.get(1).copied().unwrap_or(1);
    if weight.sizes.iter().any(|size| *size != 1) && weight.sizes[..] != [channels] {
        return Err(format!(
            "weights of shape {:?}: expected one, or one for each of {channels} channels",
            weight.sizes
        ));
    }
    one(input.scalar_type, input.sizes)
}

fn glu(call: &Call<'_>) -> Results {
    let TensorType { scalar_type, mut sizes } = call.tensor(0)?;
    let dim = call.dim(1, sizes.len())?;
    match sizes.get_mut(dim) {
        Some(size) if *size % 2 == 0 => *size /= 2,
        _ => return Err(format!("shape {sizes:?}: expected an even size of dim {dim}")),
    }
    one(scalar_type, sizes)
}
