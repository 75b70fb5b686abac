//! Caller-provided memory: the arena for a method's tables and delegates, and the regions of tensor
//! data.

pub(crate) mod arena;
pub(crate) mod region;
pub(crate) mod slot;

mod shared;

use crate::error::{InitError, MemoryKind};

pub use arena::{ARENA_ALIGN, AlignedBytes, ArenaBlock};
pub use shared::SharedMemory;

/// Checks size and alignment of caller-provided memory.
pub(crate) fn check_lent(bytes: &[u8], needed: usize, memory: MemoryKind) -> Result<(), InitError> {
    let available = bytes.len();
    if available < needed {
        return Err(InitError::MemoryTooSmall { memory, needed, available });
    }
    if !bytes.is_empty() && !bytes.as_ptr().addr().is_multiple_of(ARENA_ALIGN) {
        return Err(InitError::MemoryMisaligned { memory });
    }
    Ok(())
}
