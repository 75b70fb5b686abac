//! Operators on 8-bit quantized tensors in integer arithmetic: each becomes a call of a `cortex_m` kernel, which computes as CMSIS-NN
//! does, bit for bit.
//!
//! The calls are those that [`passes::quantized`](crate::passes::quantized) and [`passes::lookup`](crate::passes::lookup) make, whatever
//! the program was exported for. Images are permuted to channels last before a kernel and back behind it; permutations that meet
//! cancel out later. Weights, scales and biases must be constants.

mod convolution;
mod elementwise;
mod linear;
mod pooling;
mod scales;

use super::Rule;
use super::builder::Builder;
use crate::error::Error;
use crate::graph::{Graph, Node, Tensor, Value, ValueId};
use crate::operators::Operator;
use crate::passes::uses::Uses;
use alloc::borrow::Cow;
use alloc::format;
use alloc::vec::Vec;
use scales::Factor;
use torchlet_core::{Registry, ScalarType};

/// Rules for operators, and the operators whose kernels their calls need.
type Entry = (Operator, Rule, Operator);

const FAMILIES: &[&[Entry]] =
    &[convolution::RULES, elementwise::RULES, linear::RULES, pooling::RULES];

/// The lowest and the highest quantized value.
const RANGE: [i64; 2] = [-128, 127];
/// Sums are below it.
const TWO_31: f64 = 2_147_483_648.0;
/// From batch, channels, rows, columns to batch, rows, columns, channels, and back.
const CHANNELS_LAST: [usize; 4] = [0, 2, 3, 1];
const CHANNELS_FIRST: [usize; 4] = [0, 3, 1, 2];

fn rule(node: &Node, registry: &Registry<'_>) -> Option<Rule> {
    let mut entries = FAMILIES.iter().flat_map(|family| family.iter());
    let (_, rule, kernel) = entries.find(|(operator, ..)| *operator == node.operator)?;
    kernel.instruction().is_some_and(|name| registry.has_operator(name)).then_some(*rule)
}

/// Whether there is a rule for an operator that passes make for quantized tensors.
pub(crate) fn has_rule(operator: Operator) -> bool {
    let mut entries = FAMILIES.iter().flat_map(|family| family.iter());
    // Maxima are those of any elements.
    operator != Operator::MAX_POOL2D_WITH_INDICES && entries.any(|(own, ..)| *own == operator)
}

/// Whether a call, seen alone, has an integer form: then [`run`] makes it, if what the call reads is constant by then.
pub(crate) fn accepts(graph: &Graph<'_>, node: &Node, registry: &Registry<'_>) -> bool {
    let is_on_quantized = node.args.iter().any(|id| {
        let tensors = graph.items(id).iter().filter_map(|id| graph.tensor(*id));
        tensors.clone().any(|tensor| tensor.scalar_type == ScalarType::Char)
    });
    let Some(rule) = rule(node, registry).filter(|_| is_on_quantized) else {
        // Calls that move elements do so with elements of any type.
        let name = node.operator.instruction().filter(|_| node.operator.moves_elements());
        return is_on_quantized && name.is_some_and(|name| registry.has_operator(name));
    };
    let mut alone = graph.clone();
    let zeros = [0u8; 4];
    for id in &node.args {
        // A bias may be the result of calls that constant folding computes later.
        if let Some(Value::Tensor(tensor)) = alone.values.get_mut(*id)
            && let ([count], ScalarType::Float, None) =
                (&tensor.sizes[..], tensor.scalar_type, &tensor.data)
        {
            tensor.data = Some(Cow::Owned(zeros.repeat(*count)));
        }
    }
    rule(&mut Builder::new(&mut alone), &node.args).is_ok()
}

/// Lowers all calls that have an integer form. Returns how many there were; others stay as they are.
pub(crate) fn run(graph: &mut Graph<'_>, registry: &Registry<'_>) -> usize {
    if !graph.nodes.iter().any(|node| rule(node, registry).is_some()) {
        return 0;
    }
    let uses = Uses::of(graph);
    let mut changes = 0;
    let calls = core::mem::take(&mut graph.nodes);
    let mut builder = Builder::new(graph);
    for call in calls {
        let args = builder.renamed(&call.args);
        let rule = rule(&call, registry).filter(|_| is_ours(&builder, &call, &uses));
        builder.begin(call.id);
        let made = rule.is_some_and(|rule| builder.attempt(|b| rule(b, &args)));
        if made {
            changes += 1;
        } else {
            builder.keep(Node { args, ..call });
        }
    }
    builder.finish();
    changes
}

/// Whether a call is on quantized tensors, and nobody reads what the integer form does not make.
fn is_ours(builder: &Builder<'_, '_>, call: &Node, uses: &Uses) -> bool {
    if call.operator != Operator::MAX_POOL2D_WITH_INDICES {
        return true;
    }
    let outs = builder.outs(&call.args).unwrap_or_default();
    outs.iter().skip(1).all(|id| uses.count_of(*id) == 0)
}

/// The data of a constant tensor.
fn constant<'b>(b: &'b Builder<'_, '_>, id: ValueId) -> Result<(&'b Tensor<'b>, &'b [u8]), Error> {
    match b.value(id)? {
        Value::Tensor(tensor @ Tensor { data: Some(data), .. }) if tensor.changes != Some(true) => {
            Ok((tensor, data))
        }
        _ => Err(Error::Unsupported(format!("value {id} is no constant"))),
    }
}

/// The elements of a constant of 32-bit floats.
fn floats(b: &Builder<'_, '_>, id: ValueId, count: usize) -> Result<Vec<f64>, Error> {
    let (tensor, data) = constant(b, id)?;
    let numbers = data.as_chunks::<4>().0.iter().map(|bytes| f64::from(f32::from_le_bytes(*bytes)));
    let numbers: Vec<f64> = numbers.collect();
    match tensor.scalar_type {
        ScalarType::Float if numbers.len() >= count => {
            Ok(numbers.into_iter().take(count).collect())
        }
        other => Err(Error::Unsupported(format!("{count} numbers in a constant of {other}"))),
    }
}

/// A new constant.
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

/// A new constant of 32-bit integers, in one dimension.
fn new_integers(b: &mut Builder<'_, '_>, numbers: &[i32]) -> ValueId {
    let data: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
    new_constant(b, ScalarType::Int, [numbers.len()].to_vec(), Cow::Owned(data))
}

/// The scratch tensor that the schemas of some operators have. The kernels use the runtime's scratch memory instead.
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
    /// Those that are arguments `[scale, zero]`.
    fn of(b: &Builder<'_, '_>, args: &[ValueId], [scale, zero]: [usize; 2]) -> Result<Self, Error> {
        Ok(Quantization { scale: b.number(args, scale)?, zero: b.int(args, zero)? })
    }
}

/// Makes an image `out` by a call on channels-last images: the first argument, permuted, is followed by these.
fn on_image(
    b: &mut Builder<'_, '_>,
    operator: Operator,
    input: ValueId,
    rest: &[ValueId],
    out: ValueId,
) -> Result<(), Error> {
    let made = b.info(out)?;
    if b.info(input)?.rank() != 4 || made.rank() != 4 {
        return Err(Error::Unsupported(format!("{:?} is no batch of images", made.sizes)));
    }
    let input = b.permute(input, &CHANNELS_LAST)?;
    let sizes = CHANNELS_LAST.iter().map(|dim| made.size(*dim)).collect();
    let inputs: Vec<ValueId> = [&[input], rest].concat();
    let result = b.call(operator, &inputs, made.with_sizes(sizes));
    let result = b.permute(result, &CHANNELS_FIRST)?;
    b.finish_with(result, out)
}

/// Factors and biases of the output channels of a convolution or a linear layer.
struct Channels {
    factors: Vec<Factor>,
    bias: Option<Vec<i32>>,
}

impl Channels {
    /// Those of `count` channels, each a sum of `depth` products, from the arguments that all such calls have in the same places: scale and zero point of the input (1, 2),
    /// scales of the weights (5), scale and zero point of the output (6, 7), bias (8).
    fn of(
        b: &Builder<'_, '_>,
        args: &[ValueId],
        count: usize,
        depth: usize,
    ) -> Result<(Self, [Quantization; 2]), Error> {
        let from = Quantization::of(b, args, [1, 2])?;
        let to = Quantization::of(b, args, [6, 7])?;
        let scales = floats(b, b.arg(args, 5)?, count)?;
        let units: Vec<f64> = scales.iter().map(|scale| from.scale * scale).collect();
        // What is shifted to the left must fit 32 bits.
        let largest = (depth as f64) * 255.0 * 128.0;
        let fits = |factor: &Factor| largest * f64::from(1u32 << factor.shift.max(0)) < TWO_31;
        let factors = units.iter().map(|unit| Factor::of(unit / to.scale));
        let factors: Vec<Factor> = factors.collect::<Result<_, Error>>()?;
        if !factors.iter().all(fits) {
            return Err(Error::unsupported(
                "sums that are quantized far finer than their products",
            ));
        }
        let bias = match b.optional(args, 8) {
            // Calls are asked for before constants are folded; a bias that is none then stops them here.
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

/// A bias in units of the sums of each channel.
fn quantized_bias(bias: &[f64], units: &[f64]) -> Result<Vec<i32>, Error> {
    let quantized = bias.iter().zip(units).map(|(bias, unit)| {
        let steps = bias / unit;
        let is_small = steps.abs() < f64::from(1 << 30);
        // To the nearest, halves away from zero.
        let half = if steps < 0.0 { -0.5 } else { 0.5 };
        is_small.then_some((steps + half) as i32)
    });
    let quantized: Option<Vec<i32>> = quantized.collect();
    quantized.ok_or_else(|| Error::unsupported("a bias that exceeds 30 bits"))
}

/// The lowest quantized value that an activation, argument `place`, leaves.
fn lowest(
    b: &Builder<'_, '_>,
    args: &[ValueId],
    place: usize,
    to: Quantization,
) -> Result<i64, Error> {
    let [low, _] = RANGE;
    Ok(if super::quantized::is_relu(b, args, place)? { to.zero.max(low) } else { low })
}

#[cfg(test)]
mod tests;
