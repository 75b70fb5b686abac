//! Histograms: counts of values between bin edges.
//!
//! Each step is computed in `f64` and rounded to the tensors' dtype, which yields the values that
//! PyTorch computes in that dtype.

use crate::number::{load, round_through, rounded, store, unsupported};
use crate::scratch;
use crate::table::kernels;
use torchlet_core::Param::{Bool, Int, OptionalFloatList, OptionalTensor, Out, Tensor};
use torchlet_core::{Invoke, Kernel, KernelError, Plan, Prepare, ScalarType, TensorRef};

kernels! {
    /// `aten::histogram.bin_ct_out(self, bins, range, weight, density, hist, bin_edges)`: the
    /// number of values in each of `bins` bins of equal width, or the sum of their weights, or its
    /// density. The bins extend over `range`, by default that of the values.
    HISTOGRAM_BIN_CT_OUT = Kernel::new(
        "aten::histogram.bin_ct_out",
        &[Tensor, Int, OptionalFloatList, OptionalTensor, Bool, Out, Out],
        |ctx| {
            let few = KernelError::argument(1, "number of bins: expected 1 to 2^31 - 2");
            let edges = ctx.info(6)?.numel();
            ctx.scratch_at_most(scratch_for(edges)?);
            let bins = usize::try_from(ctx.int(1)?).ok().filter(|bins| *bins > 0).ok_or(few)?;
            if !ctx.is_none(2) && ctx.list_len(2)? != 2 {
                return Err(KernelError::argument(2, "expected two range limits"));
            }
            prepare(ctx, bins, 3, by_count)
        },
    );
    /// `aten::histogram.bins_tensor_out(self, bins, weight, density, hist, bin_edges)`: like
    /// [`HISTOGRAM_BIN_CT_OUT`], between given, ascending edges.
    HISTOGRAM_BINS_TENSOR_OUT = Kernel::new(
        "aten::histogram.bins_tensor_out",
        &[Tensor, Tensor, OptionalTensor, Bool, Out, Out],
        |ctx| {
            let bins = ctx.info(1)?;
            let count = if bins.rank() == 1 { bins.size(0).checked_sub(1) } else { None };
            let count = count.filter(|count| *count > 0);
            let too_few = KernelError::argument(1, "edges: expected 1 dim of at least two values");
            let count = count.ok_or(too_few)?;
            if bins.scalar_type != ctx.info(0)?.scalar_type {
                return Err(unsupported(1, bins.scalar_type));
            }
            prepare(ctx, count, 2, by_edges)
        },
    );
}

/// Number of values that are converted at a time, to a buffer on the stack.
const BLOCK: usize = 64;

fn scratch_for(edges: usize) -> Result<usize, KernelError> {
    scratch::bytes_for(edges.saturating_mul(2), size_of::<f64>())
}

/// Resizes the outputs, and checks the tensors from the weights (argument `weight`) on.
fn prepare(
    ctx: &mut Prepare,
    bins: usize,
    weight: usize,
    invoke: torchlet_core::InvokeFn,
) -> Result<Plan, KernelError> {
    let input = ctx.info(0)?;
    if !matches!(input.scalar_type, ScalarType::Float | ScalarType::Double) {
        return Err(unsupported(0, input.scalar_type));
    }
    if let Some(info) = ctx.optional_info(weight)? {
        if info.scalar_type != input.scalar_type {
            return Err(unsupported(weight, info.scalar_type));
        }
        if info.sizes != input.sizes {
            return Err(KernelError::argument(weight, "expected a weight per value"));
        }
        if info.strides() != input.strides() {
            return Err(KernelError::unsupported(
                "weights in another memory order than the values",
            ));
        }
    }
    let edges = i32::try_from(bins).ok().and_then(|bins| Some((bins, bins.checked_add(1)?)));
    let large = KernelError::argument(1, "number of bins: expected 1 to 2^31 - 2");
    let (bins, edges) = edges.ok_or(large)?;
    for (out, size) in [(weight + 2, bins), (weight + 3, edges)] {
        ctx.resize(out, &[size])?;
        let found = ctx.info(out)?.scalar_type;
        if found != input.scalar_type {
            return Err(unsupported(out, found));
        }
    }
    Ok(Plan::new(invoke).with_scratch(scratch_for(edges as usize)?))
}

fn by_count(ctx: &mut Invoke) -> Result<(), KernelError> {
    let input = ctx.tensor(0)?;
    let bins = ctx.info(5)?.size(0);
    let memory = scratch::take::<f64>(ctx, 2 * bins + 2)?;
    let (edges, sums) = memory.split_at_mut_checked(bins + 1).unwrap_or_default();
    let [low, high] = range_ends(ctx, &input)?;
    equally_spaced(input.scalar_type, [low, high], edges);
    count(ctx, edges, sums, 3)
}

/// Equally spaced edges, like `linspace`: each is computed from the nearer end.
pub(super) fn equally_spaced(scalar_type: ScalarType, [low, high]: [f64; 2], edges: &mut [f64]) {
    let rounded = |value| rounded(scalar_type, value);
    let bins = edges.len().saturating_sub(1);
    let step = rounded(rounded(high - low) / bins as f64);
    for (at, edge) in edges.iter_mut().enumerate() {
        *edge = if at < bins.div_ceil(2) {
            rounded(low + rounded(step * at as f64))
        } else {
            rounded(high - rounded(step * (bins - at) as f64))
        };
    }
}

/// Returns the first and the last edge: the given range, or that of the values.
fn range_ends(ctx: &Invoke, input: &TensorRef) -> Result<[f64; 2], KernelError> {
    let rounded = |value| rounded(input.scalar_type, value);
    let (mut low, mut high) = (0.0, 1.0);
    if !ctx.is_none(2) {
        (low, high) = (rounded(ctx.list_float(2, 0)?), rounded(ctx.list_float(2, 1)?));
    } else if input.numel() > 0 {
        (low, high) = (f64::INFINITY, f64::NEG_INFINITY);
        let mut has_nan = false;
        each_block(input, &mut |_, values| {
            for value in values {
                (low, high) = (low.min(*value), high.max(*value));
                has_nan |= value.is_nan();
            }
        });
        low = if has_nan { f64::NAN } else { low };
    }
    checked_ends(input.scalar_type, [low, high])
}

/// Checks that the ends are finite and ordered; widens an empty range.
pub(super) fn checked_ends(
    scalar_type: ScalarType,
    [low, high]: [f64; 2],
) -> Result<[f64; 2], KernelError> {
    if !low.is_finite() || !high.is_finite() || low > high {
        return Err(KernelError::argument(2, "range: expected finite limits in increasing order"));
    }
    let margin = if low == high { 0.5 } else { 0.0 };
    Ok([low - margin, high + margin].map(|end| rounded(scalar_type, end)))
}

/// Returns the bin of a value, or `None` if it is outside. The last edge belongs to the last bin.
pub(super) fn bin_of(edges: &[f64], value: f64) -> Option<usize> {
    let (low, high) = (edges.first()?, edges.last()?);
    let behind = edges.partition_point(|edge| *edge <= value);
    (value >= *low && value <= *high).then(|| behind.saturating_sub(1).min(edges.len() - 2))
}

/// Visits the values in memory order, block by block, with the position of the first value.
fn each_block(tensor: &TensorRef, visit: &mut dyn FnMut(usize, &[f64])) {
    for start in (0..tensor.numel()).step_by(BLOCK) {
        let mut block = [0.0; BLOCK];
        let block = &mut block[..BLOCK.min(tensor.numel() - start)];
        load(tensor.scalar_type, tensor.bytes(), start as isize, 1, block);
        visit(start, block);
    }
}

fn by_edges(ctx: &mut Invoke) -> Result<(), KernelError> {
    let bins = ctx.tensor(1)?;
    let memory = scratch::take::<f64>(ctx, 2 * bins.numel())?;
    let (edges, sums) = memory.split_at_mut_checked(bins.numel()).unwrap_or_default();
    load(bins.scalar_type, bins.bytes(), 0, 1, edges);
    count(ctx, edges, sums, 2)
}

/// Counts the values between edges and writes the outputs. `weight` is the argument index of the
/// optional weights.
fn count(
    ctx: &mut Invoke,
    edges: &[f64],
    sums: &mut [f64],
    weight: usize,
) -> Result<(), KernelError> {
    let (input, weights) = (ctx.tensor(0)?, ctx.optional_tensor(weight)?);
    let scalar_type = input.scalar_type;
    let sums = sums.get_mut(..edges.len().saturating_sub(1)).unwrap_or_default();
    sums.fill(0.0);
    each_block(&input, &mut |start, values| {
        let mut parts = [1.0; BLOCK];
        if let Some(weights) = &weights {
            let parts = &mut parts[..values.len()];
            load(scalar_type, weights.bytes(), start as isize, 1, parts);
        }
        for (value, part) in values.iter().zip(&parts) {
            if let Some(sum) = bin_of(edges, *value).and_then(|bin| sums.get_mut(bin)) {
                *sum += part;
            }
        }
    });
    round_through(scalar_type, sums);
    if ctx.bool(weight + 1)? {
        let total = rounded(scalar_type, sums.iter().sum());
        for (sum, edges) in sums.iter_mut().zip(edges.windows(2)) {
            if let [low, high] = edges {
                let share = rounded(scalar_type, *sum / total);
                *sum = rounded(scalar_type, share / rounded(scalar_type, high - low));
            }
        }
    }
    store(scalar_type, ctx.out(weight + 2)?.bytes_mut(), sums);
    store(scalar_type, ctx.out(weight + 3)?.bytes_mut(), edges);
    Ok(())
}
