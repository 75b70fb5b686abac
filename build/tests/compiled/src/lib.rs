//! Programs that the build script compiles for a microcontroller; `tests/same_results.rs` runs them
//! on the host.

#![no_std]
