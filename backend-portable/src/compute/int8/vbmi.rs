//! Table lookup with AVX-512 VBMI, which permutes bytes of two registers.

use super::elementwise::TABLE_LEN;
use crate::compute::simd::Tier;
use core::arch::x86_64::{
    _mm512_loadu_epi8, _mm512_mask_blend_epi8, _mm512_mask_storeu_epi8, _mm512_maskz_loadu_epi8,
    _mm512_movepi8_mask, _mm512_permutex2var_epi8,
};

/// Bytes of a register.
const LANES: usize = 64;

/// Looks up values, up to the shorter length. Returns `false` if the tier or the processor lacks
/// the instructions.
pub(super) fn lookup(
    tier: Tier,
    quantized: &[i8],
    table: &[i8; TABLE_LEN],
    out: &mut [i8],
) -> bool {
    let is_there = tier.is_avx512() && std::arch::is_x86_feature_detected!("avx512vbmi");
    if is_there {
        // SAFETY: the tier proves AVX-512, and VBMI was detected.
        unsafe { look_up(quantized, table, out) };
    }
    is_there
}

/// # Safety
/// The processor has AVX-512 with BW and VBMI.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vbmi")]
unsafe fn look_up(quantized: &[i8], table: &[i8; TABLE_LEN], out: &mut [i8]) {
    let (parts, _) = table.as_chunks::<LANES>();
    let mut quarters = [[0; LANES]; TABLE_LEN / LANES];
    quarters.copy_from_slice(parts);
    // SAFETY: each quarter has the length of a register.
    let [a, b, c, d] = unsafe {
        let [a, b, c, d] = &quarters;
        [
            _mm512_loadu_epi8(a.as_ptr()),
            _mm512_loadu_epi8(b.as_ptr()),
            _mm512_loadu_epi8(c.as_ptr()),
            _mm512_loadu_epi8(d.as_ptr()),
        ]
    };
    let all = out.len().min(quantized.len());
    for from in (0..all).step_by(LANES) {
        let (out, quantized) = (&mut out[from..all], &quantized[from..all]);
        let count = out.len().min(LANES);
        let mask = u64::MAX >> (LANES - count);
        // SAFETY: the mask covers the remaining values, at least one.
        let quantized = unsafe { _mm512_maskz_loadu_epi8(mask, quantized.as_ptr()) };
        // The lower seven bits index a half of the table; non-negative values use the second half.
        let negative = _mm512_movepi8_mask(quantized);
        let upper = _mm512_permutex2var_epi8(c, quantized, d);
        let found = _mm512_permutex2var_epi8(a, quantized, b);
        let found = _mm512_mask_blend_epi8(negative, upper, found);
        // SAFETY: the mask covers the remaining elements of `out`.
        unsafe { _mm512_mask_storeu_epi8(out.as_mut_ptr(), mask, found) };
    }
}
