//! Memory for vectors: whole cache lines.

use std::vec::Vec;

/// Elements of a cache line, at whose multiples buffers start.
pub(super) const LINE: usize = 16;

/// A fixed number of elements, zero at first, that start with a cache line.
///
/// Memory that is asked for in alignments beyond those of all types is cleared by hand; this is as the system gives it.
#[derive(Debug, Default)]
pub(super) struct Lines {
    elements: Vec<f32>,
    /// Where the first line begins.
    start: usize,
    len: usize,
}

impl Lines {
    /// `None` if there is not so much memory.
    pub(super) fn zeroed(len: usize) -> Option<Self> {
        let elements: Vec<f32> =
            bytemuck::allocation::try_zeroed_vec(len.checked_add(LINE)?).ok()?;
        let start = elements.as_ptr().align_offset(LINE * size_of::<f32>()).min(LINE);
        Some(Lines { elements, start, len })
    }

    /// A copy of elements.
    pub(super) fn of(elements: &[f32]) -> Option<Self> {
        let mut lines = Self::zeroed(elements.len())?;
        lines.as_mut_slice().copy_from_slice(elements);
        Some(lines)
    }

    pub(super) fn as_slice(&self) -> &[f32] {
        self.elements.get(self.start..).and_then(|all| all.get(..self.len)).unwrap_or_default()
    }

    pub(super) fn as_mut_slice(&mut self) -> &mut [f32] {
        let all = self.elements.get_mut(self.start..);
        all.and_then(|all| all.get_mut(..self.len)).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_begin_with_a_cache_line() {
        for len in [0, 1, 16, 1000, 1 << 16] {
            let mut lines = Lines::zeroed(len).unwrap();
            assert_eq!(lines.as_slice(), std::vec![0.0; len]);
            assert_eq!(lines.as_mut_slice().as_ptr().addr() % 64, 0);
            assert_eq!(lines.as_mut_slice().len(), len);
        }
        assert!(Lines::zeroed(usize::MAX).is_none());
        assert_eq!(Lines::of(&[1.0, 2.0]).unwrap().as_slice(), [1.0, 2.0]);
    }
}
