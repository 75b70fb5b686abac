//! Channels side by side, over the taps of windows: eight at a time.

use crate::compute::q8::depthwise::Covered;
use crate::compute::q8::dsp;
use core::arch::asm;

/// Channels whose sums are in registers while all taps go by, and the fewest of one channel.
const EIGHT: usize = 8;

/// Sums that are in registers while all taps of one channel go by.
const SIXTEEN: usize = 16;

/// The sums of the products of channels with those of the weights, whatever they are before.
pub(in crate::compute::q8) fn add(
    input: &[i8],
    weights: &[i8],
    covered: Covered,
    offset: i16,
    sums: &mut [i32],
) {
    assert!(dsp::is_inside(input.len(), covered.codes, &covered, sums.len()));
    assert!(dsp::is_inside(weights.len(), covered.weights, &covered, sums.len()));
    if covered.rows == 0 || covered.columns == 0 {
        return sums.fill(0);
    }
    let ([first, down, across], [weight, weights_down, weights_across]) =
        (covered.codes, covered.weights);
    // From behind the last tap of a row to the first one of the next.
    let back = down.wrapping_sub(across.wrapping_mul(covered.columns));
    let weights_back = weights_down.wrapping_sub(weights_across.wrapping_mul(covered.columns));
    let (eights, rest) = sums.as_chunks_mut::<EIGHT>();
    let done = eights.len() * EIGHT;
    let mut at = [first, weight];
    for eight in eights {
        // SAFETY: all taps, and as many places behind each as there are sums, lie in the slices, as asserted. Products of codes
        // with an offset and weights are added by lanes of even and odd numbers, as the sums are stored.
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
        covered.codes[0] += done;
        covered.weights[0] += done;
        rest.fill(0);
        dsp::add(input, weights, covered, offset, rest);
    }
}

/// Adds the products of one channel with those of the weights.
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
        (covered.codes, covered.weights);
    assert!(dsp::is_inside(input.len(), covered.codes, &covered, 1));
    let reach = sixteens.len() * SIXTEEN + eights.len() * EIGHT;
    assert!(dsp::is_inside(weights.len(), covered.weights, &covered, reach));
    if covered.rows == 0 || covered.columns == 0 {
        return;
    }
    let back = down.wrapping_sub(across.wrapping_mul(covered.columns));
    let weights_back = weights_down.wrapping_sub(weights_across.wrapping_mul(covered.columns));
    for sixteen in sixteens {
        // SAFETY: all taps lie in the input, and they and as many places behind each as there are sums in the weights, as asserted.
        unsafe {
            asm!(
                "vldrw.u32 q1, [{sums}]",
                "vldrw.u32 q2, [{sums}, #16]",
                "vldrw.u32 q3, [{sums}, #32]",
                "vldrw.u32 q4, [{sums}, #48]",
                "2:",
                "dls lr, {columns}",
                "3:",
                "ldrsb r4, [{codes}]",
                "add {codes}, {codes}, {across}",
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
                "add {codes}, {codes}, {back}",
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
                codes = inout(reg) input.as_ptr().wrapping_add(at) => _,
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
                "ldrsb r4, [{codes}]",
                "add {codes}, {codes}, {across}",
                "vldrb.s32 q0, [r3]",
                "add r4, r4, {offset}",
                "vmla.i32 q1, q0, r4",
                "vldrb.s32 q0, [r3, #4]",
                "add r3, r3, {weights_across}",
                "vmla.i32 q2, q0, r4",
                "le lr, 3b",
                "add {codes}, {codes}, {back}",
                "add r3, r3, {weights_back}",
                "subs {rows}, {rows}, #1",
                "bne 2b",
                "vstrw.32 q1, [{sums}]",
                "vstrw.32 q2, [{sums}, #16]",
                sums = in(reg) eight.as_mut_ptr(), columns = in(reg) covered.columns,
                rows = inout(reg) covered.rows => _, offset = in(reg) i32::from(offset),
                across = in(reg) across, weights_across = in(reg) weights_across,
                back = in(reg) back, weights_back = in(reg) weights_back,
                codes = inout(reg) input.as_ptr().wrapping_add(at) => _,
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
