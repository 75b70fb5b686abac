//! Views: strided layouts for operators that only rearrange elements.
//!
//! A [`View`] maps each index of the result to an element of the input, by a base offset and a
//! stride for each dim. Operators such as permute, slice and expand turn one view into another, so
//! every backend needs only one strided copy.

use super::{normalize_dim, normalize_index};
use crate::bounded::Bounded;
use crate::layout::{MAX_RANK, Sizes, TensorInfo, checked_numel};

/// Stride of each dim, in elements; may be negative.
pub type Steps = Bounded<isize, MAX_RANK>;

/// A strided view of a tensor's elements.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct View {
    sizes: Sizes,
    /// Same length as `sizes`.
    steps: Steps,
    base: isize,
}

impl View {
    /// Creates the identity view of a tensor.
    pub fn of(info: &TensorInfo) -> Option<Self> {
        let mut steps = Steps::new();
        for stride in info.strides() {
            steps.push(isize::try_from(stride).ok()?).ok()?;
        }
        Some(View { sizes: info.sizes.clone(), steps, base: 0 })
    }

    /// Size of each dim of the result.
    pub fn sizes(&self) -> &Sizes {
        &self.sizes
    }

    /// Stride of each dim in the input's memory, in elements.
    pub fn strides(&self) -> &Steps {
        &self.steps
    }

    /// Offset of the first element. Unspecified if the view is empty.
    pub fn base(&self) -> isize {
        self.base
    }

    /// Number of dims.
    pub fn rank(&self) -> usize {
        self.sizes.len()
    }

    fn size(&self, dim: usize) -> Option<i64> {
        self.sizes.get(dim).map(|&size| i64::from(size))
    }

    fn step(&self, dim: usize) -> Option<isize> {
        self.steps.get(dim).copied()
    }

    /// Moves the base by `count` strides of a dim. The base of an empty view may be out of range,
    /// hence the wrapping arithmetic.
    fn advance(&mut self, dim: usize, count: i64) -> Option<()> {
        let by = self.step(dim)?.wrapping_mul(isize::try_from(count).ok()?);
        self.base = self.base.wrapping_add(by);
        Some(())
    }

    /// Sets size and stride of a dim.
    fn set(&mut self, dim: usize, size: i64, step: isize) -> Option<()> {
        *self.sizes.get_mut(dim)? = i32::try_from(size).ok()?;
        *self.steps.get_mut(dim)? = step;
        Some(())
    }

    fn push(&mut self, size: i64, step: isize) -> Option<()> {
        self.sizes.push(i32::try_from(size).ok()?).ok()?;
        self.steps.push(step).ok()
    }

    /// Permutes the dims.
    pub fn permute(self, dims: &[i64]) -> Option<Self> {
        if dims.len() != self.rank() {
            return None;
        }
        let mut result = View { sizes: Sizes::new(), steps: Steps::new(), base: self.base };
        let mut seen = 0u32;
        for &dim in dims {
            let dim = normalize_dim(dim, self.rank())?;
            if seen & 1 << dim != 0 {
                return None;
            }
            seen |= 1 << dim;
            result.push(self.size(dim)?, self.step(dim)?)?;
        }
        Some(result)
    }

    /// Swaps two dims.
    pub fn transpose(mut self, a: i64, b: i64) -> Option<Self> {
        let (a, b) = (normalize_dim(a, self.rank())?, normalize_dim(b, self.rank())?);
        if self.rank() > 0 {
            self.sizes.swap(a, b);
            self.steps.swap(a, b);
        }
        Some(self)
    }

    /// Takes every `step`-th index from `start` (inclusive) to `end` (exclusive). Negative bounds
    /// count from the end; bounds are clamped to the dim.
    pub fn slice(
        mut self,
        dim: i64,
        start: Option<i64>,
        end: Option<i64>,
        step: i64,
    ) -> Option<Self> {
        let dim = normalize_dim(dim, self.rank())?;
        let size = self.size(dim)?;
        let (start, len) = slice_range(size, start, end, step)?;
        self.advance(dim, start)?;
        let stride = self.step(dim)?.wrapping_mul(isize::try_from(step).unwrap_or(isize::MAX));
        self.set(dim, len, stride)?;
        Some(self)
    }

    /// Takes `length` indices from `start`.
    pub fn narrow(mut self, dim: i64, start: i64, length: i64) -> Option<Self> {
        let dim = normalize_dim(dim, self.rank())?;
        let size = self.size(dim)?;
        let start = if start < 0 { start.checked_add(size)? } else { start };
        if start < 0 || length < 0 || start.checked_add(length)? > size {
            return None;
        }
        self.advance(dim, start)?;
        let step = self.step(dim)?;
        self.set(dim, length, step)?;
        Some(self)
    }

    /// Takes one index of a dim and removes the dim.
    pub fn select(mut self, dim: i64, index: i64) -> Option<Self> {
        if self.rank() == 0 {
            return None;
        }
        let dim = normalize_dim(dim, self.rank())?;
        let index = normalize_index(index, usize::try_from(self.size(dim)?).ok()?)?;
        self.advance(dim, i64::try_from(index).ok()?)?;
        self.remove(dim);
        Some(self)
    }

    fn remove(&mut self, dim: usize) {
        if dim < self.rank() {
            self.sizes.remove(dim);
            self.steps.remove(dim);
        }
    }

    /// Removes those of the given dims that have size 1.
    pub fn squeeze(mut self, dims: &[i64]) -> Option<Self> {
        let mut named = 0u32;
        for &dim in dims {
            let dim = normalize_dim(dim, self.rank())?;
            if named & 1 << dim != 0 {
                return None;
            }
            named |= 1 << dim;
        }
        for dim in (0..self.rank()).rev() {
            if named & 1 << dim != 0 && self.size(dim) == Some(1) {
                self.remove(dim);
            }
        }
        Some(self)
    }

    /// Inserts a dim of size 1.
    pub fn unsqueeze(mut self, dim: i64) -> Option<Self> {
        let dim = normalize_dim(dim, self.rank() + 1)?;
        self.sizes.insert(dim, 1).ok()?;
        self.steps.insert(dim, 0).ok()?;
        Some(self)
    }

    /// Expands dims of size 1, and adds leading dims; -1 keeps the size of a dim.
    pub fn expand(self, sizes: &[i64]) -> Option<Self> {
        let missing = sizes.len().checked_sub(self.rank())?;
        let mut result = View { sizes: Sizes::new(), steps: Steps::new(), base: self.base };
        for (dim, &size) in sizes.iter().enumerate() {
            let own = dim.checked_sub(missing);
            let (own_size, own_step) = match own {
                Some(own) => (self.size(own)?, self.step(own)?),
                None => (1, 0),
            };
            let size = if size == -1 && own.is_some() { own_size } else { size };
            if size < 0 || size != own_size && own_size != 1 {
                return None;
            }
            result.push(size, if size == own_size { own_step } else { 0 })?;
        }
        checked_numel(&result.sizes)?;
        Some(result)
    }

    /// Replaces two dims by their diagonal, which becomes the last dim.
    pub fn diagonal(mut self, offset: i64, a: i64, b: i64) -> Option<Self> {
        if self.rank() < 2 {
            return None;
        }
        let (a, b) = (normalize_dim(a, self.rank())?, normalize_dim(b, self.rank())?);
        if a == b {
            return None;
        }
        let (rows, columns) = (self.size(a)?, self.size(b)?);
        let len = if offset >= 0 {
            rows.min(columns.saturating_sub(offset))
        } else {
            columns.min(rows.saturating_add(offset))
        }
        .max(0);
        if len > 0 {
            if offset >= 0 {
                self.advance(b, offset)?;
            } else {
                self.advance(a, offset.checked_neg()?)?;
            }
        }
        let step = self.step(a)?.wrapping_add(self.step(b)?);
        self.remove(a.max(b));
        self.remove(a.min(b));
        self.push(len, step)?;
        Some(self)
    }

    /// Sliding windows of `size` indices at intervals of `step`; the window contents become the
    /// last dim.
    pub fn unfold(mut self, dim: i64, size: i64, step: i64) -> Option<Self> {
        let dim = normalize_dim(dim, self.rank())?;
        let (len, stride) =
            if self.rank() == 0 { (1, 1) } else { (self.size(dim)?, self.step(dim)?) };
        if size < 0 || size > len || step <= 0 {
            return None;
        }
        let windows = (len - size) / step + 1;
        if self.rank() > 0 {
            let apart = stride.wrapping_mul(isize::try_from(step).unwrap_or(isize::MAX));
            self.set(dim, windows, apart)?;
        }
        self.push(size, stride)?;
        Some(self)
    }

    /// Reverses dims.
    pub fn flip(mut self, dims: &[i64]) -> Option<Self> {
        let mut named = 0u32;
        for &dim in dims {
            let dim = normalize_dim(dim, self.rank())?;
            if named & 1 << dim != 0 {
                return None;
            }
            named |= 1 << dim;
            if self.rank() > 0 {
                self.advance(dim, self.size(dim)?.saturating_sub(1))?;
                let step = self.step(dim)?.wrapping_neg();
                self.set(dim, self.size(dim)?, step)?;
            }
        }
        Some(self)
    }

    /// Adds a last dim of size 2 with adjacent elements: complex values as their real and imaginary
    /// parts.
    pub fn view_as_real(mut self) -> Option<Self> {
        self.base = self.base.checked_mul(2)?;
        for step in &mut self.steps {
            *step = step.checked_mul(2)?;
        }
        self.push(2, 1)?;
        Some(self)
    }

    /// Arbitrary sizes and strides over `numel` elements; `None` if an element would be out of
    /// range.
    pub fn as_strided(numel: usize, sizes: &[i64], steps: &[i64], offset: i64) -> Option<Self> {
        if sizes.len() != steps.len() || offset < 0 {
            return None;
        }
        let mut view =
            View { sizes: Sizes::new(), steps: Steps::new(), base: isize::try_from(offset).ok()? };
        let mut last = offset;
        for (&size, &step) in sizes.iter().zip(steps) {
            if size < 0 || step < 0 {
                return None;
            }
            last = last.checked_add(step.checked_mul(size.saturating_sub(1).max(0))?)?;
            view.push(size, isize::try_from(step).ok()?)?;
        }
        let inside = usize::try_from(last).is_ok_and(|last| last < numel);
        (inside || checked_numel(&view.sizes)? == 0).then_some(view)
    }

    /// Whether all elements of the view are in range for `numel` elements.
    pub fn is_inside(&self, numel: usize) -> bool {
        let (mut first, mut last) = (self.base, self.base);
        for (&size, &step) in self.sizes.iter().zip(&self.steps) {
            let Ok(size) = isize::try_from(size) else { return false };
            if size == 0 {
                return true;
            }
            let Some(span) = step.checked_mul(size - 1) else { return false };
            let moved = if span < 0 { &mut first } else { &mut last };
            let Some(end) = moved.checked_add(span) else { return false };
            *moved = end;
        }
        first >= 0 && usize::try_from(last).is_ok_and(|last| last < numel)
    }
}

/// First index and number of indices of a slice.
pub fn slice_range(
    size: i64,
    start: Option<i64>,
    end: Option<i64>,
    step: i64,
) -> Option<(i64, i64)> {
    if step <= 0 {
        return None;
    }
    let bound = |bound: i64| if bound < 0 { bound.saturating_add(size) } else { bound };
    let start = bound(start.unwrap_or(0)).clamp(0, size);
    let end = bound(end.unwrap_or(i64::MAX)).clamp(start, size);
    let len = end - start;
    Some((start, len / step + i64::from(len % step != 0)))
}

/// Result sizes of reshaping `numel` elements; one size may be -1.
pub fn view_sizes(numel: usize, sizes: &[i64]) -> Option<Sizes> {
    let mut result = Sizes::new();
    let mut product = 1usize;
    let mut inferred = None;
    for (dim, &size) in sizes.iter().enumerate() {
        if size == -1 && inferred.is_none() {
            inferred = Some(dim);
            result.push(1).ok()?;
        } else {
            product = product.checked_mul(usize::try_from(size).ok()?)?;
            result.push(i32::try_from(size).ok()?).ok()?;
        }
    }
    if let Some(dim) = inferred {
        if numel.checked_rem(product)? != 0 {
            return None;
        }
        *result.get_mut(dim)? = i32::try_from(numel / product).ok()?;
    } else if product != numel {
        return None;
    }
    checked_numel(&result)?;
    Some(result)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dtype::ScalarType;

    fn view(sizes: &[i32]) -> View {
        View::of(&TensorInfo::contiguous(ScalarType::Float, sizes).unwrap()).unwrap()
    }

    fn is(view: Option<View>, sizes: &[i32], steps: &[isize], base: isize) {
        let view = view.unwrap();
        assert_eq!((&view.sizes[..], &view.steps[..], view.base), (sizes, steps, base));
    }

    /// Sizes, strides and storage offsets of PyTorch's views.
    #[test]
    fn views_match_pytorch() {
        is(view(&[2, 3, 4]).permute(&[2, -3, 1]), &[4, 2, 3], &[1, 12, 4], 0);
        is(view(&[2, 3, 4]).transpose(-1, 0), &[4, 3, 2], &[1, 4, 12], 0);
        is(view(&[2, 3, 4]).slice(1, Some(-2), None, 1), &[2, 2, 4], &[12, 4, 1], 4);
        is(view(&[7]).slice(0, Some(1), Some(100), 3), &[2], &[3], 1);
        is(view(&[7]).slice(0, Some(5), Some(2), 1), &[0], &[1], 5);
        is(view(&[2, 3]).select(-1, -1), &[2], &[3], 2);
        is(view(&[2, 3]).narrow(1, -2, 2), &[2, 2], &[3, 1], 1);
        is(view(&[1, 2, 1]).squeeze(&[0, 1]), &[2, 1], &[1, 1], 0);
        is(view(&[2, 3]).unsqueeze(-1), &[2, 3, 1], &[3, 1, 0], 0);
        is(view(&[2, 1]).expand(&[4, -1, 3]), &[4, 2, 3], &[0, 1, 0], 0);
        is(view(&[3, 4]).diagonal(1, 0, 1), &[3], &[5], 1);
        is(view(&[3, 4]).diagonal(-1, 0, 1), &[2], &[5], 4);
        is(view(&[3, 4]).diagonal(9, 0, 1), &[0], &[5], 0);
        is(view(&[5, 2]).unfold(0, 2, 2), &[2, 2, 2], &[4, 1, 2], 0);
        is(view(&[2, 3]).flip(&[1]), &[2, 3], &[3, -1], 2);
        is(View::as_strided(6, &[2, 2], &[3, 1], 1), &[2, 2], &[3, 1], 1);
        is(view(&[2, 3]).select(0, 1).unwrap().view_as_real(), &[3, 2], &[2, 1], 6);
    }

    #[test]
    fn invalid_views_are_rejected() {
        assert!(view(&[2, 3]).permute(&[0, 0]).is_none());
        assert!(view(&[2, 3]).permute(&[0]).is_none());
        assert!(view(&[2]).slice(0, None, None, 0).is_none());
        assert!(view(&[2, 3]).select(1, 3).is_none());
        assert!(view(&[]).select(0, 0).is_none());
        assert!(view(&[2, 3]).narrow(1, 2, 2).is_none());
        assert!(view(&[2, 3]).narrow(1, i64::MAX, i64::MAX).is_none());
        assert!(view(&[2]).expand(&[-1, 2]).is_none());
        assert!(view(&[2]).expand(&[3]).is_none());
        assert!(view(&[3, 4]).diagonal(0, 1, -1).is_none());
        assert!(view(&[5]).unfold(0, 6, 1).is_none());
        assert!(View::as_strided(6, &[2, 2], &[3, 3], 0).is_none());
        assert!(View::as_strided(6, &[i64::MAX, 2], &[i64::MAX, 1], 0).is_none());
        assert!(View::as_strided(6, &[2], &[1], -1).is_none());
        assert!(view(&[1; MAX_RANK]).view_as_real().is_none());
    }

    #[test]
    fn reshapes_infer_one_size() {
        assert_eq!(view_sizes(6, &[2, -1]).unwrap(), [2, 3]);
        assert_eq!(view_sizes(0, &[0, 4]).unwrap(), [0, 4]);
        assert_eq!(view_sizes(0, &[-1, 4]).unwrap(), [0, 4]);
        assert_eq!(view_sizes(1, &[]).unwrap(), [] as [i32; 0]);
        assert_eq!(view_sizes(0, &[-1, 0]), None);
        assert_eq!(view_sizes(6, &[-1, -1]), None);
        assert_eq!(view_sizes(6, &[4, -1]), None);
        assert_eq!(view_sizes(6, &[7]), None);
        assert_eq!(view_sizes(6, &[i64::MAX, i64::MAX]), None);
    }

    #[test]
    fn is_inside_checks_bounds() {
        assert!(view(&[2, 3]).flip(&[0, 1]).unwrap().is_inside(6));
        assert!(!view(&[2, 3]).is_inside(5));
        let outside = View { base: -1, ..view(&[2]) };
        assert!(!outside.is_inside(9));
    }
}
