//! x86-64 with AVX2 and FMA: 8 lanes, 16 registers.

use super::{Simd, Vectorized};
use core::arch::x86_64::*;

/// Token of the AVX2 + FMA tier.
#[derive(Clone, Copy, Debug)]
pub(super) struct Avx2(());

impl Avx2 {
    /// # Safety
    /// The processor has AVX2 and FMA.
    #[inline(always)]
    pub(super) const unsafe fn new() -> Self {
        Avx2(())
    }
}

// Never inlined: a kernel called from another kernel (a register tile from the loops around it)
// must have all registers, without sharing them with vectors of the caller.
#[inline(never)]
#[target_feature(enable = "avx2,fma")]
fn shell<K: Vectorized>(kernel: K, s: Avx2) -> K::Output {
    kernel.run(s)
}

/// Calls an intrinsic that is safe given the token.
macro_rules! isa {
    ($e:expr) => {
        // SAFETY: `self` exists, so the processor has AVX2 and FMA.
        unsafe { $e }
    };
}

/// Reading 8 elements from index `8 - n` gives `n` set lanes followed by zeros.
static MASK: [i32; 16] = [-1, -1, -1, -1, -1, -1, -1, -1, 0, 0, 0, 0, 0, 0, 0, 0];

#[inline(always)]
unsafe fn mask(n: usize) -> __m256i {
    // SAFETY: the start is at most 8, so eight elements lie inside the table; the caller has AVX2.
    unsafe { _mm256_loadu_si256(MASK.as_ptr().add(8 - n.min(8)).cast()) }
}

impl Simd for Avx2 {
    const LANES: usize = 8;
    // 6 x 2 accumulators and 2 + 1 operands use 15 of 16 registers. With 4 x 3 no register is
    // spare, and the compiler spills an accumulator.
    const ROWS: usize = 6;
    const VECTORS: usize = 2;
    const BLOCK: usize = 8;
    type F = __m256;
    type M = __m256;

    #[inline(always)]
    fn vectorize<K: Vectorized>(self, kernel: K) -> K::Output {
        isa!(shell(kernel, self))
    }
    #[inline(always)]
    fn splat(self, x: f32) -> __m256 {
        isa!(_mm256_set1_ps(x))
    }
    #[inline(always)]
    unsafe fn load(self, p: *const f32) -> __m256 {
        // SAFETY: guaranteed by the caller; the token proves the instruction set.
        unsafe { _mm256_loadu_ps(p) }
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
    unsafe fn store(self, p: *mut f32, v: __m256) {
        // SAFETY: guaranteed by the caller; the token proves the instruction set.
        unsafe { _mm256_storeu_ps(p, v) }
    }
    #[inline(always)]
    unsafe fn load_first(self, p: *const f32, n: usize) -> __m256 {
        // SAFETY: lanes from `n` on are masked and not read; the token proves the instruction set.
        unsafe { _mm256_maskload_ps(p, mask(n)) }
    }
    #[inline(always)]
    unsafe fn store_first(self, p: *mut f32, n: usize, v: __m256) {
        // SAFETY: lanes from `n` on are masked and not written; the token proves the instruction
        // set.
        unsafe { _mm256_maskstore_ps(p, mask(n), v) }
    }
    #[inline(always)]
    unsafe fn load_even(self, p: *const f32) -> __m256 {
        // SAFETY: reads p[0..8] and p[7..15], 2 * 8 - 1 floats in total; the token proves the
        // instruction set.
        unsafe {
            let a = _mm256_loadu_ps(p);
            let b = _mm256_loadu_ps(p.add(7));
            // Per 128-bit lane: a0 a2 b1 b3 | a4 a6 b5 b7; the permutation then orders the 64-bit
            // quarters.
            let mixed = _mm256_shuffle_ps::<0b11_01_10_00>(a, b);
            _mm256_castpd_ps(_mm256_permute4x64_pd::<0b11_01_10_00>(_mm256_castps_pd(mixed)))
        }
    }
    #[inline(always)]
    unsafe fn load_even_first(self, p: *const f32, n: usize) -> __m256 {
        let count = (2 * n).saturating_sub(1);
        // SAFETY: the masks restrict the loads to p[0..count]; the token proves the instruction
        // set.
        unsafe {
            let a = _mm256_maskload_ps(p, mask(count));
            let b = _mm256_maskload_ps(p.wrapping_add(7), mask(count.saturating_sub(7)));
            let mixed = _mm256_shuffle_ps::<0b11_01_10_00>(a, b);
            _mm256_castpd_ps(_mm256_permute4x64_pd::<0b11_01_10_00>(_mm256_castps_pd(mixed)))
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
        // SAFETY: guaranteed by the caller for an 8 x 8 block; the token proves the instruction
        // set.
        unsafe { transpose8(src, src_stride, dst, dst_stride) }
    }
    #[inline(always)]
    fn swap<const BY: usize>(self, v: __m256) -> __m256 {
        match BY {
            1 => isa!(_mm256_permute_ps::<0b10_11_00_01>(v)),
            2 => isa!(_mm256_permute_ps::<0b01_00_11_10>(v)),
            _ => isa!(_mm256_permute2f128_ps::<1>(v, v)),
        }
    }
    lanewise! {
        [isa]
        add(a, b) = _mm256_add_ps(a, b);
        sub(a, b) = _mm256_sub_ps(a, b);
        mul(a, b) = _mm256_mul_ps(a, b);
        div(a, b) = _mm256_div_ps(a, b);
        mul_add(a, b, c) = _mm256_fmadd_ps(a, b, c);
        min(a, b) = _mm256_min_ps(a, b);
        max(a, b) = _mm256_max_ps(a, b);
        neg(a) = _mm256_xor_ps(a, _mm256_set1_ps(-0.0));
        abs(a) = _mm256_andnot_ps(_mm256_set1_ps(-0.0), a);
        copysign(a, sign) = {
            let bit = _mm256_set1_ps(-0.0);
            _mm256_or_ps(_mm256_andnot_ps(bit, a), _mm256_and_ps(bit, sign))
        };
        sqrt(a) = _mm256_sqrt_ps(a);
        round(a) = _mm256_round_ps::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(a);
        exp2i(n) = {
            let biased = _mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127));
            _mm256_castsi256_ps(_mm256_slli_epi32::<23>(biased))
        };
        lt(a, b) = _mm256_cmp_ps::<_CMP_LT_OQ>(a, b);
        is_nan(a) = _mm256_cmp_ps::<_CMP_UNORD_Q>(a, a);
        select(m, t, f) = _mm256_blendv_ps(f, t, m);
    }
    #[inline(always)]
    fn reduce_sum(self, a: __m256) -> f32 {
        isa!({
            let four = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps::<1>(a));
            let two = _mm_add_ps(four, _mm_movehl_ps(four, four));
            _mm_cvtss_f32(_mm_add_ss(two, _mm_shuffle_ps::<1>(two, two)))
        })
    }
}

/// Transposes an 8 x 8 block in registers.
///
/// # Safety
/// As [`Simd::transpose`] for `BLOCK == 8`; the processor has AVX2.
#[inline]
#[target_feature(enable = "avx2")]
pub(super) unsafe fn transpose8(
    src: *const f32,
    src_stride: usize,
    dst: *mut f32,
    dst_stride: usize,
) {
    // SAFETY: the caller guarantees rows 0..8 of eight floats in both matrices, and AVX2.
    unsafe {
        let r = |i: usize| _mm256_loadu_ps(src.add(i * src_stride));
        let (r0, r1, r2, r3) = (r(0), r(1), r(2), r(3));
        let (r4, r5, r6, r7) = (r(4), r(5), r(6), r(7));
        let (a0, a1) = (_mm256_unpacklo_ps(r0, r1), _mm256_unpackhi_ps(r0, r1));
        let (a2, a3) = (_mm256_unpacklo_ps(r2, r3), _mm256_unpackhi_ps(r2, r3));
        let (a4, a5) = (_mm256_unpacklo_ps(r4, r5), _mm256_unpackhi_ps(r4, r5));
        let (a6, a7) = (_mm256_unpacklo_ps(r6, r7), _mm256_unpackhi_ps(r6, r7));
        let lo = |x: __m256, y: __m256| _mm256_shuffle_ps::<0b01_00_01_00>(x, y);
        let hi = |x: __m256, y: __m256| _mm256_shuffle_ps::<0b11_10_11_10>(x, y);
        let (b0, b1, b2, b3) = (lo(a0, a2), hi(a0, a2), lo(a1, a3), hi(a1, a3));
        let (b4, b5, b6, b7) = (lo(a4, a6), hi(a4, a6), lo(a5, a7), hi(a5, a7));
        let w = |j: usize, v: __m256| _mm256_storeu_ps(dst.add(j * dst_stride), v);
        w(0, _mm256_permute2f128_ps::<0x20>(b0, b4));
        w(1, _mm256_permute2f128_ps::<0x20>(b1, b5));
        w(2, _mm256_permute2f128_ps::<0x20>(b2, b6));
        w(3, _mm256_permute2f128_ps::<0x20>(b3, b7));
        w(4, _mm256_permute2f128_ps::<0x31>(b0, b4));
        w(5, _mm256_permute2f128_ps::<0x31>(b1, b5));
        w(6, _mm256_permute2f128_ps::<0x31>(b2, b6));
        w(7, _mm256_permute2f128_ps::<0x31>(b3, b7));
    }
}
