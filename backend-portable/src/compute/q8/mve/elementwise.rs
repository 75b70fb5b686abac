//! Element-wise addition and multiplication, four values at a time.
//!
//! `vqrdmulh` is the doubling high multiplication of [`Scale`](crate::compute::q8::Scale). The
//! shift `vrshl` rounds ties up; subtracting one from negative values first rounds them away from
//! zero, as required. That subtraction must be skipped where the shift is zero.

use crate::compute::q8::elementwise::{Product, Sum};
use core::arch::asm;

/// Assembly that shifts lanes right by the magnitudes in other lanes, which are negative or zero,
/// and rounds to the nearest, ties away from zero. Clobbers q1.
macro_rules! rounding_shift_add {
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

/// Loop constants that do not fit in registers, each repeated four times as a vector.
#[repr(C)]
struct Wide<const N: usize> {
    /// Shifts of the scales, then the bounds.
    vectors: [[i32; 4]; N],
    /// Zero point added to the values of the second operand.
    zero: i32,
    out: *mut i8,
}

/// Adds quantized values, up to the shortest length. All scales shift to the right or not at all,
/// and `headroom` is less than 32.
pub(in crate::compute::q8) fn add_quantized(sum: &Sum, [a, b]: [&[i8]; 2], out: &mut [i8]) {
    let count = out.len().min(a.len()).min(b.len());
    if count == 0 {
        return;
    }
    let [first, second] = sum.scales;
    let numbers = [first.shift(), second.shift(), sum.scale.shift(), sum.bounds.0, sum.bounds.1];
    let zeros = sum.zeros.map(i32::wrapping_neg);
    let wide =
        Wide { vectors: numbers.map(|number| [number; 4]), zero: zeros[1], out: out.as_mut_ptr() };
    // SAFETY: as many elements of the slices are accessed as the shortest has, and the first loads
    // match the layout of `wide`.
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
            "vshl.s32 q0, {headroom}",
            "vshl.s32 q2, {headroom}",
            "vqrdmulh.s32 q0, q0, {first}",
            "vqrdmulh.s32 q2, q2, {second}",
            rounding_shift_add!("q0", "q3"),
            rounding_shift_add!("q2", "q4"),
            "vadd.i32 q0, q0, q2",
            "vqrdmulh.s32 q0, q0, {scale}",
            rounding_shift_add!("q0", "q5"),
            "vadd.i32 q0, q0, {offset}",
            "vmax.s32 q0, q0, q6",
            "vmin.s32 q0, q0, q7",
            "vstrb.32 q0, [r5], #4",
            "letp lr, 2b",
            zero = in(reg) zeros[0], headroom = in(reg) sum.headroom,
            first = in(reg) first.multiplier(),
            second = in(reg) second.multiplier(), scale = in(reg) sum.scale.multiplier(),
            offset = in(reg) sum.offset, inout("r1") a.as_ptr() => _, inout("r3") b.as_ptr() => _,
            inout("r4") count => _, inout("r5") &raw const wide => _, out("lr") _, out("d0") _,
            out("d1") _, out("d2") _, out("d3") _, out("d4") _, out("d5") _, out("d6") _,
            out("d7") _, out("d8") _, out("d9") _, out("d10") _, out("d11") _, out("d12") _,
            out("d13") _, out("d14") _, out("d15") _, options(nostack),
        );
    }
}

/// Multiplies quantized values, up to the shortest length. The scale shifts to the right or not at
/// all.
pub(in crate::compute::q8) fn multiply_quantized(
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
            rounding_shift_add!("q0", "q3"),
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
