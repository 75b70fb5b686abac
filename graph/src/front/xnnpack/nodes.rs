//! Converts the calls of a blob, with one rule per kind of call.

use super::builder::{Builder, Limits};
use super::convolution::{Kind, convolution, mean, pool, resize};
use super::schema::{
    AttentionTable, BinaryTable, CatTable, ConvolutionTable, LinearTable, NodeTable, PadTable,
    PoolTable, ReshapeTable, ResizeTable, SliceTable, SlopeTable, TransposeTable, UnaryTable,
};
use super::values::{Coding, float};
use crate::budget::Budget;
use crate::error::Error;
use crate::graph::{Value, ValueId};
use crate::operators::Operator;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use torchlet_core::ScalarType;
use torchlet_core::format::flatbuffer::Vector;

/// Kinds of calls, in the order of the schema's union, which starts at 1.
macro_rules! kinds {
    ($($kind:ident,)*) => {
        /// Kind of a call.
        #[allow(clippy::upper_case_acronyms, reason = "names of the schema")]
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(super) enum Call { $($kind),* }

        const KINDS: &[Call] = &[$(Call::$kind),*];
    };
}

kinds! {
    Add,
    FullyConnected,
    Softmax,
    Sigmoid,
    StaticTranspose,
    Clamp,
    Conv2d,
    Div,
    StaticResizeBilinear2D,
    StaticConstantPad,
    AvgPooling2d,
    Minimum,
    DepthwiseConv2d,
    MaxPooling2d,
    Multiply,
    Subtract,
    Floor,
    Convert,
    GlobalAvgPooling2d,
    StaticReshape,
    ArgMaxPooling2d,
    SquareRoot,
    Ceiling,
    Hardswish,
    LeakyReLU,
    Maximum,
    Negate,
    Square,
    ELU,
    Abs,
    PReLU,
    Concatenate2,
    Concatenate3,
    Concatenate4,
    StaticSlice,
    ScaledDotProductAttention,
    BatchMatrixMultiply,
    Concatenate5,
    ConvTranspose2d,
    ReciprocalSquareRoot,
    Log,
    Gelu,
    Tanh,
    Exp,
    Sin,
    Copy,
    Cos,
}

/// Returns the kind with this union type.
pub(super) fn kind(number: u8) -> Result<Call, Error> {
    let kind = usize::from(number).checked_sub(1).and_then(|place| KINDS.get(place));
    kind.copied().ok_or_else(|| Error::Unsupported(format!("unknown XNNPACK node type {number}")))
}

/// Returns the union type of a kind.
#[cfg(test)]
pub(super) fn number(name: &str) -> Option<u8> {
    let place = KINDS.iter().position(|kind| format!("{kind:?}") == name)?;
    u8::try_from(place + 1).ok()
}

/// Adds a call.
///
/// # Errors
/// The call is malformed or unsupported.
pub(super) fn add(
    builder: &mut Builder<'_>,
    node: &NodeTable<'_>,
    budget: &mut Budget,
) -> Result<(), Error> {
    let (number, call) = (node.debug_handle()?, kind(node.kind()?)?);
    builder.begin(number);
    let added = add_call(builder, node, call, budget);
    added.map_err(|error| error.at(number, &format!("{call:?}")))
}

fn add_call(
    builder: &mut Builder<'_>,
    node: &NodeTable<'_>,
    call: Call,
    budget: &mut Budget,
) -> Result<(), Error> {
    let table =
        node.0.union_value(1)?.ok_or_else(|| Error::invalid("the node has no description"))?;
    let limits = match node.limits()? {
        Some(limits) => Some(Limits { low: float(limits.low()?), high: float(limits.high()?) }),
        None => None,
    };
    match call {
        Call::FullyConnected => linear(builder, &LinearTable(table), limits),
        Call::Conv2d => convolution(builder, &ConvolutionTable(table), Kind::Plain, limits),
        Call::DepthwiseConv2d => {
            convolution(builder, &ConvolutionTable(table), Kind::Depthwise, limits)
        }
        Call::ConvTranspose2d => {
            convolution(builder, &ConvolutionTable(table), Kind::Transposed, limits)
        }
        Call::MaxPooling2d => pool(builder, &PoolTable(table), true, limits),
        Call::AvgPooling2d => pool(builder, &PoolTable(table), false, limits),
        Call::StaticResizeBilinear2D => resize(builder, &ResizeTable(table), limits),
        Call::GlobalAvgPooling2d => {
            let (input, out) = ends(builder, &UnaryTable(table))?;
            mean(builder, input, out, limits)
        }
        Call::StaticTranspose => transpose(builder, &TransposeTable(table), budget),
        Call::StaticReshape => reshape(builder, &ReshapeTable(table), budget),
        Call::StaticSlice => slice(builder, &SliceTable(table), budget),
        Call::StaticConstantPad => pad(builder, &PadTable(table), budget, limits),
        Call::Concatenate2 => cat(builder, &CatTable(table), 2),
        Call::Concatenate3 => cat(builder, &CatTable(table), 3),
        Call::Concatenate4 => cat(builder, &CatTable(table), 4),
        Call::Concatenate5 => cat(builder, &CatTable(table), 5),
        Call::Copy => {
            let (input, out) = ends(builder, &UnaryTable(table))?;
            moved(builder, input, out, |_, value| Ok(value))
        }
        Call::Convert => {
            let (input, out) = ends(builder, &UnaryTable(table))?;
            let value = builder.numbers(input)?;
            builder.store(value, out, limits)
        }
        Call::BatchMatrixMultiply => product(builder, &BinaryTable(table), limits),
        Call::ScaledDotProductAttention => attention(builder, &AttentionTable(table)),
        Call::PReLU => learned_slope(builder, &BinaryTable(table), limits),
        Call::LeakyReLU | Call::ELU => {
            let table = SlopeTable(table);
            let (input, out) = (builder.id(table.input()?)?, builder.id(table.output()?)?);
            let value = builder.numbers(input)?;
            let slope = builder.push(Value::Double(float(table.slope()?).into()));
            let (operator, inputs) = match call {
                Call::ELU => {
                    let one = builder.int(1);
                    (Operator::ELU, Vec::from([value, slope, one, one]))
                }
                _ => (Operator::LEAKY_RELU, Vec::from([value, slope])),
            };
            let sizes = builder.sizes(value)?;
            let made = builder.call(operator, &inputs, &sizes)?;
            builder.store(made, out, limits)
        }
        _ => match binary_operator(call) {
            Some(operator) => binary(builder, &BinaryTable(table), operator, limits),
            None => unary(builder, &UnaryTable(table), call, limits),
        },
    }
}

fn ends(builder: &Builder<'_>, table: &UnaryTable<'_>) -> Result<(ValueId, ValueId), Error> {
    Ok((builder.id(table.input()?)?, builder.id(table.output()?)?))
}

fn binary_operator(call: Call) -> Option<Operator> {
    Some(match call {
        Call::Add => Operator::ADD_TENSOR,
        Call::Subtract => Operator::SUB_TENSOR,
        Call::Multiply => Operator::MUL_TENSOR,
        Call::Div => Operator::DIV_TENSOR,
        Call::Minimum => Operator::MINIMUM,
        Call::Maximum => Operator::MAXIMUM,
        _ => return None,
    })
}

/// Reads both operands of a call, cast to a common dtype.
fn operands(
    builder: &mut Builder<'_>,
    table: &BinaryTable<'_>,
) -> Result<([ValueId; 2], ValueId), Error> {
    let (first, second) = (builder.id(table.first()?)?, builder.id(table.second()?)?);
    let out = builder.id(table.output()?)?;
    let (first, second) = (builder.numbers(first)?, builder.numbers(second)?);
    let (one, other) = (builder.tensor(first)?.scalar_type, builder.tensor(second)?.scalar_type);
    let computing = if one == other { one } else { ScalarType::Float };
    Ok(([builder.cast(first, computing)?, builder.cast(second, computing)?], out))
}

fn binary(
    builder: &mut Builder<'_>,
    table: &BinaryTable<'_>,
    operator: Operator,
    limits: Option<Limits>,
) -> Result<(), Error> {
    let ([first, second], out) = operands(builder, table)?;
    let mut inputs = Vec::from([first, second]);
    if matches!(operator, Operator::ADD_TENSOR | Operator::SUB_TENSOR) {
        inputs.push(builder.int(1));
    }
    let sizes = builder.sizes(out)?;
    let made = builder.call(operator, &inputs, &sizes)?;
    builder.store(made, out, limits)
}

fn unary(
    builder: &mut Builder<'_>,
    table: &UnaryTable<'_>,
    call: Call,
    limits: Option<Limits>,
) -> Result<(), Error> {
    let operator = match call {
        Call::Clamp => None,
        Call::Sigmoid => Some(Operator::SIGMOID),
        Call::Floor => Some(Operator::FLOOR),
        Call::Ceiling => Some(Operator::CEIL),
        Call::SquareRoot => Some(Operator::SQRT),
        Call::ReciprocalSquareRoot => Some(Operator::RSQRT),
        Call::Hardswish => Some(Operator::HARDSWISH),
        Call::Negate => Some(Operator::NEG),
        Call::Square => Some(Operator::MUL_TENSOR),
        Call::Abs => Some(Operator::ABS),
        Call::Log => Some(Operator::LOG),
        Call::Gelu => Some(Operator::GELU),
        Call::Tanh => Some(Operator::TANH),
        Call::Exp => Some(Operator::EXP),
        Call::Sin => Some(Operator::SIN),
        Call::Cos => Some(Operator::COS),
        Call::Softmax => Some(Operator::SOFTMAX),
        _ => return Err(Error::Unsupported(format!("XNNPACK node {call:?}"))),
    };
    let (input, out) = ends(builder, table)?;
    let value = builder.numbers(input)?;
    let sizes = builder.sizes(value)?;
    let Some(operator) = operator else { return builder.store(value, out, limits) };
    let mut inputs = Vec::from([value]);
    match operator {
        Operator::MUL_TENSOR => inputs.push(value),
        Operator::GELU => inputs.push(builder.push(Value::String(String::from("none")))),
        Operator::SOFTMAX => {
            inputs.push(builder.int(-1));
            inputs.push(builder.push(Value::Bool(false)));
        }
        _ => {}
    }
    let made = builder.call(operator, &inputs, &sizes)?;
    builder.store(made, out, limits)
}

/// Adds a linear layer with weights `[outputs, inputs]`, transposed if a flag says so.
fn linear(
    builder: &mut Builder<'_>,
    table: &LinearTable<'_>,
    limits: Option<Limits>,
) -> Result<(), Error> {
    /// `XNN_FLAG_TRANSPOSE_WEIGHTS`
    const TRANSPOSED: u32 = 1;
    let (input, filter) = (builder.id(table.input()?)?, builder.id(table.filter()?)?);
    let out = builder.id(table.output()?)?;
    let (input, filter) = (builder.numbers(input)?, builder.numbers(filter)?);
    let mut parts = Vec::from([input, filter]);
    if table.bias()? != u32::MAX {
        let bias = builder.id(table.bias()?)?;
        parts.push(builder.numbers(bias)?);
    }
    builder.make_alike(&mut parts)?;
    if table.flags()? & TRANSPOSED != 0
        && let Some(filter) = parts.get_mut(1)
    {
        *filter = builder.permuted(*filter, &[1, 0])?;
    }
    if parts.len() == 2 {
        parts.push(builder.none());
    }
    let sizes = builder.sizes(out)?;
    let made = builder.call(Operator::LINEAR, &parts, &sizes)?;
    builder.store(made, out, limits)
}

/// Adds a batched matrix multiplication.
fn product(
    builder: &mut Builder<'_>,
    table: &BinaryTable<'_>,
    limits: Option<Limits>,
) -> Result<(), Error> {
    /// `XNN_FLAG_TRANSPOSE_B`
    const TRANSPOSED: u32 = 1;
    let ([first, mut second], out) = operands(builder, table)?;
    if table.flags()? & TRANSPOSED != 0 {
        let rank = builder.sizes(second)?.len();
        let mut order: Vec<usize> = (0..rank).collect();
        let swapped = order.get_mut(rank.saturating_sub(2)..);
        swapped
            .ok_or_else(|| Error::Invalid(format!("rhs: expected at least 2 dims, found {rank}")))?
            .reverse();
        second = builder.permuted(second, &order)?;
    }
    let sizes = builder.sizes(out)?;
    let (left, right) = (builder.sizes(first)?, builder.sizes(second)?);
    let batch = |sizes: &[usize]| -> Option<(Vec<usize>, [usize; 2])> {
        let (batch, last) = sizes.split_last_chunk::<2>()?;
        Some((batch.to_vec(), *last))
    };
    let (Some((batch, [rows, depth])), Some((other, [_, columns]))) = (batch(&left), batch(&right))
    else {
        return Err(Error::Invalid(format!(
            "operands: expected at least 2 dims, found shapes {left:?} and {right:?}"
        )));
    };
    if batch != other || (builder.is_dynamic() && batch.len() != 1) {
        return Err(Error::Unsupported(format!(
            "a batched GEMM of shapes {left:?} and {right:?}, with batch dims that differ or, for \
             dynamic shapes, are not one"
        )));
    }
    let count = batch.iter().try_fold(1usize, |count, size| count.checked_mul(*size));
    let count = count
        .ok_or_else(|| Error::Invalid(format!("the batch size of shape {left:?} overflows")))?;
    let first = builder.view(first, &[count, rows, depth])?;
    let second = builder.view(second, &[count, depth, columns])?;
    let made = builder.call(Operator::BMM, &[first, second], &[count, rows, columns])?;
    let made = builder.view(made, &sizes)?;
    builder.store(made, out, limits)
}

/// Adds attention with a per-channel scale on the queries.
fn attention(builder: &mut Builder<'_>, table: &AttentionTable<'_>) -> Result<(), Error> {
    let mut of = |number: u32| -> Result<ValueId, Error> {
        let id = builder.id(number)?;
        builder.numbers(id)
    };
    let (query, key, value) = (of(table.query()?)?, of(table.key()?)?, of(table.value()?)?);
    let (scale, mask) = (of(table.scale()?)?, of(table.mask()?)?);
    let out = builder.id(table.output()?)?;
    let (scaled, sizes) = (builder.sizes(query)?, builder.sizes(out)?);
    let query = builder.call(Operator::MUL_TENSOR, &[query, scale], &scaled)?;
    let one = builder.push(Value::Double(1.0));
    let not_causal = builder.push(Value::None);
    let inputs = [query, key, value, mask, one, not_causal];
    let made = builder.call(Operator::ATTENTION, &inputs, &sizes)?;
    builder.store(made, out, None)
}

/// Adds a PReLU: `max(x, 0) + slope * min(x, 0)`.
fn learned_slope(
    builder: &mut Builder<'_>,
    table: &BinaryTable<'_>,
    limits: Option<Limits>,
) -> Result<(), Error> {
    let ([value, slope], out) = operands(builder, table)?;
    let sizes = builder.sizes(value)?;
    let above = builder.call(Operator::RELU, &[value], &sizes)?;
    let (none, zero) = (builder.none(), builder.push(Value::Double(0.0)));
    let below = builder.call(Operator::CLAMP, &[value, none, zero], &sizes)?;
    let below = builder.call(Operator::MUL_TENSOR, &[below, slope], &sizes)?;
    let one = builder.int(1);
    let made = builder.call(Operator::ADD_TENSOR, &[above, below, one], &sizes)?;
    builder.store(made, out, limits)
}

/// Adds calls that only move elements. They run on the quantized tensor if input and output have
/// the same quantization.
fn moved<'p>(
    builder: &mut Builder<'p>,
    input: ValueId,
    out: ValueId,
    calls: impl FnOnce(&mut Builder<'p>, ValueId) -> Result<ValueId, Error>,
) -> Result<(), Error> {
    let (from, to) = (builder.coding(input), builder.coding(out));
    if from == to && matches!(from, Coding::PerTensor { .. }) {
        // Checks that the input is already computed.
        builder.numbers(input)?;
        let made = calls(builder, input)?;
        return builder.store_codes(made, out);
    }
    let value = builder.numbers(input)?;
    let made = calls(builder, value)?;
    builder.store(made, out, None)
}

fn numbers(vector: Vector<'_, u32>, budget: &mut Budget) -> Result<Vec<usize>, Error> {
    let large = |number: u32| Error::Invalid(format!("size {number} exceeds 2^31 - 1"));
    let size = |number: u32| i32::try_from(number).ok().and_then(|size| usize::try_from(size).ok());
    let numbers = budget.all(vector)?.into_iter();
    numbers.map(|number| size(number).ok_or_else(|| large(number))).collect()
}

fn transpose(
    builder: &mut Builder<'_>,
    table: &TransposeTable<'_>,
    budget: &mut Budget,
) -> Result<(), Error> {
    let order = numbers(table.order()?, budget)?;
    let (input, out) = (builder.id(table.input()?)?, builder.id(table.output()?)?);
    moved(builder, input, out, |builder, value| builder.permuted(value, &order))
}

/// Adds a reshape; one size may be inferred.
fn reshape(
    builder: &mut Builder<'_>,
    table: &ReshapeTable<'_>,
    budget: &mut Budget,
) -> Result<(), Error> {
    let list = numbers(table.sizes()?, budget)?;
    let (input, out) = (builder.id(table.input()?)?, builder.id(table.output()?)?);
    let sizes = builder.sizes(out)?;
    moved(builder, input, out, |builder, value| {
        if !builder.is_dynamic() {
            return builder.view(value, &sizes);
        }
        let left = list.iter().map(|size| if *size == 0 { -1 } else { *size as i64 });
        let list = builder.push(Value::IntList(left.collect()));
        builder.call(Operator::VIEW_COPY, &[value, list], &sizes)
    })
}

fn slice(
    builder: &mut Builder<'_>,
    table: &SliceTable<'_>,
    budget: &mut Budget,
) -> Result<(), Error> {
    let offsets = numbers(table.offsets()?, budget)?;
    let lengths = numbers(table.sizes()?, budget)?;
    let (input, out) = (builder.id(table.input()?)?, builder.id(table.output()?)?);
    moved(builder, input, out, |builder, mut value| {
        for (dim, (offset, length)) in offsets.iter().zip(&lengths).enumerate() {
            let mut sizes = builder.sizes(value)?;
            let size = sizes.get_mut(dim);
            let size = size.ok_or_else(|| {
                Error::Invalid(format!("slice over dim {dim}, which the input lacks"))
            })?;
            if *offset == 0 && length == size {
                continue;
            }
            let end = offset.checked_add(*length).filter(|end| *end <= *size);
            let end = end.ok_or_else(|| {
                Error::Invalid(format!(
                    "a slice of {length} elements from {offset} exceeds dim {dim} of size {size}"
                ))
            })?;
            *size = *length;
            let inputs = [
                value,
                builder.int(dim as i64),
                builder.int(*offset as i64),
                builder.int(end as i64),
                builder.int(1),
            ];
            value = builder.call(Operator::SLICE_COPY_TENSOR, &inputs, &sizes)?;
        }
        Ok(value)
    })
}

fn pad(
    builder: &mut Builder<'_>,
    table: &PadTable<'_>,
    budget: &mut Budget,
    limits: Option<Limits>,
) -> Result<(), Error> {
    let before = numbers(table.before()?, budget)?;
    let after = numbers(table.after()?, budget)?;
    let (input, out) = (builder.id(table.input()?)?, builder.id(table.output()?)?);
    let value = builder.numbers(input)?;
    let sizes = builder.sizes(out)?;
    if before.len() != sizes.len() || after.len() != sizes.len() {
        return Err(Error::Invalid(format!(
            "padding: expected {} values before and after, found {} and {}",
            sizes.len(),
            before.len(),
            after.len()
        )));
    }
    // PyTorch lists the padding of the last dim first.
    let pairs = before.iter().zip(&after).rev();
    let pads = builder.ints(pairs.flat_map(|(before, after)| [*before, *after]));
    let filler = builder.push(Value::Double(float(table.value()?).into()));
    let made = builder.call(Operator::CONSTANT_PAD_ND, &[value, pads, filler], &sizes)?;
    builder.store(made, out, limits)
}

fn cat(builder: &mut Builder<'_>, table: &CatTable<'_>, count: usize) -> Result<(), Error> {
    let all = [table.first()?, table.second()?, table.third()?, table.fourth()?, table.fifth()?];
    let out = builder.id(table.output()?)?;
    let mut items = Vec::new();
    for number in all.into_iter().take(count) {
        let id = builder.id(number)?;
        items.push(builder.numbers(id)?);
    }
    let first = items.first().copied().unwrap_or(ValueId::MAX);
    let scalar_type = builder.tensor(first)?.scalar_type;
    for item in &mut items {
        *item = builder.cast(*item, scalar_type)?;
    }
    let sizes = builder.sizes(out)?;
    let list = builder.push(Value::List(items));
    let axis = builder.int(table.axis()?.into());
    let made = builder.new_tensor(scalar_type, &sizes);
    builder.call_into(Operator::CAT, &[list, axis], made);
    builder.store(made, out, None)
}
