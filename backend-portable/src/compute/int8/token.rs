//! One row of codes by weights of 4 bits, as a token brings it, with AVX-512 and VNNI. Panels
//! follow each other in one loop, so that little is done beside what 64 weights take: one `and` and
//! one product.
//!
//! A byte has two codes. Its lower half is taken by itself; of the upper one, products are 16 times
//! as large, and what a group sums up to is divided by 16 in the end, which leaves nothing. Groups
//! are not so long that this would be more than 32 bits have.

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

/// A row of codes.
pub(super) struct Row<'a> {
    pub(super) codes: &'a [i8],
    /// What each group of codes sums up to.
    pub(super) sums: &'a [i32],
    pub(super) scale: f32,
    pub(super) zero: f32,
}

/// The most bytes of a group of a panel: 16 times 15 times 128 for each of as many codes of a
/// column is less than half of what an integer holds.
pub(super) const MOST: usize = 4096 * VECTOR;
/// Bytes that a vector has, which are of four times two codes of each column of a panel.
const VECTOR: usize = 4 * LANES;
/// Weights of a tile that has more bytes are brought near before they are needed: those of fewer
/// are in the second-level cache, or soon come from it.
const FAR: usize = 1 << 20;

/// The places of the panels that are computed.
#[derive(Clone, Copy)]
struct Places {
    codes: *const u8,
    scales: *const u8,
    sums: *const f32,
    bias: *const f32,
    /// The first four of each eight codes of the row, and the others, and the sums of its groups.
    rows: [*const i8; 2],
    row_sums: *const i32,
    groups: usize,
    steps: usize,
    scale: f32,
    zero: f32,
}

/// Writes a row of numbers. `None` where operands are of other lengths than the panels that the
/// place has.
///
/// # Safety
/// There are AVX-512 (F, BW and VL) and VNNI.
pub(super) unsafe fn row_by_nibbles(
    row: &Row<'_>,
    panels: &Panels<'_>,
    out: &mut [f32],
) -> Option<()> {
    let &Panels { codes, scales, sums, bias, groups, bytes } = panels;
    let count = out.len().div_ceil(LANES);
    let steps = bytes / VECTOR;
    let all = count.checked_mul(groups)?;
    let padded = count.checked_mul(LANES)?;
    let (scales, has_scales) = match scales {
        GroupScales::Whole(scales) => (scales.as_ptr().cast(), scales.len()),
        GroupScales::Upper(scales) => (scales.as_ptr().cast(), scales.len()),
    };
    let fits = bytes.is_multiple_of(VECTOR)
        && bytes <= MOST
        && codes.len() >= all.checked_mul(bytes)?
        && has_scales >= all.checked_mul(LANES)?
        && sums.len() >= padded
        && bias.is_none_or(|bias| bias.len() >= padded)
        && row.codes.len() >= groups.checked_mul(steps)?.checked_mul(8)?
        && row.sums.len() >= groups;
    if !fits {
        return None;
    }
    let places = Places {
        codes: codes.as_ptr(),
        scales,
        sums: sums.as_ptr(),
        bias: bias.map_or(core::ptr::null(), |bias| bias.as_ptr()),
        // Hidden from the compiler, which would load eight codes at once, and move them to vectors
        // one by one.
        rows: [row.codes.as_ptr(), core::hint::black_box(row.codes.as_ptr().wrapping_add(4))],
        row_sums: row.sums.as_ptr(),
        groups,
        steps,
        scale: row.scale,
        zero: row.zero,
    };
    let is_far = codes.len() > FAR;
    // SAFETY: the instructions are there, which is the caller's promise, and all lengths were
    // compared.
    unsafe {
        match (panels.scales, is_far, steps) {
            // Groups of 32, as exporters make them.
            (GroupScales::Upper(_), false, 4) => each::<4, true, false>(&places, out),
            (GroupScales::Upper(_), true, 4) => each::<4, true, true>(&places, out),
            (GroupScales::Upper(_), ..) => each::<0, true, true>(&places, out),
            (GroupScales::Whole(_), ..) => each::<0, false, true>(&places, out),
        }
    }
    Some(())
}

/// All panels of `out`.
///
/// # Safety
/// The instructions are there. Places have as many panels as `out` has, the last of which may be
/// less than one, in groups of so many steps (or, of 0, as many as there are), with scales in the
/// form that `UPPER` says, and sums and, if it is not null, bias of whole panels; the row has as
/// many codes, and a sum of each group.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
unsafe fn each<const STEPS: usize, const UPPER: bool, const FAR: bool>(
    places: &Places,
    out: &mut [f32],
) {
    let count = out.len().div_ceil(LANES);
    let mut panel = 0;
    while panel < count {
        let from = panel * LANES;
        let to = out.get_mut(from..).unwrap_or_default();
        // SAFETY: there are so many panels from this one on, and `to` has the numbers of these and
        // no others.
        unsafe {
            panel += match count - panel {
                4.. => some::<4, STEPS, UPPER, FAR>(places, panel, to),
                3 => some::<3, STEPS, UPPER, FAR>(places, panel, to),
                2 => some::<2, STEPS, UPPER, FAR>(places, panel, to),
                _ => some::<1, STEPS, UPPER, FAR>(places, panel, to),
            };
        }
    }
}

/// So many panels from one on; gives how many these are.
///
/// # Safety
/// As [`each`], and there are as many panels; `out` has the numbers of them, of which the last
/// panel may lack some, or more.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
unsafe fn some<const V: usize, const STEPS: usize, const UPPER: bool, const FAR: bool>(
    places: &Places,
    panel: usize,
    out: &mut [f32],
) -> usize {
    let &Places { codes, scales, sums, bias, rows, row_sums, groups, scale, zero, .. } = places;
    let steps = if STEPS == 0 { places.steps } else { STEPS };
    let (lower, upper) = (_mm512_set1_epi8(0x0f), _mm512_set1_epi8(0xf0_u8.cast_signed()));
    let apart = groups * steps * VECTOR;
    let codes = codes.wrapping_add(panel * apart);
    let mut numbers = [_mm512_setzero_ps(); V];
    for group in 0..groups {
        // What was added to weights counts for each code.
        // SAFETY: there is a sum for each group.
        let start = _mm512_set1_epi32(-8 * unsafe { *row_sums.add(group) });
        let mut halves = [[start, _mm512_setzero_si512()]; V];
        for step in 0..steps {
            let at = group * steps + step;
            // Each is one load that fills a vector.
            // SAFETY: there are eight codes for each step of each group.
            let own = unsafe {
                let [first, second] =
                    [rows[0].add(at * 8).cast::<i32>(), rows[1].add(at * 8).cast::<i32>()];
                [first.read_unaligned(), second.read_unaligned()]
            };
            let own = [_mm512_set1_epi32(own[0]), _mm512_set1_epi32(own[1])];
            // Counted, as all loops here: see `vnni.rs`.
            for v in 0..V {
                let from = codes.wrapping_add(v * apart + at * VECTOR);
                if FAR {
                    // SAFETY: a hint reads nothing that a program sees, wherever it points. (Newer
                    // compilers know that themselves.)
                    #[allow(unused_unsafe)]
                    unsafe {
                        _mm_prefetch::<_MM_HINT_T0>(from.wrapping_add(V * apart).cast());
                    }
                }
                // SAFETY: the panel has so many groups of so many steps.
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
            // SAFETY: there are scales of all groups of all panels, in the form that `UPPER` says.
            let scale =
                unsafe { scale_of::<UPPER>(scales, ((panel + v) * groups + group) * LANES) };
            numbers[v] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(sum), scale, numbers[v]);
        }
    }
    for v in 0..V.min(out.len().div_ceil(LANES)) {
        let rest = &mut out[v * LANES..];
        let there = rest.len().min(LANES);
        let at = (panel + v) * LANES;
        // SAFETY: there are whole panels of both.
        let (sums, bias) = unsafe {
            let none = _mm512_setzero_ps();
            let bias = if bias.is_null() { none } else { _mm512_loadu_ps(bias.add(at)) };
            (_mm512_loadu_ps(sums.add(at)), bias)
        };
        let number = _mm512_fnmadd_ps(_mm512_set1_ps(zero), sums, numbers[v]);
        let number = _mm512_fmadd_ps(number, _mm512_set1_ps(scale), bias);
        let mask = ((1u32 << there) - 1) as __mmask16;
        // SAFETY: the mask is that of the numbers that there are places for, 16 at most.
        unsafe { _mm512_mask_storeu_ps(rest.as_mut_ptr(), mask, number) };
    }
    V
}
