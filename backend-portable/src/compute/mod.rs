//! The numeric engine beneath the kernels: functions over slices that know nothing of tensors,
//! programs or operators.
//!
//! - [`simd`]: the vector abstraction, and [`simd::Tier`], the instruction set to use.
//! - [`gemm`]: products of matrices.
//! - [`conv`]: convolutions, one to three dimensions.
//! - [`split`]: dealing work out to threads; [`threads`]: a pool of them (with `std`).
//! - [`functions`]: element by element; [`rows`]: reductions and normalisations; [`math`]: their
//!   functions.
//! - `apart`: products with vectors that lie apart, and mixtures of them.
//! - [`pool`]: windows of pooling, channels last.
//! - `int8`: products and convolutions of 8-bit codes with scales in `f32`, as PyTorch and XNNPACK
//!   have them.
//! - [`q8`]: networks of 8-bit codes, in integers, as CMSIS-NN has them.
//! - [`storage`]: half and bfloat16.
//!
//! The instruction set and the threads are arguments ([`gemm::Context`]), and so is all memory:
//! each computation that wants workspace has a function that says how much, and does with less what
//! can be done with less.

pub(crate) mod apart;
pub mod conv;
pub mod functions;
pub mod gemm;
#[cfg(feature = "engine")]
pub(crate) mod int8;
pub mod math;
pub mod pool;
pub mod q8;
pub mod rows;
pub mod simd;
pub mod split;
pub mod storage;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(feature = "std")]
pub mod threads;
