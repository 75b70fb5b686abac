//! Tensors of constants and sequences.

use super::{Call, Results, Rule, TensorType, one, push, size, sizes_of};
use crate::operators::Operator as O;
use alloc::format;
use torchlet_core::layout::Sizes;
use torchlet_core::{Scalar, ScalarType};

pub(super) fn rule(operator: O) -> Option<Rule> {
    Some(match operator {
        O::EMPTY_MEMORY_FORMAT | O::ZEROS | O::ONES => {
            |call| one(call.dtype(1)?.unwrap_or(ScalarType::Float), sizes_of(&call.ints(0)?)?)
        }
        O::FULL => |call| {
            let own = call.dtype(2)?.or_else(|| call.scalar(1).map(default_type));
            one(own.unwrap_or(ScalarType::Float), sizes_of(&call.ints(0)?)?)
        },
        O::SCALAR_TENSOR => |call| one(call.dtype(1)?.unwrap_or(ScalarType::Float), Sizes::new()),
        O::ZEROS_LIKE | O::ONES_LIKE | O::EMPTY_LIKE => |call| like(call, 1),
        O::FULL_LIKE => |call| like(call, 2),
        O::NEW_ZEROS | O::NEW_ONES | O::NEW_EMPTY => |call| new(call, 2),
        O::NEW_FULL => |call| new(call, 3),
        O::EYE => |call| {
            let length = size(call.int(0)?)?;
            matrix(call.dtype(1)?, length, length)
        },
        O::EYE_M => |call| matrix(call.dtype(2)?, size(call.int(0)?)?, size(call.int(1)?)?),
        O::ARANGE => |call| counted(call, None, 0, None, 1),
        O::ARANGE_START => |call| counted(call, Some(0), 1, None, 2),
        O::ARANGE_START_STEP => |call| counted(call, Some(0), 1, Some(2), 3),
        O::LINSPACE => |call| {
            let mut sizes = Sizes::new();
            push(&mut sizes, size(call.int(2)?)?)?;
            one(call.dtype(3)?.unwrap_or(ScalarType::Float), sizes)
        },
        _ => return None,
    })
}

/// The dtype of a tensor that is made of a number.
fn default_type(scalar: Scalar) -> ScalarType {
    match scalar {
        Scalar::Int(_) => ScalarType::Long,
        Scalar::Bool(_) => ScalarType::Bool,
        _ => ScalarType::Float,
    }
}

fn like(call: &Call<'_>, dtype: usize) -> Results {
    let TensorType { scalar_type, sizes } = call.tensor(0)?;
    one(call.dtype(dtype)?.unwrap_or(scalar_type), sizes)
}

fn new(call: &Call<'_>, dtype: usize) -> Results {
    let own = call.tensor(0)?.scalar_type;
    one(call.dtype(dtype)?.unwrap_or(own), sizes_of(&call.ints(1)?)?)
}

fn matrix(dtype: Option<ScalarType>, rows: i32, columns: i32) -> Results {
    let mut sizes = Sizes::new();
    push(&mut sizes, rows)?;
    push(&mut sizes, columns)?;
    one(dtype.unwrap_or(ScalarType::Float), sizes)
}

fn counted(
    call: &Call<'_>,
    start: Option<usize>,
    end: usize,
    step: Option<usize>,
    dtype: usize,
) -> Results {
    let number = |at: Option<usize>, default: i64| match at {
        Some(at) => call.scalar(at).ok_or_else(|| call.wrong(at, "a number")),
        None => Ok(Scalar::Int(default)),
    };
    let numbers = [number(start, 0)?, number(Some(end), 0)?, number(step, 1)?];
    let are_integers = numbers.iter().all(|it| matches!(it, Scalar::Int(_)));
    let count = match numbers {
        [Scalar::Int(start), Scalar::Int(end), Scalar::Int(step)] => {
            let span = i128::from(end) - i128::from(start);
            let step = i128::from(step);
            if step == 0 || span.signum() * step.signum() < 0 {
                return Err(format!("no range from {start} to {end} in steps of {step}"));
            }
            let count = (span + step - step.signum()) / step;
            i64::try_from(count).unwrap_or(i64::MAX)
        }
        numbers => {
            let [start, end, step] = numbers.map(|scalar| match scalar {
                Scalar::Int(number) => number as f64,
                Scalar::Double(number) => number,
                Scalar::Bool(truth) => f64::from(u8::from(truth)),
            });
            let count = (end - start) / step;
            if !count.is_finite() || count < 0.0 || count > f64::from(i32::MAX) {
                return Err(format!("no range from {start} to {end} in steps of {step}"));
            }
            let whole = count as i64;
            whole + i64::from((whole as f64) < count)
        }
    };
    let mut sizes = Sizes::new();
    push(&mut sizes, size(count)?)?;
    let own = if are_integers { ScalarType::Long } else { ScalarType::Float };
    one(call.dtype(dtype)?.unwrap_or(own), sizes)
}
