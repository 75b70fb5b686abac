//! Iteration over the lines of one dim, shared by softmax and the cumulative operators.
//!
//! A *line* consists of the elements that differ only in their index of that dim. If the dim is the
//! innermost of the output, lines are computed one at a time. Otherwise, several lines that are
//! adjacent in memory are computed together.

use crate::compute::split::{Columns, for_each_chunk_mut, for_each_columns_mut};
use crate::number::{Compute, load};
use crate::walk::{Steps, Walk};
use torchlet_core::layout::MAX_RANK;
use torchlet_core::{KernelError, Parallel, Serial, TensorInfo, TensorRef};

/// Maximum number of lines that are computed together.
pub(crate) const LANES: usize = 64;
/// Minimum number of elements per thread.
const GRAIN: usize = 1 << 13;

/// The lines of an output, and the input offsets of their elements.
pub(crate) struct Lines {
    /// Walk over the lines, in the output's memory order.
    walk: Walk<1>,
    /// Elements per line.
    len: usize,
    /// Number of lines whose elements are adjacent in the output.
    inner: usize,
    /// Stride between the elements of a line in the input.
    step: isize,
}

/// A line of the input, or several adjacent ones.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Line {
    at: isize,
    /// Elements per line.
    pub(crate) len: usize,
    step: isize,
    /// Number of adjacent lines.
    pub(crate) lanes: usize,
    lane_step: isize,
}

impl Line {
    /// Loads `out.len()` elements of a single line, from index `from` on.
    pub(crate) fn load<C: Compute>(&self, input: &TensorRef, from: usize, out: &mut [C]) {
        let at = self.at.wrapping_add(self.step.wrapping_mul(from as isize));
        load(input.scalar_type, input.bytes(), at, self.step, out);
    }

    /// Loads element `number` of each of the adjacent lines.
    pub(crate) fn load_lanes<C: Compute>(&self, input: &TensorRef, number: usize, out: &mut [C]) {
        let at = self.at.wrapping_add(self.step.wrapping_mul(number as isize));
        load(input.scalar_type, input.bytes(), at, self.lane_step, out);
    }
}

/// Output slice for one call of the line function.
pub(crate) enum Target<'t> {
    /// A single line.
    Row(&'t mut [u8]),
    /// Adjacent lines.
    Lanes(&'t mut dyn Lanes),
}

/// Mutable access to adjacent lines.
pub(crate) trait Lanes {
    /// Element `number` of each of the lines.
    fn row(&mut self, number: usize) -> &mut [u8];
}

/// A range of columns of the output.
struct Part<'t, 'd> {
    columns: &'t mut Columns<'d, u8>,
    start: usize,
    len: usize,
}

impl Lanes for Part<'_, '_> {
    fn row(&mut self, number: usize) -> &mut [u8] {
        let row = self.columns.row(number).get_mut(self.start..);
        row.and_then(|row| row.get_mut(..self.len)).unwrap_or_default()
    }
}

impl Lines {
    /// The lines over `dim`. A zero-dim tensor has one line of one element.
    pub(crate) fn new(
        out: &TensorInfo,
        input: &TensorInfo,
        dim: usize,
    ) -> Result<Self, KernelError> {
        if out.sizes != input.sizes {
            return Err(KernelError::argument(0, "shape differs from that of the output"));
        }
        let mut info = out.clone();
        if let Some(size) = info.sizes.get_mut(dim) {
            *size = 1;
        }
        let mut steps = Steps { strides: [0; MAX_RANK], base: 0 };
        for (slot, stride) in steps.strides.iter_mut().zip(input.strides()) {
            *slot = stride as isize;
        }
        Ok(Lines {
            step: steps.strides.get(dim).copied().unwrap_or(1),
            walk: Walk::new(&info, &[steps]),
            len: out.size(dim),
            inner: out.strides().get(dim).map_or(1, |&stride| stride.max(1)),
        })
    }

    /// Whether the lines are contiguous and consecutive, in the input as well as in the output.
    pub(crate) fn are_rows(&self) -> bool {
        let rows = isize::try_from(self.len).is_ok_and(|len| self.walk.is_plain(len));
        self.inner == 1 && (self.step == 1 || self.len == 1) && rows
    }

    /// Calls `task` for all lines. `bytes` is the output, whose elements have `size` bytes.
    pub(crate) fn for_each(
        &self,
        parallel: &dyn Parallel,
        bytes: &mut [u8],
        size: usize,
        task: &(dyn Fn(Line, Target) + Sync),
    ) {
        let (len, inner) = (self.len, self.inner);
        let line_bytes = len.saturating_mul(size);
        if line_bytes == 0 {
            return;
        }
        if inner == 1 {
            let together = (GRAIN / len).max(1);
            let chunk = together.saturating_mul(line_bytes);
            for_each_chunk_mut(parallel, bytes, chunk, &|index, bytes: &mut [u8]| {
                let from = index * together;
                let to = from + bytes.len() / line_bytes;
                self.rows(from, to, &mut bytes.chunks_exact_mut(line_bytes), task);
            });
            return;
        }
        let block = inner.saturating_mul(line_bytes);
        let blocks = bytes.len() / block;
        let (outer, within): (&dyn Parallel, &dyn Parallel) =
            if blocks < parallel.threads() { (&Serial, parallel) } else { (parallel, &Serial) };
        let together = (GRAIN / inner.saturating_mul(len)).max(1);
        for_each_chunk_mut(
            outer,
            bytes,
            block.saturating_mul(together),
            &|index, bytes: &mut [u8]| {
                for (i, bytes) in bytes.chunks_exact_mut(block).enumerate() {
                    let first = (index * together + i) * inner;
                    let lanes = LANES * size;
                    for_each_columns_mut(within, bytes, inner * size, lanes, &|start, columns| {
                        let from = first + start / size;
                        self.lanes(from, LANES.min(inner - start / size), size, columns, task);
                    });
                }
            },
        );
    }

    /// Processes the lines `from..to` one at a time.
    fn rows<'a>(
        &self,
        from: usize,
        to: usize,
        targets: &mut dyn Iterator<Item = &'a mut [u8]>,
        task: &(dyn Fn(Line, Target) + Sync),
    ) {
        let [lane_step] = self.walk.inner_steps();
        self.walk.for_each_run(from, to, &mut |_, [at], count| {
            for (i, target) in (0..count).zip(&mut *targets) {
                let at = at.wrapping_add(lane_step.wrapping_mul(i as isize));
                let line = Line { at, len: self.len, step: self.step, lanes: 1, lane_step };
                task(line, Target::Row(target));
            }
        });
    }

    /// Processes `count` adjacent lines, starting at line `from`.
    fn lanes(
        &self,
        from: usize,
        count: usize,
        size: usize,
        columns: &mut Columns<u8>,
        task: &(dyn Fn(Line, Target) + Sync),
    ) {
        let [lane_step] = self.walk.inner_steps();
        self.walk.for_each_run(from, from + count, &mut |first, [at], lanes| {
            let line = Line { at, len: self.len, step: self.step, lanes, lane_step };
            let start = (first - from) * size;
            let mut part = Part { columns: &mut *columns, start, len: lanes * size };
            task(line, Target::Lanes(&mut part));
        });
    }
}
