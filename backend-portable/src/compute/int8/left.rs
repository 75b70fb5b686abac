//! Left operand of an int8 GEMM: rows, or im2col windows of images.

use super::STEP;
use super::windows::{Padded, Windows};
use crate::compute::gemm::{Context, ShapeMismatch};
use crate::compute::split::{Outcome, for_each_chunk_mut};
use core::ops::Range;

/// Maximum bytes of padded copies of images.
const LARGE: usize = 1 << 22;
/// Maximum bytes of padded copies of several groups, so that they are still in the cache when they
/// are read.
const TOGETHER: usize = 1 << 19;

/// Left operand.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Left<'a> {
    /// Rows with a stride.
    Rows(&'a [i8], usize),
    /// Rows with a stride, padded with zeros to at least the next multiple of [`STEP`].
    Filled(&'a [i8], usize),
    /// Windows over contiguous images, with a padding value. Windows over groups of channels yield
    /// several GEMMs, one for each group, starting with the first.
    Windows(&'a [i8], &'a Windows, i8),
}

impl<'a> Left<'a> {
    /// Number of left operands, each of which belongs to a block of the right operand.
    pub(super) fn blocks(&self) -> usize {
        match self {
            Left::Rows(..) | Left::Filled(..) => 1,
            Left::Windows(_, windows, _) => windows.groups(),
        }
    }

    /// The left operand of a block.
    pub(super) fn block(self, block: usize) -> Option<Self> {
        match self {
            Left::Windows(codes, windows, outside) => {
                let codes = codes.get(block.checked_mul(windows.input[2])?..)?;
                Some(Left::Windows(codes, windows, outside))
            }
            other => (block == 0).then_some(other),
        }
    }

    /// Whether the kernel can read rows in place.
    pub(super) fn lies_ready(&self, k: usize) -> bool {
        let are_rows = match self {
            Left::Rows(..) => true,
            Left::Filled(_, stride) => return k > 0 && k.next_multiple_of(STEP) <= *stride,
            Left::Windows(_, windows, _) => windows.are_pixels(),
        };
        are_rows && k.is_multiple_of(STEP) && k > 0
    }

    /// The data and the row stride of an operand that is read in place; `None` if the data is too
    /// short.
    pub(super) fn ready(&self, rows: usize, k: usize) -> Option<(&'a [i8], usize)> {
        let (codes, stride) = match *self {
            Left::Rows(codes, stride) | Left::Filled(codes, stride) => (codes, stride),
            Left::Windows(codes, windows, _) => (codes, windows.pixel),
        };
        let needed = rows.checked_sub(1)?.checked_mul(stride)?.checked_add(k)?;
        (needed <= codes.len()).then_some((codes, stride))
    }

    /// Geometry of padded images, if windows are read from padded copies.
    pub(super) fn padded(&self, rows: usize) -> Option<Grid<'a>> {
        let &Left::Windows(_, windows, _) = self else { return None };
        let padded = windows.padded()?;
        let count = rows.div_ceil(windows.count().max(1));
        let len = count.checked_mul(padded.len).filter(|len| *len <= LARGE)?;
        let together = (TOGETHER / len.max(1)).clamp(1, self.blocks().max(1));
        Some(Grid { windows, padded, count, together })
    }

    /// Copies rows from `first` on to `place`, `steps` groups of [`STEP`] bytes each. Returns
    /// `None` if the operand has too few rows.
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
                // Windows of one image after the other.
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

/// Padded copies of images.
#[derive(Clone, Copy)]
pub(super) struct Grid<'a> {
    pub(super) windows: &'a Windows,
    pub(super) padded: Padded,
    /// Number of images.
    count: usize,
    /// Number of blocks whose images are copied at the same time.
    pub(super) together: usize,
}

impl Grid<'_> {
    /// Words of a block's padded images.
    pub(super) fn words(&self) -> usize {
        self.count * self.padded.len / STEP
    }

    /// Copies the images of some blocks to the workspace, with padding and with 128 added to each
    /// value. Returns them and the rest of the workspace.
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
