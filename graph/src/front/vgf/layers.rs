//! Converts convolutions, pooling, matrix multiplications and resizing.
//!
//! TOSA's images are channels-last. In floating point, a layer becomes PyTorch's between two
//! permutations; adjacent permutations cancel out in later passes. Integer layers become the
//! `tosa.*` operators, which have TOSA's exact arithmetic.

use super::builder::Builder;
use super::ops::{Op, operands, zero_point};
use super::spirv::{Id, TensorType};
use crate::error::Error;
use crate::front::convolution::Convolution;
use crate::graph::{Value, ValueId};
use crate::operators::Operator;
use crate::passes::tosa::{padded, symmetric_padding, window_count};
use alloc::format;
use alloc::vec;
use alloc::vec::Vec;
use torchlet_core::ScalarType;
use torchlet_core::rules::window::Window;

/// Permutation from channels-last to channels-first, and its inverse, for this many spatial dims.
fn channels_first(dims: usize) -> Vec<usize> {
    [0, dims + 1].into_iter().chain(1..=dims).collect()
}

fn channels_last(dims: usize) -> Vec<usize> {
    [0].into_iter().chain(2..dims + 2).chain([1]).collect()
}

/// Pairs of padding before and after each spatial dim.
fn pairs(list: &[i64], dims: usize) -> Result<Vec<[i64; 2]>, Error> {
    match list.as_chunks::<2>() {
        (pairs, []) if pairs.len() == dims => Ok(pairs.to_vec()),
        _ => Err(Error::Invalid(format!("expected {} pad sizes, found {list:?}", 2 * dims))),
    }
}

/// A list with a positive integer for each spatial dim.
fn positive(list: Vec<i64>, dims: usize) -> Result<Vec<i64>, Error> {
    match list.len() == dims && list.iter().all(|item| (1..1 << 31).contains(item)) {
        true => Ok(list),
        false => Err(Error::Invalid(format!("expected {dims} positive integers, found {list:?}"))),
    }
}

/// Bias with a value for each channel: TOSA broadcasts a single value.
fn bias(b: &mut Builder<'_, '_>, id: Id, channels: usize) -> Result<ValueId, Error> {
    let bias = b.read(id)?;
    match b.sizes(bias)?[..] {
        [count] if count == channels => Ok(bias),
        [1] => b.expand(bias, &[channels]),
        ref sizes => {
            Err(Error::Invalid(format!("a bias of shape {sizes:?} for {channels} channels")))
        }
    }
}

/// Adds `CONV2D`, `CONV3D` or `DEPTHWISE_CONV2D`.
pub(super) fn convolution(
    b: &mut Builder<'_, '_>,
    op: Op,
    ids: &[Id],
    out: &TensorType,
) -> Result<ValueId, Error> {
    let [pad, stride, dilation, _, _, input, weight, bias_id, input_zp, weight_zp] = operands(ids)?;
    let dims = if op == Op::CONV3D { 3 } else { 2 };
    let pad = pairs(&b.module.list(pad)?, dims)?;
    let stride = positive(b.module.list(stride)?, dims)?;
    let dilation = positive(b.module.list(dilation)?, dims)?;
    let zero_points = [zero_point(b, input_zp)?, zero_point(b, weight_zp)?];
    let (input, weight) = (b.read(input)?, b.read(weight)?);
    let (from, weights) = (b.sizes(input)?, b.sizes(weight)?);
    let bad =
        || Error::Invalid(format!("an input of shape {from:?} with weights of shape {weights:?}"));
    if from.len() != dims + 2 || weights.len() != dims + 2 || pad.iter().flatten().any(|it| *it < 0)
    {
        return Err(bad());
    }
    let in_channels = from.last().copied().unwrap_or(0);
    let (channels, groups, kernel) = match (op, &weights[..]) {
        (Op::DEPTHWISE_CONV2D, &[height, width, inputs, multiplier]) if inputs == in_channels => {
            let channels = inputs.checked_mul(multiplier).ok_or_else(bad)?;
            (channels, inputs, vec![height, width])
        }
        (Op::CONV2D | Op::CONV3D, [outputs, kernel @ .., inputs]) if *inputs == in_channels => {
            (*outputs, 1, kernel.to_vec())
        }
        _ => return Err(bad()),
    };
    let mut sizes = vec![from.first().copied().unwrap_or(1)];
    let mut symmetric = Vec::new();
    let spatial = from.iter().skip(1).zip(&kernel).zip(&pad).zip(stride.iter().zip(&dilation));
    for (((size, kernel), pad), (stride, dilation)) in spatial {
        let steps = [*stride, *dilation];
        sizes.push(window_count(*size, *kernel, *pad, steps).ok_or_else(bad)?);
        symmetric.push(symmetric_padding(*size, *kernel, *pad, steps));
    }
    sizes.push(channels);
    let bias = bias(b, bias_id, channels)?;
    if !b.scalar_type(input)?.is_floating() {
        let flat: Vec<i64> = pad.iter().flatten().copied().collect();
        let lists = [b.ints(&flat), b.ints(&stride), b.ints(&dilation)];
        let zero_points = zero_points.map(|zero_point| b.int(zero_point));
        let inputs: Vec<ValueId> =
            [input, weight, bias].into_iter().chain(lists).chain(zero_points).collect();
        let operator = match op {
            Op::CONV3D => Operator::TOSA_CONV3D,
            Op::DEPTHWISE_CONV2D => Operator::TOSA_DEPTHWISE_CONV2D,
            _ => Operator::TOSA_CONV2D,
        };
        return Ok(b.call(operator, &inputs, out.scalar_type, &sizes));
    }
    let weight = match &kernel[..] {
        &[height, width] if op == Op::DEPTHWISE_CONV2D => {
            let ordered = b.permute(weight, &[2, 3, 0, 1])?;
            b.view(ordered, &[channels, 1, height, width])?
        }
        _ => b.permute(weight, &channels_first(dims))?,
    };
    let input = b.permute(input, &channels_first(dims))?;
    let (input, padding) = evened(b, input, symmetric.into_iter().collect(), &pad, 0.0)?;
    let convolution =
        Convolution { stride, padding, dilation, transposed: None, groups: groups as i64 };
    let order = channels_first(dims);
    let made: Vec<usize> = order.iter().filter_map(|dim| sizes.get(*dim).copied()).collect();
    let made = convolve(b, convolution, [input, weight, bias], out, &made);
    b.permute(made, &channels_last(dims))
}

/// Adds a convolution with a result of this shape.
fn convolve(
    b: &mut Builder<'_, '_>,
    convolution: Convolution,
    operands: [ValueId; 3],
    out: &TensorType,
    sizes: &[usize],
) -> ValueId {
    let (operator, inputs) = convolution.call(operands, &mut |value| b.push(value));
    b.call(operator, &inputs, out.scalar_type, sizes)
}

/// Pads a channels-first image unless a symmetric padding gives the same windows. Returns the
/// symmetric padding that is left.
fn evened(
    b: &mut Builder<'_, '_>,
    input: ValueId,
    symmetric: Option<Vec<i64>>,
    pad: &[[i64; 2]],
    with: f64,
) -> Result<(ValueId, Vec<i64>), Error> {
    if let Some(symmetric) = symmetric {
        return Ok((input, symmetric));
    }
    let all: Vec<[i64; 2]> = [[0, 0]; 2].iter().chain(pad).copied().collect();
    Ok((b.pad(input, &all, with)?, vec![0; pad.len()]))
}

/// Adds `TRANSPOSE_CONV2D`.
pub(super) fn transposed(
    b: &mut Builder<'_, '_>,
    ids: &[Id],
    out: &TensorType,
) -> Result<ValueId, Error> {
    let [out_pad, stride, _, _, input, weight, bias_id, input_zp, weight_zp] = operands(ids)?;
    let out_pad = pairs(&b.module.list(out_pad)?, 2)?;
    let stride = positive(b.module.list(stride)?, 2)?;
    let zero_points = [zero_point(b, input_zp)?, zero_point(b, weight_zp)?];
    let (input, weight) = (b.read(input)?, b.read(weight)?);
    let (&[batch, height, width, inputs], &[channels, tall, wide, depth]) =
        (&b.sizes(input)?[..], &b.sizes(weight)?[..])
    else {
        return Err(Error::invalid("an input or weights of another rank than 4"));
    };
    if inputs != depth {
        return Err(Error::invalid("weights for another number of input channels"));
    }
    let size = |size: usize, kernel: usize, at: usize| {
        let window = Window::new(i64::try_from(kernel).ok()?, *stride.get(at)?, 0, 1)?;
        let whole = window.transposed(size, 0)?;
        Some([whole, padded(whole, *out_pad.get(at)?)?])
    };
    let sizes = size(height, tall, 0).zip(size(width, wide, 1));
    let ([whole_tall, made_tall], [whole_wide, made_wide]) =
        sizes.ok_or_else(|| Error::invalid("a result whose size is out of range"))?;
    let bias = bias(b, bias_id, channels)?;
    if !b.scalar_type(input)?.is_floating() {
        let flat: Vec<i64> = out_pad.iter().flatten().copied().collect();
        let lists = [b.ints(&flat), b.ints(&stride)];
        let zero_points = zero_points.map(|zero_point| b.int(zero_point));
        let inputs: Vec<ValueId> =
            [input, weight, bias].into_iter().chain(lists).chain(zero_points).collect();
        let sizes = [batch, made_tall, made_wide, channels];
        return Ok(b.call(Operator::TOSA_TRANSPOSE_CONV2D, &inputs, out.scalar_type, &sizes));
    }
    let input = b.permute(input, &channels_first(2))?;
    let weight = b.permute(weight, &[3, 0, 1, 2])?;
    // PyTorch crops both ends by the padding, and adds less than a stride at the end.
    let plain: Option<Vec<[i64; 2]>> = out_pad
        .iter()
        .zip(&stride)
        .map(|([before, after], stride)| {
            let more = after.checked_sub(*before)?;
            (*before <= 0 && (0..*stride).contains(&more)).then_some([-before, more])
        })
        .collect();
    let dilation = vec![1, 1];
    let found = if let Some(plain) = plain {
        let (padding, more) = plain.into_iter().map(|[pad, more]| (pad, more)).unzip();
        let convolution =
            Convolution { stride, padding, dilation, transposed: Some(more), groups: 1 };
        let sizes = [batch, channels, made_tall, made_wide];
        convolve(b, convolution, [input, weight, bias], out, &sizes)
    } else {
        let (padding, transposed) = (vec![0, 0], Some(vec![0, 0]));
        let convolution = Convolution { stride, padding, dilation, transposed, groups: 1 };
        let (none, sizes) = (b.none(), [batch, channels, whole_tall, whole_wide]);
        let whole = convolve(b, convolution, [input, weight, none], out, &sizes);
        let all: Vec<[i64; 2]> = [[0, 0]; 2].iter().chain(&out_pad).copied().collect();
        let cut = b.pad(whole, &all, 0.0)?;
        let (bias, one) = (b.view(bias, &[1, channels, 1, 1])?, b.int(1));
        b.same(Operator::ADD_TENSOR, &[cut, bias, one])?
    };
    b.permute(found, &channels_last(2))
}

/// Geometry of a pooling call on a channels-last image.
struct Pool {
    input: ValueId,
    kernel: Vec<i64>,
    stride: Vec<i64>,
    pad: Vec<[i64; 2]>,
    /// Padding of PyTorch that gives the same windows: symmetric, and at most half of the window.
    symmetric: Option<Vec<i64>>,
    /// Sizes of the result, channels-last.
    made: [usize; 4],
}

fn pool(b: &mut Builder<'_, '_>, [kernel, stride, pad, input]: [Id; 4]) -> Result<Pool, Error> {
    let kernel = positive(b.module.list(kernel)?, 2)?;
    let stride = positive(b.module.list(stride)?, 2)?;
    let pad = pairs(&b.module.list(pad)?, 2)?;
    let input = b.read(input)?;
    let &[batch, height, width, channels] = &b.sizes(input)?[..] else {
        return Err(Error::invalid("an input of another rank than 4"));
    };
    let mut made = Vec::new();
    let mut symmetric = Vec::new();
    let spatial = [height, width].into_iter().zip(&kernel).zip(&stride).zip(&pad);
    for (((size, kernel), stride), pad) in spatial {
        let (taps, steps) = (usize::try_from(*kernel).unwrap_or(0), [*stride, 1]);
        let fits = pad.iter().all(|pad| (0..*kernel).contains(pad));
        let count = window_count(size, taps, *pad, steps).filter(|_| fits);
        made.push(count.ok_or_else(|| Error::invalid("a window or its padding is too large"))?);
        symmetric
            .push(symmetric_padding(size, taps, *pad, steps).filter(|found| *found <= kernel / 2));
    }
    let (symmetric, &[tall, wide]) = (symmetric.into_iter().collect(), &made[..]) else {
        return Err(Error::invalid("an input of another rank than 4"));
    };
    let made = [batch, tall, wide, channels];
    Ok(Pool { input, kernel, stride, pad, symmetric, made })
}

/// Adds `AVG_POOL2D`.
pub(super) fn average(
    b: &mut Builder<'_, '_>,
    ids: &[Id],
    out: &TensorType,
) -> Result<ValueId, Error> {
    let [kernel, stride, pad, _, input, input_zp, output_zp] = operands(ids)?;
    let zero_points = [zero_point(b, input_zp)?, zero_point(b, output_zp)?];
    let Pool { input, kernel, stride, pad, symmetric, made } =
        pool(b, [kernel, stride, pad, input])?;
    let of = out.scalar_type;
    if !of.is_floating() {
        let flat: Vec<i64> = pad.iter().flatten().copied().collect();
        let lists = [b.ints(&kernel), b.ints(&stride), b.ints(&flat)];
        let zero_points = zero_points.map(|zero_point| b.int(zero_point));
        let inputs: Vec<ValueId> = [input].into_iter().chain(lists).chain(zero_points).collect();
        return Ok(b.call(Operator::TOSA_AVG_POOL2D, &inputs, of, &made));
    }
    let from = b.sizes(input)?;
    let input = b.permute(input, &channels_first(2))?;
    let [batch, tall, wide, channels] = made;
    let made = [batch, channels, tall, wide];
    let is_plain = symmetric.is_some();
    let divisor = if is_plain { b.none() } else { b.int(1) };
    let (mut input, padding) = evened(b, input, symmetric, &pad, 0.0)?;
    // The sum of a window may exceed the range of fp16.
    let computed = if is_plain { of } else { ScalarType::Float };
    input = b.cast(input, computed)?;
    let inputs = [
        input,
        b.ints(&kernel),
        b.ints(&stride),
        b.ints(&padding),
        b.flag(false),
        // The average excludes padding.
        b.flag(false),
        divisor,
    ];
    let mut found = b.call(Operator::AVG_POOL2D, &inputs, computed, &made);
    if !is_plain {
        let shape = TensorType { scalar_type: ScalarType::Float, sizes: vec![1, 1, tall, wide] };
        let counts = b.computed(&shape, || {
            let parts = parts(&pad, &kernel, &stride, [from.get(1), from.get(2)], [tall, wide]);
            Ok(parts.into_iter().flat_map(f32::to_le_bytes).collect())
        })?;
        found = b.same(Operator::DIV_TENSOR, &[found, counts])?;
        found = b.cast(found, of)?;
    }
    b.permute(found, &channels_last(2))
}

/// Number of elements of each window that are inside the image.
fn parts(
    pad: &[[i64; 2]],
    kernel: &[i64],
    stride: &[i64],
    image: [Option<&usize>; 2],
    made: [usize; 2],
) -> Vec<f32> {
    let inside = |at: usize| -> Vec<f32> {
        let part = |list: &[i64]| list.get(at).copied().unwrap_or(1);
        let before = pad.get(at).map_or(0, |pad| pad[0]);
        let size = image.get(at).copied().flatten().map_or(0, |size| *size as i64);
        let count = |step: usize| {
            let start = (step as i64).saturating_mul(part(stride)) - before;
            let end = start.saturating_add(part(kernel)).min(size);
            (end - start.max(0)).max(1) as f32
        };
        (0..made.get(at).copied().unwrap_or(0)).map(count).collect()
    };
    let (rows, columns) = (inside(0), inside(1));
    rows.iter().flat_map(|row| columns.iter().map(move |column| row * column)).collect()
}

/// Adds `MAX_POOL2D`.
pub(super) fn largest(
    b: &mut Builder<'_, '_>,
    ids: &[Id],
    out: &TensorType,
) -> Result<ValueId, Error> {
    let [kernel, stride, pad, mode, input] = operands(ids)?;
    let mode = b.module.int(mode)?;
    let Pool { mut input, kernel, stride, pad, symmetric, made } =
        pool(b, [kernel, stride, pad, input])?;
    let of = out.scalar_type;
    let lowest = match of {
        ScalarType::Char => f64::from(i8::MIN),
        ScalarType::Short => f64::from(i16::MIN),
        _ => f64::NEG_INFINITY,
    };
    if mode == 2 && of.is_floating() {
        input = b.replace_nan(input, lowest)?;
    }
    let input = b.permute(input, &channels_first(2))?;
    let (input, padding) = evened(b, input, symmetric, &pad, lowest)?;
    let inputs =
        [input, b.ints(&kernel), b.ints(&stride), b.ints(&padding), b.ints(&[1, 1]), b.flag(false)];
    let [batch, tall, wide, channels] = made;
    let sizes = [batch, channels, tall, wide];
    let found = b.new_tensor(of, &sizes);
    let indices = b.new_tensor(ScalarType::Long, &sizes);
    let list = b.push(Value::List(vec![found, indices]));
    b.call_into(Operator::MAX_POOL2D_WITH_INDICES, &inputs, list);
    b.permute(found, &channels_last(2))
}

/// Adds `MATMUL`.
pub(super) fn matmul(
    b: &mut Builder<'_, '_>,
    ids: &[Id],
    out: &TensorType,
) -> Result<ValueId, Error> {
    let [first, second, first_zp, second_zp] = operands(ids)?;
    let zero_points = [zero_point(b, first_zp)?, zero_point(b, second_zp)?];
    let (first, second) = (b.read(first)?, b.read(second)?);
    let (&[batch, rows, depth], &[other, inner, columns]) =
        (&b.sizes(first)?[..], &b.sizes(second)?[..])
    else {
        return Err(Error::invalid("operands of another rank than 3"));
    };
    if batch != other || depth != inner {
        return Err(Error::invalid("operands whose shapes do not fit"));
    }
    let (of, sizes) = (out.scalar_type, [batch, rows, columns]);
    if !b.scalar_type(first)?.is_floating() {
        let [first_zp, second_zp] = zero_points.map(|zero_point| b.int(zero_point));
        return Ok(b.call(
            Operator::TOSA_MATMUL,
            &[first, second, first_zp, second_zp],
            of,
            &sizes,
        ));
    }
    // fp16 operands with an fp32 result.
    let (first, second) = (b.cast(first, of)?, b.cast(second, of)?);
    Ok(b.call(Operator::BMM, &[first, second], of, &sizes))
}

/// Adds `RESIZE`.
pub(super) fn resize(
    b: &mut Builder<'_, '_>,
    ids: &[Id],
    out: &TensorType,
) -> Result<ValueId, Error> {
    /// Value of the attribute that selects bilinear interpolation; 1 selects the nearest element.
    const BILINEAR: i64 = 2;
    let [mode, input, scale, offset, border] = operands(ids)?;
    let bilinear = b.module.int(mode)? == BILINEAR;
    let (scale, offset, border) =
        (b.module.list(scale)?, b.module.list(offset)?, b.module.list(border)?);
    let input = b.read(input)?;
    let sizes = b.sizes(input)?;
    let (&[batch, height, width, channels], &[n_y, d_y, n_x, d_x], &[o_y, o_x], &[b_y, b_x]) =
        (&sizes[..], &scale[..], &offset[..], &border[..])
    else {
        return Err(Error::invalid("an input, scale, offset or border of another rank"));
    };
    let size = |size: usize, numerator: i64, denominator: i64, offset: i64, border: i64| {
        let steps = (size as i64).checked_sub(1)?.checked_mul(numerator)?;
        let room = steps.checked_sub(offset)?.checked_add(border)?;
        let is_positive = numerator > 0 && denominator > 0 && room >= 0;
        let steps = room.checked_div(denominator)?.checked_add(1)?;
        usize::try_from(steps).ok().filter(|_| is_positive)
    };
    let made = size(height, n_y, d_y, o_y, b_y).zip(size(width, n_x, d_x, o_x, b_x));
    let (tall, wide) = made.ok_or_else(|| Error::invalid("a scale or size is out of range"))?;
    let inputs = [input, b.ints(&scale), b.ints(&offset), b.ints(&border), b.flag(bilinear)];
    let sizes = [batch, tall, wide, channels];
    Ok(b.call(Operator::TOSA_RESIZE, &inputs, out.scalar_type, &sizes))
}
