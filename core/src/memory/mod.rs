//! Memory that the caller lends: the arena for what a method is made of, and the places of tensor data.

pub(crate) mod arena;
pub(crate) mod region;

mod shared;

pub use arena::{ARENA_ALIGN, AlignedBytes, ArenaBlock};
pub use shared::SharedMemory;
