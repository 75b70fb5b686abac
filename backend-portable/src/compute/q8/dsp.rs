//! The innermost loops in the instructions of Cortex-M's DSP extension: two products of 16 bits at a time.
//!
//! The compiler has no stable names for these instructions, and no stable way to ask for the extension: the build script asks
//! the target's name. Loads and stores through pointers and the instructions are `unsafe` here, and nowhere else in `q8`.
//!
//! Widened codes lie in units of four for each row in turn, and in a unit as the instructions make them of four bytes: the
//! first and third, then the second and fourth.

use super::CHANNELS;
use super::depthwise::Covered;
use core::arch::asm;

/// Codes of a unit.
const UNIT: usize = 4;

/// An instruction with two or three operands that are registers, and one result.
macro_rules! instruction {
    ($(#[$doc:meta])* $name:ident, $text:literal, $($operand:ident),+) => {
        $(#[$doc])*
        #[inline(always)]
        fn $name($($operand: u32),+) -> u32 {
            let result: u32;
            // SAFETY: computes with registers alone; the sticky overflow flag, which some of these set, is read nowhere.
            unsafe {
                asm!($text, result = lateout(reg) result, $($operand = in(reg) $operand),+,
                    options(pure, nomem, nostack, preserves_flags));
            }
            result
        }
    };
}

instruction!(
    /// Bytes 0 and 2, with their signs, as 16 bits each.
    even, "sxtb16 {result}, {word}", word);
instruction!(
    /// Bytes 1 and 3.
    odd, "sxtb16 {result}, {word}, ror #8", word);
instruction!(
    /// Bytes 0 and 2 added to 16 bits each.
    even_plus, "sxtab16 {result}, {added}, {word}", added, word);
instruction!(
    /// Bytes 1 and 3 added to 16 bits each.
    odd_plus, "sxtab16 {result}, {added}, {word}, ror #8", added, word);
instruction!(
    /// The sum of the products of both halves, and of what there was.
    both, "smlad {result}, {a}, {b}, {sum}", a, b, sum);
instruction!(
    /// The product of the lower halves, added.
    low, "smlabb {result}, {a}, {b}, {sum}", a, b, sum);
instruction!(
    /// The product of the upper halves, added.
    high, "smlatt {result}, {a}, {b}, {sum}", a, b, sum);
instruction!(
    /// The product of a lower and an upper half, added.
    low_high, "smlabt {result}, {a}, {b}, {sum}", a, b, sum);

/// The larger of each of four bytes.
#[inline(always)]
fn larger(a: u32, b: u32) -> u32 {
    let result: u32;
    // SAFETY: computes with registers alone; the flags that the first instruction sets are read by the second.
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

/// The last one to three codes, and `fill` behind them.
#[inline(always)]
fn last(codes: &[i8], fill: i8) -> u32 {
    let byte = |at| codes.get(at).copied().unwrap_or(fill) as u8;
    u32::from_le_bytes([byte(0), byte(1), byte(2), byte(3)])
}

/// Writes row `row` of `R` as 16 bits with its offset added, and zeros behind it.
#[inline(always)]
pub(super) fn widen<const R: usize>(codes: &[i8], offset: i16, row: usize, wide: &mut [i16]) {
    widen_one_of(codes, offset, R, row, wide);
}

fn widen_one_of(codes: &[i8], offset: i16, rows: usize, row: usize, wide: &mut [i16]) {
    let units = codes.len().div_ceil(UNIT);
    let mut to = wide.as_mut_ptr().wrapping_add(row * UNIT).cast::<u32>();
    assert!(to.is_aligned() && wide.len() >= units * rows * UNIT && row < rows);
    let added = u32::from(offset as u16) * 0x1_0001;
    let mut put = |word: u32| {
        // SAFETY: there are `units` calls, each with the unit of this row in the next `rows` units of `wide`, which has
        // `units * rows` and is aligned, as asserted.
        unsafe {
            to.write(even_plus(added, word));
            to.add(1).write(odd_plus(added, word));
        }
        to = to.wrapping_add(rows * UNIT / 2);
    };
    let (full, rest) = codes.as_chunks::<UNIT>();
    for codes in full {
        put(u32::from_le_bytes(codes.map(|code| code as u8)));
    }
    if !rest.is_empty() {
        // The negation of a usual offset is a code: it becomes zero.
        put(last(rest, offset.wrapping_neg() as i8));
    }
}

/// Sums of `R` rows with `count` rows of weights.
#[inline(always)]
pub(super) fn sums<const R: usize>(
    wide: &[i16],
    weights: &[i8],
    depth: usize,
    count: usize,
    sums: &mut [[i32; CHANNELS]; R],
) {
    let mut channel = 0;
    while channel < count {
        // As many at once as there are registers for.
        let at = channel * depth;
        let weights = weights.get(at..).unwrap_or(&[]);
        let left = count - channel;
        channel += match R {
            1 if left >= 4 => store::<R, 4>(wide, weights, depth, channel, sums),
            _ if left >= 2 => store::<R, 2>(wide, weights, depth, channel, sums),
            _ => store::<R, 1>(wide, weights, depth, channel, sums),
        };
    }
}

/// The sums of `R` rows with `C` rows of weights, as those of the channels from `channel` on.
#[inline(always)]
fn store<const R: usize, const C: usize>(
    wide: &[i16],
    weights: &[i8],
    depth: usize,
    channel: usize,
    sums: &mut [[i32; CHANNELS]; R],
) -> usize {
    let found = dots::<R, C>(wide, weights, depth);
    for (sums, found) in sums.iter_mut().zip(&found) {
        if let Some(sums) = sums.get_mut(channel..channel + C) {
            sums.copy_from_slice(found);
        }
    }
    C
}

fn dots<const R: usize, const C: usize>(
    wide: &[i16],
    weights: &[i8],
    depth: usize,
) -> [[i32; C]; R] {
    let mut sums = [[0u32; C]; R];
    let mut from = wide.as_ptr().cast::<u32>();
    assert!(from.is_aligned() && wide.len() >= depth.next_multiple_of(UNIT) * R);
    assert!(weights.len() >= depth * C);
    let mut rows: [*const i8; C] =
        core::array::from_fn(|c| weights.as_ptr().wrapping_add(c * depth));
    let mut add = |words: [u32; C]| {
        let (evens, odds) = (words.map(even), words.map(odd));
        for sums in &mut sums {
            // SAFETY: as many units of `R` rows are read as the rounded depth has, and those are there, as asserted.
            let (a, b) = unsafe { (from.read(), from.add(1).read()) };
            from = from.wrapping_add(2);
            for ((sum, &even), &odd) in sums.iter_mut().zip(&evens).zip(&odds) {
                *sum = both(a, even, *sum);
                *sum = both(b, odd, *sum);
            }
        }
    };
    let mut next = || {
        rows.each_mut().map(|row| {
            // SAFETY: full units alone are read here, and each row of weights has them, as asserted.
            let word = unsafe { word(*row) };
            *row = row.wrapping_add(UNIT);
            word
        })
    };
    let units = depth / UNIT;
    for _ in 0..units / 4 {
        add(next());
        add(next());
        add(next());
        add(next());
    }
    for _ in 0..units % 4 {
        add(next());
    }
    if !depth.is_multiple_of(UNIT) {
        let full = units * UNIT;
        add(core::array::from_fn(|c| {
            last(weights.get(c * depth + full..(c + 1) * depth).unwrap_or(&[]), 0)
        }));
    }
    sums.map(|sums| sums.map(|sum| sum as i32))
}

/// The last place that a tap reads, and `reach` behind it, lies in a slice of this length; also holds without taps.
fn is_inside(len: usize, places: [usize; 3], covered: &Covered, reach: usize) -> bool {
    if covered.rows == 0 || covered.columns == 0 {
        return true;
    }
    let [first, down, across] = places;
    let last = down.checked_mul(covered.rows - 1).and_then(|rows| {
        rows.checked_add(across.checked_mul(covered.columns - 1)?)?.checked_add(first)
    });
    last.and_then(|last| last.checked_add(reach)).is_some_and(|end| end <= len)
}

/// Calls `tap(code, weight)` with the addresses of each tap.
#[inline(always)]
fn for_each_tap(
    covered: &Covered,
    codes: *const i8,
    weights: *const i8,
    mut tap: impl FnMut(*const i8, *const i8),
) {
    let ([_, codes_down, codes_across], [_, weights_down, weights_across]) =
        (covered.codes, covered.weights);
    let (mut codes, mut weights) = (codes, weights);
    for _ in 0..covered.rows {
        if covered.columns == 3 {
            tap(codes, weights);
            tap(codes.wrapping_add(codes_across), weights.wrapping_add(weights_across));
            tap(codes.wrapping_add(codes_across * 2), weights.wrapping_add(weights_across * 2));
        } else {
            let (mut codes, mut weights) = (codes, weights);
            for _ in 0..covered.columns {
                tap(codes, weights);
                codes = codes.wrapping_add(codes_across);
                weights = weights.wrapping_add(weights_across);
            }
        }
        codes = codes.wrapping_add(codes_down);
        weights = weights.wrapping_add(weights_down);
    }
}

/// Adds the products of channels with those of the weights.
pub(super) fn add(input: &[i8], weights: &[i8], covered: Covered, offset: i16, sums: &mut [i32]) {
    assert!(is_inside(input.len(), covered.codes, &covered, sums.len()));
    assert!(is_inside(weights.len(), covered.weights, &covered, sums.len()));
    let added = u32::from(offset as u16) * 0x1_0001;
    let mut code = input.as_ptr().wrapping_add(covered.codes[0]);
    let mut weight = weights.as_ptr().wrapping_add(covered.weights[0]);
    let (fours, rest) = sums.as_chunks_mut::<UNIT>();
    for sums in fours {
        let mut four = sums.map(|sum| sum as u32);
        for_each_tap(&covered, code, weight, |code, weight| {
            // SAFETY: each tap and as many places behind it as there are sums lie in the slices, as asserted.
            let (codes, weights) = unsafe { (word(code), word(weight)) };
            let (codes_even, codes_odd) = (even_plus(added, codes), odd_plus(added, codes));
            let (weights_even, weights_odd) = (even(weights), odd(weights));
            four[0] = low(codes_even, weights_even, four[0]);
            four[1] = low(codes_odd, weights_odd, four[1]);
            four[2] = high(codes_even, weights_even, four[2]);
            four[3] = high(codes_odd, weights_odd, four[3]);
        });
        *sums = four.map(|sum| sum as i32);
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

/// Adds the products of one channel with those of the weights.
pub(super) fn spread(
    input: &[i8],
    weights: &[i8],
    covered: Covered,
    offset: i16,
    sums: &mut [i32],
) {
    assert!(is_inside(input.len(), covered.codes, &covered, 1));
    assert!(is_inside(weights.len(), covered.weights, &covered, sums.len()));
    let code = input.as_ptr().wrapping_add(covered.codes[0]);
    let mut weight = weights.as_ptr().wrapping_add(covered.weights[0]);
    // All that calls have multiples of four.
    for sums in sums.as_chunks_mut::<UNIT>().0 {
        let mut four = sums.map(|sum| sum as u32);
        for_each_tap(&covered, code, weight, |code, weight| {
            // SAFETY: each tap lies in the input, and it and as many places behind it as there are sums in the weights, as
            // asserted.
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

/// The larger of each pair of codes, of the first of both slices' common multiple of four. Gives how many those are.
pub(super) fn keep_larger(codes: &[i8], largest: &mut [i8]) -> usize {
    let (codes, largest) = (codes.as_chunks::<UNIT>().0, largest.as_chunks_mut::<UNIT>().0);
    for (largest, codes) in largest.iter_mut().zip(codes) {
        let [a, b] = [*codes, *largest].map(|four| u32::from_le_bytes(four.map(|code| code as u8)));
        *largest = larger(a, b).to_le_bytes().map(|code| code as i8);
    }
    largest.len().min(codes.len()) * UNIT
}
