//! Innermost loops with x86-64 intrinsics: 16-bit multiply-add for dot products, 32-bit and 64-bit
//! arithmetic for requantization.

use super::CHANNELS;
use super::gemm::UNIT;
use super::requantize::Scale;
use crate::compute::simd::Tier;
use core::arch::x86_64::{
    __m128i, __m256i, __m512i, _mm_add_epi32, _mm_loadu_si128, _mm256_add_epi32, _mm256_add_epi64,
    _mm256_and_si256, _mm256_blend_epi32, _mm256_blendv_epi8, _mm256_castsi256_si128,
    _mm256_cmpeq_epi32, _mm256_cvtepi8_epi16, _mm256_extracti128_si256, _mm256_hadd_epi32,
    _mm256_loadu_si256, _mm256_madd_epi16, _mm256_maskz_loadu_epi8, _mm256_max_epi32,
    _mm256_min_epi32, _mm256_mul_epi32, _mm256_set1_epi32, _mm256_set1_epi64x,
    _mm256_setzero_si256, _mm256_slli_epi64, _mm256_sllv_epi32, _mm256_srai_epi32,
    _mm256_srav_epi32, _mm256_srli_epi64, _mm256_storeu_si256, _mm256_sub_epi32, _mm512_add_epi32,
    _mm512_add_epi64, _mm512_and_si512, _mm512_castsi512_si256, _mm512_cmpeq_epi32_mask,
    _mm512_cvtepi8_epi16, _mm512_extracti64x4_epi64, _mm512_loadu_epi32, _mm512_madd_epi16,
    _mm512_mask_blend_epi32, _mm512_maskz_loadu_epi16, _mm512_max_epi32, _mm512_min_epi32,
    _mm512_mul_epi32, _mm512_set1_epi32, _mm512_set1_epi64, _mm512_setzero_si512,
    _mm512_slli_epi64, _mm512_sllv_epi32, _mm512_srai_epi32, _mm512_srav_epi32, _mm512_srli_epi64,
    _mm512_storeu_epi32, _mm512_sub_epi32,
};

/// Number of sums that are requantized together.
pub(super) const LANES: usize = 16;

/// The first values of a slice, padded with zeros.
#[inline(always)]
pub(super) fn block<T: Copy + Default>(values: &[T]) -> [T; LANES] {
    if let Some(block) = values.first_chunk() {
        return *block;
    }
    let mut block = [T::default(); LANES];
    block.iter_mut().zip(values).for_each(|(dst, value)| *dst = *value);
    block
}

/// Writes as many values of a block as `out` holds.
#[inline(always)]
pub(super) fn write(block: [i8; LANES], out: &mut [i8]) {
    match out.first_chunk_mut() {
        Some(out) => *out = block,
        None => out.iter_mut().zip(block).for_each(|(out, code)| *out = code),
    }
}

/// Weight rows that are multiplied together: their sums fill a 128-bit vector.
const WEIGHT_ROWS: usize = 4;
const _: () = assert!(CHANNELS.is_multiple_of(WEIGHT_ROWS));

/// Vectors of 16-bit integers, for multiply-add of pairs.
///
/// # Safety
/// Loads read exactly `min(left, WIDTH)` elements and set the others to zero.
unsafe trait Words: Copy {
    /// Elements of a vector.
    const WIDTH: usize;
    const ZERO: Self;
    /// # Safety
    /// `min(left, WIDTH)` values are readable, and the processor has the instructions.
    unsafe fn inputs(from: *const i16, left: usize) -> Self;
    /// # Safety
    /// As for [`inputs`](Self::inputs).
    unsafe fn weights(from: *const i8, left: usize) -> Self;
    /// # Safety
    /// The processor has the instructions.
    unsafe fn add_products(self, a: Self, b: Self) -> Self;
    /// Horizontal sums of four vectors.
    ///
    /// # Safety
    /// The processor has the instructions.
    unsafe fn totals(all: [Self; WEIGHT_ROWS]) -> __m128i;
}

/// Horizontal sums of four vectors of eight integers.
#[target_feature(enable = "avx2")]
#[inline]
fn totals([a, b, c, d]: [__m256i; WEIGHT_ROWS]) -> __m128i {
    let pairs = _mm256_hadd_epi32(_mm256_hadd_epi32(a, b), _mm256_hadd_epi32(c, d));
    _mm_add_epi32(_mm256_castsi256_si128(pairs), _mm256_extracti128_si256::<1>(pairs))
}

#[derive(Clone, Copy)]
struct Avx512(__m512i);

// SAFETY: masks have a bit for each element that is read.
unsafe impl Words for Avx512 {
    const WIDTH: usize = 32;
    // SAFETY: all bit patterns are valid integers.
    const ZERO: Self = unsafe { core::mem::zeroed() };

    #[inline(always)]
    unsafe fn inputs(from: *const i16, left: usize) -> Self {
        // SAFETY: guaranteed by the caller.
        Avx512(unsafe { _mm512_maskz_loadu_epi16(mask(left), from) })
    }

    #[inline(always)]
    unsafe fn weights(from: *const i8, left: usize) -> Self {
        // SAFETY: guaranteed by the caller.
        Avx512(unsafe { _mm512_cvtepi8_epi16(_mm256_maskz_loadu_epi8(mask(left), from)) })
    }

    #[inline(always)]
    unsafe fn add_products(self, a: Self, b: Self) -> Self {
        // SAFETY: guaranteed by the caller.
        Avx512(unsafe { _mm512_add_epi32(self.0, _mm512_madd_epi16(a.0, b.0)) })
    }

    #[inline(always)]
    unsafe fn totals(all: [Self; WEIGHT_ROWS]) -> __m128i {
        let [a, b, c, d] = all;
        // SAFETY: guaranteed by the caller.
        let half = |Avx512(all): Avx512| unsafe {
            _mm256_add_epi32(_mm512_castsi512_si256(all), _mm512_extracti64x4_epi64::<1>(all))
        };
        // SAFETY: processors with AVX-512 have AVX2.
        unsafe { totals([half(a), half(b), half(c), half(d)]) }
    }
}

fn mask(left: usize) -> u32 {
    u32::MAX >> (32 - left.clamp(1, 32))
}

#[derive(Clone, Copy)]
struct Avx2(__m256i);

// SAFETY: fewer than `WIDTH` elements are copied to an array of `WIDTH` zeros first.
unsafe impl Words for Avx2 {
    const WIDTH: usize = 16;
    // SAFETY: all bit patterns are valid integers.
    const ZERO: Self = unsafe { core::mem::zeroed() };

    #[inline(always)]
    unsafe fn inputs(from: *const i16, left: usize) -> Self {
        if left >= Self::WIDTH {
            // SAFETY: guaranteed by the caller.
            return Avx2(unsafe { _mm256_loadu_si256(from.cast()) });
        }
        let mut few = [0i16; Self::WIDTH];
        // SAFETY: the caller guarantees `left` elements, fewer than the array has.
        unsafe { few.as_mut_ptr().copy_from_nonoverlapping(from, left) };
        // SAFETY: the array has `WIDTH` elements.
        Avx2(unsafe { _mm256_loadu_si256(few.as_ptr().cast()) })
    }

    #[inline(always)]
    unsafe fn weights(from: *const i8, left: usize) -> Self {
        let mut few = [0i8; Self::WIDTH];
        let from = if left >= Self::WIDTH {
            from
        } else {
            // SAFETY: as in `inputs`.
            unsafe { few.as_mut_ptr().copy_from_nonoverlapping(from, left) };
            few.as_ptr()
        };
        // SAFETY: `from` points to 16 elements, of the caller or of the copy.
        Avx2(unsafe { _mm256_cvtepi8_epi16(_mm_loadu_si128(from.cast())) })
    }

    #[inline(always)]
    unsafe fn add_products(self, a: Self, b: Self) -> Self {
        // SAFETY: guaranteed by the caller.
        Avx2(unsafe { _mm256_add_epi32(self.0, _mm256_madd_epi16(a.0, b.0)) })
    }

    #[inline(always)]
    unsafe fn totals(all: [Self; WEIGHT_ROWS]) -> __m128i {
        let [a, b, c, d] = all;
        // SAFETY: guaranteed by the caller.
        unsafe { totals([a.0, b.0, c.0, d.0]) }
    }
}

/// Dot products of `R` widened rows with `count` rows of weights of this depth. Returns `false` if
/// the tier has no instructions for it. A value plus a usual offset has 9 bits, so the sum of two
/// products fits 32 bits.
pub(super) fn sums<const R: usize>(
    tier: Tier,
    wide: &[i16],
    weights: &[i8],
    [depth, count]: [usize; 2],
    sums: &mut [[i32; CHANNELS]; R],
) -> bool {
    let stride = depth.next_multiple_of(UNIT);
    if depth == 0 || count > CHANNELS || wide.len() < stride * R || weights.len() < depth * count {
        return false;
    }
    match tier.lanes() {
        // SAFETY: on x86-64, only the AVX-512 tiers have 16 lanes, and a tier proves its
        // instructions. The lengths were compared.
        16 => unsafe { sums_512(wide, weights, [depth, count], sums) },
        // SAFETY: likewise, only the AVX2 tier has 8 lanes.
        8 => unsafe { sums_256(wide, weights, [depth, count], sums) },
        _ => return false,
    }
    true
}

/// # Safety
/// As for [`run`].
#[target_feature(enable = "avx2,avx512f,avx512bw,avx512vl")]
unsafe fn sums_512<const R: usize>(
    wide: &[i16],
    weights: &[i8],
    shape: [usize; 2],
    sums: &mut [[i32; CHANNELS]; R],
) {
    // SAFETY: guaranteed by the caller.
    unsafe { run::<Avx512, R>(wide, weights, shape, sums) }
}

/// # Safety
/// As for [`run`].
#[target_feature(enable = "avx2")]
unsafe fn sums_256<const R: usize>(
    wide: &[i16],
    weights: &[i8],
    shape: [usize; 2],
    sums: &mut [[i32; CHANNELS]; R],
) {
    // SAFETY: guaranteed by the caller.
    unsafe { run::<Avx2, R>(wide, weights, shape, sums) }
}

/// # Safety
/// The processor has the instructions. `wide` has `R` rows, each of the depth rounded up to a
/// multiple of [`UNIT`]. `weights` has `count` rows of the depth, at most [`CHANNELS`].
#[inline(always)]
unsafe fn run<W: Words, const R: usize>(
    wide: &[i16],
    weights: &[i8],
    [depth, count]: [usize; 2],
    sums: &mut [[i32; CHANNELS]; R],
) {
    let stride = depth.next_multiple_of(UNIT);
    let mut channel = 0;
    while channel < count {
        // Missing rows repeat the last one. `sums` has space for their results, which nothing
        // reads.
        let mut rows = [weights.as_ptr(); WEIGHT_ROWS];
        for (at, row) in rows.iter_mut().enumerate() {
            *row = row.wrapping_add((channel + at).min(count - 1) * depth);
        }
        let mut all = [[W::ZERO; WEIGHT_ROWS]; R];
        let mut at = 0;
        while at < depth {
            let left = depth - at;
            let mut factors = [W::ZERO; WEIGHT_ROWS];
            for (factor, row) in factors.iter_mut().zip(rows) {
                // SAFETY: the row has `left` weights from `at` on.
                *factor = unsafe { W::weights(row.add(at), left) };
            }
            for (row, sums) in all.iter_mut().enumerate() {
                // SAFETY: each widened row has at least `depth` elements.
                let quantized = unsafe { W::inputs(wide.as_ptr().add(row * stride + at), left) };
                for (sum, factor) in sums.iter_mut().zip(factors) {
                    // SAFETY: guaranteed by the caller.
                    *sum = unsafe { sum.add_products(quantized, factor) };
                }
            }
            at += W::WIDTH;
        }
        for (sums, all) in sums.iter_mut().zip(all) {
            // SAFETY: guaranteed by the caller.
            let totals = unsafe { W::totals(all) };
            // SAFETY: both types have 128 bits, and all bit patterns are valid integers.
            let totals: [i32; WEIGHT_ROWS] = unsafe { core::mem::transmute(totals) };
            if let Some(dst) = sums.get_mut(channel..channel + WEIGHT_ROWS) {
                dst.copy_from_slice(&totals);
            }
        }
        channel += WEIGHT_ROWS;
    }
}

/// Applies [`Scale::apply`] to each value, with a scale of its own.
#[inline(always)]
pub(super) fn apply(tier: Tier, values: &mut [i32; LANES], scales: [&[i32; LANES]; 2]) {
    match tier.lanes() {
        // SAFETY: on x86-64, only the AVX-512 tiers have 16 lanes, and a tier proves its
        // instructions.
        16 => unsafe { apply_512(values, scales) },
        // SAFETY: likewise, only the AVX2 tier has 8 lanes.
        8 => unsafe { apply_256(values, scales) },
        _ => {
            let [multipliers, shifts] = scales;
            for ((value, multiplier), shift) in values.iter_mut().zip(multipliers).zip(shifts) {
                *value = Scale::known(*multiplier, *shift).apply(*value);
            }
        }
    }
}

#[inline]
#[target_feature(enable = "avx2,avx512f,avx512bw,avx512vl")]
fn apply_512(values: &mut [i32; LANES], scales: [&[i32; LANES]; 2]) {
    let zero = _mm512_setzero_si512();
    // SAFETY: each array has the length of a register.
    let (value, multiplier, shift) = unsafe {
        (
            _mm512_loadu_epi32(values.as_ptr()),
            _mm512_loadu_epi32(scales[0].as_ptr()),
            _mm512_loadu_epi32(scales[1].as_ptr()),
        )
    };
    let right = _mm512_sub_epi32(zero, _mm512_min_epi32(shift, zero));
    let value = _mm512_sllv_epi32(value, _mm512_max_epi32(shift, zero));
    // 64-bit products of even and of odd lanes; the results are their bits 31 to 62.
    let half = _mm512_set1_epi64(1 << 30);
    let even = _mm512_add_epi64(_mm512_mul_epi32(value, multiplier), half);
    let (value, multiplier) = (_mm512_srli_epi64::<32>(value), _mm512_srli_epi64::<32>(multiplier));
    let odd = _mm512_add_epi64(_mm512_mul_epi32(value, multiplier), half);
    let (even, odd) = (_mm512_srli_epi64::<31>(even), _mm512_slli_epi64::<1>(odd));
    let product = _mm512_mask_blend_epi32(0xaaaa, even, odd);
    // Rounding right shift, as in `rounding_shift_right`.
    let one = _mm512_set1_epi32(1);
    let bits = _mm512_and_si512(_mm512_sub_epi32(right, one), _mm512_set1_epi32(31));
    let toward = _mm512_add_epi32(product, _mm512_srai_epi32::<31>(product));
    let twice = _mm512_srav_epi32(toward, bits);
    let rounded = _mm512_add_epi32(_mm512_srai_epi32::<1>(twice), _mm512_and_si512(twice, one));
    let made = _mm512_mask_blend_epi32(_mm512_cmpeq_epi32_mask(right, zero), rounded, product);
    // SAFETY: the array has the length of a register.
    unsafe { _mm512_storeu_epi32(values.as_mut_ptr(), made) };
}

#[inline]
#[target_feature(enable = "avx2")]
fn apply_256(values: &mut [i32; LANES], scales: [&[i32; LANES]; 2]) {
    let zero = _mm256_setzero_si256();
    for at in [0, LANES / 2] {
        // SAFETY: each half of the arrays has the length of a register.
        let (value, multiplier, shift) = unsafe {
            (
                _mm256_loadu_si256(values.as_ptr().add(at).cast()),
                _mm256_loadu_si256(scales[0].as_ptr().add(at).cast()),
                _mm256_loadu_si256(scales[1].as_ptr().add(at).cast()),
            )
        };
        let right = _mm256_sub_epi32(zero, _mm256_min_epi32(shift, zero));
        let value = _mm256_sllv_epi32(value, _mm256_max_epi32(shift, zero));
        let half = _mm256_set1_epi64x(1 << 30);
        let even = _mm256_add_epi64(_mm256_mul_epi32(value, multiplier), half);
        let (value, multiplier) =
            (_mm256_srli_epi64::<32>(value), _mm256_srli_epi64::<32>(multiplier));
        let odd = _mm256_add_epi64(_mm256_mul_epi32(value, multiplier), half);
        let (even, odd) = (_mm256_srli_epi64::<31>(even), _mm256_slli_epi64::<1>(odd));
        let product = _mm256_blend_epi32::<0b1010_1010>(even, odd);
        let one = _mm256_set1_epi32(1);
        let bits = _mm256_and_si256(_mm256_sub_epi32(right, one), _mm256_set1_epi32(31));
        let toward = _mm256_add_epi32(product, _mm256_srai_epi32::<31>(product));
        let twice = _mm256_srav_epi32(toward, bits);
        let rounded = _mm256_add_epi32(_mm256_srai_epi32::<1>(twice), _mm256_and_si256(twice, one));
        let made = _mm256_blendv_epi8(rounded, product, _mm256_cmpeq_epi32(right, zero));
        // SAFETY: as above.
        unsafe { _mm256_storeu_si256(values.as_mut_ptr().add(at).cast(), made) };
    }
}
