//! int8 networks in pure integer arithmetic, bit-exact with CMSIS-NN.
//!
//! A quantized value `q` represents `(q - zero point) * scale`. Products are accumulated in 32
//! bits, which wrap. A [`Scale`], an offset and bounds ([`Results`]) requantize a sum. Images are
//! channels last.
//!
//! - [`gemm`]: GEMM of int8 rows with rows of weights; [`convolve`]: convolution as im2col and
//!   GEMM.
//! - [`depthwise`]: depthwise convolution. [`pool`]: pooling. [`elementwise`]: addition and
//!   multiplication. [`softmax`].
//!
//! The loops are plain Rust, written for auto-vectorisation and compiled for each [`Tier`].
//! Exceptions are the dot products and requantization on x86-64, which use intrinsics (`x86.rs`),
//! and the innermost loops on Cortex-M with the DSP extension (`dsp/`) or with MVE (`mve/`). The
//! build script recognises the latter by the names of target and processor. All variants give the
//! same results.

pub mod convolve;
pub mod depthwise;
#[cfg(arm_dsp)]
mod dsp;
pub mod elementwise;
pub mod gemm;
#[cfg(arm_mve)]
mod mve;
pub mod pool;
mod requantize;
pub mod softmax;
#[cfg(test)]
mod tests;
#[cfg(target_arch = "x86_64")]
mod x86;

pub use requantize::{Results, Scale};

use super::simd::{Simd, Tier, Vectorized};
use torchlet_core::rules::window::{Taps, Window};

/// Channels whose sums are buffered on the stack before requantization.
const CHANNELS: usize = if cfg!(any(target_arch = "x86_64", target_arch = "aarch64")) {
    64
} else if cfg!(arm_mve) {
    32
} else {
    16
};

/// Runs a loop compiled for a tier's instruction set.
#[inline(always)]
fn vectorized<O>(tier: Tier, run: impl FnOnce() -> O) -> O {
    struct Closure<F>(F);
    impl<O, F: FnOnce() -> O> Vectorized for Closure<F> {
        type Output = O;
        #[inline(always)]
        fn run<S: Simd>(self, _: S) -> O {
            (self.0)()
        }
    }
    tier.dispatch(Closure(run))
}

/// Whether the fast loops support this input offset. Values plus offset must fit their 16-bit
/// format, and the negated offset, which represents zero, must be an int8 value.
fn is_fast_offset(offset: i32) -> bool {
    (-127..=128).contains(&offset)
}

/// The taps of window `at` that are inside an input of this size.
#[inline(always)]
pub(crate) fn taps(window: &Window, at: usize, input: usize) -> Taps {
    if window.dilation() != 1 {
        return window.taps(at, input);
    }
    // Equivalent to `Window::taps`, but without division, and in machine words.
    let origin = at.saturating_mul(window.stride());
    let first = window.padding().saturating_sub(origin);
    let start = origin.saturating_add(first) - window.padding();
    if start >= input || first >= window.kernel() {
        return Taps::default();
    }
    Taps { first, count: (window.kernel() - first).min(input - start), start }
}
