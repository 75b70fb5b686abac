//! Tables of codes with AVX-512 VBMI, whose permutations take bytes from two registers.

use super::elementwise::CODES;
use crate::compute::simd::Tier;
use core::arch::x86_64::{
    _mm512_loadu_epi8, _mm512_mask_blend_epi8, _mm512_mask_storeu_epi8, _mm512_maskz_loadu_epi8,
    _mm512_movepi8_mask, _mm512_permutex2var_epi8,
};

/// Codes of a register.
const LANES: usize = 64;

/// Writes what a table has for codes, as far as there are both; `false` if a tier or the processor
/// has not the instructions.
pub(super) fn lookup(tier: Tier, codes: &[i8], table: &[i8; CODES], out: &mut [i8]) -> bool {
    let is_there = tier.is_avx512() && std::arch::is_x86_feature_detected!("avx512vbmi");
    if is_there {
        // SAFETY: the instructions are there: the tier proves those of AVX-512, and the others were
        // asked for.
        unsafe { look_up(codes, table, out) };
    }
    is_there
}

/// # Safety
/// The processor has AVX-512 with BW and VBMI.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vbmi")]
unsafe fn look_up(codes: &[i8], table: &[i8; CODES], out: &mut [i8]) {
    let (parts, _) = table.as_chunks::<LANES>();
    let mut quarters = [[0; LANES]; CODES / LANES];
    quarters.copy_from_slice(parts);
    // SAFETY: each is as long as a register.
    let [a, b, c, d] = unsafe {
        let [a, b, c, d] = &quarters;
        [
            _mm512_loadu_epi8(a.as_ptr()),
            _mm512_loadu_epi8(b.as_ptr()),
            _mm512_loadu_epi8(c.as_ptr()),
            _mm512_loadu_epi8(d.as_ptr()),
        ]
    };
    let all = out.len().min(codes.len());
    for from in (0..all).step_by(LANES) {
        let (out, codes) = (&mut out[from..all], &codes[from..all]);
        let count = out.len().min(LANES);
        let mask = u64::MAX >> (LANES - count);
        // SAFETY: the mask is that of the codes, of which there is one at least.
        let codes = unsafe { _mm512_maskz_loadu_epi8(mask, codes.as_ptr()) };
        // The seven lower bits are a place in either half: codes from zero on are in the second.
        let negative = _mm512_movepi8_mask(codes);
        let upper = _mm512_permutex2var_epi8(c, codes, d);
        let found = _mm512_permutex2var_epi8(a, codes, b);
        let found = _mm512_mask_blend_epi8(negative, upper, found);
        // SAFETY: the mask is that of the places.
        unsafe { _mm512_mask_storeu_epi8(out.as_mut_ptr(), mask, found) };
    }
}
