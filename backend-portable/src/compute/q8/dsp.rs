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
    ($(#[$doc:meta])* $name:ident, $text:literal, $($operand:ident),+; $($option:ident)?) => {
        $(#[$doc])*
        #[inline(always)]
        fn $name($($operand: u32),+) -> u32 {
            let result: u32;
            // SAFETY: computes with registers alone. Sums set the sticky overflow flag, so they do not promise to preserve flags.
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
instruction!(
    /// Bytes 0 and 2 added to 16 bits each.
    even_plus, "sxtab16 {result}, {added}, {word}", added, word; preserves_flags);
instruction!(
    /// Bytes 1 and 3 added to 16 bits each.
    odd_plus, "sxtab16 {result}, {added}, {word}, ror #8", added, word; preserves_flags);
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

/// Sums of `R` rows with `count` rows of weights, of a depth below 2^18.
#[inline(never)]
pub(super) fn sums<const R: usize>(
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
                // SAFETY: there are four rows of weights from here on, and a row of units, as asserted.
                *four = unsafe { one_by_four(from, at, depth) };
                at = at.wrapping_add(4 * depth);
                done += 4;
            }
        }
        [one, other] => {
            let others = other[..count].as_chunks_mut::<2>().0;
            for (one, other) in one[..count].as_chunks_mut::<2>().0.iter_mut().zip(others) {
                // SAFETY: there are two rows of weights from here on, and two of units, as asserted.
                [*one, *other] = unsafe { two_by_two(from, at, depth) };
                at = at.wrapping_add(2 * depth);
                done += 2;
            }
        }
        _ => {}
    }
    for channel in done..count {
        for (row, sums) in sums.iter_mut().enumerate() {
            // SAFETY: there is a row of weights from here on, and a row of units for each of `R`, as asserted.
            sums[channel] = unsafe { one_by_one(from, at, depth, [row, R]) };
        }
        at = at.wrapping_add(depth);
    }
}

/// Four codes that are the last of a row of weights, or fewer; the widened codes behind are zero.
///
/// # Safety
/// `weights` is valid for reading `count` codes.
#[inline(always)]
unsafe fn rest(weights: *const i8, count: usize) -> u32 {
    let byte = |at| {
        // SAFETY: the caller's promise.
        if at < count { unsafe { weights.add(at).read() as u8 } } else { 0 }
    };
    u32::from_le_bytes([byte(0), byte(1), byte(2), 0])
}

/// The products of two rows of codes with two rows of weights.
///
/// # Safety
/// `wide` is aligned, and valid for reading two rows of units for this depth; `weights` for two rows of this depth.
#[inline(always)]
unsafe fn two_by_two(wide: *const u32, weights: *const i8, depth: usize) -> [[i32; 2]; 2] {
    let (mut a0, mut a1, mut b0, mut b1) = (0u32, 0u32, 0u32, 0u32);
    let (mut wide, mut first) = (wide, weights);
    let mut second = weights.wrapping_add(depth);
    /// One unit: two words of weights, and two of codes for each row.
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
    // Blocks of four units in the upper half, and the units behind them in the lower.
    let count = (depth / (4 * UNIT)) << 16 | depth / UNIT % 4;
    // SAFETY: the caller's promise; there is a whole unit each time. The register that operands cannot be is kept on the stack.
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
        // SAFETY: the codes of weights that are left, and the last units.
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

/// The products of a row of codes with four rows of weights.
///
/// # Safety
/// `wide` is aligned, and valid for reading a row of units for this depth; `weights` for four rows of this depth.
#[inline(always)]
unsafe fn one_by_four(wide: *const u32, weights: *const i8, depth: usize) -> [i32; 4] {
    let (mut a, mut b, mut c, mut d) = (0u32, 0u32, 0u32, 0u32);
    let mut wide = wide;
    let [mut first, mut second, mut third, mut fourth] =
        [0, 1, 2, 3].map(|row| weights.wrapping_add(row * depth));
    /// One word of weights with a unit of codes.
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
        // SAFETY: the caller's promise; there is a whole unit each time. The register that operands cannot be is kept on the
        // stack.
        unsafe {
            asm!(
                concat!("push {{r7}}\n2:\nldrd {v}, {w}, [{wide}], #8\n",
                    row!("first", "a"), row!("second", "b"), row!("third", "c"), row!("fourth", "d"),
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
        // SAFETY: the codes of weights that are left, and the last unit.
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

/// The product of one row of some, and one row of weights.
///
/// # Safety
/// `wide` is aligned, and valid for reading as many rows of units for this depth; `weights` for a row of this depth.
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
        // SAFETY: the caller's promise; there is a whole unit each time.
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
        // SAFETY: the codes of weights that are left, and the last unit.
        unsafe {
            let word = rest(weights, depth % UNIT);
            sum = both(at.add(1).read(), odd(word), both(at.read(), even(word), sum));
        }
    }
    sum as i32
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
        let (mut code, mut weight) = (codes, weights);
        for _ in 0..covered.columns {
            tap(code, weight);
            code = code.wrapping_add(codes_across);
            weight = weight.wrapping_add(weights_across);
        }
        codes = codes.wrapping_add(codes_down);
        weights = weights.wrapping_add(weights_down);
    }
}

/// Text that adds the products of four channels at a tap.
macro_rules! tap {
    ($place:literal) => {
        concat!(
            "ldr {t}, [{codes}",
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

/// Adds the products of channels with those of the weights.
pub(super) fn add(input: &[i8], weights: &[i8], covered: Covered, offset: i16, sums: &mut [i32]) {
    assert!(is_inside(input.len(), covered.codes, &covered, sums.len()));
    assert!(is_inside(weights.len(), covered.weights, &covered, sums.len()));
    let added = u32::from(offset as u16) * 0x1_0001;
    let mut code = input.as_ptr().wrapping_add(covered.codes[0]);
    let mut weight = weights.as_ptr().wrapping_add(covered.weights[0]);
    let (fours, rest) = sums.as_chunks_mut::<UNIT>();
    let step = covered.codes[2];
    for [a, b, c, d] in fours {
        if covered.columns == 3 && step == covered.weights[2] {
            let (mut codes, mut weights) = (code, weight);
            for _ in 0..covered.rows {
                // SAFETY: three taps beside each other, and as many places behind each as there are sums, lie in the slices,
                // as asserted.
                unsafe {
                    asm!(
                        concat!(tap!(""), tap!(", {step}"), tap!(", {step}, lsl #1")),
                        a = inout(reg) *a, b = inout(reg) *b, c = inout(reg) *c, d = inout(reg) *d,
                        codes = in(reg) codes, weights = in(reg) weights, step = in(reg) step,
                        added = in(reg) added, t = out(reg) _, u = out(reg) _, v = out(reg) _,
                        w = out(reg) _, options(nostack, readonly),
                    );
                }
                codes = codes.wrapping_add(covered.codes[1]);
                weights = weights.wrapping_add(covered.weights[1]);
            }
        } else {
            for_each_tap(&covered, code, weight, |codes, weights| {
                // SAFETY: as above, for one tap.
                unsafe {
                    asm!(
                        tap!(""), a = inout(reg) *a, b = inout(reg) *b, c = inout(reg) *c,
                        d = inout(reg) *d, codes = in(reg) codes, weights = in(reg) weights,
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

/// The upper half of the product of twice a number and another, rounded to the nearest, halves up.
#[inline(always)]
pub(super) fn upper(twice: i32, multiplier: i32) -> i32 {
    let result: i32;
    // SAFETY: computes with registers alone.
    unsafe {
        asm!("smmulr {result}, {a}, {b}", result = lateout(reg) result, a = in(reg) twice,
            b = in(reg) multiplier, options(pure, nomem, nostack, preserves_flags));
    }
    result
}

/// Shifts one to 31 bits out to the right, to the nearest, halves away from zero, and adds an offset. The shift is that to the
/// left, and so negative.
#[inline(always)]
pub(super) fn shift_out(value: i32, shift: i32, offset: i32) -> i32 {
    let result: i32;
    // SAFETY: computes with registers alone, and says that flags change. The last bit that is shifted out is the carry.
    unsafe {
        asm!("add {t}, {value}, {value}, asr #31", "asr {t}, {t}, {bits}", "asrs {t}, {t}, #1",
            "adc {result}, {offset}, {t}", t = out(reg) _, result = lateout(reg) result,
            value = in(reg) value, bits = in(reg) !shift, offset = in(reg) offset,
            options(pure, nomem, nostack));
    }
    result
}

/// The sums of four channels over all taps, of which there are fewer than 256.
pub(super) fn total(input: &[i8], covered: Covered) -> [i32; UNIT] {
    assert!(is_inside(input.len(), covered.codes, &covered, UNIT));
    let codes = input.as_ptr().wrapping_add(covered.codes[0]);
    let (mut evens, mut odds) = (0, 0);
    for_each_tap(&covered, codes, codes, |codes, _| {
        // SAFETY: each tap and the three places behind it lie in the input, as asserted.
        let word = unsafe { word(codes) };
        (evens, odds) = (even_plus(evens, word), odd_plus(odds, word));
    });
    let low = |pair: u32| i32::from(pair as i16);
    [low(evens), low(odds), low(evens >> 16), low(odds >> 16)]
}

/// Text that cuts to any bounds.
macro_rules! cut {
    () => {
        "cmp {v}, {least}
         it lt
         movlt {v}, {least}
         cmp {v}, {greatest}
         it gt
         movgt {v}, {greatest}\n"
    };
}

/// Codes of sums that fit 30 bits with their bias: by one multiplier and one shift, which is negative, for all.
pub(super) fn finish_alike(
    sums: &[i32],
    bias: &[i32],
    [multiplier, shift]: [i32; 2],
    [offset, least, greatest]: [i32; 3],
    out: &mut [i8],
) {
    let count = sums.len().min(out.len());
    assert!(bias.len() >= count);
    if count == 0 {
        return;
    }
    // SAFETY: as many elements of the slices are read and written as they have, as asserted. Bits are shifted out in two steps.
    unsafe {
        asm!(
            concat!(
                "2:
                 ldr {v}, [{sums}], #4
                 ldr {t}, [{bias}], #4
                 add {v}, {v}, {t}
                 lsl {v}, {v}, #1
                 smmulr {v}, {v}, {multiplier}
                 add {v}, {v}, {v}, asr #31
                 asr {v}, {v}, {shift}
                 asrs {v}, {v}, #1
                 adc {v}, {v}, {offset}\n",
                cut!(),
                "strb {v}, [{out}], #1
                 subs {count}, {count}, #1
                 bne 2b"
            ),
            sums = inout(reg) sums.as_ptr() => _, bias = inout(reg) bias.as_ptr() => _,
            out = inout(reg) out.as_mut_ptr() => _, count = inout(reg) count => _,
            multiplier = in(reg) multiplier, shift = in(reg) !shift, offset = in(reg) offset,
            least = in(reg) least, greatest = in(reg) greatest, v = out(reg) _, t = out(reg) _,
            options(nostack),
        );
    }
}

/// Codes of sums that fit 30 bits with their bias: by a multiplier and a shift, which is negative, for each.
pub(super) fn finish_each(
    sums: &[i32],
    [bias, multipliers, shifts]: [&[i32]; 3],
    [offset, least, greatest]: [i32; 3],
    out: &mut [i8],
) {
    let count = sums.len().min(out.len());
    assert!(bias.len().min(multipliers.len()).min(shifts.len()) >= count);
    if count == 0 {
        return;
    }
    /// The loop, with what cuts and its operands.
    macro_rules! run {
        ($cut:expr, $($operands:tt)*) => {
            // SAFETY: as in `finish_alike`.
            unsafe {
                asm!(
                    concat!(
                        "2:
                         ldr {v}, [{sums}], #4
                         ldr {t}, [{bias}], #4
                         add {v}, {v}, {t}
                         ldr {t}, [{multipliers}], #4
                         lsl {v}, {v}, #1
                         smmulr {v}, {v}, {t}
                         ldr {t}, [{shifts}], #4
                         mvn {t}, {t}
                         add {v}, {v}, {v}, asr #31
                         asr {v}, {v}, {t}
                         asrs {v}, {v}, #1
                         adc {v}, {v}, {offset}\n",
                        $cut,
                        "strb {v}, [{out}], #1
                         subs {count}, {count}, #1
                         bne 2b"
                    ),
                    sums = inout(reg) sums.as_ptr() => _, bias = inout(reg) bias.as_ptr() => _,
                    multipliers = inout(reg) multipliers.as_ptr() => _,
                    shifts = inout(reg) shifts.as_ptr() => _,
                    out = inout(reg) out.as_mut_ptr() => _, count = inout(reg) count => _,
                    offset = in(reg) offset, v = out(reg) _, t = out(reg) _,
                    $($operands)* options(nostack),
                );
            }
        };
    }
    if (least, greatest) == (-128, 127) {
        run!("ssat {v}, #8, {v}\n",);
    } else {
        run!(cut!(), least = in(reg) least, greatest = in(reg) greatest,);
    }
}
