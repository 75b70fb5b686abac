//! Copies with an index map per dim: pad, repeat, roll, mirror.
//!
//! A [`Map`] gives the input index for each output index. Dims that are copied unchanged are merged
//! with the dims around them, so that copies become `memcpy` calls of the maximal contiguous
//! length.

use super::moves::{Item, copy_run};
use crate::compute::split::{chunk_len, for_each_chunk_mut};
use torchlet_core::layout::MAX_RANK;
use torchlet_core::{Parallel, TensorInfo};

/// Index map of one dim; the input's dim has size `len`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Map {
    /// Input and output indices are equal.
    Same,
    /// Repeats the input.
    Repeat { len: usize },
    /// Rotates the input: the elements from `len - by` on, then those from the beginning. `by` is
    /// less than `len`.
    Roll { len: usize, by: usize },
    /// Pads the input, which begins at output index `before`; a negative value crops it.
    Pad { len: usize, before: isize },
    /// Mirrors the input at its first and last index, which are not repeated.
    Reflect { len: usize, before: isize },
    /// Repeats the first and last index of the input.
    Replicate { len: usize, before: isize },
}

/// A run of output indices: first input index (`None` for padding), input step and length.
type Piece = (Option<isize>, isize, usize);

impl Map {
    /// Returns the run that starts at output index `index`, of 1 to `left` indices.
    fn piece(&self, index: usize, left: usize) -> Piece {
        let upto = |count: usize| count.clamp(1, left.max(1));
        let signed = index as isize;
        match *self {
            Map::Same => (Some(signed), 1, left),
            Map::Repeat { len: 1 } => (Some(0), 0, left),
            Map::Repeat { len } => {
                let at = index % len.max(1);
                (Some(at as isize), 1, upto(len - at))
            }
            Map::Roll { len, by } => {
                let at = (index + (len - by)) % len.max(1);
                (Some(at as isize), 1, upto(len - at))
            }
            Map::Pad { len, before } => match signed.wrapping_sub(before) {
                at if at < 0 => (None, 0, upto(at.unsigned_abs())),
                at if at as usize >= len => (None, 0, left),
                at => (Some(at), 1, upto(len - at as usize)),
            },
            Map::Reflect { len, before } => match signed.wrapping_sub(before) {
                at if at < 0 => (Some(at.wrapping_neg()), -1, upto(at.unsigned_abs())),
                at if at as usize >= len => {
                    (Some((2 * len as isize).wrapping_sub(2 + at)), -1, left)
                }
                at => (Some(at), 1, upto(len - at as usize)),
            },
            Map::Replicate { len, before } => match signed.wrapping_sub(before) {
                at if at < 0 => (Some(0), 0, upto(at.unsigned_abs())),
                at if at as usize >= len => (Some(len as isize - 1), 0, left),
                at => (Some(at), 1, upto(len - at as usize)),
            },
        }
    }

    /// The input index for an output index; `None` for padding.
    pub(crate) fn input_index(&self, index: usize) -> Option<usize> {
        usize::try_from(self.piece(index, 1).0?).ok()
    }

    /// Merges this dim with an inner one of size `inner` that is copied unchanged; `None` if
    /// impossible.
    fn scaled(&self, inner: usize) -> Option<Self> {
        let signed = isize::try_from(inner).ok()?;
        Some(match *self {
            Map::Same => Map::Same,
            Map::Repeat { len } => Map::Repeat { len: len.checked_mul(inner)? },
            Map::Roll { len, by } => {
                Map::Roll { len: len.checked_mul(inner)?, by: by.checked_mul(inner)? }
            }
            Map::Pad { len, before } => {
                Map::Pad { len: len.checked_mul(inner)?, before: before.checked_mul(signed)? }
            }
            Map::Reflect { .. } | Map::Replicate { .. } => return None,
        })
    }
}

#[derive(Debug, Clone, Copy)]
struct Level {
    size: usize,
    map: Map,
    /// Stride in the input, in elements.
    stride: usize,
}

/// The maps of all dims of an output, in memory order from outermost to innermost.
#[derive(Debug, Clone)]
pub(crate) struct Maps {
    levels: heapless::Vec<Level, MAX_RANK, u8>,
    numel: usize,
}

impl Maps {
    /// Creates the maps. `dims` returns the map and the input stride of an output dim.
    pub(crate) fn new(out: &TensorInfo, dims: impl Fn(usize) -> (Map, usize)) -> Self {
        let mut levels: heapless::Vec<Level, MAX_RANK, u8> = heapless::Vec::new();
        for &dim in &out.dim_order {
            let dim = usize::from(dim);
            let (map, stride) = dims(dim);
            let size = out.size(dim);
            if map == Map::Same && size == 1 {
                continue;
            }
            if map == Map::Same
                && let Some(outer) = levels.last_mut()
                && stride.checked_mul(size) == Some(outer.stride)
                && let (Some(map), Some(total)) =
                    (outer.map.scaled(size), outer.size.checked_mul(size))
            {
                *outer = Level { size: total, map, stride };
                continue;
            }
            // At most as many levels as dims, so it fits.
            let _ = levels.push(Level { size, map, stride });
        }
        if levels.is_empty() {
            let _ = levels.push(Level { size: 1, map: Map::Same, stride: 1 });
        }
        Maps { levels, numel: out.numel() }
    }

    /// Fills the output; padding becomes `fill`.
    pub(crate) fn copy<E: Item>(
        &self,
        parallel: &dyn Parallel,
        input: &[E],
        fill: E,
        out: &mut [E],
    ) {
        if out.len() != self.numel {
            return;
        }
        let grain = chunk_len(parallel, out.len(), 64 * 1024 / size_of::<E>());
        for_each_chunk_mut(parallel, out, grain, &|index, part: &mut [E]| {
            self.range(index * grain, input, fill, part);
        });
    }

    /// Fills output positions from `from` on.
    fn range<E: Item>(&self, from: usize, input: &[E], fill: E, out: &mut [E]) {
        let Some((inner, outer)) = self.levels.split_last() else { return };
        let mut done = 0;
        while done < out.len() {
            let mut rest = (from + done) / inner.size.max(1);
            let start = (from + done) % inner.size.max(1);
            // Position of the current row in the input; `None` for padding.
            let mut row = Some(0isize);
            for level in outer.iter().rev() {
                let (at, ..) = level.map.piece(rest % level.size.max(1), 1);
                rest /= level.size.max(1);
                row = row
                    .zip(at)
                    .map(|(row, at)| row.wrapping_add(at.wrapping_mul(level.stride as isize)));
            }
            let end = (start + (out.len() - done)).min(inner.size);
            let mut index = start;
            while index < end {
                let (at, step, count) = inner.map.piece(index, end - index);
                let target = out.get_mut(done..done + count).unwrap_or_default();
                match row.zip(at) {
                    Some((row, at)) => {
                        let stride = inner.stride as isize;
                        let from = row.wrapping_add(at.wrapping_mul(stride));
                        copy_run(input, from, step.wrapping_mul(stride), target);
                    }
                    None => target.fill(fill),
                }
                index += count;
                done += count;
            }
            if end <= start {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn indices(map: Map, size: usize) -> Vec<isize> {
        let mut found = Vec::new();
        while found.len() < size {
            let (at, step, count) = map.piece(found.len(), size - found.len());
            for i in 0..count {
                found.push(at.map_or(-1, |at| at + step * i as isize));
            }
        }
        found
    }

    #[test]
    fn maps_yield_input_indices() {
        assert_eq!(indices(Map::Repeat { len: 2 }, 5), [0, 1, 0, 1, 0]);
        assert_eq!(indices(Map::Repeat { len: 1 }, 3), [0, 0, 0]);
        assert_eq!(indices(Map::Roll { len: 4, by: 1 }, 4), [3, 0, 1, 2]);
        assert_eq!(indices(Map::Roll { len: 4, by: 0 }, 4), [0, 1, 2, 3]);
        assert_eq!(indices(Map::Pad { len: 2, before: 1 }, 4), [-1, 0, 1, -1]);
        assert_eq!(indices(Map::Pad { len: 4, before: -1 }, 4), [1, 2, 3, -1]);
        assert_eq!(indices(Map::Reflect { len: 3, before: 2 }, 7), [2, 1, 0, 1, 2, 1, 0]);
        assert_eq!(indices(Map::Reflect { len: 3, before: -1 }, 3), [1, 2, 1]);
        assert_eq!(indices(Map::Replicate { len: 2, before: 2 }, 6), [0, 0, 0, 1, 1, 1]);
    }
}
