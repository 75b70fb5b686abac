//! Operators that rearrange elements: usually a view, otherwise a copy.

use super::elementwise::{as_stored, rounded};
use super::{dimension, ends};
use crate::compute::gemm::{Context, ShapeMismatch};
use crate::compute::simd::transpose::transposed;
use crate::compute::simd::{Simd, Tier, Vectorized};
use crate::compute::split::{Outcome, chunk_len, for_each_chunk_mut};
use crate::engine::builder::{Builder, Refusal};
use crate::engine::plan::{Element, Io, Step};
use crate::engine::view::{View, dense_strides};
use bytemuck::Pod;
use std::vec::Vec;
use torchlet_core::rules::view_sizes;
use torchlet_graph::graph::ValueId;
use torchlet_graph::operators::{
    DimArgs, DimsArgs, ExpandArgs, SelectArgs, SliceArgs, SplitArgs, SplitWithSizesArgs,
    TransposeArgs, ViewArgs,
};

/// Block size for transposing matrices of multi-byte elements.
const BLOCK: usize = 8;
/// Block size for transposing matrices of bytes, in vector registers.
const VECTOR: usize = 16;
/// Minimum number of elements that each thread copies.
const GRAIN: usize = 1 << 14;

/// Lowers a reshape.
pub(super) fn view(builder: &mut Builder<'_, '_>, args: &[ValueId]) -> Result<(), Refusal> {
    let call = ViewArgs::of(args)?;
    let input = builder.any(call.input)?;
    let sizes = view_sizes(input.numel(), &builder.integers(call.size)?);
    let sizes = sizes.ok_or_else(|| {
        std::format!("view: the new shape has another number of elements than {:?}", input.sizes)
    })?;
    let sizes: Result<Vec<usize>, _> = sizes.iter().map(|size| usize::try_from(*size)).collect();
    let view = builder.reshaped(&input, &sizes.map_err(|_| "view: a size is negative")?)?;
    builder.define(call.out, view)
}

/// Lowers a copy, or a conversion to another float dtype. 16-bit values are rounded to the input's
/// dtype first, because the result does not record that they were 16-bit.
pub(super) fn same(builder: &mut Builder<'_, '_>, args: &[ValueId]) -> Result<(), Refusal> {
    let (id, out) = ends(args)?;
    let same = match (builder.precision(id), builder.precision(out)) {
        (Ok(from), Ok(to)) if from != to => {
            let stored = as_stored(builder, id)?;
            rounded(builder, stored, to)?
        }
        _ => builder.any(id)?,
    };
    builder.define(out, same)
}

/// Lowers `squeeze`: removes the given dims if their size is one.
pub(super) fn squeeze(builder: &mut Builder<'_, '_>, args: &[ValueId]) -> Result<(), Refusal> {
    let call = DimArgs::of(args)?;
    let input = builder.any(call.input)?;
    let rank = input.sizes.len();
    let mut sizes: Vec<Option<usize>> = input.sizes.iter().copied().map(Some).collect();
    for dim in builder.integers(call.dim)? {
        let dim = dimension(dim, rank.max(1))?;
        if let Some(size) = sizes.get_mut(dim).filter(|size| **size == Some(1)) {
            *size = None;
        }
    }
    let sizes: Vec<usize> = sizes.into_iter().flatten().collect();
    let view = builder.reshaped(&input, &sizes)?;
    builder.define(call.out, view)
}

/// Lowers `unsqueeze`: inserts a dim of size one.
pub(super) fn unsqueeze(builder: &mut Builder<'_, '_>, args: &[ValueId]) -> Result<(), Refusal> {
    let call = DimArgs::of(args)?;
    let input = builder.any(call.input)?;
    let dim = dimension(builder.integer(call.dim)?, input.sizes.len() + 1)?;
    let mut sizes = input.sizes.clone();
    sizes.insert(dim, 1);
    let view = builder.reshaped(&input, &sizes)?;
    builder.define(call.out, view)
}

pub(super) fn permute(builder: &mut Builder<'_, '_>, args: &[ValueId]) -> Result<(), Refusal> {
    let call = DimsArgs::of(args)?;
    let input = builder.any(call.input)?;
    let rank = input.sizes.len();
    let dims = builder.integers(call.dims)?;
    let dims: Result<Vec<usize>, _> = dims.into_iter().map(|dim| dimension(dim, rank)).collect();
    let view = input.permuted(&dims?).ok_or("dims: expected a permutation of the input's dims")?;
    builder.define(call.out, view)
}

pub(super) fn transpose(builder: &mut Builder<'_, '_>, args: &[ValueId]) -> Result<(), Refusal> {
    let call = TransposeArgs::of(args)?;
    let input = builder.any(call.input)?;
    let rank = input.sizes.len();
    let mut order: Vec<usize> = (0..rank).collect();
    let dim = |id| dimension(builder.integer(id)?, rank);
    if rank > 0 {
        order.swap(dim(call.dim0)?, dim(call.dim1)?);
    }
    let view = input.permuted(&order).ok_or("dims: expected a permutation of the input's dims")?;
    builder.define(call.out, view)
}

pub(super) fn expand(builder: &mut Builder<'_, '_>, args: &[ValueId]) -> Result<(), Refusal> {
    let call = ExpandArgs::of(args)?;
    let input = builder.any(call.input)?;
    let sizes = builder.integers(call.size)?;
    // A size of -1 keeps the size of a dim; further leading dims are added.
    let lead = sizes
        .len()
        .checked_sub(input.sizes.len())
        .ok_or("expand: expected at least as many dims as the input")?;
    let own = core::iter::repeat_n(None, lead).chain(input.sizes.iter().map(Some));
    let sizes: Option<Vec<usize>> = own
        .zip(&sizes)
        .map(|(own, size)| if *size == -1 { own.copied() } else { usize::try_from(*size).ok() })
        .collect();
    let view = sizes.and_then(|sizes| input.expanded(&sizes));
    builder.define(call.out, view.ok_or("expand: the input does not broadcast to the new shape")?)
}

pub(super) fn slice(builder: &mut Builder<'_, '_>, args: &[ValueId]) -> Result<(), Refusal> {
    let call = SliceArgs::of(args)?;
    let input = builder.any(call.input)?;
    let dim = builder.optional_integer(call.dim)?.unwrap_or(0);
    let dim = dimension(dim, input.sizes.len())?;
    let size = input.sizes.get(dim).copied().unwrap_or(0);
    // As in Python: negative indices count from the end, and indices are clamped to the dim.
    let within = |index: i64| {
        let size = i64::try_from(size).unwrap_or(i64::MAX);
        let index = if index < 0 { index.saturating_add(size) } else { index };
        usize::try_from(index.clamp(0, size)).unwrap_or(0)
    };
    let start = builder.optional_integer(call.start)?.map_or(0, within);
    let end = builder.optional_integer(call.end)?.map_or(size, within);
    let step = usize::try_from(builder.optional_integer(call.step)?.unwrap_or(1));
    let step = step.map_err(|_| "step: expected at least 1")?;
    let view = input
        .sliced(dim, start, end, step)
        .ok_or("slice: the step is 0 or the range exceeds the input")?;
    builder.define(call.out, view)
}

pub(super) fn select(builder: &mut Builder<'_, '_>, args: &[ValueId]) -> Result<(), Refusal> {
    let call = SelectArgs::of(args)?;
    let input = builder.any(call.input)?;
    let dim = dimension(builder.integer(call.dim)?, input.sizes.len())?;
    let size = input.sizes.get(dim).copied().unwrap_or(0);
    let index = dimension(builder.integer(call.index)?, size)?;
    let view = input.selected(dim, index).ok_or("an index is out of range for its dim")?;
    builder.define(call.out, view)
}

pub(super) fn split_with_sizes(
    builder: &mut Builder<'_, '_>,
    args: &[ValueId],
) -> Result<(), Refusal> {
    let call = SplitWithSizesArgs::of(args)?;
    let sizes = builder.integers(call.split_sizes)?;
    let sizes: Result<Vec<usize>, _> = sizes.into_iter().map(usize::try_from).collect();
    let sizes = sizes.map_err(|_| "split sizes: expected at least 0")?;
    parts(builder, [call.input, call.out], call.dim, sizes)
}

pub(super) fn split(builder: &mut Builder<'_, '_>, args: &[ValueId]) -> Result<(), Refusal> {
    let call = SplitArgs::of(args)?;
    let size = usize::try_from(builder.integer(call.split_size)?);
    let size = size.map_err(|_| "split sizes: expected at least 0")?;
    let count = builder.members(call.out).len();
    parts(builder, [call.input, call.out], call.dim, std::vec![size; count])
}

/// Splits a dim into consecutive parts; the last has the remainder.
fn parts(
    builder: &mut Builder<'_, '_>,
    [input, out]: [ValueId; 2],
    dim: Option<ValueId>,
    sizes: Vec<usize>,
) -> Result<(), Refusal> {
    let input = builder.any(input)?;
    let dim = dimension(builder.optional_integer(dim)?.unwrap_or(0), input.sizes.len())?;
    let all = input.sizes.get(dim).copied().unwrap_or(0);
    let outs: Vec<ValueId> = builder.members(out).to_vec();
    let mut start = 0usize;
    for (out, size) in outs.into_iter().zip(sizes) {
        let end = start.saturating_add(size).min(all);
        if builder.is_taken(out) {
            let view = input.sliced(dim, start, end, 1).ok_or("split sizes that exceed the dim")?;
            builder.define(out, view)?;
        }
        start = end;
    }
    Ok(())
}

pub(super) fn cat(builder: &mut Builder<'_, '_>, args: &[ValueId]) -> Result<(), Refusal> {
    let [list, dim, out] = args else {
        return Err(std::format!(
            "expected tensors, dim and an output, found {} values",
            args.len()
        ));
    };
    let mut inputs = Vec::new();
    for id in builder.items(list) {
        inputs.push(builder.any(*id)?);
    }
    let mut sizes =
        inputs.first().ok_or("tensors: expected at least one, found none")?.sizes.clone();
    let dim = dimension(builder.integer(*dim)?, sizes.len())?;
    let mut along = inputs.iter().filter_map(|view| view.sizes.get(dim));
    let along = along.try_fold(0usize, |all, size| all.checked_add(*size));
    if let Some(size) = sizes.get_mut(dim) {
        *size = along.ok_or("a concatenation that exceeds the address space")?;
    }
    // The output gets the memory order of the largest input.
    let largest = inputs.iter().filter(|view| view.sizes.len() == sizes.len() && view.is_dense());
    let order = largest.max_by_key(|view| view.numel()).map(View::order);
    let order = order.unwrap_or_else(|| (0..sizes.len()).collect());
    let element = inputs.first().map_or(Element::Float, |view| builder.element_of(view));
    if inputs.iter().any(|view| builder.element_of(view) != element) {
        return Err("a concatenation of different dtypes".into());
    }
    let joined = builder.make_of_in_order(&sizes, &order, element)?;
    let mut start = 0usize;
    for input in inputs {
        let size = input.sizes.get(dim).copied().unwrap_or(0);
        let end =
            start.checked_add(size).ok_or("a concatenation that exceeds the address space")?;
        let part = joined.sliced(dim, start, end, 1);
        let part = part.filter(|part| part.sizes == input.sizes).ok_or_else(|| {
            std::format!(
                "tensors: shape {:?} does not match {sizes:?} outside dim {dim}",
                input.sizes
            )
        })?;
        copy(builder, &input, &part);
        start = end;
    }
    if sizes.get(dim) != Some(&start) {
        return Err("internal error: the concatenated tensors do not fill the output".into());
    }
    builder.define(*out, joined)
}

/// Appends a step that copies one view to another.
pub(in crate::engine) fn copy(builder: &mut Builder<'_, '_>, from: &View, to: &View) {
    let step = Copy::new(from, to);
    match builder.element_of(from) {
        Element::Float => builder.push(step, &[from], to),
        Element::Code => builder.push(CopyInt8(step), &[from], to),
    }
}

/// Strided copy of int8 elements.
struct CopyInt8(Copy);

impl Step for CopyInt8 {
    fn run(&self, io: Io<'_>) -> Result<(), ShapeMismatch> {
        let source: &[i8] = bytemuck::cast_slice(io.inputs[0]);
        let target: &mut [i8] = bytemuck::cast_slice_mut(io.out);
        self.0.copy_together(io.context, source, target).ok_or(ShapeMismatch)
    }
}

/// Strided copy.
#[derive(Clone)]
pub(in crate::engine) struct Copy {
    from: usize,
    to: usize,
    /// Size, read stride and write stride of each loop, the innermost last. Adjacent loops are
    /// merged if their strides allow.
    loops: Vec<[usize; 3]>,
}

impl Copy {
    pub(in crate::engine) fn new(from: &View, to: &View) -> Self {
        let dims = to.sizes.iter().zip(&from.strides).zip(&to.strides);
        let mut dims: Vec<[usize; 3]> = dims
            .map(|((size, from), to)| [*size, *from, *to])
            .filter(|[size, ..]| *size > 1)
            .collect();
        dims.sort_by_key(|[_, _, to]| core::cmp::Reverse(*to));
        let mut loops: Vec<[usize; 3]> = Vec::new();
        for [size, from, to] in dims {
            match loops.last_mut() {
                Some(outer)
                    if outer[1] == from.saturating_mul(size)
                        && outer[2] == to.saturating_mul(size) =>
                {
                    *outer = [outer[0] * size, from, to];
                }
                _ => loops.push([size, from, to]),
            }
        }
        Copy { from: from.offset, to: to.offset, loops }
    }

    /// Copies between buffers; `None` if either is too short.
    pub(in crate::engine) fn copy<T: Pod>(
        &self,
        tier: Tier,
        source: &[T],
        target: &mut [T],
    ) -> Option<()> {
        let size = self.loops.first().map_or(1, |[size, ..]| *size);
        run(tier, &self.loops, size, source.get(self.from..)?, target.get_mut(self.to..)?)
    }

    /// Number of elements.
    pub(in crate::engine) fn numel(&self) -> usize {
        self.loops.iter().map(|[size, ..]| size).product()
    }

    /// Copies in parallel if the copy is large enough: threads divide the outermost loop.
    pub(super) fn copy_together<T: Pod + Send + Sync>(
        &self,
        Context { tier, parallel }: Context<'_>,
        source: &[T],
        target: &mut [T],
    ) -> Option<()> {
        let numel = self.numel();
        let [[size, from, to], inner @ ..] = &self.loops[..] else {
            return self.copy(tier, source, target);
        };
        // Number of elements from the first to the last that one iteration of the outermost loop
        // writes.
        let span =
            inner.iter().map(|[size, _, to]| (size - 1).saturating_mul(*to)).sum::<usize>() + 1;
        let share =
            chunk_len(parallel, numel, GRAIN).div_ceil(numel / size).next_multiple_of(VECTOR);
        if share >= *size || span > *to {
            return self.copy(tier, source, target);
        }
        let source = source.get(self.from..)?;
        let target = target.get_mut(self.to..)?.get_mut(..(size - 1) * to + span)?;
        let outcome = Outcome::default();
        for_each_chunk_mut(parallel, target, share * to, &|index, target| {
            let first = index * share;
            let copied = source
                .get(first * from..)
                .and_then(|source| run(tier, &self.loops, share.min(size - first), source, target));
            outcome.note(copied.ok_or(ShapeMismatch));
        });
        outcome.result().ok()
    }
}

/// Runs `iterations` iterations of the outermost loop.
fn run<T: Pod>(
    tier: Tier,
    loops: &[[usize; 3]],
    iterations: usize,
    source: &[T],
    target: &mut [T],
) -> Option<()> {
    match loops {
        [] => *target.first_mut()? = *source.first()?,
        [[_, 1, 1]] => target.get_mut(..iterations)?.copy_from_slice(source.get(..iterations)?),
        [[_, from, to]] => strided(iterations, [*from, *to], source, target)?,
        [[_, 1, 2], [2, second, 1]] => interleaved::<T, 2>(iterations, *second, source, target)?,
        [[_, 1, 3], [3, second, 1]] => interleaved::<T, 3>(iterations, *second, source, target)?,
        [[_, 1, 4], [4, second, 1]] => interleaved::<T, 4>(iterations, *second, source, target)?,
        [[_, 1, to_row], [cols, from_col, 1]] => {
            let (shape, strides) = ([iterations, *cols], [*from_col, *to_row]);
            tier.dispatch(Transpose { shape, strides, source, target })?;
        }
        [[_, from, to], [16, 1, 1]] => lines::<T, 16>(iterations, [*from, *to], source, target)?,
        [[_, from, to], [32, 1, 1]] => lines::<T, 32>(iterations, [*from, *to], source, target)?,
        [[_, from, to], [64, 1, 1]] => lines::<T, 64>(iterations, [*from, *to], source, target)?,
        [[_, from, to], inner @ ..] => {
            let size = inner.first().map_or(1, |[size, ..]| *size);
            for index in 0..iterations {
                let (source, target) = (source.get(index * from..)?, target.get_mut(index * to..)?);
                run(tier, inner, size, source, target)?;
            }
        }
    }
    Some(())
}

/// Copies short runs of `N` elements; a call of `memcpy` would cost more than the copy.
fn lines<T: core::marker::Copy, const N: usize>(
    iterations: usize,
    [from, to]: [usize; 2],
    source: &[T],
    target: &mut [T],
) -> Option<()> {
    for index in 0..iterations {
        let source = source.get(index * from..)?.first_chunk::<N>()?;
        *target.get_mut(index * to..)?.first_chunk_mut::<N>()? = *source;
    }
    Some(())
}

/// Interleaves `C` columns into rows, such as the colour channels of an image or the channels of
/// groups. The columns have a stride of `from_col`.
fn interleaved<T: Pod, const C: usize>(
    rows: usize,
    from_col: usize,
    source: &[T],
    target: &mut [T],
) -> Option<()> {
    let mut columns = [&source[..0]; C];
    for (c, column) in columns.iter_mut().enumerate() {
        *column = source.get(c * from_col..)?.get(..rows)?;
    }
    let (target, _) = target.get_mut(..rows * C)?.as_chunks_mut::<C>();
    // An index loop: array maps compile to a call without link-time optimization.
    for (i, row) in target.iter_mut().enumerate().take(rows) {
        for c in 0..C {
            row[c] = columns[c][i];
        }
    }
    Some(())
}

fn strided<T: core::marker::Copy>(
    size: usize,
    [from, to]: [usize; 2],
    source: &[T],
    target: &mut [T],
) -> Option<()> {
    let last = size.checked_sub(1)?;
    let source = source.get(..=last.checked_mul(from)?)?;
    let target = target.get_mut(..=last.checked_mul(to)?)?;
    if from == 0 {
        let value = *source.first()?;
        target.iter_mut().step_by(to.max(1)).for_each(|slot| *slot = value);
        return Some(());
    }
    let pairs = target.iter_mut().step_by(to.max(1)).zip(source.iter().step_by(from));
    pairs.for_each(|(slot, value)| *slot = *value);
    Some(())
}

/// Blocked matrix transposition; blocks stay in the L1 cache.
struct Transpose<'a, T> {
    /// Rows and columns.
    shape: [usize; 2],
    /// Stride between columns of the source, and between rows of the target.
    strides: [usize; 2],
    source: &'a [T],
    target: &'a mut [T],
}

impl<T: Pod> Vectorized for Transpose<'_, T> {
    type Output = Option<()>;

    /// Compiled for each instruction set, because larger ones have more registers for
    /// auto-vectorization.
    #[inline(always)]
    fn run<S: Simd>(self, _: S) -> Option<()> {
        let Transpose { shape, strides: [from_col, to_row], source, target } = self;
        match size_of::<T>() {
            1 => in_blocks::<T, VECTOR>(shape, from_col, to_row, source, target),
            4 => in_strips(shape, from_col, to_row, source, target),
            _ => in_blocks::<T, BLOCK>(shape, from_col, to_row, source, target),
        }
    }
}

/// Transposes 32-bit elements in strips of a few columns and one cache line of rows, so that each
/// line is read once and vectors stay in registers.
#[inline(always)]
fn in_strips<T: Pod>(
    [rows, cols]: [usize; 2],
    from_col: usize,
    to_row: usize,
    source: &[T],
    target: &mut [T],
) -> Option<()> {
    const LINE: usize = 16;
    const STRIP: usize = 4;
    let [tall, wide] = [rows - rows % LINE, cols - cols % STRIP];
    let blank = [T::zeroed(); LINE];
    for row in (0..tall).step_by(LINE) {
        for col in (0..wide).step_by(STRIP) {
            let mut columns = [&blank; STRIP];
            for (x, column) in columns.iter_mut().enumerate() {
                *column = source.get((col + x) * from_col + row..)?.first_chunk()?;
            }
            for part in (0..LINE).step_by(STRIP) {
                let mut block = [[T::zeroed(); STRIP]; STRIP];
                for (own, column) in block.iter_mut().zip(columns) {
                    *own = *column.get(part..)?.first_chunk()?;
                }
                for (y, line) in transposed(block).iter().enumerate() {
                    let to = target.get_mut((row + part + y) * to_row + col..)?;
                    *to.first_chunk_mut()? = *line;
                }
            }
        }
    }
    // The columns and rows that remain.
    if wide < cols {
        let (source, target) = (source.get(wide * from_col..)?, target.get_mut(wide..)?);
        in_blocks::<T, BLOCK>([rows, cols - wide], from_col, to_row, source, target)?;
    }
    if tall < rows {
        let (source, target) = (source.get(tall..)?, target.get_mut(tall * to_row..)?);
        in_blocks::<T, BLOCK>([rows - tall, wide], from_col, to_row, source, target)?;
    }
    Some(())
}

/// Transposes in blocks of `N` rows and columns.
#[inline(always)]
fn in_blocks<T: Pod, const N: usize>(
    [rows, cols]: [usize; 2],
    from_col: usize,
    to_row: usize,
    source: &[T],
    target: &mut [T],
) -> Option<()> {
    for row in (0..rows).step_by(N) {
        let height = N.min(rows - row);
        for col in (0..cols).step_by(N) {
            let width = N.min(cols - col);
            let mut block = [[T::zeroed(); N]; N];
            if [height, width] == [N; 2] && N == VECTOR {
                for (x, column) in block.iter_mut().enumerate() {
                    *column = *source.get((col + x) * from_col + row..)?.first_chunk()?;
                }
                for (y, line) in transposed(block).iter().enumerate() {
                    *target.get_mut((row + y) * to_row + col..)?.first_chunk_mut()? = *line;
                }
                continue;
            }
            for (x, column) in block.iter_mut().enumerate().take(width) {
                let from = source.get((col + x) * from_col + row..)?.get(..height)?;
                column.iter_mut().zip(from).for_each(|(slot, value)| *slot = *value);
            }
            for y in 0..height {
                let to = target.get_mut((row + y) * to_row + col..)?.get_mut(..width)?;
                for (slot, column) in to.iter_mut().zip(&block) {
                    *slot = *column.get(y)?;
                }
            }
        }
    }
    Some(())
}

impl Step for Copy {
    fn run(&self, io: Io<'_>) -> Result<(), ShapeMismatch> {
        let [source, ..] = io.inputs;
        self.copy_together(io.context, source, io.out).ok_or(ShapeMismatch)
    }
}

/// Returns the view in channels-last order, `[batch, …, channel]`, copied if necessary. A view of
/// rank 2 or less keeps its order.
pub(super) fn channels_last(builder: &mut Builder<'_, '_>, view: &View) -> Result<View, Refusal> {
    let strides = dense_strides(&view.sizes, &channels_last_order(view.sizes.len()));
    builder.in_strides(view, &strides)
}

/// Channels-last dim order: batch, pixels, then channels, outermost first.
pub(super) fn channels_last_order(rank: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..rank).collect();
    if rank > 2 {
        order.remove(1);
        order.push(1);
    }
    order
}

#[cfg(test)]
mod tests {
    use super::Copy;
    use crate::compute::gemm::Context;
    use crate::compute::simd::Tier;
    use crate::compute::split::Serial;
    use crate::compute::testing::Noise;
    use crate::compute::threads::ThreadPool;
    use torchlet_core::Parallel;

    /// Reference copy, element by element.
    fn copied(loops: &[[usize; 3]], source: &[f32], from: usize, target: &mut [f32], to: usize) {
        match loops {
            [] => target[to] = source[from],
            [[size, by, step], inner @ ..] => {
                for i in 0..*size {
                    copied(inner, source, from + i * by, target, to + i * step);
                }
            }
        }
    }

    #[test]
    fn all_copy_paths_agree() {
        let mut noise = Noise::new(7);
        let pool = ThreadPool::new(2);
        let cases: [&[[usize; 3]]; 13] = [
            &[],
            &[[20_001, 1, 1]],
            &[[20_001, 3, 2]],
            &[[9_001, 1, 2], [2, 9_001, 1]],
            &[[50_176, 1, 3], [3, 50_176, 1]],
            &[[2, 90_000, 80_000], [20_000, 1, 4], [4, 20_000, 1]],
            &[[301, 1, 301], [301, 301, 1]],
            &[[64, 4_096, 4_096], [64, 1, 64], [64, 64, 1]],
            &[[40, 1_000, 1_200], [1_000, 1, 1]],
            // Interleaved groups of channels: more than fit the interleaving loop, fewer, and not a
            // multiple.
            &[[30, 116, 116], [58, 1, 2], [2, 58, 1]],
            &[[30, 10, 12], [5, 1, 2], [2, 5, 1]],
            &[[900, 51, 51], [17, 1, 3], [3, 17, 1]],
            // One iteration of the outermost loop ends after the next one begins.
            &[[33_000, 1, 2], [2, 33_000, 66_001]],
        ];
        for loops in cases {
            let far = |which: usize| -> usize {
                loops.iter().map(|dim| (dim[0] - 1) * dim[which]).sum::<usize>() + 1
            };
            let source = noise.floats(far(1) + 5);
            let (mut want, mut found) = (vec![0.0; far(2) + 3], vec![0.0; far(2) + 3]);
            copied(loops, &source, 5, &mut want, 3);
            let copy = Copy { from: 5, to: 3, loops: loops.to_vec() };
            for parallel in [&Serial as &dyn Parallel, &pool] {
                for tier in Tier::available() {
                    let context = Context { tier, parallel };
                    found.fill(0.0);
                    copy.copy_together(context, &source, &mut found).unwrap();
                    assert!(found == want, "{loops:?} {tier:?}");
                    assert!(copy.copy_together(context, &source[1..], &mut found).is_none());
                }
            }
        }
    }

    #[test]
    fn bytes_are_transposed_alike() {
        let pool = ThreadPool::new(2);
        for [rows, cols] in [[16, 16], [50, 37], [33, 16], [7, 90], [400, 150]] {
            let source: Vec<u8> = (0..rows * cols).map(|at| (at * 7 + at / 13) as u8).collect();
            let mut found = vec![0; source.len()];
            let loops = vec![[rows, 1, cols], [cols, rows, 1]];
            let copy = Copy { from: 0, to: 0, loops };
            for tier in Tier::available() {
                found.fill(0);
                let context = Context { tier, parallel: &pool };
                copy.copy_together(context, &source, &mut found).unwrap();
                for (at, code) in found.iter().enumerate() {
                    assert_eq!(*code, source[at % cols * rows + at / cols], "{tier:?}");
                }
            }
        }
    }
}
