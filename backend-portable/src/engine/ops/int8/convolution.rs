//! int8 convolutions as matrix multiplications over windows, and depthwise convolutions. Grouped
//! and transposed convolutions are decomposed into several matrix multiplications.

use super::super::elementwise::as_stored;
use super::super::moves::{channels_last, channels_last_order, copy};
use super::super::phases::{Phase, Taps};
use super::{Columns, Matmul, Source, dense, int8_zero_point, matmul_weights};
use crate::compute::gemm::ShapeMismatch;
use crate::compute::int8::left::Left;
use crate::compute::int8::matmul::workspace_len;
#[cfg(target_arch = "x86_64")]
use crate::compute::int8::narrow;
use crate::compute::int8::rows::{self, gemm_windows, quantize_row};
use crate::compute::int8::windows::Windows;
use crate::compute::int8::{LANES, depthwise, pack};
use crate::compute::simd::{Dots, Tier};
use crate::compute::split::for_each_chunks_mut;
use crate::engine::builder::{Builder, Refusal};
use crate::engine::packed::{Constant, Form};
use crate::engine::plan::{Element, Io, Step};
use crate::engine::view::View;
use std::borrow::ToOwned;
use std::vec::Vec;
use torchlet_core::rules::window::{Window, windows};
use torchlet_graph::graph::ValueId;
use torchlet_graph::operators::{
    DynamicConvolutionArgs, Q8taConv2dArgs, Q8taConv2dTransposedArgs, QuantizedConvolution,
};

/// Maximum number of parts that a convolution is decomposed into: blocks of groups times phases.
const MAX_PARTS: usize = 256;

/// Lowers `q8ta_conv2d(x, scale, zero, weights, sums, scales, scale, zero,
/// bias, kernel, stride, padding, dilation, groups, activation)`, including depthwise convolutions.
pub(in crate::engine::ops) fn convolution(
    builder: &mut Builder<'_, '_>,
    args: &[ValueId],
) -> Result<(), Refusal> {
    let call = &QuantizedConvolution::from(Q8taConv2dArgs::of(args)?);
    let input = images(builder, call.input)?;
    let [_, channels, height, width] = input.sizes[..] else { return Err(expected_images()) };
    let (axes, groups) = window(builder, call)?;
    let whole = Windows::new([height, width, channels], axes);
    let whole = whole.ok_or("an input that is smaller than the kernel")?;
    let weights = constant_weights(builder, call.weights)?;
    let [tall, wide] = axes.map(|axis| axis.kernel());
    match *builder.sizes(weights)? {
        [rows, cols, single]
            if [rows, cols] == [tall, wide] && single == channels && groups == channels =>
        {
            single_channels(builder, call, &input, whole)
        }
        [outputs, row] => {
            let phases = [0, 1].map(|dim| Vec::from([Phase::whole(axes[dim], whole.output[dim])]));
            let filter = Filter { weights, outputs, row, groups };
            #[cfg(target_arch = "x86_64")]
            if filter.is_narrow(builder, channels, [tall, wide]) && narrow::are_near(&whole) {
                let group = channels / groups;
                return super::narrow::convolution(builder, call, &input, whole, group);
            }
            let made = requantized(builder, call, outputs)?;
            in_parts(builder, (call.out, &input), &filter, (whole.output, phases), &made)
        }
        _ => {
            Err("weights: expected a matrix, or [height, width, channels] for depthwise".to_owned())
        }
    }
}

/// Lowers `q8ta_conv2d_transposed(x, scale, zero, weights, sums, scales,
/// scale, zero, bias, kernel, stride, padding, output_padding, dilation, groups, activation)`.
pub(in crate::engine::ops) fn transposed(
    builder: &mut Builder<'_, '_>,
    args: &[ValueId],
) -> Result<(), Refusal> {
    let call = Q8taConv2dTransposedArgs::of(args)?;
    let more = builder.integers(call.output_padding)?;
    let call = &QuantizedConvolution::from(call);
    let input = images(builder, call.input)?;
    let [_, _, height, width] = input.sizes[..] else { return Err(expected_images()) };
    let (axes, groups) = window(builder, call)?;
    let weights = constant_weights(builder, call.weights)?;
    let [outputs, row] = matrix(builder, weights)?;
    let parts = transposed_phases(axes, [height, width], &more)?;
    let filter = Filter { weights, outputs, row, groups };
    if groups != 1 {
        return Err("transposed int8 convolution with several groups".to_owned());
    }
    let made = requantized(builder, call, outputs)?;
    in_parts(builder, (call.out, &input), &filter, parts, &made)
}

/// Returns the output height and width of a transposed convolution, and its phases over each.
fn transposed_phases(
    axes: [Window; 2],
    input: [usize; 2],
    more: &[i64],
) -> Result<([usize; 2], [Vec<Phase>; 2]), Refusal> {
    let mut sizes = [0; 2];
    let mut phases = [Vec::new(), Vec::new()];
    for (dim, (axis, input)) in axes.into_iter().zip(input).enumerate() {
        let more = more.get(dim).or(more.first()).map(|more| usize::try_from(*more));
        let size = more.and_then(Result::ok).and_then(|more| axis.transposed(input, more));
        sizes[dim] = size
            .filter(|size| *size > 0)
            .ok_or("an empty output, or an output_padding out of range")?;
        let parts = Phase::of_transposed(axis, input, sizes[dim]);
        phases[dim] = parts.ok_or(
            "transposed convolution with outputs that no input reaches, or with a stride above 16",
        )?;
    }
    Ok((sizes, phases))
}

/// Lowers `dynamic_convolution(input, weights, scales, bias, kernel, stride,
/// padding, output_padding, dilation, groups, transposed)`.
pub(in crate::engine::ops) fn dynamic(
    builder: &mut Builder<'_, '_>,
    args: &[ValueId],
) -> Result<(), Refusal> {
    let call = DynamicConvolutionArgs::of(args)?;
    let input = as_stored(builder, call.input)?;
    let [batch, channels, height, width] = input.sizes[..] else { return Err(expected_images()) };
    let (axes, groups) = window(builder, &call.into())?;
    let more = builder.integers(call.output_padding)?;
    let is_transposed = builder.truth(call.transposed)?;
    let weights = constant_weights(builder, call.weights)?;
    let [outputs, row] = matrix(builder, weights)?;
    if is_transposed && groups != 1 {
        return Err("transposed int8 convolution with several groups".to_owned());
    }
    let parts = if is_transposed {
        transposed_phases(axes, [height, width], &more)?
    } else {
        let whole = Windows::new([height, width, channels], axes);
        let output = whole.ok_or("an input that is smaller than the kernel")?.output;
        (output, [0, 1].map(|dim| Vec::from([Phase::whole(axes[dim], output[dim])])))
    };
    let image_len = channels.saturating_mul(height).saturating_mul(width);
    if image_len == 0 || batch == 0 {
        return Err("empty images".to_owned());
    }
    // The quantized values keep the memory order of the floats if each image is contiguous.
    let input = match input.is_dense() && input.order().first() == Some(&0) || batch == 1 {
        true => dense(builder, &input)?,
        false => builder.contiguous(&input)?,
    };
    let values_len = batch
        .checked_mul(image_len.next_multiple_of(4))
        .ok_or("images that exceed the address space")?;
    let head = batch.saturating_mul(IMAGE_HEADER);
    let len = values_len.checked_add(head).ok_or("images that exceed the address space")?;
    let made = builder.make_of_in_order(&[len], &[0], Element::Code)?;
    let step = Quantize { batch, image_len, at: input.offset };
    builder.push(step, &[&input], &made);
    let mut strides = input.strides.clone();
    if let Some(first) = strides.first_mut() {
        *first = image_len.next_multiple_of(4);
    }
    let source = View { buffer: made.buffer, offset: head, sizes: input.sizes.clone(), strides };
    let mut reads = Vec::from([made]);
    let scales = builder.view(call.weight_scales)?;
    reads.push(builder.contiguous(&scales)?);
    if let Some(bias) = builder.optional(call.bias)? {
        reads.push(builder.contiguous(&bias)?);
    }
    if reads.iter().skip(1).any(|view| view.sizes != [outputs]) {
        return Err("weight scales or bias: expected an element per output channel".to_owned());
    }
    let filter = Filter { weights, outputs, row, groups };
    in_parts(builder, (call.out, &source), &filter, parts, &Output::Float { reads })
}

pub(super) fn expected_images() -> Refusal {
    "int8 convolution of an input without 4 dims".to_owned()
}

fn images(builder: &mut Builder<'_, '_>, input: ValueId) -> Result<View, Refusal> {
    let input = builder.codes(input)?;
    if input.sizes.len() == 4 { Ok(input) } else { Err(expected_images()) }
}

/// Decodes the windows over height and width, and the number of groups.
fn window(
    builder: &Builder<'_, '_>,
    call: &QuantizedConvolution,
) -> Result<([Window; 2], usize), Refusal> {
    let list = |id: ValueId| builder.integers(id);
    let (kernel, stride) = (list(call.kernel_size)?, list(call.stride)?);
    let axes = axes(&kernel, &stride, &list(call.padding)?, &list(call.dilation)?)?;
    let groups = builder.integer(call.groups)?;
    Ok((axes, usize::try_from(groups).unwrap_or(0)))
}

/// Creates the windows over height and width.
fn axes(
    kernel: &[i64],
    stride: &[i64],
    padding: &[i64],
    dilation: &[i64],
) -> Result<[Window; 2], Refusal> {
    let axes = windows(2, kernel, stride, padding, dilation);
    let axes = axes.and_then(|axes| <[Window; 2]>::try_from(&axes[..]).ok());
    axes.ok_or_else(|| "kernel_size, stride, padding or dilation that is out of range".to_owned())
}

/// Returns the number of rows (output channels) and columns of a weight matrix.
fn matrix(builder: &Builder<'_, '_>, weights: ValueId) -> Result<[usize; 2], Refusal> {
    match *builder.sizes(weights)? {
        [outputs, row] => Ok([outputs, row]),
        _ => Err("weights: expected 2 dims".to_owned()),
    }
}

fn constant_weights(builder: &Builder<'_, '_>, weights: ValueId) -> Result<ValueId, Refusal> {
    if builder.is_constant(weights) && builder.element(weights)? == Element::Code {
        return Ok(weights);
    }
    Err("weights other than int8 constants".to_owned())
}

/// Convolution weights: a matrix `[outputs, row]`, whose rows hold all taps of all channels of a
/// group.
struct Filter {
    weights: ValueId,
    outputs: usize,
    row: usize,
    groups: usize,
}

impl Filter {
    /// Whether groups are narrow enough that several share a vector.
    #[cfg(target_arch = "x86_64")]
    fn is_narrow(&self, builder: &Builder<'_, '_>, channels: usize, taps: [usize; 2]) -> bool {
        let &Filter { outputs, row, groups, .. } = self;
        let divides = |count: usize| groups > 0 && count.is_multiple_of(groups);
        let dots = Dots::of(builder.machine.tier);
        divides(channels)
            && divides(outputs)
            && narrow::serves(dots, groups, [channels / groups, outputs / groups])
            && taps[0].checked_mul(taps[1]).and_then(|taps| taps.checked_mul(channels / groups))
                == Some(row)
    }

    /// Whether the columns of the right operand are exactly the rows of the weights: one group, and
    /// all taps in order.
    fn has_whole_rows(&self, part: &Part) -> bool {
        let in_order = |taps: &Taps| *taps == Taps::all(taps.kernel);
        self.groups == 1 && part.taps.iter().all(in_order)
    }
}

/// Part of the weights for one phase: a subset of the taps, and all channels. The channels form
/// `blocks` blocks of `merged` groups; a group has `inputs` and `outputs` channels.
#[derive(Clone, Copy)]
struct Part {
    blocks: usize,
    merged: usize,
    outputs: usize,
    inputs: usize,
    taps: [Taps; 2],
}

impl Part {
    /// Shape of the right operand for a block: `[k, n]`.
    fn shape(&self) -> [usize; 2] {
        let taps = self.taps[0].count * self.taps[1].count;
        [taps * self.merged * self.inputs, self.merged * self.outputs]
    }

    fn form(&self) -> Form {
        let Part { blocks, merged, outputs, inputs, taps } = *self;
        Form::Int8Part { channels: [blocks, merged, outputs, inputs], taps }
    }

    /// Returns the value at a row and column of the concatenated blocks, from weight rows of
    /// `length` values. Zero if the column belongs to another group or is padding.
    fn value(&self, data: &[u8], length: usize, row: usize, col: usize) -> Option<i8> {
        let [_, n] = self.shape();
        let (block, col) = (col / pack::padded(n), col % pack::padded(n));
        if col >= n {
            return Some(0);
        }
        let (tap_index, channel) =
            (row / (self.merged * self.inputs), row % (self.merged * self.inputs));
        if channel / self.inputs != col / self.outputs {
            return Some(0);
        }
        let [tall, wide] = self.taps;
        let tap = tall.at(tap_index / wide.count) * wide.kernel + wide.at(tap_index % wide.count);
        let at = (block * n + col) * length + tap * self.inputs + channel % self.inputs;
        data.get(at).map(|value| value.cast_signed())
    }
}

/// Epilogue of a convolution, with the additional buffers that it reads.
enum Output {
    /// Requantizes to int8. `outside` is the padding value of the input.
    Int8 { columns: Columns, outside: i8, reads: Vec<View> },
    /// Dequantizes to floats. `reads` are the images' quantization parameters, the weight scales
    /// and an optional bias.
    Float { reads: Vec<View> },
}

impl Output {
    fn element(&self) -> Element {
        match self {
            Output::Int8 { .. } => Element::Code,
            Output::Float { .. } => Element::Float,
        }
    }

    /// Appends the matrix multiplication that computes all channels.
    fn push<'p>(
        &self,
        builder: &mut Builder<'_, 'p>,
        piece: GemmStep<'p>,
        source: &View,
        made: &View,
    ) {
        let GemmStep { batch, windows, shape, blocks, packed } = piece;
        let at = source.offset;
        match self {
            Output::Int8 { columns, outside, reads } => {
                let rows = batch.saturating_mul(windows.count());
                let source_of = Source::Windows(windows, *outside);
                let columns = columns.clone();
                let step = Matmul { rows, source: source_of, at, shape, blocks, packed, columns };
                let reads: Vec<&View> = core::iter::once(source).chain(reads).collect();
                builder.push(step, &reads, made);
            }
            Output::Float { reads } => {
                let offset_of = |read: usize| reads.get(read).map(|view| view.offset);
                let stride = source.strides.first().copied().unwrap_or(0);
                let (scales, bias) = (offset_of(1).unwrap_or(0), offset_of(2));
                let step =
                    Dynamic { batch, windows, at, stride, shape, blocks, packed, scales, bias };
                let reads: Vec<&View> = core::iter::once(source).chain(reads).collect();
                builder.push(step, &reads, made);
            }
        }
    }
}

/// Returns the requantizing epilogue of a call
/// `x, scale, zero, weights, sums, scales, scale, zero, bias, …`.
fn requantized(
    builder: &mut Builder<'_, '_>,
    call: &QuantizedConvolution,
    outputs: usize,
) -> Result<Output, Refusal> {
    let (columns, reads) = Columns::of_convolution(builder, call, outputs)?;
    let outside = int8_zero_point(columns.from.zero)?;
    Ok(Output::Int8 { columns, outside, reads })
}

/// A GEMM step: im2col windows times adjacent blocks of output channels.
struct GemmStep<'p> {
    batch: usize,
    windows: Windows,
    /// Shape `[k, n]` of a block, and number of blocks.
    shape: [usize; 2],
    blocks: usize,
    /// Weights of all blocks.
    packed: Constant<'p>,
}

/// Lowers a convolution to one GEMM for each pair of phases (height and width). `size` is the total
/// output height and width. Each GEMM covers all groups; as many of them as fill a panel are merged
/// into a block.
fn in_parts(
    builder: &mut Builder<'_, '_>,
    (result, input): (ValueId, &View),
    filter: &Filter,
    (size, phases): ([usize; 2], [Vec<Phase>; 2]),
    kind: &Output,
) -> Result<(), Refusal> {
    let &Filter { weights, outputs, row, groups } = filter;
    let [batch, channels, height, width] = input.sizes[..] else { return Err(expected_images()) };
    let divides = |count: usize| groups > 0 && count > 0 && count.is_multiple_of(groups);
    if !divides(channels) || !divides(outputs) {
        return Err(std::format!(
            "{channels} input and {outputs} output channels are not divisible into {groups} groups"
        ));
    }
    let own = [channels / groups, outputs / groups];
    let taps = phases.iter().try_fold(1usize, |taps, phases| {
        taps.checked_mul(phases.first().map_or(0, |phase| phase.taps.kernel))
    });
    if taps.and_then(|taps| taps.checked_mul(own[0])) != Some(row) {
        return Err(
            "weights: expected a column per input channel of a group and kernel element".to_owned()
        );
    }
    // Groups narrower than a panel are merged into a block, with zero weights for the channels of
    // other groups.
    let fill = (1..=LANES / own[1].min(LANES)).rev().find(|count| groups.is_multiple_of(*count));
    let merged = fill.unwrap_or(1);
    let blocks = groups / merged;
    if blocks.saturating_mul(phases[0].len()).saturating_mul(phases[1].len()) > MAX_PARTS {
        return Err(std::format!(
            "a convolution of more than {MAX_PARTS} parts (groups times phases)"
        ));
    }
    let (shape, order) = ([batch, outputs, size[0], size[1]], channels_last_order(4));
    let out = builder.make_of_in_order(&shape, &order, kind.element())?;
    let is_whole = phases.iter().all(|phases| phases.len() == 1);
    if builder.is_question() {
        return builder.define(result, out);
    }
    let source = channels_last(builder, input)?;
    for tall in &phases[0] {
        for wide in &phases[1] {
            let taps = [tall.taps, wide.taps];
            let part = Part { blocks, merged, outputs: own[1], inputs: own[0], taps };
            let windows = Windows::part(
                [height, width, merged * own[0]],
                [tall.window, wide.window],
                [tall.skip, wide.skip],
                [tall.count, wide.count],
            );
            let windows = windows.and_then(|windows| windows.of_groups(channels));
            let windows = windows.ok_or("an input that is smaller than the kernel")?;
            let shape = part.shape();
            let packed = match is_whole && filter.has_whole_rows(&part) {
                true => matmul_weights(builder, weights, shape)?,
                false => part_weights(builder, weights, row, &part)?,
            };
            let made = match is_whole {
                true => out.clone(),
                false => {
                    let sizes = [batch, outputs, tall.count, wide.count];
                    builder.make_of_in_order(&sizes, &order, kind.element())?
                }
            };
            let piece = GemmStep { batch, windows, shape, blocks, packed };
            kind.push(builder, piece, &source, &made);
            if !is_whole {
                let target = out.sliced(2, tall.start, size[0], tall.every);
                let target = target.and_then(|it| it.sliced(3, wide.start, size[1], wide.every));
                copy(
                    builder,
                    &made,
                    &target.ok_or("internal error: a phase lies outside the output")?,
                );
            }
        }
    }
    builder.define(result, out)
}

/// Packs the weights of a part for matrix multiplication.
fn part_weights<'p>(
    builder: &mut Builder<'_, 'p>,
    id: ValueId,
    row: usize,
    part: &Part,
) -> Result<Constant<'p>, Refusal> {
    let shape = pack::side_by_side(part.shape(), part.blocks);
    let shape = shape.ok_or("weights that exceed the address space")?;
    let len = pack::packed_len(shape).ok_or("weights that exceed the address space")?;
    builder.packed_bytes(id, part.form(), len, |_, data, packed| {
        let packed = pack::pack(shape, |at, col| part.value(data, row, at, col), packed);
        packed.ok_or_else(|| "weights with less data than their shape requires".to_owned())
    })
}

/// Lowers a depthwise convolution.
fn single_channels(
    builder: &mut Builder<'_, '_>,
    call: &QuantizedConvolution,
    input: &View,
    windows: Windows,
) -> Result<(), Refusal> {
    let [batch, channels, ..] = input.sizes[..] else { return Err(expected_images()) };
    let [tall, wide] = windows.axes.map(|axis| axis.kernel());
    let taps = tall.saturating_mul(wide);
    if taps > depthwise::TAPS {
        return Err("depthwise convolution with too large a kernel".to_owned());
    }
    let (columns, reads) = Columns::of_convolution(builder, call, channels)?;
    let outside = int8_zero_point(columns.from.zero)?;
    let input = channels_last(builder, input)?;
    let shape = [batch, channels, windows.output[0], windows.output[1]];
    let out = builder.make_of_in_order(&shape, &channels_last_order(4), Element::Code)?;
    if !builder.is_question() {
        let packed = depthwise_weights(builder, call.weights, taps, channels)?;
        let (at, windows) = (input.offset, windows.along_rows());
        let reads: Vec<&View> = core::iter::once(&input).chain(&reads).collect();
        let step = Depthwise { batch, windows, at, outside, packed, taps, columns };
        builder.push(step, &reads, &out);
    }
    builder.define(call.out, out)
}

/// Packs weights `[height, width, channels]` for depthwise convolution.
fn depthwise_weights<'p>(
    builder: &mut Builder<'_, 'p>,
    id: ValueId,
    taps: usize,
    channels: usize,
) -> Result<Constant<'p>, Refusal> {
    let len =
        depthwise::packed_len(taps, channels).ok_or("weights that exceed the address space")?;
    builder.packed_bytes(id, Form::Depthwise { taps, channels }, len, |_, data, packed| {
        let weight = |tap: usize, channel: usize| {
            data.get(tap * channels + channel).map(|value| value.cast_signed())
        };
        let packed = depthwise::pack(taps, channels, weight, packed);
        packed.ok_or_else(|| "weights with less data than their shape requires".to_owned())
    })
}

/// Step of a depthwise convolution.
struct Depthwise<'p> {
    batch: usize,
    windows: Windows,
    /// Offset of the input in its buffer.
    at: usize,
    outside: i8,
    packed: Constant<'p>,
    taps: usize,
    columns: Columns,
}

impl Step for Depthwise<'_> {
    fn workspace(&self, _: Tier, _: usize) -> usize {
        let channels = depthwise::padded(self.windows.input[2]);
        self.columns.words(channels).saturating_add(channels / 4)
    }

    fn run(&self, io: Io<'_>) -> Result<(), ShapeMismatch> {
        let Io { inputs, out, workspace, context } = io;
        let quantized: &[i8] = bytemuck::cast_slice(inputs[0]);
        let quantized = quantized.get(self.at..).ok_or(ShapeMismatch)?;
        let channels = self.windows.input[2];
        let packed = depthwise::Packed::of(self.taps, channels, self.packed.as_slice());
        let packed = packed.ok_or(ShapeMismatch)?;
        let channel = |column: usize| {
            let block = depthwise::BLOCK;
            column / block * block + depthwise::channel(column % block)
        };
        let (columns, rest) = self.columns.fill(&inputs, packed.sums, 0, channel, workspace)?;
        let outside: &mut [i8] = bytemuck::cast_slice_mut(rest);
        let outside = outside.get_mut(..channels).ok_or(ShapeMismatch)?;
        outside.fill(self.outside);
        let out = bytemuck::cast_slice_mut(out);
        let images =
            depthwise::Images { batch: self.batch, windows: &self.windows, quantized, outside };
        depthwise::convolve(context, &images, packed, &columns, out)
    }
}

/// Bytes of the scale and zero point of an image, which precede its values.
const IMAGE_HEADER: usize = 8;

/// Step that dynamically quantizes a batch of images, each with its own scale and zero point. The
/// scales and zero points of all images precede the values.
struct Quantize {
    batch: usize,
    /// Number of values per image.
    image_len: usize,
    /// Offset of the input in its buffer.
    at: usize,
}

impl Step for Quantize {
    fn run(&self, io: Io<'_>) -> Result<(), ShapeMismatch> {
        let Quantize { batch, image_len, at } = *self;
        let (heads, quantized) =
            io.out.split_at_mut_checked(batch * (IMAGE_HEADER / 4)).ok_or(ShapeMismatch)?;
        let values = io.inputs[0].get(at..).ok_or(ShapeMismatch)?;
        let values = values.get(..batch * image_len).ok_or(ShapeMismatch)?;
        let parts = [IMAGE_HEADER / 4, image_len.div_ceil(4)];
        for_each_chunks_mut(
            io.context.parallel,
            [heads, quantized],
            parts,
            &|index, [head, out]| {
                let values = values.get(index * image_len..).unwrap_or_default();
                let values = values.get(..image_len).unwrap_or_default();
                let (scale, zero) = quantize_row(io.context, values, bytemuck::cast_slice_mut(out));
                if let [scale_slot, zero_slot] = head {
                    (*scale_slot, *zero_slot) = (scale, f32::from_bits(zero.cast_unsigned()));
                }
            },
        );
        Ok(())
    }
}

/// Step of a dynamically quantized convolution: GEMMs over windows of quantized images, for
/// adjacent blocks of output channels.
struct Dynamic<'p> {
    batch: usize,
    windows: Windows,
    /// Offset of the input in its buffer, and stride between images.
    at: usize,
    stride: usize,
    /// Shape `[k, n]` of a block, and number of blocks.
    shape: [usize; 2],
    blocks: usize,
    /// Weights of all blocks.
    packed: Constant<'p>,
    /// Offset of the scales in the third input buffer, and of the optional bias in the fourth.
    scales: usize,
    bias: Option<usize>,
}

impl Step for Dynamic<'_> {
    fn workspace(&self, tier: Tier, threads: usize) -> usize {
        let rows = self.windows.count();
        let columns = pack::padded(self.shape[1]).saturating_mul(self.blocks).saturating_mul(2);
        let left = Left::Windows(&[], &self.windows, 0);
        let gemm = workspace_len(threads, rows, self.shape, &left, Dots::of(tier));
        columns.saturating_add(rows.saturating_mul(2)).saturating_add(gemm)
    }

    fn run(&self, io: Io<'_>) -> Result<(), ShapeMismatch> {
        let Io { inputs: [quantized, heads, scales, bias], out, workspace, context } = io;
        let [_, n] = self.shape;
        let (padded, rows) = (pack::padded(n), self.windows.count());
        let columns = padded * self.blocks;
        let (padded_scales, rest) = workspace.split_at_mut_checked(columns).ok_or(ShapeMismatch)?;
        let (padded_bias, rest) = rest.split_at_mut_checked(columns).ok_or(ShapeMismatch)?;
        let (row_scales, rest) = rest.split_at_mut_checked(rows).ok_or(ShapeMismatch)?;
        let (row_zeros, rest) = rest.split_at_mut_checked(rows).ok_or(ShapeMismatch)?;
        // The columns of each block start at a panel.
        let given = |all: &'_ [f32], at: usize, padded_columns: &mut [f32]| {
            let given = all.get(at..).and_then(|all| all.get(..n * self.blocks));
            let given = given.ok_or(ShapeMismatch)?.chunks_exact(n.max(1));
            for (columns, given) in padded_columns.chunks_exact_mut(padded.max(1)).zip(given) {
                let (front, behind) = columns.split_at_mut_checked(n).ok_or(ShapeMismatch)?;
                front.copy_from_slice(given);
                behind.fill(0.0);
            }
            Ok(())
        };
        given(scales, self.scales, padded_scales)?;
        match self.bias {
            Some(at) => given(bias, at, padded_bias)?,
            None => padded_bias.fill(0.0),
        }
        let columns = rows::Columns { scales: padded_scales, bias: padded_bias };
        let right = pack::Packed::of_blocks(self.shape, self.blocks, self.packed.as_slice());
        let right = right.ok_or(ShapeMismatch)?;
        let quantized: &[i8] = bytemuck::cast_slice(quantized);
        let made = rows.checked_mul(n * self.blocks).filter(|made| *made > 0);
        let made = made.ok_or(ShapeMismatch)?;
        let heads = heads.as_chunks::<{ IMAGE_HEADER / 4 }>().0;
        let images = out.chunks_exact_mut(made).zip(heads).take(self.batch);
        for (index, (out, [scale, zero])) in images.enumerate() {
            row_scales.fill(*scale);
            row_zeros.fill(*zero);
            let outside = i8::try_from(zero.to_bits().cast_signed()).map_err(|_| ShapeMismatch)?;
            let quantized = quantized.get(self.at + index * self.stride..).ok_or(ShapeMismatch)?;
            let left = Left::Windows(quantized, &self.windows, outside);
            let rows = [&*row_scales, &*row_zeros];
            gemm_windows(context, left, rows, right, columns, out, rest)?;
        }
        Ok(())
    }
}
