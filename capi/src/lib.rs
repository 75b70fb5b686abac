//! The C interface of torchlet: a library, and headers for C and C++ in `include/`.
//!
//! There are two parts. The first is the runtime as it is on microcontrollers: handles lie in
//! memory of the caller, who is told to the byte what a method needs before anything is reserved,
//! and nothing allocates. Start reading at [`program`], go on to [`method`], then to [`custom`] and
//! [`backend`], what C programs bring themselves. The second is [`module`], with the feature `std`:
//! the facade, which opens a file and runs it, compiled for the processor that it finds.
//!
//! `torchlet.h` is made from this crate's sources by cbindgen (`cargo xtask capi --overwrite`): the
//! names here are those of C, and the comments are those of the header. What C owes is in the
//! header's first comment (`cbindgen.toml`). Rust programs have no use for this crate.
//!
//! # Panics
//!
//! No panic crosses into C. With `std`, each function catches it and returns `TORCHLET_INTERNAL`.
//! Without, `panic.rs` says what happens. None is known that outside data can cause.

#![cfg_attr(docsrs, feature(doc_cfg))]
#![no_std]
#![allow(non_camel_case_types, reason = "the names are those of C")]
#![cfg_attr(
    not(test),
    warn(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)
)]

// On hosts its panic handler is used, whatever the features.
#[cfg(any(test, feature = "std", not(target_os = "none")))]
extern crate std;

pub mod backend;
pub mod bundle;
pub mod call;
pub mod custom;
pub mod data;
mod fault;
mod handle;
pub mod kernels;
pub mod loader;
#[cfg(feature = "log")]
pub mod log;
pub mod meta;
pub mod method;
#[cfg(feature = "std")]
pub mod module;
pub mod options;
#[cfg(all(target_os = "none", not(feature = "std")))]
pub mod panic;
mod pointer;
pub mod program;
#[cfg(feature = "std")]
pub mod recorder;
pub mod registry;
pub mod status;
pub mod tensor;
pub mod tracer;
pub mod values;

#[cfg(test)]
mod tests;
