//! The graph compiler: from programs, however they were lowered, to what a processor runs best.

#![no_std]
#![cfg_attr(not(test), warn(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

extern crate alloc;

pub mod blob;
pub mod bounds;
mod effects;
mod error;
pub mod front;
pub mod graph;
pub mod method;
mod named;
pub mod operators;
mod package;
mod partition;
pub mod passes;
mod read;
mod tables;
mod target;
mod write;

pub use error::Error;
pub use named::{Constants, Named};
pub use package::Package;
pub use partition::{Part, Region, partition};
pub use target::Target;
