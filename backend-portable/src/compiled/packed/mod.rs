//! int8 layers whose weights and parameters the build packs for Cortex-M's DSP extension, in the
//! order in which the innermost loops read them.
//!
//! - A convolution computes [`ROWS`] output pixels with two output channels at a time: it widens
//!   the windows of the pixels to 16 bits and multiplies two values at once ([`wide_position`],
//!   [`weight_position`]).
//! - A linear layer of one row computes four output features at a time.
//! - A depthwise convolution copies one channel at a time to a padded image of 16-bit values, and
//!   multiplies two neighbours at once.
//!
//! All requantize sums in registers. [`Channel`] has the parameters, and [`Channel::new`] the
//! conditions. The loops are assembly in `dsp.rs` on Armv7E-M, and plain Rust in `plain.rs` on
//! other processors and in tests.

mod add;
mod convolve;
mod depthwise;
#[cfg(armv7em)]
mod dsp;
mod linear;
#[cfg(not(armv7em))]
mod plain;

pub use add::{AddPacked, HEADROOM};
pub use convolve::ConvolvePacked;
pub use depthwise::{DepthwisePacked, KERNEL};
pub use linear::LinearPacked;

#[cfg(armv7em)]
use dsp as kernels;
#[cfg(not(armv7em))]
use plain as kernels;

use super::{Span, elements, int8, int8_mut, parts};

/// Output pixels that a convolution computes together.
pub(super) const ROWS: usize = 3;

/// Number of values of a unit; the depth of rows is padded to a multiple.
pub(super) const UNIT: usize = 4;

/// Number of 32-bit words of the parameters of a channel.
pub const CHANNEL_WORDS: usize = 3;

/// Parameters of the requantization of a channel, for results between -128 and 127.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Channel {
    /// Added to the sum.
    pub bias: i32,
    /// Multiplier with 31 fractional bits.
    pub multiplier: i32,
    /// Bits of the right shift after the multiplication, minus one.
    pub shift: i32,
}

impl Channel {
    /// Parameters for sums whose magnitude without bias is less than `limit`. `shift` is the left
    /// shift of the scale. Returns `None` if the short sequence of the kernels is not exact: it
    /// requires a positive multiplier, a shift to the right, and that nothing overflows.
    pub fn new(bias: i64, multiplier: i32, shift: i32, limit: i64) -> Option<Self> {
        let is_exact = multiplier >= 0
            && (-1 - MAX_SHIFT..=-1).contains(&shift)
            && bias.abs().saturating_add(limit) < 1 << 30;
        let bias = i32::try_from(bias).ok()?;
        is_exact.then_some(Channel { bias, multiplier, shift: !shift })
    }

    /// Its words, in the order of the kernels.
    pub fn words(self) -> [i32; CHANNEL_WORDS] {
        [self.bias, self.multiplier, self.shift]
    }
}

/// Largest shift of [`Channel`]: the rounding term and the offset of the results, shifted to the
/// left, fit 30 bits.
const MAX_SHIFT: i32 = 20;

/// The offset of results in the form that kernels add before the right shift: with the rounding
/// term of a half.
fn rounding(zero: i32) -> i32 {
    2 * zero + 1
}

/// Position of a weight in packed weights, of rows of `depth` values padded to whole units.
///
/// A word has two values of two channels. Sign extension of its even bytes gives those of the first
/// channel, of its odd bytes those of the second.
pub fn weight_position(depth: usize, channel: usize, value: usize) -> usize {
    let word = (channel / 2 * depth.div_ceil(UNIT) + value / UNIT) * 2 + value % 2;
    word * 4 + channel % 2 + value % UNIT / 2 * 2
}

/// Number of bytes of packed weights for an even number of channels.
pub fn weights_len(depth: usize, channels: usize) -> Option<usize> {
    depth.checked_next_multiple_of(UNIT)?.checked_mul(channels)
}

/// Position of a value in `rows` widened rows. Words have two values of a row.
#[cfg(not(armv7em))]
fn wide_position(rows: usize, row: usize, value: usize) -> usize {
    ((value / UNIT * 2 + value % 2) * rows + row) * 2 + value % UNIT / 2
}

/// A block of values to widen.
#[derive(Debug, Clone, Copy)]
struct Block {
    /// Rows of the block, units of a row, and values from one row to the next.
    rows: usize,
    units: usize,
    step: usize,
    /// The first widened row to write.
    row: usize,
    /// Whether each row of the block is written to the next widened row, and not to the same one,
    /// one behind the other.
    goes_down: bool,
}

/// Input and output of a call: the same memory if it runs in place.
enum Images<'a> {
    Apart(&'a [i8], &'a mut [i8]),
    InPlace(&'a mut [i8]),
}

impl<'a> Images<'a> {
    /// Splits images and workspace off the memory.
    #[inline(always)]
    fn new(
        memory: &'a mut [u8],
        [input, out, workspace]: [Span; 3],
    ) -> Option<(Self, &'a mut [i16])> {
        if input == out {
            let [image, workspace] = parts(memory, [input, workspace])?;
            return Some((Images::InPlace(int8_mut(image)), elements(workspace)));
        }
        let [input, out, workspace] = parts(memory, [input, out, workspace])?;
        Some((Images::Apart(int8(input), int8_mut(out)), elements(workspace)))
    }

    #[inline(always)]
    fn input(&self) -> &[i8] {
        match self {
            Images::Apart(input, _) => input,
            Images::InPlace(image) => image,
        }
    }

    #[inline(always)]
    fn out(&mut self) -> &mut [i8] {
        match self {
            Images::Apart(_, out) => out,
            Images::InPlace(image) => image,
        }
    }
}
