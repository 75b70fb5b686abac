//! The graph compiler: translates exported programs, lowered for any backend, into programs for the
//! available processors.
//!
//! The compiler merges the instructions of a method and its readable delegates into a [`graph`].
//! [`passes`] simplify it. A partitioner assigns each call to a [`Target`] that accepts it; the
//! remaining calls stay kernel instructions. The result is a program in the same file format
//! (`.pte`) and a [`Report`] of where each call runs and why.
//!
//! The compiler evaluates constant expressions only, with kernels of a given registry, and knows
//! processors only through the [`Target`] trait. It needs a heap but no operating system. Start
//! with [`compile()`], [`graph::Graph`] and [`operators`], the operator table.

#![cfg_attr(docsrs, feature(doc_cfg))]
#![forbid(unsafe_code)]
#![no_std]
#![cfg_attr(not(test), warn(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

extern crate alloc;
#[cfg(any(test, feature = "std"))]
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
#[cfg(feature = "std")]
pub mod device;
mod embed;
pub mod emit;
mod error;
mod floating;
pub mod fold;
pub mod front;
pub mod graph;
pub mod import;
mod in_place;
#[cfg(feature = "lazy")]
pub mod infer;
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
pub mod sequences;
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
pub use report::{CallReport, Estimate, Location, MethodReport, PartReport, Report};
pub use target::{FusedForms, Packer, Target};
