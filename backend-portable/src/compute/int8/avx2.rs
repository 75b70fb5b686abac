//! AVX2: codes become 16 bits, of which pairs are multiplied and added.

use super::plain::ROWS;
use super::{LANES, STEP};
use core::arch::x86_64::{
    __m256i, _mm_cvtepi8_epi16, _mm_cvtsi32_si128, _mm_loadu_si128, _mm256_add_epi32,
    _mm256_broadcastq_epi64, _mm256_cvtepi8_epi16, _mm256_hadd_epi32, _mm256_loadu_si256,
    _mm256_madd_epi16, _mm256_permute4x64_epi64, _mm256_setzero_si256, _mm256_storeu_si256,
    _mm256_unpackhi_epi16, _mm256_unpacklo_epi16,
};

/// The sums of rows and a panel.
#[target_feature(enable = "avx2")]
pub(super) fn sums(rows: &[&[i8]; ROWS], panel: &[i8]) -> [[i32; LANES]; ROWS] {
    let mut sums = [[0i32; LANES]; ROWS];
    let (weights, _) = panel.as_chunks::<{ LANES * STEP }>();
    let rows = rows.map(|row| row.as_chunks::<STEP>().0);
    let steps = rows.iter().fold(weights.len(), |steps, row| steps.min(row.len()));
    let rows = rows.map(|row| &row[..steps]);
    // Eight columns at a time: four in a vector, of which each has two sums.
    for half in 0..2 {
        let mut all = [[_mm256_setzero_si256(); 2]; ROWS];
        for (step, weights) in weights.iter().enumerate().take(steps) {
            let (quarters, _) = weights.as_chunks::<16>();
            let wide: [__m256i; 2] = core::array::from_fn(|quarter| {
                // SAFETY: a quarter has 16 codes.
                let codes =
                    unsafe { _mm_loadu_si128(quarters[half * 2 + quarter].as_ptr().cast()) };
                _mm256_cvtepi8_epi16(codes)
            });
            for (row, sums) in rows.iter().zip(&mut all) {
                let codes = i32::from_le_bytes(row[step].map(i8::cast_unsigned));
                let codes = _mm256_broadcastq_epi64(_mm_cvtepi8_epi16(_mm_cvtsi32_si128(codes)));
                for (sum, weights) in sums.iter_mut().zip(&wide) {
                    *sum = _mm256_add_epi32(*sum, _mm256_madd_epi16(codes, *weights));
                }
            }
        }
        for (sums, [first, second]) in sums.iter_mut().zip(all) {
            let pairs = _mm256_hadd_epi32(first, second);
            let ordered = _mm256_permute4x64_epi64::<0b11_01_10_00>(pairs);
            // SAFETY: a half has 8 sums.
            unsafe {
                _mm256_storeu_si256(sums[half * 8..half * 8 + 8].as_mut_ptr().cast(), ordered)
            };
        }
    }
    sums
}

/// Adds the products of a pair of taps of 32 channels, in the order of packed weights.
#[target_feature(enable = "avx2")]
pub(super) fn add_pair(
    codes: &[[i8; 32]; 2],
    weights: &[[i16; 32]; 2],
    sums: &mut [[i32; LANES]; 2],
) {
    for half in 0..2 {
        let [first, second] = [0, 1].map(|tap| {
            // SAFETY: there are 16 codes from each half on.
            let codes = unsafe { _mm_loadu_si128(codes[tap][half * 16..].as_ptr().cast()) };
            _mm256_cvtepi8_epi16(codes)
        });
        let pairs = [_mm256_unpacklo_epi16(first, second), _mm256_unpackhi_epi16(first, second)];
        for ((sums, weights), pairs) in sums.iter_mut().zip(weights).zip(pairs) {
            let place = sums[half * 8..half * 8 + 8].as_mut_ptr().cast();
            let weights = weights[half * 16..half * 16 + 16].as_ptr().cast();
            // SAFETY: there are 8 sums, and 16 weights for them.
            unsafe {
                let added = _mm256_madd_epi16(pairs, _mm256_loadu_si256(weights));
                _mm256_storeu_si256(place, _mm256_add_epi32(_mm256_loadu_si256(place), added));
            }
        }
    }
}
