//! The graph compiler: from programs, however they were lowered, to what a processor runs best.

#![no_std]
#![cfg_attr(not(test), warn(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod cpu;
mod effects;
pub mod emit;
mod error;
pub mod fold;
pub mod front;
pub mod graph;
pub mod lower;
pub mod method;
pub mod operators;
mod package;
mod partition;
pub mod passes;
pub mod plan;
mod read;
mod run;
mod target;
#[cfg(test)]
mod testing;
mod write;

pub use error::Error;
pub use package::Package;
pub use partition::{Part, Region, partition};
pub use target::Target;
