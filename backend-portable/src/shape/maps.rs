//! Copies in which each dimension goes its own way: padded, repeated, rolled, mirrored.
//!
//! A [`Map`] says which index of the input an index of the output shows. Dimensions that are copied
//! as they are merge with those around them, so that what is done row by row is a `memcpy` of as
//! much as lies together.

use super::moves::{Item, copy_run};
use crate::compute::split::{chunk_len, for_each_chunk_mut};
use torchlet_core::layout::MAX_RANK;
use torchlet_core::{Parallel, TensorInfo};

/// What one dimension of the output shows of the input's dimension, which has `len` indices.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Map {
    /// The same index.
    Same,
    /// The input over and over.
    Repeat { len: usize },
    /// The input from `len - by` on, and then its begin; `by` is less than `len`.
    Roll { len: usize, by: usize },
    /// Nothing before and after the input, which begins at index `before`, or outside if that is
    /// negative.
    Pad { len: usize, before: isize },
    /// The input, mirrored at its first and last index.
    Reflect { len: usize, before: isize },
    /// The input, its first and last index repeated.
    Replicate { len: usize, before: isize },
}

/// What consecutive indices show: from which input index on (`None` for nothing), with which step,
/// and how many.
type Piece = (Option<isize>, isize, usize);

impl Map {
    /// What `left` indices from `index` on show, as far as it is regular; the count is at least 1.
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

    /// The index that an index of the output shows, if any.
    pub(crate) fn shown(&self, index: usize) -> Option<usize> {
        usize::try_from(self.piece(index, 1).0?).ok()
    }

    /// The map of this dimension and one inside it, of `inner` indices, that is copied as it is.
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
    /// Elements between neighbours in the input.
    stride: usize,
}

/// The dimensions of an output, outermost in memory first.
#[derive(Debug, Clone)]
pub(crate) struct Maps {
    levels: heapless::Vec<Level, MAX_RANK, u8>,
    numel: usize,
}

impl Maps {
    /// By the output's dimensions: the map, and the stride of the input.
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
            // There are no more levels than dimensions.
            let _ = levels.push(Level { size, map, stride });
        }
        if levels.is_empty() {
            let _ = levels.push(Level { size: 1, map: Map::Same, stride: 1 });
        }
        Maps { levels, numel: out.numel() }
    }

    /// Fills the output; what shows nothing of the input becomes `fill`.
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

    /// Fills positions of the output from `from` on.
    fn range<E: Item>(&self, from: usize, input: &[E], fill: E, out: &mut [E]) {
        let Some((inner, outer)) = self.levels.split_last() else { return };
        let mut done = 0;
        while done < out.len() {
            let mut rest = (from + done) / inner.size.max(1);
            let start = (from + done) % inner.size.max(1);
            // The row's place in the input, if it shows any of it.
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
        let mut shown = Vec::new();
        while shown.len() < size {
            let (at, step, count) = map.piece(shown.len(), size - shown.len());
            for i in 0..count {
                shown.push(at.map_or(-1, |at| at + step * i as isize));
            }
        }
        shown
    }

    #[test]
    fn maps_show_what_they_say() {
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
