//! Widened rows of codes, and their products with rows of weights: eight at a time.

use crate::compute::q8::CHANNELS;
use crate::compute::q8::product::UNIT;
use core::arch::asm;

/// Writes row `row` of `R` as 16 bits with its offset added. Behind it, nothing is read.
#[inline(always)]
pub(in crate::compute::q8) fn widen<const R: usize>(
    codes: &[i8],
    offset: i16,
    row: usize,
    wide: &mut [i16],
) {
    let stride = codes.len().next_multiple_of(UNIT);
    let wide = &mut wide[row * stride..][..codes.len()];
    widen_one(codes, offset, wide);
}

fn widen_one(codes: &[i8], offset: i16, wide: &mut [i16]) {
    let count = codes.len().min(wide.len());
    if count == 0 {
        return;
    }
    // SAFETY: as many elements are read and written as both slices have.
    unsafe {
        asm!(
            "dlstp.16 lr, {count}",
            "2:",
            "vldrb.s16 q0, [r1], #8",
            "vadd.i16 q0, q0, {offset}",
            "vstrh.16 q0, [{to}], #16",
            "letp lr, 2b",
            count = in(reg) count, offset = in(reg) i32::from(offset),
            to = inout(reg) wide.as_mut_ptr() => _, inout("r1") codes.as_ptr() => _,
            out("lr") _, out("d0") _, out("d1") _, options(nostack),
        );
    }
}

/// Sums of `R` rows with `count` rows of weights.
#[inline(never)]
pub(in crate::compute::q8) fn sums<const R: usize>(
    wide: &[i16],
    weights: &[i8],
    depth: usize,
    count: usize,
    sums: &mut [[i32; CHANNELS]; R],
) {
    let stride = depth.next_multiple_of(UNIT);
    assert!(wide.len() >= stride * R && weights.len() >= depth * count && count <= CHANNELS);
    if depth == 0 {
        return;
    }
    let (from, mut at, mut done) = (wide.as_ptr(), weights.as_ptr(), 0);
    match sums.as_mut_slice() {
        [one] => {
            for four in one[..count].as_chunks_mut::<4>().0 {
                // SAFETY: there are four rows of weights from here on, and a row of codes, as asserted.
                *four = unsafe { one_by_four(from, at, depth) };
                at = at.wrapping_add(4 * depth);
                done += 4;
            }
        }
        [one, other] => {
            let others = other[..count].as_chunks_mut::<2>().0;
            for (one, other) in one[..count].as_chunks_mut::<2>().0.iter_mut().zip(others) {
                // SAFETY: there are two rows of weights from here on, and two of codes, as asserted.
                [*one, *other] =
                    unsafe { two_by_two([from, from.wrapping_add(stride)], at, depth) };
                at = at.wrapping_add(2 * depth);
                done += 2;
            }
        }
        _ => {}
    }
    for channel in done..count {
        for (row, sums) in sums.iter_mut().enumerate() {
            // SAFETY: there is a row of weights from here on, and a row of codes for each of `R`, as asserted.
            sums[channel] = unsafe { one_by_one(from.wrapping_add(row * stride), at, depth) };
        }
        at = at.wrapping_add(depth);
    }
}

/// The products of two rows of codes with two rows of weights.
///
/// # Safety
/// `rows` are valid for reading `depth` codes each, and `weights` for two rows of as many. There is one code at least.
#[inline(always)]
unsafe fn two_by_two(rows: [*const i16; 2], weights: *const i8, depth: usize) -> [[i32; 2]; 2] {
    let mut sums = [[0i32; 2]; 2];
    let [[a0, a1], [b0, b1]] = &mut sums;
    // SAFETY: the caller's promise.
    unsafe {
        asm!(
            "dlstp.16 lr, {count}",
            "2:",
            "vldrb.s16 q0, [r1], #8",
            "vldrh.u16 q1, [{a}], #16",
            "vldrb.s16 q2, [r3], #8",
            "vmladava.s16 r0, q0, q1",
            "vldrh.u16 q3, [{b}], #16",
            "vmladava.s16 r2, q2, q1",
            "vmladava.s16 r4, q0, q3",
            "vmladava.s16 r8, q2, q3",
            "letp lr, 2b",
            count = in(reg) depth, a = inout(reg) rows[0] => _, b = inout(reg) rows[1] => _,
            inout("r1") weights => _, inout("r3") weights.wrapping_add(depth) => _,
            inout("r0") *a0, inout("r2") *a1, inout("r4") *b0, inout("r8") *b1,
            out("lr") _, out("d0") _, out("d1") _, out("d2") _, out("d3") _, out("d4") _,
            out("d5") _, out("d6") _, out("d7") _, options(nostack, readonly),
        );
    }
    sums
}

/// The products of a row of codes with four rows of weights.
///
/// # Safety
/// `row` is valid for reading `depth` codes, and `weights` for four rows of as many. There is one code at least.
#[inline(always)]
unsafe fn one_by_four(row: *const i16, weights: *const i8, depth: usize) -> [i32; 4] {
    let mut sums = [0i32; 4];
    let [a, b, c, d] = &mut sums;
    let [first, second, third, fourth] = [0, 1, 2, 3].map(|row| weights.wrapping_add(row * depth));
    // SAFETY: the caller's promise.
    unsafe {
        asm!(
            "dlstp.16 lr, {count}",
            "2:",
            "vldrh.u16 q0, [{row}], #16",
            "vldrb.s16 q1, [r1], #8",
            "vldrb.s16 q2, [r3], #8",
            "vmladava.s16 r0, q0, q1",
            "vldrb.s16 q1, [r4], #8",
            "vmladava.s16 r2, q0, q2",
            "vldrb.s16 q2, [r5], #8",
            "vmladava.s16 r8, q0, q1",
            "vmladava.s16 r10, q0, q2",
            "letp lr, 2b",
            count = in(reg) depth, row = inout(reg) row => _,
            inout("r1") first => _, inout("r3") second => _, inout("r4") third => _,
            inout("r5") fourth => _, inout("r0") *a, inout("r2") *b, inout("r8") *c,
            inout("r10") *d, out("lr") _, out("d0") _, out("d1") _, out("d2") _, out("d3") _,
            out("d4") _, out("d5") _, options(nostack, readonly),
        );
    }
    sums
}

/// The product of a row of codes and a row of weights.
///
/// # Safety
/// Both are valid for reading `depth` elements. There is one at least.
#[inline(always)]
unsafe fn one_by_one(row: *const i16, weights: *const i8, depth: usize) -> i32 {
    let mut sum = 0i32;
    // SAFETY: the caller's promise.
    unsafe {
        asm!(
            "dlstp.16 lr, {count}",
            "2:",
            "vldrb.s16 q0, [r1], #8",
            "vldrh.u16 q1, [{row}], #16",
            "vmladava.s16 r0, q0, q1",
            "letp lr, 2b",
            count = in(reg) depth, row = inout(reg) row => _, inout("r1") weights => _,
            inout("r0") sum, out("lr") _, out("d0") _, out("d1") _, out("d2") _, out("d3") _,
            options(nostack, readonly),
        );
    }
    sum
}
