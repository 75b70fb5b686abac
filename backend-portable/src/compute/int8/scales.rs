//! Scales of groups of weights: by panels and groups, 16 together. They take a larger part of 4-bit
//! weights than their number suggests, and exporters keep them as `bfloat16`: they lie so where
//! nothing is lost.

use super::LANES;
use core::ops::Range;

/// Packed scales.
#[derive(Clone, Copy, Debug)]
pub(crate) enum GroupScales<'a> {
    /// `f32`
    Whole(&'a [f32]),
    /// The upper halves of `f32`, whose lower halves are zero.
    Upper(&'a [u16]),
}

/// Whether nothing is lost of numbers without their lower halves.
pub(crate) fn are_upper(scales: &[f32]) -> bool {
    scales.iter().all(|scale| scale.to_bits() & 0xffff == 0)
}

/// Words of packed scales; `None` if there are more than memory has.
pub(crate) fn scales_len(n: usize, groups: usize, are_upper: bool) -> Option<usize> {
    let count = n.checked_next_multiple_of(LANES)?.checked_mul(groups)?;
    Some(if are_upper { count / 2 } else { count })
}

/// Packs scales, `[n, groups]`. `None` if there are fewer, or the place has another length.
pub(crate) fn pack_scales(
    [n, groups]: [usize; 2],
    scales: &[f32],
    is_upper: bool,
    packed: &mut [f32],
) -> Option<()> {
    if packed.len() != scales_len(n, groups, is_upper)? {
        return None;
    }
    packed.fill(0.0);
    for col in 0..n {
        for group in 0..groups {
            let place = (col / LANES * groups + group) * LANES + col % LANES;
            let scale = *scales.get(col * groups + group)?;
            match is_upper {
                false => *packed.get_mut(place)? = scale,
                true => {
                    let upper: &mut [u16] = bytemuck::cast_slice_mut(packed);
                    *upper.get_mut(place)? = (scale.to_bits() >> 16) as u16;
                }
            }
        }
    }
    Some(())
}

impl<'a> GroupScales<'a> {
    /// What [`pack_scales`] wrote. `None` if it has another length.
    pub(crate) fn of(
        [n, groups]: [usize; 2],
        words: &'a [f32],
        are_upper: bool,
    ) -> Option<GroupScales<'a>> {
        (words.len() == scales_len(n, groups, are_upper)?).then(|| match are_upper {
            false => GroupScales::Whole(words),
            true => GroupScales::Upper(bytemuck::cast_slice(words)),
        })
    }

    /// Some of the scales.
    pub(super) fn part(self, range: Range<usize>) -> Option<Self> {
        Some(match self {
            GroupScales::Whole(scales) => GroupScales::Whole(scales.get(range)?),
            GroupScales::Upper(scales) => GroupScales::Upper(scales.get(range)?),
        })
    }

    /// Those that lie together.
    pub(super) fn together(self) -> impl Iterator<Item = [f32; LANES]> {
        let (whole, upper): (&[f32], &[u16]) = match self {
            GroupScales::Whole(scales) => (scales, &[]),
            GroupScales::Upper(scales) => (&[], scales),
        };
        let widen = |upper: &[u16; LANES]| upper.map(|half| f32::from_bits(u32::from(half) << 16));
        whole.as_chunks().0.iter().copied().chain(upper.as_chunks().0.iter().map(widen))
    }
}
