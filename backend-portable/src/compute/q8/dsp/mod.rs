//! Innermost loops with Cortex-M's DSP extension, which multiplies two 16-bit values at a time.
//!
//! The compiler has no stable intrinsics for these instructions, and no stable way to detect the
//! extension: the build script checks the target's name. In `q8`, only this module and the other
//! architecture-specific ones use `unsafe`.
//!
//! Widened rows are interleaved in units of four values. The values of a unit have the order in
//! which the instructions unpack four bytes: first and third, then second and fourth.

mod channels;
mod finish;
#[cfg(not(arm_mve))]
mod gemm;

#[cfg(arm_mve)]
pub(super) use channels::is_inside;
#[cfg(not(arm_mve))]
pub(super) use channels::{TOGETHER, average, max_in_place};
pub(super) use channels::{add, spread};
#[cfg(not(arm_mve))]
pub(super) use finish::{requantize_per_channel, requantize_uniform};
pub(super) use finish::{rounding_shift_add, smmulr};
#[cfg(not(arm_mve))]
pub(super) use gemm::{sums, widen};

use core::arch::asm;

/// Number of values of a unit.
const UNIT: usize = 4;

/// Wraps an instruction with one to three register operands and one result.
macro_rules! instruction {
    ($(#[$doc:meta])* $name:ident, $text:literal, $($operand:ident),+; $($option:ident)?) => {
        $(#[$doc])*
        #[inline(always)]
        fn $name($($operand: u32),+) -> u32 {
            let result: u32;
            // SAFETY: accesses only registers. Accumulating instructions set the sticky overflow
            // flag, so they do not promise to preserve flags.
            unsafe {
                asm!($text, result = lateout(reg) result, $($operand = in(reg) $operand),+,
                    options(pure, nomem, nostack $(, $option)?));
            }
            result
        }
    };
}

instruction!(
    /// Sign-extends bytes 0 and 2 to 16 bits.
    even, "sxtb16 {result}, {word}", word; preserves_flags);
instruction!(
    /// Sign-extends bytes 1 and 3 to 16 bits.
    odd, "sxtb16 {result}, {word}, ror #8", word; preserves_flags);
#[cfg(not(arm_mve))]
instruction!(
    /// Sign-extends bytes 0 and 2 and adds them to 16-bit lanes.
    even_plus, "sxtab16 {result}, {added}, {word}", added, word; preserves_flags);
#[cfg(not(arm_mve))]
instruction!(
    /// Sign-extends bytes 1 and 3 and adds them to 16-bit lanes.
    odd_plus, "sxtab16 {result}, {added}, {word}, ror #8", added, word; preserves_flags);
#[cfg(not(arm_mve))]
instruction!(
    /// Adds the products of both 16-bit halves to `sum`.
    both, "smlad {result}, {a}, {b}, {sum}", a, b, sum;);
instruction!(
    /// Adds the product of the lower halves to `sum`.
    low, "smlabb {result}, {a}, {b}, {sum}", a, b, sum;);
instruction!(
    /// Adds the product of the lower half of `a` and the upper half of `b` to `sum`.
    low_high, "smlabt {result}, {a}, {b}, {sum}", a, b, sum;);

/// Element-wise maximum of four bytes.
#[cfg(not(arm_mve))]
#[inline(always)]
fn larger(a: u32, b: u32) -> u32 {
    let result: u32;
    // SAFETY: accesses only registers; the second instruction reads the flags of the first.
    unsafe {
        asm!("ssub8 {result}, {a}, {b}", "sel {result}, {a}, {b}", result = out(reg) result,
            a = in(reg) a, b = in(reg) b, options(pure, nomem, nostack));
    }
    result
}

/// Loads four bytes from any address.
///
/// # Safety
/// They are valid for reading.
#[inline(always)]
unsafe fn word(at: *const i8) -> u32 {
    // SAFETY: guaranteed by the caller.
    unsafe { at.cast::<u32>().read_unaligned() }
}
