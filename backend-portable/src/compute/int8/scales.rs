//! Group scales of int4 weights, ordered by panels and groups, 16 columns together. Scales are a
//! large part of the size of int4 weights, and exporters round them to `bfloat16`; they are stored
//! as such if that is lossless.

use super::LANES;
use core::ops::Range;

/// Packed scales of groups of weights.
#[derive(Clone, Copy, Debug)]
pub(crate) enum GroupScales<'a> {
    /// Scales as `f32`.
    Whole(&'a [f32]),
    /// `bfloat16`: the upper 16 bits of `f32` values whose lower 16 bits are zero.
    Upper(&'a [u16]),
}

/// Whether all scales convert to `bfloat16` without loss.
pub(crate) fn are_upper(scales: &[f32]) -> bool {
    scales.iter().all(|scale| scale.to_bits() & 0xffff == 0)
}

/// Packed length of the scales in words; `None` if it exceeds the address space.
pub(crate) fn scales_len(n: usize, groups: usize, are_upper: bool) -> Option<usize> {
    let count = n.checked_next_multiple_of(LANES)?.checked_mul(groups)?;
    Some(if are_upper { count / 2 } else { count })
}

/// Packs scales of shape `[n, groups]`. Returns `None` if `scales` is too short, or `packed` has
/// the wrong length.
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
            let index = (col / LANES * groups + group) * LANES + col % LANES;
            let scale = *scales.get(col * groups + group)?;
            match is_upper {
                false => *packed.get_mut(index)? = scale,
                true => {
                    let upper: &mut [u16] = bytemuck::cast_slice_mut(packed);
                    *upper.get_mut(index)? = (scale.to_bits() >> 16) as u16;
                }
            }
        }
    }
    Some(())
}

impl<'a> GroupScales<'a> {
    /// Wraps the output of [`pack_scales`]. Returns `None` if `words` has the wrong length.
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

    /// A range of the scales.
    pub(super) fn part(self, range: Range<usize>) -> Option<Self> {
        Some(match self {
            GroupScales::Whole(scales) => GroupScales::Whole(scales.get(range)?),
            GroupScales::Upper(scales) => GroupScales::Upper(scales.get(range)?),
        })
    }

    /// Iterates over the scales of panels of 16 columns.
    pub(super) fn groups_of_16(self) -> impl Iterator<Item = [f32; LANES]> {
        let (whole, upper): (&[f32], &[u16]) = match self {
            GroupScales::Whole(scales) => (scales, &[]),
            GroupScales::Upper(scales) => (&[], scales),
        };
        let widen = |upper: &[u16; LANES]| upper.map(|half| f32::from_bits(u32::from(half) << 16));
        whole.as_chunks().0.iter().copied().chain(upper.as_chunks().0.iter().map(widen))
    }
}
