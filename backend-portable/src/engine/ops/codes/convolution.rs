//! Convolutions of codes: products with windows, in parts where there are groups or the convolution is transposed, and those of single
//! channels.

use super::super::moves::{channels_last, channels_last_order, copy};
use super::super::phases::{Phase, Taps};
use super::super::{argument, output};
use super::{Columns, Product, Source, code, product_weights};
use crate::compute::gemm::ShapeMismatch;
use crate::compute::int8::windows::Windows;
use crate::compute::int8::{LANES, depthwise, pack};
use crate::compute::simd::Tier;
use crate::engine::builder::{Builder, Refusal};
use crate::engine::packed::{Constant, Form};
use crate::engine::plan::{Element, Io, Step};
use crate::engine::view::View;
use std::borrow::ToOwned;
use std::vec::Vec;
use torchlet_core::rules::window::{Window, windows};
use torchlet_graph::graph::ValueId;

/// Most products that a convolution is cut into.
const PARTS: usize = 256;

/// `q8ta_conv2d(x, scale, zero, weights, sums, scales, scale, zero, bias, kernel, stride, padding, dilation, groups, activation)`, and the
/// same of single channels.
pub(in crate::engine::ops) fn convolution(
    builder: &mut Builder<'_, '_>,
    args: &[ValueId],
) -> Result<(), Refusal> {
    let input = pictures(builder, args)?;
    let [_, channels, height, width] = input.sizes[..] else { return Err(no_pictures()) };
    let (axes, groups) = window(builder, args, 12)?;
    let whole = Windows::new([height, width, channels], axes);
    let whole = whole.ok_or("a shape that windows do not fit")?;
    let weights = constant_weights(builder, args)?;
    let [tall, wide] = axes.map(|axis| axis.kernel());
    match *builder.sizes(weights)? {
        [rows, cols, single]
            if [rows, cols] == [tall, wide] && single == channels && groups == channels =>
        {
            single_channels(builder, args, &input, whole)
        }
        [outputs, row] => {
            let phases = [0, 1].map(|dim| Vec::from([Phase::whole(axes[dim], whole.output[dim])]));
            let filter = Filter { weights, outputs, row, groups };
            in_parts(builder, args, &input, &filter, (whole.output, phases), 14)
        }
        _ => Err("weights of other dimensions".to_owned()),
    }
}

/// `q8ta_conv2d_transposed(x, scale, zero, weights, sums, scales, scale, zero, bias, kernel, stride, padding, output_padding, dilation,
/// groups, activation)`
pub(in crate::engine::ops) fn transposed(
    builder: &mut Builder<'_, '_>,
    args: &[ValueId],
) -> Result<(), Refusal> {
    let input = pictures(builder, args)?;
    let [_, _, height, width] = input.sizes[..] else { return Err(no_pictures()) };
    let (axes, groups) = window(builder, args, 13)?;
    let more = builder.integers(argument(args, 12)?)?;
    let weights = constant_weights(builder, args)?;
    let [outputs, row] = *builder.sizes(weights)? else {
        return Err("weights of other dimensions".to_owned());
    };
    if groups != 1 {
        return Err("a transposed convolution in groups, which share their scales".to_owned());
    }
    let mut sizes = [0; 2];
    let mut phases = [Vec::new(), Vec::new()];
    for (dim, (axis, input)) in axes.into_iter().zip([height, width]).enumerate() {
        let more = more.get(dim).or(more.first()).map(|more| usize::try_from(*more));
        let size = more.and_then(Result::ok).and_then(|more| axis.transposed(input, more));
        sizes[dim] = size.filter(|size| *size > 0).ok_or("a shape that windows do not fit")?;
        let parts = Phase::of_transposed(axis, input, sizes[dim]);
        phases[dim] = parts.ok_or("windows with gaps, or far apart")?;
    }
    let filter = Filter { weights, outputs, row, groups };
    in_parts(builder, args, &input, &filter, (sizes, phases), 15)
}

fn no_pictures() -> Refusal {
    "the engine convolves codes of batches of pictures".to_owned()
}

fn pictures(builder: &mut Builder<'_, '_>, args: &[ValueId]) -> Result<View, Refusal> {
    let input = builder.codes(argument(args, 0)?)?;
    if input.sizes.len() == 4 { Ok(input) } else { Err(no_pictures()) }
}

/// How windows move, and groups; dilation is argument `dilation`, and groups are behind it.
fn window(
    builder: &Builder<'_, '_>,
    args: &[ValueId],
    dilation: usize,
) -> Result<([Window; 2], usize), Refusal> {
    let list = |at| builder.integers(argument(args, at)?);
    let axes = windows(2, &list(9)?, &list(10)?, &list(11)?, &list(dilation)?);
    let axes = axes.and_then(|axes| <[Window; 2]>::try_from(&axes[..]).ok());
    let axes = axes.ok_or("kernel, stride, padding or dilation is wrong")?;
    let groups = builder.integer(argument(args, dilation + 1)?)?;
    Ok((axes, usize::try_from(groups).unwrap_or(0)))
}

fn constant_weights(builder: &Builder<'_, '_>, args: &[ValueId]) -> Result<ValueId, Refusal> {
    let weights = argument(args, 3)?;
    if builder.is_constant(weights) && builder.element(weights)? == Element::Code {
        return Ok(weights);
    }
    Err("the engine packs codes of weights beforehand, and these are not constant".to_owned())
}

/// Weights `[outputs, row]` of a convolution: rows of all taps, of all channels of a group each.
struct Filter {
    weights: ValueId,
    outputs: usize,
    row: usize,
    groups: usize,
}

impl Filter {
    /// Whether columns of a product are rows as they are.
    fn has_whole_rows(&self, part: &Part) -> bool {
        let in_order = |taps: &Taps| *taps == Taps::all(taps.kernel);
        self.groups == 1 && part.taps.iter().all(in_order)
    }
}

/// What part of a filter a product has: outputs from `first` on, of `merged` groups of `inputs` and `outputs` each, and some of the taps.
#[derive(Clone, Copy)]
struct Part {
    first: usize,
    outputs: usize,
    inputs: usize,
    merged: usize,
    taps: [Taps; 2],
}

impl Part {
    /// Codes of a column, and columns.
    fn shape(&self) -> [usize; 2] {
        let taps = self.taps[0].count * self.taps[1].count;
        [taps * self.merged * self.inputs, self.merged * self.outputs]
    }

    fn form(&self) -> Form {
        let Part { first, outputs, inputs, merged, taps } = *self;
        Form::CodesOfPart { channels: [first, outputs, inputs, merged], taps }
    }

    /// The code at a row and a column of the product, from rows of so many: zero where the column is another group's.
    fn code(&self, data: &[u8], length: usize, row: usize, col: usize) -> Option<i8> {
        let (place, channel) =
            (row / (self.merged * self.inputs), row % (self.merged * self.inputs));
        if channel / self.inputs != col / self.outputs {
            return Some(0);
        }
        let [tall, wide] = self.taps;
        let tap = tall.at(place / wide.count) * wide.kernel + wide.at(place % wide.count);
        let at = (self.first + col) * length + tap * self.inputs + channel % self.inputs;
        data.get(at).map(|code| code.cast_signed())
    }
}

/// A convolution as products: one for each phase of the outputs, which have this size in all, and for as many groups as fill a panel.
fn in_parts(
    builder: &mut Builder<'_, '_>,
    args: &[ValueId],
    input: &View,
    filter: &Filter,
    (size, phases): ([usize; 2], [Vec<Phase>; 2]),
    activation: usize,
) -> Result<(), Refusal> {
    let &Filter { weights, outputs, row, groups } = filter;
    let [batch, channels, height, width] = input.sizes[..] else { return Err(no_pictures()) };
    let divides = |count: usize| groups > 0 && count > 0 && count.is_multiple_of(groups);
    if !divides(channels) || !divides(outputs) {
        return Err("channels that do not come apart in groups".to_owned());
    }
    let own = [channels / groups, outputs / groups];
    let taps = phases.iter().try_fold(1usize, |taps, phases| {
        taps.checked_mul(phases.first().map_or(0, |phase| phase.taps.kernel))
    });
    if taps.and_then(|taps| taps.checked_mul(own[0])) != Some(row) {
        return Err("weights of another number of channels".to_owned());
    }
    // Groups that are too narrow for a panel share one, where each has zeros for the others.
    let fill = (1..=LANES / own[1].min(LANES)).rev().find(|count| groups.is_multiple_of(*count));
    let merged = fill.unwrap_or(1);
    let blocks = groups / merged;
    if blocks.saturating_mul(phases[0].len()).saturating_mul(phases[1].len()) > PARTS {
        return Err("a convolution of many small parts".to_owned());
    }
    let (columns, reads) = Columns::of(builder, args, outputs, activation)?;
    let outside = code(columns.from.zero)?;
    let (shape, order) = ([batch, outputs, size[0], size[1]], channels_last_order(4));
    let out = builder.make_of_in_order(&shape, &order, Element::Code)?;
    let is_whole = blocks == 1 && phases.iter().all(|phases| phases.len() == 1);
    for block in 0..blocks {
        if builder.is_question() {
            break;
        }
        let [first, behind] = [block, block + 1].map(|block| block * merged * own[0]);
        let source = input.sliced(1, first, behind, 1).ok_or("channels that are not there")?;
        let source = channels_last(builder, &source)?;
        let first = block * merged * own[1];
        let columns = columns.starting_at(first);
        for tall in &phases[0] {
            for wide in &phases[1] {
                let taps = [tall.taps, wide.taps];
                let part = Part { first, outputs: own[1], inputs: own[0], merged, taps };
                let windows = Windows::part(
                    [height, width, merged * own[0]],
                    [tall.window, wide.window],
                    [tall.skip, wide.skip],
                    [tall.count, wide.count],
                );
                let windows = windows.ok_or("a shape that windows do not fit")?;
                let shape = part.shape();
                let packed = match is_whole && filter.has_whole_rows(&part) {
                    true => product_weights(builder, weights, shape)?,
                    false => part_weights(builder, weights, row, &part)?,
                };
                let made = match is_whole {
                    true => out.clone(),
                    false => {
                        let sizes = [batch, shape[1], tall.count, wide.count];
                        builder.make_of_in_order(&sizes, &order, Element::Code)?
                    }
                };
                let rows = batch.saturating_mul(windows.count());
                let (at, source_of) = (source.offset, Source::Windows(windows, outside));
                let step = Product {
                    rows,
                    source: source_of,
                    at,
                    shape,
                    packed,
                    columns: columns.clone(),
                };
                let reads: Vec<&View> = core::iter::once(&source).chain(&reads).collect();
                builder.push(step, &reads, &made);
                if !is_whole {
                    let place = out.sliced(1, first, first + shape[1], 1);
                    let place = place.and_then(|it| it.sliced(2, tall.start, size[0], tall.every));
                    let place = place.and_then(|it| it.sliced(3, wide.start, size[1], wide.every));
                    copy(builder, &made, &place.ok_or("a part that is outside")?);
                }
            }
        }
    }
    builder.define(output(args)?, out)
}

/// Weights of a part as products take them.
fn part_weights<'p>(
    builder: &mut Builder<'_, 'p>,
    id: ValueId,
    row: usize,
    part: &Part,
) -> Result<Constant<'p>, Refusal> {
    let shape = part.shape();
    let len = pack::packed_len(shape).ok_or("weights that are too large")?;
    builder.packed_bytes(id, part.form(), len, |_, data, packed| {
        let packed = pack::pack(shape, |at, col| part.code(data, row, at, col), packed);
        packed.ok_or_else(|| "a constant is cut short".to_owned())
    })
}

/// A convolution of each channel for itself.
fn single_channels(
    builder: &mut Builder<'_, '_>,
    args: &[ValueId],
    input: &View,
    windows: Windows,
) -> Result<(), Refusal> {
    let [batch, channels, ..] = input.sizes[..] else { return Err(no_pictures()) };
    let [tall, wide] = windows.axes.map(|axis| axis.kernel());
    let taps = tall.saturating_mul(wide);
    if taps > depthwise::TAPS {
        return Err("windows of too many taps".to_owned());
    }
    let (columns, reads) = Columns::of(builder, args, channels, 14)?;
    let outside = code(columns.from.zero)?;
    let input = channels_last(builder, input)?;
    let shape = [batch, channels, windows.output[0], windows.output[1]];
    let out = builder.make_of_in_order(&shape, &channels_last_order(4), Element::Code)?;
    if !builder.is_question() {
        let packed = depthwise_weights(builder, argument(args, 3)?, taps, channels)?;
        let at = input.offset;
        let reads: Vec<&View> = core::iter::once(&input).chain(&reads).collect();
        let step = Depthwise { batch, windows, at, outside, packed, taps, columns };
        builder.push(step, &reads, &out);
    }
    builder.define(output(args)?, out)
}

/// Weights `[height, width, channels]` as convolutions of single channels take them.
fn depthwise_weights<'p>(
    builder: &mut Builder<'_, 'p>,
    id: ValueId,
    taps: usize,
    channels: usize,
) -> Result<Constant<'p>, Refusal> {
    let len = depthwise::packed_len(taps, channels).ok_or("weights that are too large")?;
    builder.packed_bytes(id, Form::Depthwise { taps, channels }, len, |_, data, packed| {
        let code = |tap: usize, channel: usize| {
            data.get(tap * channels + channel).map(|code| code.cast_signed())
        };
        let packed = depthwise::pack(taps, channels, code, packed);
        packed.ok_or_else(|| "a constant is cut short".to_owned())
    })
}

/// A convolution of single channels.
struct Depthwise<'p> {
    batch: usize,
    windows: Windows,
    /// Where the input begins.
    at: usize,
    outside: i8,
    packed: Constant<'p>,
    taps: usize,
    columns: Columns,
}

impl Step for Depthwise<'_> {
    fn workspace(&self, _: Tier, _: usize) -> usize {
        let channels = depthwise::padded(self.windows.input[2]);
        channels.saturating_mul(3).saturating_add(channels / 4)
    }

    fn limit(&mut self, min: f32, max: f32) -> bool {
        self.columns.range.limit(min, max);
        true
    }

    fn run(&self, io: Io<'_>) -> Result<(), ShapeMismatch> {
        let Io { inputs, out, workspace, context } = io;
        let codes: &[i8] = bytemuck::cast_slice(inputs[0]);
        let codes = codes.get(self.at..).ok_or(ShapeMismatch)?;
        let channels = self.windows.input[2];
        let packed = depthwise::Packed::of(self.taps, channels, self.packed.as_slice());
        let packed = packed.ok_or(ShapeMismatch)?;
        let channel = |place: usize| {
            let block = depthwise::BLOCK;
            place / block * block + depthwise::channel(place % block)
        };
        let (columns, rest) = self.columns.fill(&inputs, packed.sums, 0, channel, workspace)?;
        let outside: &mut [i8] = bytemuck::cast_slice_mut(rest);
        let outside = outside.get_mut(..channels).ok_or(ShapeMismatch)?;
        outside.fill(self.outside);
        let out = bytemuck::cast_slice_mut(out);
        let pictures =
            depthwise::Pictures { batch: self.batch, windows: &self.windows, codes, outside };
        depthwise::convolve(context, &pictures, packed, &columns, out)
    }
}
