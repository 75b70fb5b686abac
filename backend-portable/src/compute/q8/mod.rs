//! Networks of 8-bit codes in integers, as CMSIS-NN computes them, bit for bit.
//!
//! A code stands for `(code - zero point) * scale`. Products are summed up in 32 bits, which wrap;
//! a sum becomes a code by a [`Scale`], an offset and bounds ([`Results`]). Pictures are channels
//! last.
//!
//! - [`product`]: rows of codes by rows of weights; [`convolve`]: convolutions as such products, of
//!   patches of the input.
//! - [`depthwise`]: convolutions of each channel for itself. [`pool`]: windows. [`elementwise`]:
//!   sums and products. [`softmax`].
//!
//! The loops are plain Rust. On hosts they are compiled for each [`Tier`], and so that they become
//! vectors, but for sums and scales on x86-64, which are made of its instructions (`x86.rs`); on
//! Cortex-M with the DSP extension the innermost are made of its instructions (`dsp/`), or of
//! vector instructions where there are (`mve/`), which the build script recognises by the names of
//! target and processor. All give the same codes.

pub mod convolve;
pub mod depthwise;
#[cfg(arm_dsp)]
mod dsp;
pub mod elementwise;
#[cfg(arm_mve)]
mod mve;
pub mod pool;
pub mod product;
mod requantize;
pub mod softmax;
#[cfg(test)]
mod tests;
#[cfg(target_arch = "x86_64")]
mod x86;

pub use requantize::{Results, Scale};

use super::simd::{Simd, Tier, Vectorized};
use torchlet_core::rules::window::{Taps, Window};

/// Channels that are summed up before they become codes: their sums are on the stack.
const CHANNELS: usize = if cfg!(any(target_arch = "x86_64", target_arch = "aarch64")) {
    64
} else if cfg!(arm_mve) {
    32
} else {
    16
};

/// Runs a loop compiled for a tier's instructions.
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

/// Whether inputs with this offset fit where the fast loops have them: codes are added to it in 16
/// bits, and its negation is a code, which stands for zero.
fn is_usual(offset: i32) -> bool {
    (-127..=128).contains(&offset)
}

/// The taps of window `at` that are inside an input of this size.
#[inline(always)]
fn taps(window: &Window, at: usize, input: usize) -> Taps {
    if window.dilation() != 1 {
        return window.taps(at, input);
    }
    // As there, but without division, and in words of the processor.
    let origin = at.saturating_mul(window.stride());
    let first = window.padding().saturating_sub(origin);
    let start = origin.saturating_add(first) - window.padding();
    if start >= input || first >= window.kernel() {
        return Taps::default();
    }
    Taps { first, count: (window.kernel() - first).min(input - start), start }
}
