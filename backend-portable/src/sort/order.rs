//! Order statistics: sort, topk, kthvalue, median, mode, cummax and cummin.

use super::blocks;
use super::keys::{Entry, fill, is_wide};
use crate::compute::split::is_cancelled;
use crate::number::unsupported;
use crate::reduce::expect_type;
use crate::scratch;
use crate::table::kernels;
use crate::walk::{Steps, Walk};
use torchlet_core::Param::{Bool, Int, OptionalBool, Out, Tensor};
use torchlet_core::layout::{MAX_RANK, Sizes};
use torchlet_core::rules::{DimSet, normalize_dim, reduced_shape};
use torchlet_core::{
    Arguments, Invoke, InvokeFn, Kernel, KernelError, Plan, Prepare, ScalarType, TensorInfo,
    TensorMut, TensorRef,
};

kernels! {
    /// `aten::sort.values(self, dim, descending, values, indices)`: sorts over `dim`; also returns
    /// the indices.
    SORT_OUT = Kernel::new("aten::sort.values", &[Tensor, Int, Bool, Out, Out], |ctx| {
        prepare(ctx, SORT, Shape::Same, [sort::<u64>, sort::<u128>])
    });
    /// `aten::sort.values_stable(self, stable, dim, descending, values, indices)`: sorts over
    /// `dim`; also returns the indices. The sort is always stable.
    SORT_STABLE_OUT = Kernel::new(
        "aten::sort.values_stable",
        &[Tensor, OptionalBool, Int, Bool, Out, Out],
        |ctx| prepare(ctx, STABLE, Shape::Same, [sort_stable::<u64>, sort_stable::<u128>]),
    );
    /// `aten::topk.values(self, k, dim, largest, sorted, values, indices)`: the `k` largest or
    /// smallest values over `dim`, and their indices.
    TOPK_OUT = Kernel::new(
        "aten::topk.values",
        &[Tensor, Int, Int, Bool, Bool, Out, Out],
        |ctx| prepare(ctx, TOPK, Shape::First(1), [topk::<u64>, topk::<u128>]),
    );
    /// `aten::kthvalue.values(self, k, dim, keepdim, values, indices)`: the `k`-th smallest value
    /// over `dim`, and its index.
    KTHVALUE_OUT = Kernel::new(
        "aten::kthvalue.values",
        &[Tensor, Int, Int, Bool, Out, Out],
        |ctx| {
            let [k] = counts(ctx, [1], 2)?;
            if k == 0 {
                return Err(KernelError::argument(1, "k: expected at least 1"));
            }
            prepare(ctx, KTH, Shape::One(3), [kth_value::<u64>, kth_value::<u128>])
        },
    );
    /// `aten::median.dim_values(self, dim, keepdim, values, indices)`: the median over `dim`, and
    /// its index. NaN if any value is NaN; else the lower of two medians.
    MEDIAN_DIM_OUT = Kernel::new(
        "aten::median.dim_values",
        &[Tensor, Int, Bool, Out, Out],
        |ctx| prepare(ctx, MEDIAN, Shape::One(2), [median_dim::<u64>, median_dim::<u128>]),
    );
    /// `aten::median.out(self, out)`: the median of all values; NaN if any value is NaN, else the
    /// lower of two medians.
    MEDIAN_OUT = Kernel::new("aten::median.out", &[Tensor, Out], |ctx| {
        prepare_median(ctx, [median::<u64, false>, median::<u128, false>])
    });
    /// `aten::nanmedian.dim_values(self, dim, keepdim, values, indices)`: the median over `dim`,
    /// ignoring NaN, and its index.
    NANMEDIAN_DIM_OUT = Kernel::new(
        "aten::nanmedian.dim_values",
        &[Tensor, Int, Bool, Out, Out],
        |ctx| prepare(ctx, MEDIAN, Shape::One(2), [nanmedian_dim::<u64>, nanmedian_dim::<u128>]),
    );
    /// `aten::nanmedian.out(self, out)`: the median of all values, ignoring NaN.
    NANMEDIAN_OUT = Kernel::new("aten::nanmedian.out", &[Tensor, Out], |ctx| {
        prepare_median(ctx, [median::<u64, true>, median::<u128, true>])
    });
    /// `aten::mode.values(self, dim, keepdim, values, indices)`: the most frequent value over `dim`
    /// (the smallest one if several are), and the index of its last occurrence. NaN values are
    /// equal to each other here, unlike in PyTorch.
    MODE_OUT = Kernel::new("aten::mode.values", &[Tensor, Int, Bool, Out, Out], |ctx| {
        prepare(ctx, MEDIAN, Shape::One(2), [mode::<u64>, mode::<u128>])
    });
    /// `aten::cummax.out(self, dim, values, indices)`: the cumulative maximum and the index of its
    /// last occurrence. From the first NaN on, the values are NaN.
    CUMMAX_OUT = Kernel::new("aten::cummax.out", &[Tensor, Int, Out, Out], |ctx| {
        let pair = [cumulative_extreme::<u64, true>, cumulative_extreme::<u128, true>];
        prepare(ctx, CUMULATIVE, Shape::Same, pair)
    });
    /// `aten::cummin.out(self, dim, values, indices)`: the cumulative minimum and the index of its
    /// last occurrence. From the first NaN on, the values are NaN.
    CUMMIN_OUT = Kernel::new("aten::cummin.out", &[Tensor, Int, Out, Out], |ctx| {
        let pair = [cumulative_extreme::<u64, false>, cumulative_extreme::<u128, false>];
        prepare(ctx, CUMULATIVE, Shape::Same, pair)
    });
}

/// Argument indices of an operator. The tensor is argument 0.
#[derive(Clone, Copy)]
struct Call {
    dim: usize,
    /// Output for the values; the output for the indices follows.
    out: usize,
}
const SORT: Call = Call { dim: 1, out: 3 };
const STABLE: Call = Call { dim: 2, out: 4 };
const TOPK: Call = Call { dim: 2, out: 5 };
const KTH: Call = Call { dim: 2, out: 4 };
const MEDIAN: Call = Call { dim: 1, out: 3 };
const CUMULATIVE: Call = Call { dim: 1, out: 2 };

/// Shape of the outputs.
#[derive(Clone, Copy)]
enum Shape {
    /// The same shape as the input.
    Same,
    /// The shape of the input, where the dim has the size in this argument.
    First(usize),
    /// The shape of the input reduced over the dim, which is kept with size 1 if this argument is
    /// true.
    One(usize),
}

fn dim_of(args: &Arguments, arg: usize, rank: usize) -> Result<usize, KernelError> {
    let what = "dim is out of range for the input";
    normalize_dim(args.int(arg)?, rank).ok_or(KernelError::argument(arg, what))
}

/// Reads integer arguments, which must not exceed the size of the dim.
fn counts<const N: usize>(
    args: &Arguments,
    which: [usize; N],
    dim: usize,
) -> Result<[usize; N], KernelError> {
    let input = args.info(0)?;
    let len = input.size(dim_of(args, dim, input.rank())?);
    let mut counts = [0; N];
    for (count, arg) in counts.iter_mut().zip(which) {
        let found = usize::try_from(args.int(arg)?).ok().filter(|count| *count <= len);
        let what = "k: expected 0 to the size of the dim";
        *count = found.ok_or(KernelError::argument(arg, what))?;
    }
    Ok(counts)
}

fn prepare(
    ctx: &mut Prepare,
    call: Call,
    shape: Shape,
    functions: [InvokeFn; 2],
) -> Result<Plan, KernelError> {
    let input = ctx.info(0)?;
    let wide = is_wide(input.scalar_type).ok_or(unsupported(0, input.scalar_type))?;
    let dim = dim_of(ctx, call.dim, input.rank())?;
    let len = input.size(dim);
    let scratch = scratch::bytes_for(len, if wide { 16 } else { 8 })?;
    ctx.scratch_at_most(scratch);
    let mut sizes = input.sizes.clone();
    match shape {
        Shape::Same => {}
        Shape::First(arg) => {
            let [count] = counts(ctx, [arg], call.dim)?;
            if let Some(size) = sizes.get_mut(dim) {
                // Does not exceed the size of the dim, so it fits.
                *size = count as i32;
            }
        }
        Shape::One(keep) => {
            let dims = DimSet::of(&[dim as i64], input.rank()).unwrap_or(DimSet::NONE);
            sizes = reduced_shape(&input.sizes, dims, ctx.bool(keep)?);
            if len == 0 && !sizes.contains(&0) {
                return Err(KernelError::argument(0, "the reduced dim is empty"));
            }
        }
    }
    for arg in [call.out, call.out + 1] {
        ctx.resize(arg, &sizes)?;
    }
    expect_type(ctx, call.out, input.scalar_type)?;
    expect_type(ctx, call.out + 1, ScalarType::Long)?;
    Ok(Plan::new(functions[usize::from(wide)]).with_scratch(scratch))
}

/// Strides of a tensor: over the dims other than `dim`, and over `dim`. If a reduction removed
/// `dim`, the later dims are shifted.
fn steps(info: &TensorInfo, rank: usize, dim: usize) -> (Steps, isize) {
    let mut steps = Steps { strides: [0; MAX_RANK], base: 0 };
    let strides = info.strides();
    let mut own = strides.iter().map(|&stride| stride as isize);
    let mut along = 0;
    for (d, slot) in steps.strides.iter_mut().enumerate().take(rank) {
        if d != dim {
            *slot = own.next().unwrap_or(0);
        } else if info.rank() == rank {
            along = own.next().unwrap_or(0);
        }
    }
    (steps, along)
}

/// Computes the outputs for every line of the input. `arrange(entries)` moves the `count` selected
/// entries of a line to the front, in order.
fn each_line<E: Entry>(
    ctx: &mut Invoke,
    call: Call,
    descending: bool,
    count: usize,
    arrange: &dyn Fn(&mut [E]),
) -> Result<(), KernelError> {
    let input = ctx.tensor(0)?;
    let rank = input.rank();
    let dim = dim_of(ctx, call.dim, rank)?;
    let len = input.size(dim);
    if len == 0 {
        return Ok(());
    }
    let parallel = ctx.parallel();
    let entries = scratch::take::<E>(ctx, len)?;
    let (mut values, mut indices) = (ctx.out(call.out)?, ctx.out(call.out + 1)?);
    let mut sizes: Sizes = input.sizes.clone();
    if let Some(size) = sizes.get_mut(dim) {
        *size = 1;
    }
    let lines = TensorInfo::contiguous(input.scalar_type, &sizes);
    let lines = lines.ok_or(KernelError::access(0))?;
    let (steps_in, along) = steps(input.info(), rank, dim);
    let (steps_values, along_values) = steps(values.info(), rank, dim);
    let (steps_indices, along_indices) = steps(indices.info(), rank, dim);
    let walk = Walk::new(&lines, &[steps_in, steps_values, steps_indices]);
    let inner = walk.inner_steps();
    walk.for_each_run(0, walk.numel(), &mut |_, at, lines| {
        for line in 0..lines {
            if is_cancelled(parallel) {
                return;
            }
            let at: [isize; 3] =
                core::array::from_fn(|i| at[i].wrapping_add(inner[i].wrapping_mul(line as isize)));
            fill(&input, at[0], along, descending, entries);
            arrange(entries);
            for (number, entry) in entries.iter().take(count).enumerate() {
                let offset = |i: usize, along: isize| {
                    at[i].wrapping_add(along.wrapping_mul(number as isize))
                };
                let from = at[0].wrapping_add(along.wrapping_mul(entry.position() as isize));
                copy_element(&input, from, &mut values, offset(1, along_values));
                put_index(&mut indices, offset(2, along_indices), i64::from(entry.position()));
            }
        }
    });
    Ok(())
}

/// Copies an element between tensors of equal dtype.
pub(super) fn copy_element(input: &TensorRef, from: isize, out: &mut TensorMut, to: isize) {
    let size = input.scalar_type.size();
    let range = |at: isize| {
        let start = usize::try_from(at).ok()?.checked_mul(size)?;
        Some(start..start.checked_add(size)?)
    };
    let source = range(from).and_then(|range| input.bytes().get(range));
    let target = range(to).and_then(|range| out.bytes_mut().get_mut(range));
    if let (Some(source), Some(target)) = (source, target)
        && source.len() == target.len()
    {
        target.copy_from_slice(source);
    }
}

/// Writes an element of an `int64` output.
pub(super) fn put_index(out: &mut TensorMut, at: isize, index: i64) {
    let offset = usize::try_from(at).ok();
    if let (Some(offset), Ok(data)) = (offset, out.data_mut::<i64>())
        && let Some(slot) = data.get_mut(offset)
    {
        *slot = index;
    }
}

fn sort_all<E: Entry>(ctx: &mut Invoke, call: Call, descending: usize) -> Result<(), KernelError> {
    let (descending, parallel) = (ctx.bool(descending)?, ctx.parallel());
    each_line::<E>(ctx, call, descending, usize::MAX, &|entries| blocks::sort(parallel, entries))
}

fn sort<E: Entry>(ctx: &mut Invoke) -> Result<(), KernelError> {
    sort_all::<E>(ctx, SORT, 2)
}

fn sort_stable<E: Entry>(ctx: &mut Invoke) -> Result<(), KernelError> {
    sort_all::<E>(ctx, STABLE, 3)
}

fn topk<E: Entry>(ctx: &mut Invoke) -> Result<(), KernelError> {
    let [count] = counts(ctx, [1], TOPK.dim)?;
    let largest = ctx.bool(3)?;
    // A zero-dim tensor has one value, whatever `k` is.
    let count = if ctx.info(0)?.rank() == 0 { 1 } else { count };
    let parallel = ctx.parallel();
    each_line::<E>(ctx, TOPK, largest, count, &|entries| {
        if count < entries.len() {
            entries.select_nth_unstable(count);
        }
        if let Some(first) = entries.get_mut(..count) {
            blocks::sort(parallel, first);
        }
    })
}

fn kth_value<E: Entry>(ctx: &mut Invoke) -> Result<(), KernelError> {
    let [k] = counts(ctx, [1], KTH.dim)?;
    each_line::<E>(ctx, KTH, false, 1, &|entries| to_front(entries, k.saturating_sub(1)))
}

fn median_dim<E: Entry>(ctx: &mut Invoke) -> Result<(), KernelError> {
    let floating = ctx.info(0)?.scalar_type.is_floating();
    each_line::<E>(ctx, MEDIAN, false, 1, &|entries| {
        let entry_rank = median_rank(entries, floating);
        to_front(entries, entry_rank);
    })
}

fn nanmedian_dim<E: Entry>(ctx: &mut Invoke) -> Result<(), KernelError> {
    let floating = ctx.info(0)?.scalar_type.is_floating();
    each_line::<E>(ctx, MEDIAN, false, 1, &|entries| {
        let entry_rank = nanmedian_rank(entries, floating);
        to_front(entries, entry_rank);
    })
}

fn mode<E: Entry>(ctx: &mut Invoke) -> Result<(), KernelError> {
    let parallel = ctx.parallel();
    each_line::<E>(ctx, MEDIAN, false, 1, &|entries| {
        blocks::sort(parallel, entries);
        let (mut longest, mut found) = (0, 0);
        let mut from = 0;
        for run in entries.chunk_by(|a, b| a.key() == b.key()) {
            from += run.len();
            if run.len() > longest {
                (longest, found) = (run.len(), from - 1);
            }
        }
        if found < entries.len() {
            entries.swap(0, found);
        }
    })
}

fn cumulative_extreme<E: Entry, const LARGEST: bool>(ctx: &mut Invoke) -> Result<(), KernelError> {
    let floating = ctx.info(0)?.scalar_type.is_floating();
    each_line::<E>(ctx, CUMULATIVE, false, usize::MAX, &|entries| {
        let mut best: Option<E> = None;
        for entry in entries {
            let is_nan = |entry: E| floating && entry.key() == E::NAN;
            let (key, before) = (entry.key(), best.map(E::key));
            let leads =
                before.is_none_or(|before| if LARGEST { key >= before } else { key <= before });
            match best {
                Some(before) if !is_nan(*entry) && (is_nan(before) || !leads) => *entry = before,
                _ => best = Some(*entry),
            }
        }
    })
}

/// Moves the entry with rank `entry_rank` to the front.
fn to_front<E: Entry>(entries: &mut [E], entry_rank: usize) {
    if entry_rank < entries.len() {
        entries.select_nth_unstable(entry_rank);
        entries.swap(0, entry_rank);
    }
}

/// Rank of the median: the rank of the first NaN if any value is NaN, else the lower middle.
fn median_rank<E: Entry>(entries: &[E], floating: bool) -> usize {
    let nans = entries.iter().filter(|entry| floating && entry.key() == E::NAN).count();
    if nans > 0 { entries.len() - nans } else { entries.len().saturating_sub(1) / 2 }
}

/// Rank of the median ignoring NaN; the rank of a NaN if all values are NaN.
fn nanmedian_rank<E: Entry>(entries: &[E], floating: bool) -> usize {
    let nans = entries.iter().filter(|entry| floating && entry.key() == E::NAN).count();
    (entries.len() - nans).saturating_sub(1) / 2
}

fn prepare_median(ctx: &mut Prepare, functions: [InvokeFn; 2]) -> Result<Plan, KernelError> {
    let input = ctx.info(0)?;
    let wide = is_wide(input.scalar_type).ok_or(unsupported(0, input.scalar_type))?;
    ctx.resize(1, &[])?;
    expect_type(ctx, 1, input.scalar_type)?;
    let numel = input.numel();
    if numel == 0 && !input.scalar_type.is_floating() || u32::try_from(numel).is_err() {
        return Err(KernelError::argument(
            0,
            "median of an empty integer tensor, or of more than 2^32 - 1 elements",
        ));
    }
    let scratch = scratch::bytes_for(numel, if wide { 16 } else { 8 })?;
    Ok(Plan::new(functions[usize::from(wide)]).with_scratch(scratch))
}

fn median<E: Entry, const NUMBERS: bool>(ctx: &mut Invoke) -> Result<(), KernelError> {
    let input = ctx.tensor(0)?;
    let entries = scratch::take::<E>(ctx, input.numel())?;
    let mut out = ctx.out(1)?;
    fill(&input, 0, 1, false, entries);
    let floating = input.scalar_type.is_floating();
    let entry_rank =
        if NUMBERS { nanmedian_rank(entries, floating) } else { median_rank(entries, floating) };
    to_front(entries, entry_rank);
    match entries.first() {
        Some(entry) => copy_element(&input, entry.position() as isize, &mut out, 0),
        None => crate::number::store(out.scalar_type, out.bytes_mut(), &[f64::NAN]),
    }
    Ok(())
}
