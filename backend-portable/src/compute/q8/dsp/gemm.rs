//! Widening of rows, and their dot products with rows of weights.

use super::{UNIT, both, even, even_plus, odd, odd_plus};
use crate::compute::q8::CHANNELS;
use core::arch::asm;

/// Packs the last one to three values into a word, padded with `fill`.
#[inline(always)]
fn last(quantized: &[i8], fill: i8) -> u32 {
    let byte = |at| quantized.get(at).copied().unwrap_or(fill) as u8;
    u32::from_le_bytes([byte(0), byte(1), byte(2), byte(3)])
}

/// Widens row `row` of `R` interleaved rows to 16 bits, with its offset added, padded with zeros.
#[inline(always)]
pub(in crate::compute::q8) fn widen<const R: usize>(
    quantized: &[i8],
    offset: i16,
    row: usize,
    wide: &mut [i16],
) {
    widen_one_of(quantized, offset, R, row, wide);
}

fn widen_one_of(quantized: &[i8], offset: i16, rows: usize, row: usize, wide: &mut [i16]) {
    let units = quantized.len().div_ceil(UNIT);
    let mut to = wide.as_mut_ptr().wrapping_add(row * UNIT).cast::<u32>();
    assert!(to.is_aligned() && wide.len() >= units * rows * UNIT && row < rows);
    let added = u32::from(offset as u16) * 0x1_0001;
    let mut put = |word: u32| {
        // SAFETY: `units` calls each write the unit of this row in the next `rows` units of `wide`,
        // which has `units * rows` units and is aligned, as asserted.
        unsafe {
            to.write(even_plus(added, word));
            to.add(1).write(odd_plus(added, word));
        }
        to = to.wrapping_add(rows * UNIT / 2);
    };
    let (full, rest) = quantized.as_chunks::<UNIT>();
    for quantized in full {
        put(u32::from_le_bytes(quantized.map(|code| code as u8)));
    }
    if !rest.is_empty() {
        // The padding is the negated offset, which becomes zero when the offset is added.
        put(last(rest, offset.wrapping_neg() as i8));
    }
}

/// Dot products of `R` rows with `count` rows of weights, of a depth below 2^18.
#[inline(never)]
pub(in crate::compute::q8) fn sums<const R: usize>(
    wide: &[i16],
    weights: &[i8],
    depth: usize,
    count: usize,
    sums: &mut [[i32; CHANNELS]; R],
) {
    let from = wide.as_ptr().cast::<u32>();
    assert!(from.is_aligned() && wide.len() >= depth.next_multiple_of(UNIT) * R);
    assert!(weights.len() >= depth * count && count <= CHANNELS && depth < 1 << 18);
    let mut at = weights.as_ptr();
    let mut done = 0;
    match sums.as_mut_slice() {
        [one] => {
            for four in one[..count].as_chunks_mut::<4>().0 {
                // SAFETY: four rows of weights and one row of units follow, as asserted.
                *four = unsafe { one_by_four(from, at, depth) };
                at = at.wrapping_add(4 * depth);
                done += 4;
            }
        }
        [one, other] => {
            let others = other[..count].as_chunks_mut::<2>().0;
            for (one, other) in one[..count].as_chunks_mut::<2>().0.iter_mut().zip(others) {
                // SAFETY: two rows of weights and two rows of units follow, as asserted.
                [*one, *other] = unsafe { two_by_two(from, at, depth) };
                at = at.wrapping_add(2 * depth);
                done += 2;
            }
        }
        _ => {}
    }
    for channel in done..count {
        for (row, sums) in sums.iter_mut().enumerate() {
            // SAFETY: one row of weights and `R` rows of units follow, as asserted.
            sums[channel] = unsafe { one_by_one(from, at, depth, [row, R]) };
        }
        at = at.wrapping_add(depth);
    }
}

/// The last values of a row of weights, padded with zeros to four. The padding of widened rows is
/// zero, too.
///
/// # Safety
/// `weights` is valid for reading `count` values; `count` is at most three.
#[inline(always)]
unsafe fn rest(weights: *const i8, count: usize) -> u32 {
    let byte = |at| {
        // SAFETY: guaranteed by the caller.
        if at < count { unsafe { weights.add(at).read() as u8 } } else { 0 }
    };
    u32::from_le_bytes([byte(0), byte(1), byte(2), 0])
}

/// Dot products of two rows with two rows of weights.
///
/// # Safety
/// `wide` is aligned and valid for reading two rows of units of this depth; `weights` is valid for
/// reading two rows of this depth.
#[inline(always)]
unsafe fn two_by_two(wide: *const u32, weights: *const i8, depth: usize) -> [[i32; 2]; 2] {
    let (mut a0, mut a1, mut b0, mut b1) = (0u32, 0u32, 0u32, 0u32);
    let (mut wide, mut first) = (wide, weights);
    let mut second = weights.wrapping_add(depth);
    /// Assembly for one unit: two words of weights, and two words of each row.
    macro_rules! unit {
        () => {
            "ldr {x}, [{first}], #4
             ldr r7, [{second}], #4
             sxtb16 {t}, {x}
             sxtb16 {x}, {x}, ror #8
             sxtb16 {u}, r7
             sxtb16 r7, r7, ror #8
             ldrd {v}, {w}, [{wide}], #8
             smlad {a0}, {v}, {t}, {a0}
             smlad {a1}, {v}, {u}, {a1}
             smlad {a0}, {w}, {x}, {a0}
             smlad {a1}, {w}, r7, {a1}
             ldrd {v}, {w}, [{wide}], #8
             smlad {b0}, {v}, {t}, {b0}
             smlad {b1}, {v}, {u}, {b1}
             smlad {b0}, {w}, {x}, {b0}
             smlad {b1}, {w}, r7, {b1}\n"
        };
    }
    // Blocks of four units in the upper half, remaining units in the lower half.
    let count = ((depth / (4 * UNIT)) << 16) | (depth / UNIT % 4);
    // SAFETY: guaranteed by the caller; each iteration reads whole units. r7, which cannot be an
    // operand, is saved on the stack.
    unsafe {
        asm!(
            "push {{r7}}",
            "cmp {count}, #0x10000",
            "blo 3f",
            "2:",
            concat!(unit!(), unit!(), unit!(), unit!()),
            "sub {count}, {count}, #0x10000",
            "cmp {count}, #0x10000",
            "bhs 2b",
            "3:",
            "cmp {count}, #0",
            "beq 5f",
            "4:",
            unit!(),
            "subs {count}, {count}, #1",
            "bne 4b",
            "5:",
            "pop {{r7}}",
            a0 = inout(reg) a0, a1 = inout(reg) a1, b0 = inout(reg) b0, b1 = inout(reg) b1,
            wide = inout(reg) wide, first = inout(reg) first, second = inout(reg) second,
            count = inout(reg) count => _, t = out(reg) _, u = out(reg) _, v = out(reg) _,
            w = out(reg) _, x = out(reg) _,
        );
    }
    let left = depth % UNIT;
    if left != 0 {
        // SAFETY: reads the remaining weights and the last units.
        unsafe {
            let [w0, w1] = [rest(first, left), rest(second, left)];
            for (lo, hi, x, y) in [(0, 1, &mut a0, &mut a1), (2, 3, &mut b0, &mut b1)] {
                let (lo, hi) = (wide.add(lo).read(), wide.add(hi).read());
                *x = both(hi, odd(w0), both(lo, even(w0), *x));
                *y = both(hi, odd(w1), both(lo, even(w1), *y));
            }
        }
    }
    [[a0, a1], [b0, b1]].map(|sums| sums.map(|sum| sum as i32))
}

/// Dot products of one row with four rows of weights.
///
/// # Safety
/// `wide` is aligned and valid for reading a row of units of this depth; `weights` is valid for
/// reading four rows of this depth.
#[inline(always)]
unsafe fn one_by_four(wide: *const u32, weights: *const i8, depth: usize) -> [i32; 4] {
    let (mut a, mut b, mut c, mut d) = (0u32, 0u32, 0u32, 0u32);
    let mut wide = wide;
    let [mut first, mut second, mut third, mut fourth] =
        [0, 1, 2, 3].map(|row| weights.wrapping_add(row * depth));
    /// Assembly that multiplies one word of weights with one unit of the row.
    macro_rules! row {
        ($weights:literal, $sum:literal) => {
            concat!(
                "ldr {x}, [{",
                $weights,
                "}], #4
             sxtb16 r7, {x}
             sxtb16 {x}, {x}, ror #8
             smlad {",
                $sum,
                "}, {v}, r7, {",
                $sum,
                "}
             smlad {",
                $sum,
                "}, {w}, {x}, {",
                $sum,
                "}\n"
            )
        };
    }
    let count = depth / UNIT;
    if count != 0 {
        // SAFETY: guaranteed by the caller; each iteration reads whole units. r7, which cannot be
        // an operand, is saved on the stack.
        unsafe {
            asm!(
                concat!("push {{r7}}\n2:\nldrd {v}, {w}, [{wide}], #8\n",
                    row!("first", "a"), row!("second", "b"), row!("third", "c"),
                    row!("fourth", "d"),
                    "subs {count}, {count}, #1\nbne 2b\npop {{r7}}"),
                a = inout(reg) a, b = inout(reg) b, c = inout(reg) c, d = inout(reg) d,
                wide = inout(reg) wide, first = inout(reg) first, second = inout(reg) second,
                third = inout(reg) third, fourth = inout(reg) fourth, count = inout(reg) count => _,
                v = out(reg) _, w = out(reg) _, x = out(reg) _,
            );
        }
    }
    let left = depth % UNIT;
    if left != 0 {
        // SAFETY: reads the remaining weights and the last unit.
        unsafe {
            let (lo, hi) = (wide.read(), wide.add(1).read());
            let rows = [(first, &mut a), (second, &mut b), (third, &mut c), (fourth, &mut d)];
            for (row, sum) in rows {
                let weights = rest(row, left);
                *sum = both(hi, odd(weights), both(lo, even(weights), *sum));
            }
        }
    }
    [a, b, c, d].map(|sum| sum as i32)
}

/// Dot product of row number `row` of `rows` with one row of weights.
///
/// # Safety
/// `wide` is aligned and valid for reading `rows` rows of units of this depth; `weights` is valid
/// for reading a row of this depth.
#[inline(always)]
unsafe fn one_by_one(
    wide: *const u32,
    weights: *const i8,
    depth: usize,
    [row, rows]: [usize; 2],
) -> i32 {
    let (mut sum, mut at) = (0u32, wide.wrapping_add(row * UNIT / 2));
    let (mut weights, count) = (weights, depth / UNIT);
    if count != 0 {
        // SAFETY: guaranteed by the caller; each iteration reads whole units.
        unsafe {
            asm!(
                "2:
                 ldr {t}, [{weights}], #4
                 ldrd {v}, {w}, [{wide}]
                 add {wide}, {wide}, {step}
                 sxtb16 {u}, {t}
                 sxtb16 {t}, {t}, ror #8
                 smlad {sum}, {v}, {u}, {sum}
                 smlad {sum}, {w}, {t}, {sum}
                 subs {count}, {count}, #1
                 bne 2b",
                weights = inout(reg) weights, wide = inout(reg) at, step = in(reg) rows * UNIT * 2,
                sum = inout(reg) sum, count = inout(reg) count => _, t = out(reg) _, u = out(reg) _,
                v = out(reg) _, w = out(reg) _, options(nostack, readonly),
            );
        }
    }
    if !depth.is_multiple_of(UNIT) {
        // SAFETY: reads the remaining weights and the last unit.
        unsafe {
            let word = rest(weights, depth % UNIT);
            sum = both(at.add(1).read(), odd(word), both(at.read(), even(word), sum));
        }
    }
    sum as i32
}
