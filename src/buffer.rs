//! Heap memory that is aligned for every element type and for vector instructions.

use crate::error::Error;
use bytemuck::{Pod, Zeroable};
use std::mem::MaybeUninit;
use torchlet_core::{ARENA_ALIGN, ArenaBlock};

/// One cache line.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C, align(64))]
struct Line([u8; LINE]);

const LINE: usize = 64;

/// A fixed number of bytes, zero at first, that start at a multiple of 64.
#[derive(Clone)]
pub(crate) struct Buffer {
    lines: Box<[Line]>,
    len: usize,
}

impl Buffer {
    /// Allocates, or says how much could not be had.
    pub(crate) fn zeroed(len: usize) -> Result<Self, Error> {
        let lines = bytemuck::allocation::try_zeroed_slice_box(len.div_ceil(LINE))
            .map_err(|()| Error::OutOfMemory { needed: len as u64 })?;
        Ok(Buffer { lines, len })
    }

    /// A copy of the bytes.
    pub(crate) fn copy_of(bytes: &[u8]) -> Result<Self, Error> {
        let mut buffer = Buffer::zeroed(bytes.len())?;
        buffer.bytes_mut().copy_from_slice(bytes);
        Ok(buffer)
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &bytemuck::cast_slice(&self.lines)[..self.len]
    }

    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        &mut bytemuck::cast_slice_mut(&mut self.lines)[..self.len]
    }
}

/// Memory for an arena, which has no value until something is put into it.
pub(crate) struct ArenaMemory {
    blocks: Vec<ArenaBlock>,
    len: usize,
}

impl ArenaMemory {
    /// Allocates, or says how much could not be had.
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
