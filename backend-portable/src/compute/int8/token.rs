//! GEMV of one dynamically quantized row with int4 weights, as for a single token, with AVX-512
//! VNNI. All panels are processed in one loop, with little overhead beside the work for 64 weights:
//! one `and` and one VNNI instruction.
//!
//! A byte has two weights. The lower nibble is masked. The upper nibble is left in place, so its
//! dot product is 16 times as large; the sum of a group is divided by 16 at the end, without
//! remainder. The group length is bounded so that this fits 32 bits.

use super::LANES;
use super::rows::Panels;
use super::scales::GroupScales;
use super::vnni::scale_of;
use core::arch::x86_64::{
    __mmask16, _MM_HINT_T0, _mm_prefetch, _mm512_add_epi32, _mm512_and_si512, _mm512_cvtepi32_ps,
    _mm512_dpbusd_epi32, _mm512_fmadd_ps, _mm512_fnmadd_ps, _mm512_loadu_epi32, _mm512_loadu_ps,
    _mm512_mask_storeu_ps, _mm512_set1_epi8, _mm512_set1_epi32, _mm512_set1_ps, _mm512_setzero_ps,
    _mm512_setzero_si512, _mm512_srai_epi32,
};

/// A dynamically quantized row.
pub(super) struct Row<'a> {
    pub(super) quantized: &'a [i8],
    /// Sum of each group of quantized values.
    pub(super) sums: &'a [i32],
    pub(super) scale: f32,
    pub(super) zero: f32,
}

/// Maximum size in bytes of a group of a panel: 16 · 15 · 128 for each value of a column stays
/// below half of the `i32` range.
pub(super) const MAX_GROUP_BYTES: usize = 4096 * VECTOR;
/// Bytes of a vector: four bytes, each with two weights, of each column of a panel.
const VECTOR: usize = 4 * LANES;
/// Minimum size in bytes of a tile's weights for prefetching. Smaller tiles are in the L2 cache, or
/// arrive there soon.
const PREFETCH_BYTES: usize = 1 << 20;

/// Addresses of the weight panels, and of the row that they are multiplied by.
#[derive(Clone, Copy)]
struct Addresses {
    quantized: *const u8,
    scales: *const u8,
    sums: *const f32,
    bias: *const f32,
    /// Two halves of the row: of each eight values the first four, and the other four.
    rows: [*const i8; 2],
    row_sums: *const i32,
    groups: usize,
    steps: usize,
    scale: f32,
    zero: f32,
}

/// Computes a row of results. Returns `None` if the lengths of the operands do not match the panels
/// of `out`.
///
/// # Safety
/// The processor has AVX-512 (F, BW and VL) and VNNI.
pub(super) unsafe fn row_by_nibbles(
    row: &Row<'_>,
    panels: &Panels<'_>,
    out: &mut [f32],
) -> Option<()> {
    let &Panels { quantized, scales, sums, bias, groups, bytes } = panels;
    let count = out.len().div_ceil(LANES);
    let steps = bytes / VECTOR;
    let all = count.checked_mul(groups)?;
    let padded = count.checked_mul(LANES)?;
    let (scales, has_scales) = match scales {
        GroupScales::Whole(scales) => (scales.as_ptr().cast(), scales.len()),
        GroupScales::Upper(scales) => (scales.as_ptr().cast(), scales.len()),
    };
    let fits = bytes.is_multiple_of(VECTOR)
        && bytes <= MAX_GROUP_BYTES
        && quantized.len() >= all.checked_mul(bytes)?
        && has_scales >= all.checked_mul(LANES)?
        && sums.len() >= padded
        && bias.is_none_or(|bias| bias.len() >= padded)
        && row.quantized.len() >= groups.checked_mul(steps)?.checked_mul(8)?
        && row.sums.len() >= groups;
    if !fits {
        return None;
    }
    let addresses = Addresses {
        quantized: quantized.as_ptr(),
        scales,
        sums: sums.as_ptr(),
        bias: bias.map_or(core::ptr::null(), |bias| bias.as_ptr()),
        // Hidden from the optimizer, which would load eight bytes at once and move them to vector
        // registers separately.
        rows: [
            row.quantized.as_ptr(),
            core::hint::black_box(row.quantized.as_ptr().wrapping_add(4)),
        ],
        row_sums: row.sums.as_ptr(),
        groups,
        steps,
        scale: row.scale,
        zero: row.zero,
    };
    let is_far = quantized.len() > PREFETCH_BYTES;
    // SAFETY: the caller guarantees the instructions, and all lengths were compared above.
    unsafe {
        match (panels.scales, is_far, steps) {
            // Groups of 32, as exporters choose.
            (GroupScales::Upper(_), false, 4) => each::<4, true, false>(&addresses, out),
            (GroupScales::Upper(_), true, 4) => each::<4, true, true>(&addresses, out),
            (GroupScales::Upper(_), ..) => each::<0, true, true>(&addresses, out),
            (GroupScales::Whole(_), ..) => each::<0, false, true>(&addresses, out),
        }
    }
    Some(())
}

/// Computes all panels of `out`.
///
/// # Safety
/// The processor has the instructions. `addresses` has the panels of `out`, the last of which may
/// be partial, with groups of `STEPS` steps (dynamic if 0). Scales have the format given by
/// `UPPER`. Sums, and the bias unless it is null, cover whole panels. The row has as many values,
/// and a sum for each group.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
unsafe fn each<const STEPS: usize, const UPPER: bool, const PREFETCH_BYTES: bool>(
    addresses: &Addresses,
    out: &mut [f32],
) {
    let count = out.len().div_ceil(LANES);
    let mut panel = 0;
    while panel < count {
        let from = panel * LANES;
        let to = out.get_mut(from..).unwrap_or_default();
        // SAFETY: at least as many panels follow `panel`, and `to` has their results and no others.
        unsafe {
            panel += match count - panel {
                4.. => some::<4, STEPS, UPPER, PREFETCH_BYTES>(addresses, panel, to),
                3 => some::<3, STEPS, UPPER, PREFETCH_BYTES>(addresses, panel, to),
                2 => some::<2, STEPS, UPPER, PREFETCH_BYTES>(addresses, panel, to),
                _ => some::<1, STEPS, UPPER, PREFETCH_BYTES>(addresses, panel, to),
            };
        }
    }
}

/// Computes `V` panels starting at `panel`, and returns `V`.
///
/// # Safety
/// As for [`each`]. `V` panels follow `panel`. `out` starts with their results; the last panel may
/// be partial.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
unsafe fn some<
    const V: usize,
    const STEPS: usize,
    const UPPER: bool,
    const PREFETCH_BYTES: bool,
>(
    addresses: &Addresses,
    panel: usize,
    out: &mut [f32],
) -> usize {
    let &Addresses { quantized, scales, sums, bias, rows, row_sums, groups, scale, zero, .. } =
        addresses;
    let steps = if STEPS == 0 { addresses.steps } else { STEPS };
    let (lower, upper) = (_mm512_set1_epi8(0x0f), _mm512_set1_epi8(0xf0_u8.cast_signed()));
    let panel_stride = groups * steps * VECTOR;
    let quantized = quantized.wrapping_add(panel * panel_stride);
    let mut results = [_mm512_setzero_ps(); V];
    for group in 0..groups {
        // Compensates the 8 added to each weight. SAFETY: each group has a sum.
        let start = _mm512_set1_epi32(-8 * unsafe { *row_sums.add(group) });
        let mut halves = [[start, _mm512_setzero_si512()]; V];
        for step in 0..steps {
            let at = group * steps + step;
            // Each is a broadcast load. SAFETY: each step of each group has eight values.
            let own = unsafe {
                let [first, second] =
                    [rows[0].add(at * 8).cast::<i32>(), rows[1].add(at * 8).cast::<i32>()];
                [first.read_unaligned(), second.read_unaligned()]
            };
            let own = [_mm512_set1_epi32(own[0]), _mm512_set1_epi32(own[1])];
            // Counted, like all loops here: see `vnni.rs`.
            for v in 0..V {
                let from = quantized.wrapping_add(v * panel_stride + at * VECTOR);
                if PREFETCH_BYTES {
                    // SAFETY: a prefetch hint has no visible effect, for any address. (The
                    // intrinsic is safe in newer compilers.)
                    #[allow(unused_unsafe)]
                    unsafe {
                        _mm_prefetch::<_MM_HINT_T0>(from.wrapping_add(V * panel_stride).cast());
                    }
                }
                // SAFETY: the panel has this many groups and steps.
                let both = unsafe { _mm512_loadu_epi32(from.cast()) };
                let [low, high] = halves[v];
                halves[v] = [
                    _mm512_dpbusd_epi32(low, _mm512_and_si512(both, lower), own[0]),
                    _mm512_dpbusd_epi32(high, _mm512_and_si512(both, upper), own[1]),
                ];
            }
        }
        for v in 0..V {
            let [low, high] = halves[v];
            let sum = _mm512_add_epi32(low, _mm512_srai_epi32::<4>(high));
            // SAFETY: scales exist for all groups of all panels, in the format given by `UPPER`.
            let scale =
                unsafe { scale_of::<UPPER>(scales, ((panel + v) * groups + group) * LANES) };
            results[v] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(sum), scale, results[v]);
        }
    }
    for v in 0..V.min(out.len().div_ceil(LANES)) {
        let rest = &mut out[v * LANES..];
        let there = rest.len().min(LANES);
        let at = (panel + v) * LANES;
        // SAFETY: both cover whole panels.
        let (sums, bias) = unsafe {
            let none = _mm512_setzero_ps();
            let bias = if bias.is_null() { none } else { _mm512_loadu_ps(bias.add(at)) };
            (_mm512_loadu_ps(sums.add(at)), bias)
        };
        let result = _mm512_fnmadd_ps(_mm512_set1_ps(zero), sums, results[v]);
        let result = _mm512_fmadd_ps(result, _mm512_set1_ps(scale), bias);
        let mask = ((1u32 << there) - 1) as __mmask16;
        // SAFETY: the mask covers the remaining elements of `out`, at most 16.
        unsafe { _mm512_mask_storeu_ps(rest.as_mut_ptr(), mask, result) };
    }
    V
}
