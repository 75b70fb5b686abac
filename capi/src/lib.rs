//! The C interface of torchlet: a library, and headers for C and C++ in `include/`.
//!
//! It has two parts. The first is the runtime for microcontrollers: handles are in memory of the
//! caller, exact memory requirements are known before anything is reserved, and nothing allocates.
//! Start reading at [`program`], then [`method`], then [`custom`] and [`backend`] for kernels and
//! backends in C. The second is [`module`], with the feature `std`: it loads a file, compiles it
//! for the available processor, and runs it.
//!
//! `torchlet.h` is generated from this crate's sources by cbindgen
//! (`cargo xtask capi --overwrite`): the names here are those of C, and the doc comments are those
//! of the header. The obligations of C code are in the header's first comment (`cbindgen.toml`).
//! Rust programs do not need this crate.
//!
//! # Panics
//!
//! No panic crosses into C. With `std`, each function catches panics and returns
//! `TORCHLET_INTERNAL`. Without `std`, see `panic.rs`. No panic is known that outside data can
//! cause.

#![cfg_attr(docsrs, feature(doc_cfg))]
#![no_std]
#![allow(non_camel_case_types, reason = "C type names")]
#![cfg_attr(
    not(test),
    warn(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)
)]

// On hosts, `std` provides the panic handler, whatever the features.
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
