//! The loop that all reductions share: iteration order and parallelization.
//!
//! An operator supplies a [`Reducer`]. If adjacent results come from adjacent elements (the reduced
//! dims are the outer ones), several results are computed together, row by row. Otherwise, each
//! result is computed separately, in runs over the innermost reduced dim.
//!
//! Up to a few hundred elements are folded into a partial state, and partial states are merged
//! pairwise, so that the rounding error of a sum grows with the logarithm of its length. The order
//! of merging depends only on the shape, never on the number of threads.

use super::cascade::add_all;
use crate::compute::split::{for_each_chunk_mut, for_each_chunks_mut};
use crate::elementwise::Arithmetic;
use crate::number::{Compute, elements, load};
use crate::walk::{Steps, Walk};
use torchlet_core::layout::{DimOrder, MAX_RANK, Sizes};
use torchlet_core::rules::{DimSet, reduced_count};
use torchlet_core::{Parallel, ScalarType, Serial, TensorInfo, TensorRef};

/// Reduction of values to a result.
pub(crate) trait Reducer<C>: Sync {
    /// Accumulator.
    type State: Copy + Send + Sync;
    /// The initial state, of no values.
    fn start(&self) -> Self::State;
    /// Folds consecutive values into a state; `first` is the index of the first value.
    fn fold(&self, state: &mut Self::State, values: &[C], first: usize);
    /// Folds one value into each state; all values have index `number` in their reduction.
    fn fold_each(&self, states: &mut [Self::State], values: &[C], number: usize);
    /// Merges two states; the values of `a` come first.
    fn merge(&self, a: Self::State, b: Self::State) -> Self::State;
}

/// Number of values that are converted at a time, to a buffer on the stack.
const BLOCK: usize = 32;
/// Number of results that are computed together. Their states are on the stack, which is small on
/// microcontrollers.
const LANES: usize = if cfg!(feature = "std") { 128 } else { 32 };
/// Number of values that are folded into a state before it is merged.
const FOLD: usize = 256;
/// Number of rows that are folded into the states before they are merged, if results are computed
/// together.
const ROWS: usize = 32;
/// Number of values per part of a long reduction; threads compute parts.
const PART: usize = 1 << 15;
/// Number of parts that are computed at a time.
const PARTS: usize = 16;
/// Minimum number of elements per thread.
const GRAIN: usize = 1 << 14;

/// Order in which the elements of a result are reduced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Order {
    /// Memory order.
    Memory,
    /// Row-major index order, as in PyTorch.
    Index,
}

/// Iteration over the elements of each result.
#[derive(Debug)]
pub(crate) struct Geometry {
    /// Walk over the results; yields the position of the first element of each.
    pub(super) results: Walk<1>,
    /// Walk over the elements of one result, relative to its first element.
    pub(super) elements: Walk<1>,
}

impl Geometry {
    /// The geometry of a reduction over `dims`; `out` is the reduced shape, with or without the
    /// reduced dims.
    pub(crate) fn new(input: &TensorInfo, dims: DimSet, out: &TensorInfo, order: Order) -> Self {
        let strides = input.strides();
        let stride = |dim: usize| strides.get(dim).map_or(0, |&stride| stride as isize);
        let mut steps = Steps { strides: [0; MAX_RANK], base: 0 };
        let kept = out.rank() == input.rank();
        let left = (0..input.rank()).filter(|&dim| kept || !dims.contains(dim));
        for (slot, dim) in steps.strides.iter_mut().zip(left) {
            *slot = if dims.contains(dim) { 0 } else { stride(dim) };
        }
        let results = Walk::new(out, &[steps]);

        let mut inner = Steps { strides: [0; MAX_RANK], base: 0 };
        let mut sizes = Sizes::new();
        let memory = input.dim_order.iter().map(|&dim| usize::from(dim));
        let index = 0..input.rank();
        let mut reduce = |dim: usize| {
            if dims.contains(dim)
                && let Some(slot) = inner.strides.get_mut(sizes.len())
            {
                *slot = stride(dim);
                // At most as many dims as the input has, so it fits.
                let _ = sizes.push(input.sizes.get(dim).copied().unwrap_or(1));
            }
        };
        match order {
            Order::Memory => memory.for_each(&mut reduce),
            Order::Index => index.for_each(&mut reduce),
        }
        let dim_order: DimOrder = (0..sizes.len() as u8).collect();
        let inner_info = TensorInfo { scalar_type: input.scalar_type, sizes, dim_order };
        let elements = Walk::new(&inner_info, &[inner]);
        debug_assert_eq!(elements.numel(), reduced_count(&input.sizes, dims));
        Geometry { results, elements }
    }

    /// Elements per result.
    pub(crate) fn count(&self) -> usize {
        self.elements.numel()
    }
}

/// Pairwise merging of partial states, like a binary counter: only states of the same number of
/// merges are merged.
struct PairwiseMerge<S> {
    levels: [S; 32],
    taken: u32,
}

impl<S: Copy> PairwiseMerge<S> {
    fn new(start: S) -> Self {
        PairwiseMerge { levels: [start; 32], taken: 0 }
    }

    fn push(&mut self, mut state: S, merge: impl Fn(S, S) -> S) {
        let free = self.taken.trailing_ones() as usize;
        for level in self.levels.iter().take(free) {
            state = merge(*level, state);
        }
        if let Some(level) = self.levels.get_mut(free) {
            *level = state;
        }
        self.taken = self.taken.wrapping_add(1);
    }

    /// Merges all states, and then a last one.
    fn finish(&self, last: S, merge: impl Fn(S, S) -> S) -> S {
        let mut state = last;
        for (bit, level) in self.levels.iter().enumerate() {
            if self.taken & (1 << bit) != 0 {
                state = merge(*level, state);
            }
        }
        state
    }
}

/// Elements of a tensor, read as `C`.
pub(super) struct Source<'a, C> {
    scalar_type: ScalarType,
    bytes: &'a [u8],
    /// The elements, if they have type `C`.
    direct: Option<&'a [C]>,
}

impl<'a, C: Compute> Source<'a, C> {
    pub(super) fn new(tensor: &TensorRef<'a>) -> Self {
        let direct = (tensor.scalar_type == C::SCALAR_TYPE).then(|| elements(tensor.bytes()));
        Source { scalar_type: tensor.scalar_type, bytes: tensor.bytes(), direct }
    }

    /// Adds elements to the sums, from `start` on with the given stride.
    #[inline(always)]
    pub(super) fn add_to(&self, sums: &mut [C], start: isize, stride: isize)
    where
        C: Arithmetic,
    {
        if let (Some(direct), 1) = (self.direct, stride) {
            let values = usize::try_from(start).ok().and_then(|at| direct.get(at..));
            add_all(sums, values.unwrap_or(&[]));
            return;
        }
        let mut block = [C::default(); BLOCK];
        for (number, sums) in sums.chunks_mut(BLOCK).enumerate() {
            let at = start.wrapping_add(stride.wrapping_mul((number * BLOCK) as isize));
            load(self.scalar_type, self.bytes, at, stride, &mut block[..sums.len()]);
            add_all(sums, &block);
        }
    }

    /// Calls `f(values, index of the first)` for blocks of `len` elements, from `start` on with the
    /// given stride.
    #[inline(always)]
    fn each_block(&self, start: isize, stride: isize, len: usize, mut f: impl FnMut(&[C], usize)) {
        if let (Some(direct), 1) = (self.direct, stride) {
            let values = usize::try_from(start).ok().and_then(|at| direct.get(at..)?.get(..len));
            for (i, values) in values.unwrap_or(&[]).chunks(FOLD).enumerate() {
                f(values, i * FOLD);
            }
            return;
        }
        let mut block = [C::default(); BLOCK];
        let mut done = 0;
        while done < len {
            let block = &mut block[..(len - done).min(BLOCK)];
            let at = start.wrapping_add(stride.wrapping_mul(done as isize));
            load(self.scalar_type, self.bytes, at, stride, block);
            f(block, done);
            done += block.len();
        }
    }
}

/// Computes the reduction states of results `from..to`. Calls `take(first, states)` for groups of
/// consecutive results, where `first` is the index of the group's first result.
fn each_states<C: Compute, R: Reducer<C>>(
    parallel: &dyn Parallel,
    source: &Source<C>,
    geometry: &Geometry,
    reducer: &R,
    (from, to): (usize, usize),
    take: &mut dyn FnMut(usize, &[R::State]),
) {
    let [step] = geometry.results.inner_steps();
    geometry.results.for_each_run(from, to, &mut |first, [at], len| {
        let mut done = 0;
        while done < len {
            let base = at.wrapping_add(step.wrapping_mul(done as isize));
            if step == 1 {
                let mut states = [reducer.start(); LANES];
                let states = &mut states[..(len - done).min(LANES)];
                side_by_side(source, &geometry.elements, reducer, base, states);
                take(first + done, states);
                done += states.len();
            } else {
                let state = one_result(parallel, source, &geometry.elements, reducer, base);
                take(first + done, &[state]);
                done += 1;
            }
        }
    });
}

/// Computes the states of adjacent results from adjacent elements. `states` are initial states.
fn side_by_side<C: Compute, R: Reducer<C>>(
    source: &Source<C>,
    walk: &Walk<1>,
    reducer: &R,
    base: isize,
    states: &mut [R::State],
) {
    if walk.numel() <= ROWS {
        return each_row(source, walk, base, states.len(), &mut |row, first, values| {
            reducer.fold_each(&mut states[first..], values, row);
        });
    }
    // `low` has the state of up to `ROWS` rows, `middle` of up to `ROWS * ROWS`, and `states` of
    // all earlier rows.
    let (mut low, mut middle) = ([reducer.start(); LANES], [reducer.start(); LANES]);
    let len = states.len();
    let (low, middle) = (&mut low[..len], &mut middle[..len]);
    let carry = |from: &mut [R::State], into: &mut [R::State]| {
        for (from, into) in from.iter_mut().zip(into) {
            *into = reducer.merge(*into, *from);
            *from = reducer.start();
        }
    };
    each_row(source, walk, base, len, &mut |row, first, values| {
        reducer.fold_each(&mut low[first..], values, row);
        if first + values.len() == len && (row + 1).is_multiple_of(ROWS) {
            carry(low, middle);
            if (row + 1).is_multiple_of(ROWS * ROWS) {
                carry(middle, states);
            }
        }
    });
    carry(low, middle);
    carry(middle, states);
}

/// Calls `take(row, first, values)` for row `row` of `len` adjacent results, block by block.
#[inline(always)]
fn each_row<C: Compute>(
    source: &Source<C>,
    walk: &Walk<1>,
    base: isize,
    len: usize,
    take: &mut impl FnMut(usize, usize, &[C]),
) {
    let [stride] = walk.inner_steps();
    walk.for_each_run(0, walk.numel(), &mut |number, [at], rows| {
        for row in 0..rows {
            let at = base.wrapping_add(at).wrapping_add(stride.wrapping_mul(row as isize));
            source.each_block(at, 1, len, |values, first| take(number + row, first, values));
        }
    });
}

/// Computes the state of a single result. Its parts may run in parallel.
fn one_result<C: Compute, R: Reducer<C>>(
    parallel: &dyn Parallel,
    source: &Source<C>,
    walk: &Walk<1>,
    reducer: &R,
    base: isize,
) -> R::State {
    let merge = |a, b| reducer.merge(a, b);
    let count = walk.numel();
    if count <= 2 * PART {
        return one_part(source, walk, reducer, base, 0, count);
    }
    let mut all = PairwiseMerge::new(reducer.start());
    let mut done = 0;
    while done < count {
        let mut states = [reducer.start(); PARTS];
        let parts = (count - done).div_ceil(PART).min(PARTS);
        let states = &mut states[..parts];
        for_each_chunk_mut(parallel, states, 1, &|i, state| {
            let from = done + i * PART;
            let to = (from + PART).min(count);
            state.fill(one_part(source, walk, reducer, base, from, to));
        });
        for state in states.iter() {
            all.push(*state, merge);
        }
        done += parts * PART;
    }
    all.finish(reducer.start(), merge)
}

/// Computes the state of elements `from..to` of a result.
fn one_part<C: Compute, R: Reducer<C>>(
    source: &Source<C>,
    walk: &Walk<1>,
    reducer: &R,
    base: isize,
    from: usize,
    to: usize,
) -> R::State {
    let merge = |a, b| reducer.merge(a, b);
    let [stride] = walk.inner_steps();
    let (mut state, mut folded) = (reducer.start(), 0);
    if to - from <= FOLD {
        // Short reductions need no merging.
        walk.for_each_run(from, to, &mut |number, [at], len| {
            source.each_block(base.wrapping_add(at), stride, len, |values, first| {
                reducer.fold(&mut state, values, number + first);
            });
        });
        return state;
    }
    let mut all = PairwiseMerge::new(reducer.start());
    walk.for_each_run(from, to, &mut |number, [at], len| {
        source.each_block(base.wrapping_add(at), stride, len, |values, first| {
            reducer.fold(&mut state, values, number + first);
            folded += values.len();
            if folded >= FOLD {
                all.push(state, merge);
                (state, folded) = (reducer.start(), 0);
            }
        });
    });
    all.finish(state, merge)
}

/// Reduces a tensor into `M` outputs with equal numbers of elements. `outs` holds their bytes and
/// element sizes. `write(states, parts)` converts states to the corresponding parts of the outputs.
pub(crate) fn reduce<C: Compute, R: Reducer<C>, const M: usize>(
    parallel: &dyn Parallel,
    input: &TensorRef,
    geometry: &Geometry,
    reducer: &R,
    outs: ([&mut [u8]; M], [usize; M]),
    write: &(dyn Fn(&[R::State], [&mut [u8]; M]) + Sync),
) {
    let source = Source::new(input);
    spread(parallel, geometry, outs, write, &|parallel, range, take| {
        each_states(parallel, &source, geometry, reducer, range, take);
    });
}

/// Callback that receives consecutive states, and the index of the first of them.
pub(super) type Take<'a, S> = &'a mut dyn FnMut(usize, &[S]);

/// Distributes results over threads. `states(parallel, (from, to), take)` computes the states of
/// results `from..to` and passes them to `take`; `write` converts them to results, as in
/// [`reduce`].
pub(super) fn spread<S, const M: usize>(
    parallel: &dyn Parallel,
    geometry: &Geometry,
    (outs, sizes): ([&mut [u8]; M], [usize; M]),
    write: &(dyn Fn(&[S], [&mut [u8]; M]) + Sync),
    states: &(dyn Fn(&dyn Parallel, (usize, usize), Take<S>) + Sync),
) {
    let numel = geometry.results.numel();
    let count = geometry.count();
    // A chunk needs enough work for a thread, and enough results to be computed together.
    let least = (GRAIN / count.max(1)).clamp(1, GRAIN);
    let chunk = numel.div_ceil(parallel.threads().max(1) * 4).max(least);
    let chunk = if chunk > LANES { chunk.next_multiple_of(LANES) } else { chunk };
    let within = numel < parallel.threads() && count > 2 * PART;
    let (outer, inner): (&dyn Parallel, &dyn Parallel) =
        if within { (&Serial, parallel) } else { (parallel, &Serial) };
    let lens = sizes.map(|size| chunk.saturating_mul(size));
    for_each_chunks_mut(outer, outs, lens, &|index, mut parts: [&mut [u8]; M]| {
        let from = index * chunk;
        let to = (from + chunk).min(numel);
        states(inner, (from, to), &mut |first, states| {
            let mut i = 0;
            let parts = parts.each_mut().map(|part| {
                let at = (first - from) * sizes[i];
                let len = states.len() * sizes[i];
                i += 1;
                part.get_mut(at..).and_then(|part| part.get_mut(..len)).unwrap_or_default()
            });
            write(states, parts);
        });
    });
}
