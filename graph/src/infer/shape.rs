//! Views, copies, concatenation, splitting and padding.

use super::elementwise::same;
use super::{Call, Results, Rule, TensorType, listed, one, push, size};
use crate::operators::Operator as O;
use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use torchlet_core::layout::{Sizes, checked_numel};
use torchlet_core::rules::{self, View, broadcast_all, normalize_dim, slice_range, view_sizes};
use torchlet_core::{ScalarType, TensorInfo};

pub(super) fn rule(operator: O) -> Option<Rule> {
    Some(match operator {
        O::ALIAS_COPY
        | O::CLONE
        | O::DETACH_COPY
        | O::LIFT_FRESH_COPY
        | O::CONTIGUOUS
        | O::TRIL
        | O::TRIU
        | O::COPY => same,
        O::FLIP => |call| viewed(call, |view, call| Ok(view.flip(&call.ints(1)?))),
        O::ROLL => same,
        O::TO_COPY | O::TO_DTYPE_LAYOUT => |call| converted(call, call.dtype(1)?),
        O::TO_DTYPE => |call| converted(call, call.dtype(1)?),
        O::TO_DEVICE => |call| converted(call, call.dtype(2)?),
        O::TO_OTHER | O::TYPE_AS => |call| converted(call, Some(call.tensor(1)?.scalar_type)),
        O::VIEW_COPY | O::RESHAPE => |call| reshaped(call, &call.ints(1)?),
        O::VIEW_AS => |call| {
            let sizes: Vec<i64> = call.tensor(1)?.sizes.iter().map(|it| (*it).into()).collect();
            reshaped(call, &sizes)
        },
        O::FLATTEN => flatten,
        O::UNFLATTEN => unflatten,
        O::PERMUTE | O::PERMUTE_COPY => {
            |call| viewed(call, |view, call| Ok(view.permute(&call.ints(1)?)))
        }
        O::TRANSPOSE_COPY_INT => {
            |call| viewed(call, |view, call| Ok(view.transpose(call.int(1)?, call.int(2)?)))
        }
        O::T_COPY => |call| match call.tensor(0)?.rank() {
            0 | 1 => same(call),
            2 => viewed(call, |view, _| Ok(view.transpose(0, 1))),
            rank => Err(format!("expected at most 2 dims, found {rank}")),
        },
        O::NUMPY_T => |call| {
            let TensorType { scalar_type, mut sizes } = call.tensor(0)?;
            sizes.reverse();
            one(scalar_type, sizes)
        },
        O::MT => |call| viewed(call, |view, _| Ok(view.transpose(-2, -1))),
        O::MOVEDIM => movedim,
        O::SQUEEZE_COPY => |call| {
            let TensorType { scalar_type, sizes } = call.tensor(0)?;
            one(scalar_type, sizes.iter().copied().filter(|size| *size != 1).collect())
        },
        O::SQUEEZE_COPY_DIM => |call| viewed(call, |view, call| Ok(view.squeeze(&[call.int(1)?]))),
        O::SQUEEZE_COPY_DIMS => |call| viewed(call, |view, call| Ok(view.squeeze(&call.ints(1)?))),
        O::UNSQUEEZE_COPY => |call| viewed(call, |view, call| Ok(view.unsqueeze(call.int(1)?))),
        O::EXPAND_COPY => |call| viewed(call, |view, call| Ok(view.expand(&call.ints(1)?))),
        O::EXPAND_AS => |call| {
            viewed(call, |view, call| {
                let sizes: Vec<i64> = call.tensor(1)?.sizes.iter().map(|it| (*it).into()).collect();
                Ok(view.expand(&sizes))
            })
        },
        O::SELECT_INT | O::SELECT_COPY_INT => {
            |call| viewed(call, |view, call| Ok(view.select(call.int(1)?, call.int(2)?)))
        }
        O::SLICE_TENSOR | O::SLICE_COPY_TENSOR => slice,
        O::NARROW | O::NARROW_COPY => |call| {
            viewed(call, |view, call| Ok(view.narrow(call.int(1)?, call.int(2)?, call.int(3)?)))
        },
        O::DIAGONAL_COPY => |call| {
            viewed(call, |view, call| Ok(view.diagonal(call.int(1)?, call.int(2)?, call.int(3)?)))
        },
        O::UNFOLD_COPY => |call| {
            viewed(call, |view, call| Ok(view.unfold(call.int(1)?, call.int(2)?, call.int(3)?)))
        },
        O::AS_STRIDED_COPY => |call| {
            let tensor = call.tensor(0)?;
            let numel = checked_numel(&tensor.sizes).unwrap_or(0);
            let offset = call.optional_int(3)?.unwrap_or(0);
            let view = View::as_strided(numel, &call.ints(1)?, &call.ints(2)?, offset);
            let view = view.ok_or("the strides exceed the tensor")?;
            one(tensor.scalar_type, view.sizes().clone())
        },
        O::CAT => cat,
        O::STACK => stack,
        O::HSTACK => |call| joined_over(call, |rank| usize::from(rank > 1), 1),
        O::VSTACK => |call| joined_over(call, |_| 0, 2),
        O::SPLIT_COPY_TENSOR => |call| {
            let parts = call.int(1)?;
            let length = length_of(call, 2)?;
            if parts <= 0 && !(parts == 0 && length == 0) {
                return Err(format!("a split size of {parts}: expected at least 1"));
            }
            let count = if length == 0 { 1 } else { (length - 1) / parts + 1 };
            bounded(count)?;
            let part = |at: i64| parts.min(length - at * parts);
            parts_of(call, 2, (0..count).map(part).collect())
        },
        O::CHUNK => |call| {
            let (chunks, length) = (call.int(1)?, length_of(call, 2)?);
            if chunks <= 0 {
                return Err(format!("{chunks} chunks: expected at least 1"));
            }
            // Rounded up.
            let part = if length == 0 { 0 } else { (length - 1) / chunks + 1 };
            let count = if part == 0 { chunks } else { (length - 1) / part + 1 };
            bounded(count)?;
            parts_of(call, 2, (0..count).map(|at| part.min(length - at * part)).collect())
        },
        O::TENSOR_SPLIT => |call| {
            let (sections, length) = (call.int(1)?, length_of(call, 2)?);
            if sections <= 0 {
                return Err(format!("{sections} sections: expected at least 1"));
            }
            bounded(sections)?;
            let (part, rest) = (length / sections, length % sections);
            parts_of(call, 2, (0..sections).map(|at| part + i64::from(at < rest)).collect())
        },
        O::SPLIT_WITH_SIZES_COPY => |call| {
            let (parts, length) = (call.ints(1)?, length_of(call, 2)?);
            let sum = parts.iter().try_fold(0i64, |sum, part| sum.checked_add(*part));
            if sum != Some(length) || parts.iter().any(|part| *part < 0) {
                return Err(format!("split sizes {parts:?}: expected a sum of {length}"));
            }
            parts_of(call, 2, parts)
        },
        O::UNBIND_COPY_INT => |call| {
            let TensorType { scalar_type, mut sizes } = call.tensor(0)?;
            let dim = call.dim(1, sizes.len())?;
            let count = *sizes.get(dim).ok_or("a tensor without dims")?;
            sizes.remove(dim);
            bounded(count.into())?;
            Ok(vec![TensorType::new(scalar_type, sizes); usize::try_from(count).unwrap_or(0)])
        },
        O::REPEAT | O::TILE => repeat,
        O::CONSTANT_PAD_ND | O::PAD => |call| {
            let TensorType { scalar_type, sizes } = call.tensor(0)?;
            let pad = call.ints(1)?;
            let padded = rules::pad(&sizes, &pad);
            let wrong = || format!("padding {pad:?} does not fit shape {sizes:?}");
            one(scalar_type, padded.ok_or_else(wrong)?)
        },
        O::REFLECTION_PAD1D | O::REPLICATION_PAD1D => |call| border(call, 1),
        O::REFLECTION_PAD2D | O::REPLICATION_PAD2D => |call| border(call, 2),
        O::REFLECTION_PAD3D | O::REPLICATION_PAD3D => |call| border(call, 3),
        O::PIXEL_SHUFFLE => |call| pixels(call, true),
        O::PIXEL_UNSHUFFLE => |call| pixels(call, false),
        O::CHANNEL_SHUFFLE => same,
        O::MESHGRID => meshgrid,
        _ => return None,
    })
}

/// Maximum number of results of a call.
const MAX_RESULTS: i64 = 1 << 16;

fn bounded(count: i64) -> Result<(), String> {
    match count <= MAX_RESULTS {
        true => Ok(()),
        false => Err(format!("{count} results: expected at most {MAX_RESULTS}")),
    }
}

/// The shape of a strided view of the first argument.
fn viewed(
    call: &Call<'_>,
    change: impl FnOnce(View, &Call<'_>) -> Result<Option<View>, String>,
) -> Results {
    let tensor = call.tensor(0)?;
    let info = TensorInfo::contiguous(tensor.scalar_type, &tensor.sizes);
    let view = info.as_ref().and_then(View::of).ok_or("the tensor is too large")?;
    let wrong = || format!("the arguments do not fit shape {:?}", tensor.sizes);
    let view = change(view, call)?.ok_or_else(wrong)?;
    one(tensor.scalar_type, view.sizes().clone())
}

fn converted(call: &Call<'_>, dtype: Option<ScalarType>) -> Results {
    let tensor = call.tensor(0)?;
    one(dtype.unwrap_or(tensor.scalar_type), tensor.sizes)
}

fn reshaped(call: &Call<'_>, sizes: &[i64]) -> Results {
    let tensor = call.tensor(0)?;
    let numel = checked_numel(&tensor.sizes).unwrap_or(0);
    let wrong =
        || format!("shape {sizes:?} does not fit the {numel} elements of {:?}", tensor.sizes);
    one(tensor.scalar_type, view_sizes(numel, sizes).ok_or_else(wrong)?)
}

fn flatten(call: &Call<'_>) -> Results {
    let TensorType { scalar_type, sizes } = call.tensor(0)?;
    if sizes.is_empty() {
        return one(scalar_type, Sizes::from_slice(&[1]).unwrap_or_default());
    }
    let (start, end) = (call.dim(1, sizes.len())?, call.dim(2, sizes.len())?);
    if start > end {
        return Err(format!("dims {start} to {end}: the first is behind the last"));
    }
    let mut made: Sizes = sizes.iter().copied().take(start).collect();
    let merged = sizes.iter().skip(start).take(end - start + 1);
    let merged = merged.fold(1i64, |product, size| product.saturating_mul((*size).into()));
    push(&mut made, size(merged)?)?;
    for size in sizes.iter().skip(end + 1) {
        push(&mut made, *size)?;
    }
    one(scalar_type, made)
}

fn unflatten(call: &Call<'_>) -> Results {
    let TensorType { scalar_type, sizes } = call.tensor(0)?;
    let dim = call.dim(1, sizes.len())?;
    let parts = call.ints(2)?;
    let length = sizes.get(dim).copied().unwrap_or(1);
    let inner = view_sizes(usize::try_from(length).unwrap_or(0), &parts);
    let inner = inner.ok_or_else(|| format!("sizes {parts:?} do not fit a dim of {length}"))?;
    let mut made: Sizes = sizes.iter().copied().take(dim).collect();
    for size in inner.iter().chain(sizes.iter().skip(dim + 1)) {
        push(&mut made, *size)?;
    }
    one(scalar_type, made)
}

fn movedim(call: &Call<'_>) -> Results {
    let tensor = call.tensor(0)?;
    let rank = tensor.rank();
    let (source, destination) = (call.ints(1)?, call.ints(2)?);
    let wrong = || format!("dims {source:?} cannot move to {destination:?} of {rank} dims");
    if source.len() != destination.len() {
        return Err(wrong());
    }
    let mut order: Vec<Option<usize>> = vec![None; rank];
    let mut moved = Vec::new();
    for (from, to) in source.iter().zip(&destination) {
        let from = normalize_dim(*from, rank).ok_or_else(wrong)?;
        let to = normalize_dim(*to, rank).ok_or_else(wrong)?;
        let slot = order.get_mut(to).filter(|slot| slot.is_none()).ok_or_else(wrong)?;
        *slot = Some(from);
        if moved.contains(&from) {
            return Err(wrong());
        }
        moved.push(from);
    }
    let mut rest = (0..rank).filter(|dim| !moved.contains(dim));
    let order = order.into_iter().map(|dim| dim.or_else(|| rest.next()));
    let sizes = order.filter_map(|dim| tensor.sizes.get(dim?).copied()).collect();
    one(tensor.scalar_type, sizes)
}

fn slice(call: &Call<'_>) -> Results {
    let TensorType { scalar_type, mut sizes } = call.tensor(0)?;
    let dim = call.dim(1, sizes.len())?;
    let slot = sizes.get_mut(dim).ok_or("a tensor without dims")?;
    let (start, end, step) = (call.optional_int(2)?, call.optional_int(3)?, call.int(4)?);
    let range = slice_range((*slot).into(), start, end, step);
    let (_, length) = range.ok_or_else(|| format!("a step of {step}: expected at least 1"))?;
    *slot = size(length)?;
    one(scalar_type, sizes)
}

fn cat(call: &Call<'_>) -> Results {
    let tensors = call.tensors(0)?;
    let shapes: Vec<Sizes> = tensors.iter().map(|tensor| tensor.sizes.clone()).collect();
    let dim = call.int(1)?;
    let joined = rules::cat(shapes.iter().cloned().map(Some), dim);
    let wrong = || format!("shapes {} do not join over dim {dim}", listed(&shapes));
    let (sizes, _) = joined.ok_or_else(wrong)?;
    one(common_type(&tensors)?, sizes)
}

fn common_type(tensors: &[TensorType]) -> Result<ScalarType, String> {
    let operands = tensors.iter().filter_map(TensorType::operand);
    rules::result_type(operands).ok_or_else(|| "PyTorch does not promote these dtypes".into())
}

fn stack(call: &Call<'_>) -> Results {
    let tensors = call.tensors(0)?;
    let first = tensors.first().ok_or("expected at least one tensor")?;
    if tensors.iter().any(|tensor| tensor.sizes != first.sizes) {
        let shapes: Vec<Sizes> = tensors.iter().map(|tensor| tensor.sizes.clone()).collect();
        return Err(format!("shapes {}: expected equal ones", listed(&shapes)));
    }
    let dim = call.dim(1, first.rank() + 1)?;
    let mut sizes = first.sizes.clone();
    let count = size(tensors.len() as i64)?;
    sizes.insert(dim, count).map_err(|_| String::from("too many dims"))?;
    one(common_type(&tensors)?, sizes)
}

/// Concatenation of tensors that first get at least `rank` dims.
fn joined_over(call: &Call<'_>, dim: fn(usize) -> usize, rank: usize) -> Results {
    let tensors = call.tensors(0)?;
    let raised = |tensor: &TensorType| {
        let missing = rank.saturating_sub(tensor.rank());
        let ones = core::iter::repeat_n(1, missing);
        ones.chain(tensor.sizes.iter().copied()).collect::<Sizes>()
    };
    let shapes: Vec<Sizes> = tensors.iter().map(raised).collect();
    let own = shapes.first().map_or(0, |shape| dim(shape.len()));
    let joined = rules::cat(shapes.iter().cloned().map(Some), own as i64);
    let (sizes, _) = joined.ok_or_else(|| format!("shapes {} do not join", listed(&shapes)))?;
    one(common_type(&tensors)?, sizes)
}

fn length_of(call: &Call<'_>, at: usize) -> Result<i64, String> {
    let tensor = call.tensor(0)?;
    let dim = call.dim(at, tensor.rank())?;
    tensor.sizes.get(dim).map(|size| (*size).into()).ok_or_else(|| "a tensor without dims".into())
}

fn parts_of(call: &Call<'_>, at: usize, lengths: Vec<i64>) -> Results {
    bounded(i64::try_from(lengths.len()).unwrap_or(i64::MAX))?;
    let tensor = call.tensor(0)?;
    let dim = call.dim(at, tensor.rank())?;
    let part = |length: i64| {
        let mut sizes = tensor.sizes.clone();
        if let Some(slot) = sizes.get_mut(dim) {
            *slot = size(length)?;
        }
        Ok(TensorType::new(tensor.scalar_type, sizes))
    };
    lengths.into_iter().map(part).collect()
}

fn repeat(call: &Call<'_>) -> Results {
    let TensorType { scalar_type, sizes } = call.tensor(0)?;
    let mut repeats = call.ints(1)?;
    if call.operator == O::TILE {
        while repeats.len() < sizes.len() {
            repeats.insert(0, 1);
        }
    }
    let wrong = || format!("repeats {repeats:?} do not fit shape {sizes:?}");
    one(scalar_type, rules::repeat(&sizes, &repeats).ok_or_else(wrong)?)
}

fn border(call: &Call<'_>, dims: usize) -> Results {
    let TensorType { scalar_type, sizes } = call.tensor(0)?;
    let pad = call.ints(1)?;
    let wrong = || format!("padding {pad:?} does not fit shape {sizes:?}");
    if pad.len() != 2 * dims || ![dims + 1, dims + 2].contains(&sizes.len()) {
        return Err(wrong());
    }
    one(scalar_type, rules::pad(&sizes, &pad).ok_or_else(wrong)?)
}

fn pixels(call: &Call<'_>, grow: bool) -> Results {
    let TensorType { scalar_type, mut sizes } = call.tensor(0)?;
    let factor = size(call.int(1)?)?;
    let own = sizes.clone();
    let wrong = || format!("a factor of {factor} does not fit shape {own:?}");
    let area = factor.checked_mul(factor).filter(|area| *area > 0).ok_or_else(wrong)?;
    let [.., channels, height, width] = &mut sizes[..] else {
        return Err("expected at least 3 dims".into());
    };
    let fits = match grow {
        true => *channels % area == 0,
        false => *height % factor == 0 && *width % factor == 0,
    };
    if !fits {
        return Err(wrong());
    }
    let (divided, multiplied) = (i32::checked_div, i32::checked_mul);
    if grow {
        *channels = divided(*channels, area).ok_or_else(wrong)?;
        *height = multiplied(*height, factor).ok_or_else(wrong)?;
        *width = multiplied(*width, factor).ok_or_else(wrong)?;
    } else {
        *channels = multiplied(*channels, area).ok_or_else(wrong)?;
        *height = divided(*height, factor).ok_or_else(wrong)?;
        *width = divided(*width, factor).ok_or_else(wrong)?;
    }
    one(scalar_type, sizes)
}

fn meshgrid(call: &Call<'_>) -> Results {
    let tensors = call.tensors(0)?;
    let mut sizes = Sizes::new();
    for tensor in &tensors {
        let length = match tensor.sizes[..] {
            [] => 1,
            [length] => length,
            _ => return Err("expected tensors of one dim".into()),
        };
        push(&mut sizes, length)?;
    }
    if call.text(1).as_deref() == Some("xy") && sizes.len() >= 2 {
        sizes.swap(0, 1);
    }
    Ok(tensors.iter().map(|tensor| TensorType::new(tensor.scalar_type, sizes.clone())).collect())
}

/// Broadcasts leading dims.
pub(super) fn batch(one: &[i32], other: &[i32]) -> Result<Sizes, String> {
    let joined = broadcast_all([one, other]);
    joined.ok_or_else(|| format!("leading dims {one:?} and {other:?} do not broadcast"))
}
