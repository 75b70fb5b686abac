//! A tensor viewed as batch, channels and three spatial dims.

use crate::compute::split::{chunk_of_work, for_each_chunk_mut};
use torchlet_core::{Parallel, TensorInfo};

/// Number of dims of a [`FeatureMap`]: batch, channels, depth, height, width.
pub(crate) const DIMS: usize = 5;
/// The channel dim.
pub(super) const CHANNELS: usize = 1;
/// The first spatial dim.
pub(super) const SPACE: usize = 2;

/// Minimum number of operations per thread.
const GRAIN: usize = 1 << 15;

/// Sizes and strides of batch, channels, depth, height and width. Dims that the tensor lacks have
/// size 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FeatureMap {
    pub(crate) sizes: [usize; DIMS],
    pub(crate) strides: [usize; DIMS],
}

impl FeatureMap {
    /// Views a tensor `[channels, space…]` or `[batch, channels, space…]` with `spatial` spatial
    /// dims. `None` for any other rank.
    pub(super) fn new(info: &TensorInfo, spatial: usize) -> Option<Self> {
        let batched = info.rank() == spatial + 2;
        if (!batched && info.rank() != spatial + 1) || spatial > DIMS - SPACE {
            return None;
        }
        let mut map = FeatureMap { sizes: [1; DIMS], strides: [0; DIMS] };
        let leading = info.rank() - spatial;
        for (dim, stride) in info.strides().into_iter().enumerate() {
            let at = if dim < leading { dim + 2 - leading } else { DIMS - info.rank() + dim };
            map.sizes[at] = info.size(dim);
            map.strides[at] = stride;
        }
        Some(map)
    }

    /// Whether the elements are dense with this order of dims, outermost first.
    fn is_dense(&self, order: [usize; DIMS]) -> bool {
        let mut step = 1;
        for &dim in order.iter().rev() {
            if self.sizes[dim] != 1 && self.strides[dim] != step {
                return false;
            }
            step *= self.sizes[dim].max(1);
        }
        true
    }

    /// Whether the elements are dense in channels-first order.
    pub(super) fn is_channels_first(&self) -> bool {
        self.is_dense([0, 1, 2, 3, 4])
    }

    /// Whether the elements are dense in channels-last order.
    pub(super) fn is_channels_last(&self) -> bool {
        self.is_dense([0, 2, 3, 4, 1])
    }

    /// Sizes of depth, height and width.
    pub(super) fn space(&self) -> [usize; 3] {
        [self.sizes[2], self.sizes[3], self.sizes[4]]
    }

    /// The dims from outermost to innermost in memory.
    pub(super) fn order(&self) -> [usize; DIMS] {
        let mut order = [0, 1, 2, 3, 4];
        // Dims of size one come first, the others by descending stride.
        order.sort_unstable_by_key(|&dim| {
            let rank = if self.sizes[dim] == 1 { usize::MAX } else { self.strides[dim] };
            (core::cmp::Reverse(rank), dim)
        });
        order
    }
}

/// Writes an output row by row on several threads. A row extends over the dim that is innermost in
/// memory. Calls `write` with the index of the row's first element, the innermost dim, and the
/// row's bytes.
///
/// `cost` is the approximate number of operations per element.
pub(super) fn for_each_row(
    parallel: &dyn Parallel,
    to: &FeatureMap,
    out: &mut [u8],
    size: usize,
    cost: usize,
    write: &(dyn Fn([usize; DIMS], usize, &mut [u8]) + Sync),
) {
    let order = to.order();
    let inner = order[DIMS - 1];
    let row = to.sizes[inner].saturating_mul(size);
    if row == 0 || out.is_empty() {
        return;
    }
    let work = to.sizes[inner].saturating_mul(cost);
    let rows = chunk_of_work(parallel, out.len() / row, work, GRAIN);
    for_each_chunk_mut(parallel, out, rows.saturating_mul(row), &|chunk, out| {
        for (index, out) in out.chunks_exact_mut(row).enumerate() {
            let mut at = [0; DIMS];
            let mut rest = chunk * rows + index;
            for &dim in order.iter().rev().skip(1) {
                at[dim] = rest % to.sizes[dim].max(1);
                rest /= to.sizes[dim].max(1);
            }
            write(at, inner, out);
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use torchlet_core::ScalarType;

    #[test]
    fn dims_are_assigned() {
        let mut info = TensorInfo::contiguous(ScalarType::Float, &[2, 3, 4, 5]).unwrap();
        let map = FeatureMap::new(&info, 2).unwrap();
        assert_eq!(map.sizes, [2, 3, 1, 4, 5]);
        assert_eq!(map.strides, [60, 20, 0, 5, 1]);
        assert!(map.is_channels_first() && !map.is_channels_last());
        assert_eq!(map.order(), [2, 0, 1, 3, 4]);
        assert_eq!(FeatureMap::new(&info, 3).unwrap().sizes, [1, 2, 3, 4, 5]);
        assert_eq!(FeatureMap::new(&info, 1), None);
        info.dim_order = torchlet_core::layout::channels_last_order(4).unwrap();
        let map = FeatureMap::new(&info, 2).unwrap();
        assert!(!map.is_channels_first() && map.is_channels_last());
        assert_eq!(map.order(), [2, 0, 3, 4, 1]);
    }
}
