//! Reductions of consecutive segments of a dim.
//!
//! Each step is computed in `f64` and rounded to the tensors' dtype, as in PyTorch.

use crate::number::{load, rounded, store, unsupported};
use crate::table::kernels;
use core::ops::Range;
use torchlet_core::Param::{Bool, Int, OptionalScalar, OptionalTensor, Out, String, Tensor};
use torchlet_core::layout::Sizes;
use torchlet_core::{
    Arguments, Invoke, Kernel, KernelError, Plan, Prepare, Scalar, ScalarType, TensorInfo,
};

kernels! {
    /// `aten::segment_reduce.out(data, reduce, lengths, indices, offsets,
    /// axis, unsafe, initial, out)`: the sum, mean, product, minimum or maximum of each segment of
    /// a dim, given by lengths or by offsets. Offsets include the end of the last segment.
    SEGMENT_REDUCE_OUT = Kernel::new(
        "aten::segment_reduce.out",
        &[
            Tensor, String, OptionalTensor, OptionalTensor, OptionalTensor, Int, Bool,
            OptionalScalar, Out,
        ],
        prepare,
    );
}

/// Number of values that are converted at a time, to a buffer on the stack.
const BLOCK: usize = 64;

/// Reduction of a segment.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Reduction {
    Sum,
    Mean,
    Product,
    Min,
    Max,
}

impl Reduction {
    fn of(args: &Arguments) -> Result<Self, KernelError> {
        Ok(match args.optional_string(1)? {
            Some("sum") => Reduction::Sum,
            Some("mean") => Reduction::Mean,
            Some("prod") => Reduction::Product,
            Some("min") => Reduction::Min,
            Some("max") => Reduction::Max,
            _ => {
                return Err(KernelError::argument(
                    1,
                    "expected 'sum', 'mean', 'prod', 'min' or 'max'",
                ));
            }
        })
    }

    /// Default initial value of a segment.
    fn start(self) -> f64 {
        match self {
            Reduction::Sum | Reduction::Mean => 0.0,
            Reduction::Product => 1.0,
            Reduction::Min => f64::INFINITY,
            Reduction::Max => f64::NEG_INFINITY,
        }
    }

    fn add(self, known: f64, value: f64) -> f64 {
        match self {
            Reduction::Sum | Reduction::Mean => known + value,
            Reduction::Product => known * value,
            // NaN propagates.
            _ if value.is_nan() || known.is_nan() => f64::NAN,
            Reduction::Min => known.min(value),
            Reduction::Max => known.max(value),
        }
    }
}

/// Returns the argument index of the lengths or offsets, and by how many elements it is longer than
/// the number of segments.
fn segment_arg(args: &Arguments) -> Result<(usize, usize), KernelError> {
    if !args.is_none(3) {
        return Err(KernelError::unsupported("segments given by indices"));
    }
    match (args.is_none(2), args.is_none(4)) {
        (false, _) => Ok((2, 0)),
        (true, false) => Ok((4, 1)),
        (true, true) => Err(KernelError::argument(2, "expected lengths or offsets, found neither")),
    }
}

fn prepare(ctx: &mut Prepare) -> Result<Plan, KernelError> {
    Reduction::of(ctx)?;
    let (arg, more) = segment_arg(ctx)?;
    let (data, ends) = (ctx.info(0)?, ctx.info(arg)?);
    if !data.scalar_type.is_floating() {
        return Err(unsupported(0, data.scalar_type));
    }
    if !matches!(ends.scalar_type, ScalarType::Int | ScalarType::Long) {
        return Err(unsupported(arg, ends.scalar_type));
    }
    let rank = i64::try_from(data.rank()).unwrap_or(i64::MAX);
    let axis = ctx.int(5)?;
    let axis = if axis < 0 { axis.saturating_add(rank) } else { axis };
    let last = ends.rank().checked_sub(1).filter(|last| i64::try_from(*last) == Ok(axis));
    let unlike = KernelError::argument(5, "axis: expected the last dim of lengths or offsets");
    let axis = last.ok_or(unlike)?;
    let outer = data.sizes.get(..axis).filter(|_| axis < data.rank());
    let segments = ends.size(axis).checked_sub(more).and_then(|count| i32::try_from(count).ok());
    let (Some(outer), Some(segments)) = (outer, segments) else {
        return Err(KernelError::argument(arg, "shape does not match that of the data"));
    };
    if ends.sizes.get(..axis) != Some(outer) {
        return Err(KernelError::argument(arg, "shape does not match that of the data"));
    }
    let mut sizes = Sizes::new();
    let large = || KernelError::argument(0, "shape is too large");
    sizes.extend_from_slice(outer).map_err(|_| large())?;
    sizes.push(segments).map_err(|_| large())?;
    let inner = data.sizes.get(axis + 1..).unwrap_or_default();
    sizes.extend_from_slice(inner).map_err(|_| large())?;
    ctx.resize(8, &sizes)?;
    let found = ctx.info(8)?.scalar_type;
    if found != data.scalar_type {
        return Err(unsupported(8, found));
    }
    Ok(Plan::new(invoke))
}

/// Product of the sizes of these dims.
fn index_count(info: &TensorInfo, dims: Range<usize>) -> usize {
    dims.map(|dim| info.size(dim)).product()
}

/// Memory offset of the element with this row-major index over these dims; other indices are 0.
fn offset_of(info: &TensorInfo, dims: Range<usize>, index: usize) -> isize {
    let (mut rest, mut at) = (index, 0);
    for dim in dims.rev() {
        let size = info.size(dim).max(1);
        at += (rest % size) as isize * stride(info, dim);
        rest /= size;
    }
    at
}

fn stride(info: &TensorInfo, dim: usize) -> isize {
    info.strides().get(dim).map_or(0, |stride| *stride as isize)
}

fn invoke(ctx: &mut Invoke) -> Result<(), KernelError> {
    let reduction = Reduction::of(ctx)?;
    let (arg, more) = segment_arg(ctx)?;
    let (data, ends) = (ctx.tensor(0)?, ctx.tensor(arg)?);
    let mut out = ctx.out(8)?;
    if out.numel() == 0 {
        return Ok(());
    }
    let scalar_type = data.scalar_type;
    let rounded = |value| rounded(scalar_type, value);
    let initial: Option<Scalar> = ctx.optional_scalar(7)?;
    let initial = initial.map(|initial| rounded(initial.to_f64()));
    let start = initial.unwrap_or(reduction.start());
    let (axis, rank) = (ends.rank().saturating_sub(1), data.rank());
    let (size, step) = (data.info().size(axis), stride(data.info(), axis));
    let segments = ends.info().size(axis).saturating_sub(more);
    let outside = || KernelError::argument(arg, "a segment lies outside the data");
    for outer in 0..index_count(data.info(), 0..axis) {
        let number = |segment: usize| -> Result<usize, KernelError> {
            let at = offset_of(ends.info(), 0..axis, outer)
                + segment as isize * stride(ends.info(), axis);
            let mut found = [0i64];
            load(ends.scalar_type, ends.bytes(), at, 1, &mut found);
            usize::try_from(found[0]).map_err(|_| outside())
        };
        let mut from = if more == 1 { number(0)? } else { 0 };
        for segment in 0..segments {
            let end = match more {
                1 => Some(number(segment + 1)?),
                _ => from.checked_add(number(segment)?),
            };
            let end = end.filter(|end| (from..=size).contains(end)).ok_or_else(outside)?;
            for inner in 0..index_count(data.info(), axis + 1..rank) {
                let first = offset_of(data.info(), 0..axis, outer)
                    + offset_of(data.info(), axis + 1..rank, inner);
                let mut known = start;
                for at in (from..end).step_by(BLOCK) {
                    let mut block = [0.0; BLOCK];
                    let block = &mut block[..BLOCK.min(end - at)];
                    load(scalar_type, data.bytes(), first + at as isize * step, step, block);
                    for value in block {
                        known = rounded(reduction.add(known, *value));
                    }
                }
                if reduction == Reduction::Mean && end > from {
                    known = rounded(known / rounded((end - from) as f64));
                } else if reduction == Reduction::Mean && initial.is_none() {
                    known = f64::NAN;
                }
                let to = offset_of(out.info(), 0..axis, outer)
                    + segment as isize * stride(out.info(), axis)
                    + offset_of(out.info(), axis + 1..rank, inner);
                let bytes = usize::try_from(to).unwrap_or(usize::MAX);
                let bytes = bytes.saturating_mul(scalar_type.size());
                let bytes = out.bytes_mut().get_mut(bytes..).unwrap_or_default();
                if let Some(bytes) = bytes.get_mut(..scalar_type.size()) {
                    store(scalar_type, bytes, &[known]);
                }
            }
            from = end;
        }
        if more == 0 && !ctx.bool(6)? && from != size {
            return Err(KernelError::argument(arg, "segments do not cover the data"));
        }
    }
    Ok(())
}
