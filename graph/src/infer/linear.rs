//! Matrix multiplications and attention.

use super::shape::batch;
use super::{Call, Results, Rule, TensorType, one, push};
use crate::operators::Operator as O;
use alloc::format;
use alloc::string::String;
use alloc::vec;
use torchlet_core::ScalarType;
use torchlet_core::layout::Sizes;
use torchlet_core::rules::broadcast;
use torchlet_core::rules::matmul::{bmm, linear, mm};

pub(super) fn rule(operator: O) -> Option<Rule> {
    Some(match operator {
        O::MM => |call| multiplied(call, 0, |a, b| mm(a, b).map(|(_, sizes)| sizes)),
        O::BMM => |call| multiplied(call, 0, |a, b| bmm(a, b).map(|(_, sizes)| sizes)),
        O::DOT => |call| multiplied(call, 0, |a, b| (a.len() == 1 && a == b).then(Sizes::new)),
        O::OUTER => |call| {
            multiplied(call, 0, |a, b| match (a, b) {
                ([m], [n]) => Sizes::from_slice(&[*m, *n]).ok(),
                _ => None,
            })
        },
        O::MATMUL => |call| multiplied(call, 0, matmul),
        O::ADDMM => |call| added(call, |a, b| mm(a, b).map(|(_, sizes)| sizes)),
        O::BADDBMM => |call| added(call, |a, b| bmm(a, b).map(|(_, sizes)| sizes)),
        O::ADDBMM => |call| {
            added(call, |a, b| {
                let (_, sizes) = bmm(a, b)?;
                Sizes::from_slice(sizes.get(1..)?).ok()
            })
        },
        O::ADDMV => |call| {
            added(call, |a, b| match (a, b) {
                ([m, k], [own]) if k == own => Sizes::from_slice(&[*m]).ok(),
                _ => None,
            })
        },
        O::LINEAR => |call| {
            let results = multiplied(call, 0, |a, b| linear(a, b).map(|(_, sizes)| sizes))?;
            if let (Some(bias), [result]) = (call.optional_tensor(2), &results[..])
                && broadcast(&result.sizes, &bias.sizes).as_ref() != Some(&result.sizes)
            {
                return Err(format!(
                    "a bias of shape {:?} does not fit {:?}",
                    bias.sizes, result.sizes
                ));
            }
            Ok(results)
        },
        O::SCALED_DOT_PRODUCT_ATTENTION | O::FLASH_ATTENTION_FOR_CPU => attention,
        O::CDIST | O::CDIST_FORWARD => cdist,
        O::GRU_INPUT | O::RNN_TANH_INPUT | O::RNN_RELU_INPUT => |call| {
            let state = call.tensor(1)?;
            Ok(vec![recurrent(call, &state)?, state])
        },
        O::LSTM_INPUT => |call| match &call.tensors(1)?[..] {
            [state, cell] => Ok(vec![recurrent(call, state)?, state.clone(), cell.clone()]),
            states => Err(format!("{} initial states: expected two", states.len())),
        },
        _ => return None,
    })
}

/// A product of the arguments at two positions, which must have one dtype.
fn multiplied(
    call: &Call<'_>,
    at: usize,
    sizes: impl FnOnce(&[i32], &[i32]) -> Option<Sizes>,
) -> Results {
    let (a, b) = (call.tensor(at)?, call.tensor(at + 1)?);
    same_type(&a, &b)?;
    let wrong = || format!("shapes {:?} and {:?} cannot be multiplied", a.sizes, b.sizes);
    one(a.scalar_type, sizes(&a.sizes, &b.sizes).ok_or_else(wrong)?)
}

fn same_type(a: &TensorType, b: &TensorType) -> Result<ScalarType, String> {
    match a.scalar_type == b.scalar_type {
        true => Ok(a.scalar_type),
        false => Err(format!("expected one dtype, found {} and {}", a.scalar_type, b.scalar_type)),
    }
}

fn added(call: &Call<'_>, sizes: impl FnOnce(&[i32], &[i32]) -> Option<Sizes>) -> Results {
    let results = multiplied(call, 1, sizes)?;
    let input = call.tensor(0)?;
    for result in &results {
        same_type(&input, result)?;
        if broadcast(&result.sizes, &input.sizes).as_ref() != Some(&result.sizes) {
            return Err(format!(
                "a tensor of shape {:?} cannot be added to {:?}",
                input.sizes, result.sizes
            ));
        }
    }
    Ok(results)
}

fn matmul(a: &[i32], b: &[i32]) -> Option<Sizes> {
    let (rows, left, outer) = match a {
        [] => return None,
        [k] => (None, k, &[][..]),
        [outer @ .., m, k] => (Some(m), k, outer),
    };
    let (right, columns, own_outer) = match b {
        [] => return None,
        [k] => (k, None, &[][..]),
        [outer @ .., k, n] => (k, Some(n), outer),
    };
    let mut sizes = batch(outer, own_outer).ok()?;
    for size in rows.into_iter().chain(columns) {
        push(&mut sizes, *size).ok()?;
    }
    (left == right).then_some(sizes)
}

fn attention(call: &Call<'_>) -> Results {
    let [query, key, value] = [call.tensor(0)?, call.tensor(1)?, call.tensor(2)?];
    let scalar_type = same_type(&query, &key)?;
    same_type(&query, &value)?;
    let wrong = || {
        format!(
            "queries {:?}, keys {:?} and values {:?} do not fit",
            query.sizes, key.sizes, value.sizes
        )
    };
    let ([heads @ .., rows, depth], [own @ .., keys, key_depth], [own_value @ .., values, width]) =
        (&query.sizes[..], &key.sizes[..], &value.sizes[..])
    else {
        return Err(wrong());
    };
    if depth != key_depth || keys != values || own != own_value {
        return Err(wrong());
    }
    // With grouped-query attention, several heads share keys.
    let is_grouped = call.operator == O::SCALED_DOT_PRODUCT_ATTENTION && call.flag(7)?;
    let mut sizes = match is_grouped {
        true => Sizes::from_slice(heads).map_err(|_| wrong())?,
        false => batch(heads, own)?,
    };
    push(&mut sizes, *rows)?;
    push(&mut sizes, *width)?;
    let results = one(scalar_type, sizes);
    if call.operator == O::FLASH_ATTENTION_FOR_CPU {
        let sums = Sizes::from_slice(query.sizes.get(..3).unwrap_or_default());
        let sums = sums.map_err(|_| wrong())?;
        return results.map(|mut results| {
            results.push(TensorType::new(ScalarType::Float, sums));
            results
        });
    }
    results
}

/// The output of recurrent layers, which start with a state.
fn recurrent(call: &Call<'_>, state: &TensorType) -> Result<TensorType, String> {
    let input = call.tensor(0)?;
    same_type(&input, state)?;
    let (layers, both) = (call.int(4)?, call.flag(7)?);
    let directions: i32 = if both { 2 } else { 1 };
    let wrong = || format!("shapes {:?} and {:?} of input and state", input.sizes, state.sizes);
    let (states, hidden) = match &state.sizes[..] {
        [states, .., hidden] => (*states, *hidden),
        _ => return Err(wrong()),
    };
    // A batch is the second dim, or the first.
    let batch_dim = if call.flag(8)? { 0 } else { 1 };
    let batch = match input.rank() {
        3 => input.sizes.get(batch_dim),
        2 => None,
        _ => return Err(wrong()),
    };
    let fits = state.rank() == input.rank()
        && layers.checked_mul(directions.into()) == Some(states.into())
        && (batch.is_none() || state.sizes.get(1) == batch);
    let width = hidden.checked_mul(directions).filter(|_| fits).ok_or_else(wrong)?;
    let mut sizes = input.sizes.clone();
    if let Some(last) = sizes.last_mut() {
        *last = width;
    }
    Ok(TensorType::new(input.scalar_type, sizes))
}

fn cdist(call: &Call<'_>) -> Results {
    let (a, b) = (call.tensor(0)?, call.tensor(1)?);
    match (&a.sizes[..], &b.sizes[..]) {
        ([outer @ .., m, depth], [own @ .., n, own_depth]) if depth == own_depth => {
            let mut sizes = batch(outer, own)?;
            push(&mut sizes, *m)?;
            push(&mut sizes, *n)?;
            one(call.promoted(&[0, 1])?, sizes)
        }
        _ => Err(format!("shapes {:?} and {:?} do not fit", a.sizes, b.sizes)),
    }
}
