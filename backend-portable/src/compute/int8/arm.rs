//! 64-bit Arm kernels: four-way dot products in each lane (`dotprod`), and multiplication of 2×8 by
//! 8×2 matrices (`i8mm`).
//!
//! Stable Rust knows these features but has no intrinsics for them yet, so two functions wrap one
//! instruction each.

use super::plain::ROWS;
use super::{LANES, STEP};
use core::arch::aarch64::{
    int8x16_t, int16x4x2_t, int32x4_t, vaddq_s32, vandq_u8, vcombine_s8, vcombine_s64, vdupq_n_s32,
    vdupq_n_u8, vget_high_s16, vget_high_s64, vget_low_s16, vget_low_s64, vld1_s8, vld1q_s8,
    vld1q_s32, vld1q_u8, vld2_s16, vmlal_s16, vmovl_s8, vreinterpretq_s8_s32, vreinterpretq_s8_u8,
    vreinterpretq_s32_s8, vreinterpretq_s32_s64, vreinterpretq_s64_s32, vshrq_n_u8, vst1q_s32,
    vzip1q_s32, vzip2q_s32,
};
use core::arch::asm;

/// Number of columns whose sums a vector holds.
const COLUMNS: usize = 4;
/// Number of vectors of sums for a panel.
const VECTORS: usize = LANES / COLUMNS;

/// SDOT: adds the dot product of four bytes to each lane.
#[inline]
#[target_feature(enable = "neon,dotprod")]
fn sdot(mut sums: int32x4_t, a: int8x16_t, b: int8x16_t) -> int32x4_t {
    // SAFETY: the target features include the instruction, which only accesses the named registers.
    unsafe {
        asm!(
            "sdot {sums:v}.4s, {a:v}.16b, {b:v}.16b",
            sums = inout(vreg) sums, a = in(vreg) a, b = in(vreg) b,
            options(pure, nomem, nostack, preserves_flags),
        );
    }
    sums
}

/// SMMLA: adds the 2×2 result of two rows of eight bytes and two columns of eight bytes, in
/// row-major order.
#[inline]
#[target_feature(enable = "neon,i8mm")]
fn smmla(mut sums: int32x4_t, rows: int8x16_t, columns: int8x16_t) -> int32x4_t {
    // SAFETY: as in `sdot`.
    unsafe {
        asm!(
            "smmla {sums:v}.4s, {a:v}.16b, {b:v}.16b",
            sums = inout(vreg) sums, a = in(vreg) rows, b = in(vreg) columns,
            options(pure, nomem, nostack, preserves_flags),
        );
    }
    sums
}

/// Repeats four bytes in each 32-bit lane.
#[inline]
#[target_feature(enable = "neon")]
fn broadcast(quantized: &[i8; STEP]) -> int8x16_t {
    vreinterpretq_s8_s32(vdupq_n_s32(i32::from_le_bytes(quantized.map(i8::cast_unsigned))))
}

/// Loads the four vectors of one step of a panel.
#[inline]
#[target_feature(enable = "neon")]
fn vectors(weights: &[i8; LANES * STEP]) -> [int8x16_t; VECTORS] {
    let (quarters, _) = weights.as_chunks::<16>();
    core::array::from_fn(|vector| {
        // SAFETY: each chunk has 16 bytes.
        unsafe { vld1q_s8(quarters[vector].as_ptr()) }
    })
}

/// Converts four vectors of sums to an array.
#[inline]
#[target_feature(enable = "neon")]
fn stored(vectors: [int32x4_t; VECTORS]) -> [i32; LANES] {
    let mut sums = [0; LANES];
    for (vector, sums) in vectors.into_iter().zip(sums.as_chunks_mut::<COLUMNS>().0) {
        // SAFETY: the chunk holds four sums.
        unsafe { vst1q_s32(sums.as_mut_ptr(), vector) };
    }
    sums
}

/// Dot products of rows with the columns of a panel.
#[target_feature(enable = "neon,dotprod")]
pub(super) fn dot_sums(rows: &[&[i8]; ROWS], panel: &[i8]) -> [[i32; LANES]; ROWS] {
    let (weights, _) = panel.as_chunks::<{ LANES * STEP }>();
    let rows = rows.map(|row| row.as_chunks::<STEP>().0);
    let steps = rows.iter().fold(weights.len(), |steps, row| steps.min(row.len()));
    let rows = rows.map(|row| &row[..steps]);
    let mut sums = [[vdupq_n_s32(0); VECTORS]; ROWS];
    for (step, weights) in weights.iter().enumerate().take(steps) {
        let weights = vectors(weights);
        for (row, sums) in rows.iter().zip(&mut sums) {
            let quantized = broadcast(&row[step]);
            for (sum, weights) in sums.iter_mut().zip(&weights) {
                *sum = sdot(*sum, *weights, quantized);
            }
        }
    }
    let mut out = [[0; LANES]; ROWS];
    for (out, sums) in out.iter_mut().zip(sums) {
        *out = stored(sums);
    }
    out
}

/// Like [`dot_sums`], with `i8mm`: two rows and two steps at a time.
#[target_feature(enable = "neon,i8mm,dotprod")]
pub(super) fn i8mm_sums(rows: &[&[i8]; ROWS], panel: &[i8]) -> [[i32; LANES]; ROWS] {
    let (weights, _) = panel.as_chunks::<{ LANES * STEP }>();
    let steps = rows.iter().fold(weights.len(), |steps, row| steps.min(row.len() / STEP));
    let pairs = steps / 2;
    let both = rows.map(|row| &row.as_chunks::<{ 2 * STEP }>().0[..pairs]);
    // Sums of row pairs and column pairs.
    let mut sums = [[vdupq_n_s32(0); 2 * VECTORS]; ROWS / 2];
    for (pair, weights) in weights.as_chunks::<2>().0.iter().enumerate() {
        let [first, second] = [vectors(&weights[0]), vectors(&weights[1])];
        for (two, sums) in sums.iter_mut().enumerate() {
            // SAFETY: a row has eight bytes in each pair of steps.
            let quantized = unsafe {
                vcombine_s8(
                    vld1_s8(both[2 * two][pair].as_ptr()),
                    vld1_s8(both[2 * two + 1][pair].as_ptr()),
                )
            };
            for vector in 0..VECTORS {
                // The eight bytes of a column are two groups of four, in consecutive steps.
                let [near, far] =
                    [first[vector], second[vector]].map(|it| vreinterpretq_s32_s8(it));
                let columns = [vzip1q_s32(near, far), vzip2q_s32(near, far)];
                for (half, columns) in columns.into_iter().enumerate() {
                    let sum = &mut sums[2 * vector + half];
                    *sum = smmla(*sum, quantized, vreinterpretq_s8_s32(columns));
                }
            }
        }
    }
    // With an odd number of steps, the last one is computed alone.
    let rest = rows.map(|row| &row[pairs * 2 * STEP..steps * STEP]);
    let rest = dot_sums(&rest, &panel[pairs * 2 * STEP * LANES..]);
    let mut out = [[0; LANES]; ROWS];
    for (two, sums) in sums.into_iter().enumerate() {
        for vector in 0..VECTORS {
            let [near, far] =
                [sums[2 * vector], sums[2 * vector + 1]].map(|it| vreinterpretq_s64_s32(it));
            let of_rows = [
                [vget_low_s64(near), vget_low_s64(far)],
                [vget_high_s64(near), vget_high_s64(far)],
            ];
            for (row, [near, far]) in of_rows.into_iter().enumerate() {
                let row = 2 * two + row;
                let range = vector * COLUMNS..(vector + 1) * COLUMNS;
                let sums = vcombine_s64(near, far);
                // SAFETY: the range covers four sums.
                unsafe {
                    let rest = vld1q_s32(rest[row][range.clone()].as_ptr());
                    let sums = vaddq_s32(vreinterpretq_s32_s64(sums), rest);
                    vst1q_s32(out[row][range].as_mut_ptr(), sums);
                }
            }
        }
    }
    out
}

/// Dot products of a group of eight values of a row with that group of an int4 panel, whose weights
/// are stored with 8 added.
#[target_feature(enable = "neon,dotprod")]
pub(super) fn nibbles(quantized: &[i8], weights: &[u8]) -> [i32; LANES] {
    let mut sums = [vdupq_n_s32(0); VECTORS];
    let (quantized, _) = quantized.as_chunks::<STEP>();
    let (weights, _) = weights.as_chunks::<{ LANES * STEP }>();
    for (quantized, weights) in quantized.as_chunks::<2>().0.iter().zip(weights) {
        let [lower, upper] = [broadcast(&quantized[0]), broadcast(&quantized[1])];
        for (sum, weights) in sums.iter_mut().zip(weights.as_chunks::<16>().0) {
            // SAFETY: the chunk has 16 bytes.
            let weights = unsafe { vld1q_u8(weights.as_ptr()) };
            let low = vreinterpretq_s8_u8(vandq_u8(weights, vdupq_n_u8(15)));
            let high = vreinterpretq_s8_u8(vshrq_n_u8::<4>(weights));
            *sum = sdot(sdot(*sum, low, lower), high, upper);
        }
    }
    stored(sums)
}

/// Adds the products of a pair of taps for 32 channels, in the order of packed weights.
#[target_feature(enable = "neon")]
pub(super) fn add_pair(
    quantized: &[[i8; 32]; 2],
    weights: &[[i16; 32]; 2],
    sums: &mut [[i32; LANES]; 2],
) {
    for group in 0..4 {
        // SAFETY: eight bytes follow `group * 8`.
        let wide =
            quantized.each_ref().map(|tap| vmovl_s8(unsafe { vld1_s8(tap[group * 8..].as_ptr()) }));
        let halves = [
            wide.map(|quantized| vget_low_s16(quantized)),
            wide.map(|quantized| vget_high_s16(quantized)),
        ];
        for ((sums, weights), [a, b]) in sums.iter_mut().zip(weights).zip(halves) {
            let dst = sums[group * 4..group * 4 + 4].as_mut_ptr();
            let weights = weights[group * 8..group * 8 + 8].as_ptr();
            // SAFETY: the destination has four sums. Eight weights follow, alternating between the
            // first and the second tap.
            unsafe {
                let int16x4x2_t(first, second) = vld2_s16(weights);
                let sum = vmlal_s16(vld1q_s32(dst), a, first);
                vst1q_s32(dst, vmlal_s16(sum, b, second));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compute::int8::plain;
    use crate::compute::testing::Noise;
    use std::arch::is_aarch64_feature_detected;
    use std::vec::Vec;

    #[test]
    fn sums_match_plain_loops() {
        let mut noise = Noise::new(7);
        for steps in [0, 1, 2, 3, 8, 21] {
            let mut random = |count: usize| -> Vec<i8> {
                (0..count).map(|_| noise.below(256) as u8 as i8).collect()
            };
            let (a, panel) = (random(ROWS * steps * STEP), random(LANES * steps * STEP));
            let rows: [&[i8]; ROWS] =
                core::array::from_fn(|row| &a[row * steps * STEP..(row + 1) * steps * STEP]);
            let packed: Vec<u8> = panel.iter().map(|q| q.cast_unsigned()).collect();
            let two = &a[..steps * STEP * 2];
            if is_aarch64_feature_detected!("dotprod") {
                // SAFETY: the processor has the instructions.
                let (sums, quarters) = unsafe { (dot_sums(&rows, &panel), nibbles(two, &packed)) };
                assert_eq!(sums, plain::sums(&rows, &panel));
                assert_eq!(quarters, plain::nibbles(two, &packed));
            }
            if is_aarch64_feature_detected!("i8mm") && is_aarch64_feature_detected!("dotprod") {
                // SAFETY: the processor has the instructions.
                assert_eq!(unsafe { i8mm_sums(&rows, &panel) }, plain::sums(&rows, &panel));
            }
        }
    }
}
