//! Depthwise convolutions with kernels of 3 by 3 values.

use super::{CHANNEL_WORDS, Images, kernels};
use crate::compiled::{Extent, Span, int8};

/// Number of rows and columns of the kernel.
pub const KERNEL: usize = 3;

/// A depthwise convolution with a kernel of 3 by 3 values.
#[derive(Debug)]
pub struct DepthwisePacked {
    /// Shape of the input.
    pub from: Extent,
    /// Shape of the output, with the same number of channels.
    pub to: Extent,
    /// Stride, 1 or 2.
    pub stride: usize,
    /// Rows above the input, and columns before it.
    pub padding: [usize; 2],
    /// Zero point of the input, the value of the padding.
    pub value: i8,
    /// Offset of the results.
    pub zero: i32,
    /// [`Channel`](super::Channel) of each channel, for sums without the offset of the input.
    pub channels: &'static [i32],
    /// Weights: `[channel, row, column]`.
    pub weights: &'static [u8],
    /// Channels-last input.
    pub input: Span,
    /// Channels-last output; may be the same as the input if the shapes are the same.
    pub out: Span,
    /// Workspace, aligned to 4 bytes, of [`workspace_bytes`](Self::workspace_bytes).
    pub workspace: Span,
}

impl DepthwisePacked {
    /// Rows and columns of a channel in the workspace, padded for the innermost loop. `None` on
    /// overflow.
    pub fn plane(
        from: Extent,
        to: Extent,
        stride: usize,
        padding: [usize; 2],
    ) -> Option<[usize; 2]> {
        let rows = to.rows.checked_sub(1)?.checked_mul(stride)?.checked_add(KERNEL)?;
        let columns =
            to.columns.checked_next_multiple_of(2)?.checked_mul(stride)?.checked_add(2)?;
        let rows = rows.max(from.rows.checked_add(padding[0])?);
        let columns = columns.max(from.columns.checked_add(padding[1])?);
        Some([rows, columns.checked_next_multiple_of(2)?])
    }

    /// Bytes of workspace; `None` on overflow.
    pub fn workspace_bytes(
        from: Extent,
        to: Extent,
        stride: usize,
        padding: [usize; 2],
    ) -> Option<usize> {
        let [rows, columns] = Self::plane(from, to, stride, padding)?;
        rows.checked_mul(columns)?.checked_mul(size_of::<i16>())
    }

    /// Runs the call.
    pub fn run(&self, memory: &mut [u8]) {
        let spans = [self.input, self.out, self.workspace];
        let Some((mut images, plane)) = Images::new(memory, spans) else { return };
        let (from, to) = (self.from, self.to);
        let Some([rows, columns]) = Self::plane(from, to, self.stride, self.padding) else {
            return;
        };
        let is_whole = self.weights.len() == KERNEL * KERNEL * to.channels
            && self.channels.len() == CHANNEL_WORDS * to.channels
            && plane.len() == rows * columns
            && from.channels == to.channels;
        let area = to.rows * to.columns;
        if !is_whole || area == 0 || to.channels == 0 {
            return;
        }
        plane.fill(self.value.into());
        let [above, before] = self.padding;
        for image in 0..images.out().len() / (area * to.channels) {
            let (words, _) = self.channels.as_chunks::<CHANNEL_WORDS>();
            let (weights, _) = int8(self.weights).as_chunks::<{ KERNEL * KERNEL }>();
            for (channel, (words, weights)) in words.iter().zip(weights).enumerate() {
                let from_at = from.at(image, 0, 0) + channel;
                let Some(input) = images.input().get(from_at..) else { return };
                let Some(inside) = plane.get_mut(above * columns + before..) else { return };
                kernels::copy_channel(input, from, inside, [before, columns]);
                let kernel = kernels::Kernel::new(weights, *words, self.zero);
                let out_at = to.at(image, 0, 0) + channel;
                let Some(out) = images.out().get_mut(out_at..) else { return };
                kernels::depthwise(&kernel, self.stride, plane, columns, to, out);
            }
        }
    }
}
