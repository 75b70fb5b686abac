//! AVX-512 VNNI kernels. VNNI needs an unsigned left operand: flipping the sign bit adds 128 to
//! each value.
//!
//! Loops are counted. Iterator adaptors such as `zip`, and `map` on arrays, are functions of the
//! standard library; a build without link-time optimization compiles them separately, for the
//! baseline processor, and calls them for each vector.

use super::matmul::{Destination, ROWS, Walk};
use super::rows::{Floats, Panels};
use super::scales::GroupScales;
use super::{Exact, LANES, Range, Requantize, STEP};
use core::arch::x86_64::{
    __m512, __m512i, __mmask16, __mmask32, __mmask64, _CMP_GE_OQ, _mm_loadu_epi8,
    _mm_mask_storeu_epi8, _mm_setr_epi8, _mm_storeu_epi8, _mm_storeu_si64, _mm256_loadu_epi16,
    _mm256_mask_storeu_epi8, _mm256_maskz_loadu_epi8, _mm256_max_epi8, _mm256_min_epi8,
    _mm256_set1_epi8, _mm256_storeu_epi8, _mm512_abs_ps, _mm512_add_epi32, _mm512_adds_epi16,
    _mm512_and_si512, _mm512_broadcast_i32x4, _mm512_castps_si512, _mm512_castsi512_ps,
    _mm512_castsi512_si128, _mm512_castsi512_si256, _mm512_cmp_ps_mask, _mm512_cvtepi8_epi16,
    _mm512_cvtepi32_ps, _mm512_cvtepu16_epi32, _mm512_cvtps_epi32, _mm512_cvtsepi16_epi8,
    _mm512_dpbusd_epi32, _mm512_dpwssd_epi32, _mm512_extracti32x4_epi32, _mm512_fmadd_ps,
    _mm512_fnmadd_ps, _mm512_loadu_epi32, _mm512_loadu_ps, _mm512_mask_storeu_epi8,
    _mm512_mask_storeu_ps, _mm512_max_epi8, _mm512_min_epi8, _mm512_mul_ps, _mm512_mullo_epi32,
    _mm512_packs_epi16, _mm512_packs_epi32, _mm512_permutexvar_epi32, _mm512_set_epi32,
    _mm512_set1_epi8, _mm512_set1_epi16, _mm512_set1_epi32, _mm512_set1_ps, _mm512_setzero_ps,
    _mm512_setzero_si512, _mm512_shuffle_epi8, _mm512_shuffle_ps, _mm512_slli_epi32,
    _mm512_srli_epi16, _mm512_storeu_epi8, _mm512_storeu_epi32, _mm512_storeu_ps, _mm512_sub_ps,
    _mm512_unpackhi_epi16, _mm512_unpacklo_epi16, _mm512_xor_si512,
};

/// Dot products of `M` rows with the columns of `V` panels, added to `sums`. With `FLIPPED`, left
/// values have 128 added already; otherwise it is added here.
///
/// # Safety
/// Each row has the lines and steps of `walk`, and each of the `V` panels from `b` on has as many
/// steps.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
unsafe fn sums<const M: usize, const V: usize, const FLIPPED: bool>(
    a: &[*const i8; ROWS],
    walk: Walk,
    b: *const i8,
    mut sums: [[__m512i; V]; M],
) -> [[__m512i; V]; M] {
    let flip = _mm512_set1_epi32(0x8080_8080_u32 as i32);
    let Walk { steps, lines, line_stride, panel } = walk;
    for line in 0..lines {
        // SAFETY: every row and panel has this line.
        let b = unsafe { b.add(line * steps * LANES * STEP) };
        for step in 0..steps {
            let mut weights = [_mm512_setzero_si512(); V];
            for v in 0..V {
                // SAFETY: `step` is inside the line of panel `v`, and the caller guarantees `V`
                // panels.
                weights[v] =
                    unsafe { _mm512_loadu_epi32(b.add(v * panel + step * LANES * STEP).cast()) };
            }
            for row in 0..M {
                // SAFETY: `step` is inside the line of the row.
                let quantized =
                    unsafe { a[row].add(line * line_stride + step * STEP).cast::<i32>() };
                // SAFETY: as above.
                let quantized = _mm512_set1_epi32(unsafe { quantized.read_unaligned() });
                let quantized = if FLIPPED { quantized } else { _mm512_xor_si512(quantized, flip) };
                for v in 0..V {
                    sums[row][v] = _mm512_dpbusd_epi32(sums[row][v], quantized, weights[v]);
                }
            }
        }
    }
    sums
}

/// Mask of the valid columns of a tile's vector `v`.
#[inline(always)]
fn mask(cols: usize, v: usize) -> __mmask16 {
    let left = cols.saturating_sub(v * LANES).min(LANES);
    ((1u32 << left) - 1) as __mmask16
}

/// Rounds the scaled sums of 16 columns from `first` on, exactly if the columns have such factors.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
fn rounded(exact: Option<Exact<'_>>, first: usize, sums: __m512i, scaled: __m512) -> __m512i {
    let rounded = _mm512_cvtps_epi32(scaled);
    if let Some(exact) = exact {
        let distance = _mm512_abs_ps(_mm512_sub_ps(scaled, _mm512_cvtepi32_ps(rounded)));
        let near = _mm512_cmp_ps_mask::<_CMP_GE_OQ>(distance, _mm512_set1_ps(Exact::TIE));
        if near != 0 {
            return rounded_exactly(exact, first, sums, rounded, near);
        }
    }
    rounded
}

/// Computes the results of some of 16 columns in integers.
#[cold]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
fn rounded_exactly(
    exact: Exact<'_>,
    first: usize,
    sums: __m512i,
    rounded: __m512i,
    near: __mmask16,
) -> __m512i {
    let (mut all, mut results) = ([0i32; LANES], [0i32; LANES]);
    // SAFETY: both arrays have 16 elements.
    unsafe {
        _mm512_storeu_epi32(all.as_mut_ptr(), sums);
        _mm512_storeu_epi32(results.as_mut_ptr(), rounded);
    }
    for (lane, (result, sum)) in results.iter_mut().zip(all).enumerate() {
        if near >> lane & 1 == 1 {
            *result = exact.rescale(sum, first + lane);
        }
    }
    // SAFETY: as above.
    unsafe { _mm512_loadu_epi32(results.as_ptr()) }
}

/// Requantization of the sums of `V` panels.
pub(super) struct Requantizer<'a, const V: usize> {
    exact: Option<Exact<'a>>,
    first: usize,
    scale: [__m512; V],
    bias: [__m512; V],
    zero: __m512i,
    low: __m512i,
    high: __m512i,
    /// Mask of the valid columns of a row.
    mask: __mmask64,
    cols: usize,
}

impl<'a, const V: usize> Requantizer<'a, V> {
    /// Loads the parameters of `cols` columns starting at `first`.
    ///
    /// # Safety
    /// `columns` has `V` panels from `first` on.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
    pub(super) unsafe fn of(columns: &Requantize<'a>, first: usize, cols: usize) -> Self {
        let (mut scale, mut bias) = ([_mm512_setzero_ps(); V], [_mm512_setzero_ps(); V]);
        for v in 0..V {
            let at = first + v * LANES;
            // SAFETY: guaranteed by the caller.
            unsafe {
                scale[v] = _mm512_loadu_ps(columns.scales.as_ptr().add(at));
                bias[v] = _mm512_loadu_ps(columns.bias.as_ptr().add(at));
            }
        }
        let Range { zero, low, high } = columns.range;
        let (zero, low, high) =
            (_mm512_set1_epi16(zero as i16), _mm512_set1_epi8(low), _mm512_set1_epi8(high));
        let mask = u64::MAX >> (64 - cols.clamp(1, V * LANES));
        Requantizer { exact: columns.exact, first, scale, bias, zero, low, high, mask, cols }
    }

    /// Requantizes and stores a row.
    ///
    /// # Safety
    /// `to` is writable for the number of columns, which is at most `V` panels.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
    pub(super) unsafe fn write(&self, sums: &[__m512i; V], to: *mut i8) {
        let mut results = [_mm512_setzero_si512(); 4];
        for v in 0..V {
            let scaled = _mm512_fmadd_ps(_mm512_cvtepi32_ps(sums[v]), self.scale[v], self.bias[v]);
            results[v] = rounded(self.exact, self.first + v * LANES, sums[v], scaled);
        }
        // All conversions saturate, including those of values outside the range.
        let pairs = [
            _mm512_adds_epi16(_mm512_packs_epi32(results[0], results[1]), self.zero),
            _mm512_adds_epi16(_mm512_packs_epi32(results[2], results[3]), self.zero),
        ];
        // 128-bit lanes interleave four values of each panel; the permutation restores the order of
        // panels.
        let quantized = _mm512_packs_epi16(pairs[0], pairs[1]);
        let order = _mm512_set_epi32(15, 11, 7, 3, 14, 10, 6, 2, 13, 9, 5, 1, 12, 8, 4, 0);
        let quantized = _mm512_permutexvar_epi32(order, quantized);
        let quantized = _mm512_min_epi8(_mm512_max_epi8(quantized, self.low), self.high);
        // SAFETY: the destination has room for all columns, and the mask excludes the others.
        unsafe {
            match (V, self.cols) {
                (1, 16) => _mm_storeu_epi8(to, _mm512_castsi512_si128(quantized)),
                (2, 32) => _mm256_storeu_epi8(to, _mm512_castsi512_si256(quantized)),
                (4, 64) => _mm512_storeu_epi8(to, quantized),
                _ => _mm512_mask_storeu_epi8(to, self.mask, quantized),
            }
        }
    }
}

/// Computes a tile of int8 results.
///
/// # Safety
/// As for [`sums`]. `dst` is writable for its rows and columns, at most `M` rows and `V` panels;
/// `columns` has `V` panels from `first` on.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
pub(super) unsafe fn requantized_tile<const M: usize, const V: usize, const FLIPPED: bool>(
    a: &[*const i8; ROWS],
    walk: Walk,
    b: *const i8,
    columns: &Requantize<'_>,
    first: usize,
    dst: &Destination<i8>,
) {
    let mut start = [_mm512_setzero_si512(); V];
    for v in 0..V {
        // SAFETY: guaranteed by the caller.
        start[v] = unsafe { _mm512_loadu_epi32(columns.start.as_ptr().add(first + v * LANES)) };
    }
    // SAFETY: guaranteed by the caller.
    let (sums, quantized) = unsafe {
        let sums = sums::<M, V, FLIPPED>(a, walk, b, [start; M]);
        (sums, Requantizer::of(columns, first, dst.cols))
    };
    for row in 0..M.min(dst.rows) {
        // SAFETY: guaranteed by the caller.
        unsafe { quantized.write(&sums[row], dst.out[row]) };
    }
}

/// Parameters of a depthwise convolution of a block of 32 channels.
pub(super) struct Lanes<'a> {
    /// Pairs of weights for pairs of taps: the first four of each eight channels, then the other
    /// four.
    pub(super) weights: &'a [[[i16; 32]; 2]],
    /// Requantization parameters, in the same order.
    pub(super) columns: Requantize<'a>,
    /// Number of valid channels.
    pub(super) channels: usize,
}

/// Computes `count` pixels of a row; each tap advances by its step from pixel to pixel. `PAIRS` is
/// the number of pairs of taps (dynamic if 0).
///
/// # Safety
/// `taps` has twice as many taps as `lanes.weights` has pairs, with `channels` readable values at
/// each tap of each pixel. `out` is writable for as many values at each of `count` pixels,
/// `out_step` apart. `columns` has 32 columns, and `channels` is at most 32.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
pub(super) unsafe fn pixels<const PAIRS: usize>(
    lanes: &Lanes<'_>,
    taps: &[(*const i8, usize)],
    count: usize,
    out: *mut i8,
    out_step: usize,
) {
    let mask = ((1u64 << lanes.channels) - 1) as __mmask32;
    let Requantize { start, scales, bias, range, exact } = lanes.columns;
    // SAFETY: the caller guarantees 32 elements of each.
    let (start, scale, bias) = unsafe {
        (
            [_mm512_loadu_epi32(start.as_ptr()), _mm512_loadu_epi32(start.as_ptr().add(16))],
            [_mm512_loadu_ps(scales.as_ptr()), _mm512_loadu_ps(scales.as_ptr().add(16))],
            [_mm512_loadu_ps(bias.as_ptr()), _mm512_loadu_ps(bias.as_ptr().add(16))],
        )
    };
    let zero = _mm512_set1_epi32(range.zero);
    let (low, high) = (_mm256_set1_epi8(range.low), _mm256_set1_epi8(range.high));
    // A constant trip count unrolls the loop.
    let (taps, all_weights) = match PAIRS {
        0 => (taps, lanes.weights),
        _ => (&taps[..PAIRS * 2], &lanes.weights[..PAIRS]),
    };
    for pixel in 0..count {
        let mut sums = start;
        for pair in 0..all_weights.len().min(taps.len() / 2) {
            let mut both = [_mm512_setzero_si512(); 2];
            for at in 0..2 {
                let (tap, step) = taps[pair * 2 + at];
                // SAFETY: guaranteed by the caller; masked lanes are not read.
                let quantized =
                    unsafe { _mm256_maskz_loadu_epi8(mask, tap.wrapping_add(pixel * step)) };
                both[at] = _mm512_cvtepi8_epi16(quantized);
            }
            let [first, second] = both;
            let pairs =
                [_mm512_unpacklo_epi16(first, second), _mm512_unpackhi_epi16(first, second)];
            for half in 0..2 {
                // SAFETY: each half has 32 weights.
                let weights =
                    unsafe { _mm512_loadu_epi32(all_weights[pair][half].as_ptr().cast()) };
                sums[half] = _mm512_dpwssd_epi32(sums[half], pairs[half], weights);
            }
        }
        let mut results = [_mm512_setzero_si512(); 2];
        for half in 0..2 {
            let scaled = _mm512_fmadd_ps(_mm512_cvtepi32_ps(sums[half]), scale[half], bias[half]);
            let result = rounded(exact, half * LANES, sums[half], scaled);
            results[half] = _mm512_add_epi32(result, zero);
        }
        // Both conversions saturate.
        let quantized = _mm512_cvtsepi16_epi8(_mm512_packs_epi32(results[0], results[1]));
        let quantized = _mm256_min_epi8(_mm256_max_epi8(quantized, low), high);
        // SAFETY: guaranteed by the caller; the mask covers the valid channels.
        unsafe { _mm256_mask_storeu_epi8(out.wrapping_add(pixel * out_step), mask, quantized) };
    }
}

/// Pixels of 16 channels in groups of four or eight.
pub(super) struct Narrow<'a> {
    /// First tap of each pixel, and the destination of its results.
    pub(super) at: [*const i8; ROWS],
    pub(super) out: [*mut i8; ROWS],
    /// `[tap rows, taps in each row]`, and their strides.
    pub(super) taps: [usize; 2],
    pub(super) strides: [usize; 2],
    /// Weights of the block: `A` vectors for each tap.
    pub(super) weights: &'a [i8],
    /// Parameters of all blocks, and the index of this block's first column.
    pub(super) columns: &'a Requantize<'a>,
    pub(super) first: usize,
    /// Number of valid channels.
    pub(super) lanes: usize,
}

/// Computes `P` pixels in groups of `4 * A` channels. Left values have 128 added.
///
/// # Safety
/// The first `P` pixels have 16 readable bytes at each tap, and room for `lanes` results. `weights`
/// has `A` vectors for each tap, and `columns` has 16 columns from `first` on. `A` is 1 or 2, and
/// `P` at most 8.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
pub(super) unsafe fn narrow<const A: usize, const P: usize>(narrow: &Narrow<'_>) {
    const { assert!(matches!(A, 1 | 2) && P <= ROWS) };
    let Narrow { ref at, ref out, taps: [tall, wide], strides, weights, columns, first, lanes } =
        *narrow;
    let mut sums = [[_mm512_setzero_si512(); A]; P];
    let mut vectors = weights.as_ptr();
    for row in 0..tall {
        for tap in 0..wide {
            let offset = row * strides[0] + tap * strides[1];
            let mut own = [_mm512_setzero_si512(); A];
            for turn in 0..A {
                // SAFETY: each tap has `A` vectors of weights.
                own[turn] = unsafe { _mm512_loadu_epi32(vectors.add(turn * LANES * STEP).cast()) };
            }
            for pixel in 0..P {
                // SAFETY: each tap has 16 bytes.
                let quantized = unsafe { _mm_loadu_epi8(at[pixel].add(offset)) };
                let quantized = _mm512_broadcast_i32x4(quantized);
                for turn in 0..A {
                    sums[pixel][turn] =
                        _mm512_dpbusd_epi32(sums[pixel][turn], quantized, own[turn]);
                }
            }
            vectors = vectors.wrapping_add(A * LANES * STEP);
        }
    }
    // SAFETY: each has 16 elements from `first` on.
    let (start, scale, bias) = unsafe {
        (
            _mm512_loadu_epi32(columns.start.as_ptr().add(first)),
            _mm512_loadu_ps(columns.scales.as_ptr().add(first)),
            _mm512_loadu_ps(columns.bias.as_ptr().add(first)),
        )
    };
    let Range { zero, low, high } = columns.range;
    let (zero, low, high) =
        (_mm512_set1_epi16(zero as i16), _mm512_set1_epi8(low), _mm512_set1_epi8(high));
    // 128-bit lanes interleave four values of each pixel. `order` gathers the pixels, and `within`
    // restores the order of channels in each.
    let order = _mm512_set_epi32(15, 11, 7, 3, 14, 10, 6, 2, 13, 9, 5, 1, 12, 8, 4, 0);
    let within = _mm512_broadcast_i32x4(match A {
        1 => _mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15),
        _ => _mm_setr_epi8(0, 4, 8, 12, 2, 6, 10, 14, 1, 5, 9, 13, 3, 7, 11, 15),
    });
    for quad in 0..P.div_ceil(4) {
        let mut results = [_mm512_setzero_si512(); 4];
        for part in 0..4 {
            let pixel = quad * 4 + part;
            if pixel >= P {
                continue;
            }
            let sums = &sums[pixel];
            let sum = match A {
                1 => sums[0],
                _ => {
                    // Adds the sums of the first and the second half of a group's inputs.
                    let (a, b) = (_mm512_castsi512_ps(sums[0]), _mm512_castsi512_ps(sums[A - 1]));
                    let even = _mm512_castps_si512(_mm512_shuffle_ps::<0b10_00_10_00>(a, b));
                    let odd = _mm512_castps_si512(_mm512_shuffle_ps::<0b11_01_11_01>(a, b));
                    _mm512_add_epi32(even, odd)
                }
            };
            let sum = _mm512_add_epi32(sum, start);
            let scaled = _mm512_fmadd_ps(_mm512_cvtepi32_ps(sum), scale, bias);
            results[part] = rounded(columns.exact, first, sum, scaled);
        }
        // All conversions saturate, including those of values outside the range.
        let pairs = [
            _mm512_adds_epi16(_mm512_packs_epi32(results[0], results[1]), zero),
            _mm512_adds_epi16(_mm512_packs_epi32(results[2], results[3]), zero),
        ];
        let quantized = _mm512_packs_epi16(pairs[0], pairs[1]);
        let quantized = _mm512_shuffle_epi8(_mm512_permutexvar_epi32(order, quantized), within);
        let quantized = _mm512_min_epi8(_mm512_max_epi8(quantized, low), high);
        let quarters = [
            _mm512_castsi512_si128(quantized),
            _mm512_extracti32x4_epi32::<1>(quantized),
            _mm512_extracti32x4_epi32::<2>(quantized),
            _mm512_extracti32x4_epi32::<3>(quantized),
        ];
        for part in 0..4 {
            let pixel = quad * 4 + part;
            if pixel >= P {
                continue;
            }
            // SAFETY: the destination has room for all valid channels.
            unsafe {
                match lanes {
                    16.. => _mm_storeu_epi8(out[pixel], quarters[part]),
                    8 => _mm_storeu_si64(out[pixel].cast(), quarters[part]),
                    _ => _mm_mask_storeu_epi8(out[pixel], mask(lanes, 0), quarters[part]),
                }
            }
        }
    }
}

/// Dequantization of the sums of `V` panels.
pub(super) struct Dequantizer<const V: usize> {
    /// Sum of the weights of each column.
    weights: [__m512i; V],
    column: [__m512; V],
    bias: [__m512; V],
    cols: usize,
}

impl<const V: usize> Dequantizer<V> {
    /// Loads the parameters of `cols` columns starting at `first`.
    ///
    /// # Safety
    /// Sums, scales and biases have `V` panels from `first` on.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
    pub(super) unsafe fn of(finish: &Floats<'_>, first: usize, cols: usize) -> Self {
        let mut weights = [_mm512_setzero_si512(); V];
        let (mut column, mut bias) = ([_mm512_setzero_ps(); V], [_mm512_setzero_ps(); V]);
        for v in 0..V {
            let at = first + v * LANES;
            // SAFETY: guaranteed by the caller.
            unsafe {
                weights[v] = _mm512_loadu_epi32(finish.sums.as_ptr().add(at));
                column[v] = _mm512_loadu_ps(finish.columns.scales.as_ptr().add(at));
                bias[v] = _mm512_loadu_ps(finish.columns.bias.as_ptr().add(at));
            }
        }
        Dequantizer { weights, column, bias, cols }
    }

    /// Initial sums of a row with this zero point.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
    pub(super) fn start(&self, zero: i32) -> [__m512i; V] {
        let zero = _mm512_set1_epi32(-zero);
        let mut start = self.weights;
        for v in 0..V {
            start[v] = _mm512_mullo_epi32(zero, start[v]);
        }
        start
    }

    /// Dequantizes and stores a row with this scale.
    ///
    /// # Safety
    /// `to` is writable for the number of columns, which is at most `V` panels.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
    pub(super) unsafe fn write(&self, sums: &[__m512i; V], scale: f32, to: *mut f32) {
        let scale = _mm512_set1_ps(scale);
        for v in 0..V {
            let result = _mm512_mul_ps(_mm512_cvtepi32_ps(sums[v]), scale);
            let result = _mm512_fmadd_ps(result, self.column[v], self.bias[v]);
            let to = to.wrapping_add(v * LANES);
            // SAFETY: the mask covers the valid columns of the row, unless all 16 are valid.
            unsafe {
                match self.cols >= (v + 1) * LANES {
                    true => _mm512_storeu_ps(to, result),
                    false => _mm512_mask_storeu_ps(to, mask(self.cols, v), result),
                }
            }
        }
    }
}

/// Computes a tile of `f32` results.
///
/// # Safety
/// As for [`requantized_tile`]. Scales and zero points exist for all rows of the tile, starting at
/// `row`.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
pub(super) unsafe fn dequantized_tile<const M: usize, const V: usize, const FLIPPED: bool>(
    a: &[*const i8; ROWS],
    walk: Walk,
    b: *const i8,
    finish: &Floats<'_>,
    [row, first]: [usize; 2],
    dst: &Destination<f32>,
) {
    // SAFETY: guaranteed by the caller.
    let dequantizer = unsafe { Dequantizer::<V>::of(finish, first, dst.cols) };
    let mut start = [[_mm512_setzero_si512(); V]; M];
    for at in 0..M.min(dst.rows) {
        // Unsigned left values have 128 added, and so has their zero point.
        start[at] = dequantizer.start(finish.rows.zeros[row + at] + 128);
    }
    // SAFETY: guaranteed by the caller.
    let sums = unsafe { sums::<M, V, FLIPPED>(a, walk, b, start) };
    for at in 0..M.min(dst.rows) {
        // SAFETY: guaranteed by the caller.
        unsafe { dequantizer.write(&sums[at], finish.rows.scales[row + at], dst.out[at]) };
    }
}

/// Loads the scales of a group of a panel; with `UPPER` they are `bfloat16`.
///
/// # Safety
/// 16 scales of this format follow index `at`.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
pub(super) unsafe fn scale_of<const UPPER: bool>(scales: *const u8, at: usize) -> __m512 {
    // SAFETY: guaranteed by the caller.
    unsafe {
        match UPPER {
            false => _mm512_loadu_ps(scales.cast::<f32>().add(at)),
            true => {
                let halves = _mm256_loadu_epi16(scales.cast::<i16>().add(at));
                _mm512_castsi512_ps(_mm512_slli_epi32::<16>(_mm512_cvtepu16_epi32(halves)))
            }
        }
    }
}

/// Computes a tile of `f32` results with int4 weights, which are the unsigned operand here.
///
/// # Safety
/// Each row of `a` has twice as many values as a column of all groups has bytes, and a sum for each
/// group. `weights` has `V` panels of weights, scales, sums and, if present, biases. `dst` is
/// writable for its rows and columns, at most `M` rows and `V` panels.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
pub(super) unsafe fn nibbles<const M: usize, const V: usize>(
    a: &[(*const i8, *const i32); ROWS],
    own: &[(f32, f32); ROWS],
    weights: &Panels<'_>,
    dst: &Destination<f32>,
) {
    let lower = _mm512_set1_epi8(15);
    let &Panels { groups, bytes, .. } = weights;
    let steps = bytes / (STEP * LANES);
    let mut dequantizer = [[_mm512_setzero_ps(); V]; M];
    for group in 0..groups {
        let mut sums = [[_mm512_setzero_si512(); V]; M];
        for row in 0..M {
            // Compensates the 8 added to each weight. SAFETY: each group has a sum.
            sums[row] = [_mm512_set1_epi32(-8 * unsafe { *a[row].1.add(group) }); V];
        }
        for step in 0..steps {
            let mut halves = [[_mm512_setzero_si512(); 2]; V];
            for v in 0..V {
                let at = (v * groups + group) * bytes + step * STEP * LANES;
                // SAFETY: the group has this many steps.
                let quantized =
                    unsafe { _mm512_loadu_epi32(weights.quantized.as_ptr().add(at).cast()) };
                let upper = _mm512_srli_epi16::<4>(quantized);
                halves[v] = [_mm512_and_si512(quantized, lower), _mm512_and_si512(upper, lower)];
            }
            for row in 0..M {
                // Each is a broadcast load. SAFETY: each step of each group has eight values.
                let quantized = unsafe {
                    let quantized = a[row].0.add((group * steps + step) * 2 * STEP).cast::<i32>();
                    [quantized.read_unaligned(), quantized.add(1).read_unaligned()]
                };
                let quantized = [_mm512_set1_epi32(quantized[0]), _mm512_set1_epi32(quantized[1])];
                for v in 0..V {
                    sums[row][v] = _mm512_dpbusd_epi32(sums[row][v], halves[v][0], quantized[0]);
                    sums[row][v] = _mm512_dpbusd_epi32(sums[row][v], halves[v][1], quantized[1]);
                }
            }
        }
        for v in 0..V {
            let at = (v * groups + group) * LANES;
            // SAFETY: scales exist for all groups of all panels.
            let scale = unsafe {
                match weights.scales {
                    GroupScales::Whole(scales) => scale_of::<false>(scales.as_ptr().cast(), at),
                    GroupScales::Upper(scales) => scale_of::<true>(scales.as_ptr().cast(), at),
                }
            };
            for row in 0..M {
                let sum = _mm512_cvtepi32_ps(sums[row][v]);
                dequantizer[row][v] = _mm512_fmadd_ps(sum, scale, dequantizer[row][v]);
            }
        }
    }
    for v in 0..V {
        // SAFETY: both cover whole panels.
        let (sums, bias) = unsafe {
            let bias = match weights.bias {
                Some(bias) => _mm512_loadu_ps(bias.as_ptr().add(v * LANES)),
                None => _mm512_setzero_ps(),
            };
            (_mm512_loadu_ps(weights.sums.as_ptr().add(v * LANES)), bias)
        };
        for row in 0..M.min(dst.rows) {
            let (scale, zero) = own[row];
            let result = _mm512_fnmadd_ps(_mm512_set1_ps(zero), sums, dequantizer[row][v]);
            let result = _mm512_fmadd_ps(result, _mm512_set1_ps(scale), bias);
            // SAFETY: the mask covers the valid columns of the row.
            unsafe {
                let to = dst.out[row].wrapping_add(v * LANES);
                _mm512_mask_storeu_ps(to, mask(dst.cols, v), result);
            }
        }
    }
}
