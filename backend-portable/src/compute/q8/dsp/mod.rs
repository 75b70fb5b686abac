//! The innermost loops in the instructions of Cortex-M's DSP extension: two products of 16 bits at
//! a time.
//!
//! The compiler has no stable names for these instructions, and no stable way to ask for the
//! extension: the build script asks the target's name. Loads and stores through pointers and the
//! instructions are `unsafe` here, and nowhere else in `q8`.
//!
//! Widened codes lie in units of four for each row in turn, and in a unit as the instructions make
//! them of four bytes: the first and third, then the second and fourth.

mod channels;
mod finish;
#[cfg(not(arm_mve))]
mod product;

#[cfg(arm_mve)]
pub(super) use channels::is_inside;
#[cfg(not(arm_mve))]
pub(super) use channels::{TOGETHER, average, keep_larger};
pub(super) use channels::{add, spread};
#[cfg(not(arm_mve))]
pub(super) use finish::{finish_alike, finish_each};
pub(super) use finish::{shift_out, upper};
#[cfg(not(arm_mve))]
pub(super) use product::{sums, widen};

use core::arch::asm;

/// Codes of a unit.
const UNIT: usize = 4;

/// An instruction with two or three operands that are registers, and one result.
macro_rules! instruction {
    ($(#[$doc:meta])* $name:ident, $text:literal, $($operand:ident),+; $($option:ident)?) => {
        $(#[$doc])*
        #[inline(always)]
        fn $name($($operand: u32),+) -> u32 {
            let result: u32;
            // SAFETY: computes with registers alone. Sums set the sticky overflow flag, so they do
            // not promise to preserve flags.
            unsafe {
                asm!($text, result = lateout(reg) result, $($operand = in(reg) $operand),+,
                    options(pure, nomem, nostack $(, $option)?));
            }
            result
        }
    };
}

instruction!(
    /// Bytes 0 and 2, with their signs, as 16 bits each.
    even, "sxtb16 {result}, {word}", word; preserves_flags);
instruction!(
    /// Bytes 1 and 3.
    odd, "sxtb16 {result}, {word}, ror #8", word; preserves_flags);
#[cfg(not(arm_mve))]
instruction!(
    /// Bytes 0 and 2 added to 16 bits each.
    even_plus, "sxtab16 {result}, {added}, {word}", added, word; preserves_flags);
#[cfg(not(arm_mve))]
instruction!(
    /// Bytes 1 and 3 added to 16 bits each.
    odd_plus, "sxtab16 {result}, {added}, {word}, ror #8", added, word; preserves_flags);
#[cfg(not(arm_mve))]
instruction!(
    /// The sum of the products of both halves, and of what there was.
    both, "smlad {result}, {a}, {b}, {sum}", a, b, sum;);
instruction!(
    /// The product of the lower halves, added.
    low, "smlabb {result}, {a}, {b}, {sum}", a, b, sum;);
instruction!(
    /// The product of a lower and an upper half, added.
    low_high, "smlabt {result}, {a}, {b}, {sum}", a, b, sum;);

/// The larger of each of four bytes.
#[cfg(not(arm_mve))]
#[inline(always)]
fn larger(a: u32, b: u32) -> u32 {
    let result: u32;
    // SAFETY: computes with registers alone; the flags that the first instruction sets are read by
    // the second.
    unsafe {
        asm!("ssub8 {result}, {a}, {b}", "sel {result}, {a}, {b}", result = out(reg) result,
            a = in(reg) a, b = in(reg) b, options(pure, nomem, nostack));
    }
    result
}

/// Four bytes at any address.
///
/// # Safety
/// They are valid for reading.
#[inline(always)]
unsafe fn word(at: *const i8) -> u32 {
    // SAFETY: the caller's promise.
    unsafe { at.cast::<u32>().read_unaligned() }
}
