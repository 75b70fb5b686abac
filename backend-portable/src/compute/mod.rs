//! Numeric primitives of the kernels: functions over slices, independent of tensors, programs and
//! operators.
//!
//! - [`simd`]: the vector abstraction, and [`simd::Tier`], the instruction set to use.
//! - [`gemm`]: matrix multiplication.
//! - [`conv`]: convolutions, one to three dims.
//! - [`split`]: parallel loops; [`threads`]: a thread pool for them (with `std`).
//! - [`functions`]: element-wise operations; [`rows`]: reductions and normalisations; [`math`]:
//!   elementary functions on vectors.
//! - `strided`: dot products with strided vectors, and weighted sums of them.
//! - [`pool`]: pooling windows, channels last.
//! - `int8`: matrix multiplication and convolution of int8 values with `f32` scales, as in PyTorch
//!   and XNNPACK.
//! - [`q8`]: int8 networks in pure integer arithmetic, as in CMSIS-NN.
//! - [`storage`]: `f16` and `bf16` storage.
//!
//! The caller passes the instruction set and the threads ([`gemm::Context`]), and all memory. A
//! computation that needs workspace has a function that returns its size; most also run with a
//! smaller workspace.

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
pub(crate) mod strided;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(feature = "std")]
pub mod threads;
