//! Memory for vectors: whole cache lines, and whole pages where there are many.

use crate::compute::simd::LINE;
use std::vec::Vec;

/// A fixed number of elements, zero at first, that start with a cache line.
///
/// Memory that is asked for in alignments beyond those of all types is cleared by hand; this is as
/// the system gives it.
#[derive(Debug, Default)]
pub(super) struct Lines {
    memory: Memory,
    /// Where the first line begins.
    start: usize,
    len: usize,
}

/// Who gave the memory.
#[derive(Debug)]
enum Memory {
    Heap(Vec<f32>),
    /// The system, in pages so large that it gives them only to those who ask: weights that are
    /// read once each run come from memory some percent faster, since fewer addresses have to be
    /// looked up. Where addresses are few, none are left between blocks.
    #[cfg(all(target_os = "linux", target_pointer_width = "64", not(miri)))]
    Pages(memmap2::MmapMut),
}

impl Default for Memory {
    fn default() -> Self {
        Memory::Heap(Vec::new())
    }
}

impl Memory {
    /// Elements of a large page.
    #[cfg(all(target_os = "linux", target_pointer_width = "64", not(miri)))]
    const PAGE: usize = (2 << 20) / size_of::<f32>();

    /// At least so many zeros, and the multiple of elements at which they should start. `None` if
    /// there is not so much memory.
    fn zeroed(len: usize) -> Option<(Self, usize)> {
        #[cfg(all(target_os = "linux", target_pointer_width = "64", not(miri)))]
        if len >= Self::PAGE {
            let bytes = len.checked_add(Self::PAGE)?.checked_mul(size_of::<f32>())?;
            let pages = memmap2::MmapMut::map_anon(bytes).ok()?;
            // A wish: systems without such pages give small ones.
            let _ = pages.advise(memmap2::Advice::HugePage);
            return Some((Memory::Pages(pages), Self::PAGE));
        }
        let elements = bytemuck::allocation::try_zeroed_vec(len.checked_add(LINE)?).ok()?;
        Some((Memory::Heap(elements), LINE))
    }

    fn as_slice(&self) -> &[f32] {
        match self {
            Memory::Heap(elements) => elements,
            #[cfg(all(target_os = "linux", target_pointer_width = "64", not(miri)))]
            Memory::Pages(bytes) => bytemuck::try_cast_slice(bytes).unwrap_or_default(),
        }
    }

    fn as_mut_slice(&mut self) -> &mut [f32] {
        match self {
            Memory::Heap(elements) => elements,
            #[cfg(all(target_os = "linux", target_pointer_width = "64", not(miri)))]
            Memory::Pages(bytes) => bytemuck::try_cast_slice_mut(bytes).unwrap_or_default(),
        }
    }
}

impl Lines {
    /// `None` if there is not so much memory.
    pub(super) fn zeroed(len: usize) -> Option<Self> {
        let (memory, unit) = Memory::zeroed(len)?;
        let start = memory.as_slice().as_ptr().align_offset(unit * size_of::<f32>()).min(unit);
        Some(Lines { memory, start, len })
    }

    /// A copy of elements.
    pub(super) fn of(elements: &[f32]) -> Option<Self> {
        let mut lines = Self::zeroed(elements.len())?;
        lines.as_mut_slice().copy_from_slice(elements);
        Some(lines)
    }

    pub(super) fn as_slice(&self) -> &[f32] {
        self.memory
            .as_slice()
            .get(self.start..)
            .and_then(|all| all.get(..self.len))
            .unwrap_or_default()
    }

    pub(super) fn as_mut_slice(&mut self) -> &mut [f32] {
        let all = self.memory.as_mut_slice().get_mut(self.start..);
        all.and_then(|all| all.get_mut(..self.len)).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_begin_with_a_cache_line() {
        for len in [0, 1, 16, 1000, 1 << 16, 1 << 20] {
            let mut lines = Lines::zeroed(len).unwrap();
            assert_eq!(lines.as_slice(), std::vec![0.0; len]);
            assert_eq!(lines.as_mut_slice().as_ptr().addr() % 64, 0);
            assert_eq!(lines.as_mut_slice().len(), len);
        }
        assert!(Lines::zeroed(usize::MAX).is_none());
        assert_eq!(Lines::of(&[1.0, 2.0]).unwrap().as_slice(), [1.0, 2.0]);
    }
}
