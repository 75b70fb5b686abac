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
//! quantized values may round to the other one.

mod activations;
mod layers;
#[cfg(test)]
mod tests;

use super::rewrite::{Rewriter, each_call};
use super::uses::inputs;
use crate::graph::{Graph, Node, Tensor, Value, ValueId};
use crate::operators::{ClampArgs, HardtanhArgs, Operator, Q8taReluArgs};
use activations::{averaged, largest, moved, softmax};
use alloc::borrow::Cow;
use alloc::vec;
use alloc::vec::Vec;
use torchlet_core::ScalarType;

/// Replaces float patterns by int8 operators. `takes` decides whether the processor supports a
/// call. Returns the number of replacements.
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
    let (operator, args) = layers::call(rewriter, result, out)?;
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
    let [input_scale, input_zero_point] = from.values(rewriter);
    let [output_scale, output_zero_point] = result.codes.values(rewriter);
    let call =
        Q8taReluArgs { input, input_scale, input_zero_point, output_scale, output_zero_point, out };
    let inputs = call.inputs();
    if !rewriter.is_taken(Operator::ET_VK_Q8TA_RELU, &inputs, out, takes) {
        return None;
    }
    rewriter.call(Operator::ET_VK_Q8TA_RELU, &inputs, out);
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
    let node = rewriter.producer(id).filter(|_| rewriter.uses(id) == 1)?;
    let number = |id: Option<ValueId>, absent: f64| match id {
        id if rewriter.is_none(id.as_ref()) => Some(absent),
        id => rewriter.number(id?),
    };
    let limits = match node.operator {
        Operator::RELU => [0.0, f64::INFINITY],
        Operator::HARDTANH => {
            let call = HardtanhArgs::of(node).ok()?;
            [number(call.min_val, -1.0)?, number(call.max_val, 1.0)?]
        }
        Operator::CLAMP => {
            let call = ClampArgs::of(node).ok()?;
            [number(call.min, f64::NEG_INFINITY)?, number(call.max, f64::INFINITY)?]
        }
        _ => return None,
    };
    Some((*inputs(node).first()?, limits))
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
