//! Selection, scattering, sorting and embeddings.

use super::elementwise::same;
use super::{Call, Results, Rule, TensorType, one, push, size};
use crate::graph::Value;
use crate::operators::Operator as O;
use alloc::format;
use alloc::vec;
use alloc::vec::Vec;
use torchlet_core::ScalarType;
use torchlet_core::layout::Sizes;
use torchlet_core::rules::broadcast_all;

pub(super) fn rule(operator: O) -> Option<Rule> {
    Some(match operator {
        O::INDEX_SELECT => |call| {
            let TensorType { scalar_type, mut sizes } = call.tensor(0)?;
            let dim = call.dim(1, sizes.len())?;
            let index = call.tensor(2)?;
            if index.rank() > 1 {
                return Err(format!("an index of shape {:?}: expected one dim", index.sizes));
            }
            if let Some(slot) = sizes.get_mut(dim) {
                *slot = index.sizes.first().copied().unwrap_or(1);
            }
            one(scalar_type, sizes)
        },
        O::GATHER => |call| {
            let (tensor, index) = (call.tensor(0)?, call.tensor(2)?);
            let dim = call.dim(1, tensor.rank())?;
            let fits = tensor.rank() == index.rank()
                && (index.sizes.iter().zip(&tensor.sizes).enumerate())
                    .all(|(at, (own, size))| at == dim || own <= size);
            match fits {
                true => one(tensor.scalar_type, index.sizes),
                false => Err(format!(
                    "an index of shape {:?} does not fit {:?}",
                    index.sizes, tensor.sizes
                )),
            }
        },
        O::TAKE_ALONG_DIM => |call| {
            let (tensor, index) = (call.tensor(0)?, call.tensor(1)?);
            let Some(dim) = call.optional_int(2)? else {
                let count =
                    index.sizes.iter().try_fold(1i64, |all, it| all.checked_mul((*it).into()));
                let mut sizes = Sizes::new();
                push(&mut sizes, size(count.unwrap_or(i64::MAX))?)?;
                return one(tensor.scalar_type, sizes);
            };
            let dim = super::normalize_dim(dim, tensor.rank()).ok_or("the dim is out of range")?;
            if tensor.rank() != index.rank() {
                return Err("expected an index with as many dims as the tensor".into());
            }
            let (mut one_, mut other) = (tensor.sizes.clone(), index.sizes.clone());
            let length = index.sizes.get(dim).copied().unwrap_or(1);
            for sizes in [&mut one_, &mut other] {
                if let Some(slot) = sizes.get_mut(dim) {
                    *slot = length;
                }
            }
            let sizes = broadcast_all([&one_[..], &other[..]]);
            one(tensor.scalar_type, sizes.ok_or("the shapes do not broadcast")?)
        },
        O::EMBEDDING => |call| {
            let (weight, index) = (call.tensor(0)?, call.tensor(1)?);
            let [_, width] = weight.sizes[..] else {
                return Err(format!("weights of shape {:?}: expected two dims", weight.sizes));
            };
            let mut sizes = index.sizes;
            push(&mut sizes, width)?;
            one(weight.scalar_type, sizes)
        },
        O::INDEX_TENSOR => indexed,
        O::INDEX_PUT
        | O::INDEX_ADD
        | O::INDEX_COPY
        | O::INDEX_FILL
        | O::SCATTER_SRC
        | O::SCATTER_VALUE
        | O::SCATTER_ADD
        | O::SCATTER_REDUCE
        | O::SCATTER_VALUE_REDUCE
        | O::SCATTER_REDUCE_TWO
        | O::MASKED_SCATTER
        | O::INDEX_REDUCE
        | O::PUT
        | O::AS_STRIDED_SCATTER => same,
        O::SELECT_SCATTER => |call| {
            scattered(call, |call| {
                let TensorType { mut sizes, .. } = call.tensor(0)?;
                let dim = call.dim(2, sizes.len())?;
                sizes.remove(dim);
                Ok(sizes)
            })
        },
        O::SLICE_SCATTER => |call| {
            scattered(call, |call| {
                let TensorType { mut sizes, .. } = call.tensor(0)?;
                let dim = call.dim(2, sizes.len())?;
                let bounds = (call.optional_int(3)?, call.optional_int(4)?);
                if let Some(slot) = sizes.get_mut(dim) {
                    let range =
                        super::slice_range((*slot).into(), bounds.0, bounds.1, call.int(5)?);
                    *slot = size(range.ok_or("expected a positive step")?.1)?;
                }
                Ok(sizes)
            })
        },
        O::DIAGONAL_SCATTER => same,
        O::SORT => |call| sorted(call, 1),
        O::SORT_STABLE => |call| sorted(call, 2),
        O::ARGSORT => |call| Ok(sorted(call, 1)?.split_off(1)),
        O::ARGSORT_STABLE => |call| Ok(sorted(call, 2)?.split_off(1)),
        O::TOPK => |call| {
            let TensorType { scalar_type, mut sizes } = call.tensor(0)?;
            let dim = call.dim(2, sizes.len())?;
            let count = size(call.int(1)?)?;
            if let Some(slot) = sizes.get_mut(dim) {
                if count > *slot {
                    return Err(format!("{count} of {slot} elements"));
                }
                *slot = count;
            }
            let indices = TensorType::new(ScalarType::Long, sizes.clone());
            Ok(vec![TensorType::new(scalar_type, sizes), indices])
        },
        O::REPEAT_INTERLEAVE_SELF_INT => |call| {
            let TensorType { scalar_type, sizes } = call.tensor(0)?;
            let repeats = call.int(1)?;
            let times = |length: i64| size(length.checked_mul(repeats).unwrap_or(-1));
            let Some(dim) = call.optional_int(2)? else {
                let count = sizes.iter().try_fold(1i64, |all, it| all.checked_mul((*it).into()));
                let mut made = Sizes::new();
                push(&mut made, times(count.unwrap_or(-1))?)?;
                return one(scalar_type, made);
            };
            let dim = super::normalize_dim(dim, sizes.len()).ok_or("the dim is out of range")?;
            let mut sizes = sizes;
            if let Some(slot) = sizes.get_mut(dim) {
                *slot = times((*slot).into())?;
            }
            one(scalar_type, sizes)
        },
        O::ONE_HOT => |call| {
            let TensorType { mut sizes, .. } = call.tensor(0)?;
            let classes = call.int(1)?;
            if classes < 1 {
                return Err("expected the number of classes, since elements are not read".into());
            }
            push(&mut sizes, size(classes)?)?;
            one(ScalarType::Long, sizes)
        },
        O::BUCKETIZE_TENSOR => |call| {
            let is_int = call.flag(2)?;
            let own = if is_int { ScalarType::Int } else { ScalarType::Long };
            one(own, call.tensor(0)?.sizes)
        },
        _ => return None,
    })
}

fn sorted(call: &Call<'_>, at: usize) -> Results {
    let tensor = call.tensor(0)?;
    call.dim(at, tensor.rank())?;
    let indices = TensorType::new(ScalarType::Long, tensor.sizes.clone());
    Ok(vec![tensor, indices])
}

/// A scatter whose source has the shape of the replaced view.
fn scattered(
    call: &Call<'_>,
    view: fn(&Call<'_>) -> Result<Sizes, alloc::string::String>,
) -> Results {
    let (expected, source) = (view(call)?, call.tensor(1)?);
    match expected == source.sizes {
        true => same(call),
        false => Err(format!("a source of shape {:?}: expected {expected:?}", source.sizes)),
    }
}

/// Indexing with tensors of integers.
fn indexed(call: &Call<'_>) -> Results {
    let tensor = call.tensor(0)?;
    let Value::List(items) = call.value(1) else { return Err(call.wrong(1, "a list of tensors")) };
    let indices: Vec<Option<TensorType>> = items.iter().map(|id| call.tensor_of(*id)).collect();
    if indices.len() > tensor.rank() {
        return Err(format!("{} indices of {} dims", indices.len(), tensor.rank()));
    }
    let is_mask =
        |index: &TensorType| [ScalarType::Bool, ScalarType::Byte].contains(&index.scalar_type);
    if indices.iter().flatten().any(is_mask) {
        return Err("a mask selects as many elements as it is true for, which a recorded program \
             does not know; use `where` or `masked_fill`"
            .into());
    }
    let shapes: Vec<Sizes> = indices.iter().flatten().map(|it| it.sizes.clone()).collect();
    let joined = broadcast_all(shapes.iter().map(|sizes| &sizes[..]));
    let joined =
        joined.ok_or_else(|| format!("indices of {} do not broadcast", super::listed(&shapes)))?;
    let places: Vec<usize> =
        indices.iter().enumerate().filter(|(_, it)| it.is_some()).map(|(at, _)| at).collect();
    let (Some(first), Some(last)) = (places.first(), places.last()) else { return same(call) };
    // Adjacent indices are replaced in their place, others move to the front.
    let is_adjacent = last - first + 1 == places.len();
    let at = if is_adjacent { *first } else { 0 };
    let mut sizes = Sizes::new();
    let rest = tensor.sizes.iter().enumerate().filter(|(dim, _)| !places.contains(dim));
    for (before, (_, own)) in rest.enumerate() {
        if before == at {
            joined.iter().try_for_each(|size| push(&mut sizes, *size))?;
        }
        push(&mut sizes, *own)?;
    }
    if tensor.rank() - places.len() <= at {
        joined.iter().try_for_each(|size| push(&mut sizes, *size))?;
    }
    one(tensor.scalar_type, sizes)
}
