//! Heap memory aligned for every element type and for SIMD instructions.

use crate::error::Error;
use std::mem::MaybeUninit;
use std::ops::Range;
use torchlet_core::{ARENA_ALIGN, ArenaBlock};

/// Cache line size in bytes.
const LINE: usize = 64;

/// Zero-initialised bytes with a fixed length, aligned to 64 bytes.
///
/// The vector is over-allocated and aligned by hand: it then comes zeroed from the operating
/// system, whereas allocators clear over-aligned memory themselves.
pub(crate) struct Buffer {
    memory: Vec<u8>,
    /// The aligned part of `memory`.
    used: Range<usize>,
}

impl Buffer {
    /// Allocates `len` zero bytes, or returns [`Error::OutOfMemory`].
    pub(crate) fn zeroed(len: usize) -> Result<Self, Error> {
        let error = || Error::OutOfMemory { needed: len as u64 };
        let size = len.checked_add(LINE).ok_or_else(error)?;
        let memory = bytemuck::allocation::try_zeroed_vec(size).map_err(|()| error())?;
        Ok(Self::of(memory, len))
    }

    /// Takes `len` aligned bytes of `memory`, which must be at least [`LINE`] bytes longer.
    fn of(memory: Vec<u8>, len: usize) -> Self {
        let start = memory.as_ptr().align_offset(LINE).min(LINE);
        Buffer { memory, used: start..start + len }
    }

    /// Copies `bytes` without zeroing the memory first.
    pub(crate) fn copy_of(bytes: &[u8]) -> Result<Self, Error> {
        let error = || Error::OutOfMemory { needed: bytes.len() as u64 };
        let mut memory: Vec<u8> = Vec::new();
        let size = bytes.len().checked_add(LINE).ok_or_else(error)?;
        memory.try_reserve_exact(size).map_err(|_| error())?;
        let start = memory.as_ptr().align_offset(LINE).min(LINE);
        memory.resize(start, 0);
        memory.extend_from_slice(bytes);
        Ok(Buffer { memory, used: start..start + bytes.len() })
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.memory[self.used.clone()]
    }

    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.memory[self.used.clone()]
    }
}

impl Clone for Buffer {
    fn clone(&self) -> Self {
        let mut copy = Self::of(vec![0; self.used.len() + LINE], self.used.len());
        copy.bytes_mut().copy_from_slice(self.bytes());
        copy
    }
}

/// Uninitialised memory for an arena.
pub(crate) struct ArenaMemory {
    blocks: Vec<ArenaBlock>,
    len: usize,
}

impl ArenaMemory {
    /// Allocates `len` bytes, or returns [`Error::OutOfMemory`].
    pub(crate) fn new(len: usize) -> Result<Self, Error> {
        let count = len.div_ceil(ARENA_ALIGN);
        let mut blocks = Vec::new();
        let error = |_| Error::OutOfMemory { needed: len as u64 };
        blocks.try_reserve_exact(count).map_err(error)?;
        blocks.resize(count, ArenaBlock::UNINIT);
        Ok(ArenaMemory { blocks, len })
    }

    pub(crate) fn bytes(&mut self) -> &mut [MaybeUninit<u8>] {
        &mut ArenaBlock::bytes(&mut self.blocks)[..self.len]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_aligned_and_as_long_as_asked() {
        for len in [0, 1, 64, 65, 1000] {
            let mut buffer = Buffer::zeroed(len).unwrap();
            assert_eq!(buffer.bytes().len(), len);
            assert!(buffer.bytes().iter().all(|byte| *byte == 0));
            assert_eq!(buffer.bytes_mut().as_ptr().addr() % LINE, 0);
            buffer.bytes_mut().fill(7);
            for copy in [buffer.clone(), Buffer::copy_of(buffer.bytes()).unwrap()] {
                assert_eq!(copy.bytes(), buffer.bytes());
                assert_eq!(copy.bytes().as_ptr().addr() % LINE, 0);
            }
        }
    }

    #[test]
    fn absurd_sizes_are_errors() {
        for len in [usize::MAX, isize::MAX as usize] {
            assert!(matches!(Buffer::zeroed(len), Err(Error::OutOfMemory { .. })));
            assert!(matches!(ArenaMemory::new(len), Err(Error::OutOfMemory { .. })));
        }
    }
}
