//! Normalization and softmax.

use super::elementwise::same;
use super::{Call, Rule, TensorType, one};
use crate::operators::Operator as O;
use alloc::format;
use alloc::string::String;
use alloc::vec;
use torchlet_core::ScalarType;
use torchlet_core::layout::Sizes;

pub(super) fn rule(operator: O) -> Option<Rule> {
    Some(match operator {
        O::SOFTMAX_INT | O::LOG_SOFTMAX_INT | O::SAFE_SOFTMAX => |call| {
            let tensor = call.tensor(0)?;
            call.dim(1, tensor.rank())?;
            let own = call.dtype(2)?.unwrap_or(tensor.scalar_type);
            if own.is_integral(true) {
                return Err(format!("expected a floating-point dtype, found {own}"));
            }
            one(own, tensor.sizes)
        },
        O::SOFTMAX | O::LOG_SOFTMAX => |call| {
            let tensor = call.tensor(0)?;
            call.dim(1, tensor.rank())?;
            let widens = call.flag(2)?;
            one(if widens { ScalarType::Float } else { tensor.scalar_type }, tensor.sizes)
        },
        O::LAYER_NORM | O::RMS_NORM => |call| {
            suffix(call)?;
            same(call)
        },
        O::NATIVE_LAYER_NORM => |call| {
            let tensor = call.tensor(0)?;
            let outer = suffix(call)?;
            let ones = tensor.sizes.iter().enumerate();
            let sizes: Sizes =
                ones.map(|(dim, size)| if dim < outer { *size } else { 1 }).collect();
            let statistic = TensorType::new(tensor.scalar_type, sizes);
            Ok(vec![tensor, statistic.clone(), statistic])
        },
        O::GROUP_NORM => |call| {
            let tensor = call.tensor(0)?;
            let channels = i64::from(channels(&tensor)?);
            let groups = call.int(1)?;
            if groups <= 0 || channels % groups != 0 {
                return Err(format!("{groups} groups do not divide {channels} channels"));
            }
            per_channel(call, &tensor, &[2, 3])?;
            same(call)
        },
        O::NATIVE_GROUP_NORM => |call| {
            let tensor = call.tensor(0)?;
            let sizes = [call.int(3)?, call.int(6)?].map(super::size);
            let [batch, groups] = sizes;
            let sizes = Sizes::from_slice(&[batch?, groups?]).unwrap_or_default();
            let statistic = TensorType::new(tensor.scalar_type, sizes);
            Ok(vec![tensor, statistic.clone(), statistic])
        },
        O::BATCH_NORM | O::INSTANCE_NORM => |call| {
            let tensor = call.tensor(0)?;
            per_channel(call, &tensor, &[1, 2, 3, 4])?;
            same(call)
        },
        O::NATIVE_BATCH_NORM_LEGIT_NO_TRAINING => |call| {
            let tensor = call.tensor(0)?;
            per_channel(call, &tensor, &[1, 2, 3, 4])?;
            let none = Sizes::from_slice(&[0]).unwrap_or_default();
            let statistic = TensorType::new(tensor.scalar_type, none);
            Ok(vec![tensor, statistic.clone(), statistic])
        },
        _ => return None,
    })
}

/// Checks that the argument 1 has the last sizes of the input. Returns the number of other dims.
fn suffix(call: &Call<'_>) -> Result<usize, String> {
    let (tensor, normalized) = (call.tensor(0)?, call.ints(1)?);
    let outer = tensor.rank().checked_sub(normalized.len());
    let inner = outer.and_then(|outer| tensor.sizes.get(outer..));
    let fits = inner
        .is_some_and(|inner| inner.iter().map(|it| i64::from(*it)).eq(normalized.iter().copied()));
    let wrong = || format!("normalized shape {normalized:?} does not end {:?}", tensor.sizes);
    let outer = outer.filter(|_| fits && !normalized.is_empty()).ok_or_else(wrong)?;
    for at in [2, 3] {
        let is_tensor = call.operator != O::RMS_NORM || at == 2;
        if let Some(scale) = call.optional_tensor(at).filter(|_| is_tensor)
            && Some(&scale.sizes[..]) != inner
        {
            return Err(format!(
                "`{}` of shape {:?}: expected {normalized:?}",
                call.name(at),
                scale.sizes
            ));
        }
    }
    Ok(outer)
}

fn channels(tensor: &TensorType) -> Result<i32, String> {
    tensor.sizes.get(1).copied().ok_or_else(|| "expected at least 2 dims".into())
}

/// Checks that some arguments, if present, have one element for each channel.
fn per_channel(call: &Call<'_>, tensor: &TensorType, arguments: &[usize]) -> Result<(), String> {
    let channels = channels(tensor)?;
    for at in arguments {
        if let Some(scale) = call.optional_tensor(*at)
            && scale.sizes[..] != [channels]
        {
            return Err(format!(
                "`{}` of shape {:?}: expected [{channels}]",
                call.name(*at),
                scale.sizes
            ));
        }
    }
    Ok(())
}
