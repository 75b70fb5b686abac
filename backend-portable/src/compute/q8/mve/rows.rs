//! Fused GEMM of four rows with all weights. The four sums of a channel form a vector, which is
//! requantized at once. So the parameters of a channel are loaded once, and sums are never stored.

use crate::compute::q8::requantize::ChannelParams;
use core::arch::asm;

/// Values of a vector.
const WIDTH: usize = 16;

/// Loop state of [`four_rows`] that does not fit in registers, in load order.
#[repr(C)]
struct State {
    bias: *const i32,
    multipliers: *const i32,
    shifts: *const i32,
    out: *mut i8,
    begin: Begin,
}

/// Initial register contents for each channel, interleaving zero sums with row addresses, and
/// constants of later instructions.
#[repr(C)]
struct Begin {
    zeros: [i32; 2],
    first: *const i8,
    third_zero: i32,
    second: *const i8,
    fourth_zero: i32,
    third: *const i8,
    sum_of_weights: i32,
    fourth: *const i8,
    depth: usize,
    /// Offset of the input values.
    offset: i32,
    /// Distance by which the last vector of a row reaches beyond its end.
    over: usize,
    /// Pointer to the end of the first output row.
    end: *const i8,
    bounds: [[i32; 4]; 2],
    /// Offsets of the four output rows from the first.
    row_offsets: [u32; 4],
    /// Zero point added to the results.
    added: [i32; 4],
}

/// Computes requantized results of four rows, with `offset` added to their values, for each row of
/// weights. The output rows start at `row_offsets` of `out`; for three input rows, the last is
/// passed twice.
pub(in crate::compute::q8) fn four_rows(
    rows: [&[i8]; 4],
    offset: i32,
    weights: &[i8],
    each: ChannelParams<'_>,
    out: &mut [i8],
    row_offsets: [usize; 4],
) {
    let (depth, count) = (rows[0].len(), each.bias.len());
    if depth == 0 || count == 0 {
        return;
    }
    assert!(rows.iter().all(|row| row.len() == depth));
    assert!(depth.checked_mul(count).is_some_and(|len| len <= weights.len()));
    assert!(each.multipliers.len() == count && each.shifts.len() == count);
    let fits = |place: usize| place.checked_add(count).is_some_and(|end| end <= out.len());
    assert!(row_offsets[0] == 0 && row_offsets.into_iter().all(fits));
    let [first, second, third, fourth] = rows.map(<[i8]>::as_ptr);
    let mut state = State {
        bias: each.bias.as_ptr(),
        multipliers: each.multipliers.as_ptr(),
        shifts: each.shifts.as_ptr(),
        out: out.as_mut_ptr(),
        begin: Begin {
            zeros: [0; 2],
            first,
            third_zero: 0,
            second,
            fourth_zero: 0,
            third,
            sum_of_weights: 0,
            fourth,
            depth,
            offset,
            over: depth.next_multiple_of(WIDTH) - depth,
            end: out.as_ptr().wrapping_add(count),
            bounds: each.bounds.map(|bound| [bound; 4]),
            // The offsets are indices into a slice, so they fit 32 bits.
            row_offsets: row_offsets.map(|place| place as u32),
            added: [each.offset; 4],
        },
    };
    let begin = (&raw mut state).cast::<u8>().wrapping_add(core::mem::offset_of!(State, begin));
    // SAFETY: for each of `count` channels, a row of weights and the four input rows are read, one
    // element of each of the three parameter slices, and four results are written, one in each row:
    // all exist, as asserted. `begin` lies within `state`, whose fields are accessed as declared,
    // on both sides of it. Sums wrap as in the plain loops; with their bias they fit 30 bits, so
    // that doubling does not saturate.
    unsafe {
        asm!(
            "vldrw.u32 q4, [r12, #52]",
            "vldrw.u32 q5, [r12, #68]",
            "vldrw.u32 q6, [r12, #84]",
            "vldrw.u32 q7, [r12, #100]",
            "2:",
            "ldm r12, {{r0, r2, r3, r4, r5, r8, r9, r10, r11, lr}}",
            "dlstp.8 lr, lr",
            "3:",
            "vldrb.u8 q0, [r1], #16",
            "vaddva.s8 r10, q0",
            "vldrb.u8 q1, [r3], #16",
            "vmladava.s8 r0, q0, q1",
            "vldrb.u8 q2, [r5], #16",
            "vmladava.s8 r2, q0, q2",
            "vldrb.u8 q1, [r9], #16",
            "vmladava.s8 r4, q0, q1",
            "vldrb.u8 q2, [r11], #16",
            "vmladava.s8 r8, q0, q2",
            "letp lr, 3b",
            "vmov d0, r0, r2",
            "vmov d1, r4, r8",
            "ldmdb r12, {{r3, r5, r9, r11}}",
            "ldr r0, [r12, #40]",
            "ldr r2, [r3], #4",
            "mla r10, r10, r0, r2",
            "vadd.i32 q0, q0, r10",
            "ldr r0, [r5], #4",
            "vqrdmulh.s32 q0, q0, r0",
            // Subtracting one from negative values rounds ties away from zero.
            "vshr.s32 q1, q0, #31",
            "vadd.i32 q0, q0, q1",
            "ldr r0, [r9], #4",
            "vrshl.s32 q0, r0",
            "vadd.i32 q0, q0, q7",
            "vmax.s32 q0, q0, q4",
            "vmin.s32 q0, q0, q5",
            "vstrb.32 q0, [r11, q6]",
            "add r11, r11, #1",
            "stmdb r12, {{r3, r5, r9, r11}}",
            "ldrd r0, r2, [r12, #44]",
            "sub r1, r1, r0",
            "cmp r11, r2",
            "bne 2b",
            in("r12") begin, inout("r1") weights.as_ptr() => _, out("r0") _, out("r2") _,
            out("r3") _, out("r4") _, out("r5") _, out("r8") _, out("r9") _, out("r10") _,
            out("r11") _, out("lr") _, out("d0") _, out("d1") _, out("d2") _, out("d3") _,
            out("d4") _, out("d5") _, out("d8") _, out("d9") _, out("d10") _, out("d11") _,
            out("d12") _, out("d13") _, out("d14") _, out("d15") _, options(nostack),
        );
    }
}
