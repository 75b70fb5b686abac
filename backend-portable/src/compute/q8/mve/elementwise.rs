//! Sums and products of codes, four at a time.
//!
//! A rounding product of 31 bits is what [`Scale`](crate::compute::q8::Scale) begins with. What is
//! shifted out then is rounded half up, and so away from zero, as it must, where negative numbers
//! are one less; but not where nothing is shifted out.

use crate::compute::q8::elementwise::{Product, Sum};
use core::arch::asm;

/// Text that shifts lanes as others say, which are negative or zero: to the nearest, halves away
/// from zero. What is in q1 is lost.
macro_rules! shift_out {
    ($lanes:literal, $shifts:literal) => {
        concat!(
            "vand q1, ",
            $lanes,
            ", ",
            $shifts,
            "\nvshr.s32 q1, q1, #31",
            "\nvadd.i32 ",
            $lanes,
            ", ",
            $lanes,
            ", q1",
            "\nvrshl.s32 ",
            $lanes,
            ", ",
            $lanes,
            ", ",
            $shifts
        )
    };
}

/// Numbers of the loops for which there are no registers: four of each, as vectors have them.
#[repr(C)]
struct Wide<const N: usize> {
    /// Shifts of scales, then bounds.
    vectors: [[i32; 4]; N],
    /// Added to codes of the second input.
    zero: i32,
    out: *mut i8,
}

/// Adds codes: as many as there are in all three. No scale shifts to the left, and `room` is less
/// than 32.
pub(in crate::compute::q8) fn add_codes(sum: &Sum, [a, b]: [&[i8]; 2], out: &mut [i8]) {
    let count = out.len().min(a.len()).min(b.len());
    if count == 0 {
        return;
    }
    let [first, second] = sum.scales;
    let numbers = [first.shift(), second.shift(), sum.scale.shift(), sum.bounds.0, sum.bounds.1];
    let zeros = sum.zeros.map(i32::wrapping_neg);
    let wide =
        Wide { vectors: numbers.map(|number| [number; 4]), zero: zeros[1], out: out.as_mut_ptr() };
    // SAFETY: as many elements of the slices are read and written as the shortest has, and `wide`
    // is as the first loads take it.
    unsafe {
        asm!(
            "vldrw.u32 q3, [r5]",
            "vldrw.u32 q4, [r5, #16]",
            "vldrw.u32 q5, [r5, #32]",
            "vldrw.u32 q6, [r5, #48]",
            "vldrw.u32 q7, [r5, #64]",
            "dlstp.32 lr, r4",
            "ldr r4, [r5, #80]",
            "ldr r5, [r5, #84]",
            "2:",
            "vldrb.s32 q0, [r1], #4",
            "vldrb.s32 q2, [r3], #4",
            "vadd.i32 q0, q0, {zero}",
            "vadd.i32 q2, q2, r4",
            "vshl.s32 q0, {room}",
            "vshl.s32 q2, {room}",
            "vqrdmulh.s32 q0, q0, {first}",
            "vqrdmulh.s32 q2, q2, {second}",
            shift_out!("q0", "q3"),
            shift_out!("q2", "q4"),
            "vadd.i32 q0, q0, q2",
            "vqrdmulh.s32 q0, q0, {scale}",
            shift_out!("q0", "q5"),
            "vadd.i32 q0, q0, {offset}",
            "vmax.s32 q0, q0, q6",
            "vmin.s32 q0, q0, q7",
            "vstrb.32 q0, [r5], #4",
            "letp lr, 2b",
            zero = in(reg) zeros[0], room = in(reg) sum.room, first = in(reg) first.multiplier(),
            second = in(reg) second.multiplier(), scale = in(reg) sum.scale.multiplier(),
            offset = in(reg) sum.offset, inout("r1") a.as_ptr() => _, inout("r3") b.as_ptr() => _,
            inout("r4") count => _, inout("r5") &raw const wide => _, out("lr") _, out("d0") _,
            out("d1") _, out("d2") _, out("d3") _, out("d4") _, out("d5") _, out("d6") _,
            out("d7") _, out("d8") _, out("d9") _, out("d10") _, out("d11") _, out("d12") _,
            out("d13") _, out("d14") _, out("d15") _, options(nostack),
        );
    }
}

/// Multiplies codes: as many as there are in all three. The scale does not shift to the left.
pub(in crate::compute::q8) fn multiply_codes(
    product: &Product,
    [a, b]: [&[i8]; 2],
    out: &mut [i8],
) {
    let count = out.len().min(a.len()).min(b.len());
    if count == 0 {
        return;
    }
    let numbers = [product.scale.shift(), product.bounds.0, product.bounds.1];
    let zeros = product.zeros.map(i32::wrapping_neg);
    let wide =
        Wide { vectors: numbers.map(|number| [number; 4]), zero: zeros[1], out: out.as_mut_ptr() };
    // SAFETY: as above.
    unsafe {
        asm!(
            "vldrw.u32 q3, [r5]",
            "vldrw.u32 q4, [r5, #16]",
            "vldrw.u32 q5, [r5, #32]",
            "dlstp.32 lr, r4",
            "ldr r4, [r5, #48]",
            "ldr r5, [r5, #52]",
            "2:",
            "vldrb.s32 q0, [r1], #4",
            "vldrb.s32 q2, [r3], #4",
            "vadd.i32 q0, q0, {zero}",
            "vadd.i32 q2, q2, r4",
            "vmul.i32 q0, q0, q2",
            "vqrdmulh.s32 q0, q0, {scale}",
            shift_out!("q0", "q3"),
            "vadd.i32 q0, q0, {offset}",
            "vmax.s32 q0, q0, q4",
            "vmin.s32 q0, q0, q5",
            "vstrb.32 q0, [r5], #4",
            "letp lr, 2b",
            zero = in(reg) zeros[0], scale = in(reg) product.scale.multiplier(),
            offset = in(reg) product.offset, inout("r1") a.as_ptr() => _,
            inout("r3") b.as_ptr() => _, inout("r4") count => _, inout("r5") &raw const wide => _,
            out("lr") _, out("d0") _, out("d1") _, out("d2") _, out("d3") _, out("d4") _,
            out("d5") _, out("d6") _, out("d7") _, out("d8") _, out("d9") _, out("d10") _,
            out("d11") _, options(nostack),
        );
    }
}
