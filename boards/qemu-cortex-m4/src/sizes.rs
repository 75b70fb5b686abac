//! The memory that the program says it needs on this machine: written by `cargo xtask board --overwrite`,
//! and checked to be exact when the firmware starts.

pub const ARENA: usize = 3472;
pub const PLANNED: usize = 14336;
pub const SCRATCH: usize = 7680;
