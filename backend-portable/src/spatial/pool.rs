//! Average and max pooling in one loop.
//!
//! Outputs are computed in blocks over the dim that is innermost in memory: channels for
//! channels-last, width for channels-first. For each tap of the window, the inputs of a whole block
//! form a strided run, which is converted to the compute type and accumulated at once. All element
//! types, layouts and kinds of pooling use this loop.

use super::feature_map::{CHANNELS, DIMS, FeatureMap, SPACE};
use crate::compute::pool::{Fold, PoolWindow};
use crate::compute::simd::Tier;
use crate::compute::split::{Parts, chunk_of_work, for_each_chunk_mut, for_each_job};
use crate::linear::Ring;
use crate::number::{load, store};
use crate::variants::{self, Variants};
use torchlet_core::rules::window::{Window, adaptive_range};
use torchlet_core::{Parallel, ScalarType};

/// Number of outputs that are computed at a time, in a buffer on the stack.
const BLOCK: usize = 64;
/// Minimum number of input elements that a thread reads.
const GRAIN: usize = 1 << 15;

/// How windows cover the input over one dim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Axis {
    /// A sliding window.
    Sliding(Window),
    /// Adaptive pooling: `output` windows, evenly distributed over the input.
    Adaptive { output: usize },
}

impl Axis {
    /// The axis of a dim that the tensor lacks.
    pub(crate) const NONE: Axis = Axis::Sliding(Window::ONE);

    /// Whether the positions of an input of this size and its padding fit in machine words.
    pub(crate) fn is_countable(&self, input: usize) -> bool {
        let Axis::Sliding(window) = self else { return true };
        let reach = (window.kernel() - 1).checked_mul(window.dilation());
        let padded = window.padding().checked_mul(2).and_then(|both| both.checked_add(input));
        let all = reach.zip(padded).and_then(|(reach, padded)| reach.checked_add(padded));
        let all = all.and_then(|all| all.checked_add(window.stride()));
        all.is_some_and(|all| isize::try_from(all).is_ok())
    }

    /// Returns the input positions of output `at`, for an input of this size.
    pub(super) fn tap_range(&self, at: usize, input: usize) -> TapRange {
        match self {
            Axis::Sliding(window) => {
                let taps = window.taps(at, input);
                TapRange { start: taps.start as isize, count: taps.count, step: window.dilation() }
            }
            Axis::Adaptive { .. } if !variants::has(Variants::ADAPTIVE_POOLING) => {
                TapRange::default()
            }
            Axis::Adaptive { output } => {
                let (start, end) = adaptive_range(at, input, *output);
                TapRange { start: start as isize, count: end.saturating_sub(start), step: 1 }
            }
        }
    }

    /// Returns the number of input elements of output `at`, and the divisor of its average.
    pub(super) fn counts(&self, at: usize, input: usize, count_padding: bool) -> (i64, i64) {
        let inside = self.tap_range(at, input).count as i64;
        match self {
            Axis::Sliding(window) if count_padding => (inside, window.covered(at, input) as i64),
            _ => (inside, inside),
        }
    }
}

/// Divisor of an average over all dims, saturating.
pub(super) fn counted(
    axes: &[Axis; 3],
    index: [usize; 3],
    input: [usize; 3],
    count_padding: bool,
) -> i64 {
    let sizes = index.into_iter().zip(input);
    axes.iter().zip(sizes).fold(1i64, |count, (axis, (at, input))| {
        count.saturating_mul(axis.counts(at, input, count_padding).1)
    })
}

/// Kind of pooling.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Average pooling.
    Average {
        /// Whether padding counts in the divisor.
        count_padding: bool,
        /// Overrides the divisor.
        divisor: Option<i64>,
    },
    /// Max pooling, with the index of the maximum within depth, height and width. NaN is greater
    /// than all values.
    Max,
}

/// A compute type of pooling.
pub(crate) trait Pooled: Ring {
    /// Lower bound of all values.
    const LOWEST: Self;
    /// Division; truncates integers towards zero.
    fn divided(self, by: i64) -> Self;
}

impl Pooled for f32 {
    const LOWEST: Self = f32::NEG_INFINITY;
    #[inline(always)]
    fn divided(self, by: i64) -> Self {
        self / by as f32
    }
}

impl Pooled for f64 {
    const LOWEST: Self = f64::NEG_INFINITY;
    #[inline(always)]
    fn divided(self, by: i64) -> Self {
        self / by as f64
    }
}

impl Pooled for i64 {
    const LOWEST: Self = i64::MIN;
    #[inline(always)]
    fn divided(self, by: i64) -> Self {
        self.checked_div(by).unwrap_or(0)
    }
}

/// A pooling and its input.
pub(crate) struct Pooling<'a> {
    pub(crate) kind: Kind,
    pub(crate) axes: [Axis; 3],
    pub(crate) scalar_type: ScalarType,
    pub(crate) input: &'a [u8],
    pub(crate) from: FeatureMap,
}

/// Accumulators for a block of outputs: sums or maxima, and the indices of the maxima.
struct Block<C> {
    values: [C; BLOCK],
    indices: [i64; BLOCK],
}

impl Pooling<'_> {
    /// Whether this is max pooling.
    #[inline(always)]
    fn is_max(&self) -> bool {
        variants::has(Variants::MAX_POOLING)
            && (!variants::has(Variants::AVERAGE_POOLING) || self.kind == Kind::Max)
    }

    /// Maximum number of outputs in a block over `dim`, such that a block has about as many taps as
    /// the input has positions.
    fn block_len(&self, dim: usize) -> usize {
        match dim.checked_sub(SPACE).and_then(|dim| self.axes.get(dim)) {
            None => BLOCK,
            Some(Axis::Adaptive { .. }) => 1,
            Some(Axis::Sliding(window)) => (1 + self.from.sizes[dim] / window.stride()).min(BLOCK),
        }
    }

    /// Computes `len` outputs over the dim `inner`, from index `at` on.
    fn block<C: Pooled>(&self, at: [usize; DIMS], inner: usize, len: usize, block: &mut Block<C>) {
        let from = &self.from;
        let [_, _, _, height, width] = from.sizes.map(|size| size as isize);
        let index_of = |[d, h, w]: [isize; 3]| ((d * height + h) * width + w) as i64;
        let largest = self.is_max();
        let values = &mut block.values[..len];
        let indices = &mut block.indices[..len];
        values.fill(if largest { C::LOWEST } else { C::default() });
        // If the inner dim is spatial, all outputs of the block share the taps over the other dims,
        // and a tap over the inner dim is a strided run.
        let sliding = match inner.checked_sub(SPACE).map(|dim| self.axes[dim]) {
            Some(Axis::Sliding(window)) if len > 1 => Some(window),
            _ => None,
        };
        let mut ranges = [TapRange::default(); 3];
        for (dim, range) in ranges.iter_mut().enumerate() {
            *range = match sliding {
                Some(window) if inner == SPACE + dim => {
                    TapRange::jointly(&window, at[inner], len, from.sizes[inner])
                }
                _ => self.axes[dim].tap_range(at[SPACE + dim], from.sizes[SPACE + dim]),
            };
        }
        if largest {
            // If all values are minus infinity, the index is that of the first element of the
            // window.
            for (i, index) in indices.iter_mut().enumerate() {
                let mut starts = ranges.map(|range| range.start);
                if let Some(window) = sliding {
                    let taps = window.taps(at[inner] + i, from.sizes[inner]);
                    starts[inner - SPACE] = taps.start as isize;
                }
                *index = index_of(starts);
            }
        }
        let start = at[0] * from.strides[0] + at[CHANNELS] * from.strides[CHANNELS];
        let mut step = if inner < SPACE { from.strides[inner] } else { 0 };
        let mut buffer = [C::default(); BLOCK];
        for d in ranges[0].positions() {
            for h in ranges[1].positions() {
                for w in ranges[2].positions() {
                    let mut tap = [d, h, w];
                    let (mut lo, mut hi, mut index_step) = (0, len, 0);
                    if let Some(window) = sliding {
                        // The position of the tap is that for the first output of the block; it may
                        // be before the start of the input.
                        let dim = inner - SPACE;
                        let stride = window.stride() as isize;
                        let input = from.sizes[inner] as isize;
                        lo = ((-tap[dim] + stride - 1).div_euclid(stride)).clamp(0, len as isize)
                            as usize;
                        let remaining = input - tap[dim];
                        hi = ((remaining + stride - 1).div_euclid(stride)).clamp(0, len as isize)
                            as usize;
                        if lo >= hi {
                            continue;
                        }
                        tap[dim] += lo as isize * stride;
                        step = window.stride() * from.strides[inner];
                        index_step = (stride * [height * width, width, 1][dim]) as i64;
                    }
                    let at = start
                        + tap[0] as usize * from.strides[2]
                        + tap[1] as usize * from.strides[3]
                        + tap[2] as usize * from.strides[4];
                    let run = &mut buffer[..hi - lo];
                    load(self.scalar_type, self.input, at as isize, step as isize, run);
                    if !largest {
                        for (sum, &value) in values[lo..hi].iter_mut().zip(run.iter()) {
                            *sum = sum.mul_add(value, C::of_bool(true));
                        }
                        continue;
                    }
                    let mut index = index_of(tap);
                    let best = values[lo..hi].iter_mut().zip(&mut indices[lo..hi]);
                    for ((best, best_index), &value) in best.zip(run.iter()) {
                        let better = value > *best || value.is_nan();
                        *best = if better { value } else { *best };
                        *best_index = if better { index } else { *best_index };
                        index += index_step;
                    }
                }
            }
        }
        if !largest && let Kind::Average { count_padding, divisor } = self.kind {
            self.divide(values, at, inner, count_padding, divisor);
        }
    }

    /// Converts the sums of a block to averages.
    fn divide<C: Pooled>(
        &self,
        values: &mut [C],
        at: [usize; DIMS],
        inner: usize,
        count_padding: bool,
        divisor: Option<i64>,
    ) {
        let counts = |dim: usize, at: usize| {
            self.axes[dim].counts(at, self.from.sizes[SPACE + dim], count_padding)
        };
        let (mut visible, mut count) = (1i64, 1i64);
        for dim in (0..3).filter(|dim| SPACE + dim != inner) {
            let (inside, counted) = counts(dim, at[SPACE + dim]);
            (visible, count) = (visible.saturating_mul(inside), count.saturating_mul(counted));
        }
        for (i, sum) in values.iter_mut().enumerate() {
            let (mut visible, mut count) = (visible, count);
            if inner >= SPACE {
                let (inside, counted) = counts(inner - SPACE, at[inner] + i);
                (visible, count) = (visible.saturating_mul(inside), count.saturating_mul(counted));
            }
            let empty = visible == 0;
            *sum = if empty { C::default() } else { sum.divided(divisor.unwrap_or(count)) };
        }
    }

    /// Pools channels-last `f32` images, all channels of a pixel at once. Returns false if that
    /// does not apply.
    fn run_channels(&self, parallel: &dyn Parallel, to: &FeatureMap, values: &mut [u8]) -> bool {
        let channels = to.sizes[CHANNELS];
        let last = self.from.is_channels_last() && to.is_channels_last() && channels > 1;
        let tier = Tier::detect();
        // Processors without vector instructions would not benefit; their firmware does not link
        // this code.
        if tier == Tier::SCALAR || !last || self.scalar_type != ScalarType::Float {
            return false;
        }
        let (Ok(input), Ok(values)) =
            (bytemuck::try_cast_slice(self.input), bytemuck::try_cast_slice_mut(values))
        else {
            return false;
        };
        let row = to.sizes[DIMS - 1] * channels;
        if row == 0 {
            return true;
        }
        let taps = self.from.sizes[SPACE..].iter().product::<usize>()
            / to.sizes[SPACE..].iter().product::<usize>().max(1);
        let work = row.saturating_mul(taps);
        let share = chunk_of_work(parallel, values.len() / row, work, GRAIN);
        for_each_chunk_mut(parallel, values, row.saturating_mul(share), &|job, rows| {
            for (i, pixel) in rows.chunks_exact_mut(channels).enumerate() {
                let mut at = [0; DIMS];
                let mut rest = job * share * to.sizes[DIMS - 1] + i;
                for dim in [4, 3, 2, 0] {
                    at[dim] = rest % to.sizes[dim];
                    rest /= to.sizes[dim];
                }
                let ranges = [0, 1, 2].map(|dim| {
                    self.axes[dim].tap_range(at[SPACE + dim], self.from.sizes[SPACE + dim])
                });
                let strides = &self.from.strides;
                let first = ranges.iter().zip(&strides[SPACE..]).fold(
                    at[0].saturating_mul(strides[0]),
                    |first, (range, &stride)| {
                        let start = usize::try_from(range.start).unwrap_or(0);
                        first.saturating_add(start.saturating_mul(stride))
                    },
                );
                tier.dispatch(PoolWindow {
                    input,
                    at: first,
                    counts: ranges.map(|range| range.count),
                    steps: [0, 1, 2]
                        .map(|dim| ranges[dim].step.saturating_mul(strides[SPACE + dim])),
                    fold: match self.kind {
                        Kind::Max => Fold::Max,
                        Kind::Average { count_padding, divisor } => {
                            let index = [at[SPACE], at[SPACE + 1], at[SPACE + 2]];
                            let input = self.from.space();
                            let counted = counted(&self.axes, index, input, count_padding);
                            Fold::Average(divisor.unwrap_or(counted) as f32)
                        }
                    },
                    out: pixel,
                });
            }
        });
        true
    }

    /// Computes outputs in memory order. Values and indices have the layout `to`; `index_type` is
    /// the dtype of the indices.
    pub(crate) fn run<C: Pooled>(
        &self,
        parallel: &dyn Parallel,
        to: &FeatureMap,
        mut values: Option<&mut [u8]>,
        indices: Option<&mut [u8]>,
        index_type: ScalarType,
    ) {
        if indices.is_none()
            && let Some(values) = values.as_deref_mut()
            && self.run_channels(parallel, to, values)
        {
            return;
        }
        let order = to.order();
        let inner = order[DIMS - 1];
        let row = to.sizes[inner];
        let rows: usize = order[..DIMS - 1].iter().map(|&dim| to.sizes[dim]).product();
        if row == 0 || rows == 0 {
            return;
        }
        let size = self.scalar_type.size();
        let (write_values, write_indices) = (values.is_some(), indices.is_some());
        let values = Parts::new(values.unwrap_or_default());
        let is_short = crate::types::has(ScalarType::Int) && index_type == ScalarType::Int;
        let indices = Parts::new(indices.unwrap_or_default());
        let taps =
            (self.from.sizes.iter().product::<usize>() / to.sizes.iter().product::<usize>()).max(1);
        let share = chunk_of_work(parallel, rows, row.saturating_mul(taps), GRAIN);
        let block_len = self.block_len(inner);
        for_each_job::<()>(parallel, rows.div_ceil(share), &mut [], 0, &|job, _| {
            let mut block = Block { values: [C::default(); BLOCK], indices: [0; BLOCK] };
            for index in job * share..((job + 1) * share).min(rows) {
                // Checked here, so that firmware with only one of the two index types can remove
                // the code of the other.
                let is_short = crate::types::has(ScalarType::Int) && is_short;
                let index_type = if is_short { ScalarType::Int } else { ScalarType::Long };
                let width = index_type.size();
                // SAFETY: each job runs once, and each row of `row` elements belongs to one job
                // only.
                let (values, indices) = unsafe {
                    (
                        values.part(index * row * size, row * size),
                        indices.part(index * row * width, row * width),
                    )
                };
                let mut at = [0; DIMS];
                let mut rest = index;
                for &dim in order.iter().rev().skip(1) {
                    at[dim] = rest % to.sizes[dim];
                    rest /= to.sizes[dim];
                }
                for first in (0..row).step_by(block_len) {
                    let len = block_len.min(row - first);
                    at[inner] = first;
                    self.block(at, inner, len, &mut block);
                    if write_values
                        && let Some(out) = values.get_mut(first * size..(first + len) * size)
                    {
                        store(self.scalar_type, out, &block.values[..len]);
                    }
                    if write_indices
                        && let Some(out) = indices.get_mut(first * width..(first + len) * width)
                    {
                        store(index_type, out, &block.indices[..len]);
                    }
                }
            }
        });
    }
}

/// The input positions of a window over one dim: the first, their number and the step.
#[derive(Clone, Copy, Default)]
pub(super) struct TapRange {
    pub(super) start: isize,
    pub(super) count: usize,
    pub(super) step: usize,
}

impl TapRange {
    /// The taps that any output of a block uses, as input positions for the first output of the
    /// block. They may be before the start of the input.
    fn jointly(window: &Window, first: usize, len: usize, input: usize) -> Self {
        let dilation = window.dilation() as isize;
        let origin = |at: usize| (at * window.stride()) as isize - window.padding() as isize;
        let (origin, last) = (origin(first), origin(first + len - 1));
        let from = (-last).max(0) / dilation + isize::from((-last).max(0) % dilation != 0);
        let to = (input as isize - 1 - origin).div_euclid(dilation);
        let to = to.min(window.kernel() as isize - 1);
        let count = usize::try_from(to - from + 1).unwrap_or(0);
        TapRange { start: origin + from * dilation, count, step: window.dilation() }
    }

    fn positions(self) -> impl Iterator<Item = isize> {
        (0..self.count as isize).map(move |i| self.start + i * self.step as isize)
    }
}
