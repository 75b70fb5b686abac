//! Replaces float operators between dequantize and quantize calls by int8 operators.
//!
//! Quantizers write `dequantize` of each input, the float operator, perhaps a clamping activation,
//! and `quantize` of the result. With int8 values, per-tensor scale and zero point of activations,
//! and per-channel scales of constant weights, such a pattern becomes
//!
//! - `et_vk.q8ta_linear` and `et_vk.q8ta_conv2d`, if the activation is `relu` or is covered by the
//!   int8 range;
//! - `et_vk.q8ta_conv2d_transposed` with one group;
//! - int8 `max_pool2d_with_indices`, if the indices are unused;
//! - int8 `cat`, padding and element moves; inputs of another scale are requantized by a lookup
//!   table first;
//! - `torchlet.q8ta_avg_pool2d`, for means too, and `torchlet.q8ta_softmax`;
//! - `et_vk.q8ta_add`, for differences too, `torchlet.q8ta_mul`, and `et_vk.q8ta_relu`, if the
//!   upper limit is covered by the int8 range.
//!
//! Needs: a graph in which each value is produced once; matrix multiplications as `linear`
//! ([`super::linear`]); weights that are not folded yet. A call is produced only if `takes` accepts
//! it; otherwise the pattern stays. Keeps: intermediate values that other calls read. Rounding:
//! int8 sums of products are exact, unlike float sums; a result on the boundary between two
//! quantized values may become the other one.

use super::rewrite::{Rewriter, each_call};
use super::uses::inputs;
use super::weights::{Filters, Weights};
use crate::graph::{Graph, Node, Tensor, Value, ValueId};
use crate::operators::{ConstantPadArgs, ConvolutionArgs, Operator};
use alloc::borrow::Cow;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use torchlet_core::ScalarType;
use torchlet_core::rules::normalize_dim;

/// Replaces the patterns that a processor supports (`takes`). Returns the number of replacements.
pub fn run(graph: &mut Graph<'_>, takes: &mut dyn FnMut(&Graph<'_>, &Node) -> bool) -> usize {
    each_call(graph, |rewriter, node| island(rewriter, node, takes).is_some())
}

/// Scale and zero point of int8 values.
#[derive(Clone, Copy)]
pub(super) struct Codes {
    scale: f64,
    zero: i64,
}

const LOWEST: i64 = -128;
const HIGHEST: i64 = 127;

impl Codes {
    /// Parses the parameters of a `quantize` or `dequantize` call: scale, zero point, lowest and
    /// highest quantized value. Returns `None` unless the range is -128 to 127.
    fn of(rewriter: &Rewriter<'_, '_>, parameters: &[ValueId]) -> Option<Self> {
        let [scale, zero, low, high, ..] = parameters else { return None };
        let (scale, zero) = (rewriter.number(*scale)?, rewriter.int(*zero)?);
        let range = [rewriter.int(*low)?, rewriter.int(*high)?];
        let is_whole = range == [LOWEST, HIGHEST] && (LOWEST..=HIGHEST).contains(&zero);
        (is_whole && scale.is_normal() && scale > 0.0).then_some(Codes { scale, zero })
    }

    /// Whether the range of real values lies within the given limits, up to rounding at the ends.
    fn lie_within(self, [low, high]: [f64; 2]) -> bool {
        let code = |number: f64| number / self.scale + self.zero as f64;
        // Up to half a step outside rounds to the limit.
        code(low) < LOWEST as f64 + 0.5 && code(high) > HIGHEST as f64 - 0.5
    }

    fn is(self, other: Self) -> bool {
        self.scale == other.scale && self.zero == other.zero
    }

    /// Requantization table from these parameters to others.
    fn table_to(self, to: Self) -> Vec<u8> {
        let all = [f64::NEG_INFINITY, f64::INFINITY];
        requantized([self.scale, to.scale], [self.zero, to.zero], all)
    }

    fn values(self, rewriter: &mut Rewriter<'_, '_>) -> [ValueId; 2] {
        let scale = rewriter.value(Value::Double(self.scale));
        [scale, rewriter.value(Value::Int(self.zero))]
    }
}

/// A per-tensor `quantize` call with an int8 result.
pub(super) struct Quantized {
    /// The float input.
    pub(super) made: ValueId,
    codes: Codes,
    pub(super) out: ValueId,
}

impl Quantized {
    pub(super) fn of(rewriter: &Rewriter<'_, '_>, node: &Node) -> Option<Self> {
        if node.operator != Operator::QUANTIZED_DECOMPOSED_QUANTIZE_PER_TENSOR {
            return None;
        }
        let ([made, parameters @ ..], out) = (inputs(node), *node.args.last()?) else {
            return None;
        };
        let codes = Codes::of(rewriter, parameters)?;
        let is_char = rewriter.scalar_type(out)? == ScalarType::Char;
        is_char.then_some(Quantized { made: *made, codes, out })
    }
}

/// A float value to be quantized, before its activation.
struct Made {
    value: ValueId,
    relu: bool,
    codes: Codes,
}

fn island(
    rewriter: &mut Rewriter<'_, '_>,
    node: &Node,
    takes: &mut dyn FnMut(&Graph<'_>, &Node) -> bool,
) -> Option<()> {
    let Quantized { made, codes, out } = Quantized::of(rewriter, node)?;
    let limits = limits(rewriter, made);
    let Some((value, [low, high])) = limits else {
        return produce(rewriter, &Made { value: made, relu: false, codes }, out, takes);
    };
    let is_relu = low == 0.0 && codes.lie_within([f64::NEG_INFINITY, high]);
    let is_within = codes.lie_within([low, high]);
    if is_within || is_relu {
        let result = Made { value, relu: !is_within, codes };
        if let Some(made) = produce(rewriter, &result, out, takes)
            .or_else(|| if is_relu { function(rewriter, &result, out, takes) } else { None })
        {
            return Some(made);
        }
    }
    // Quantization is monotonic, so a table can clamp the quantized values instead.
    if is_within || dequantized(rewriter, value).is_some() {
        return None;
    }
    let between = like(rewriter, out)?;
    let table = requantized([codes.scale; 2], [codes.zero; 2], [low, high]);
    let lookup = lookup(rewriter, between, table, out, takes)?;
    produce(rewriter, &Made { value, relu: false, codes }, between, takes)?;
    rewriter.call(Operator::Q8TA_LOOKUP, &lookup, out);
    Some(())
}

/// Produces the quantized result `out` by an int8 operator.
fn produce(
    rewriter: &mut Rewriter<'_, '_>,
    result: &Made,
    out: ValueId,
    takes: &mut dyn FnMut(&Graph<'_>, &Node) -> bool,
) -> Option<()> {
    if !result.relu
        && let Some(made) = moved(rewriter, result, out, takes)
    {
        return Some(made);
    }
    produce_unmoved(rewriter, result, out, takes)
}

/// As [`produce`], but only with operators that compute, not with element moves.
fn produce_unmoved(
    rewriter: &mut Rewriter<'_, '_>,
    result: &Made,
    out: ValueId,
    takes: &mut dyn FnMut(&Graph<'_>, &Node) -> bool,
) -> Option<()> {
    if !result.relu
        && let Some(made) = largest(rewriter, result, out, takes)
            .or_else(|| averaged(rewriter, result, out, takes))
            .or_else(|| softmax(rewriter, result, out, takes))
    {
        return Some(made);
    }
    let (operator, args) = call(rewriter, result)?;
    if !rewriter.is_taken(operator, &args, out, takes) {
        return None;
    }
    rewriter.call(operator, &args, out);
    Some(())
}

/// Produces an activation on its own: `relu`, or just a requantization.
fn function(
    rewriter: &mut Rewriter<'_, '_>,
    result: &Made,
    out: ValueId,
    takes: &mut dyn FnMut(&Graph<'_>, &Node) -> bool,
) -> Option<()> {
    let (input, from) = dequantized(rewriter, result.value)?;
    let (from, to) = (from.values(rewriter), result.codes.values(rewriter));
    let args = [&[input], &from[..], &to].concat();
    if !rewriter.is_taken(Operator::ET_VK_Q8TA_RELU, &args, out, takes) {
        return None;
    }
    rewriter.call(Operator::ET_VK_Q8TA_RELU, &args, out);
    Some(())
}

/// Adds a tensor with the type and shape of another, without data.
fn like(rewriter: &mut Rewriter<'_, '_>, id: ValueId) -> Option<ValueId> {
    let tensor = Tensor { data: None, ..rewriter.tensor(id)?.clone() };
    Some(rewriter.value(Value::Tensor(tensor)))
}

/// Arguments of a lookup that maps `input` to `out`, if a processor supports the call.
fn lookup(
    rewriter: &mut Rewriter<'_, '_>,
    input: ValueId,
    table: Vec<u8>,
    out: ValueId,
    takes: &mut dyn FnMut(&Graph<'_>, &Node) -> bool,
) -> Option<[ValueId; 2]> {
    let table = Tensor {
        scalar_type: ScalarType::Char,
        host_type: ScalarType::Char,
        sizes: vec![table.len()],
        dynamic: false,
        data: Some(Cow::Owned(table)),
        changes: Some(false),
    };
    let args = [input, rewriter.value(Value::Tensor(table))];
    rewriter.is_taken(Operator::Q8TA_LOOKUP, &args, out, takes).then_some(args)
}

/// Lookup table of 256 entries that requantizes from the first scale and zero point to the second.
/// The real values are clamped to the given limits.
pub(crate) fn requantized(scales: [f64; 2], zeros: [i64; 2], [low, high]: [f64; 2]) -> Vec<u8> {
    let table = (LOWEST..=HIGHEST).map(|code| {
        let value = (code.saturating_sub(zeros[0]) as f64 * scales[0]).max(low).min(high);
        let code = nearest(value / scales[1]).saturating_add(zeros[1]).clamp(LOWEST, HIGHEST);
        (code as i8).cast_unsigned()
    });
    table.collect()
}

/// Rounds to the nearest integer, ties to even.
fn nearest(number: f64) -> i64 {
    let whole = number as i64;
    let rest = number - whole as f64;
    let is_odd = whole & 1 == 1;
    if rest > 0.5 || rest == 0.5 && is_odd {
        whole.saturating_add(1)
    } else if rest < -0.5 || rest == -0.5 && is_odd {
        whole.saturating_sub(1)
    } else {
        whole
    }
}

/// If the value is produced by a clamping activation and has no other user: the activation's input
/// and its limits.
fn limits(rewriter: &Rewriter<'_, '_>, id: ValueId) -> Option<(ValueId, [f64; 2])> {
    let node = rewriter.maker(id).filter(|_| rewriter.uses(id) == 1)?;
    let number = |at: usize, absent: f64| match inputs(node).get(at) {
        id if rewriter.is_none(id) => Some(absent),
        id => rewriter.number(*id?),
    };
    let limits = match node.operator {
        Operator::RELU => [0.0, f64::INFINITY],
        Operator::HARDTANH => [number(1, -1.0)?, number(2, 1.0)?],
        Operator::CLAMP => [number(1, f64::NEG_INFINITY)?, number(2, f64::INFINITY)?],
        _ => return None,
    };
    Some((*inputs(node).first()?, limits))
}

/// Operator and arguments of the int8 call that produces the quantized result.
fn call(rewriter: &mut Rewriter<'_, '_>, result: &Made) -> Option<(Operator, Vec<ValueId>)> {
    let node = rewriter.maker(result.value).filter(|_| rewriter.uses(result.value) == 1)?;
    let (operator, taken) = (node.operator, inputs(node).to_vec());
    if let Some(call) = ConvolutionArgs::matching(node) {
        let rest = taken.get(3..)?;
        return convolution(rewriter, result, [call.input, call.weight, call.bias], rest);
    }
    match (operator, &taken[..]) {
        (Operator::LINEAR, [input, weight, bias]) => {
            linear(rewriter, result, [*input, *weight, *bias])
        }
        (Operator::ADD_TENSOR | Operator::SUB_TENSOR, [a, b, alpha]) if !result.relu => {
            let alpha =
                if rewriter.is_none(Some(alpha)) { 1.0 } else { rewriter.number(*alpha)? };
            let alpha = if operator == Operator::SUB_TENSOR { -alpha } else { alpha };
            let mut args = of_two(rewriter, result, [*a, *b])?;
            args.push(rewriter.value(Value::Double(alpha)));
            Some((Operator::ET_VK_Q8TA_ADD, args))
        }
        (Operator::MUL_TENSOR, [a, b]) if !result.relu => {
            Some((Operator::Q8TA_MUL, of_two(rewriter, result, [*a, *b])?))
        }
        _ => None,
    }
}

/// First arguments of binary int8 operators: both inputs, then the parameters of both and of the
/// result.
fn of_two(
    rewriter: &mut Rewriter<'_, '_>,
    result: &Made,
    operands: [ValueId; 2],
) -> Option<Vec<ValueId>> {
    let [(a, from_a), (b, from_b)] =
        [dequantized(rewriter, *operands.first()?)?, dequantized(rewriter, *operands.last()?)?];
    let mut args = vec![a, b];
    for codes in [from_a, from_b, result.codes] {
        args.extend(codes.values(rewriter));
    }
    Some(args)
}

/// Maximum length of a chain of element-moving calls that is followed.
const MOVES: u32 = 4;

/// Applies an element-moving call to quantized values. Inputs with another scale or zero point are
/// requantized first.
fn moved(
    rewriter: &mut Rewriter<'_, '_>,
    result: &Made,
    out: ValueId,
    takes: &mut dyn FnMut(&Graph<'_>, &Node) -> bool,
) -> Option<()> {
    move_codes(rewriter, result.value, result.codes, out, takes, MOVES)
}

/// Produces `out`, the quantized form of a value, from the quantized inputs of the calls that
/// produce the value.
fn move_codes(
    rewriter: &mut Rewriter<'_, '_>,
    id: ValueId,
    wanted: Codes,
    out: ValueId,
    takes: &mut dyn FnMut(&Graph<'_>, &Node) -> bool,
    depth: u32,
) -> Option<()> {
    let node = rewriter.maker(id).filter(|_| rewriter.uses(id) == 1 && depth > 0)?;
    let operator = node.operator;
    let mut args = inputs(node).to_vec();
    let source = *args.first().filter(|_| operator.traits().moves_elements)?;
    if operator == Operator::CONSTANT_PAD_ND {
        let padding = ConstantPadArgs::of(node).ok()?.value;
        let padding = match padding {
            id if rewriter.is_none(id.as_ref()) => 0.0,
            id => rewriter.number(id?)?,
        };
        let padding = nearest(padding / wanted.scale).saturating_add(wanted.zero);
        let padding = rewriter.value(Value::Int(padding.clamp(LOWEST, HIGHEST)));
        args.truncate(2);
        args.push(padding);
    }
    let mut codes = |rewriter: &mut Rewriter<'_, '_>, id: ValueId| {
        let tensor = rewriter.tensor(id)?.clone();
        let (scalar_type, host_type) = (ScalarType::Char, ScalarType::Char);
        let between = Tensor { scalar_type, host_type, data: None, ..tensor };
        if let Some((codes, from)) = dequantized(rewriter, id) {
            if from.is(wanted) {
                return Some(codes);
            }
            let between = rewriter.value(Value::Tensor(between));
            let args = lookup(rewriter, codes, from.table_to(wanted), between, takes)?;
            rewriter.call(Operator::Q8TA_LOOKUP, &args, between);
            return Some(between);
        }
        let between = rewriter.value(Value::Tensor(between));
        let result = Made { value: id, relu: false, codes: wanted };
        move_codes(rewriter, id, wanted, between, takes, depth - 1)
            .or_else(|| produce_unmoved(rewriter, &result, between, takes))?;
        Some(between)
    };
    let source = match (operator, rewriter.get(source).cloned()) {
        (Operator::CAT, Some(Value::List(items))) => {
            let items: Option<Vec<ValueId>> =
                items.into_iter().map(|id| codes(rewriter, id)).collect();
            rewriter.value(Value::List(items?))
        }
        (Operator::CAT, _) => return None,
        _ => codes(rewriter, source)?,
    };
    *args.first_mut()? = source;
    if !rewriter.is_taken(operator, &args, out, takes) {
        return None;
    }
    rewriter.call(operator, &args, out);
    Some(())
}

/// Applies max pooling to quantized values.
fn largest(
    rewriter: &mut Rewriter<'_, '_>,
    result: &Made,
    out: ValueId,
    takes: &mut dyn FnMut(&Graph<'_>, &Node) -> bool,
) -> Option<()> {
    let node = rewriter.maker(result.value).filter(|_| rewriter.uses(result.value) == 1)?;
    if node.operator != Operator::MAX_POOL2D_WITH_INDICES {
        return None;
    }
    let (taken, list) = (inputs(node).to_vec(), *node.args.last()?);
    let Some(Value::List(outs)) = rewriter.get(list) else { return None };
    let &[largest, indices] = &outs[..] else { return None };
    let (input, rest) = taken.split_first()?;
    let (input, from) = source(rewriter, *input, takes, MOVES)?;
    if largest != result.value || rewriter.uses(indices) > 0 {
        return None;
    }
    let requantized = after(rewriter, from, result.codes, out, takes)?;
    let made = requantized.map_or(out, |[made, _]| made);
    let (scalar_type, sizes) = (rewriter.scalar_type(indices)?, rewriter.sizes(indices)?.to_vec());
    let indices = rewriter.new_tensor(scalar_type, sizes);
    let outs = rewriter.value(Value::List(vec![made, indices]));
    let args = [&[input], rest].concat();
    if !rewriter.is_taken(Operator::MAX_POOL2D_WITH_INDICES, &args, outs, takes) {
        return None;
    }
    rewriter.call(Operator::MAX_POOL2D_WITH_INDICES, &args, outs);
    requantized.into_iter().for_each(|args| rewriter.call(Operator::Q8TA_LOOKUP, &args, out));
    Some(())
}

/// Arguments of the lookup that requantizes the result of a call. `Some(None)` if the parameters
/// are already the wanted ones.
fn after(
    rewriter: &mut Rewriter<'_, '_>,
    from: Codes,
    to: Codes,
    out: ValueId,
    takes: &mut dyn FnMut(&Graph<'_>, &Node) -> bool,
) -> Option<Option<[ValueId; 2]>> {
    if from.is(to) {
        return Some(None);
    }
    let between = like(rewriter, out)?;
    lookup(rewriter, between, from.table_to(to), out, takes).map(Some)
}

/// Maximum ratio of the input step to the result step for averages, which are first rounded to the
/// input step. With a ratio `r`, the error is at most `(r + 1) / 2` result steps.
const COARSER: f64 = 3.0;

/// Averages quantized values, if no window counts padding.
fn averaged(
    rewriter: &mut Rewriter<'_, '_>,
    result: &Made,
    out: ValueId,
    takes: &mut dyn FnMut(&Graph<'_>, &Node) -> bool,
) -> Option<()> {
    let node = rewriter.maker(result.value).filter(|_| rewriter.uses(result.value) == 1)?;
    let (operator, args) = (node.operator, inputs(node).to_vec());
    let averages = [Operator::AVG_POOL2D, Operator::ADAPTIVE_AVG_POOL2D, Operator::MEAN_DIM];
    if !averages.contains(&operator) {
        return None;
    }
    let (input, from) = source(rewriter, *args.first()?, takes, MOVES)?;
    if from.scale > COARSER * result.codes.scale {
        return None;
    }
    let sizes = rewriter.sizes(input)?.to_vec();
    let requantized = |rewriter: &mut Rewriter<'_, '_>,
                       takes: &mut dyn FnMut(&Graph<'_>, &Node) -> bool| {
        let requantized = after(rewriter, from, result.codes, out, takes)?;
        Some((requantized.map_or(out, |[made, _]| made), requantized))
    };
    match (operator, &args[..]) {
        (Operator::AVG_POOL2D, [_, kernel, stride, padding, ceil, counts, divisor]) => {
            let is_padded = match rewriter.is_none(Some(padding)) {
                true => false,
                false => rewriter.ints(*padding)?.iter().any(|pad| *pad != 0),
            };
            let counts_padding = rewriter.flag(Some(counts), true)?;
            if is_padded && counts_padding || !rewriter.is_none(Some(divisor)) {
                return None;
            }
            let kernel_sizes = rewriter.ints(*kernel)?.into_owned();
            let stride = match rewriter.is_none(Some(stride)) {
                false if !rewriter.ints(*stride)?.is_empty() => *stride,
                _ => rewriter.value(Value::IntList(kernel_sizes)),
            };
            let padding = match is_padded {
                true => *padding,
                false => rewriter.value(Value::IntList(vec![0, 0])),
            };
            let (made, requantized) = requantized(rewriter, takes)?;
            let args = [input, *kernel, stride, padding, *ceil];
            pool(rewriter, &args, made, takes)?;
            requantized.into_iter().for_each(|it| rewriter.call(Operator::Q8TA_LOOKUP, &it, out));
        }
        (Operator::ADAPTIVE_AVG_POOL2D, [_, size]) => {
            let ([_, _, height, width], true) = (&sizes[..], rewriter.has_fixed_shapes()) else {
                return None;
            };
            let size = rewriter.ints(*size)?.into_owned();
            let [rows, columns] = [*size.first()?, *size.last()?];
            let window = |all: usize, count: i64| {
                let count = usize::try_from(count).ok().filter(|count| *count > 0)?;
                all.is_multiple_of(count).then(|| (all / count) as i64)
            };
            let kernel = vec![window(*height, rows)?, window(*width, columns)?];
            let (made, requantized) = requantized(rewriter, takes)?;
            whole_windows(rewriter, input, kernel, made, takes)?;
            requantized.into_iter().for_each(|it| rewriter.call(Operator::Q8TA_LOOKUP, &it, out));
        }
        (Operator::MEAN_DIM, [_, dims, ..]) if rewriter.has_fixed_shapes() => {
            let dims = rewriter.ints(*dims)?.into_owned();
            let rank = sizes.len();
            let dims = dims.iter().map(|dim| normalize_dim(*dim, rank));
            let mut dims: Vec<usize> = dims.collect::<Option<_>>()?;
            dims.sort_unstable();
            dims.dedup();
            let (made, requantized) = requantized(rewriter, takes)?;
            mean(rewriter, input, &sizes, &dims, made, takes)?;
            requantized.into_iter().for_each(|it| rewriter.call(Operator::Q8TA_LOOKUP, &it, out));
        }
        _ => return None,
    }
    Some(())
}

fn pool(
    rewriter: &mut Rewriter<'_, '_>,
    args: &[ValueId],
    out: ValueId,
    takes: &mut dyn FnMut(&Graph<'_>, &Node) -> bool,
) -> Option<()> {
    if !rewriter.is_taken(Operator::Q8TA_AVG_POOL2D, args, out, takes) {
        return None;
    }
    rewriter.call(Operator::Q8TA_AVG_POOL2D, args, out);
    Some(())
}

/// Averages non-overlapping windows without padding.
fn whole_windows(
    rewriter: &mut Rewriter<'_, '_>,
    input: ValueId,
    kernel: Vec<i64>,
    out: ValueId,
    takes: &mut dyn FnMut(&Graph<'_>, &Node) -> bool,
) -> Option<()> {
    let kernel = rewriter.value(Value::IntList(kernel));
    let none = rewriter.value(Value::IntList(vec![0, 0]));
    let no = rewriter.value(Value::Bool(false));
    pool(rewriter, &[input, kernel, kernel, none, no], out, takes)
}

/// Averages over adjacent dims, viewed as height and width of images.
fn mean(
    rewriter: &mut Rewriter<'_, '_>,
    input: ValueId,
    sizes: &[usize],
    dims: &[usize],
    out: ValueId,
    takes: &mut dyn FnMut(&Graph<'_>, &Node) -> bool,
) -> Option<()> {
    let (first, last) = (*dims.first()?, *dims.last()?);
    if last - first + 1 != dims.len() {
        return None;
    }
    let count = |sizes: &[usize]| sizes.iter().try_fold(1usize, |all, size| all.checked_mul(*size));
    let image = if sizes.len() == 4 && dims == [2, 3] {
        input
    } else {
        // The dims before become the batch, those after become the channels.
        let (before, after) = (count(sizes.get(..first)?)?, count(sizes.get(last + 1..)?)?);
        let within = match sizes.get(first..=last)? {
            &[height, width] => [height, width],
            other => [count(other)?, 1],
        };
        let last = [before, within[0], within[1], after];
        let shape = rewriter.value(Value::IntList(last.map(|size| size as i64).to_vec()));
        let seen = match sizes == last {
            true => input,
            false => rewriter.call_new(
                Operator::VIEW_COPY,
                &[input, shape],
                ScalarType::Char,
                last.to_vec(),
            ),
        };
        let order = rewriter.value(Value::IntList(vec![0, 3, 1, 2]));
        let first = vec![before, after, within[0], within[1]];
        rewriter.call_new(Operator::PERMUTE_COPY, &[seen, order], ScalarType::Char, first)
    };
    let [batch, channels, height, width] = *rewriter.sizes(image)? else { return None };
    let kernel = vec![height as i64, width as i64];
    let wanted = rewriter.sizes(out)?.to_vec();
    if wanted == [batch, channels, 1, 1] {
        return whole_windows(rewriter, image, kernel, out, takes);
    }
    let made = rewriter.new_tensor(ScalarType::Char, vec![batch, channels, 1, 1]);
    whole_windows(rewriter, image, kernel, made, takes)?;
    let shape = wanted.iter().map(|size| *size as i64).collect();
    let shape = rewriter.value(Value::IntList(shape));
    rewriter.call(Operator::VIEW_COPY, &[made, shape], out);
    Some(())
}

/// Quantizes a softmax whose result has the only parameters that kernels produce: scale 1/256, zero
/// point -128.
fn softmax(
    rewriter: &mut Rewriter<'_, '_>,
    result: &Made,
    out: ValueId,
    takes: &mut dyn FnMut(&Graph<'_>, &Node) -> bool,
) -> Option<()> {
    let taken = rewriter.call_of(result.value, Operator::SOFTMAX)?;
    let [input, dim, ..] = *taken else { return None };
    let is_usual = result.codes.is(Codes { scale: 1.0 / 256.0, zero: LOWEST });
    if rewriter.uses(result.value) != 1 || !is_usual {
        return None;
    }
    let (input, from) = dequantized(rewriter, input)?;
    let from = from.values(rewriter);
    let args = [&[input], &from[..], &[dim]].concat();
    if !rewriter.is_taken(Operator::Q8TA_SOFTMAX, &args, out, takes) {
        return None;
    }
    rewriter.call(Operator::Q8TA_SOFTMAX, &args, out);
    Some(())
}

/// Follows a tensor back to the quantized values that it was dequantized from. Element moves on the
/// way are repeated on the quantized values.
fn source(
    rewriter: &mut Rewriter<'_, '_>,
    id: ValueId,
    takes: &mut dyn FnMut(&Graph<'_>, &Node) -> bool,
    depth: u32,
) -> Option<(ValueId, Codes)> {
    if let Some(found) = dequantized(rewriter, id) {
        return Some(found);
    }
    let node =
        rewriter.maker(id).filter(|node| depth > 0 && node.operator.traits().moves_elements)?;
    let (operator, mut args) = (node.operator, inputs(node).to_vec());
    if matches!(operator, Operator::CAT | Operator::CONSTANT_PAD_ND) {
        return None;
    }
    let (input, from) = source(rewriter, *args.first()?, takes, depth - 1)?;
    *args.first_mut()? = input;
    let (scalar_type, host_type) = (ScalarType::Char, ScalarType::Char);
    let moved = Tensor { scalar_type, host_type, data: None, ..rewriter.tensor(id)?.clone() };
    let moved = rewriter.value(Value::Tensor(moved));
    if !rewriter.is_taken(operator, &args, moved, takes) {
        return None;
    }
    rewriter.call(operator, &args, moved);
    Some((moved, from))
}

/// The int8 input of the `dequantize` call that produces a tensor, and its parameters.
pub(super) fn dequantized(rewriter: &Rewriter<'_, '_>, id: ValueId) -> Option<(ValueId, Codes)> {
    let taken = rewriter.call_of(id, Operator::QUANTIZED_DECOMPOSED_DEQUANTIZE_PER_TENSOR)?;
    let (input, parameters) = taken.split_first()?;
    let is_floats = rewriter.scalar_type(id) == Some(ScalarType::Float);
    let is_codes = rewriter.scalar_type(*input) == Some(ScalarType::Char);
    (is_floats && is_codes).then_some((*input, Codes::of(rewriter, parameters)?))
}

/// Whether a bias is absent or has one `f32` value per channel.
pub(super) fn fits_bias(rewriter: &Rewriter<'_, '_>, bias: ValueId, channels: usize) -> bool {
    rewriter.is_none(Some(&bias))
        || rewriter
            .tensor(bias)
            .is_some_and(|bias| bias.scalar_type == ScalarType::Float && bias.sizes == [channels])
}

/// First arguments of linear layers and convolutions: input, weights, weight scales, output
/// parameters, bias.
fn product(
    rewriter: &mut Rewriter<'_, '_>,
    result: &Made,
    (input, from): (ValueId, Codes),
    [weight, scales, bias]: [ValueId; 3],
) -> Vec<ValueId> {
    let (from, to) = (from.values(rewriter), result.codes.values(rewriter));
    // The weight sums follow from the weights, so the argument is `None`.
    let none = rewriter.value(Value::None);
    [&[input], &from[..], &[weight, none, scales], &to, &[bias]].concat()
}

fn activation(rewriter: &mut Rewriter<'_, '_>, result: &Made) -> ValueId {
    rewriter.value(Value::String(String::from(if result.relu { "relu" } else { "none" })))
}

fn linear(
    rewriter: &mut Rewriter<'_, '_>,
    result: &Made,
    [input, weight, bias]: [ValueId; 3],
) -> Option<(Operator, Vec<ValueId>)> {
    let input = dequantized(rewriter, input)?;
    let weights = Weights::of(rewriter, weight, 0)?;
    let [width, depth] = *weights.sizes(rewriter)? else { return None };
    if !fits_bias(rewriter, bias, width) {
        return None;
    }
    let codes = weights.packed(rewriter, &[0, 1], vec![width, depth])?;
    let scales = weights.scales;
    let mut args = product(rewriter, result, input, [codes, scales, bias]);
    args.push(activation(rewriter, result));
    Some((Operator::ET_VK_Q8TA_LINEAR, args))
}

fn convolution(
    rewriter: &mut Rewriter<'_, '_>,
    result: &Made,
    [input, weight, bias]: [ValueId; 3],
    rest: &[ValueId],
) -> Option<(Operator, Vec<ValueId>)> {
    let input = dequantized(rewriter, input)?;
    let [stride, padding, dilation, transposed, more, groups] = *rest else { return None };
    let is_transposed = rewriter.flag(Some(&transposed), false)?;
    let filters = Filters::of(rewriter, weight, is_transposed, groups)?;
    if rewriter.sizes(input.0)?.len() != 4 || !fits_bias(rewriter, bias, filters.channels) {
        return None;
    }
    let (operator, packed) = if is_transposed {
        (Operator::ET_VK_Q8TA_CONV2D_TRANSPOSED, filters.rows(rewriter)?)
    } else if filters.are_single() {
        // Depthwise weights are stored by kernel position, then by channel.
        let [height, width] = filters.kernel;
        let sizes = vec![height, width, filters.channels];
        let packed = filters.weights.packed(rewriter, &[2, 3, 0, 1], sizes)?;
        (Operator::ET_VK_Q8TA_CONV2D_DW, packed)
    } else {
        (Operator::ET_VK_Q8TA_CONV2D, filters.rows(rewriter)?)
    };
    let kernel = filters.kernel_size(rewriter);
    let mut args = product(rewriter, result, input, [packed, filters.weights.scales, bias]);
    args.extend([kernel, stride, padding]);
    args.extend(is_transposed.then_some(more));
    args.extend([dilation, groups]);
    args.push(activation(rewriter, result));
    Some((operator, args))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::passes::text::{after, calls, operators, parse};
    use crate::passes::{dead, verify};

    /// Runs the pass with a processor that supports every call.
    fn made(text: &str) -> Graph<'static> {
        after(text, |graph| run(graph, &mut |_, _| true))
    }

    const CONVOLUTION: &str = "in x i8[1,2,4,4]
        const w i8[3,2,3,3]
        const s f32[3] = 0.5
        const z i64[3]
        const b f32[3]
        f f32[1,2,4,4] = quantized_decomposed.dequantize_per_tensor.default(x, 0.25, 3, -128, \
            127, 1, none)
        v f32[3,2,3,3] = quantized_decomposed.dequantize_per_channel.default(w, s, z, 0, -127, \
            127, 1, none)
        c f32[1,3,2,2] = aten.convolution.default(f, v, b, [1, 1], [0, 0], [1, 1], false, [0, 0], 1)
        r f32[1,3,2,2] = aten.hardtanh.default(c, 0, 6)
        y i8[1,3,2,2] = quantized_decomposed.quantize_per_tensor.default(r, 0.0235, -128, -128, \
            127, 1)
        out y";

    const PACKED: [&str; 1] = ["et_vk.q8ta_conv2d.default"];

    fn last(graph: &Graph<'_>) -> String {
        calls(graph).pop().unwrap()
    }

    #[test]
    fn convolutions_take_codes_and_give_codes() {
        let graph = made(CONVOLUTION);
        assert_eq!(operators(&graph), PACKED);
        let [.., call] = &graph.nodes[..] else { panic!() };
        // The int8 range covers the activation's range.
        assert_eq!(graph.values[call.args[14]], Value::String("none".into()));
        assert_eq!(graph.values[call.args[1]], Value::Double(0.25));
        // Some quantized values represent negative values.
        let signed = CONVOLUTION.replace("0.0235, -128", "0.0235, -100");
        let graph = made(&signed.replace("aten.hardtanh.default(c, 0, 6)", "aten.relu.default(c)"));
        assert_eq!(operators(&graph), PACKED);
        let [.., call] = &graph.nodes[..] else { panic!() };
        assert_eq!(graph.values[call.args[14]], Value::String("relu".into()));
        // Some quantized values represent values above six, so a table clamps them.
        let graph = made(&CONVOLUTION.replace("0.0235", "0.05"));
        assert_eq!(operators(&graph), [PACKED[0], "torchlet.q8ta_lookup"]);
        let Value::Tensor(table) = &graph.values[graph.nodes[1].args[1]] else { panic!() };
        let table: Vec<i8> =
            table.data.as_deref().unwrap().iter().map(|byte| byte.cast_signed()).collect();
        assert_eq!((table[0], table[119], table[120], table[255]), (-128, -9, -8, -8));
    }

    #[test]
    fn transposed_convolutions_have_weights_by_channel_out() {
        let text = "in x i8[1,2,4,4]
            const w i8[2,3,2,2]
            const s f32[3] = 0.5
            const z i64[3]
            f f32[1,2,4,4] = quantized_decomposed.dequantize_per_tensor.default(x, 0.25, 3, \
                -128, 127, 1, none)
            v f32[2,3,2,2] = quantized_decomposed.dequantize_per_channel.default(w, s, z, 1, \
                -127, 127, 1, none)
            c f32[1,3,8,8] = aten.convolution.default(f, v, none, [2, 2], [0, 0], [1, 1], true, \
                [0, 0], 1)
            y i8[1,3,8,8] = quantized_decomposed.quantize_per_tensor.default(c, 0.5, 0, -128, \
                127, 1)
            out y";
        let graph = made(text);
        assert_eq!(operators(&graph), ["et_vk.q8ta_conv2d_transposed.default"]);
        let [.., call] = &graph.nodes[..] else { panic!() };
        let Value::Tensor(weights) = &graph.values[call.args[3]] else { panic!() };
        assert_eq!(weights.sizes, [3, 8]);
        // Scales per input channel cannot be factored out of the sum.
        let inputs = text.replace("s f32[3]", "s f32[2]").replace("z i64[3]", "z i64[2]");
        let inputs = inputs.replace("(w, s, z, 1,", "(w, s, z, 0,");
        assert_eq!(operators(&made(&inputs)).len(), 4);
    }

    #[test]
    fn codes_are_moved_and_multiplied() {
        let text = "in x i8[2,3]
            in y i8[2,3]
            a f32[2,3] = quantized_decomposed.dequantize_per_tensor.default(x, 0.25, 3, -128, \
                127, 1, none)
            b f32[2,3] = quantized_decomposed.dequantize_per_tensor.default(y, 0.25, 3, -128, \
                127, 1, none)
            c f32[2,6] = aten.cat.default([a, b], 1)
            q i8[2,6] = quantized_decomposed.quantize_per_tensor.default(c, 0.25, 3, -128, 127, 1)
            out q";
        assert_eq!(operators(&made(text)), ["aten.cat.default"]);
        // Chains of moves work too.
        let turned = "t f32[6,2] = aten.permute_copy.default(c, [1, 0])
            q i8[6,2] = quantized_decomposed.quantize_per_tensor.default(t, 0.25, 3, -128, 127, 1)";
        let last = text.lines().find(|line| line.contains("q i8")).unwrap();
        let found = operators(&made(&text.replace(last.trim(), turned)));
        assert_eq!(found, ["aten.cat.default", "aten.permute_copy.default"]);
        // An input of another scale is requantized first.
        let found = operators(&made(&text.replace("(y, 0.25", "(y, 0.5")));
        assert_eq!(found, ["torchlet.q8ta_lookup", "aten.cat.default"]);
        let two = text.replace("[2,6]", "[2,3]");
        let call = |call: &str| two.replace("aten.cat.default([a, b], 1)", call);
        assert_eq!(operators(&made(&call("aten.mul.Tensor(a, b)"))), ["torchlet.q8ta_mul"]);
        let graph = made(&call("aten.sub.Tensor(a, b, 2)"));
        assert_eq!(operators(&graph), ["et_vk.q8ta_add.default"]);
        let [.., sum] = &graph.nodes[..] else { panic!() };
        assert_eq!(graph.values[sum.args[8]], Value::Double(-2.0));
    }

    #[test]
    fn averages_softmax_and_pads_are_of_quantized_values() {
        let text = |made: &str, call: &str, sizes: &str, to: &str| {
            alloc::format!(
                "in x i8[1,2,4,6]
                f f32[1,2,4,6] = quantized_decomposed.dequantize_per_tensor.default(x, 0.25, 3, \
                    -128, 127, 1, none)
                g f32[{sizes}] = {call}
                q i8[{sizes}] = quantized_decomposed.quantize_per_tensor.default(g, {to}, -128, \
                    127, 1)
                out {made}"
            )
        };
        let of = |call: &str, sizes: &str, to: &str| operators(&made(&text("q", call, sizes, to)));
        let pooled = ["torchlet.q8ta_avg_pool2d"];
        let window = "aten.avg_pool2d.default(f, [2, 2], [2, 2], [0, 0], false, true, none)";
        assert_eq!(of(window, "1,2,2,3", "0.25, 3"), pooled);
        assert_eq!(of("aten.mean.dim(f, [2, 3], true, none)", "1,2,1,1", "0.25, 3"), pooled);
        let mean = "aten.mean.dim(f, [-1, -2], false, none)";
        assert_eq!(of(mean, "1,2", "0.25, 3"), [pooled[0], "aten.view_copy.default"]);
        // Over the image dims of channels-last data, with another scale.
        let found = of("aten.mean.dim(f, [1, 2], true, none)", "1,1,1,6", "0.125, 0");
        let expected = ["aten.permute_copy.default", pooled[0], "aten.view_copy.default"];
        assert_eq!(found, [&expected[..], &["torchlet.q8ta_lookup"]].concat());
        // Unsupported: an input step of four result steps, counted padding, dims that are not
        // adjacent.
        assert_eq!(of(mean, "1,2", "0.06, 3").len(), 3);
        let padded = window.replace("[0, 0]", "[1, 1]");
        assert_eq!(of(&padded, "1,2,3,4", "0.25, 3").len(), 3);
        assert_eq!(of("aten.mean.dim(f, [1, 3], true, none)", "1,1,4,1", "0.25, 3").len(), 3);
        let softmax = "aten._softmax.default(f, 1, false)";
        assert_eq!(of(softmax, "1,2,4,6", "0.00390625, -128"), ["torchlet.q8ta_softmax"]);
        assert_eq!(of(softmax, "1,2,4,6", "0.004, -128").len(), 3);
        let pad = text("q", "aten.constant_pad_nd.default(f, [1, 1], 0.5)", "1,2,4,8", "0.25, 3");
        let graph = made(&pad);
        assert_eq!(operators(&graph), ["aten.constant_pad_nd.default"]);
        assert_eq!(graph.values[graph.nodes[0].args[2]], Value::Int(5));
        // The intermediate value is an output, too.
        assert_eq!(operators(&made(&text("q g", softmax, "1,2,4,6", "0.00390625, -128"))).len(), 3);
    }

    #[test]
    fn limits_of_functions_alone_are_not_relu() {
        let text = "in x i8[2,4]
            f f32[2,4] = quantized_decomposed.dequantize_per_tensor.default(x, 0.05, 3, -128, \
                127, 1, none)
            r f32[2,4] = aten.hardtanh.default(f, -1, 1)
            o i8[2,4] = quantized_decomposed.quantize_per_tensor.default(r, 0.0078, 0, -128, 127, 1)
            out o";
        assert_eq!(made(text).nodes.len(), 3);
    }

    #[test]
    fn channels_by_themselves_are_packed_by_place() {
        let depthwise = CONVOLUTION.replace("i8[1,2,4,4]", "i8[1,3,4,4]");
        let depthwise = depthwise.replace("f32[1,2,4,4]", "f32[1,3,4,4]");
        let depthwise = depthwise.replace("[3,2,3,3]", "[3,1,3,3]").replace("0], 1)", "0], 3)");
        let codes: Vec<String> = (0..27).map(|code| alloc::format!("{code}")).collect();
        let codes = alloc::format!("w i8[3,1,3,3] = {}", codes.join(" "));
        let depthwise = depthwise.replace("w i8[3,1,3,3]", &codes);
        let graph = made(&depthwise);
        assert_eq!(operators(&graph), ["et_vk.q8ta_conv2d_dw.default"]);
        let Value::Tensor(packed) = &graph.values[graph.nodes[0].args[3]] else { panic!() };
        assert_eq!(packed.sizes, [3, 3, 3]);
        assert_eq!(packed.data.as_deref().unwrap()[..6], [0, 9, 18, 1, 10, 19]);
    }

    #[test]
    fn weights_in_another_order_and_codes_of_a_bias_are_known() {
        let graph = made(
            "in x i8[1,4,4,2]
            const w i8[3,3,3,2] = 1
            const s f32[3] = 0.5
            const b i32[3]
            const t f32[3] = 0.125
            p i8[1,2,4,4] = aten.permute_copy.default(x, [0, 3, 1, 2])
            f f32[1,2,4,4] = quantized_decomposed.dequantize_per_tensor.default(p, 0.25, 3, \
                -128, 127, 1, none)
            v f32[3,3,3,2] = quantized_decomposed.dequantize_per_channel.default(w, s, none, 0, \
                -127, 127, 1, none)
            o f32[3,2,3,3] = aten.permute_copy.default(v, [0, 3, 1, 2])
            d f32[3] = quantized_decomposed.dequantize_per_channel.default(b, t, none, 0, \
                -2147483648, 2147483647, 3, none)
            c f32[1,3,2,2] = aten.convolution.default(f, o, d, [1, 1], [0, 0], [1, 1], false, \
                [0, 0], 1)
            y i8[1,3,2,2] = quantized_decomposed.quantize_per_tensor.default(c, 0.0235, -128, \
                -128, 127, 1)
            z i8[1,2,2,3] = aten.permute_copy.default(y, [0, 2, 3, 1])
            out z",
        );
        assert!(operators(&graph).contains(&"et_vk.q8ta_conv2d.default"), "{:?}", calls(&graph));
        let call = graph.nodes.iter().find(|node| node.operator == Operator::ET_VK_Q8TA_CONV2D);
        let weights = &graph.values[call.unwrap().args[3]];
        assert!(matches!(weights, Value::Tensor(weights) if weights.sizes == [3, 18]));
    }

    #[test]
    fn weights_of_one_tap_are_seen_through_views() {
        let graph = made(
            "in x i8[1,4,5,6]
            const w i8[3,1,1,4] = 1
            const s f32[3] = 0.5
            f f32[1,4,5,6] = quantized_decomposed.dequantize_per_tensor.default(x, 0.25, 3, \
                -128, 127, 1, none)
            v f32[3,1,1,4] = quantized_decomposed.dequantize_per_channel.default(w, s, none, 0, \
                -127, 127, 1, none)
            o f32[3,4,1,1] = aten.view_copy.default(v, [3, 4, 1, 1])
            c f32[1,3,5,6] = aten.convolution.default(f, o, none, [1, 1], [0, 0], [1, 1], false, \
                [0, 0], 1)
            y i8[1,3,5,6] = quantized_decomposed.quantize_per_tensor.default(c, 0.0235, -128, \
                -128, 127, 1)
            out y",
        );
        assert_eq!(operators(&graph), PACKED);
        let weights = &graph.values[graph.nodes[0].args[3]];
        assert!(matches!(weights, Value::Tensor(weights) if weights.sizes == [3, 4]));
    }

    #[test]
    fn sums_and_products_with_matrices_do_so_too() {
        let graph = made(
            "in x i8[2,4]
            const w i8[3,4]
            const s f32[3] = 0.5
            const z i64[3]
            f f32[2,4] = quantized_decomposed.dequantize_per_tensor.default(x, 0.25, 3, -128, \
                127, 1, none)
            v f32[3,4] = quantized_decomposed.dequantize_per_channel.default(w, s, z, 0, -127, \
                127, 1, none)
            l f32[2,3] = aten.linear.default(f, v, none)
            y i8[2,3] = quantized_decomposed.quantize_per_tensor.default(l, 0.5, 1, -128, 127, 1)
            out y",
        );
        assert_eq!(
            last(&graph),
            "%7 = et_vk.q8ta_linear.default(%0, 0.25, 3, %1, none, %2, 0.5, 1, none, \"none\")"
        );
        let sum = "in x i8[2,4]
            in y i8[2,4]
            f f32[2,4] = quantized_decomposed.dequantize_per_tensor.default(x, 0.25, 3, -128, \
                127, 1, none)
            g f32[2,4] = quantized_decomposed.dequantize_per_tensor.default(y, 0.5, -4, -128, \
                127, 1, none)
            a f32[2,4] = aten.add.Tensor(f, g, 1)
            r f32[2,4] = aten.relu.default(a)
            o i8[2,4] = quantized_decomposed.quantize_per_tensor.default(r, 1.0, -128, -128, 127, 1)
            p i8[2,4] = quantized_decomposed.quantize_per_tensor.default(f, 1.0, 0, -128, 127, 1)
            out o p";
        let between = "in x i8[2,4]
            f f32[2,4] = quantized_decomposed.dequantize_per_tensor.default(x, 0.25, 3, -128, \
                127, 1, none)
            r f32[2,4] = aten.hardtanh.default(f, 0, 6)
            o i8[2,4] = quantized_decomposed.quantize_per_tensor.default(r, 0.0235, -128, -128, \
                127, 1)
            out o";
        let relu = "%3 = et_vk.q8ta_relu.default(%0, 0.25, 3, 0.0235, -128)";
        assert_eq!(calls(&made(between)), [relu]);
        assert_eq!(made(&between.replace("f, 0, 6", "f, -1, 6")).nodes.len(), 3);
        assert_eq!(made(&between.replace("f, 0, 6", "f, 0, 5")).nodes.len(), 3);
        let found = operators(&made(sum));
        assert!(found.contains(&"et_vk.q8ta_add.default") && found.len() == 3, "{found:?}");
    }

    #[test]
    fn what_is_otherwise_stays() {
        let others = [
            // Other ranges and invalid scales.
            ("3, -128, 127", "3, -127, 127"),
            ("x, 0.25, 3", "x, -0.25, 3"),
            // Weights with zero points, scales over another dim, weights or scales that are not
            // constant.
            ("const z i64[3]", "const z i64[3] = 1"),
            ("w, s, z, 0,", "w, s, z, 1,"),
            ("const w i8", "in w i8"),
            ("const s f32[3]", "in s f32[3]"),
            // Transposed convolution.
            ("[1, 1], false", "[1, 1], true"),
            // The intermediate value is an output, too.
            ("out y", "out y c"),
        ];
        for (from, to) in others {
            let text = CONVOLUTION.replace(from, to);
            assert_ne!(text, CONVOLUTION);
            let mut graph = parse(&text);
            assert_eq!(run(&mut graph, &mut |_, _| true), 0, "{to}");
        }
        // No processor supports the call.
        let mut graph = parse(CONVOLUTION);
        let before = graph.nodes.len();
        let asked = &mut Vec::new();
        let changes = run(&mut graph, &mut |graph, node| {
            verify::verify(graph).unwrap();
            asked.push(node.operator);
            false
        });
        dead::run(&mut graph);
        assert_eq!((changes, graph.nodes.len()), (0, before));
        assert_eq!(asked[..], [Operator::ET_VK_Q8TA_CONV2D]);
    }
}
