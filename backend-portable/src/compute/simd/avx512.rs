//! x86-64 with AVX-512 (F, DQ, BW, VL): 16 lanes, 32 registers, masks.

use super::{Simd, Vectorized};
use core::arch::x86_64::*;

/// Token of the AVX-512 tier.
#[derive(Clone, Copy, Debug)]
pub(super) struct Avx512(());

impl Avx512 {
    /// # Safety
    /// The processor has AVX2, FMA and AVX-512 F, DQ, BW and VL.
    #[inline(always)]
    pub(super) const unsafe fn new() -> Self {
        Avx512(())
    }
}

// Never inlined: a kernel called from another kernel (a register tile from the loops around it)
// must have all registers, without sharing them with vectors of the caller.
#[inline(never)]
#[target_feature(enable = "avx2,fma,avx512f,avx512dq,avx512bw,avx512vl")]
fn shell<K: Vectorized>(kernel: K, s: Avx512) -> K::Output {
    kernel.run(s)
}

/// Calls an intrinsic that is safe given the token.
macro_rules! isa {
    ($e:expr) => {
        // SAFETY: `self` exists, so the processor has these instructions.
        unsafe { $e }
    };
}

#[inline(always)]
fn mask(n: usize) -> __mmask16 {
    ((1u32 << n.min(16)) - 1) as __mmask16
}

impl Simd for Avx512 {
    const LANES: usize = 16;
    // 8 x 3 accumulators and 3 + 1 operands use 28 of 32 registers, and eight row pointers fit the
    // integer registers.
    const ROWS: usize = 8;
    const VECTORS: usize = 3;
    const BLOCK: usize = 8;
    type F = __m512;
    type M = __mmask16;
    const HAS_F16_LOADS: bool = true;

    #[inline(always)]
    unsafe fn load_f16(self, p: *const half::f16) -> __m512 {
        // SAFETY: the caller guarantees 16 readable values; the token proves the instruction set.
        unsafe { _mm512_cvtph_ps(_mm256_loadu_si256(p.cast())) }
    }

    #[inline(always)]
    fn vectorize<K: Vectorized>(self, kernel: K) -> K::Output {
        isa!(shell(kernel, self))
    }
    #[inline(always)]
    fn splat(self, x: f32) -> __m512 {
        isa!(_mm512_set1_ps(x))
    }
    #[inline(always)]
    unsafe fn load(self, p: *const f32) -> __m512 {
        // SAFETY: guaranteed by the caller; the token proves the instruction set.
        unsafe { _mm512_loadu_ps(p) }
    }
    #[inline(always)]
    fn prefetch(self, p: *const f32) {
        isa!(_mm_prefetch::<_MM_HINT_T0>(p.cast()))
    }
    #[inline(always)]
    fn prefetch_second(self, p: *const f32) {
        isa!(_mm_prefetch::<_MM_HINT_T1>(p.cast()))
    }
    #[inline(always)]
    fn prefetch_write(self, p: *const f32) {
        isa!(_mm_prefetch::<_MM_HINT_ET0>(p.cast()))
    }
    #[inline(always)]
    unsafe fn store(self, p: *mut f32, v: __m512) {
        // SAFETY: guaranteed by the caller; the token proves the instruction set.
        unsafe { _mm512_storeu_ps(p, v) }
    }
    #[inline(always)]
    unsafe fn load_first(self, p: *const f32, n: usize) -> __m512 {
        // SAFETY: lanes from `n` on are masked and not read; the token proves the instruction set.
        unsafe { _mm512_maskz_loadu_ps(mask(n), p) }
    }
    #[inline(always)]
    unsafe fn store_first(self, p: *mut f32, n: usize, v: __m512) {
        // SAFETY: lanes from `n` on are masked and not written; the token proves the instruction
        // set.
        unsafe { _mm512_mask_storeu_ps(p, mask(n), v) }
    }
    #[inline(always)]
    unsafe fn load_even(self, p: *const f32) -> __m512 {
        // SAFETY: reads p[0..16] and p[15..31], 2 * 16 - 1 floats in total; the token proves the
        // instruction set.
        unsafe {
            let a = _mm512_loadu_ps(p);
            let b = _mm512_loadu_ps(p.add(15));
            // The second load starts at an odd index: p[16] is its element 1.
            let pick = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 17, 19, 21, 23, 25, 27, 29, 31);
            _mm512_permutex2var_ps(a, pick, b)
        }
    }
    #[inline(always)]
    unsafe fn load_even_first(self, p: *const f32, n: usize) -> __m512 {
        let count = (2 * n).saturating_sub(1);
        // SAFETY: the masks restrict the loads to p[0..count]; the token proves the instruction
        // set.
        unsafe {
            let a = _mm512_maskz_loadu_ps(mask(count), p);
            let b = _mm512_maskz_loadu_ps(mask(count.saturating_sub(15)), p.wrapping_add(15));
            let pick = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 17, 19, 21, 23, 25, 27, 29, 31);
            _mm512_permutex2var_ps(a, pick, b)
        }
    }
    #[inline(always)]
    unsafe fn transpose(
        self,
        src: *const f32,
        src_stride: usize,
        dst: *mut f32,
        dst_stride: usize,
    ) {
        // SAFETY: guaranteed by the caller for an 8 x 8 block; the token implies AVX2.
        unsafe { super::avx2::transpose8(src, src_stride, dst, dst_stride) }
    }
    #[inline(always)]
    fn swap<const BY: usize>(self, v: __m512) -> __m512 {
        match BY {
            1 => isa!(_mm512_permute_ps::<0b10_11_00_01>(v)),
            2 => isa!(_mm512_permute_ps::<0b01_00_11_10>(v)),
            4 => isa!(_mm512_shuffle_f32x4::<0b10_11_00_01>(v, v)),
            _ => isa!(_mm512_shuffle_f32x4::<0b01_00_11_10>(v, v)),
        }
    }
    lanewise! {
        [isa]
        add(a, b) = _mm512_add_ps(a, b);
        sub(a, b) = _mm512_sub_ps(a, b);
        mul(a, b) = _mm512_mul_ps(a, b);
        div(a, b) = _mm512_div_ps(a, b);
        mul_add(a, b, c) = _mm512_fmadd_ps(a, b, c);
        min(a, b) = _mm512_min_ps(a, b);
        max(a, b) = _mm512_max_ps(a, b);
        neg(a) = _mm512_xor_ps(a, _mm512_set1_ps(-0.0));
        abs(a) = _mm512_andnot_ps(_mm512_set1_ps(-0.0), a);
        copysign(a, sign) = {
            let bit = _mm512_set1_ps(-0.0);
            _mm512_or_ps(_mm512_andnot_ps(bit, a), _mm512_and_ps(bit, sign))
        };
        sqrt(a) = _mm512_sqrt_ps(a);
        round(a) = _mm512_roundscale_ps::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(a);
        exp2i(n) = {
            let biased = _mm512_add_epi32(_mm512_cvtps_epi32(n), _mm512_set1_epi32(127));
            _mm512_castsi512_ps(_mm512_slli_epi32::<23>(biased))
        };
        scale(a, n) = _mm512_scalef_ps(a, n);
    }
    #[inline(always)]
    fn lt(self, a: __m512, b: __m512) -> __mmask16 {
        isa!(_mm512_cmp_ps_mask::<_CMP_LT_OQ>(a, b))
    }
    #[inline(always)]
    fn is_nan(self, a: __m512) -> __mmask16 {
        isa!(_mm512_cmp_ps_mask::<_CMP_UNORD_Q>(a, a))
    }
    #[inline(always)]
    fn select(self, m: __mmask16, t: __m512, f: __m512) -> __m512 {
        isa!(_mm512_mask_blend_ps(m, f, t))
    }
    #[inline(always)]
    fn reduce_sum(self, a: __m512) -> f32 {
        isa!(_mm512_reduce_add_ps(a))
    }
}
