//! Depthwise and pooling loops over the taps of windows, with channels side by side.

use super::{UNIT, even, low, low_high, odd, word};
#[cfg(not(arm_mve))]
use super::{even_plus, larger, odd_plus};
use crate::compute::q8::depthwise::Covered;
#[cfg(not(arm_mve))]
use crate::compute::q8::pool::rounded_average;
use core::arch::asm;

/// Whether all taps, and `reach` values from each tap on, lie in a slice of this length. True
/// without taps.
pub(in crate::compute::q8) fn is_inside(
    len: usize,
    offsets: [usize; 3],
    covered: &Covered,
    reach: usize,
) -> bool {
    if covered.rows == 0 || covered.columns == 0 {
        return true;
    }
    let [first, down, across] = offsets;
    let last = down.checked_mul(covered.rows - 1).and_then(|rows| {
        rows.checked_add(across.checked_mul(covered.columns - 1)?)?.checked_add(first)
    });
    last.and_then(|last| last.checked_add(reach)).is_some_and(|end| end <= len)
}

/// Calls `tap(quantized, weight)` with the addresses of each tap.
#[inline(always)]
fn for_each_tap(
    covered: &Covered,
    quantized: *const i8,
    weights: *const i8,
    mut tap: impl FnMut(*const i8, *const i8),
) {
    let ([_, input_down, input_across], [_, weights_down, weights_across]) =
        (covered.input, covered.weights);
    let (mut quantized, mut weights) = (quantized, weights);
    for _ in 0..covered.rows {
        let (mut code, mut weight) = (quantized, weights);
        for _ in 0..covered.columns {
            tap(code, weight);
            code = code.wrapping_add(input_across);
            weight = weight.wrapping_add(weights_across);
        }
        quantized = quantized.wrapping_add(input_down);
        weights = weights.wrapping_add(weights_down);
    }
}

/// Assembly that adds the products of four channels at a tap.
macro_rules! tap {
    ($place:literal) => {
        concat!(
            "ldr {t}, [{quantized}",
            $place,
            "]
         ldr {u}, [{weights}",
            $place,
            "]
         sxtab16 {v}, {added}, {t}
         sxtb16 {w}, {u}
         sxtab16 {t}, {added}, {t}, ror #8
         sxtb16 {u}, {u}, ror #8
         smlabb {a}, {v}, {w}, {a}
         smlatt {c}, {v}, {w}, {c}
         smlabb {b}, {t}, {u}, {b}
         smlatt {d}, {t}, {u}, {d}\n"
        )
    };
}

/// Adds the products of channels with their weights.
pub(in crate::compute::q8) fn add(
    input: &[i8],
    weights: &[i8],
    covered: Covered,
    offset: i16,
    sums: &mut [i32],
) {
    assert!(is_inside(input.len(), covered.input, &covered, sums.len()));
    assert!(is_inside(weights.len(), covered.weights, &covered, sums.len()));
    let added = u32::from(offset as u16) * 0x1_0001;
    let mut code = input.as_ptr().wrapping_add(covered.input[0]);
    let mut weight = weights.as_ptr().wrapping_add(covered.weights[0]);
    let (fours, rest) = sums.as_chunks_mut::<UNIT>();
    let step = covered.input[2];
    for [a, b, c, d] in fours {
        if covered.columns == 3 && step == covered.weights[2] {
            let (mut quantized, mut weights) = (code, weight);
            for _ in 0..covered.rows {
                // SAFETY: three neighbouring taps, each with as many values as sums, lie in the
                // slices, as asserted.
                unsafe {
                    asm!(
                        concat!(tap!(""), tap!(", {step}"), tap!(", {step}, lsl #1")),
                        a = inout(reg) *a, b = inout(reg) *b, c = inout(reg) *c, d = inout(reg) *d,
                        quantized = in(reg) quantized, weights = in(reg) weights,
                        step = in(reg) step,
                        added = in(reg) added, t = out(reg) _, u = out(reg) _, v = out(reg) _,
                        w = out(reg) _, options(nostack, readonly),
                    );
                }
                quantized = quantized.wrapping_add(covered.input[1]);
                weights = weights.wrapping_add(covered.weights[1]);
            }
        } else {
            for_each_tap(&covered, code, weight, |quantized, weights| {
                // SAFETY: as above, for one tap.
                unsafe {
                    asm!(
                        tap!(""), a = inout(reg) *a, b = inout(reg) *b, c = inout(reg) *c,
                        d = inout(reg) *d, quantized = in(reg) quantized, weights = in(reg) weights,
                        added = in(reg) added, t = out(reg) _, u = out(reg) _, v = out(reg) _,
                        w = out(reg) _, options(nostack, readonly),
                    );
                }
            });
        }
        (code, weight) = (code.wrapping_add(UNIT), weight.wrapping_add(UNIT));
    }
    for sum in rest {
        for_each_tap(&covered, code, weight, |code, weight| {
            // SAFETY: as above.
            let (code, weight) = unsafe { (*code, *weight) };
            *sum = sum.wrapping_add((i32::from(code) + i32::from(offset)) * i32::from(weight));
        });
        (code, weight) = (code.wrapping_add(1), weight.wrapping_add(1));
    }
}

/// Adds the products of one input channel with the weights of several output channels.
pub(in crate::compute::q8) fn spread(
    input: &[i8],
    weights: &[i8],
    covered: Covered,
    offset: i16,
    sums: &mut [i32],
) {
    assert!(is_inside(input.len(), covered.input, &covered, 1));
    assert!(is_inside(weights.len(), covered.weights, &covered, sums.len()));
    let code = input.as_ptr().wrapping_add(covered.input[0]);
    let mut weight = weights.as_ptr().wrapping_add(covered.weights[0]);
    // All callers pass multiples of four.
    for sums in sums.as_chunks_mut::<UNIT>().0 {
        let mut four = sums.map(|sum| sum as u32);
        for_each_tap(&covered, code, weight, |code, weight| {
            // SAFETY: each tap lies in the input, and in the weights as many values follow it as
            // sums, as asserted.
            let (code, weights) = unsafe { (*code, word(weight)) };
            let code = (i32::from(code) + i32::from(offset)) as u32;
            let (evens, odds) = (even(weights), odd(weights));
            four[0] = low(code, evens, four[0]);
            four[1] = low(code, odds, four[1]);
            four[2] = low_high(code, evens, four[2]);
            four[3] = low_high(code, odds, four[3]);
        });
        *sums = four.map(|sum| sum as i32);
        weight = weight.wrapping_add(UNIT);
    }
}

/// Number of channels that one call of [`average`] computes.
#[cfg(not(arm_mve))]
pub(in crate::compute::q8) const TOGETHER: usize = UNIT;

/// Element-wise maximum, for the longest common prefix whose length is a multiple of four. Returns
/// that length.
#[cfg(not(arm_mve))]
pub(in crate::compute::q8) fn max_in_place(quantized: &[i8], largest: &mut [i8]) -> usize {
    let (quantized, largest) = (quantized.as_chunks::<UNIT>().0, largest.as_chunks_mut::<UNIT>().0);
    for (largest, quantized) in largest.iter_mut().zip(quantized) {
        let [a, b] =
            [*quantized, *largest].map(|four| u32::from_le_bytes(four.map(|code| code as u8)));
        *largest = larger(a, b).to_le_bytes().map(|code| code as i8);
    }
    largest.len().min(quantized.len()) * UNIT
}

/// Averages four channels over `count` taps. The sums of fewer than 256 values fit 16 bits.
#[cfg(not(arm_mve))]
pub(in crate::compute::q8) fn average(
    input: &[i8],
    covered: Covered,
    count: u8,
    out: &mut [i8; TOGETHER],
) {
    assert!(is_inside(input.len(), covered.input, &covered, UNIT));
    let quantized = input.as_ptr().wrapping_add(covered.input[0]);
    let (mut evens, mut odds) = (0, 0);
    for_each_tap(&covered, quantized, quantized, |quantized, _| {
        // SAFETY: each tap and the three values after it lie in the input, as asserted.
        let word = unsafe { word(quantized) };
        (evens, odds) = (even_plus(evens, word), odd_plus(odds, word));
    });
    let low = |pair: u32| i32::from(pair as i16);
    let sums = [low(evens), low(odds), low(evens >> 16), low(odds >> 16)];
    *out = sums.map(|sum| rounded_average(sum, count.into()));
}
