//! Dot products of rows with rows of weights, sixteen values at a time.
//!
//! Values stay 8 bits wide. Their offset contributes the offset times the sum of the weights, which
//! is computed along with the dot products.

use crate::compute::q8::CHANNELS;
use core::arch::asm;

/// Values of a vector.
const WIDTH: usize = 16;

/// Dot products of `R` rows, with an offset added to their values, with `count` rows of weights.
#[inline(never)]
pub(in crate::compute::q8) fn sums<const R: usize>(
    rows: [&[i8]; R],
    offset: i32,
    weights: &[i8],
    depth: usize,
    count: usize,
    sums: &mut [[i32; CHANNELS]; R],
) {
    assert!(rows.iter().all(|row| row.len() >= depth));
    assert!(weights.len() >= depth * count && count <= CHANNELS);
    if depth == 0 {
        return;
    }
    if let ([row], [one]) = (rows.as_slice(), sums.as_mut_slice()) {
        return one_row(&row[..depth], offset, &weights[..depth * count], &mut one[..count]);
    }
    // The last row of an odd number is computed alone.
    for (rows, sums) in rows.chunks(2).zip(sums.chunks_mut(2)) {
        let mut at = weights.as_ptr();
        let mut done = 0;
        if let ([row, below], [one, other]) = (rows, &mut *sums) {
            let rows = [row.as_ptr(), below.as_ptr()];
            let others = other[..count].as_chunks_mut::<2>().0;
            for (one, other) in one[..count].as_chunks_mut::<2>().0.iter_mut().zip(others) {
                // SAFETY: two rows of weights and two input rows follow, as asserted.
                [*one, *other] = unsafe { two_by_two(rows, at, depth, offset) };
                at = at.wrapping_add(2 * depth);
                done += 2;
            }
        }
        for (row, sums) in rows.iter().zip(sums) {
            one_row(&row[..depth], offset, &weights[done * depth..], &mut sums[done..count]);
        }
    }
}

/// Dot products of a row with as many rows of weights as sums: in pairs, then one.
fn one_row(row: &[i8], offset: i32, weights: &[i8], sums: &mut [i32]) {
    let depth = row.len();
    assert!(depth > 0 && weights.len() >= depth * sums.len());
    let (pairs, rest) = sums.as_chunks_mut::<2>();
    if !pairs.is_empty() {
        // SAFETY: `weights` has a row for each sum, and rows are not empty, as asserted.
        unsafe { one_by_pairs(row, weights.as_ptr(), offset, pairs) };
    }
    if let [last] = rest {
        let at = weights.as_ptr().wrapping_add(pairs.len() * 2 * depth);
        // SAFETY: as above; this is the last row.
        *last = unsafe { one_by_one(row.as_ptr(), at, depth, offset) };
    }
}

/// Dot products of two rows with two rows of weights.
///
/// # Safety
/// `rows` are valid for reading `depth` values each, and `weights` for two rows of that length.
/// `depth` is not zero.
#[inline(always)]
unsafe fn two_by_two(
    rows: [*const i8; 2],
    weights: *const i8,
    depth: usize,
    offset: i32,
) -> [[i32; 2]; 2] {
    let (mut a, mut b, mut all) = ([0i32; 2], [0i32; 2], [0i32; 2]);
    // SAFETY: guaranteed by the caller.
    unsafe {
        asm!(
            "dlstp.8 lr, {count}",
            "2:",
            "vldrb.u8 q0, [r1], #16",
            "vaddva.s8 r10, q0",
            "vldrb.u8 q1, [{a}], #16",
            "vmladava.s8 r0, q0, q1",
            "vldrb.u8 q2, [r3], #16",
            "vmladava.s8 r2, q2, q1",
            "vldrb.u8 q3, [{b}], #16",
            "vmladava.s8 r4, q0, q3",
            "vaddva.s8 r12, q2",
            "vmladava.s8 r8, q2, q3",
            "letp lr, 2b",
            count = in(reg) depth, a = inout(reg) rows[0] => _, b = inout(reg) rows[1] => _,
            inout("r1") weights => _, inout("r3") weights.wrapping_add(depth) => _,
            inout("r0") a[0], inout("r2") a[1], inout("r4") b[0], inout("r8") b[1],
            inout("r10") all[0], inout("r12") all[1],
            out("lr") _, out("d0") _, out("d1") _, out("d2") _, out("d3") _, out("d4") _,
            out("d5") _, out("d6") _, out("d7") _, options(nostack, readonly),
        );
    }
    let added = all.map(|sum| sum.wrapping_mul(offset));
    [a, b].map(|row| [row[0].wrapping_add(added[0]), row[1].wrapping_add(added[1])])
}

/// Loop state of [`one_by_pairs`] that does not fit in registers.
#[repr(C)]
struct Pairs {
    /// Initial register contents for each pair: zero sums.
    zeros: [i32; 3],
    row: *const i8,
    zero: i32,
    /// Distance from the end of a pair's second row to the next pair.
    back: usize,
    /// End of the sums.
    end: *const [i32; 2],
}

/// Computes dot products of a row of values with rows of weights, two of them at a time.
///
/// # Safety
/// `weights` is valid for reading two rows for each of `sums`, of the length of the input row.
/// `row` and `sums` are not empty.
unsafe fn one_by_pairs(row: &[i8], weights: *const i8, offset: i32, sums: &mut [[i32; 2]]) {
    let depth = row.len();
    let pairs = Pairs {
        zeros: [0; 3],
        row: row.as_ptr(),
        zero: 0,
        back: depth.wrapping_sub(depth.next_multiple_of(WIDTH)),
        end: sums.as_ptr_range().end,
    };
    // SAFETY: guaranteed by the caller. The loops cover the values of a row, and the pairs of sums
    // until the end.
    unsafe {
        asm!(
            "2:",
            "ldm {pairs}, {{r0, r2, r4, r5, r8}}",
            "dlstp.8 lr, {depth}",
            "3:",
            "vldrb.u8 q0, [r1], #16",
            "vaddva.s8 r4, q0",
            "vldrb.u8 q1, [r5], #16",
            "vmladava.s8 r0, q0, q1",
            "vldrb.u8 q2, [r3], #16",
            "vmladava.s8 r2, q2, q1",
            "vaddva.s8 r8, q2",
            "letp lr, 3b",
            "mla r0, r4, {offset}, r0",
            "mla r2, r8, {offset}, r2",
            "strd r0, r2, [{sums}], #8",
            "ldrd r0, r2, [{pairs}, #20]",
            "add r1, r3, r0",
            "add r3, r1, {depth}",
            "cmp {sums}, r2",
            "bne 2b",
            pairs = in(reg) &raw const pairs, depth = in(reg) depth, offset = in(reg) offset,
            sums = inout(reg) sums.as_mut_ptr() => _, inout("r1") weights => _,
            inout("r3") weights.wrapping_add(depth) => _, out("r0") _, out("r2") _, out("r4") _,
            out("r5") _, out("r8") _, out("lr") _, out("d0") _, out("d1") _, out("d2") _,
            out("d3") _, out("d4") _, out("d5") _, options(nostack),
        );
    }
}

/// Dot product of a row with a row of weights.
///
/// # Safety
/// Both are valid for reading `depth` elements. `depth` is not zero.
#[inline(always)]
unsafe fn one_by_one(row: *const i8, weights: *const i8, depth: usize, offset: i32) -> i32 {
    let (mut sum, mut all) = (0i32, 0i32);
    // SAFETY: guaranteed by the caller.
    unsafe {
        asm!(
            "dlstp.8 lr, {count}",
            "2:",
            "vldrb.u8 q0, [r1], #16",
            "vaddva.s8 r2, q0",
            "vldrb.u8 q1, [{row}], #16",
            "vmladava.s8 r0, q0, q1",
            "letp lr, 2b",
            count = in(reg) depth, row = inout(reg) row => _, inout("r1") weights => _,
            inout("r0") sum, inout("r2") all, out("lr") _, out("d0") _, out("d1") _, out("d2") _,
            out("d3") _, options(nostack, readonly),
        );
    }
    sum.wrapping_add(all.wrapping_mul(offset))
}

/// Copies values, up to the shorter length.
#[inline(always)]
pub(in crate::compute::q8) fn copy(quantized: &[i8], to: &mut [i8]) {
    let count = quantized.len().min(to.len());
    if count == 0 {
        return;
    }
    // SAFETY: `count` elements of both slices are read and written.
    unsafe {
        asm!(
            "dlstp.8 lr, {count}",
            "2:",
            "vldrb.u8 q0, [{quantized}], #16",
            "vstrb.8 q0, [{to}], #16",
            "letp lr, 2b",
            count = in(reg) count, quantized = inout(reg) quantized.as_ptr() => _,
            to = inout(reg) to.as_mut_ptr() => _, out("lr") _, out("d0") _, out("d1") _,
            options(nostack),
        );
    }
}

/// Copies rows of `len` values, starting at offset `at` with stride `step`: as many as `to` holds,
/// if `input` has all of them.
pub(in crate::compute::q8) fn copy_rows(
    input: &[i8],
    [at, step]: [usize; 2],
    len: usize,
    to: &mut [i8],
) {
    let rows = to.len().checked_div(len).unwrap_or(0);
    let end = rows
        .checked_sub(1)
        .and_then(|before| before.checked_mul(step)?.checked_add(at)?.checked_add(len));
    if end.is_none_or(|end| end > input.len()) {
        return;
    }
    // Distance by which the last vector of a row reaches beyond its end.
    let over = len.wrapping_neg() % WIDTH;
    // SAFETY: `rows` times `len` values are read and written, which lie in the slices, as checked.
    unsafe {
        asm!(
            "2:",
            "dlstp.8 lr, {len}",
            "3:",
            "vldrb.u8 q0, [{quantized}], #16",
            "vstrb.8 q0, [{to}], #16",
            "letp lr, 3b",
            "add {quantized}, {quantized}, {back}",
            "sub {to}, {to}, {over}",
            "subs {rows}, {rows}, #1",
            "bne 2b",
            len = in(reg) len, quantized = inout(reg) input.as_ptr().wrapping_add(at) => _,
            to = inout(reg) to.as_mut_ptr() => _, rows = inout(reg) rows => _,
            back = in(reg) step.wrapping_sub(len + over), over = in(reg) over,
            out("lr") _, out("d0") _, out("d1") _, options(nostack),
        );
    }
}
