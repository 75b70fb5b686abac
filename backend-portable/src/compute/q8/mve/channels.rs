//! Depthwise loops over the taps of windows, eight channels at a time.

use crate::compute::q8::depthwise::Covered;
use crate::compute::q8::dsp;
use crate::compute::q8::requantize::ChannelParams;
use core::arch::asm;

/// Number of channels whose sums stay in registers over all taps; also the minimum that is computed
/// for one input channel.
const EIGHT: usize = 8;

/// Number of sums of one input channel that stay in registers over all taps.
const SIXTEEN: usize = 16;

/// Computes the sums of the products of channels with their weights; overwrites `sums`.
pub(in crate::compute::q8) fn add(
    input: &[i8],
    weights: &[i8],
    covered: Covered,
    offset: i16,
    sums: &mut [i32],
) {
    assert!(dsp::is_inside(input.len(), covered.input, &covered, sums.len()));
    assert!(dsp::is_inside(weights.len(), covered.weights, &covered, sums.len()));
    if covered.rows == 0 || covered.columns == 0 {
        return sums.fill(0);
    }
    let ([first, down, across], [weight, weights_down, weights_across]) =
        (covered.input, covered.weights);
    // Distance from the end of a row of taps to the next row.
    let back = down.wrapping_sub(across.wrapping_mul(covered.columns));
    let weights_back = weights_down.wrapping_sub(weights_across.wrapping_mul(covered.columns));
    let (eights, rest) = sums.as_chunks_mut::<EIGHT>();
    let done = eights.len() * EIGHT;
    let mut at = [first, weight];
    for eight in eights {
        // SAFETY: all taps, each with as many values as sums, lie in the slices, as asserted.
        // Products are accumulated in even and odd lanes, and stored interleaved.
        unsafe {
            asm!(
                "vmov.i32 q2, #0",
                "vmov.i32 q3, #0",
                "2:",
                "dls lr, {columns}",
                "3:",
                "vldrb.s16 q0, [r1]",
                "vldrb.s16 q1, [r3]",
                "vadd.i16 q0, q0, {offset}",
                "add r1, r1, {across}",
                "vmullb.s16 q4, q0, q1",
                "add r3, r3, {weights_across}",
                "vadd.i32 q2, q2, q4",
                "vmullt.s16 q0, q0, q1",
                "vadd.i32 q3, q3, q0",
                "le lr, 3b",
                "add r1, r1, {back}",
                "add r3, r3, {weights_back}",
                "subs {rows}, {rows}, #1",
                "bne 2b",
                "vst20.32 {{q2, q3}}, [{sums}]",
                "vst21.32 {{q2, q3}}, [{sums}]",
                sums = in(reg) eight.as_mut_ptr(), columns = in(reg) covered.columns,
                rows = inout(reg) covered.rows => _, offset = in(reg) i32::from(offset),
                across = in(reg) across, weights_across = in(reg) weights_across,
                back = in(reg) back, weights_back = in(reg) weights_back,
                inout("r1") input.as_ptr().wrapping_add(at[0]) => _,
                inout("r3") weights.as_ptr().wrapping_add(at[1]) => _,
                out("lr") _, out("d0") _, out("d1") _, out("d2") _, out("d3") _, out("d4") _,
                out("d5") _, out("d6") _, out("d7") _, out("d8") _, out("d9") _, options(nostack),
            );
        }
        at = at.map(|at| at + EIGHT);
    }
    if !rest.is_empty() {
        let mut covered = covered;
        covered.input[0] += done;
        covered.weights[0] += done;
        rest.fill(0);
        dsp::add(input, weights, covered, offset, rest);
    }
}

/// Loop state of [`eights`] that does not fit in registers, in load order.
#[repr(C)]
struct State {
    quantized: *const i8,
    weights: *const i8,
    out: *mut i8,
    bias: *const i32,
    multipliers: *const i32,
    shifts: *const i32,
    begin: Begin,
}

/// Initial register contents for each block of eight channels, and constants of later instructions.
#[repr(C)]
struct Begin {
    /// Distance from the end of a row of taps to the next row: in the input, and in the weights.
    back: [usize; 2],
    rows: usize,
    /// Zero point added to the results.
    added: i32,
    /// End of the output.
    end: *const i8,
    bounds: [[i16; EIGHT]; 2],
    /// Offset added to the input values.
    offset: [i16; EIGHT],
}

/// Computes requantized results of channels, eight at a time. The length of `out` is a multiple of
/// eight.
pub(in crate::compute::q8) fn eights(
    [input, weights]: [&[i8]; 2],
    covered: &Covered,
    offset: i16,
    each: ChannelParams<'_>,
    out: &mut [i8],
) {
    let count = out.len();
    assert!(count.is_multiple_of(EIGHT));
    assert!([each.bias, each.multipliers, each.shifts].iter().all(|all| all.len() == count));
    assert!(dsp::is_inside(input.len(), covered.input, covered, count));
    assert!(dsp::is_inside(weights.len(), covered.weights, covered, count));
    if count == 0 || covered.rows == 0 || covered.columns == 0 {
        return;
    }
    let back =
        |[_, down, across]: [usize; 3]| down.wrapping_sub(across.wrapping_mul(covered.columns));
    let mut state = State {
        quantized: input.as_ptr().wrapping_add(covered.input[0]),
        weights: weights.as_ptr().wrapping_add(covered.weights[0]),
        out: out.as_mut_ptr(),
        bias: each.bias.as_ptr(),
        multipliers: each.multipliers.as_ptr(),
        shifts: each.shifts.as_ptr(),
        begin: Begin {
            back: [back(covered.input), back(covered.weights)],
            rows: covered.rows,
            added: each.offset,
            end: out.as_ptr_range().end,
            // Bounds are int8 values.
            bounds: each.bounds.map(|bound| [bound as i16; EIGHT]),
            offset: [offset; EIGHT],
        },
    };
    let begin = (&raw mut state).cast::<u8>().wrapping_add(core::mem::offset_of!(State, begin));
    // SAFETY: all taps, each with as many values as results, lie in the slices, as asserted. For
    // each block, eight elements of each parameter are read and eight results written, until the
    // end. `begin` lies within `state`, whose fields are accessed as declared, on both sides of it.
    // The sums of even and odd channels are in separate vectors; they fit 30 bits with their bias.
    // Values that saturate to 16 bits are outside the bounds, with and without the zero point.
    unsafe {
        asm!(
            "vldrw.u32 q5, [r12, #20]",
            "vldrw.u32 q6, [r12, #36]",
            "vldrw.u32 q7, [r12, #52]",
            "2:",
            "ldm r12, {{r4, r5, r9}}",
            "vmov.i32 q2, #0",
            "vmov.i32 q3, #0",
            "3:",
            "dls lr, {columns}",
            "4:",
            "vldrb.s16 q0, [r1]",
            "vldrb.s16 q1, [r3]",
            "vadd.i16 q0, q0, q7",
            "add r1, r1, {across}",
            "vmullb.s16 q4, q0, q1",
            "add r3, r3, {weights_across}",
            "vadd.i32 q2, q2, q4",
            "vmullt.s16 q0, q0, q1",
            "vadd.i32 q3, q3, q0",
            "le lr, 4b",
            "add r1, r1, r4",
            "add r3, r3, r5",
            "subs r9, r9, #1",
            "bne 3b",
            "ldmdb r12, {{r1, r3, r4, r9, r10, r11}}",
            "vld20.32 {{q0, q1}}, [r9]",
            "vld21.32 {{q0, q1}}, [r9]!",
            "vadd.i32 q2, q2, q0",
            "vadd.i32 q3, q3, q1",
            "vld20.32 {{q0, q1}}, [r10]",
            "vld21.32 {{q0, q1}}, [r10]!",
            "vqrdmulh.s32 q2, q2, q0",
            "vqrdmulh.s32 q3, q3, q1",
            // Subtracting one from negative values rounds ties away from zero.
            "vshr.s32 q0, q2, #31",
            "vshr.s32 q1, q3, #31",
            "vadd.i32 q2, q2, q0",
            "vadd.i32 q3, q3, q1",
            "vld20.32 {{q0, q1}}, [r11]",
            "vld21.32 {{q0, q1}}, [r11]!",
            "vrshl.s32 q2, q2, q0",
            "vrshl.s32 q3, q3, q1",
            "ldr r5, [r12, #12]",
            "vqmovnb.s32 q0, q2",
            "vqmovnt.s32 q0, q3",
            "vqadd.s16 q0, q0, r5",
            "vmax.s16 q0, q0, q5",
            "vmin.s16 q0, q0, q6",
            "vstrb.16 q0, [r4], #8",
            "add r1, r1, #8",
            "add r3, r3, #8",
            "stmdb r12, {{r1, r3, r4, r9, r10, r11}}",
            "ldr r5, [r12, #16]",
            "cmp r4, r5",
            "bne 2b",
            in("r12") begin, columns = in(reg) covered.columns,
            across = in(reg) covered.input[2],
            weights_across = in(reg) covered.weights[2], inout("r1") state.quantized => _,
            inout("r3") state.weights => _, out("r4") _, out("r5") _, out("r9") _, out("r10") _,
            out("r11") _, out("lr") _, out("d0") _, out("d1") _, out("d2") _, out("d3") _,
            out("d4") _, out("d5") _, out("d6") _, out("d7") _, out("d8") _, out("d9") _,
            out("d10") _, out("d11") _, out("d12") _, out("d13") _, out("d14") _, out("d15") _,
            options(nostack),
        );
    }
}

/// Adds the products of one input channel with the weights of several output channels.
pub(in crate::compute::q8) fn spread(
    input: &[i8],
    weights: &[i8],
    covered: Covered,
    offset: i16,
    sums: &mut [i32],
) {
    let (sixteens, rest) = sums.as_chunks_mut::<SIXTEEN>();
    let (eights, rest) = rest.as_chunks_mut::<EIGHT>();
    let ([at, down, across], [mut weight, weights_down, weights_across]) =
        (covered.input, covered.weights);
    assert!(dsp::is_inside(input.len(), covered.input, &covered, 1));
    let reach = sixteens.len() * SIXTEEN + eights.len() * EIGHT;
    assert!(dsp::is_inside(weights.len(), covered.weights, &covered, reach));
    if covered.rows == 0 || covered.columns == 0 {
        return;
    }
    let back = down.wrapping_sub(across.wrapping_mul(covered.columns));
    let weights_back = weights_down.wrapping_sub(weights_across.wrapping_mul(covered.columns));
    for sixteen in sixteens {
        // SAFETY: all taps lie in the input, and in the weights as many values follow each as sums,
        // as asserted.
        unsafe {
            asm!(
                "vldrw.u32 q1, [{sums}]",
                "vldrw.u32 q2, [{sums}, #16]",
                "vldrw.u32 q3, [{sums}, #32]",
                "vldrw.u32 q4, [{sums}, #48]",
                "2:",
                "dls lr, {columns}",
                "3:",
                "ldrsb r4, [{quantized}]",
                "add {quantized}, {quantized}, {across}",
                "vldrb.s32 q0, [r3]",
                "add r4, r4, {offset}",
                "vmla.i32 q1, q0, r4",
                "vldrb.s32 q0, [r3, #4]",
                "vmla.i32 q2, q0, r4",
                "vldrb.s32 q0, [r3, #8]",
                "vmla.i32 q3, q0, r4",
                "vldrb.s32 q0, [r3, #12]",
                "add r3, r3, {weights_across}",
                "vmla.i32 q4, q0, r4",
                "le lr, 3b",
                "add {quantized}, {quantized}, {back}",
                "add r3, r3, {weights_back}",
                "subs {rows}, {rows}, #1",
                "bne 2b",
                "vstrw.32 q1, [{sums}]",
                "vstrw.32 q2, [{sums}, #16]",
                "vstrw.32 q3, [{sums}, #32]",
                "vstrw.32 q4, [{sums}, #48]",
                sums = in(reg) sixteen.as_mut_ptr(), columns = in(reg) covered.columns,
                rows = inout(reg) covered.rows => _, offset = in(reg) i32::from(offset),
                across = in(reg) across, weights_across = in(reg) weights_across,
                back = in(reg) back, weights_back = in(reg) weights_back,
                quantized = inout(reg) input.as_ptr().wrapping_add(at) => _,
                inout("r3") weights.as_ptr().wrapping_add(weight) => _, out("r4") _,
                out("lr") _, out("d0") _, out("d1") _, out("d2") _, out("d3") _, out("d4") _,
                out("d5") _, out("d6") _, out("d7") _, out("d8") _, out("d9") _, options(nostack),
            );
        }
        weight += SIXTEEN;
    }
    for eight in eights {
        // SAFETY: as above.
        unsafe {
            asm!(
                "vldrw.u32 q1, [{sums}]",
                "vldrw.u32 q2, [{sums}, #16]",
                "2:",
                "dls lr, {columns}",
                "3:",
                "ldrsb r4, [{quantized}]",
                "add {quantized}, {quantized}, {across}",
                "vldrb.s32 q0, [r3]",
                "add r4, r4, {offset}",
                "vmla.i32 q1, q0, r4",
                "vldrb.s32 q0, [r3, #4]",
                "add r3, r3, {weights_across}",
                "vmla.i32 q2, q0, r4",
                "le lr, 3b",
                "add {quantized}, {quantized}, {back}",
                "add r3, r3, {weights_back}",
                "subs {rows}, {rows}, #1",
                "bne 2b",
                "vstrw.32 q1, [{sums}]",
                "vstrw.32 q2, [{sums}, #16]",
                sums = in(reg) eight.as_mut_ptr(), columns = in(reg) covered.columns,
                rows = inout(reg) covered.rows => _, offset = in(reg) i32::from(offset),
                across = in(reg) across, weights_across = in(reg) weights_across,
                back = in(reg) back, weights_back = in(reg) weights_back,
                quantized = inout(reg) input.as_ptr().wrapping_add(at) => _,
                inout("r3") weights.as_ptr().wrapping_add(weight) => _, out("r4") _,
                out("lr") _, out("d0") _, out("d1") _, out("d2") _, out("d3") _, out("d4") _,
                out("d5") _, options(nostack),
            );
        }
        weight += EIGHT;
    }
    if !rest.is_empty() {
        let mut covered = covered;
        covered.weights[0] = weight;
        dsp::spread(input, weights, covered, offset, rest);
    }
}
