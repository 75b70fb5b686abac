//! Strided views of buffers: operators that only rearrange a tensor become new strides, without a
//! copy.

use std::vec::Vec;

/// Index of a buffer of a plan.
pub(super) type BufferId = usize;

/// A strided tensor within a buffer. Element `(i, j, …)` is at
/// `offset + i · strides[0] + j · strides[1] + …`; every element is inside the buffer.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct View {
    pub(super) buffer: BufferId,
    pub(super) offset: usize,
    pub(super) sizes: Vec<usize>,
    pub(super) strides: Vec<usize>,
}

/// Maximum number of elements of a tensor, so that offsets cannot overflow.
const MAX_NUMEL: usize = isize::MAX as usize / size_of::<f32>();

/// Number of elements of a shape; `None` if it exceeds the address space.
pub(super) fn numel(sizes: &[usize]) -> Option<usize> {
    let all = sizes.iter().try_fold(1usize, |all, size| all.checked_mul(*size))?;
    (all <= MAX_NUMEL).then_some(all)
}

/// Contiguous strides for dims in `order`, outermost first.
pub(super) fn dense_strides(sizes: &[usize], order: &[usize]) -> Vec<usize> {
    let mut strides = std::vec![0; sizes.len()];
    let mut stride = 1usize;
    for dim in order.iter().rev() {
        if let (Some(slot), Some(size)) = (strides.get_mut(*dim), sizes.get(*dim)) {
            *slot = stride;
            stride = stride.saturating_mul(*size);
        }
    }
    strides
}

impl View {
    /// Creates a row-major view of a whole buffer.
    pub(super) fn whole(buffer: BufferId, sizes: &[usize]) -> Self {
        let order: Vec<usize> = (0..sizes.len()).collect();
        View { buffer, offset: 0, sizes: sizes.to_vec(), strides: dense_strides(sizes, &order) }
    }

    pub(super) fn numel(&self) -> usize {
        self.sizes.iter().product()
    }

    /// Sizes and strides of the dims with more than one element.
    fn dims(&self) -> impl DoubleEndedIterator<Item = (usize, usize)> + '_ {
        let dims = self.sizes.iter().copied().zip(self.strides.iter().copied());
        dims.filter(|(size, _)| *size > 1)
    }

    /// Whether the view has these strides, ignoring dims of one element.
    pub(super) fn has_strides(&self, strides: &[usize]) -> bool {
        let dims = self.sizes.iter().zip(&self.strides).zip(strides);
        dims.filter(|((size, _), _)| **size > 1).all(|((_, mine), other)| mine == other)
    }

    /// Whether the elements are contiguous and row-major.
    pub(super) fn is_contiguous(&self) -> bool {
        let mut expected = 1;
        self.dims().rev().all(|(size, stride)| {
            let fits = stride == expected;
            expected *= size;
            fits
        })
    }

    /// Returns the dims from outermost to innermost in memory; dims of size one stay next to their
    /// neighbours.
    pub(super) fn order(&self) -> Vec<usize> {
        let mut order: Vec<usize> = (0..self.sizes.len()).collect();
        let key = |dim: &usize| {
            let inner = self.sizes.iter().zip(&self.strides).skip(*dim);
            inner.filter(|(size, _)| **size > 1).map(|(_, stride)| *stride).next()
        };
        order.sort_by_key(|dim| core::cmp::Reverse(key(dim).unwrap_or(0)));
        order
    }

    /// Whether the elements are contiguous in some order of the dims, without repetition.
    pub(super) fn is_dense(&self) -> bool {
        self.has_strides(&dense_strides(&self.sizes, &self.order()))
    }

    /// Permutes the dims; `None` if `dims` is not a permutation.
    pub(super) fn permuted(&self, dims: &[usize]) -> Option<Self> {
        let mut seen = std::vec![false; self.sizes.len()];
        for dim in dims {
            let slot = seen.get_mut(*dim)?;
            if core::mem::replace(slot, true) {
                return None;
            }
        }
        if dims.len() != self.sizes.len() {
            return None;
        }
        let pick = |of: &[usize]| dims.iter().filter_map(|dim| of.get(*dim).copied()).collect();
        Some(View { sizes: pick(&self.sizes), strides: pick(&self.strides), ..self.clone() })
    }

    /// Selects every `step`th of the indices `start..end` of a dim; `None` if out of range.
    pub(super) fn sliced(&self, dim: usize, start: usize, end: usize, step: usize) -> Option<Self> {
        let mut view = self.clone();
        let (size, stride) = (view.sizes.get_mut(dim)?, view.strides.get_mut(dim)?);
        if step == 0 || start > end || end > *size {
            return None;
        }
        view.offset += start * *stride;
        *size = (end - start).div_ceil(step);
        if *size > 1 {
            *stride = stride.checked_mul(step)?;
        }
        Some(view)
    }

    /// Selects one index of a dim and removes the dim.
    pub(super) fn selected(&self, dim: usize, index: usize) -> Option<Self> {
        let mut view = self.sliced(dim, index, index.checked_add(1)?, 1)?;
        view.sizes.remove(dim);
        view.strides.remove(dim);
        Some(view)
    }

    /// Broadcasts to a shape: expands dims of one element and prepends dims.
    pub(super) fn expanded(&self, sizes: &[usize]) -> Option<Self> {
        let lead = sizes.len().checked_sub(self.sizes.len())?;
        let mut strides = std::vec![0; sizes.len()];
        let own = self.sizes.iter().zip(&self.strides);
        for ((slot, size), (mine, stride)) in strides.iter_mut().zip(sizes).skip(lead).zip(own) {
            match (*mine == *size, *mine) {
                (true, _) => *slot = *stride,
                (false, 1) => {}
                _ => return None,
            }
        }
        Some(View { sizes: sizes.to_vec(), strides, ..self.clone() })
    }

    /// Reshapes without copying; `None` if strides cannot express the shape or the number of
    /// elements differs.
    pub(super) fn reshaped(&self, sizes: &[usize]) -> Option<Self> {
        if numel(sizes)? != self.numel() {
            return None;
        }
        if self.numel() == 0 {
            let order: Vec<usize> = (0..sizes.len()).collect();
            let strides = dense_strides(sizes, &order);
            return Some(View { sizes: sizes.to_vec(), strides, ..self.clone() });
        }
        // Merges dims that are contiguous with each other.
        let mut runs: Vec<(usize, usize)> = Vec::new();
        for (size, stride) in self.dims() {
            match runs.last_mut() {
                Some((all, inner)) if *inner == stride.checked_mul(size)? => {
                    (*all, *inner) = (all.checked_mul(size)?, stride);
                }
                _ => runs.push((size, stride)),
            }
        }
        let mut strides = std::vec![0; sizes.len()];
        let (mut left, mut stride) = (1, 1);
        for (slot, size) in strides.iter_mut().zip(sizes).rev() {
            if *size == 1 {
                *slot = stride;
                continue;
            }
            if left == 1 {
                (left, stride) = runs.pop()?;
            }
            if left % size != 0 {
                return None;
            }
            *slot = stride;
            (left, stride) = (left / size, stride.saturating_mul(*size));
        }
        Some(View { sizes: sizes.to_vec(), strides, ..self.clone() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn view(sizes: &[usize], strides: &[usize]) -> View {
        View { buffer: 0, offset: 0, sizes: sizes.to_vec(), strides: strides.to_vec() }
    }

    #[test]
    fn shapes_change_where_strides_can_say_it() {
        let rows = View::whole(0, &[2, 3, 4]);
        assert_eq!(rows.reshaped(&[6, 4]).unwrap().strides, [4, 1]);
        assert_eq!(rows.reshaped(&[2, 1, 12]).unwrap().strides, [12, 12, 1]);
        let turned = rows.permuted(&[0, 2, 1]).unwrap();
        assert_eq!(turned.reshaped(&[8, 3]), None, "rows of two samples do not follow each other");
        assert_eq!(turned.reshaped(&[2, 2, 2, 3]).unwrap().strides, [12, 2, 1, 4]);
        assert_eq!(rows.reshaped(&[5, 5]), None);
        assert_eq!(view(&[4, 1, 1], &[7, 1, 1]).reshaped(&[4]).unwrap().strides, [7]);
        let repeated = view(&[1, 3], &[3, 1]).expanded(&[2, 3]).unwrap();
        assert_eq!(repeated.reshaped(&[6]), None);
    }

    #[test]
    fn order_and_density() {
        let last = view(&[2, 3, 4, 5], &[60, 1, 15, 3]);
        assert!(last.is_dense() && !last.is_contiguous());
        assert_eq!(last.order(), [0, 2, 3, 1]);
        assert!(View::whole(0, &[1, 3, 1, 1]).is_contiguous());
        assert!(!view(&[2, 3], &[6, 2]).is_dense());
        assert!(!view(&[2, 3], &[0, 1]).is_dense());
    }

    #[test]
    fn parts() {
        let rows = View::whole(0, &[4, 6]);
        let part = rows.sliced(1, 1, 6, 2).unwrap();
        assert_eq!((part.offset, &*part.sizes, &*part.strides), (1, &[4, 3][..], &[6, 2][..]));
        assert_eq!(rows.sliced(0, 0, 4, usize::MAX).unwrap().strides, [6, 1]);
        assert_eq!(rows.sliced(1, 1, 7, 1), None);
        assert_eq!(rows.sliced(2, 0, 1, 1), None);
        assert_eq!(rows.selected(0, 3).unwrap().offset, 18);
        assert_eq!(rows.permuted(&[0, 0]), None);
        assert_eq!(rows.expanded(&[3, 4, 6]).unwrap().strides, [0, 6, 1]);
        assert_eq!(rows.expanded(&[8, 6]), None);
    }
}
