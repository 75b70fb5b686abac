//! int8 quantized operators. A quantized value represents `(value - zero_point) * scale`.

mod convolution;
#[cfg(target_arch = "x86_64")]
mod narrow;

pub(super) use convolution::{convolution, dynamic, transposed};

use super::elementwise::as_stored;
use super::moves::{Copy, channels_last, channels_last_order};
use crate::compute::gemm::ShapeMismatch;
use crate::compute::int8::elementwise::{self, Operation, Scaled, TABLE_LEN};
use crate::compute::int8::left::Left;
use crate::compute::int8::matmul::{gemm, workspace_len};
use crate::compute::int8::windows::Windows;
use crate::compute::int8::{Exact, Range, Requantize, pack};
use crate::compute::simd::{Dots, Tier};
use crate::engine::builder::{Builder, Refusal};
use crate::engine::packed::{Constant, Form};
use crate::engine::plan::{Element, Io, Step};
use crate::engine::view::View;
use std::borrow::ToOwned;
use std::vec::Vec;
use torchlet_core::rules::window::{Window, pooling, windows};
use torchlet_graph::graph::{Value, ValueId};
use torchlet_graph::operators::{
    DequantizePerTensorArgs, LookupArgs, MaxPoolArgs, Q8taAddArgs, Q8taLinearArgs, Q8taReluArgs,
    QuantizePerTensorArgs, QuantizedConvolution, RescaledArithmeticArgs,
};

/// Supported zero points. In this range, no kernel overflows.
const ZERO_POINTS: core::ops::RangeInclusive<i64> = -1024..=1024;

/// Decodes scale and zero point from the arguments.
fn scaled(builder: &Builder<'_, '_>, [scale, zero]: [ValueId; 2]) -> Result<Scaled, Refusal> {
    let scale = builder.number(scale)? as f32;
    let zero = builder.integer(zero)?;
    let is_step = scale.is_normal() && scale > 0.0;
    if !is_step || !ZERO_POINTS.contains(&zero) {
        return Err(std::format!(
            "quantization with scale {scale} and zero point {zero}; expected a positive scale and \
             -1024 to 1024"
        ));
    }
    Ok(Scaled { scale, zero: i32::try_from(zero).unwrap_or(0) })
}

/// Converts a zero point to int8, for padding.
fn int8_zero_point(zero: i32) -> Result<i8, Refusal> {
    i8::try_from(zero).map_err(|_| std::format!("zero point {zero}; expected -128 to 127"))
}

/// Returns the range of the output, limited by a fused activation.
fn range(
    builder: &Builder<'_, '_>,
    zero: i32,
    activation: Option<ValueId>,
) -> Result<Range, Refusal> {
    let all = Range { zero, low: i8::MIN, high: i8::MAX };
    match activation.map(|id| builder.value(id)) {
        None => Ok(all),
        Some(Value::String(name)) if name == "none" => Ok(all),
        Some(Value::String(name)) if name == "relu" => {
            Ok(Range { low: int8_zero_point(zero)?, ..all })
        }
        _ => Err("a fused activation other than 'none' and 'relu'".to_owned()),
    }
}

/// Splits a bias into an integer multiple of the accumulator's unit (input scale times weight
/// scale) and a float remainder. The remainder is zero if the quantizer chose the bias scale
/// accordingly; then a result is rounded only once, as with an integer bias.
fn in_units(bias: f32, unit: f32) -> (i32, f32) {
    /// Adding and subtracting this constant rounds values below half of it to integers.
    const MAGIC: f32 = 12_582_912.0;
    let units = bias / unit;
    let whole = (units + MAGIC) - MAGIC;
    let is_whole = units.abs() < MAGIC / 4.0 && (units - whole).abs() <= 1e-3 + 1e-6 * units.abs();
    if is_whole { (whole as i32, 0.0) } else { (0, bias) }
}

/// Requantization parameters of the output columns.
#[derive(Clone)]
struct Columns {
    from: Scaled,
    scale: f32,
    range: Range,
    /// Whether results are exact: scales and biases then have two rows, whose sums are the values,
    /// and biases count units of the accumulator.
    is_exact: bool,
    /// Number of output channels.
    channels: usize,
    /// Offset of the scales in the second input buffer, and of the optional bias in the third.
    scales: usize,
    bias: Option<usize>,
}

impl Columns {
    /// Decodes the parameters of a convolution. Also returns the tensors that it reads besides the
    /// input.
    fn of_convolution(
        builder: &mut Builder<'_, '_>,
        call: &QuantizedConvolution,
        count: usize,
    ) -> Result<(Self, Vec<View>), Refusal> {
        let (Some(from), Some(to)) = (call.input_parameters, call.output_parameters) else {
            return Err("convolution without quantized input and output".to_owned());
        };
        Self::of(builder, [from, to], call.weight_scales, [Some(call.bias), call.activation], count)
    }

    /// Decodes the parameters of a call: `[scale, zero point]` of input and output, weight scales,
    /// bias and activation. Also returns the tensors that it reads besides the input.
    fn of(
        builder: &mut Builder<'_, '_>,
        [from, to]: [[ValueId; 2]; 2],
        scales: ValueId,
        [bias, activation]: [Option<ValueId>; 2],
        count: usize,
    ) -> Result<(Self, Vec<View>), Refusal> {
        let (from, to) = (scaled(builder, from)?, scaled(builder, to)?);
        let mut range = range(builder, to.zero, activation)?;
        let [min, max] = builder.take_epilogue().only_limits()?;
        range.limit(min, max);
        let is_exact = is_exact(builder, scales, count)?;
        if is_exact && [from.scale, to.scale] != [1.0; 2] {
            return Err("exact scales with other scales of the input or output".to_owned());
        }
        let scales = builder.view(scales)?;
        let mut reads = Vec::from([builder.contiguous(&scales)?]);
        if let Some(bias) = builder.optional(bias)? {
            reads.push(builder.contiguous(&bias)?);
        }
        let sizes: &[usize] = if is_exact { &[2, count] } else { &[count] };
        if reads.iter().any(|view| view.sizes != sizes) {
            return Err("weight scales or bias: expected an element per output channel".to_owned());
        }
        let at = |index: usize| reads.get(index).map(|view| view.offset);
        let (scales, bias) = (at(0).unwrap_or(0), at(1));
        let (scale, channels) = (to.scale, count);
        Ok((Columns { from, scale, range, is_exact, channels, scales, bias }, reads))
    }

    /// Words of workspace for this many packed columns.
    fn words(&self, columns: usize) -> usize {
        columns.saturating_mul(if self.is_exact { 5 } else { 3 })
    }

    /// Computes the requantization parameters of packed columns, in a workspace of
    /// [`words`](Self::words). `channel` maps a packed column to its output channel. Also returns
    /// the rest of the workspace.
    fn fill<'w>(
        &self,
        inputs: &[&[f32]],
        sums: &[i32],
        offset: i32,
        channel: impl Fn(usize) -> usize,
        workspace: &'w mut [f32],
    ) -> Result<(Requantize<'w>, &'w mut [f32]), ShapeMismatch> {
        let count = sums.len();
        let scales_given = inputs.get(1).and_then(|read| read.get(self.scales..));
        let scales_given = scales_given.ok_or(ShapeMismatch)?;
        let bias_given = match self.bias {
            Some(at) => inputs.get(2).and_then(|read| read.get(at..)).ok_or(ShapeMismatch)?,
            None => &[],
        };
        let (start, rest) = workspace.split_at_mut_checked(count).ok_or(ShapeMismatch)?;
        let (scales, rest) = rest.split_at_mut_checked(count).ok_or(ShapeMismatch)?;
        let (bias, rest) = rest.split_at_mut_checked(count).ok_or(ShapeMismatch)?;
        let start: &mut [i32] = bytemuck::cast_slice_mut(start);
        let zero = self.from.zero + offset;
        if self.is_exact {
            let (multipliers, rest) = rest.split_at_mut_checked(count).ok_or(ShapeMismatch)?;
            let (shifts, rest) = rest.split_at_mut_checked(count).ok_or(ShapeMismatch)?;
            let multipliers: &mut [i32] = bytemuck::cast_slice_mut(multipliers);
            let shifts: &mut [i32] = bytemuck::cast_slice_mut(shifts);
            let both = |given: &[f32], channel: usize| {
                let row = |row: usize| given.get(row * self.channels + channel).copied();
                row(0).zip(row(1)).map(|(high, low)| f64::from(high) + f64::from(low))
            };
            for (column, sum) in sums.iter().enumerate() {
                let channel = channel(column);
                // Columns of padding have no channel.
                let own = both(scales_given, channel).filter(|_| channel < self.channels);
                let own = own.unwrap_or(0.0);
                let bias_of_channel = both(bias_given, channel).unwrap_or(0.0);
                let (multiplier, shift) = Exact::factor(own).unwrap_or((0, 1));
                start[column] = (bias_of_channel as i32).wrapping_sub(zero.wrapping_mul(*sum));
                scales[column] = own as f32;
                bias[column] = 0.0;
                multipliers[column] = multiplier;
                shifts[column] = shift;
            }
            let exact = Some(Exact { multipliers, shifts });
            return Ok((Requantize { start, scales, bias, range: self.range, exact }, rest));
        }
        let slots = start.iter_mut().zip(scales.iter_mut()).zip(bias.iter_mut()).zip(sums);
        for (column, (((start, scale), bias), sum)) in slots.enumerate() {
            let channel = channel(column);
            let own = self.from.scale * scales_given.get(channel).copied().unwrap_or(0.0);
            let given = bias_given.get(channel).copied().unwrap_or(0.0);
            *scale = own / self.scale;
            let (units, rest) = in_units(given, own);
            *start = units.wrapping_sub(zero.wrapping_mul(*sum));
            *bias = rest / self.scale;
        }
        Ok((Requantize { start, scales, bias, range: self.range, exact: None }, rest))
    }
}

/// Whether a call states exact scales of `count` channels: constants of two rows, whose sums are
/// factors of [`Exact`].
fn is_exact(builder: &Builder<'_, '_>, scales: ValueId, count: usize) -> Result<bool, Refusal> {
    if builder.sizes(scales)? != [2, count] {
        return Ok(false);
    }
    let values = builder.plain_numbers(scales).ok_or("exact scales that are no constants")?;
    let (high, low) = values.split_at_checked(count).ok_or("scales with less data")?;
    let sums = high.iter().zip(low).map(|(high, low)| f64::from(*high) + f64::from(*low));
    match sums.into_iter().all(|scale| Exact::factor(scale).is_some()) {
        true => Ok(true),
        false => Err("exact scales of more than 31 bits, or not from 2^-32 to 2^30".to_owned()),
    }
}

/// Lowers `q8ta_linear(x, scale, zero, weights, sums, scales, scale, zero, bias, activation)`.
pub(super) fn linear(builder: &mut Builder<'_, '_>, args: &[ValueId]) -> Result<(), Refusal> {
    let call = Q8taLinearArgs::of(args)?;
    let input = builder.codes(call.input)?;
    let weights = call.weights;
    let [n, k] = *builder.sizes(weights)? else {
        return Err("weights: expected 2 dims".to_owned());
    };
    if !builder.is_constant(weights) || builder.element(weights)? != Element::Code {
        return Err("weights other than int8 constants".to_owned());
    }
    if k == 0 || input.sizes.last() != Some(&k) {
        return Err(std::format!(
            "input shape {:?} does not match weights of {n} rows and {k} columns",
            input.sizes
        ));
    }
    let rows = input.numel() / k;
    let parameters =
        [[call.input_scale, call.input_zero_point], [call.output_scale, call.output_zero_point]];
    let rest = [call.bias, call.activation];
    let (columns, reads) = Columns::of(builder, parameters, call.weight_scales, rest, n)?;
    let input = builder.contiguous(&input)?;
    let mut sizes = input.sizes.clone();
    if let Some(last) = sizes.last_mut() {
        *last = n;
    }
    let order: Vec<usize> = (0..sizes.len()).collect();
    let out = builder.make_of_in_order(&sizes, &order, Element::Code)?;
    if !builder.is_question() {
        let shape = [k, n];
        let packed = matmul_weights(builder, weights, shape)?;
        let reads: Vec<&View> = core::iter::once(&input).chain(&reads).collect();
        let (source, at, blocks) = (Source::Rows, input.offset, 1);
        builder.push(Matmul { rows, source, at, shape, blocks, packed, columns }, &reads, &out);
    }
    builder.define(call.out, out)
}

/// Packs weights `[n, k]` for matrix multiplication.
pub(super) fn matmul_weights<'p>(
    builder: &mut Builder<'_, 'p>,
    id: ValueId,
    [k, n]: [usize; 2],
) -> Result<Constant<'p>, Refusal> {
    let len = pack::packed_len([k, n]).ok_or("weights that exceed the address space")?;
    builder.packed_bytes(id, Form::Int8Matmul { k, n }, len, |_, data, packed| {
        let weight =
            |row: usize, col: usize| data.get(col * k + row).map(|value| value.cast_signed());
        pack::pack([k, n], weight, packed)
            .ok_or_else(|| "weights with less data than their shape requires".to_owned())
    })
}

/// Layout of the left operand of a GEMM.
enum Source {
    Rows,
    /// im2col windows of images, and the padding value.
    Windows(Windows, i8),
}

/// Step of an int8 GEMM, or of several for adjacent blocks of input and output channels.
struct Matmul<'p> {
    rows: usize,
    source: Source,
    /// Offset of the input in its buffer.
    at: usize,
    /// Shape `[k, n]` of a block, and number of blocks.
    shape: [usize; 2],
    blocks: usize,
    /// Weights of all blocks.
    packed: Constant<'p>,
    columns: Columns,
}

impl Matmul<'_> {
    fn left<'a>(&'a self, quantized: &'a [i8]) -> Left<'a> {
        match &self.source {
            Source::Rows => Left::Rows(quantized, self.shape[0]),
            Source::Windows(windows, outside) => Left::Windows(quantized, windows, *outside),
        }
    }
}

impl Step for Matmul<'_> {
    fn workspace(&self, tier: Tier, threads: usize) -> usize {
        let columns = pack::padded(self.shape[1]).saturating_mul(self.blocks);
        let columns = self.columns.words(columns);
        let (left, dots) = (self.left(&[]), Dots::of(tier));
        columns.saturating_add(workspace_len(threads, self.rows, self.shape, &left, dots))
    }

    fn run(&self, io: Io<'_>) -> Result<(), ShapeMismatch> {
        let Io { inputs, out, workspace, context } = io;
        let quantized: &[i8] = bytemuck::cast_slice(inputs[0]);
        let offset = Dots::of(context.tier).offset();
        let out: &mut [i8] = bytemuck::cast_slice_mut(out);
        let [_, n] = self.shape;
        let packed = pack::Packed::of_blocks(self.shape, self.blocks, self.packed.as_slice());
        let packed = packed.ok_or(ShapeMismatch)?;
        let quantized = quantized.get(self.at..).ok_or(ShapeMismatch)?;
        // In packed columns, each block starts a panel.
        let channel = |column: usize| column / pack::padded(n) * n + column % pack::padded(n);
        let (columns, rest) =
            self.columns.fill(&inputs, packed.sums, offset, channel, workspace)?;
        gemm(context, self.rows, self.left(quantized), packed, &columns, out, rest)
    }
}

/// Returns the view itself if it is dense, else a contiguous copy.
fn dense(builder: &mut Builder<'_, '_>, view: &View) -> Result<View, Refusal> {
    if view.is_dense() { Ok(view.clone()) } else { builder.contiguous(view) }
}

/// Lowers `quantize_per_tensor(input, scale, zero, low, high, type)`.
pub(super) fn quantize(builder: &mut Builder<'_, '_>, args: &[ValueId]) -> Result<(), Refusal> {
    let call = QuantizePerTensorArgs::of(args)?;
    let input = as_stored(builder, call.input)?;
    let to = scaled(builder, [call.scale, call.zero_point])?;
    let limit = |id| {
        let limit = builder.integer(id)?;
        i8::try_from(limit)
            .map_err(|_| std::format!("quant_min or quant_max of {limit}; expected -128 to 127"))
    };
    let range = Range { zero: to.zero, low: limit(call.quant_min)?, high: limit(call.quant_max)? };
    if range.low > range.high {
        return Err(std::format!(
            "expected quant_min <= quant_max, found {} and {}",
            range.low,
            range.high
        ));
    }
    let input = dense(builder, &input)?;
    let out = builder.make_of_in_order(&input.sizes, &input.order(), Element::Code)?;
    let (at, scale) = (input.offset, to.scale);
    builder.push(Elementwise::Quantize { at, scale, range }, &[&input], &out);
    builder.define(call.out, out)
}

/// Lowers `dequantize_per_tensor(input, scale, zero, low, high, type, output type)`.
pub(super) fn dequantize(builder: &mut Builder<'_, '_>, args: &[ValueId]) -> Result<(), Refusal> {
    let call = DequantizePerTensorArgs::of(args)?;
    let input = builder.codes(call.input)?;
    let from = scaled(builder, [call.scale, call.zero_point])?;
    let input = dense(builder, &input)?;
    let out = builder.make_in_order(&input.sizes, &input.order())?;
    builder.push(Dequantize { at: input.offset, from, moved: None }, &[&input], &out);
    builder.define(call.out, out)
}

/// Step that dequantizes int8 values.
struct Dequantize {
    /// Offset of the int8 values in their buffer.
    at: usize,
    from: Scaled,
    /// Copy to the memory order of the output, and its number of elements. It precedes
    /// dequantization, because bytes are cheaper to move than floats.
    moved: Option<(Copy, usize)>,
}

impl Step for Dequantize {
    fn workspace(&self, _: Tier, _: usize) -> usize {
        self.moved.as_ref().map_or(0, |(_, count)| count.div_ceil(4))
    }

    fn move_results(&mut self, copy: &Copy) -> bool {
        self.moved = Some((copy.clone(), copy.numel()));
        true
    }

    fn run(&self, io: Io<'_>) -> Result<(), ShapeMismatch> {
        let mut quantized = int8_from(io.inputs[0], self.at)?;
        if let Some((copy, count)) = &self.moved {
            let reordered: &mut [i8] = bytemuck::cast_slice_mut(io.workspace);
            let reordered = reordered.get_mut(..*count).ok_or(ShapeMismatch)?;
            copy.copy_together(io.context, quantized, reordered).ok_or(ShapeMismatch)?;
            quantized = reordered;
        }
        elementwise::dequantize(io.context, quantized, self.from, io.out);
        Ok(())
    }
}

/// Lowers `q8ta_lookup(input, table)`.
pub(super) fn lookup(builder: &mut Builder<'_, '_>, args: &[ValueId]) -> Result<(), Refusal> {
    let call = LookupArgs::of(args)?;
    let (input, table) = (builder.codes(call.input)?, builder.codes(call.lut)?);
    let table = builder.contiguous(&table)?;
    if table.sizes != [elementwise::TABLE_LEN] {
        return Err(std::format!(
            "lookup table: expected 256 elements, found shape {:?}",
            table.sizes
        ));
    }
    let input = dense(builder, &input)?;
    let out = builder.make_of_in_order(&input.sizes, &input.order(), Element::Code)?;
    let at = [input.offset, table.offset];
    builder.push(Elementwise::Lookup { at }, &[&input, &table], &out);
    builder.define(call.out, out)
}

/// Lowers `q8ta_add(a, b, scale, zero, scale, zero, scale, zero, alpha)`.
pub(super) fn add(builder: &mut Builder<'_, '_>, args: &[ValueId]) -> Result<(), Refusal> {
    let alpha = builder.number(Q8taAddArgs::of(args)?.alpha)? as f32;
    let of_two = |at, from, scale, range| Elementwise::Add { at, from, alpha, scale, range };
    affine(builder, args, of_two)
}

/// Lowers `q8ta_mul(a, b, scale, zero, scale, zero, scale, zero)`.
pub(super) fn mul(builder: &mut Builder<'_, '_>, args: &[ValueId]) -> Result<(), Refusal> {
    affine(builder, args, |at, from, scale, range| Elementwise::Mul { at, from, scale, range })
}

/// Lowers `rescaled_arithmetic(a, b, tables, operation, scale, zero)`.
pub(super) fn rescaled(builder: &mut Builder<'_, '_>, args: &[ValueId]) -> Result<(), Refusal> {
    let call = RescaledArithmeticArgs::of(args)?;
    let operation = match builder.integer(call.operation)? {
        0 => Operation::Add,
        1 => Operation::Subtract,
        2 => Operation::Multiply,
        other => return Err(std::format!("operation {other}; expected 0 to 2")),
    };
    let scale = builder.number(call.scale)?;
    let factor = Exact::factor(scale);
    let factor = factor.ok_or_else(|| std::format!("a scale of {scale} that is not exact"))?;
    let zero = i32::from(int8_zero_point(
        i32::try_from(builder.integer(call.zero_point)?)
            .map_err(|_| "a zero point out of range")?,
    )?);
    let tables = builder.codes(call.tables)?;
    let tables = builder.contiguous(&tables)?;
    if tables.sizes != [2 * 4 * TABLE_LEN] {
        return Err(std::format!("tables: expected 2048 bytes, found shape {:?}", tables.sizes));
    }
    let range = range(builder, zero, None)?;
    let table = tables.offset;
    let of_two =
        |[a, b]: [usize; 2]| Elementwise::Rescaled { at: [a, b, table], operation, factor, range };
    binary(builder, [call.a, call.b, call.out], &[&tables], of_two)
}

/// Lowers a binary call `a, b, scale, zero, scale, zero, scale, zero`; the last pair belongs to the
/// result.
fn affine(
    builder: &mut Builder<'_, '_>,
    args: &[ValueId],
    of_two: impl FnOnce([usize; 2], [Scaled; 2], f32, Range) -> Elementwise,
) -> Result<(), Refusal> {
    let [a, b, a_scale, a_zero, b_scale, b_zero, scale, zero, .., out] = args[..] else {
        return Err(std::format!(
            "expected two inputs and three pairs of scale and zero point, found {} arguments",
            args.len()
        ));
    };
    let from = [scaled(builder, [a_scale, a_zero])?, scaled(builder, [b_scale, b_zero])?];
    let to = scaled(builder, [scale, zero])?;
    let range = range(builder, to.zero, None)?;
    binary(builder, [a, b, out], &[], |at| of_two(at, from, to.scale, range))
}

/// Lowers an element-wise call of two int8 operands, `[a, b, out]`, that also reads `others`.
fn binary(
    builder: &mut Builder<'_, '_>,
    [a, b, out]: [ValueId; 3],
    others: &[&View],
    of_two: impl FnOnce([usize; 2]) -> Elementwise,
) -> Result<(), Refusal> {
    let (a, b) = (builder.codes(a)?, builder.codes(b)?);
    // At most one of the operands may be broadcast.
    let refusal = "two operands that both broadcast";
    let [a, b] = match b.expanded(&a.sizes) {
        Some(b) => [dense(builder, &a)?, b],
        None => [a.expanded(&b.sizes).ok_or(refusal)?, dense(builder, &b)?],
    };
    let strides = if a.is_dense() { a.strides.clone() } else { b.strides.clone() };
    let a = builder.in_strides(&a, &strides)?;
    let b = builder.in_strides(&b, &strides)?;
    let result = builder.make_of_in_order(&a.sizes, &a.order(), Element::Code)?;
    let reads: Vec<&View> = [&a, &b].into_iter().chain(others.iter().copied()).collect();
    builder.push(of_two([a.offset, b.offset]), &reads, &result);
    builder.define(out, result)
}

/// Lowers `q8ta_relu(input, scale, zero, scale, zero)`.
pub(super) fn relu(builder: &mut Builder<'_, '_>, args: &[ValueId]) -> Result<(), Refusal> {
    let call = Q8taReluArgs::of(args)?;
    let input = builder.codes(call.input)?;
    let from = scaled(builder, [call.input_scale, call.input_zero_point])?;
    let to = scaled(builder, [call.output_scale, call.output_zero_point])?;
    let range = Range { zero: to.zero, low: int8_zero_point(to.zero)?, high: i8::MAX };
    let input = dense(builder, &input)?;
    let out = builder.make_of_in_order(&input.sizes, &input.order(), Element::Code)?;
    let (at, scale) = (input.offset, to.scale);
    builder.push(Elementwise::Requantize { at, from, scale, range }, &[&input], &out);
    builder.define(call.out, out)
}

/// Steps of element-wise int8 operators, with the offsets of the operands in their buffers.
enum Elementwise {
    Quantize { at: usize, scale: f32, range: Range },
    Lookup { at: [usize; 2] },
    Requantize { at: usize, from: Scaled, scale: f32, range: Range },
    Add { at: [usize; 2], from: [Scaled; 2], alpha: f32, scale: f32, range: Range },
    Mul { at: [usize; 2], from: [Scaled; 2], scale: f32, range: Range },
    Rescaled { at: [usize; 3], operation: Operation, factor: (i32, i32), range: Range },
}

impl Step for Elementwise {
    fn run(&self, io: Io<'_>) -> Result<(), ShapeMismatch> {
        let Io { inputs: [first, second, third, ..], out, context, .. } = io;
        match *self {
            Elementwise::Quantize { at, scale, range } => {
                let values = first.get(at..).ok_or(ShapeMismatch)?;
                let out = bytemuck::cast_slice_mut(out);
                elementwise::quantize(context, values, scale, range, out);
            }
            Elementwise::Lookup { at: [quantized, table] } => {
                let table = int8_from(second, table)?.first_chunk().ok_or(ShapeMismatch)?;
                let out = bytemuck::cast_slice_mut(out);
                elementwise::lookup(context, int8_from(first, quantized)?, table, out);
            }
            Elementwise::Requantize { at, from, scale, range } => {
                let out = bytemuck::cast_slice_mut(out);
                let quantized = int8_from(first, at)?;
                elementwise::requantize(context, quantized, from, scale, range, out);
            }
            Elementwise::Add { at, from, alpha, scale, range } => {
                let operands =
                    [(int8_from(first, at[0])?, from[0]), (int8_from(second, at[1])?, from[1])];
                let out = bytemuck::cast_slice_mut(out);
                elementwise::add(context, operands, alpha, scale, range, out);
            }
            Elementwise::Mul { at, from, scale, range } => {
                let operands =
                    [(int8_from(first, at[0])?, from[0]), (int8_from(second, at[1])?, from[1])];
                let out = bytemuck::cast_slice_mut(out);
                elementwise::mul(context, operands, scale, range, out);
            }
            Elementwise::Rescaled { at, operation, factor, range } => {
                let operands = [int8_from(first, at[0])?, int8_from(second, at[1])?];
                let (words, _) = int8_from(third, at[2])?.as_chunks::<4>();
                let mut tables = [[0; TABLE_LEN]; 2];
                for (value, bytes) in tables.iter_mut().flatten().zip(words) {
                    *value = i32::from_le_bytes(bytes.map(i8::cast_unsigned));
                }
                let out = bytemuck::cast_slice_mut(out);
                elementwise::rescaled(context, operands, &tables, operation, factor, range, out);
            }
        }
        Ok(())
    }
}

/// Returns the int8 values of a buffer from an offset on.
fn int8_from(words: &[f32], at: usize) -> Result<&[i8], ShapeMismatch> {
    bytemuck::cast_slice(words).get(at..).ok_or(ShapeMismatch)
}

/// Lowers int8 max pooling: `max_pool2d_with_indices(self, kernel_size, stride, padding,
/// dilation, ceil_mode)`.
pub(super) fn max_pool(
    builder: &mut Builder<'_, '_>,
    call: &MaxPoolArgs,
    ceil: bool,
    out: ValueId,
) -> Result<(), Refusal> {
    let input = builder.codes(call.input)?;
    let kernel = builder.integers(call.kernel_size)?;
    let list = |id: Option<ValueId>| builder.integers(id);
    let [stride, padding] = [list(call.stride)?, list(call.padding)?];
    let axes = windows(2, &kernel, &stride, &padding, &list(call.dilation)?);
    let axes = axes.ok_or("kernel_size, stride, padding or dilation that is out of range")?;
    let sizes: Result<Vec<i32>, _> = input.sizes.iter().map(|size| i32::try_from(*size)).collect();
    let sizes = pooling(&sizes.map_err(|_| "an input with a size above 2^31 - 1")?, &axes, ceil);
    let sizes = sizes.ok_or("an input that is smaller than the kernel")?;
    let sizes: Vec<usize> = sizes.iter().map(|size| usize::try_from(*size).unwrap_or(0)).collect();
    let axes = <[Window; 2]>::try_from(&axes[..]).map_err(|_| "kernel_size: expected 2 values")?;
    let (&[_, channels, height, width], &[_, _, tall, wide]) = (&input.sizes[..], &sizes[..])
    else {
        return Err("pooling of an input without 4 dims".to_owned());
    };
    let input = channels_last(builder, &input)?;
    let result = builder.make_of_in_order(&sizes, &channels_last_order(4), Element::Code)?;
    let (input_size, output, first) = ([height, width, channels], [tall, wide], [0; 2]);
    let windows = Windows { input: input_size, pixel: channels, output, axes, first };
    let len = result.numel();
    builder.push(MaxPool { at: input.offset, windows, len }, &[&input], &result);
    builder.define(out, result)
}

struct MaxPool {
    /// Offset of the input in its buffer.
    at: usize,
    windows: Windows,
    /// Number of output values.
    len: usize,
}

impl Step for MaxPool {
    fn run(&self, io: Io<'_>) -> Result<(), ShapeMismatch> {
        let quantized = int8_from(io.inputs[0], self.at)?;
        let out: &mut [i8] = bytemuck::cast_slice_mut(io.out);
        let out = out.get_mut(..self.len).ok_or(ShapeMismatch)?;
        elementwise::max_pool(io.context, &self.windows, quantized, out).ok_or(ShapeMismatch)
    }
}
