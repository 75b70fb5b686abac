//! Left operand of an int8 GEMM: rows, or im2col windows of images.

use super::STEP;
use super::windows::{Padded, Windows};
use crate::compute::gemm::{Context, ShapeMismatch};
use crate::compute::split::{Outcome, for_each_chunk_mut};
use core::ops::Range;

/// Maximum size in bytes of padded copies of images.
const MAX_PADDED_BYTES: usize = 1 << 22;
/// Maximum size in bytes of the padded copies of several groups, so that they are still in the
/// cache when they are read.
const CACHED_BYTES: usize = 1 << 19;

/// Left operand of a GEMM.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Left<'a> {
    /// Rows in memory, and the stride between them.
    Rows(&'a [i8], usize),
    /// Rows and their stride; each is padded with zeros to at least the next multiple of [`STEP`].
    Filled(&'a [i8], usize),
    /// Windows over contiguous images, and the padding value. Windows over groups of channels yield
    /// one GEMM for each group.
    Windows(&'a [i8], &'a Windows, i8),
}

impl<'a> Left<'a> {
    /// Number of GEMMs that the operand belongs to: 1, or the number of channel groups. Each has
    /// its own block of the right operand.
    pub(super) fn blocks(&self) -> usize {
        match self {
            Left::Rows(..) | Left::Filled(..) => 1,
            Left::Windows(_, windows, _) => windows.groups(),
        }
    }

    /// The left operand of the GEMM with index `block`.
    pub(super) fn block(self, block: usize) -> Option<Self> {
        match self {
            Left::Windows(quantized, windows, outside) => {
                let quantized = quantized.get(block.checked_mul(windows.input[2])?..)?;
                Some(Left::Windows(quantized, windows, outside))
            }
            other => (block == 0).then_some(other),
        }
    }

    /// Whether the kernel can read rows in place.
    pub(super) fn reads_in_place(&self, k: usize) -> bool {
        let are_rows = match self {
            Left::Rows(..) => true,
            Left::Filled(_, stride) => return k > 0 && k.next_multiple_of(STEP) <= *stride,
            Left::Windows(_, windows, _) => windows.is_pointwise(),
        };
        are_rows && k.is_multiple_of(STEP) && k > 0
    }

    /// The data and the row stride of an operand that is read in place; `None` if the data is too
    /// short.
    pub(super) fn in_place_data(&self, rows: usize, k: usize) -> Option<(&'a [i8], usize)> {
        let (quantized, stride) = match *self {
            Left::Rows(quantized, stride) | Left::Filled(quantized, stride) => (quantized, stride),
            Left::Windows(quantized, windows, _) => (quantized, windows.pixel),
        };
        let needed = rows.checked_sub(1)?.checked_mul(stride)?.checked_add(k)?;
        (needed <= quantized.len()).then_some((quantized, stride))
    }

    /// Geometry of padded images, if windows are read from padded copies.
    pub(super) fn padded(&self, rows: usize) -> Option<Grid<'a>> {
        let &Left::Windows(_, windows, _) = self else { return None };
        let padded = windows.padded()?;
        let count = rows.div_ceil(windows.count().max(1));
        let len = count.checked_mul(padded.len).filter(|len| *len <= MAX_PADDED_BYTES)?;
        let blocks_at_once = (CACHED_BYTES / len.max(1)).clamp(1, self.blocks().max(1));
        Some(Grid { windows, padded, count, blocks_at_once })
    }

    /// Copies rows from `first` on to `dst`, each as `steps` groups of [`STEP`] bytes. Returns
    /// `None` if the operand has too few rows.
    pub(super) fn copy(&self, first: usize, k: usize, steps: usize, dst: &mut [i8]) -> Option<()> {
        let length = steps * STEP;
        match *self {
            Left::Rows(quantized, stride) | Left::Filled(quantized, stride) => {
                for (row, dst) in dst.chunks_exact_mut(length).enumerate() {
                    let start = (first + row).checked_mul(stride)?;
                    dst.get_mut(..k)?.copy_from_slice(quantized.get(start..)?.get(..k)?);
                    dst.get_mut(k..)?.fill(0);
                }
            }
            Left::Windows(quantized, windows, zero) => {
                // Copies the windows of one image after the other.
                let (mut row, mut rest) = (first, dst);
                while !rest.is_empty() {
                    let (image, at) = (row / windows.count(), row % windows.count());
                    let count = (windows.count() - at).min(rest.len() / length);
                    let (own, behind) = rest.split_at_mut_checked(count * length)?;
                    let image = quantized.get(image.checked_mul(windows.image())?..)?;
                    windows.write(image, at, zero, own.chunks_exact_mut(length))?;
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
    /// Number of blocks whose padded images are in the workspace at the same time.
    pub(super) blocks_at_once: usize,
}

impl Grid<'_> {
    /// Size in words of the padded images of one block.
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
        let (Left::Windows(quantized, _, outside), windows) = (left, self.windows) else {
            return None;
        };
        let words = self.words().checked_mul(blocks.len())?;
        let (own, rest) = workspace.split_at_mut_checked(words)?;
        let own: &mut [i8] = bytemuck::cast_slice_mut(own);
        let outcome = Outcome::default();
        let pad = |index: usize, dst: &mut [i8]| {
            let (block, image) = (blocks.start + index / self.count, index % self.count);
            let at = image * windows.image() + block * windows.input[2];
            windows.pad(quantized.get(at..)?, outside, self.padded, dst)
        };
        for_each_chunk_mut(context.parallel, own, self.padded.len, &|index, dst| {
            outcome.note(pad(index, dst).ok_or(ShapeMismatch));
        });
        outcome.result().ok()?;
        Some((own, rest))
    }
}
