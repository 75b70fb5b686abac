//! Calls of compiled firmware programs.
//!
//! For a compiled program, `torchlet-build` writes a static of one of these types for each call,
//! with everything that is known when the firmware is built, and a function that runs them in
//! order. The arithmetic is that of the kernels, so results are bit-identical to those of the
//! interpreter.
//!
//! All values are [`Span`]s of one activation memory, which the build plans. A call does nothing if
//! its spans are not disjoint parts of that memory, or misaligned; the build never writes such
//! calls.
//!
//! Calls run on one thread with the scalar tier, for which the build computes workspaces.

mod elementwise;
mod float;
mod packed;
mod quantized;

pub use elementwise::{Add, Dequantize, Pad, Permute, Quantize, Softmax};
pub use float::{ConvParams, ConvolveFloat, Layout, LinearFloat, MaxPoolFloat, Relu, SumOrder};
pub use packed::{
    AddPacked, CHANNEL_WORDS, Channel, ConvolvePacked, DepthwisePacked, HEADROOM, KERNEL,
    LinearPacked, weight_position, weights_len,
};
pub use quantized::{AveragePool, Convolve, ConvolveDepthwise, Linear, MaxPool};

pub use crate::compute::q8::convolve::{Convolution, Extent};
pub use crate::compute::q8::depthwise::Depthwise;
pub use crate::compute::q8::elementwise::Sum;
pub use crate::compute::q8::softmax::Softmax as SoftmaxRow;
pub use crate::compute::q8::{Results, Scale};
pub use torchlet_core::rules::window::Window;

use crate::compute::simd::Tier;

/// Tier of all calls.
const TIER: Tier = Tier::SCALAR;

/// Part of the activation memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    start: usize,
    len: usize,
}

impl Span {
    /// No memory.
    pub const EMPTY: Self = Span { start: 0, len: 0 };

    /// `len` bytes from an offset on.
    pub const fn new(start: usize, len: usize) -> Self {
        Span { start, len }
    }

    /// Its bytes; empty if it exceeds the memory.
    pub fn of(self, memory: &[u8]) -> &[u8] {
        memory.get(self.start..).and_then(|rest| rest.get(..self.len)).unwrap_or(&[])
    }

    /// Its bytes, for writing; empty if it exceeds the memory.
    pub fn of_mut(self, memory: &mut [u8]) -> &mut [u8] {
        let rest = memory.get_mut(self.start..).unwrap_or_default();
        rest.get_mut(..self.len).unwrap_or_default()
    }
}

/// Splits disjoint spans off the memory.
#[inline(always)]
fn parts<const N: usize>(memory: &mut [u8], spans: [Span; N]) -> Option<[&mut [u8]; N]> {
    let ranges = spans.map(|span| span.start..span.start.saturating_add(span.len));
    memory.get_disjoint_mut(ranges).ok()
}

/// Memory as elements; empty if it is misaligned.
fn elements<T: bytemuck::Pod>(bytes: &mut [u8]) -> &mut [T] {
    bytemuck::try_cast_slice_mut(bytes).unwrap_or_default()
}

/// Memory as int8 values.
fn int8(bytes: &[u8]) -> &[i8] {
    bytemuck::cast_slice(bytes)
}

/// Memory as int8 values, for writing.
fn int8_mut(bytes: &mut [u8]) -> &mut [i8] {
    bytemuck::cast_slice_mut(bytes)
}

/// Copies an input of the method into the memory.
pub fn copy<T: bytemuck::Pod>(values: &[T], to: Span, memory: &mut [u8]) {
    let (to, bytes) = (to.of_mut(memory), bytemuck::cast_slice::<T, u8>(values));
    if to.len() == bytes.len() {
        to.copy_from_slice(bytes);
    }
}

/// A constant of the program, for statics: `len` bytes of its data from an offset on.
///
/// # Panics
/// If the data is shorter: in a static, the compiler reports it.
pub const fn constant(data: &'static [u8], start: usize, len: usize) -> &'static [u8] {
    data.split_at(start).1.split_at(len).0
}

/// A window, for statics.
///
/// # Panics
/// If it is invalid ([`Window::new`]): in a static, the compiler reports it.
pub const fn window(kernel: i64, stride: i64, padding: i64, dilation: i64) -> Window {
    match Window::new(kernel, stride, padding, dilation) {
        Some(window) => window,
        None => panic!("the window is out of range"),
    }
}

/// A scale, for statics.
///
/// # Panics
/// If it is invalid ([`Scale::new`]): in a static, the compiler reports it.
pub const fn scale(multiplier: i64, shift: i64) -> Scale {
    match Scale::new(multiplier, shift) {
        Some(scale) => scale,
        None => panic!("the multiplier or the shift is out of range"),
    }
}

/// Requantization with a scale for each channel, for statics.
///
/// # Panics
/// If it is invalid ([`Results::per_channel`]): in a static, the compiler reports it.
pub const fn per_channel(
    multipliers: &'static [i32],
    shifts: &'static [i32],
    bias: &'static [i32],
    offset: i32,
    bounds: (i32, i32),
) -> Results<'static> {
    match Results::per_channel(multipliers, shifts, bias, offset, bounds) {
        Some(results) => results,
        None => panic!("a multiplier or a shift is out of range"),
    }
}
