//! Converts the calls of a graph, with one rule per operator of TOSA.

use super::builder::Builder;
use super::layers;
use super::ops::{DOUBLE_ROUND, NAN_IGNORE, Op, op, operands, zero_point};
use super::spirv::{Call, Id, TensorType};
use crate::error::Error;
use crate::graph::{Value, ValueId};
use crate::operators::Operator;
use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use torchlet_core::ScalarType;
use torchlet_core::layout::MAX_RANK;

/// Adds a call.
///
/// # Errors
/// The call is malformed or unsupported.
pub(super) fn add(b: &mut Builder<'_, '_>, call: &Call) -> Result<(), Error> {
    let op = op(call.number)?;
    b.begin(call.result);
    let made = convert(b, op, call).map_err(|error| error.at(call.result, &format!("{op:?}")))?;
    b.define(call.result, made)
}

fn convert(b: &mut Builder<'_, '_>, op: Op, call: &Call) -> Result<Vec<ValueId>, Error> {
    match op {
        Op::FFT2D | Op::RFFT2D => super::spectral::transform(b, call, op == Op::FFT2D),
        _ => {
            let out = b.result(call)?;
            let made = one(b, op, &call.operands, &out)?;
            let tensor = b.tensor(made)?;
            let (found, sizes) = (tensor.scalar_type, tensor.sizes.clone());
            if (found, &sizes) != (out.scalar_type, &out.sizes) {
                return Err(Error::Invalid(format!(
                    "the result is declared as ({:?}, {:?}), but is ({found:?}, {sizes:?})",
                    out.scalar_type, out.sizes
                )));
            }
            Ok(vec![made])
        }
    }
}

/// A constant dim of a tensor.
fn dim(b: &Builder<'_, '_>, id: Id, of: ValueId) -> Result<usize, Error> {
    let (dim, rank) = (b.module.int(id)?, b.tensor(of)?.sizes.len());
    let found = usize::try_from(dim).ok().filter(|dim| *dim < rank);
    found.ok_or_else(|| Error::Invalid(format!("dim {dim} is out of range for rank {rank}")))
}

fn ignores_nan(b: &Builder<'_, '_>, id: Id, of: ValueId) -> Result<bool, Error> {
    Ok(b.module.int(id)? == NAN_IGNORE && b.scalar_type(of)?.is_floating())
}

fn one(b: &mut Builder<'_, '_>, op: Op, ids: &[Id], out: &TensorType) -> Result<ValueId, Error> {
    if let Some(operator) = unary(op) {
        let input = operands::<1>(ids).and_then(|[input]| b.read(input))?;
        return b.same(operator, &[input]);
    }
    if let Some(operator) = binary(op) {
        let [first, second] = operands(ids)?;
        let (first, second) = (b.read(first)?, b.read(second)?);
        return Ok(pointwise(b, operator, &[first, second], out));
    }
    match op {
        Op::CONV2D | Op::DEPTHWISE_CONV2D | Op::CONV3D => layers::convolution(b, op, ids, out),
        Op::TRANSPOSE_CONV2D => layers::transposed(b, ids, out),
        Op::AVG_POOL2D => layers::average(b, ids, out),
        Op::MAX_POOL2D => layers::largest(b, ids, out),
        Op::MATMUL => layers::matmul(b, ids, out),
        Op::RESIZE => layers::resize(b, ids, out),
        Op::ADD | Op::SUB => {
            let [first, second] = operands(ids)?;
            let (first, second, alpha) = (b.read(first)?, b.read(second)?, b.int(1));
            let operator = if op == Op::ADD { Operator::ADD_TENSOR } else { Operator::SUB_TENSOR };
            Ok(pointwise(b, operator, &[first, second, alpha], out))
        }
        Op::MUL => multiply(b, ids, out),
        Op::INTDIV => {
            let [first, second] = operands(ids)?;
            let (first, second) = (b.read(first)?, b.read(second)?);
            let mode = b.push(Value::String(String::from("trunc")));
            Ok(pointwise(b, Operator::DIV_TENSOR_MODE, &[first, second, mode], out))
        }
        Op::ARITHMETIC_RIGHT_SHIFT => {
            let [round, first, second] = operands(ids)?;
            let round = b.module.int(round)? != 0;
            let (first, second) = (b.read(first)?, b.read(second)?);
            let round = b.flag(round);
            let inputs = [first, second, round];
            Ok(pointwise(b, Operator::TOSA_ARITHMETIC_RIGHT_SHIFT, &inputs, out))
        }
        Op::MAXIMUM | Op::MINIMUM => {
            let [mode, first, second] = operands(ids)?;
            let (first, second) = (b.read(first)?, b.read(second)?);
            let operator = match (op, ignores_nan(b, mode, first)?) {
                (Op::MAXIMUM, false) => Operator::MAXIMUM,
                (Op::MAXIMUM, true) => Operator::FMAX,
                (_, false) => Operator::MINIMUM,
                (_, true) => Operator::FMIN,
            };
            Ok(pointwise(b, operator, &[first, second], out))
        }
        Op::CLAMP => clamp(b, ids),
        Op::NEGATE => negate(b, ids, out),
        Op::TABLE => {
            let [input, table] = operands(ids)?;
            let inputs = [b.read(input)?, b.read(table)?];
            let sizes = b.sizes(inputs[0])?;
            Ok(b.call(Operator::TOSA_TABLE, &inputs, out.scalar_type, &sizes))
        }
        Op::SELECT => {
            let [condition, first, second] = operands(ids)?;
            let inputs = [b.read(condition)?, b.read(first)?, b.read(second)?];
            Ok(pointwise(b, Operator::WHERE_SELF, &inputs, out))
        }
        Op::ARGMAX => {
            let [axis, mode, input] = operands(ids)?;
            let mut input = b.read(input)?;
            if ignores_nan(b, mode, input)? {
                input = b.replace_nan(input, f64::NEG_INFINITY)?;
            }
            let axis = dim(b, axis, input)?;
            let mut sizes = b.sizes(input)?;
            sizes.remove(axis);
            let (axis, no) = (b.int(axis as i64), b.flag(false));
            let found = b.call(Operator::ARGMAX, &[input, axis, no], ScalarType::Long, &sizes);
            b.cast(found, out.scalar_type)
        }
        Op::REDUCE_ALL
        | Op::REDUCE_ANY
        | Op::REDUCE_MAX
        | Op::REDUCE_MIN
        | Op::REDUCE_PRODUCT
        | Op::REDUCE_SUM => reduce(b, op, ids),
        Op::CONCAT => {
            let (axis, items) = ids.split_first().ok_or_else(|| Error::invalid("no operands"))?;
            let items: Vec<ValueId> =
                items.iter().map(|id| b.read(*id)).collect::<Result<_, _>>()?;
            let first = items.first().ok_or_else(|| Error::invalid("no tensors"))?;
            let axis = dim(b, *axis, *first)?;
            let (list, axis) = (b.push(Value::List(items)), b.int(axis as i64));
            Ok(b.call(Operator::CAT, &[list, axis], out.scalar_type, &out.sizes))
        }
        Op::PAD => {
            let [input, padding, with] = operands(ids)?;
            let (input, padding) = (b.read(input)?, b.module.list(padding)?);
            let with = b.module.number(with)?;
            b.pad(input, padding.as_chunks::<2>().0, with)
        }
        Op::RESHAPE => {
            let [input, _] = operands(ids)?;
            let input = b.read(input)?;
            let numel = |sizes: &[usize]| sizes.iter().try_fold(1, |n: usize, s| n.checked_mul(*s));
            if numel(&b.sizes(input)?) != numel(&out.sizes) {
                return Err(Error::invalid("a reshape to another number of elements"));
            }
            b.view(input, &out.sizes)
        }
        Op::REVERSE => {
            let [axis, input] = operands(ids)?;
            let input = b.read(input)?;
            let axis = dim(b, axis, input)?;
            let dims = b.ints(&[axis as i64]);
            b.same(Operator::FLIP, &[input, dims])
        }
        Op::SLICE => slice(b, ids),
        Op::TILE => {
            let [input, multiples] = operands(ids)?;
            let (input, multiples) = (b.read(input)?, b.module.list(multiples)?);
            if multiples.len() != out.sizes.len() {
                return Err(Error::invalid("multiples for another rank"));
            }
            tile(b, input, &multiples, out)
        }
        Op::TRANSPOSE => {
            let [order, input] = operands(ids)?;
            let (order, input) = (b.module.list(order)?, b.read(input)?);
            let order: Vec<usize> =
                order.iter().map(|dim| usize::try_from(*dim).unwrap_or(usize::MAX)).collect();
            let mut seen = order.clone();
            seen.sort_unstable();
            if seen.iter().enumerate().any(|(at, dim)| at != *dim) {
                return Err(Error::Invalid(format!("{order:?} is not a permutation")));
            }
            b.permute(input, &order)
        }
        Op::GATHER => gather(b, ids, out),
        Op::SCATTER => scatter(b, ids, out),
        Op::CAST => cast(b, ids, out),
        Op::RESCALE => rescale(b, ids, out),
        _ => Err(Error::unsupported("this operator")),
    }
}

fn unary(op: Op) -> Option<Operator> {
    Some(match op {
        Op::ABS => Operator::ABS,
        Op::BITWISE_NOT => Operator::BITWISE_NOT,
        Op::CEIL => Operator::CEIL,
        Op::CLZ => Operator::TOSA_CLZ,
        Op::COS => Operator::COS,
        Op::ERF => Operator::ERF,
        Op::EXP => Operator::EXP,
        Op::FLOOR => Operator::FLOOR,
        Op::LOG => Operator::LOG,
        Op::LOGICAL_NOT => Operator::LOGICAL_NOT,
        Op::RECIPROCAL => Operator::RECIPROCAL,
        Op::RSQRT => Operator::RSQRT,
        Op::SIGMOID => Operator::SIGMOID,
        Op::SIN => Operator::SIN,
        Op::TANH => Operator::TANH,
        _ => return None,
    })
}

fn binary(op: Op) -> Option<Operator> {
    Some(match op {
        Op::BITWISE_AND => Operator::BITWISE_AND_TENSOR,
        Op::BITWISE_OR => Operator::BITWISE_OR_TENSOR,
        Op::BITWISE_XOR => Operator::BITWISE_XOR_TENSOR,
        Op::LOGICAL_AND => Operator::LOGICAL_AND,
        Op::LOGICAL_OR => Operator::LOGICAL_OR,
        Op::LOGICAL_XOR => Operator::LOGICAL_XOR,
        Op::LOGICAL_LEFT_SHIFT => Operator::BITWISE_LEFT_SHIFT_TENSOR,
        Op::LOGICAL_RIGHT_SHIFT => Operator::TOSA_LOGICAL_RIGHT_SHIFT,
        Op::POW => Operator::POW_TENSOR_TENSOR,
        Op::EQUAL => Operator::EQ_TENSOR,
        Op::GREATER => Operator::GT_TENSOR,
        Op::GREATER_EQUAL => Operator::GE_TENSOR,
        _ => return None,
    })
}

/// Adds an element-wise call that broadcasts to the declared result.
fn pointwise(
    b: &mut Builder<'_, '_>,
    operator: Operator,
    inputs: &[ValueId],
    out: &TensorType,
) -> ValueId {
    b.call(operator, inputs, out.scalar_type, &out.sizes)
}

fn multiply(b: &mut Builder<'_, '_>, ids: &[Id], out: &TensorType) -> Result<ValueId, Error> {
    let [first, second, shift] = operands(ids)?;
    let (first, second, shift) = (b.read(first)?, b.read(second)?, b.module.int(shift)?);
    if shift != 0 {
        let shift = b.int(shift);
        return Ok(pointwise(b, Operator::TOSA_MUL, &[first, second, shift], out));
    }
    // Products of int8 and int16 are int32.
    let (first, second) = (b.cast(first, out.scalar_type)?, b.cast(second, out.scalar_type)?);
    Ok(pointwise(b, Operator::MUL_TENSOR, &[first, second], out))
}

/// Repeats a tensor along its dims: expands a new dim before each dim that repeats.
fn tile(
    b: &mut Builder<'_, '_>,
    input: ValueId,
    multiples: &[i64],
    out: &TensorType,
) -> Result<ValueId, Error> {
    let sizes = b.sizes(input)?;
    let (mut split, mut whole, mut made) = (Vec::new(), Vec::new(), Vec::new());
    for (size, multiple) in sizes.iter().zip(multiples) {
        let times = usize::try_from(*multiple).ok().filter(|times| *times > 0);
        let times = times.ok_or_else(|| Error::Invalid(format!("the multiple {multiple}")))?;
        if times > 1 {
            split.push(1);
            whole.push(times);
        }
        split.push(*size);
        whole.push(*size);
        made.push(size.checked_mul(times));
    }
    if made.iter().ne(out.sizes.iter().map(|size| Some(*size)).collect::<Vec<_>>().iter())
        || sizes.len() != multiples.len()
    {
        return Err(Error::invalid("multiples that do not fit the result"));
    }
    if split.len() > MAX_RANK {
        let multiples = b.ints(multiples);
        return Ok(b.call(Operator::REPEAT, &[input, multiples], out.scalar_type, &out.sizes));
    }
    let split = b.view(input, &split)?;
    let whole = b.expand(split, &whole)?;
    b.view(whole, &out.sizes)
}

fn clamp(b: &mut Builder<'_, '_>, ids: &[Id]) -> Result<ValueId, Error> {
    let [low, high, mode, input] = operands(ids)?;
    let (low, high) = (b.module.number(low)?, b.module.number(high)?);
    let mut input = b.read(input)?;
    if ignores_nan(b, mode, input)? {
        input = b.replace_nan(input, low)?;
    }
    let of = b.scalar_type(input)?;
    let (low, high) = (b.scalar(of, low), b.scalar(of, high));
    b.same(Operator::CLAMP, &[input, low, high])
}

fn negate(b: &mut Builder<'_, '_>, ids: &[Id], out: &TensorType) -> Result<ValueId, Error> {
    let [input, from, to] = operands(ids)?;
    let (from, to) = (zero_point(b, from)?, zero_point(b, to)?);
    let input = b.read(input)?;
    let [low, high] = match b.scalar_type(input)? {
        of if of.is_floating() => return b.same(Operator::NEG, &[input]),
        ScalarType::Char => {
            let sum = from.saturating_add(to);
            let negated = (-128..=127i64).map(|value| sum.saturating_sub(value).clamp(-128, 127));
            let table = negated.map(|value| (value as i8).cast_unsigned()).collect();
            let of = TensorType { scalar_type: ScalarType::Char, sizes: vec![256] };
            let table = b.computed(&of, || Ok(table))?;
            return b.same(Operator::TOSA_TABLE, &[input, table]);
        }
        ScalarType::Short => [i16::MIN.into(), i16::MAX.into()],
        _ => [i64::from(i32::MIN), i64::from(i32::MAX)],
    };
    let wide = b.cast(input, ScalarType::Long)?;
    let negated = b.same(Operator::NEG, &[wide])?;
    let (zero, one) = (b.int(from.saturating_add(to)), b.int(1));
    let moved = b.same(Operator::ADD_SCALAR, &[negated, zero, one])?;
    let (low, high) = (b.int(low), b.int(high));
    let clamped = b.same(Operator::CLAMP, &[moved, low, high])?;
    b.cast(clamped, out.scalar_type)
}

fn reduce(b: &mut Builder<'_, '_>, op: Op, ids: &[Id]) -> Result<ValueId, Error> {
    let (axis, mode, input) = match op {
        Op::REDUCE_MAX | Op::REDUCE_MIN => {
            let [axis, mode, input] = operands(ids)?;
            (axis, Some(mode), input)
        }
        _ => {
            let [axis, input] = operands(ids)?;
            (axis, None, input)
        }
    };
    let mut input = b.read(input)?;
    if let Some(mode) = mode
        && ignores_nan(b, mode, input)?
    {
        let other = if op == Op::REDUCE_MAX { f64::NEG_INFINITY } else { f64::INFINITY };
        input = b.replace_nan(input, other)?;
    }
    let axis = dim(b, axis, input)?;
    let (of, mut sizes) = (b.scalar_type(input)?, b.sizes(input)?);
    if let Some(size) = sizes.get_mut(axis) {
        *size = 1;
    }
    if of == ScalarType::Char && op == Op::REDUCE_MAX {
        return largest_of_dim(b, input, axis, &sizes);
    }
    let (list, number) = (b.ints(&[axis as i64]), b.int(axis as i64));
    let (keep, dtype) = (b.flag(true), b.int(of as i64));
    let (operator, inputs) = match op {
        Op::REDUCE_ALL => (Operator::ALL_DIM, vec![input, number, keep]),
        Op::REDUCE_ANY => (Operator::ANY_DIM, vec![input, number, keep]),
        Op::REDUCE_MAX => (Operator::AMAX, vec![input, list, keep]),
        Op::REDUCE_MIN => (Operator::AMIN, vec![input, list, keep]),
        Op::REDUCE_PRODUCT => (Operator::PROD_DIM_INT, vec![input, number, keep, dtype]),
        _ => (Operator::SUM_DIM_INT_LIST, vec![input, list, keep, dtype]),
    };
    Ok(b.call(operator, &inputs, of, &sizes))
}

/// The largest int8 value over a dim, as pooling, which processors have for int8 images.
fn largest_of_dim(
    b: &mut Builder<'_, '_>,
    input: ValueId,
    axis: usize,
    made: &[usize],
) -> Result<ValueId, Error> {
    let sizes = b.sizes(input)?;
    let (before, after) = sizes.split_at_checked(axis).unwrap_or_default();
    let (size, after) = after.split_first().ok_or_else(|| Error::invalid("no such dim"))?;
    let product = |sizes: &[usize]| sizes.iter().try_fold(1, |n: usize, s| n.checked_mul(*s));
    let ends = product(before).zip(product(after));
    let (before, after) = ends.ok_or_else(|| Error::invalid("too many elements"))?;
    let image = b.view(input, &[before, 1, *size, after])?;
    let kernel = b.ints(&[*size as i64, 1]);
    let (pad, one, no) = (b.ints(&[0, 0]), b.ints(&[1, 1]), b.flag(false));
    let found = b.new_tensor(ScalarType::Char, &[before, 1, 1, after]);
    let indices = b.new_tensor(ScalarType::Long, &[before, 1, 1, after]);
    let list = b.push(Value::List(vec![found, indices]));
    let inputs = [image, kernel, kernel, pad, one, no];
    b.call_into(Operator::MAX_POOL2D_WITH_INDICES, &inputs, list);
    b.view(found, made)
}

fn slice(b: &mut Builder<'_, '_>, ids: &[Id]) -> Result<ValueId, Error> {
    let [input, starts, counts] = operands(ids)?;
    let mut value = b.read(input)?;
    let (starts, counts) = (b.module.list(starts)?, b.module.list(counts)?);
    let mut sizes = b.sizes(value)?;
    if starts.len() != sizes.len() || counts.len() != sizes.len() {
        return Err(Error::invalid("a slice for another rank"));
    }
    let of = b.scalar_type(value)?;
    for (at, (start, count)) in starts.into_iter().zip(counts).enumerate() {
        let Some(size) = sizes.get_mut(at) else { continue };
        let whole = i64::try_from(*size).unwrap_or(i64::MAX);
        let end = start.checked_add(count).filter(|end| start >= 0 && count > 0 && *end <= whole);
        let end = end.ok_or_else(|| {
            Error::Invalid(format!("dim {at}: {count} elements from {start} on, of {whole}"))
        })?;
        if (start, end) == (0, whole) {
            continue;
        }
        *size = usize::try_from(count).unwrap_or(0);
        let args = [b.int(at as i64), b.int(start), b.int(end), b.int(1)];
        let inputs: Vec<ValueId> = [value].into_iter().chain(args).collect();
        let sizes = sizes.clone();
        value = b.call(Operator::SLICE_COPY_TENSOR, &inputs, of, &sizes);
    }
    Ok(value)
}

/// Indices of shape `[batch, rows]`, expanded to `[batch, rows, channels]`.
fn indices(b: &mut Builder<'_, '_>, id: Id, channels: usize) -> Result<ValueId, Error> {
    let value = b.read(id)?;
    let &[batch, rows] = &b.sizes(value)?[..] else {
        return Err(Error::invalid("indices of another rank than 2"));
    };
    let value = b.cast(value, ScalarType::Long)?;
    let value = b.view(value, &[batch, rows, 1])?;
    b.expand(value, &[batch, rows, channels])
}

fn gather(b: &mut Builder<'_, '_>, ids: &[Id], out: &TensorType) -> Result<ValueId, Error> {
    let [values, at] = operands(ids)?;
    let values = b.read(values)?;
    let &[batch, _, channels] = &b.sizes(values)?[..] else {
        return Err(Error::invalid("values of another rank than 3"));
    };
    if batch == 1 {
        let at = b.read(at)?;
        let at = b.cast(at, ScalarType::Long)?;
        let rows = b.sizes(at)?.iter().try_fold(1usize, |n, size| n.checked_mul(*size));
        let rows = rows.ok_or_else(|| Error::invalid("too many indices"))?;
        let (at, one) = (b.view(at, &[rows])?, b.int(1));
        let inputs = [values, one, at];
        return Ok(b.call(Operator::INDEX_SELECT, &inputs, out.scalar_type, &[1, rows, channels]));
    }
    let at = indices(b, at, channels)?;
    let (sizes, one, no) = (b.sizes(at)?, b.int(1), b.flag(false));
    Ok(b.call(Operator::GATHER, &[values, one, at, no], out.scalar_type, &sizes))
}

fn scatter(b: &mut Builder<'_, '_>, ids: &[Id], out: &TensorType) -> Result<ValueId, Error> {
    let [values, at, input] = operands(ids)?;
    let (values, input) = (b.read(values)?, b.read(input)?);
    let &[_, _, channels] = &b.sizes(values)?[..] else {
        return Err(Error::invalid("values of another rank than 3"));
    };
    let (at, one) = (indices(b, at, channels)?, b.int(1));
    let sizes = b.sizes(values)?;
    Ok(b.call(Operator::SCATTER_SRC, &[values, one, at, input], out.scalar_type, &sizes))
}

fn cast(b: &mut Builder<'_, '_>, ids: &[Id], out: &TensorType) -> Result<ValueId, Error> {
    let input = operands::<1>(ids).and_then(|[input]| b.read(input))?;
    let (from, to) = (b.scalar_type(input)?, out.scalar_type);
    if !from.is_floating() || to.is_floating() || to == ScalarType::Bool {
        return b.cast(input, to);
    }
    // Rounds half to even and saturates. A conversion to int32 saturates by itself.
    let input = match from {
        ScalarType::Float => input,
        _ => b.cast(input, ScalarType::Float)?,
    };
    let rounded = b.same(Operator::ROUND, &[input])?;
    let limits = match to {
        ScalarType::Char => [f64::from(i8::MIN), f64::from(i8::MAX)],
        ScalarType::Short => [f64::from(i16::MIN), f64::from(i16::MAX)],
        _ => return b.cast(rounded, to),
    };
    let [low, high] = limits.map(|limit| b.push(Value::Double(limit)));
    let clamped = b.same(Operator::CLAMP, &[rounded, low, high])?;
    b.cast(clamped, to)
}

fn rescale(b: &mut Builder<'_, '_>, ids: &[Id], out: &TensorType) -> Result<ValueId, Error> {
    let [scale32, rounding, per_channel, input_unsigned, output_unsigned, rest @ ..] =
        operands::<10>(ids)?;
    let [input, multiplier, shift, input_zp, output_zp] = rest;
    let truth = |id: Id| b.module.int(id).map(|value| value != 0);
    let flags = [
        truth(scale32)?,
        b.module.int(rounding)? == DOUBLE_ROUND,
        truth(per_channel)?,
        truth(input_unsigned)?,
        truth(output_unsigned)?,
    ];
    let [.., is_per_channel, from_unsigned, to_unsigned] = flags;
    let mut zero_points = [zero_point(b, input_zp)?, zero_point(b, output_zp)?];
    let input = b.read(input)?;
    let types = [b.scalar_type(input)?, out.scalar_type];
    let unsigned = [from_unsigned, to_unsigned];
    for ((zero_point, of), is_unsigned) in zero_points.iter_mut().zip(types).zip(unsigned) {
        // Zero points of unsigned tensors are stored as signed integers of the same width.
        if is_unsigned && *zero_point < 0 {
            *zero_point += 1 << (8 * of.size().min(4));
        }
    }
    let (multiplier, shift) = (b.read(multiplier)?, b.read(shift)?);
    let channels = b.sizes(input)?.last().copied().unwrap_or(1);
    let count = if is_per_channel { channels } else { 1 };
    if b.sizes(multiplier)? != [count] || b.sizes(shift)? != [count] {
        return Err(Error::Invalid(format!("expected {count} multipliers and shifts")));
    }
    let zero_points = zero_points.map(|zero_point| b.int(zero_point));
    let flags = flags.map(|flag| b.flag(flag));
    let inputs: Vec<ValueId> =
        [input, multiplier, shift].into_iter().chain(zero_points).chain(flags).collect();
    let sizes = b.sizes(input)?;
    Ok(b.call(Operator::TOSA_RESCALE, &inputs, out.scalar_type, &sizes))
}
