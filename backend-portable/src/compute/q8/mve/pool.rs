//! Windows of pictures, channels side by side.

use crate::compute::q8::depthwise::Covered;
use crate::compute::q8::dsp;
use core::arch::asm;

/// Channels that [`total`] sums up.
pub(in crate::compute::q8) const TOGETHER: usize = 8;

/// The sums of channels over all taps, of which there are fewer than 256: they fit 16 bits.
pub(in crate::compute::q8) fn total(input: &[i8], covered: Covered) -> [i32; TOGETHER] {
    assert!(dsp::is_inside(input.len(), covered.codes, &covered, TOGETHER));
    let mut sums = [0i16; TOGETHER];
    if covered.rows == 0 || covered.columns == 0 {
        return [0; TOGETHER];
    }
    let [first, down, across] = covered.codes;
    let back = down.wrapping_sub(across.wrapping_mul(covered.columns));
    // SAFETY: each tap and the places behind it lie in the input, as asserted.
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
            "vstrh.16 q0, [{sums}]",
            columns = in(reg) covered.columns, rows = inout(reg) covered.rows => _,
            across = in(reg) across, back = in(reg) back, sums = in(reg) sums.as_mut_ptr(),
            inout("r1") input.as_ptr().wrapping_add(first) => _, out("lr") _, out("d0") _,
            out("d1") _, out("d2") _, out("d3") _, options(nostack),
        );
    }
    sums.map(i32::from)
}

/// The larger of each pair of codes. Gives how many those are.
pub(in crate::compute::q8) fn keep_larger(codes: &[i8], largest: &mut [i8]) -> usize {
    let count = codes.len().min(largest.len());
    if count == 0 {
        return 0;
    }
    // SAFETY: as many elements are read and written as both slices have.
    unsafe {
        asm!(
            "dlstp.8 lr, {count}",
            "2:",
            "vldrb.u8 q0, [{codes}], #16",
            "vldrb.u8 q1, [{largest}]",
            "vmax.s8 q1, q1, q0",
            "vstrb.8 q1, [{largest}], #16",
            "letp lr, 2b",
            count = in(reg) count, codes = inout(reg) codes.as_ptr() => _,
            largest = inout(reg) largest.as_mut_ptr() => _, out("lr") _, out("d0") _, out("d1") _,
            out("d2") _, out("d3") _, options(nostack),
        );
    }
    count
}
