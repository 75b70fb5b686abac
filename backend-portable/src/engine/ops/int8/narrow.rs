//! int8 grouped convolutions whose groups are narrow enough that several share a vector.

use super::super::moves::{channels_last, channels_last_order};
use super::convolution::expected_images;
use super::{Columns, int8_from, int8_zero_point};
use crate::compute::gemm::ShapeMismatch;
use crate::compute::int8::narrow;
use crate::compute::int8::windows::Windows;
use crate::compute::simd::Tier;
use crate::engine::builder::{Builder, Refusal};
use crate::engine::packed::{Constant, Form};
use crate::engine::plan::{Element, Io, Step};
use crate::engine::view::View;
use std::borrow::ToOwned;
use std::vec::Vec;
use torchlet_graph::operators::QuantizedConvolution;

/// Lowers a convolution of images `[batch, channels, height, width]` in groups of `group` channels.
/// The call has the arguments of `q8ta_conv2d`.
pub(super) fn convolution(
    builder: &mut Builder<'_, '_>,
    call: &QuantizedConvolution,
    input: &View,
    windows: Windows,
    group: usize,
) -> Result<(), Refusal> {
    let [batch, channels, ..] = input.sizes[..] else { return Err(expected_images()) };
    let (columns, reads) = Columns::of_convolution(builder, call, channels)?;
    let outside = int8_zero_point(columns.from.zero)?;
    let input = channels_last(builder, input)?;
    let shape = [batch, channels, windows.output[0], windows.output[1]];
    let out = builder.make_of_in_order(&shape, &channels_last_order(4), Element::Code)?;
    if !builder.is_question() {
        let [tall, wide] = windows.axes.map(|axis| axis.kernel());
        let taps = tall.saturating_mul(wide);
        let len = narrow::packed_len(taps, channels, group)
            .ok_or("weights that exceed the address space")?;
        let form = Form::Narrow { taps, channels, group };
        let packed = builder.packed_bytes(call.weights, form, len, |_, data, packed| {
            // A row of the weights holds all taps of all channels of a group.
            let weight = |tap: usize, input: usize, output: usize| {
                let value = data.get((output * taps + tap) * group + input);
                value.map(|value| value.cast_signed())
            };
            let packed = narrow::pack(taps, channels, group, weight, packed);
            packed.ok_or_else(|| "weights with less data than their shape requires".to_owned())
        })?;
        let (at, windows) = (input.offset, windows.along_rows());
        let reads: Vec<&View> = core::iter::once(&input).chain(&reads).collect();
        let len = out.numel();
        let step = Narrow { windows, at, outside, packed, taps, group, columns, len };
        builder.push(step, &reads, &out);
    }
    builder.define(call.out, out)
}

struct Narrow<'p> {
    windows: Windows,
    /// Offset of the input in its buffer.
    at: usize,
    outside: i8,
    packed: Constant<'p>,
    taps: usize,
    group: usize,
    columns: Columns,
    /// Number of output values.
    len: usize,
}

impl Step for Narrow<'_> {
    fn workspace(&self, _: Tier, threads: usize) -> usize {
        let columns = self.columns.words(narrow::padded(self.windows.input[2]));
        let rows = narrow::workspace_len(threads, &self.windows).unwrap_or(usize::MAX);
        columns.saturating_add(rows)
    }

    fn run(&self, io: Io<'_>) -> Result<(), ShapeMismatch> {
        let Io { inputs, out, workspace, context } = io;
        let quantized = int8_from(inputs[0], self.at)?;
        let channels = self.windows.input[2];
        let packed = self.packed.as_slice();
        let packed = narrow::Packed::of(self.taps, channels, self.group, packed);
        let packed = packed.ok_or(ShapeMismatch)?;
        let channel = |column: usize| narrow::channel(self.group, column);
        // The kernel adds 128 to the values before it multiplies them.
        let (columns, rest) = self.columns.fill(&inputs, packed.sums, 128, channel, workspace)?;
        let out: &mut [i8] = bytemuck::cast_slice_mut(out);
        let out = out.get_mut(..self.len).ok_or(ShapeMismatch)?;
        let images = (quantized, &self.windows, self.outside);
        narrow::convolve(context, images, packed, &columns, out, rest)
    }
}
