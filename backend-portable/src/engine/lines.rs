//! Buffers aligned to cache lines, and to huge pages if they are large.

use crate::compute::simd::LINE;
use std::vec::Vec;

/// A fixed number of elements, initially zero, aligned to a cache line.
///
/// Over-allocates instead of requesting the alignment: allocators zero over-aligned memory
/// explicitly, whereas normally aligned memory comes zeroed from the system.
#[derive(Debug, Default)]
pub(super) struct Lines {
    memory: Memory,
    /// Offset of the first aligned element in `memory`.
    start: usize,
    len: usize,
}

/// Source of the memory.
#[derive(Debug)]
enum Memory {
    Heap(Vec<f32>),
    /// Anonymous mapping in huge pages, which the system provides only on request. They reduce TLB
    /// misses, so weights that are read once per run load some percent faster. 32-bit systems do
    /// not use them, because gaps between the blocks would waste address space.
    #[cfg(all(target_os = "linux", target_pointer_width = "64", not(miri)))]
    Pages(memmap2::MmapMut),
}

impl Default for Memory {
    fn default() -> Self {
        Memory::Heap(Vec::new())
    }
}

impl Memory {
    /// Number of elements per huge page.
    #[cfg(all(target_os = "linux", target_pointer_width = "64", not(miri)))]
    const PAGE: usize = (2 << 20) / size_of::<f32>();

    /// Allocates at least `len` zeros; also returns the alignment in elements. `None` if out of
    /// memory.
    fn zeroed(len: usize) -> Option<(Self, usize)> {
        #[cfg(all(target_os = "linux", target_pointer_width = "64", not(miri)))]
        if len >= Self::PAGE {
            let bytes = len.checked_add(Self::PAGE)?.checked_mul(size_of::<f32>())?;
            let pages = memmap2::MmapMut::map_anon(bytes).ok()?;
            // Only a hint: systems without huge pages use small ones.
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
    /// Allocates `len` zeros; `None` if out of memory.
    pub(super) fn zeroed(len: usize) -> Option<Self> {
        let (memory, unit) = Memory::zeroed(len)?;
        let start = memory.as_slice().as_ptr().align_offset(unit * size_of::<f32>()).min(unit);
        Some(Lines { memory, start, len })
    }

    /// Copies elements; `None` if out of memory.
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
