//! Requantization of sums.

use core::arch::asm;

/// SMMULR: the upper half of the 64-bit product, rounded to the nearest, ties up. `twice` is the
/// doubled value.
#[inline(always)]
pub(in crate::compute::q8) fn smmulr(twice: i32, multiplier: i32) -> i32 {
    let result: i32;
    // SAFETY: accesses only registers.
    unsafe {
        asm!("smmulr {result}, {a}, {b}", result = lateout(reg) result, a = in(reg) twice,
            b = in(reg) multiplier, options(pure, nomem, nostack, preserves_flags));
    }
    result
}

/// Rounding right shift by 1 to 31 bits, ties away from zero, then adds an offset. `shift` is the
/// left shift, so it is negative.
#[inline(always)]
pub(in crate::compute::q8) fn rounding_shift_add(value: i32, shift: i32, offset: i32) -> i32 {
    let result: i32;
    // SAFETY: accesses only registers and declares changed flags. The carry is the last bit that is
    // shifted out.
    unsafe {
        asm!("add {t}, {value}, {value}, asr #31", "asr {t}, {t}, {bits}", "asrs {t}, {t}, #1",
            "adc {result}, {offset}, {t}", t = out(reg) _, result = lateout(reg) result,
            value = in(reg) value, bits = in(reg) !shift, offset = in(reg) offset,
            options(pure, nomem, nostack));
    }
    result
}

#[cfg(not(arm_mve))]
/// Assembly that clamps a value to bounds in registers.
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

#[cfg(not(arm_mve))]
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
    // SAFETY: exactly `count` elements of the slices are read and written, as asserted. The right
    // shift is done in two steps.
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

#[cfg(not(arm_mve))]
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
    /// The loop, with the clamping instructions and their operands.
    macro_rules! run {
        ($cut:expr, $($operands:tt)*) => {
            // SAFETY: as in `requantize_uniform`.
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
