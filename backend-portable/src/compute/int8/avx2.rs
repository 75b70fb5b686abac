//! AVX2 kernels: bytes are widened to 16 bits, and pairs are multiplied and added.

use super::plain::ROWS;
use super::{LANES, STEP};
use core::arch::x86_64::{
    _mm_cvtepi8_epi16, _mm_cvtsi32_si128, _mm_loadu_si128, _mm256_add_epi32,
    _mm256_broadcastq_epi64, _mm256_cvtepi8_epi16, _mm256_hadd_epi32, _mm256_loadu_si256,
    _mm256_madd_epi16, _mm256_permute4x64_epi64, _mm256_setzero_si256, _mm256_storeu_si256,
    _mm256_unpackhi_epi16, _mm256_unpacklo_epi16,
};

/// Dot products of rows with the columns of a panel.
#[target_feature(enable = "avx2")]
pub(super) fn sums(rows: &[&[i8]; ROWS], panel: &[i8]) -> [[i32; LANES]; ROWS] {
    let mut sums = [[0i32; LANES]; ROWS];
    let (weights, _) = panel.as_chunks::<{ LANES * STEP }>();
    // Counted loops, for the reason given in `vnni.rs`.
    let mut steps = weights.len();
    for row in rows {
        steps = steps.min(row.len() / STEP);
    }
    // Eight columns at a time: four in each vector, with two partial sums each.
    for half in 0..2 {
        let mut all = [[_mm256_setzero_si256(); 2]; ROWS];
        for step in 0..steps {
            let weights = &weights[step];
            let mut wide = [_mm256_setzero_si256(); 2];
            for quarter in 0..2 {
                // SAFETY: a step has four quarters of 16 bytes.
                let quantized = unsafe {
                    _mm_loadu_si128(weights[(half * 2 + quarter) * 16..].as_ptr().cast())
                };
                wide[quarter] = _mm256_cvtepi8_epi16(quantized);
            }
            for row in 0..ROWS {
                let quantized: *const i32 = rows[row][step * STEP..][..STEP].as_ptr().cast();
                // SAFETY: the slice has four bytes.
                let quantized = _mm_cvtsi32_si128(unsafe { quantized.read_unaligned() });
                let quantized = _mm256_broadcastq_epi64(_mm_cvtepi8_epi16(quantized));
                for v in 0..2 {
                    let products = _mm256_madd_epi16(quantized, wide[v]);
                    all[row][v] = _mm256_add_epi32(all[row][v], products);
                }
            }
        }
        for row in 0..ROWS {
            let ([first, second], sums) = (all[row], &mut sums[row]);
            let pairs = _mm256_hadd_epi32(first, second);
            let ordered = _mm256_permute4x64_epi64::<0b11_01_10_00>(pairs);
            // SAFETY: each half has 8 sums.
            unsafe {
                _mm256_storeu_si256(sums[half * 8..half * 8 + 8].as_mut_ptr().cast(), ordered)
            };
        }
    }
    sums
}

/// Adds the products of a pair of taps for 32 channels, in the order of packed weights.
#[target_feature(enable = "avx2")]
pub(super) fn add_pair(
    quantized: &[[i8; 32]; 2],
    weights: &[[i16; 32]; 2],
    sums: &mut [[i32; LANES]; 2],
) {
    for half in 0..2 {
        let mut both = [_mm256_setzero_si256(); 2];
        for tap in 0..2 {
            // SAFETY: 16 bytes follow `half * 16`.
            let quantized = unsafe { _mm_loadu_si128(quantized[tap][half * 16..].as_ptr().cast()) };
            both[tap] = _mm256_cvtepi8_epi16(quantized);
        }
        let [first, second] = both;
        let pairs = [_mm256_unpacklo_epi16(first, second), _mm256_unpackhi_epi16(first, second)];
        for at in 0..2 {
            let (weights, pairs) = (&weights[at], pairs[at]);
            let dst = sums[at][half * 8..half * 8 + 8].as_mut_ptr().cast();
            let weights = weights[half * 16..half * 16 + 16].as_ptr().cast();
            // SAFETY: the destination has 8 sums, and 16 weights belong to them.
            unsafe {
                let added = _mm256_madd_epi16(pairs, _mm256_loadu_si256(weights));
                _mm256_storeu_si256(dst, _mm256_add_epi32(_mm256_loadu_si256(dst), added));
            }
        }
    }
}
