//! The left operand of a product: rows of codes, or windows of pictures.

use super::STEP;
use super::windows::{Padded, Windows};
use crate::compute::gemm::{Context, ShapeMismatch};
use crate::compute::split::{Outcome, for_each_chunk_mut};
use core::ops::Range;

/// Codes of pictures that are copied with what windows see around them, at most.
const LARGE: usize = 1 << 22;
/// As many of several groups, which are to be near still when they are read.
const TOGETHER: usize = 1 << 19;

/// The left operand.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Left<'a> {
    /// Rows so far apart.
    Rows(&'a [i8], usize),
    /// Rows so far apart, behind which are zeros up to the next multiple of [`STEP`] at least.
    Filled(&'a [i8], usize),
    /// Windows over pictures that lie one after the other; around them are codes like this. Over
    /// groups of channels there are several products, of the first group and those behind it.
    Windows(&'a [i8], &'a Windows, i8),
}

impl<'a> Left<'a> {
    /// Left operands, which belong to blocks of the right one.
    pub(super) fn blocks(&self) -> usize {
        match self {
            Left::Rows(..) | Left::Filled(..) => 1,
            Left::Windows(_, windows, _) => windows.groups(),
        }
    }

    /// That of a block.
    pub(super) fn block(self, block: usize) -> Option<Self> {
        match self {
            Left::Windows(codes, windows, outside) => {
                let codes = codes.get(block.checked_mul(windows.input[2])?..)?;
                Some(Left::Windows(codes, windows, outside))
            }
            other => (block == 0).then_some(other),
        }
    }

    /// Whether rows can be read where they lie.
    pub(super) fn lies_ready(&self, k: usize) -> bool {
        let are_rows = match self {
            Left::Rows(..) => true,
            Left::Filled(_, stride) => return k > 0 && k.next_multiple_of(STEP) <= *stride,
            Left::Windows(_, windows, _) => windows.are_pixels(),
        };
        are_rows && k.is_multiple_of(STEP) && k > 0
    }

    /// The codes, and the distance of rows, where they lie ready; checks that there are so many.
    pub(super) fn ready(&self, rows: usize, k: usize) -> Option<(&'a [i8], usize)> {
        let (codes, stride) = match *self {
            Left::Rows(codes, stride) | Left::Filled(codes, stride) => (codes, stride),
            Left::Windows(codes, windows, _) => (codes, windows.pixel),
        };
        let needed = rows.checked_sub(1)?.checked_mul(stride)?.checked_add(k)?;
        (needed <= codes.len()).then_some((codes, stride))
    }

    /// Pictures with what windows see around them, where windows are read there.
    pub(super) fn padded(&self, rows: usize) -> Option<Grid<'a>> {
        let &Left::Windows(_, windows, _) = self else { return None };
        let padded = windows.padded()?;
        let count = rows.div_ceil(windows.count().max(1));
        let len = count.checked_mul(padded.len).filter(|len| *len <= LARGE)?;
        let together = (TOGETHER / len.max(1)).clamp(1, self.blocks().max(1));
        Some(Grid { windows, padded, count, together })
    }

    /// Copies rows from one on to a place of `steps` words for each. `None` if there are not so
    /// many.
    pub(super) fn copy(
        &self,
        first: usize,
        k: usize,
        steps: usize,
        place: &mut [i8],
    ) -> Option<()> {
        let length = steps * STEP;
        match *self {
            Left::Rows(codes, stride) | Left::Filled(codes, stride) => {
                for (row, place) in place.chunks_exact_mut(length).enumerate() {
                    let start = (first + row).checked_mul(stride)?;
                    place.get_mut(..k)?.copy_from_slice(codes.get(start..)?.get(..k)?);
                    place.get_mut(k..)?.fill(0);
                }
            }
            Left::Windows(codes, windows, zero) => {
                // Windows of one picture after the other.
                let (mut row, mut rest) = (first, place);
                while !rest.is_empty() {
                    let (picture, at) = (row / windows.count(), row % windows.count());
                    let count = (windows.count() - at).min(rest.len() / length);
                    let (own, behind) = rest.split_at_mut_checked(count * length)?;
                    let picture = codes.get(picture.checked_mul(windows.picture())?..)?;
                    windows.write(picture, at, zero, own.chunks_exact_mut(length))?;
                    (row, rest) = (row + count, if count == 0 { &mut [] } else { behind });
                }
            }
        }
        Some(())
    }
}

/// Pictures with what windows see around them.
#[derive(Clone, Copy)]
pub(super) struct Grid<'a> {
    pub(super) windows: &'a Windows,
    pub(super) padded: Padded,
    /// Pictures.
    count: usize,
    /// Blocks whose pictures are there at the same time.
    pub(super) together: usize,
}

impl Grid<'_> {
    /// Words of the pictures of a block.
    pub(super) fn words(&self) -> usize {
        self.count * self.padded.len / STEP
    }

    /// Copies the pictures of some blocks, one behind the other, to the workspace; gives them, and
    /// the rest of that. Their codes have 128 added.
    pub(super) fn pad<'w>(
        &self,
        context: Context<'_>,
        left: Left<'_>,
        blocks: Range<usize>,
        workspace: &'w mut [f32],
    ) -> Option<(&'w [i8], &'w mut [f32])> {
        let (Left::Windows(codes, _, outside), windows) = (left, self.windows) else { return None };
        let words = self.words().checked_mul(blocks.len())?;
        let (own, rest) = workspace.split_at_mut_checked(words)?;
        let own: &mut [i8] = bytemuck::cast_slice_mut(own);
        let outcome = Outcome::default();
        let pad = |index: usize, place: &mut [i8]| {
            let (block, picture) = (blocks.start + index / self.count, index % self.count);
            let at = picture * windows.picture() + block * windows.input[2];
            windows.pad(codes.get(at..)?, outside, self.padded, place)
        };
        for_each_chunk_mut(context.parallel, own, self.padded.len, &|index, place| {
            outcome.note(pad(index, place).ok_or(ShapeMismatch));
        });
        outcome.result().ok()?;
        Some((own, rest))
    }
}
