//! The graph compiler: from programs, however they were lowered, to what a processor runs best.
//!
//! A program's instructions and the delegates that it can read become one [`graph`]; [`passes`]
//! make it smaller; [`Target`]s say which calls they take; what none takes stays instructions. The
//! result is a program in the same file format, with a [`Report`] of what runs where and why.
//!
//! It computes nothing but constants, by kernels that it is given, and knows no device: a processor
//! is a [`Target`]. It has no operating system, and wants a heap. Start reading at [`compile()`],
//! then [`graph::Graph`], and [`operators`], the one table of operators.

#![cfg_attr(docsrs, feature(doc_cfg))]
#![no_std]
#![cfg_attr(not(test), warn(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod blob;
mod blocks;
pub mod bounds;
mod budget;
mod bundle;
mod calls;
mod cells;
mod compile;
pub mod cpu;
mod embed;
pub mod emit;
mod error;
mod floating;
pub mod fold;
pub mod front;
pub mod graph;
mod in_place;
pub mod lower;
pub mod method;
mod named;
pub mod operators;
mod package;
mod partition;
pub mod passes;
mod placement;
pub mod plan;
mod processors;
mod read;
mod replan;
mod report;
mod run;
mod split;
mod tables;
mod target;
#[cfg(test)]
mod testing;
mod unplanned;
mod views;
mod work;
mod write;

pub use bundle::{Bundle, bundle};
pub use calls::{CallWork, delegates, work};
pub use compile::{Compiled, compile};
pub use error::Error;
pub use front::CallOrigin;
pub use named::{Constants, Named};
pub use package::Package;
pub use partition::{Part, Region, partition};
pub use processors::Processors;
pub use report::{Estimate, MethodReport, PartReport, Place, PlacedCall, Report};
pub use target::{Packer, Target};
