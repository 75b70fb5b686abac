//! Requantization of sums, four at a time.
//!
//! The sums fit 30 bits with their bias, so nothing saturates. The rounding multiplication is that
//! of the DSP extension. The shift rounds ties up; subtracting one from negative values first
//! rounds them away from zero, as required.

use crate::compute::q8::CHANNELS;
use core::arch::asm;

/// Assembly that loads four sums and adds their bias.
macro_rules! four_sums {
    () => {
        "vldrw.u32 q0, [{sums}], #16
         vldrw.u32 q1, [{bias}], #16
         vadd.i32 q0, q0, q1\n"
    };
}

/// Assembly that subtracts one from negative lanes, before the rounding shift.
macro_rules! decrement_negative {
    () => {
        "vshr.s32 q1, q0, #31
         vadd.i32 q0, q0, q1\n"
    };
}

/// Assembly that multiplies and shifts four sums, each with its own parameters.
macro_rules! scale_each {
    () => {
        concat!(
            "vldrw.u32 q1, [{multipliers}], #16
             vqrdmulh.s32 q0, q0, q1\n",
            decrement_negative!(),
            "vldrw.u32 q1, [{shifts}], #16
             vrshl.s32 q0, q0, q1\n"
        )
    };
}

/// Assembly that adds the zero point to four values, clamps and stores them.
macro_rules! store_four {
    () => {
        "vadd.i32 q0, q0, {offset}
         vmax.s32 q0, q0, q2
         vmin.s32 q0, q0, q3
         vstrb.32 q0, [r1], #4\n"
    };
}

/// Requantizes sums that fit 30 bits with their bias, with one multiplier and one negative shift
/// for all.
pub(in crate::compute::q8) fn requantize_uniform(
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
    // SAFETY: exactly `count` elements of the slices are read and written, as asserted.
    unsafe {
        asm!(
            "vdup.32 q2, {least}",
            "vdup.32 q3, {greatest}",
            "dlstp.32 lr, {count}",
            "2:",
            four_sums!(),
            "vqrdmulh.s32 q0, q0, {multiplier}",
            decrement_negative!(),
            "vrshl.s32 q0, {shift}",
            store_four!(),
            "letp lr, 2b",
            count = in(reg) count, sums = inout(reg) sums.as_ptr() => _,
            bias = inout(reg) bias.as_ptr() => _, inout("r1") out.as_mut_ptr() => _,
            multiplier = in(reg) multiplier, shift = in(reg) shift, offset = in(reg) offset,
            least = in(reg) least, greatest = in(reg) greatest, out("lr") _, out("d0") _,
            out("d1") _, out("d2") _, out("d3") _, out("d4") _, out("d5") _, out("d6") _,
            out("d7") _, options(nostack),
        );
    }
}

/// Requantizes sums that fit 30 bits with their bias, each with its own multiplier and negative
/// shift.
pub(in crate::compute::q8) fn requantize_per_channel(
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
    // SAFETY: as in `requantize_uniform`.
    unsafe {
        asm!(
            "vdup.32 q2, {least}",
            "vdup.32 q3, {greatest}",
            "dlstp.32 lr, {count}",
            "2:",
            concat!(four_sums!(), scale_each!(), store_four!()),
            "letp lr, 2b",
            count = in(reg) count, sums = inout(reg) sums.as_ptr() => _,
            bias = inout(reg) bias.as_ptr() => _, inout("r1") out.as_mut_ptr() => _,
            multipliers = inout(reg) multipliers.as_ptr() => _,
            shifts = inout(reg) shifts.as_ptr() => _, offset = in(reg) offset,
            least = in(reg) least, greatest = in(reg) greatest, out("lr") _, out("d0") _,
            out("d1") _, out("d2") _, out("d3") _, out("d4") _, out("d5") _, out("d6") _,
            out("d7") _, options(nostack),
        );
    }
}

/// Like [`requantize_per_channel`], for the first `count` sums of each row. The results of
/// consecutive rows have a stride of `stride`.
pub(in crate::compute::q8) fn finish_rows<const R: usize>(
    sums: &[[i32; CHANNELS]; R],
    count: usize,
    [bias, multipliers, shifts]: [&[i32]; 3],
    [offset, least, greatest]: [i32; 3],
    out: &mut [i8],
    stride: usize,
) {
    if count == 0 || R == 0 {
        return;
    }
    assert!(bias.len().min(multipliers.len()).min(shifts.len()) >= count && count <= CHANNELS);
    let end = stride.checked_mul(R - 1).and_then(|last| last.checked_add(count));
    assert!(end.is_some_and(|end| end <= out.len()));
    // SAFETY: `count` elements of the slices, and of each row of sums and results, are accessed,
    // which exist, as asserted. Pointers advance by whole vectors; `back` holds that distance in
    // bytes once the bound has been copied from its register.
    unsafe {
        asm!(
            "vdup.32 q2, {back}",
            "vdup.32 q3, {greatest}",
            "add {back}, {count}, #3",
            "bic {back}, {back}, #3",
            "lsl {back}, {back}, #2",
            "2:",
            "dlstp.32 lr, {count}",
            "3:",
            concat!(four_sums!(), scale_each!(), store_four!()),
            "letp lr, 3b",
            "add {sums}, {sums}, #{row}",
            "sub {sums}, {sums}, {back}",
            "sub {bias}, {bias}, {back}",
            "sub {multipliers}, {multipliers}, {back}",
            "sub {shifts}, {shifts}, {back}",
            "add r1, r1, {stride}",
            "sub r1, r1, {back}, lsr #2",
            "subs {rows}, {rows}, #1",
            "bne 2b",
            row = const CHANNELS * size_of::<i32>(), count = in(reg) count,
            rows = inout(reg) R => _, sums = inout(reg) sums.as_ptr() => _,
            bias = inout(reg) bias.as_ptr() => _, inout("r1") out.as_mut_ptr() => _,
            multipliers = inout(reg) multipliers.as_ptr() => _,
            shifts = inout(reg) shifts.as_ptr() => _, offset = in(reg) offset,
            stride = in(reg) stride, back = inout(reg) least => _, greatest = in(reg) greatest,
            out("lr") _, out("d0") _, out("d1") _, out("d2") _, out("d3") _, out("d4") _,
            out("d5") _, out("d6") _, out("d7") _, options(nostack),
        );
    }
}
