//! The loops in assembly: the compiler has no stable intrinsics for the instructions, and too few
//! registers remain for operands of inline assembly. Functions get a structure with their
//! arguments, whose fields they advance.

use super::depthwise::KERNEL;
use super::linear::FEATURES;
use super::{AddPacked, ConvolvePacked, HEADROOM, LinearPacked};
use super::{Block, CHANNEL_WORDS, ROWS, UNIT, rounding};
use crate::compiled::Extent;
use core::arch::{asm, naked_asm};

/// Assembly that requantizes a sum with its bias. Registers: sum, multiplier, shift, the offset
/// with its rounding term shifted by that, and one that is overwritten.
macro_rules! requantize {
    ($sum:literal, $multiplier:literal, $shift:literal, $rounding:literal, $other:literal) => {
        concat!(
            "add ",
            $other,
            ", ",
            $rounding,
            ", ",
            $sum,
            ", asr #31\n",
            "lsl ",
            $sum,
            ", ",
            $sum,
            ", #1\n",
            "smmlar ",
            $sum,
            ", ",
            $sum,
            ", ",
            $multiplier,
            ", ",
            $other,
            "\n",
            "asr ",
            $sum,
            ", ",
            $sum,
            ", ",
            $shift,
            "\n",
            "ssat ",
            $sum,
            ", #8, ",
            $sum,
            ", asr #1\n",
        )
    };
}

/// Number of units, as blocks of four minus one in the upper half, and the rest.
fn blocks(units: usize) -> usize {
    (((units / 4) << 16) | (units % 4)).wrapping_sub(1 << 16)
}

/// Units from which their number does not fit [`blocks`].
const MAX_UNITS: usize = 1 << 16;

/// Assembly that repeats one for units. `lr` has their number as [`blocks`].
macro_rules! for_each_unit {
    ($unit:expr) => {
        concat!(
            "cmp lr, #0
             blt 3f
             2:\n",
            $unit,
            $unit,
            $unit,
            $unit,
            "subs lr, lr, #0x10000
             bpl 2b
             3:
             lsls lr, lr, #16
             beq 5f
             4:\n",
            $unit,
            "subs lr, lr, #0x10000
             bne 4b
             5:\n",
        )
    };
}

/// Widens a block of values, adding an offset, to rows of which `R` are interleaved.
#[inline(always)]
pub(super) fn widen<const R: usize>(values: &[i8], block: Block, offset: i16, wide: &mut [i16]) {
    let Block { rows, units, step, row, goes_down } = block;
    if rows == 0 || units == 0 {
        return;
    }
    // The next row is the following part of the same row of `wide`, or the one below.
    let last = if goes_down { row + rows - 1 } else { row };
    let len = units * if goes_down { 1 } else { rows };
    assert!(last < R && wide.len() >= len * UNIT * R && wide.as_ptr().cast::<u32>().is_aligned());
    assert!(values.len() >= (rows - 1) * step + units * UNIT && step >= units * UNIT);
    let added = u32::from(offset as u16) * 0x1_0001;
    /// Assembly for a unit.
    macro_rules! unit {
        () => {
            "ldr {v}, [{values}], #4
             sxtab16 {w}, {added}, {v}
             sxtab16 {v}, {added}, {v}, ror #8
             str {w}, [{wide}], #{word}
             str {v}, [{wide}], #{word}\n"
        };
    }
    // SAFETY: `units` units of values are read, and as many units written, for each row, as
    // asserted. Words are read at any address, which these instructions allow.
    unsafe {
        asm!(
            concat!(
                "2:
                 lsrs {count}, {units}, #1
                 beq 4f
                 3:\n",
                unit!(), unit!(),
                "subs {count}, {count}, #1
                 bne 3b
                 4:
                 tst {units}, #1
                 beq 5f\n",
                unit!(),
                "5:
                 add {values}, {values}, {values_gap}
                 add {wide}, {wide}, {wide_gap}
                 subs {rows}, {rows}, #1
                 bne 2b"
            ),
            values = inout(reg) values.as_ptr() => _,
            wide = inout(reg) wide.as_mut_ptr().wrapping_add(2 * row) => _,
            rows = inout(reg) rows => _, units = in(reg) units,
            values_gap = in(reg) step - units * UNIT,
            wide_gap = in(reg) if goes_down { 4 - (units * 8 * R) as isize } else { 0 },
            added = in(reg) added, word = const 4 * R,
            count = out(reg) _, v = out(reg) _, w = out(reg) _, options(nostack),
        );
    }
}

/// Arguments of [`run_three_rows`].
#[repr(C)]
struct Rows {
    wide: *const i16,
    channels: *const i32,
    blocks: usize,
    rounding: i32,
    out: *mut i8,
    /// Offsets of the second and third row of the output.
    second: usize,
    third: usize,
    /// End of the channels.
    end: *const i32,
    weights: *const u8,
}

/// Computes all channels of `count` pixels from their widened windows.
pub(super) fn three_rows(
    call: &ConvolvePacked,
    units: usize,
    wide: &[i16],
    count: usize,
    out: &mut [i8],
) {
    let channels = call.to.channels;
    // The results of rows that are not wanted are overwritten by those of the one before.
    let [second, third] = [1, 2].map(|row: usize| row.min(count.saturating_sub(1)) * channels);
    assert!(wide.len() >= units * UNIT * ROWS && wide.as_ptr().cast::<u32>().is_aligned());
    assert!(call.weights.len() >= channels * units * UNIT && out.len() >= third + channels);
    assert!(call.channels.len() == channels * CHANNEL_WORDS && channels.is_multiple_of(2));
    assert!((1..MAX_UNITS).contains(&units) && channels != 0);
    let mut rows = Rows {
        wide: wide.as_ptr(),
        channels: call.channels.as_ptr(),
        blocks: blocks(units),
        rounding: rounding(call.zero),
        out: out.as_mut_ptr(),
        second,
        third,
        end: call.channels.as_ptr_range().end,
        weights: call.weights.as_ptr(),
    };
    // SAFETY: for each pair of channels, six parameters and `units` units of the weights of two
    // rows are read, and `units` units of three rows, as asserted. Two results are written to each
    // row.
    unsafe { run_three_rows(&mut rows) }
}

/// Assembly for half a unit: two values of two channels, and of three rows.
macro_rules! half_of_rows {
    () => {
        "ldr r6, [r12], #4
         ldm r11!, {{r8, r9, r10}}
         sxtb16 r7, r6
         sxtb16 r6, r6, ror #8
         smlad r0, r8, r7, r0
         smlad r1, r8, r6, r1
         smlad r2, r9, r7, r2
         smlad r3, r9, r6, r3
         smlad r4, r10, r7, r4
         smlad r5, r10, r6, r5\n"
    };
}

/// # Safety
/// The slices of the arguments have the lengths that [`three_rows`] asserts.
#[unsafe(naked)]
unsafe extern "C" fn run_three_rows(rows: &mut Rows) {
    naked_asm!(
        "push {{r0, r4-r11, lr}}
         ldr r12, [r0, #32]
         1:
         ldr r7, [sp]
         ldrd r11, r9, [r7]
         ldr lr, [r7, #8]
         ldr r0, [r9]
         ldr r1, [r9, #12]
         mov r2, r0
         mov r3, r1
         mov r4, r0
         mov r5, r1",
        for_each_unit!(concat!(half_of_rows!(), half_of_rows!())),
        "ldr r7, [sp]
         ldr r9, [r7, #4]
         ldr lr, [r7, #12]
         ldrd r10, r11, [r9, #4]
         lsl r8, lr, r11",
        requantize!("r0", "r10", "r11", "r8", "r6"),
        requantize!("r2", "r10", "r11", "r8", "r6"),
        requantize!("r4", "r10", "r11", "r8", "r6"),
        "ldrd r10, r11, [r9, #16]
         lsl r8, lr, r11",
        requantize!("r1", "r10", "r11", "r8", "r6"),
        requantize!("r3", "r10", "r11", "r8", "r6"),
        requantize!("r5", "r10", "r11", "r8", "r6"),
        "add r9, r9, #24
         str r9, [r7, #4]
         ldrd r10, r11, [r7, #16]
         ldrd r6, r8, [r7, #24]
         bfi r4, r5, #8, #8
         strh r4, [r10, r6]
         bfi r2, r3, #8, #8
         strh r2, [r10, r11]
         bfi r0, r1, #8, #8
         strh r0, [r10], #2
         str r10, [r7, #16]
         cmp r9, r8
         bne 1b
         pop {{r0, r4-r11, pc}}",
    )
}

/// Arguments of [`run_one_row`].
#[repr(C)]
struct Row {
    wide: *const i16,
    bias: *const [i32; FEATURES],
    blocks: usize,
    rounding: i32,
    multiplier: i32,
    shift: i32,
    out: *mut [i8; FEATURES],
    /// End of the output.
    end: *const [i8; FEATURES],
    weights: *const u8,
    /// Bytes of the weights of two features.
    step: usize,
}

/// Computes the output features from `first` on.
pub(super) fn one_row(
    call: &LinearPacked,
    units: usize,
    wide: &[i16],
    first: usize,
    bias: &[[i32; FEATURES]],
    out: &mut [[i8; FEATURES]],
) {
    if out.is_empty() {
        return;
    }
    let weights = &call.weights[first * units * UNIT..];
    assert!(wide.len() >= units * UNIT && wide.as_ptr().cast::<u32>().is_aligned());
    assert!(bias.len() >= out.len() && first.is_multiple_of(2) && !weights.is_empty());
    // If only two features remain, their weights are read twice.
    let pair = 2 * units * UNIT;
    let step = if weights.len() == pair { 0 } else { pair };
    assert!(weights.len() >= (2 * out.len() - 1) * step + pair);
    assert!((1..MAX_UNITS).contains(&units));
    let end = out.as_ptr_range().end;
    let mut row = Row {
        wide: wide.as_ptr(),
        bias: bias.as_ptr(),
        blocks: blocks(units),
        rounding: rounding(call.zero) << call.channel.shift,
        multiplier: call.channel.multiplier,
        shift: call.channel.shift,
        out: out.as_mut_ptr(),
        end,
        weights: weights.as_ptr(),
        step,
    };
    // SAFETY: for each four features, four biases and the weights of four rows are read, and
    // `units` units of one row, as asserted. Four results are written.
    unsafe { run_one_row(&mut row) }
}

/// Assembly that multiplies a unit of the row with the weights of two features.
macro_rules! two_features {
    ($weights:literal, $first:literal, $second:literal) => {
        concat!(
            "ldrd r4, r5, [",
            $weights,
            "], #8
             sxtb16 r8, r4
             smlad ",
            $first,
            ", r6, r8, ",
            $first,
            "
             sxtb16 r4, r4, ror #8
             smlad ",
            $second,
            ", r6, r4, ",
            $second,
            "
             sxtb16 r8, r5
             smlad ",
            $first,
            ", r7, r8, ",
            $first,
            "
             sxtb16 r5, r5, ror #8
             smlad ",
            $second,
            ", r7, r5, ",
            $second,
            "\n",
        )
    };
}

/// # Safety
/// The slices of the arguments have the lengths that [`one_row`] asserts.
#[unsafe(naked)]
unsafe extern "C" fn run_one_row(row: &mut Row) {
    naked_asm!(
        "push {{r0, r4-r11, lr}}
         ldr r12, [r0, #32]
         1:
         ldr r7, [sp]
         ldrd r11, r9, [r7]
         ldr lr, [r7, #8]
         ldr r10, [r7, #36]
         add r10, r12, r10
         ldm r9!, {{r0, r1, r2, r3}}
         str r9, [r7, #4]",
        for_each_unit!(concat!(
            "ldrd r6, r7, [r11], #8\n",
            two_features!("r12", "r0", "r1"),
            two_features!("r10", "r2", "r3"),
        )),
        "ldr r7, [sp]
         ldrd r9, r5, [r7, #12]
         ldr r6, [r7, #20]",
        requantize!("r0", "r5", "r6", "r9", "r8"),
        requantize!("r1", "r5", "r6", "r9", "r8"),
        requantize!("r2", "r5", "r6", "r9", "r8"),
        requantize!("r3", "r5", "r6", "r9", "r8"),
        "bfi r0, r1, #8, #8
         bfi r0, r2, #16, #8
         bfi r0, r3, #24, #8
         ldrd r8, r9, [r7, #24]
         str r0, [r8], #4
         str r8, [r7, #24]
         mov r12, r10
         cmp r8, r9
         bne 1b
         pop {{r0, r4-r11, pc}}",
    )
}

/// Weights and parameters of a channel of a depthwise convolution.
#[repr(C)]
pub(super) struct Kernel {
    /// For each row, pairs of the first two and of the last two weights.
    weights: [i16; 4 * KERNEL],
    bias: i32,
    rounding: i32,
    multiplier: i32,
    shift: i32,
}

impl Kernel {
    pub(super) fn new(
        weights: &[i8; KERNEL * KERNEL],
        [bias, multiplier, shift]: [i32; CHANNEL_WORDS],
        zero: i32,
    ) -> Self {
        let [a, b, c, d, e, f, g, h, i] = weights.map(i16::from);
        let weights = [a, b, b, c, d, e, e, f, g, h, h, i];
        Kernel { weights, bias, rounding: rounding(zero) << shift, multiplier, shift }
    }
}

/// Arguments of [`run_copy_channel`].
#[repr(C)]
struct Copy {
    input: *const i8,
    channels: usize,
    rows: usize,
    columns: usize,
    inside: *mut i16,
    /// Bytes of a row of the plane.
    step: usize,
    /// Whether the inside starts in the middle of a word.
    is_odd: usize,
}

/// Copies a channel of an image to the inside of a plane whose rows have `columns` values, and
/// which starts after `before` values of a row.
pub(super) fn copy_channel(
    input: &[i8],
    from: Extent,
    inside: &mut [i16],
    [before, columns]: [usize; 2],
) {
    let Extent { rows, columns: width, channels } = from;
    if rows == 0 || width == 0 {
        return;
    }
    assert!(input.len() > (rows * width - 1) * channels);
    assert!(inside.len() >= (rows - 1) * columns + width && columns.is_multiple_of(2));
    assert!(inside.as_ptr().wrapping_sub(before % 2).cast::<u32>().is_aligned());
    let copy = Copy {
        input: input.as_ptr(),
        channels,
        rows,
        columns: width,
        inside: inside.as_mut_ptr(),
        step: 2 * columns,
        is_odd: before % 2,
    };
    // SAFETY: reads `rows * columns` values with the stride `channels`, and writes `columns` values
    // in each row of the plane, as asserted.
    unsafe { run_copy_channel(&copy) }
}

/// # Safety
/// The slices of the arguments have the lengths that [`copy_channel`] asserts.
#[unsafe(naked)]
unsafe extern "C" fn run_copy_channel(copy: &Copy) {
    naked_asm!(
        "push {{r4-r11, lr}}
         ldm r0, {{r0, r1, r9, r10, r11, r12, lr}}
         add r3, r1, r1, lsl #1
         1:
         mov r2, r11
         mov r8, r10
         cmp lr, #0
         beq 2f
         ldrsb r4, [r0]
         add r0, r0, r1
         strh r4, [r2], #2
         sub r8, r8, #1
         2:
         subs r8, r8, #4
         blo 4f
         3:
         ldrsb r4, [r0]
         ldrsb r5, [r0, r1]
         ldrsb r6, [r0, r1, lsl #1]
         ldrsb r7, [r0, r3]
         add r0, r0, r1, lsl #2
         pkhbt r4, r4, r5, lsl #16
         pkhbt r6, r6, r7, lsl #16
         strd r4, r6, [r2], #8
         subs r8, r8, #4
         bhs 3b
         4:
         adds r8, r8, #4
         beq 6f
         5:
         ldrsb r4, [r0]
         add r0, r0, r1
         strh r4, [r2], #2
         subs r8, r8, #1
         bne 5b
         6:
         add r11, r11, r12
         subs r9, r9, #1
         bne 1b
         pop {{r4-r11, pc}}",
    )
}

/// Arguments of [`run_depthwise`].
#[repr(C)]
struct Plane<'a> {
    kernel: &'a Kernel,
    plane: *const i16,
    out: *mut i8,
    channels: usize,
    /// Bytes of a row of the plane, and from the third row of a pair to the next pair.
    step: usize,
    back: isize,
    /// From the end of a row to the next one.
    next: isize,
    /// Bytes of the pairs of a row of the output.
    width: usize,
    /// Whether the rows have an odd number of values.
    is_odd: usize,
    rows: usize,
}

/// Computes a channel of an image from its padded plane.
pub(super) fn depthwise(
    kernel: &Kernel,
    stride: usize,
    plane: &[i16],
    columns: usize,
    to: Extent,
    out: &mut [i8],
) {
    let Extent { rows, columns: width, channels } = to;
    if rows == 0 || width == 0 {
        return;
    }
    // Pairs of results are computed from whole words, and so is the last one of an odd number.
    assert!(matches!(stride, 1 | 2));
    assert!(columns >= width.next_multiple_of(2) * stride + 2 && columns.is_multiple_of(2));
    assert!(plane.len() >= ((rows - 1) * stride + KERNEL) * columns);
    assert!(plane.as_ptr().cast::<u32>().is_aligned() && out.len() > (rows * width - 1) * channels);
    let step = 2 * columns as isize;
    let pairs = width / 2;
    let arguments = Plane {
        kernel,
        plane: plane.as_ptr(),
        out: out.as_mut_ptr(),
        channels,
        step: 2 * columns,
        back: 4 * stride as isize - 2 * step,
        next: stride as isize * (step - 4 * pairs as isize),
        width: 2 * pairs * channels,
        is_odd: width % 2,
        rows,
    };
    // SAFETY: reads the plane and writes `rows * width` values with the stride `channels`, as
    // asserted.
    unsafe {
        if stride == 2 { run_depthwise_by_two(&arguments) } else { run_depthwise(&arguments) }
    }
}

/// Assembly that adds the products of a row of the plane with a row of weights to the sums of two
/// neighbours, for stride 1.
macro_rules! two_sums {
    ($first:literal, $last:literal) => {
        concat!(
            "ldrd r8, r9, [r10]
             smlad r6, r8, ",
            $first,
            ", r6
             smlabt r6, r9, ",
            $last,
            ", r6
             smlatb r7, r8, ",
            $first,
            ", r7
             smlad r7, r9, ",
            $last,
            ", r7\n",
        )
    };
}

/// The same for stride 2.
macro_rules! two_sums_by_two {
    ($first:literal, $last:literal) => {
        concat!(
            "ldrd r8, r9, [r10]
             ldr lr, [r10, #8]
             smlad r6, r8, ",
            $first,
            ", r6
             smlabt r6, r9, ",
            $last,
            ", r6
             smlad r7, r9, ",
            $first,
            ", r7
             smlabt r7, lr, ",
            $last,
            ", r7\n",
        )
    };
}

/// The same for one sum, whatever the stride.
macro_rules! one_sum {
    ($first:literal, $last:literal) => {
        concat!(
            "ldrd r8, r9, [r10]
             smlad r6, r8, ",
            $first,
            ", r6
             smlabt r6, r9, ",
            $last,
            ", r6\n",
        )
    };
}

/// A function that computes a plane. Its stack: bias, rounding, multiplier, shift; the fields of
/// [`Plane`] from `step` on; the end of the pairs of the row.
macro_rules! depthwise {
    ($name:ident, $two_sums:ident, $step:literal) => {
        /// # Safety
        /// The slices of the arguments have the lengths that [`depthwise`] asserts.
        #[unsafe(naked)]
        unsafe extern "C" fn $name(plane: &Plane<'_>) {
            naked_asm!(
                "push {{r4-r11, lr}}
                 sub sp, sp, #44
                 ldm r0!, {{r1, r10, r11, r12}}
                 ldm r0, {{r2-r7}}
                 add lr, sp, #16
                 stm lr, {{r2-r7}}
                 add lr, r1, #24
                 ldm lr, {{r2-r5}}
                 stm sp, {{r2-r5}}
                 mov lr, r1
                 ldm lr, {{r0-r5}}
                 1:
                 ldr lr, [sp, #28]
                 add r8, r11, lr
                 str r8, [sp, #40]
                 cmp lr, #0
                 beq 3f
                 2:
                 ldr r6, [sp]
                 mov r7, r6",
                $two_sums!("r0", "r1"),
                "ldr lr, [sp, #16]
                 add r10, r10, lr",
                $two_sums!("r2", "r3"),
                $step,
                "add r10, r10, lr",
                $two_sums!("r4", "r5"),
                "ldr lr, [sp, #20]
                 add r10, r10, lr
                 ldr r8, [sp, #4]
                 ldrd r9, lr, [sp, #8]",
                requantize!("r6", "r9", "lr", "r8", "r8"),
                "strb r6, [r11]
                 ldr r8, [sp, #4]",
                requantize!("r7", "r9", "lr", "r8", "r8"),
                "strb r7, [r11, r12]
                 ldr r8, [sp, #40]
                 add r11, r11, r12, lsl #1
                 cmp r11, r8
                 bne 2b
                 3:
                 ldr lr, [sp, #32]
                 cmp lr, #0
                 beq 4f
                 ldr r6, [sp]
                 ldr lr, [sp, #16]",
                one_sum!("r0", "r1"),
                "add r10, r10, lr",
                one_sum!("r2", "r3"),
                "add r10, r10, lr",
                one_sum!("r4", "r5"),
                "sub r10, r10, lr, lsl #1
                 ldr r8, [sp, #4]
                 ldrd r9, lr, [sp, #8]",
                requantize!("r6", "r9", "lr", "r8", "r8"),
                "strb r6, [r11]
                 add r11, r11, r12
                 4:
                 ldr lr, [sp, #24]
                 add r10, r10, lr
                 ldr r8, [sp, #36]
                 subs r8, r8, #1
                 str r8, [sp, #36]
                 bne 1b
                 add sp, sp, #44
                 pop {{r4-r11, pc}}",
            )
        }
    };
}

depthwise!(run_depthwise, two_sums, "");
// The sums overwrite the register with the bytes of a row of the plane.
depthwise!(run_depthwise_by_two, two_sums_by_two, "ldr lr, [sp, #16]");

/// Arguments of [`run_add`], in the order of its registers.
#[repr(C)]
struct Sum {
    a: *const i8,
    b: *const i8,
    out: *mut i8,
    end: *const i8,
    /// Second operand: the shifted offset, and its scale.
    b_offset: i32,
    b_rounding: i32,
    b_multiplier: i32,
    b_shift: i32,
    /// First operand: the shifted and halved offset.
    a_offset: i32,
    rounding: i32,
    multiplier: i32,
    shift: i32,
}

/// Adds operands.
pub(super) fn add(call: &AddPacked, [a, b]: [&[i8]; 2], out: &mut [i8]) {
    let AddPacked { zeros, scale, result, zero, .. } = *call;
    assert!(a.len() >= out.len() && b.len() >= out.len());
    if out.is_empty() {
        return;
    }
    let sum = Sum {
        a: a.as_ptr(),
        b: b.as_ptr(),
        end: out.as_ptr_range().end,
        out: out.as_mut_ptr(),
        b_offset: zeros[1] << (HEADROOM + 1),
        b_rounding: 1 << scale.shift,
        b_multiplier: scale.multiplier,
        b_shift: scale.shift + 1,
        a_offset: zeros[0] << (HEADROOM - 1),
        rounding: rounding(zero) << result.shift,
        multiplier: result.multiplier,
        shift: result.shift,
    };
    // SAFETY: reads as many values of the operands as it writes results, as asserted.
    unsafe { run_add(&sum) }
}

/// # Safety
/// The slices of the arguments have the lengths that [`add`] asserts, and are not empty.
#[unsafe(naked)]
unsafe extern "C" fn run_add(sum: &Sum) {
    naked_asm!(
        "push {{r4-r11, lr}}
         mov lr, r0
         ldm lr, {{r0-r11}}
         2:
         ldrsb lr, [r1], #1
         add lr, r4, lr, lsl #21
         add r12, r5, lr, asr #31
         smmlar lr, lr, r6, r12
         asr lr, lr, r7
         ldrsb r12, [r0], #1
         add lr, lr, r12, lsl #19
         add lr, lr, r8",
        requantize!("lr", "r10", "r11", "r9", "r12"),
        "strb lr, [r2], #1
         cmp r2, r3
         bne 2b
         pop {{r4-r11, pc}}",
    )
}
