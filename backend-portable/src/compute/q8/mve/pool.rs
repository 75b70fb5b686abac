//! Pooling over the taps of windows, with channels side by side.

use crate::compute::q8::depthwise::Covered;
use crate::compute::q8::dsp;
use core::arch::asm;

/// Number of channels that one call of [`average`] computes.
pub(in crate::compute::q8) const TOGETHER: usize = 8;

/// Averages channels over all taps, rounded to the nearest, ties away from zero. `count` is the
/// number of taps, 2 to 255, so that sums fit 16 bits. Each sum is divided by multiplying with the
/// reciprocal, rounded up, and taking the upper half.
pub(in crate::compute::q8) fn average(
    input: &[i8],
    covered: Covered,
    count: u8,
    out: &mut [i8; TOGETHER],
) {
    assert!(dsp::is_inside(input.len(), covered.input, &covered, TOGETHER));
    if covered.rows == 0 || covered.columns == 0 || count < 2 {
        return out.fill(0);
    }
    let reciprocal = u32::MAX / u32::from(count) + 1;
    let [first, down, across] = covered.input;
    let back = down.wrapping_sub(across.wrapping_mul(covered.columns));
    // SAFETY: each tap and the values after it lie in the input, as asserted.
    unsafe {
        asm!(
            "vmov.i32 q0, #0",
            "2:",
            "dls lr, {columns}",
            "3:",
            "vldrb.s16 q1, [r1]",
            "add r1, r1, {across}",
            "vadd.i16 q0, q0, q1",
            "le lr, 3b",
            "add r1, r1, {back}",
            "subs {rows}, {rows}, #1",
            "bne 2b",
            // Magnitudes of the even lanes, then of the odd ones; XOR with the sign mask and
            // subtraction restore the signs.
            "vdup.32 q4, {reciprocal}",
            "vmovlb.s16 q1, q0",
            "vabs.s32 q2, q1",
            "vadd.i32 q2, q2, {half}",
            "vmulh.u32 q2, q2, q4",
            "vshr.s32 q1, q1, #31",
            "veor q2, q2, q1",
            "vsub.i32 q2, q2, q1",
            "vmovlt.s16 q1, q0",
            "vabs.s32 q3, q1",
            "vadd.i32 q3, q3, {half}",
            "vmulh.u32 q3, q3, q4",
            "vshr.s32 q1, q1, #31",
            "veor q3, q3, q1",
            "vsub.i32 q3, q3, q1",
            "vmovnb.i32 q0, q2",
            "vmovnt.i32 q0, q3",
            "vstrb.16 q0, [r3]",
            columns = in(reg) covered.columns, rows = inout(reg) covered.rows => _,
            across = in(reg) across, back = in(reg) back, half = in(reg) u32::from(count / 2),
            reciprocal = in(reg) reciprocal, in("r3") out.as_mut_ptr(),
            inout("r1") input.as_ptr().wrapping_add(first) => _, out("lr") _, out("d0") _,
            out("d1") _, out("d2") _, out("d3") _, out("d4") _, out("d5") _, out("d6") _,
            out("d7") _, out("d8") _, out("d9") _, options(nostack),
        );
    }
}

/// Number of channels that one call of [`largest`] computes.
pub(in crate::compute::q8) const WIDTH: usize = 16;

/// Computes the maxima of channels over all taps.
pub(in crate::compute::q8) fn largest(input: &[i8], covered: Covered, out: &mut [i8; WIDTH]) {
    assert!(dsp::is_inside(input.len(), covered.input, &covered, WIDTH));
    if covered.rows == 0 || covered.columns == 0 {
        return out.fill(i8::MIN);
    }
    let [first, down, across] = covered.input;
    let back = down.wrapping_sub(across.wrapping_mul(covered.columns));
    // SAFETY: each tap and the values after it lie in the input, as asserted.
    unsafe {
        asm!(
            "vmov.i8 q1, #0x80",
            "2:",
            "dls lr, {columns}",
            "3:",
            "vldrb.u8 q0, [{input}]",
            "add {input}, {input}, {across}",
            "vmax.s8 q1, q1, q0",
            "le lr, 3b",
            "add {input}, {input}, {back}",
            "subs {rows}, {rows}, #1",
            "bne 2b",
            "vstrb.8 q1, [{out}]",
            columns = in(reg) covered.columns, rows = inout(reg) covered.rows => _,
            across = in(reg) across, back = in(reg) back, out = in(reg) out.as_mut_ptr(),
            input = inout(reg) input.as_ptr().wrapping_add(first) => _, out("lr") _, out("d0") _,
            out("d1") _, out("d2") _, out("d3") _, options(nostack),
        );
    }
}

/// Computes the element-wise maximum, up to the shorter length, and returns that length.
pub(in crate::compute::q8) fn max_in_place(quantized: &[i8], largest: &mut [i8]) -> usize {
    let count = quantized.len().min(largest.len());
    if count == 0 {
        return 0;
    }
    // SAFETY: `count` elements of both slices are read and written.
    unsafe {
        asm!(
            "dlstp.8 lr, {count}",
            "2:",
            "vldrb.u8 q0, [{quantized}], #16",
            "vldrb.u8 q1, [{largest}]",
            "vmax.s8 q1, q1, q0",
            "vstrb.8 q1, [{largest}], #16",
            "letp lr, 2b",
            count = in(reg) count, quantized = inout(reg) quantized.as_ptr() => _,
            largest = inout(reg) largest.as_mut_ptr() => _, out("lr") _, out("d0") _, out("d1") _,
            out("d2") _, out("d3") _, options(nostack),
        );
    }
    count
}
