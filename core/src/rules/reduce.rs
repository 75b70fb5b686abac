//! Reductions: sets of dims, and the result shapes.

use super::normalize_dim;
use crate::layout::{MAX_RANK, Sizes};

/// A set of dims of a tensor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DimSet(u32);

impl DimSet {
    /// The empty set.
    pub const NONE: DimSet = DimSet(0);

    /// All dims of a tensor.
    pub fn all(rank: usize) -> DimSet {
        DimSet((1 << rank.min(MAX_RANK)) - 1)
    }

    /// Creates a set from distinct dims, which count from the end if negative. For a scalar tensor,
    /// 0 and -1 are valid and yield the empty set.
    pub fn of(dims: &[i64], rank: usize) -> Option<DimSet> {
        let mut set = 0u32;
        for &dim in dims {
            let bit = 1 << normalize_dim(dim, rank.min(MAX_RANK))?;
            if set & bit != 0 {
                return None;
            }
            set |= bit;
        }
        Some(DimSet(set & DimSet::all(rank).0))
    }

    /// As [`of`](DimSet::of); `None` and an empty list mean all dims.
    pub fn of_or_all(dims: Option<&[i64]>, rank: usize) -> Option<DimSet> {
        match dims {
            None | Some([]) => Some(DimSet::all(rank)),
            Some(dims) => DimSet::of(dims, rank),
        }
    }

    /// The complement with respect to all dims of a tensor.
    #[must_use]
    pub fn complement(self, rank: usize) -> DimSet {
        DimSet(DimSet::all(rank).0 & !self.0)
    }

    /// Whether the set contains a dim.
    pub fn contains(self, dim: usize) -> bool {
        dim < MAX_RANK && self.0 & (1 << dim) != 0
    }
}

/// Result shape of a reduction: reduced dims become 1 if `keep` is set, and are removed otherwise.
pub fn reduced_shape(sizes: &[i32], dims: DimSet, keep: bool) -> Sizes {
    let sized = |(dim, &size): (usize, &i32)| match dims.contains(dim) {
        true => keep.then_some(1),
        false => Some(size),
    };
    sizes.iter().enumerate().take(MAX_RANK).filter_map(sized).collect()
}

/// Number of elements that each result is reduced from.
pub fn reduced_count(sizes: &[i32], dims: DimSet) -> usize {
    let reduced = sizes.iter().enumerate().filter(|(dim, _)| dims.contains(*dim));
    reduced.fold(1, |count, (_, &size)| count.saturating_mul(usize::try_from(size).unwrap_or(0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dim_sets() {
        assert_eq!(DimSet::of(&[-1, 0], 3), Some(DimSet(0b101)));
        assert_eq!(DimSet::of(&[0, -3], 3), None);
        assert_eq!(DimSet::of(&[3], 3), None);
        assert_eq!(DimSet::of(&[-1], 0), Some(DimSet::NONE));
        assert_eq!(DimSet::of(&[1], 0), None);
        assert_eq!(DimSet::of_or_all(Some(&[]), 2), Some(DimSet(0b11)));
        assert_eq!(DimSet::of_or_all(None, 0), Some(DimSet::NONE));
        assert_eq!(DimSet::all(MAX_RANK), DimSet(0xffff));
        assert_eq!(DimSet(0b001).complement(3), DimSet(0b110));
    }

    #[test]
    fn reduced_shapes() {
        let dims = DimSet(0b101);
        assert_eq!(reduced_shape(&[2, 3, 4], dims, false), [3]);
        assert_eq!(reduced_shape(&[2, 3, 4], dims, true), [1, 3, 1]);
        assert_eq!(reduced_shape(&[], DimSet::NONE, true), [] as [i32; 0]);
        assert_eq!(reduced_count(&[2, 3, 4], dims), 8);
        assert_eq!(reduced_count(&[0, 3, 4], dims), 0);
    }
}
