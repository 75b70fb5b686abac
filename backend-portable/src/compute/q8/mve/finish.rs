//! Sums become codes, four at a time.
//!
//! The sums fit 30 bits with their bias, so that nothing saturates. The rounding product is that of the DSP extension's; a shift rounds
//! halves up, and so away from zero, as it must, where negative numbers are one less.

use core::arch::asm;

/// Codes of sums that fit 30 bits with their bias: by one multiplier and one shift, which is negative, for all.
pub(in crate::compute::q8) fn finish_alike(
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
    // SAFETY: as many elements of the slices are read and written as they have, as asserted.
    unsafe {
        asm!(
            "vdup.32 q2, {least}",
            "vdup.32 q3, {greatest}",
            "dlstp.32 lr, {count}",
            "2:",
            "vldrw.u32 q0, [{sums}], #16",
            "vldrw.u32 q1, [{bias}], #16",
            "vadd.i32 q0, q0, q1",
            "vqrdmulh.s32 q0, q0, {multiplier}",
            "vshr.s32 q1, q0, #31",
            "vadd.i32 q0, q0, q1",
            "vrshl.s32 q0, {shift}",
            "vadd.i32 q0, q0, {offset}",
            "vmax.s32 q0, q0, q2",
            "vmin.s32 q0, q0, q3",
            "vstrb.32 q0, [r1], #4",
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

/// Codes of sums that fit 30 bits with their bias: by a multiplier and a shift, which is negative, for each.
pub(in crate::compute::q8) fn finish_each(
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
    // SAFETY: as in `finish_alike`.
    unsafe {
        asm!(
            "vdup.32 q2, {least}",
            "vdup.32 q3, {greatest}",
            "dlstp.32 lr, {count}",
            "2:",
            "vldrw.u32 q0, [{sums}], #16",
            "vldrw.u32 q1, [{bias}], #16",
            "vadd.i32 q0, q0, q1",
            "vldrw.u32 q1, [{multipliers}], #16",
            "vqrdmulh.s32 q0, q0, q1",
            "vshr.s32 q1, q0, #31",
            "vadd.i32 q0, q0, q1",
            "vldrw.u32 q1, [{shifts}], #16",
            "vrshl.s32 q0, q0, q1",
            "vadd.i32 q0, q0, {offset}",
            "vmax.s32 q0, q0, q2",
            "vmin.s32 q0, q0, q3",
            "vstrb.32 q0, [r1], #4",
            "letp lr, 2b",
            count = in(reg) count, sums = inout(reg) sums.as_ptr() => _,
            bias = inout(reg) bias.as_ptr() => _,
            multipliers = inout(reg) multipliers.as_ptr() => _,
            shifts = inout(reg) shifts.as_ptr() => _, inout("r1") out.as_mut_ptr() => _,
            offset = in(reg) offset, least = in(reg) least, greatest = in(reg) greatest,
            out("lr") _, out("d0") _, out("d1") _, out("d2") _, out("d3") _, out("d4") _,
            out("d5") _, out("d6") _, out("d7") _, options(nostack),
        );
    }
}
