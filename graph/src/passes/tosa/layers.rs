//! Layers and arithmetic whose results are rescaled to int8.

use super::floats::{is_small, magnitude, rounding};
use super::{Rescale, Takes, constant, constant_tensor, floats, lookup, symmetric_padding};
use crate::graph::{Node, Tensor, Value, ValueId};
use crate::operators::{
    AddArgs, Operator, Q8taAddArgs, Q8taConv2dArgs, Q8taLinearArgs, Q8taMulArgs,
    RescaledArithmeticArgs, SumArgs, TosaAvgPool2dArgs, TosaConvArgs,
};
use crate::passes::constant::{decode, encode};
use crate::passes::rewrite::Rewriter;
use crate::passes::uses::inputs;
use crate::passes::views::view_into;
use alloc::borrow::Cow;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use torchlet_core::ScalarType;

/// Permutations between channels-last and channels-first images.
const CHANNELS_FIRST: [usize; 4] = [0, 3, 1, 2];
const CHANNELS_LAST: [usize; 4] = [0, 2, 3, 1];

/// Replaces the call that computes the input of a rescaling to int8.
pub(super) fn rescaled(
    rewriter: &mut Rewriter<'_, '_>,
    rescale: &Rescale,
    out: ValueId,
    takes: Takes<'_>,
) -> Option<()> {
    // Sums have no zero point.
    if rescale.input_zp != 0 || !rescale.is_signed() || rewriter.uses(rescale.input) != 1 {
        return None;
    }
    let node = rewriter.producer(rescale.input)?.clone();
    match node.operator {
        Operator::TOSA_CONV2D | Operator::TOSA_DEPTHWISE_CONV2D => {
            convolution(rewriter, rescale, &node, out, takes)
        }
        Operator::ADD_TENSOR | Operator::SUB_TENSOR | Operator::MUL_TENSOR => {
            arithmetic(rewriter, rescale, &node, out, takes)
        }
        Operator::SUM_DIM_INT_LIST => reduction(rewriter, rescale, out, takes),
        _ => None,
    }
}

pub(super) fn double(rewriter: &mut Rewriter<'_, '_>, value: f64) -> ValueId {
    rewriter.value(Value::Double(value))
}

pub(super) fn int(rewriter: &mut Rewriter<'_, '_>, value: i64) -> ValueId {
    rewriter.value(Value::Int(value))
}

fn ints(rewriter: &mut Rewriter<'_, '_>, items: &[i64]) -> ValueId {
    rewriter.value(Value::IntList(items.to_vec()))
}

/// Whether int8 operators have this zero point.
pub(super) fn is_int8(zero_point: i64) -> bool {
    i8::try_from(zero_point).is_ok()
}

/// An int8 layer in the layout of int8 operators: its input and output are permuted, or viewed as
/// rows.
struct Layer {
    operator: Operator,
    args: Vec<ValueId>,
    /// The input in that layout, which is also the first argument.
    input: ValueId,
    /// The output in that layout.
    made: ValueId,
}

impl Layer {
    /// Adds the layer between channels-last images, if a processor supports it.
    fn add(
        self,
        rewriter: &mut Rewriter<'_, '_>,
        [input, out]: [ValueId; 2],
        takes: Takes<'_>,
    ) -> Option<()> {
        let Layer { operator, args, input: moved, made } = self;
        // The moved input exists only if the call is possible.
        if !rewriter.is_taken(operator, &args, made, takes) {
            return None;
        }
        move_into(rewriter, input, CHANNELS_FIRST, moved)?;
        rewriter.call(operator, &args, made);
        move_into(rewriter, made, CHANNELS_LAST, out)
    }
}

/// Produces `out` from an image: permuted, or viewed if one of them is no image.
fn move_into(
    rewriter: &mut Rewriter<'_, '_>,
    image: ValueId,
    order: [usize; 4],
    out: ValueId,
) -> Option<()> {
    if rewriter.sizes(image)?.len() != 4 || rewriter.sizes(out)?.len() != 4 {
        return view_into(rewriter, image, out);
    }
    let order = ints(rewriter, &order.map(|dim| dim as i64));
    rewriter.call(Operator::PERMUTE_COPY, &[image, order], out);
    Some(())
}

/// A convolution, as the channels-first int8 operator, or as a linear layer on a single pixel.
fn convolution(
    rewriter: &mut Rewriter<'_, '_>,
    rescale: &Rescale,
    node: &Node,
    out: ValueId,
    takes: Takes<'_>,
) -> Option<()> {
    let call = TosaConvArgs::of(node).ok()?;
    let input_zero = rewriter.int(call.input_zp)?;
    let is_char = rewriter.scalar_type(call.input)? == ScalarType::Char;
    if !is_char || rewriter.int(call.weight_zp)? != 0 {
        return None;
    }
    let (&[batch, height, width, depth], &[_, tall, wide, channels]) =
        (rewriter.sizes(call.input)?, rewriter.sizes(call.out)?)
    else {
        return None;
    };
    let depthwise = node.operator == Operator::TOSA_DEPTHWISE_CONV2D;
    let (weight, _) = rewriter.constant(call.weight)?;
    let mut weight = weight.clone();
    let depthwise = match weight.sizes[..] {
        // With one input channel, the convolution is not depthwise.
        [y, x, 1, outputs] if depthwise && outputs > 1 => {
            weight = by_output(weight, outputs)?;
            weight.sizes = vec![outputs, y, x, 1];
            false
        }
        _ => depthwise,
    };
    let (kernel, sizes, groups) = match (depthwise, &weight.sizes[..]) {
        (true, &[y, x, _, 1]) => ([y, x], vec![y, x, depth], depth),
        (false, &[outputs, y, x, inputs]) => {
            ([y, x], vec![outputs, y.saturating_mul(x).saturating_mul(inputs)], 1)
        }
        _ => return None,
    };
    let factors = rescale.factors();
    let factor = |channel: usize| match factors[..] {
        [factor] => Some(factor),
        _ => factors.get(channel).copied(),
    };
    let scales: Vec<f64> = (0..channels).filter_map(factor).collect();
    if scales.len() != channels {
        return None;
    }
    let (bias, data) = rewriter.constant(call.bias)?;
    if bias.scalar_type != ScalarType::Int || bias.sizes != [channels] {
        return None;
    }
    let bias: Vec<f64> = decode(ScalarType::Int, data)?.collect();
    let [stride, dilation, pad] =
        [call.stride, call.dilation, call.padding].map(|id| rewriter.ints(id));
    let (&[sy, sx], &[dy, dx], &[top, bottom, left, right]) =
        (&stride?[..], &dilation?[..], &pad?[..])
    else {
        return None;
    };
    let pad = [
        symmetric_padding(height, kernel[0], [top, bottom], [sy, dy])?,
        symmetric_padding(width, kernel[1], [left, right], [sx, dx])?,
    ];
    let is_pixel = [height, width, tall, wide, kernel[0], kernel[1]] == [1; 6] && pad == [0, 0];
    let kind = match (depthwise, is_pixel) {
        (true, _) => Kind::Depthwise,
        (false, true) => Kind::Linear,
        (false, false) => Kind::Convolution,
    };
    let (input, made) = match kind {
        Kind::Linear => (vec![batch, depth], vec![batch, channels]),
        _ => (vec![batch, depth, height, width], vec![batch, channels, tall, wide]),
    };
    let weights = Tensor { sizes, ..weight };
    let zero = input_zero;
    let is_exact = rescale.is_one_shift();
    let sums = Sums { kind, weights, kernel, groups, pad, scales, bias, zero, is_exact };
    let steps = [call.stride, call.dilation];
    sums.add(rewriter, rescale.output_zp, [(call.input, input), (out, made)], steps, takes)
}

/// Int8 weights with the output channel as the first dim instead of the last.
fn by_output(weight: Tensor<'_>, outputs: usize) -> Option<Tensor<'_>> {
    let data = weight.data.as_deref().filter(|data| data.len().is_multiple_of(outputs))?;
    let taps = |output| data.iter().skip(output).step_by(outputs).copied();
    let data = (0..outputs).flat_map(taps).collect();
    Some(Tensor { data: Some(Cow::Owned(data)), ..weight })
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Linear,
    Convolution,
    Depthwise,
}

/// Sums of products of int8 values and int8 weights.
#[derive(Clone)]
struct Sums<'p> {
    kind: Kind,
    weights: Tensor<'p>,
    kernel: [usize; 2],
    groups: usize,
    /// Symmetric padding.
    pad: [i64; 2],
    /// Scale of each output channel, and bias in units of the sums.
    scales: Vec<f64>,
    bias: Vec<f64>,
    /// Zero point of the input.
    zero: i64,
    /// Whether TOSA's result is that of the scales, rounded once, ties up.
    is_exact: bool,
}

impl<'p> Sums<'p> {
    /// Adds the layer that rescales the sums, between an input and an output, each with its sizes
    /// in the layout of int8 operators. `steps` are stride and dilation. The layer is exact if it
    /// can be and the processor supports it.
    fn add(
        self,
        rewriter: &mut Rewriter<'_, 'p>,
        output_zero: i64,
        ends: [(ValueId, Vec<usize>); 2],
        steps: [ValueId; 2],
        takes: Takes<'_>,
    ) -> Option<()> {
        let exactly = self.add_exactly(rewriter, output_zero, ends.clone(), steps, takes);
        if exactly.is_some() {
            return exactly;
        }
        let scaled = self.bias.iter().zip(&self.scales).map(|(bias, scale)| bias * scale);
        let parameters = [vec![self.scales.clone()], vec![scaled.collect()]];
        self.add_with(rewriter, output_zero, ends, steps, parameters, takes)
    }

    /// Adds the layer if it can be exact and the processor supports that.
    fn add_exactly(
        &self,
        rewriter: &mut Rewriter<'_, 'p>,
        output_zero: i64,
        ends: [(ValueId, Vec<usize>); 2],
        steps: [ValueId; 2],
        takes: Takes<'_>,
    ) -> Option<()> {
        let parameters = self.exact_parameters()?;
        self.clone().add_with(rewriter, output_zero, ends, steps, parameters, takes)
    }

    /// Scales and biases in two rows each, whose sums are the exact values.
    fn exact_parameters(&self) -> Option<[Vec<Vec<f64>>; 2]> {
        if !self.is_exact {
            return None;
        }
        let rows = |values: &[f64]| {
            let high: Vec<f64> = values.iter().map(|value| f64::from(*value as f32)).collect();
            let low: Vec<f64> = values.iter().zip(&high).map(|(all, high)| all - high).collect();
            let is_exact = low.iter().all(|low| f64::from(*low as f32) == *low);
            is_exact.then(|| vec![high, low])
        };
        Some([rows(&self.scales)?, rows(&self.bias)?])
    }

    /// Adds the layer with these rows of scales and biases.
    fn add_with(
        self,
        rewriter: &mut Rewriter<'_, 'p>,
        output_zero: i64,
        [(source, input), (out, made)]: [(ValueId, Vec<usize>); 2],
        [stride, dilation]: [ValueId; 2],
        parameters: [Vec<Vec<f64>>; 2],
        takes: Takes<'_>,
    ) -> Option<()> {
        let is_scale = |scale: &f64| (*scale as f32).is_normal() && *scale > 0.0;
        let are_int8 = is_int8(self.zero) && is_int8(output_zero);
        if !are_int8 || !self.scales.iter().all(is_scale) {
            return None;
        }
        let mut rows = |rows: Vec<Vec<f64>>| {
            let data = encode(ScalarType::Float, &rows.concat())?;
            let mut tensor = constant_tensor(ScalarType::Float, data);
            if rows.len() > 1 {
                tensor.sizes = vec![rows.len(), self.scales.len()];
            }
            Some(rewriter.value(Value::Tensor(tensor)))
        };
        let [scales, bias] = parameters;
        let (weight_scales, bias) = (rows(scales)?, rows(bias)?);
        let weights = rewriter.value(Value::Tensor(self.weights));
        let (input_scale, output_scale) = (double(rewriter, 1.0), double(rewriter, 1.0));
        let input_zero_point = int(rewriter, self.zero);
        let output_zero_point = int(rewriter, output_zero);
        // The sums can be computed from the weights.
        let weight_sums = rewriter.value(Value::None);
        let activation = Some(rewriter.value(Value::String(String::from("none"))));
        let input = rewriter.new_tensor(ScalarType::Char, input);
        let made = rewriter.new_tensor(ScalarType::Char, made);
        let convolution = match self.kind {
            Kind::Linear => {
                let linear = Q8taLinearArgs {
                    input,
                    input_scale,
                    input_zero_point,
                    weights,
                    weight_sums,
                    weight_scales,
                    output_scale,
                    output_zero_point,
                    bias: Some(bias),
                    activation,
                    out: made,
                };
                let (operator, args) = (Operator::ET_VK_Q8TA_LINEAR, linear.inputs());
                return Layer { operator, args, input, made }.add(rewriter, [source, out], takes);
            }
            Kind::Convolution => Operator::ET_VK_Q8TA_CONV2D,
            Kind::Depthwise => Operator::ET_VK_Q8TA_CONV2D_DW,
        };
        let call = Q8taConv2dArgs {
            input,
            input_scale,
            input_zero_point,
            weights,
            weight_sums,
            weight_scales,
            output_scale,
            output_zero_point,
            bias,
            kernel_size: ints(rewriter, &self.kernel.map(|size| size as i64)),
            stride,
            padding: ints(rewriter, &self.pad),
            dilation,
            groups: int(rewriter, self.groups as i64),
            activation,
            out: made,
        };
        let layer = Layer { operator: convolution, args: call.inputs(), input, made };
        layer.add(rewriter, [source, out], takes)
    }
}

/// Limit on the weights of a mean, which are ones.
const MAX_ONES: usize = 1 << 20;

/// A sum of an int8 tensor over image dims or over the last dim, as a layer whose weights are ones.
fn reduction(
    rewriter: &mut Rewriter<'_, '_>,
    rescale: &Rescale,
    out: ValueId,
    takes: Takes<'_>,
) -> Option<()> {
    let (mut id, mut dims) = (rescale.input, Vec::new());
    while let Some(node) =
        rewriter.producer(id).filter(|node| node.operator == Operator::SUM_DIM_INT_LIST)
    {
        let call = SumArgs::of(node).ok()?;
        if !rewriter.flag(call.keepdim.as_ref(), false)? || rewriter.uses(id) != 1 {
            return None;
        }
        dims.extend_from_slice(&rewriter.ints(call.dim)?);
        id = call.input;
    }
    let (source, zero, factor) = operand(rewriter, id)?;
    let sizes = rewriter.sizes(source)?.to_vec();
    let (last, rest) = sizes.split_last()?;
    let (kind, kernel, input, made) = match (&sizes[..], &dims[..]) {
        (_, [dim]) if usize::try_from(*dim).ok()? == rest.len() => {
            let rows = rest.iter().try_fold(1usize, |rows, size| rows.checked_mul(*size))?;
            (Kind::Linear, [1, 1], vec![rows, *last], vec![rows, 1])
        }
        (&[batch, height, width, depth], dims) if dims.iter().all(|dim| [1, 2].contains(dim)) => {
            let size = |dim: i64, size: usize| if dims.contains(&dim) { size } else { 1 };
            let kernel = [size(1, height), size(2, width)];
            let made = vec![batch, depth, height / kernel[0].max(1), width / kernel[1].max(1)];
            (Kind::Depthwise, kernel, vec![batch, depth, height, width], made)
        }
        _ => return None,
    };
    let (channels, groups, sizes) = match kind {
        Kind::Linear => (1, 1, vec![1, *last]),
        _ => (*last, *last, vec![kernel[0], kernel[1], *last]),
    };
    let numel = sizes.iter().try_fold(1usize, |numel, size| numel.checked_mul(*size));
    let ones = vec![1; numel.filter(|numel| *numel <= MAX_ONES)?];
    // The layer sums before it scales; the integers are rounded before they are summed.
    let count = if kind == Kind::Linear { *last } else { kernel[0].saturating_mul(kernel[1]) };
    if !is_small(rounding(factor) * count as f64, rescale.factor()?) {
        return None;
    }
    let scale = factor * rescale.factor()?;
    let sums = Sums {
        kind,
        weights: Tensor { sizes, ..constant_tensor(ScalarType::Char, ones) },
        kernel,
        groups,
        pad: [0, 0],
        scales: vec![scale; channels],
        bias: vec![0.0; channels],
        zero,
        // Integers that are multiples of a power of two are summed and rescaled without rounding.
        is_exact: rescale.is_one_shift() && factor >= 1.0 && factor.to_bits() << 12 == 0,
    };
    let one = ints(rewriter, &[1, 1]);
    sums.add(rewriter, rescale.output_zp, [(source, input), (out, made)], [one, one], takes)
}

/// An int8 tensor that is rescaled to int32: its zero point and its factor.
pub(super) fn operand(rewriter: &Rewriter<'_, '_>, id: ValueId) -> Option<(ValueId, i64, f64)> {
    let rescale = Rescale::producer(rewriter, id)?;
    let is_char = rewriter.scalar_type(rescale.input)? == ScalarType::Char;
    let is_plain = is_char && rescale.is_signed() && rescale.output_zp == 0;
    let factor = rescale.factor().filter(|_| is_plain && is_int8(rescale.input_zp))?;
    Some((rescale.input, rescale.input_zp, factor))
}

/// The int32 value of an operand that is a constant of one element.
fn known(rewriter: &Rewriter<'_, '_>, id: ValueId) -> Option<i64> {
    let only = |id: ValueId, of: ScalarType| {
        let (tensor, data) = rewriter.constant(id).filter(|it| it.0.scalar_type == of)?;
        let mut values = decode(tensor.scalar_type, data)?;
        values.next().filter(|_| values.next().is_none()).map(|value| value as i64)
    };
    match Rescale::producer(rewriter, id).filter(Rescale::is_signed) {
        Some(rescale) => rescale.scaled(only(rescale.input, ScalarType::Char)?),
        None => only(id, ScalarType::Int),
    }
}

/// If one operand of a sum, difference or product has a known value: the int8 tensor of the other
/// operand, and the exact results for its values.
fn function_of_one(
    rewriter: &Rewriter<'_, '_>,
    rescale: &Rescale,
    node: &Node,
    out: ValueId,
) -> Option<(ValueId, Vec<u8>)> {
    let &[first, second, ref rest @ ..] = inputs(node) else { return None };
    let values = [known(rewriter, first), known(rewriter, second)];
    let variable = match values {
        [None, Some(_)] => first,
        [Some(_), None] => second,
        _ => return None,
    };
    let from = Rescale::producer(rewriter, variable).filter(Rescale::is_signed)?;
    let is_char = rewriter.scalar_type(from.input)? == ScalarType::Char;
    let is_plain = rest.iter().all(|alpha| rewriter.number(*alpha) == Some(1.0));
    if !is_char || !is_plain || rewriter.sizes(from.input) != rewriter.sizes(out) {
        return None;
    }
    let result = |value: i64| {
        let value = i64::from(i32::try_from(from.scaled(value)?).ok()?);
        let [first, second] = values.map(|known| known.unwrap_or(value));
        let result = match node.operator {
            Operator::ADD_TENSOR => first.checked_add(second)?,
            Operator::SUB_TENSOR => first.checked_sub(second)?,
            _ => first.checked_mul(second)?,
        };
        rescale.int8(i32::try_from(result).ok()?.into())
    };
    Some((from.input, (-128..=127).map(result).collect::<Option<_>>()?))
}

/// The `int32` values of a rescaled int8 tensor, from -128 on; also of one that is only cast.
fn int32_table(rewriter: &Rewriter<'_, '_>, id: ValueId) -> Option<(ValueId, Vec<i32>)> {
    let is_char = |id: ValueId| rewriter.scalar_type(id) == Some(ScalarType::Char);
    if let Some(rescale) = Rescale::producer(rewriter, id) {
        if !is_char(rescale.input) || !rescale.is_signed() {
            return None;
        }
        let value = |value: i64| i32::try_from(rescale.scaled(value)?).ok();
        return Some((rescale.input, (-128..=127).map(value).collect::<Option<_>>()?));
    }
    let node = rewriter.producer(id).filter(|node| node.operator == Operator::TO_COPY)?;
    let input = *node.args.first().filter(|id| is_char(**id))?;
    Some((input, (-128..=127).collect()))
}

/// A sum, difference or product of two rescaled tensors, in integers.
fn exact_arithmetic(
    rewriter: &mut Rewriter<'_, '_>,
    rescale: &Rescale,
    node: &Node,
    out: ValueId,
    takes: Takes<'_>,
) -> Option<()> {
    let &[first, second, ref rest @ ..] = inputs(node) else { return None };
    let is_plain = rest.iter().all(|alpha| rewriter.number(*alpha) == Some(1.0));
    if !is_plain || !rescale.is_one_shift() || !is_int8(rescale.output_zp) {
        return None;
    }
    let (a, a_table) = int32_table(rewriter, first)?;
    let (b, b_table) = int32_table(rewriter, second)?;
    let most = |table: &[i32]| table.iter().map(|it| i64::from(*it).abs()).max().unwrap_or(0);
    let (a_most, b_most) = (most(&a_table), most(&b_table));
    let (operation, most) = match node.operator {
        Operator::ADD_TENSOR => (0, a_most + b_most),
        Operator::SUB_TENSOR => (1, a_most + b_most),
        _ => (2, a_most.checked_mul(b_most)?),
    };
    if most > i64::from(i32::MAX) {
        return None;
    }
    let bytes = a_table.iter().chain(&b_table).flat_map(|value| value.to_le_bytes()).collect();
    let call = RescaledArithmeticArgs {
        a,
        b,
        tables: constant(rewriter, ScalarType::Char, bytes),
        operation: int(rewriter, operation),
        scale: double(rewriter, rescale.factor()?),
        zero_point: int(rewriter, rescale.output_zp),
        out,
    };
    rewriter.call_if_taken(Operator::RESCALED_ARITHMETIC, &call.inputs(), out, takes)
}

/// A sum, difference or product of two rescaled tensors.
fn arithmetic(
    rewriter: &mut Rewriter<'_, '_>,
    rescale: &Rescale,
    node: &Node,
    out: ValueId,
    takes: Takes<'_>,
) -> Option<()> {
    if let Some((input, table)) = function_of_one(rewriter, rescale, node, out) {
        return lookup(rewriter, input, table, out, takes);
    }
    if exact_arithmetic(rewriter, rescale, node, out, takes).is_some() {
        return Some(());
    }
    let &[first, second, ..] = inputs(node) else { return None };
    let (a, a_zero, a_scale) = operand(rewriter, first)?;
    let (b, b_zero, b_scale) = operand(rewriter, second)?;
    let factor = rescale.factor().filter(|_| is_int8(rescale.output_zp))?;
    // The integers are rounded before they are added or multiplied.
    let [a_error, b_error] = [a_scale, b_scale].map(rounding);
    let error = match node.operator {
        Operator::MUL_TENSOR => {
            let (a_most, b_most) = (a_scale * magnitude(a_zero), b_scale * magnitude(b_zero));
            a_most * b_error + b_most * a_error + a_error * b_error
        }
        _ => a_error + b_error,
    };
    if !is_small(error, factor) {
        return None;
    }
    let [a_zero_point, b_zero_point, output_zero_point] =
        [a_zero, b_zero, rescale.output_zp].map(|zero| int(rewriter, zero));
    let (a_scale, output_scale) = (double(rewriter, a_scale * factor), double(rewriter, 1.0));
    let (operator, args) = if node.operator == Operator::MUL_TENSOR {
        let b_scale = double(rewriter, b_scale);
        let call = Q8taMulArgs {
            a,
            b,
            a_scale,
            a_zero_point,
            b_scale,
            b_zero_point,
            output_scale,
            output_zero_point,
            out,
        };
        (Operator::Q8TA_MUL, call.inputs())
    } else {
        let alpha = match AddArgs::of(node).ok()?.alpha {
            alpha if rewriter.is_none(alpha.as_ref()) => 1.0,
            alpha => rewriter.number(alpha?)?,
        };
        let sign = if node.operator == Operator::SUB_TENSOR { -alpha } else { alpha };
        let call = Q8taAddArgs {
            input_a: a,
            input_b: b,
            input_a_scale: a_scale,
            input_a_zero_point: a_zero_point,
            input_b_scale: double(rewriter, b_scale * factor),
            input_b_zero_point: b_zero_point,
            output_scale,
            output_zero_point,
            alpha: double(rewriter, sign),
            out,
        };
        (Operator::ET_VK_Q8TA_ADD, call.inputs())
    };
    rewriter.call_if_taken(operator, &args, out, takes)
}

/// Factor that rounds ties away from zero, like TOSA's reciprocals, for averages of up to
/// [`MAX_WINDOW`] values: it moves a tie by more than an `f32` rounding, and other averages by less
/// than their distance from a tie.
const AWAY_FROM_ZERO: f64 = 1.0 + 1.0 / (1u64 << 20) as f64;
const MAX_WINDOW: usize = 1 << 11;

/// TOSA's reciprocal of a number of values, a multiplier and a shift.
fn reciprocal(count: usize) -> f64 {
    let bits = count.saturating_sub(1).checked_ilog2().map_or(0, |log| log + 1);
    let multiplier = (((1u64 << 30) + 1) << bits) / count.max(1) as u64;
    multiplier as f64 / (1u64 << (30 + bits)) as f64
}

/// Average pooling: without padding a depthwise convolution whose weights are ones, otherwise in
/// floating point.
pub(super) fn averaged(
    rewriter: &mut Rewriter<'_, '_>,
    node: &Node,
    takes: Takes<'_>,
) -> Option<()> {
    let call = TosaAvgPool2dArgs::of(node).ok()?;
    let zeros = [rewriter.int(call.input_zp)?, rewriter.int(call.output_zp)?];
    let are_int8 = zeros.iter().all(|zero| is_int8(*zero));
    if rewriter.scalar_type(call.out)? != ScalarType::Char || !are_int8 {
        return None;
    }
    let (&[batch, height, width, channels], &[_, tall, wide, _]) =
        (rewriter.sizes(call.input)?, rewriter.sizes(call.out)?)
    else {
        return None;
    };
    let [kernel, stride, pad] =
        [call.kernel_size, call.stride, call.padding].map(|id| rewriter.ints(id));
    let (&[ky, kx], &[sy, sx], &[top, bottom, left, right]) =
        (&kernel?[..], &stride?[..], &pad?[..])
    else {
        return None;
    };
    let window = [usize::try_from(ky).ok()?, usize::try_from(kx).ok()?];
    let count =
        window[0].checked_mul(window[1]).filter(|count| (1..=MAX_WINDOW).contains(count))?;
    let sizes = [vec![batch, channels, height, width], vec![batch, channels, tall, wide]];
    if [top, bottom, left, right] == [0; 4] {
        let ones = constant_tensor(ScalarType::Char, vec![1; count.checked_mul(channels)?]);
        let exact = Sums {
            kind: Kind::Depthwise,
            weights: Tensor { sizes: vec![window[0], window[1], channels], ..ones },
            kernel: window,
            groups: channels,
            pad: [0, 0],
            scales: vec![reciprocal(count); channels],
            bias: vec![0.0; channels],
            zero: zeros[0],
            is_exact: true,
        };
        let one = ints(rewriter, &[1, 1]);
        let [from, made] = sizes.clone();
        let ends = [(call.input, from), (call.out, made)];
        let steps = [call.stride, one];
        let added = exact.add_exactly(rewriter, zeros[1], ends.clone(), steps, takes);
        if added.is_some() {
            return added;
        }
        let scales = vec![AWAY_FROM_ZERO / count as f64; channels];
        let sums = Sums { scales, is_exact: false, ..exact };
        if sums.add(rewriter, zeros[1], ends, steps, takes).is_some() {
            return Some(());
        }
    }
    let padding = |size: usize, kernel: i64, pad: [i64; 2], stride: i64| {
        let found = symmetric_padding(size, usize::try_from(kernel).ok()?, pad, [stride, 1])?;
        // PyTorch's padding is at most half of the window.
        (found <= kernel / 2).then_some(found)
    };
    let pad = [padding(height, ky, [top, bottom], sy)?, padding(width, kx, [left, right], sx)?];
    let input = floats::dequantized(rewriter, call.input, 1.0, zeros[0], takes)?;
    let [first, made] = sizes.map(|sizes| rewriter.new_tensor(ScalarType::Float, sizes));
    let order = ints(rewriter, &CHANNELS_FIRST.map(|dim| dim as i64));
    rewriter.call_if_taken(Operator::PERMUTE_COPY, &[input, order], first, takes)?;
    let args = [
        first,
        call.kernel_size,
        call.stride,
        ints(rewriter, &pad),
        rewriter.value(Value::Bool(false)),
        // The average excludes padding.
        rewriter.value(Value::Bool(false)),
        rewriter.value(Value::None),
    ];
    rewriter.call_if_taken(Operator::AVG_POOL2D, &args, made, takes)?;
    let last = rewriter.new_tensor(ScalarType::Float, vec![batch, tall, wide, channels]);
    let order = ints(rewriter, &CHANNELS_LAST.map(|dim| dim as i64));
    rewriter.call_if_taken(Operator::PERMUTE_COPY, &[made, order], last, takes)?;
    floats::quantized(rewriter, last, 1.0 / AWAY_FROM_ZERO, zeros[1], call.out, takes)
}
