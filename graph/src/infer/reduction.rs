//! Reductions and running sums.

use super::{Call, Results, Rule, TensorType, one};
use crate::operators::Operator as O;
use alloc::format;
use alloc::string::String;
use alloc::vec;
use torchlet_core::ScalarType;
use torchlet_core::layout::Sizes;
use torchlet_core::rules::{DimSet, reduced_shape};

pub(super) fn rule(operator: O) -> Option<Rule> {
    Some(match operator {
        O::SUM | O::PROD => |call| whole(call, |call, own| summed(call.dtype(1)?, own)),
        O::SUM_DIM_INT_LIST => {
            |call| dims(call, Some(1), 2, |call, own| summed(call.dtype(3)?, own))
        }
        O::PROD_DIM_INT => |call| dims(call, Some(1), 2, |call, own| summed(call.dtype(3)?, own)),
        O::MEAN => |call| whole(call, |call, own| averaged(call.dtype(1)?, own)),
        O::MEAN_DIM => |call| dims(call, Some(1), 2, |call, own| averaged(call.dtype(3)?, own)),
        O::AMAX | O::AMIN => |call| dims(call, Some(1), 2, |_, own| Ok(own)),
        O::MAX | O::MIN | O::MEDIAN | O::NANMEDIAN => |call| whole(call, |_, own| Ok(own)),
        O::MAX_DIM | O::MIN_DIM | O::MEDIAN_DIM | O::NANMEDIAN_DIM => |call| {
            let values = dims(call, Some(1), 2, |_, own| Ok(own))?;
            let indices = dims(call, Some(1), 2, |_, _| Ok(ScalarType::Long))?;
            Ok([values, indices].concat())
        },
        O::ARGMAX | O::ARGMIN => |call| dims(call, Some(1), 2, |_, _| Ok(ScalarType::Long)),
        O::ALL | O::ANY => |call| whole(call, |_, own| Ok(truth(own))),
        O::ALL_DIM | O::ANY_DIM => |call| dims(call, Some(1), 2, |_, own| Ok(truth(own))),
        O::ALL_DIMS | O::ANY_DIMS => |call| match call.optional_ints(1)? {
            // An empty list reduces nothing.
            Some(list) if list.is_empty() => {
                let tensor = call.tensor(0)?;
                one(truth(tensor.scalar_type), tensor.sizes)
            }
            _ => dims(call, Some(1), 2, |_, own| Ok(truth(own))),
        },
        O::VAR | O::STD => |call| whole(call, |_, own| averaged(None, own)),
        O::VAR_DIM | O::STD_DIM | O::VAR_CORRECTION | O::STD_CORRECTION => {
            |call| dims(call, Some(1), 3, |_, own| averaged(None, own))
        }
        O::VAR_MEAN_DIM | O::VAR_MEAN_CORRECTION | O::STD_MEAN_CORRECTION => |call| {
            let variance = dims(call, Some(1), 3, |_, own| averaged(None, own))?;
            Ok([variance.clone(), variance].concat())
        },
        O::LOGSUMEXP => |call| dims(call, Some(1), 2, |_, own| Ok(super::floating(own))),
        O::NORM_SCALAR => |call| whole(call, |_, own| averaged(None, own)),
        O::NORM_DIM => |call| dims(call, Some(2), 3, |_, own| averaged(None, own)),
        O::LINALG_VECTOR_NORM | O::LINALG_NORM => {
            |call| dims(call, Some(2), 3, |call, own| averaged(call.dtype(4)?, own))
        }
        O::CUMSUM | O::CUMPROD => |call| {
            let tensor = call.tensor(0)?;
            call.dim(1, tensor.rank())?;
            one(summed(call.dtype(2)?, tensor.scalar_type)?, tensor.sizes)
        },
        O::LOGCUMSUMEXP => |call| {
            let tensor = call.tensor(0)?;
            call.dim(1, tensor.rank())?;
            one(tensor.scalar_type, tensor.sizes)
        },
        O::CUMMAX | O::CUMMIN => |call| {
            let tensor = call.tensor(0)?;
            call.dim(1, tensor.rank())?;
            let indices = TensorType::new(ScalarType::Long, tensor.sizes.clone());
            Ok(vec![tensor, indices])
        },
        _ => return None,
    })
}

/// Sums of integers are 64-bit.
fn summed(dtype: Option<ScalarType>, own: ScalarType) -> Result<ScalarType, String> {
    let is_integral = own.is_integral(true);
    Ok(dtype.unwrap_or(if is_integral { ScalarType::Long } else { own }))
}

/// Averages exist for floats only.
fn averaged(dtype: Option<ScalarType>, own: ScalarType) -> Result<ScalarType, String> {
    let made = dtype.unwrap_or(own);
    match made.is_integral(true) {
        true => Err(format!("expected a floating-point dtype, found {made}")),
        false => Ok(made),
    }
}

/// Truth values are booleans, except those of bytes.
fn truth(own: ScalarType) -> ScalarType {
    if own == ScalarType::Byte { own } else { ScalarType::Bool }
}

type DtypeRule = fn(&Call<'_>, ScalarType) -> Result<ScalarType, String>;

fn whole(call: &Call<'_>, dtype: DtypeRule) -> Results {
    one(dtype(call, call.tensor(0)?.scalar_type)?, Sizes::new())
}

/// A reduction over the dims in the argument `at`, or over all.
fn dims(call: &Call<'_>, at: Option<usize>, keep: usize, dtype: DtypeRule) -> Results {
    let TensorType { scalar_type, sizes } = call.tensor(0)?;
    let list = at.map(|at| call.optional_ints(at)).transpose()?.flatten();
    let set = DimSet::of_or_all(list.as_deref(), sizes.len());
    let wrong = || format!("dims {list:?} do not fit shape {sizes:?}");
    let set = set.ok_or_else(wrong)?;
    one(dtype(call, scalar_type)?, reduced_shape(&sizes, set, call.flag(keep)?))
}
