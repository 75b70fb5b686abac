//! Lowers operators on int8 tensors to `cortex_m` kernels, which compute in integers and match
//! CMSIS-NN bit for bit.
//!
//! The input calls are those of [`passes::quantized`](crate::passes::quantized) and
//! [`passes::lookup`](crate::passes::lookup), whatever the program was exported for. Images are
//! permuted to channels last before a kernel and back after it; adjacent permutations cancel out
//! later. Weights, scales and biases must be constants.

mod convolution;
mod elementwise;
mod linear;
mod pooling;
mod scales;

use super::Rule;
use super::builder::Builder;
use crate::error::Error;
use crate::graph::{Graph, Node, Tensor, Value, ValueId};
use crate::operators::{Operator, QuantizedConvolution};
use crate::passes::uses::Uses;
use alloc::borrow::Cow;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::vec;
use alloc::vec::Vec;
use scales::Factor;
use torchlet_core::{Registry, ScalarType};

/// An operator, its rule, and the operator whose kernel the rule's calls need.
type Entry = (Operator, Rule, Operator);

const FAMILIES: &[&[Entry]] =
    &[convolution::RULES, elementwise::RULES, linear::RULES, pooling::RULES];

/// Lowest and highest quantized value.
const RANGE: [i64; 2] = [-128, 127];
/// Upper limit of accumulators.
const TWO_31: f64 = 2_147_483_648.0;
/// Permutation from `[batch, channels, rows, columns]` to `[batch, rows, columns, channels]`, and
/// its inverse.
const CHANNELS_LAST: [usize; 4] = [0, 2, 3, 1];
const CHANNELS_FIRST: [usize; 4] = [0, 3, 1, 2];

fn rule(node: &Node, registry: &Registry<'_>) -> Option<Rule> {
    let mut entries = FAMILIES.iter().flat_map(|family| family.iter());
    let (_, rule, kernel) = entries.find(|(operator, ..)| *operator == node.operator)?;
    kernel.instruction().is_some_and(|name| registry.has_operator(name)).then_some(*rule)
}

/// Whether a rule of this module exists for an operator. Excludes max pooling, whose operator is
/// not limited to quantized tensors.
pub(crate) fn has_rule(operator: Operator) -> bool {
    let mut entries = FAMILIES.iter().flat_map(|family| family.iter());
    operator != Operator::MAX_POOL2D_WITH_INDICES && entries.any(|(own, ..)| *own == operator)
}

/// Whether a single call can be lowered to integer kernels. [`run`] then lowers it, provided that
/// its parameters are constant by that time.
pub(crate) fn accepts(graph: &Graph<'_>, node: &Node, registry: &Registry<'_>) -> bool {
    let is_on_quantized = node.args.iter().any(|id| {
        let tensors = graph.items(id).iter().filter_map(|id| graph.tensor(*id));
        tensors.clone().any(|tensor| tensor.scalar_type == ScalarType::Char)
    });
    let Some(rule) = rule(node, registry).filter(|_| is_on_quantized) else {
        // Element moves work on any type.
        let name = node.operator.instruction().filter(|_| node.operator.traits().moves_elements);
        return is_on_quantized && name.is_some_and(|name| registry.has_operator(name));
    };
    let mut alone = graph.clone();
    // The bias may be computed by constant folding later. It has as many values as the scales.
    let is_list =
        |tensor: &&Tensor<'_>| tensor.scalar_type == ScalarType::Float && tensor.sizes.len() == 1;
    let lists = || node.args.iter().filter_map(|id| graph.tensor(*id)).filter(is_list);
    let scales = lists().find_map(|tensor| Some((tensor.sizes.clone(), tensor.data.as_ref()?)));
    for id in &node.args {
        if let (Some(Value::Tensor(tensor)), Some((sizes, data))) =
            (alone.values.get_mut(*id), &scales)
            && is_list(&&*tensor)
            && tensor.data.is_none()
            && tensor.sizes == *sizes
        {
            tensor.data = Some(Cow::Owned(vec![0; data.len()]));
        }
    }
    rule(&mut Builder::new(&mut alone), &node.args).is_ok()
}

/// Whether any call might be lowered to integer kernels.
pub(crate) fn has_calls(graph: &Graph<'_>, registry: &Registry<'_>) -> bool {
    graph.nodes.iter().any(|node| has_rule(node.operator) && rule(node, registry).is_some())
}

/// Lowers all calls that integer kernels can compute, and returns the number of lowered calls.
/// Other calls stay unchanged.
pub(crate) fn run(graph: &mut Graph<'_>, registry: &Registry<'_>) -> usize {
    let uses = Uses::of(graph);
    let bounds = Bounds::of(graph, &uses);
    let (mut changes, mut bounded) = (0, BTreeSet::new());
    let calls = core::mem::take(&mut graph.nodes);
    let mut builder = Builder::new(graph);
    for call in calls {
        let args = builder.renamed(&call.args);
        let out = args.last().copied();
        builder.begin(call.id);
        if let Some((source, out)) = out.and_then(|out| Some((*bounds.sources.get(&out)?, out)))
            && bounded.contains(&source)
            && builder.stand_in(source, out).is_ok()
        {
            changes += 1;
            continue;
        }
        let rule = rule(&call, registry).filter(|_| is_ours(&builder, &call, &uses));
        let made = rule.is_some_and(|rule| builder.attempt(|b| rule(b, &args)));
        if made {
            changes += 1;
            if let Some((out, limits)) = out.and_then(|out| Some((out, *bounds.limits.get(&out)?)))
                && limit(&mut builder, limits)
            {
                bounded.insert(out);
            }
        } else {
            builder.keep(Node { args, ..call });
        }
    }
    builder.finish();
    changes
}

/// Lookup tables that only clamp the result of the call before, whose kernel can clamp instead.
#[derive(Default)]
struct Bounds {
    /// Lowest and highest value of each clamped result.
    limits: BTreeMap<ValueId, [i64; 2]>,
    /// The result that each table reads, by the table's output.
    sources: BTreeMap<ValueId, ValueId>,
}

impl Bounds {
    fn of(graph: &Graph<'_>, uses: &Uses) -> Self {
        let mut bounds = Bounds::default();
        for node in &graph.nodes {
            let (Operator::Q8TA_LOOKUP, &[input, table, out]) = (node.operator, &node.args[..])
            else {
                continue;
            };
            let table = graph.tensor(table).filter(|table| table.changes != Some(true));
            let table = table.and_then(|table| table.data.as_deref());
            let Some(limits) = table.and_then(limits_of) else { continue };
            if uses.producer(input).is_some() && uses.count_of(input) == 1 {
                bounds.limits.insert(input, limits);
                bounds.sources.insert(out, input);
            }
        }
        bounds
    }
}

/// The limits of a table that is the identity between them.
fn limits_of(table: &[u8]) -> Option<[i64; 2]> {
    let value = |byte: &u8| i64::from(byte.cast_signed());
    let limits @ [low, high] = [value(table.first()?), value(table.last()?)];
    let [first, _] = RANGE;
    let mut values = (first..).zip(table);
    let limited = |(code, byte): (i64, &u8)| value(byte) == code.max(low).min(high);
    (low <= high && table.len() == 256 && values.all(limited)).then_some(limits)
}

/// Narrows the output range of the convolution that was added last. Returns whether there was one.
fn limit(b: &mut Builder<'_, '_>, limits: [i64; 2]) -> bool {
    let found = b.made().iter().position(|node| {
        matches!(
            node.operator,
            Operator::CORTEX_M_QUANTIZED_CONV2D_NHWC
                | Operator::CORTEX_M_QUANTIZED_DEPTHWISE_CONV2D_NHWC
                | Operator::CORTEX_M_QUANTIZED_TRANSPOSE_CONV2D_NHWC
        )
    });
    let node = found.and_then(|at| b.made().get(at).cloned());
    let Some(node) = node else { return false };
    // The range is followed by scratch tensors and the output.
    let behind = match node.operator {
        Operator::CORTEX_M_QUANTIZED_TRANSPOSE_CONV2D_NHWC => 3,
        _ => 2,
    };
    let Some(low) = node.args.len().checked_sub(behind + 2) else { return false };
    let Some(&[own_low, own_high]) = node.args.get(low..low + 2) else { return false };
    let (Ok(own_low), Ok(own_high)) = (b.int(own_low), b.int(own_high)) else { return false };
    let narrowed = [own_low.max(limits[0]), own_high.min(limits[1])];
    if narrowed[0] > narrowed[1] {
        return false;
    }
    let narrowed = narrowed.map(|bound| b.new_int(bound));
    let place = found.and_then(|at| b.made().get_mut(at));
    let slots = place.and_then(|node| node.args.get_mut(low..low + 2));
    slots.map(|slots| slots.copy_from_slice(&narrowed)).is_some()
}

/// Whether integer kernels compute all used outputs of a call: for max pooling, they do not compute
/// the indices.
fn is_ours(builder: &Builder<'_, '_>, call: &Node, uses: &Uses) -> bool {
    if call.operator != Operator::MAX_POOL2D_WITH_INDICES {
        return true;
    }
    let outs = builder.outs(&call.args).unwrap_or_default();
    outs.iter().skip(1).all(|id| uses.count_of(*id) == 0)
}

/// A constant tensor and its data.
fn constant<'b>(b: &'b Builder<'_, '_>, id: ValueId) -> Result<(&'b Tensor<'b>, &'b [u8]), Error> {
    match b.value(id)? {
        Value::Tensor(tensor @ Tensor { data: Some(data), .. }) if tensor.changes != Some(true) => {
            Ok((tensor, data))
        }
        _ => Err(Error::Unsupported(format!("value {id} that is not a constant tensor"))),
    }
}

/// The first `count` values of an `f32` constant.
fn floats(b: &Builder<'_, '_>, id: ValueId, count: usize) -> Result<Vec<f64>, Error> {
    let (tensor, data) = constant(b, id)?;
    let numbers = data.as_chunks::<4>().0.iter().map(|bytes| f64::from(f32::from_le_bytes(*bytes)));
    let numbers: Vec<f64> = numbers.collect();
    match tensor.scalar_type {
        ScalarType::Float if tensor.sizes == [2, count] => {
            Err(Error::unsupported("exact scales and biases of a quantized layer"))
        }
        ScalarType::Float if numbers.len() >= count => {
            Ok(numbers.into_iter().take(count).collect())
        }
        other => Err(Error::Unsupported(format!(
            "constant of {} values of {other}; expected {count} float32 values",
            numbers.len()
        ))),
    }
}

/// Adds a constant.
fn new_constant<'p>(
    b: &mut Builder<'_, 'p>,
    scalar_type: ScalarType,
    sizes: Vec<usize>,
    data: Cow<'p, [u8]>,
) -> ValueId {
    b.push(Value::Tensor(Tensor {
        scalar_type,
        host_type: scalar_type,
        sizes,
        dynamic: false,
        data: Some(data),
        changes: Some(false),
    }))
}

/// Adds a one-dimensional `i32` constant.
fn new_integers(b: &mut Builder<'_, '_>, numbers: &[i32]) -> ValueId {
    let data: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
    new_constant(b, ScalarType::Int, [numbers.len()].to_vec(), Cow::Owned(data))
}

/// An empty tensor for the scratch argument that some schemas have. The kernels use the runtime's
/// scratch memory instead.
fn no_scratch(b: &mut Builder<'_, '_>) -> ValueId {
    new_constant(b, ScalarType::Char, [0].to_vec(), Cow::Borrowed(&[]))
}

/// Scale and zero point of a tensor.
#[derive(Debug, Clone, Copy)]
struct Quantization {
    scale: f64,
    zero: i64,
}

impl Quantization {
    /// Reads scale and zero point.
    ///
    /// # Errors
    /// The scale is not positive and normal, or the zero point is not an int8.
    fn of(b: &Builder<'_, '_>, [scale, zero]: [ValueId; 2]) -> Result<Self, Error> {
        let (scale, zero) = (b.number(scale)?, b.int(zero)?);
        // Programs may contain any values, and accumulators have room only for int8 zero points.
        if i8::try_from(zero).is_err() || !scale.is_normal() || scale < 0.0 {
            return Err(Error::Unsupported(format!(
                "quantization with scale {scale} and zero point {zero}; expected a positive scale \
                 and a zero point from -128 to 127"
            )));
        }
        Ok(Quantization { scale, zero })
    }
}

/// Produces the image `out` by a call on channels-last images. The permuted input is the first
/// argument, `rest` follows.
fn on_image(
    b: &mut Builder<'_, '_>,
    operator: Operator,
    input: ValueId,
    rest: &[ValueId],
    out: ValueId,
) -> Result<(), Error> {
    let made = b.info(out)?;
    if b.info(input)?.rank() != 4 || made.rank() != 4 {
        return Err(Error::Unsupported(format!(
            "images of input shape {:?}; expected 4 dims of input and output",
            made.sizes
        )));
    }
    let input = b.permute(input, &CHANNELS_LAST)?;
    let sizes = CHANNELS_LAST.iter().map(|dim| made.size(*dim)).collect();
    let inputs: Vec<ValueId> = [&[input], rest].concat();
    let result = b.call(operator, &inputs, made.with_sizes(sizes));
    let result = b.permute(result, &CHANNELS_FIRST)?;
    b.finish_with(result, out)
}

/// Requantization factors and biases of output channels.
struct Channels {
    factors: Vec<Factor>,
    bias: Option<Vec<i32>>,
}

impl Channels {
    /// Parameters of a convolution with `count` output channels, each a sum over `depth` products.
    fn of_convolution(
        b: &Builder<'_, '_>,
        call: &QuantizedConvolution,
        count: usize,
        depth: usize,
    ) -> Result<(Self, [Quantization; 2]), Error> {
        let (Some(from), Some(to)) = (call.input_parameters, call.output_parameters) else {
            return Err(Error::unsupported("convolution without quantized input and output"));
        };
        Self::of(b, [from, to], [call.weight_scales, call.bias], count, depth)
    }

    /// Parameters of `count` output channels, each a sum over `depth` products: from the
    /// quantization of input and output, the weight scales, and the bias.
    fn of(
        b: &Builder<'_, '_>,
        [from, to]: [[ValueId; 2]; 2],
        [scales, bias]: [ValueId; 2],
        count: usize,
        depth: usize,
    ) -> Result<(Self, [Quantization; 2]), Error> {
        let from = Quantization::of(b, from)?;
        let to = Quantization::of(b, to)?;
        let scales = floats(b, scales, count)?;
        let units: Vec<f64> = scales.iter().map(|scale| from.scale * scale).collect();
        // A left shift must not overflow 32 bits.
        let largest = (depth as f64) * 255.0 * 128.0;
        let fits = |factor: &Factor| largest * f64::from(1u32 << factor.shift.max(0)) < TWO_31;
        let factors = units.iter().map(|unit| Factor::of(unit / to.scale));
        let factors: Vec<Factor> = factors.collect::<Result<_, Error>>()?;
        if !factors.iter().all(fits) {
            return Err(Error::unsupported(
                "output scale far smaller than the scales of input and weights",
            ));
        }
        let bias = match b.optional(bias) {
            // Support is checked before constant folding. If the bias did not become constant,
            // lowering fails here.
            Some(bias) => Some(quantized_bias(&floats(b, bias, count)?, &units)?),
            None => None,
        };
        Ok((Channels { factors, bias }, [from, to]))
    }

    fn fractions(&self) -> Vec<i32> {
        self.factors.iter().map(|factor| factor.fraction).collect()
    }

    fn shifts(&self) -> Vec<i32> {
        self.factors.iter().map(|factor| factor.shift).collect()
    }

    fn bias(&self, b: &mut Builder<'_, '_>) -> ValueId {
        match &self.bias {
            Some(bias) => new_integers(b, bias),
            None => b.none(),
        }
    }
}

/// Quantizes a bias to the accumulator scale of each channel.
fn quantized_bias(bias: &[f64], units: &[f64]) -> Result<Vec<i32>, Error> {
    let quantized = bias.iter().zip(units).map(|(bias, unit)| {
        let steps = bias / unit;
        let is_small = steps.abs() < f64::from(1 << 30);
        // Rounds to nearest, ties away from zero.
        let half = if steps < 0.0 { -0.5 } else { 0.5 };
        is_small.then_some((steps + half) as i32)
    });
    let quantized: Option<Vec<i32>> = quantized.collect();
    quantized
        .ok_or_else(|| Error::unsupported("bias of more than 30 bits at the accumulator's scale"))
}

/// Lowest quantized result of an activation.
fn lowest(
    b: &Builder<'_, '_>,
    activation: Option<ValueId>,
    to: Quantization,
) -> Result<i64, Error> {
    let [low, _] = RANGE;
    Ok(if super::quantized::is_relu(b, activation)? { to.zero.max(low) } else { low })
}

#[cfg(test)]
mod tests;
