//! Operators over quantized tensors and weights.
//!
//! Tensors of bytes between operators are row-major like all others. Zero points are subtracted before
//! multiplying, so that the sums of weights in the blob are not needed.

use super::reduce::{Function, emit};
use super::views::{gather, merge_dims};
use super::{Operator, operator};
use crate::encoder::{Encoder, read, u32_of, write};
use crate::error::Error;
use crate::ir::ValueId;
use crate::tensors::{Operand, strides};
use torchlet_shaders::{
    Affine, AffinePush, ConvolutionQuantized, ConvolutionQuantizedPush, Element, EmbeddingQ4,
    EmbeddingQ4Push, LinearQuantized, LinearQuantizedPush, MAX_DIMS, Qparams, QparamsPush,
    Requantize, RequantizePush,
};

pub(super) const OPERATORS: &[Operator] = &[
    operator("quantized_decomposed.quantize_per_tensor.default", |e, args| {
        per_tensor(e, args, Direction::Quantize)
    }),
    operator("quantized_decomposed.dequantize_per_tensor.default", |e, args| {
        per_tensor(e, args, Direction::Dequantize)
    }),
    operator("quantized_decomposed.quantize_per_tensor.tensor", |e, args| {
        per_tensor_by_tensor(e, args, Direction::Quantize)
    }),
    operator("quantized_decomposed.dequantize_per_tensor.tensor", |e, args| {
        per_tensor_by_tensor(e, args, Direction::Dequantize)
    }),
    operator("quantized_decomposed.quantize_per_channel.default", |e, args| {
        per_channel(e, args, Direction::Quantize)
    }),
    operator("quantized_decomposed.dequantize_per_channel.default", |e, args| {
        per_channel(e, args, Direction::Dequantize)
    }),
    operator("quantized_decomposed.quantize_per_token.default", |e, args| {
        per_token(e, args, Direction::Quantize)
    }),
    operator("quantized_decomposed.dequantize_per_token.default", |e, args| {
        per_token(e, args, Direction::Dequantize)
    }),
    operator("torchao.quantize_affine.default", |e, args| by_blocks(e, args, Direction::Quantize)),
    operator("torchao.dequantize_affine.default", |e, args| {
        by_blocks(e, args, Direction::Dequantize)
    }),
    operator("torchao.choose_qparams_affine.default", choose_qparams_affine),
    operator("etvk.choose_qparams_per_row.default", |e, args| {
        let input = e.tensor(e.arg(args, 0)?)?;
        let low = e.optional_float(e.arg(args, 1)?)?.unwrap_or(-128.0);
        let high = e.optional_float(e.arg(args, 2)?)?.unwrap_or(127.0);
        let outs = [e.arg(args, 3)?, e.arg(args, 4)?];
        let count = input.sizes.last().copied().unwrap_or(1);
        let sizes = input.sizes[..input.rank().saturating_sub(1)].to_vec();
        choose(e, &input, count, &sizes, outs, Mapping::Asymmetric, [low, high], None)
    }),
    operator("aten._weight_int8pack_mm.default", |e, args| {
        let linear = Linear { weight: 1, scales: 2, ..Linear::new(WeightForm::Bytes) };
        linear_quantized(e, args, &linear)
    }),
    operator("et_vk.linear_qcs4w.default", |e, args| {
        let linear = Linear { weight: 1, scales: 2, ..Linear::new(WeightForm::HighFirst) };
        linear_quantized(e, args, &linear)
    }),
    operator("et_vk.linear_q8csw.default", |e, args| {
        let linear =
            Linear { weight: 1, scales: 2, bias: Some(3), ..Linear::new(WeightForm::Bytes) };
        linear_quantized(e, args, &linear)
    }),
    operator("et_vk.linear_q4gsw.default", linear_q4gsw),
    operator("et_vk.q4gsw_linear.default", linear_q4gsw),
    operator("et_vk.linear_dq8ca_q4gsw.default", |e, args| {
        let linear = Linear {
            by_row: Some([1, 2]),
            weight: 3,
            scales: 5,
            group: Some(6),
            bias: Some(7),
            ..Linear::new(WeightForm::LowFirst)
        };
        linear_quantized(e, args, &linear)
    }),
    operator("et_vk.linear_q8ta_q8csw.default", |e, args| {
        let linear = Linear {
            input: Some([1, 2]),
            weight: 3,
            scales: 5,
            bias: Some(6),
            ..Linear::new(WeightForm::Bytes)
        };
        linear_quantized(e, args, &linear)
    }),
    operator("et_vk.q8ta_linear.default", q8ta_linear),
    operator("et_vk.q8ta_linear_gemv.default", q8ta_linear),
    operator("et_vk.q8ta_conv2d.default", q8ta_conv2d),
    operator("et_vk.q8ta_conv2d_dw.default", q8ta_conv2d),
    operator("et_vk.q8ta_conv2d_pw.default", q8ta_conv2d),
    operator("et_vk.q8ta_conv2d_general.default", q8ta_conv2d),
    operator("et_vk.q8ta_conv2d_im2col.default", q8ta_conv2d),
    operator("et_vk.conv2d_q8ta_q8csw_q8to.default", q8ta_conv2d),
    operator("et_vk.conv2d_q8ta_q8csw_q8to_dw.default", q8ta_conv2d),
    operator("etvk.test_conv2d_q8ta_q8csw_q8to.default", |e, args| {
        // Quantizes its input and dequantizes its output; a layout comes before the output.
        let out = e.out(args)?;
        let scale = [e.float(e.arg(args, 6)?)?, e.float(e.arg(args, 7)?)?];
        let target = e.temporary(Element::I8, &out.sizes)?;
        let shape = convolve(e, args, &Convolution::q8ta(), Some(target.clone()))?;
        let out = e.resize(out.id, &shape)?;
        let quantized = Operand { sizes: shape, ..target };
        dequantize(e, &quantized, &out, scale)
    }),
    operator("et_vk.q8ta_conv2d_transposed.default", |e, args| {
        let convolution = Convolution {
            output_padding: Some(12),
            dilation: 13,
            groups: 14,
            activation: Some(15),
            ..Convolution::q8ta()
        };
        convolve(e, args, &convolution, None).map(drop)
    }),
    operator("et_vk.conv2d_q8ta_q8csw.default", |e, args| {
        let convolution =
            Convolution { output: None, bias: 6, kernel: 7, ..Convolution::q8ta() }.shifted();
        convolve(e, args, &convolution, None).map(drop)
    }),
    operator("et_vk.conv2d_q8csw.default", |e, args| {
        let convolution = Convolution {
            input: None,
            output: None,
            weight: 1,
            scales: 2,
            bias: 3,
            kernel: 4,
            ..Convolution::q8ta()
        };
        convolve(e, args, &convolution.shifted(), None).map(drop)
    }),
    operator("et_vk.q8ta_add.default", q8ta_add),
    operator("et_vk.q8ta_relu.default", |e, args| {
        let input = e.tensor(e.arg(args, 0)?)?;
        let from = [e.float(e.arg(args, 1)?)?, e.float(e.arg(args, 2)?)?];
        let to = [e.float(e.arg(args, 3)?)?, e.float(e.arg(args, 4)?)?];
        let out = e.out(args)?;
        let out = e.resize(out.id, &input.sizes)?;
        requantize(e, 1, [&input, &input], [from, from], 1.0 / to[0], to[1], &out)
    }),
    operator("et_vk.q8ta_pixel_shuffle.default", |e, args| {
        let input = e.tensor(e.arg(args, 0)?)?;
        let from = [e.float(e.arg(args, 1)?)?, e.float(e.arg(args, 2)?)?];
        let (inverse, zero) = (e.float(e.arg(args, 3)?)?, e.float(e.arg(args, 4)?)?);
        let factor = e.int(e.arg(args, 5)?)?;
        let shuffled = e.temporary(Element::I8, &input.sizes)?;
        requantize(e, 0, [&input, &input], [from, from], inverse, zero, &shuffled)?;
        let out = e.out(args)?.id;
        super::resize::pixel_shuffle(e, &shuffled, factor, out)
    }),
    operator("et_vk.embedding_q4gsw.default", embedding_q4gsw),
];

/// From numbers to codes, or back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Direction {
    Quantize = 0,
    Dequantize = 1,
}

/// The bounds of codes of a type.
fn bounds(element: Element) -> [f64; 2] {
    match element {
        Element::U8 => [0.0, 255.0],
        Element::I8 => [-128.0, 127.0],
        _ => [-2_147_483_648.0, 2_147_483_520.0],
    }
}

/// The bounds of codes that arguments give, or those of the type.
fn bounds_at(
    e: &Encoder<'_, '_>,
    args: &[ValueId],
    position: usize,
    element: Element,
) -> Result<[f64; 2], Error> {
    let [low, high] = bounds(element);
    Ok([
        e.optional_float(e.arg(args, position)?)?.unwrap_or(low),
        e.optional_float(e.arg(args, position + 1)?)?.unwrap_or(high),
    ])
}

fn per_tensor(e: &mut Encoder<'_, '_>, args: &[ValueId], to: Direction) -> Result<(), Error> {
    let input = e.tensor(e.arg(args, 0)?)?;
    let (scale, zero) = (e.float(e.arg(args, 1)?)?, e.float(e.arg(args, 2)?)?);
    let out = e.out(args)?;
    let out = e.resize(out.id, &input.sizes)?;
    match to {
        Direction::Quantize => {
            let bounds = bounds_at(e, args, 3, out.element)?;
            quantize(e, &input, &out, [scale, zero], bounds)
        }
        Direction::Dequantize => dequantize(e, &input, &out, [scale, zero]),
    }
}

/// Emits `out = round(input / scale) + zero`, within bounds.
fn quantize(
    e: &mut Encoder<'_, '_>,
    input: &Operand,
    out: &Operand,
    [scale, zero]: [f64; 2],
    [low, high]: [f64; 2],
) -> Result<(), Error> {
    let parameters = [1.0 / scale, zero, low, high];
    super::elementwise::apply_unary_with(e, 31, input, out, parameters)
}

/// Emits `out = (input - zero) * scale`.
fn dequantize(
    e: &mut Encoder<'_, '_>,
    input: &Operand,
    out: &Operand,
    [scale, zero]: [f64; 2],
) -> Result<(), Error> {
    super::elementwise::apply_unary_with(e, 32, input, out, [scale, zero, 0.0, 0.0])
}

/// Quantizes or dequantizes with scales that a tensor has: element `index * step` of it, along each dimension.
#[allow(clippy::too_many_arguments)]
fn affine(
    e: &mut Encoder<'_, '_>,
    to: Direction,
    input: &Operand,
    scale: &Operand,
    zero: Option<&Operand>,
    view: &[usize],
    steps: &[i64],
    [low, high]: [f64; 2],
    out: &Operand,
) -> Result<(), Error> {
    let reach: i64 =
        view.iter().zip(steps).map(|(size, step)| (*size as i64 - 1).max(0) * step).sum();
    if input.numel() > 0
        && reach >= scale.numel().min(zero.map_or(usize::MAX, Operand::numel)) as i64
    {
        return Err(Error::invalid("there are too few scales or zero points"));
    }
    let dims = merge_dims(view, &[steps.to_vec()])?;
    let mut push = AffinePush {
        numel: u32_of(out.numel())?,
        low: low as f32,
        high: high as f32,
        sizes: [1; MAX_DIMS],
        strides: [0; MAX_DIMS],
    };
    for (slot, (size, strides)) in (0..MAX_DIMS).rev().zip(dims.iter().rev()) {
        push.sizes[slot] = u32_of(*size)?;
        push.strides[slot] = strides[0] as u32;
    }
    let zero_operand = zero.unwrap_or(scale);
    let pipeline = Affine {
        function: to as u32,
        input: input.element,
        scale: scale.element,
        zero: zero_operand.element,
        output: out.element,
        has_zero: zero.is_some(),
    };
    let accesses = [read(input.id), read(scale.id), read(zero_operand.id), write(out.id)];
    e.dispatch_by_four(&pipeline, accesses, &push, out.numel())
}

/// With one scale and zero point, in tensors.
fn per_tensor_by_tensor(
    e: &mut Encoder<'_, '_>,
    args: &[ValueId],
    to: Direction,
) -> Result<(), Error> {
    let input = e.tensor(e.arg(args, 0)?)?;
    let (scale, zero) = (e.tensor(e.arg(args, 1)?)?, e.tensor(e.arg(args, 2)?)?);
    let out = e.out(args)?;
    let out = e.resize(out.id, &input.sizes)?;
    let bounds = match to {
        Direction::Quantize => bounds_at(e, args, 3, out.element)?,
        Direction::Dequantize => bounds(input.element),
    };
    affine(e, to, &input, &scale, Some(&zero), &[input.numel()], &[0], bounds, &out)
}

/// With a scale for each index of one dimension.
fn per_channel(e: &mut Encoder<'_, '_>, args: &[ValueId], to: Direction) -> Result<(), Error> {
    let input = e.tensor(e.arg(args, 0)?)?;
    let scale = e.tensor(e.arg(args, 1)?)?;
    let zero = e.optional_tensor(e.arg(args, 2)?)?;
    let axis = input.dim(e.int(e.arg(args, 3)?)?)?;
    let out = e.out(args)?;
    let out = e.resize(out.id, &input.sizes)?;
    let bounds = match to {
        Direction::Quantize => bounds_at(e, args, 4, out.element)?,
        Direction::Dequantize => bounds(input.element),
    };
    let steps: Vec<i64> = (0..input.rank()).map(|dim| i64::from(dim == axis)).collect();
    affine(e, to, &input, &scale, zero.as_ref(), &input.sizes, &steps, bounds, &out)
}

/// With a scale for each row.
fn per_token(e: &mut Encoder<'_, '_>, args: &[ValueId], to: Direction) -> Result<(), Error> {
    let input = e.tensor(e.arg(args, 0)?)?;
    let (scale, zero) = (e.tensor(e.arg(args, 1)?)?, e.tensor(e.arg(args, 2)?)?);
    let out = e.out(args)?;
    let out = e.resize(out.id, &input.sizes)?;
    let bounds = match to {
        Direction::Quantize => bounds_at(e, args, 3, out.element)?,
        Direction::Dequantize => bounds(input.element),
    };
    let count = input.sizes.last().copied().unwrap_or(1);
    let view = [input.numel() / count.max(1), count];
    affine(e, to, &input, &scale, Some(&zero), &view, &[1, 0], bounds, &out)
}

/// The sizes of blocks, each a divisor of its dimension.
fn blocks_of(
    e: &Encoder<'_, '_>,
    args: &[ValueId],
    position: usize,
    input: &Operand,
) -> Result<Vec<usize>, Error> {
    let blocks = e.ints(e.arg(args, position)?)?;
    let sizes: Vec<usize> = blocks
        .iter()
        .zip(&input.sizes)
        .map(|(block, size)| if *block < 0 { *size } else { *block as usize })
        .collect();
    let fit = blocks.len() == input.rank()
        && sizes.iter().zip(&input.sizes).all(|(block, size)| *block > 0 && size % block == 0);
    if fit {
        Ok(sizes)
    } else {
        Err(Error::Invalid(format!("blocks of {blocks:?} in a tensor of {:?}", input.sizes)))
    }
}

fn by_blocks(e: &mut Encoder<'_, '_>, args: &[ValueId], to: Direction) -> Result<(), Error> {
    let input = e.tensor(e.arg(args, 0)?)?;
    let blocks = blocks_of(e, args, 1, &input)?;
    let scale = e.tensor(e.arg(args, 2)?)?;
    let zero = e.optional_tensor(e.arg(args, 3)?)?;
    let out = e.out(args)?;
    let out = e.resize(out.id, &input.sizes)?;
    let codes = if to == Direction::Quantize { out.element } else { input.element };
    let bounds = bounds_at(e, args, 5, codes)?;
    let counts: Vec<usize> =
        input.sizes.iter().zip(&blocks).map(|(size, block)| size / block).collect();
    let own = strides(&counts);
    let (mut view, mut steps) = (Vec::new(), Vec::new());
    for (dim, block) in blocks.iter().enumerate() {
        view.extend([counts[dim], *block]);
        steps.extend([own[dim] as i64, 0]);
    }
    affine(e, to, &input, &scale, zero.as_ref(), &view, &steps, bounds, &out)
}

/// How scales and zero points follow from the range of values, by the shader's numbers.
#[derive(Debug, Clone, Copy)]
enum Mapping {
    Asymmetric = 0,
    Symmetric = 1,
    SymmetricNoClipping = 2,
}

fn choose_qparams_affine(e: &mut Encoder<'_, '_>, args: &[ValueId]) -> Result<(), Error> {
    let input = e.tensor(e.arg(args, 0)?)?;
    let mapping = match e.optional_string(e.arg(args, 1)?)? {
        None | Some("ASYMMETRIC") => Mapping::Asymmetric,
        Some("SYMMETRIC") => Mapping::Symmetric,
        Some("SYMMETRIC_NO_CLIPPING_ERR") => Mapping::SymmetricNoClipping,
        Some(other) => return Err(Error::Unsupported(format!("mapping {other}"))),
    };
    let blocks = blocks_of(e, args, 2, &input)?;
    let outs = e.outs(args)?;
    let [scale, zero] = outs[..] else {
        return Err(Error::invalid("there are not two outputs"));
    };
    let bounds = bounds_at(e, args, 4, e.tensor(zero)?.element)?;
    let epsilon = if args.len() > 7 { e.optional_float(args[6])? } else { None };
    let keep = if args.len() > 10 { e.bool(args[9])? } else { false };
    let counts: Vec<usize> =
        input.sizes.iter().zip(&blocks).map(|(size, block)| size / block).collect();
    // Blocks that are not runs of elements are made so.
    let first = blocks.iter().position(|block| *block != 1).unwrap_or(0);
    let run = (first + 1..input.rank()).all(|dim| blocks[dim] == input.sizes[dim]);
    let source = if run {
        input.clone()
    } else {
        let own = input.strides();
        let mut view = counts.clone();
        view.extend(&blocks);
        let mut steps: Vec<i64> =
            own.iter().zip(&blocks).map(|(step, block)| (step * block) as i64).collect();
        steps.extend(own.iter().map(|step| *step as i64));
        let ordered = e.temporary(input.element, &view)?;
        gather(e, &input, &ordered, &view, &steps, 0)?;
        ordered
    };
    let sizes: Vec<usize> = if keep {
        counts
    } else {
        counts
            .iter()
            .zip(&blocks)
            .filter(|(_, block)| **block == 1)
            .map(|(count, _)| *count)
            .collect()
    };
    let expected = e.tensor(scale)?.sizes.len();
    // The exporter keeps dimensions that have several blocks.
    let sizes = if sizes.len() == expected {
        sizes
    } else {
        let counts = input.sizes.iter().zip(&blocks).map(|(size, block)| (size / block, *block));
        if keep || expected == input.rank() {
            counts.map(|(count, _)| count).collect()
        } else {
            counts
                .filter(|(count, block)| *count != 1 || *block == 1)
                .map(|(count, _)| count)
                .collect()
        }
    };
    let count = blocks.iter().product();
    choose(e, &source, count, &sizes, [scale, zero], mapping, bounds, epsilon)
}

/// Emits the choice of a scale and zero point for each run of `count` elements.
#[allow(clippy::too_many_arguments)]
fn choose(
    e: &mut Encoder<'_, '_>,
    input: &Operand,
    count: usize,
    sizes: &[usize],
    [scale, zero]: [ValueId; 2],
    mapping: Mapping,
    [low, high]: [f64; 2],
    epsilon: Option<f64>,
) -> Result<(), Error> {
    let runs = input.numel() / count.max(1);
    if count == 0 || high <= low {
        return Err(Error::invalid("an empty range cannot be quantized"));
    }
    let (scale, zero) = (e.resize(scale, sizes)?, e.resize(zero, sizes)?);
    if scale.numel() != runs || zero.numel() != runs {
        return Err(Error::invalid("scales do not match the blocks"));
    }
    let least = e.temporary(Element::F32, &[runs])?;
    emit(e, Function::Min, input, None, &least, [count, 1], 1.0)?;
    let most = e.temporary(Element::F32, &[runs])?;
    emit(e, Function::Max, input, None, &most, [count, 1], 1.0)?;
    let default =
        if input.element == Element::F16 { 0.000_976_562_5 } else { f64::from(f32::EPSILON) };
    let push = QparamsPush {
        numel: u32_of(runs)?,
        low: low as f32,
        high: high as f32,
        epsilon: epsilon.unwrap_or(default) as f32,
    };
    let pipeline = Qparams { mapping: mapping as u32, scale: scale.element, zero: zero.element };
    let accesses = [read(least.id), read(most.id), write(scale.id), write(zero.id)];
    e.dispatch_by_four(&pipeline, accesses, &push, runs)
}

/// How a matrix of weights is packed, by the shader's numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WeightForm {
    Bytes = 0,
    LowFirst = 1,
    HighFirst = 2,
}

/// Where the arguments of a linear operator are.
#[derive(Debug, Clone, Copy)]
struct Linear {
    form: WeightForm,
    /// Scale and zero point of the input, numbers.
    input: Option<[usize; 2]>,
    /// Scale and zero point of each row of the input, tensors.
    by_row: Option<[usize; 2]>,
    weight: usize,
    scales: usize,
    group: Option<usize>,
    bias: Option<usize>,
    /// Scale and zero point of the output, numbers.
    output: Option<[usize; 2]>,
    activation: Option<usize>,
}

impl Linear {
    const fn new(form: WeightForm) -> Self {
        Linear {
            form,
            input: None,
            by_row: None,
            weight: 1,
            scales: 2,
            group: None,
            bias: None,
            output: None,
            activation: None,
        }
    }
}

fn linear_q4gsw(e: &mut Encoder<'_, '_>, args: &[ValueId]) -> Result<(), Error> {
    let linear = Linear {
        weight: 1,
        scales: 2,
        group: Some(3),
        bias: Some(4),
        ..Linear::new(WeightForm::LowFirst)
    };
    linear_quantized(e, args, &linear)
}

fn q8ta_linear(e: &mut Encoder<'_, '_>, args: &[ValueId]) -> Result<(), Error> {
    let linear = Linear {
        input: Some([1, 2]),
        weight: 3,
        scales: 5,
        output: Some([6, 7]),
        bias: Some(8),
        activation: Some(9),
        ..Linear::new(WeightForm::Bytes)
    };
    linear_quantized(e, args, &linear)
}

fn is_relu(e: &Encoder<'_, '_>, args: &[ValueId], position: usize) -> Result<bool, Error> {
    match e.optional_string(e.arg(args, position)?)? {
        None | Some("none" | "") => Ok(false),
        Some("relu") => Ok(true),
        Some(other) => Err(Error::Unsupported(format!("activation {other}"))),
    }
}

/// Two numbers: a scale and a zero point.
fn pair(
    e: &Encoder<'_, '_>,
    args: &[ValueId],
    [scale, zero]: [usize; 2],
) -> Result<[f64; 2], Error> {
    Ok([e.float(e.arg(args, scale)?)?, e.float(e.arg(args, zero)?)?])
}

/// A bias of at least `count` entries.
fn bias_of(
    e: &Encoder<'_, '_>,
    args: &[ValueId],
    position: usize,
    count: usize,
) -> Result<Option<Operand>, Error> {
    let bias = e.optional_tensor(e.arg(args, position)?)?;
    match bias {
        Some(bias) if bias.numel() < count => Err(Error::invalid("the bias is too short")),
        bias => Ok(bias),
    }
}

/// The input as bytes: quantized here, if it is not yet.
fn quantized_input(
    e: &mut Encoder<'_, '_>,
    input: &Operand,
    parameters: [f64; 2],
) -> Result<Operand, Error> {
    if !input.element.is_floating() {
        return Ok(input.clone());
    }
    let codes = e.temporary(Element::I8, &input.sizes)?;
    quantize(e, input, &codes, parameters, bounds(Element::I8))?;
    Ok(codes)
}

fn linear_quantized(
    e: &mut Encoder<'_, '_>,
    args: &[ValueId],
    linear: &Linear,
) -> Result<(), Error> {
    let input = e.tensor(e.arg(args, 0)?)?;
    let weight = e.tensor(e.arg(args, linear.weight)?)?;
    let scales = e.tensor(e.arg(args, linear.scales)?)?;
    let (Some(k), 2) = (input.sizes.last().copied(), weight.rank()) else {
        return Err(Error::Invalid(format!("{:?} times {:?}", input.sizes, weight.sizes)));
    };
    let (n, weight_row) = (weight.size(0), weight.size(1));
    let m = input.numel() / k.max(1);
    let bytes = if linear.form == WeightForm::Bytes { k } else { k.div_ceil(2) };
    if weight.element.size() != 1 || bytes > weight_row || k == 0 {
        return Err(Error::Invalid(format!("{:?} times {:?}", input.sizes, weight.sizes)));
    }
    let group = match linear.group {
        None => k,
        Some(position) => usize::try_from(e.int(e.arg(args, position)?)?).unwrap_or(0),
    };
    if group == 0 {
        return Err(Error::invalid("the groups of weights are empty"));
    }
    let scale_row = match (linear.group, scales.sizes.last()) {
        (Some(_), Some(row)) => *row,
        _ => n,
    };
    let groups = if linear.group.is_some() { k.div_ceil(group) } else { 1 };
    if scale_row < n || groups.checked_mul(scale_row).is_none_or(|count| count > scales.numel()) {
        return Err(Error::invalid("there are too few scales"));
    }
    let bias = match linear.bias {
        Some(position) => bias_of(e, args, position, n)?,
        None => None,
    };
    let relu = match linear.activation {
        Some(position) => is_relu(e, args, position)?,
        None => false,
    };
    let mut sizes = input.sizes.clone();
    if let Some(last) = sizes.last_mut() {
        *last = n;
    }
    let out = e.out(args)?;
    let out = e.resize(out.id, &sizes)?;
    if out.element.is_floating() == linear.output.is_some() {
        return Err(Error::invalid("the output has another type"));
    }
    let (mut input_scale, mut input_zero) = (1.0, 0.0);
    let mut by_row = None;
    let source = if let Some(positions) = linear.input {
        [input_scale, input_zero] = pair(e, args, positions)?;
        quantized_input(e, &input, [input_scale, input_zero])?
    } else if let Some([scale, zero]) = linear.by_row {
        let (scale, zero) = (e.tensor(e.arg(args, scale)?)?, e.tensor(e.arg(args, zero)?)?);
        if scale.numel() < m || zero.numel() < m {
            return Err(Error::invalid("there are too few scales of the input"));
        }
        let codes = e.temporary(Element::I8, &input.sizes)?;
        let bounds = bounds(Element::I8);
        let to = Direction::Quantize;
        affine(e, to, &input, &scale, Some(&zero), &[m, k], &[1, 0], bounds, &codes)?;
        by_row = Some((scale, zero));
        codes
    } else {
        input.clone()
    };
    let output = match linear.output {
        Some(positions) => pair(e, args, positions)?,
        None => [1.0, 0.0],
    };
    let grouped = groups > 1;
    let word = if linear.form == WeightForm::Bytes { 4 } else { 2 };
    let aligned = k % 4 == 0 && weight_row % word == 0 && (!grouped || group % 4 == 0);
    let rows = if n % 4 == 0 && m >= 4 { 4 } else { 1 };
    let push = LinearQuantizedPush {
        m: u32_of(m)?,
        n: u32_of(n)?,
        k: u32_of(k)?,
        weight_row: u32_of(weight_row)?,
        group: u32_of(group)?,
        scale_row: u32_of(scale_row)?,
        input_scale: input_scale as f32,
        input_zero: input_zero as i32,
        out_inverse: (1.0 / output[0]) as f32,
        out_zero: output[1] as f32,
    };
    u32_of(weight.numel())?;
    u32_of(source.numel())?;
    u32_of(out.numel())?;
    let bias_operand = bias.as_ref().unwrap_or(&scales);
    let (scale_operand, zero_operand) = match &by_row {
        Some((scale, zero)) => (scale, zero),
        None => (&scales, &scales),
    };
    let pipeline = LinearQuantized {
        input: source.element,
        scale: scales.element,
        bias: bias_operand.element,
        input_scale: scale_operand.element,
        input_zero: zero_operand.element,
        output: out.element,
        weight: linear.form as u32,
        has_bias: bias.is_some(),
        by_row: by_row.is_some(),
        aligned,
        grouped,
        rows,
        relu,
    };
    let accesses = [
        read(source.id),
        read(weight.id),
        read(scales.id),
        read(bias_operand.id),
        read(scale_operand.id),
        read(zero_operand.id),
        write(out.id),
    ];
    if rows > 1 {
        let tiles = (n / 4).saturating_mul(m.div_ceil(4));
        return e.dispatch(&pipeline, accesses, &push, [1, tiles, 1], [1, 64, 1]);
    }
    // Few invocations share a short sum, many a long one.
    let steps = k.div_ceil(if aligned { 4 } else { 1 });
    let lanes = (steps.div_ceil(4).next_power_of_two()).clamp(1, 64) as u32;
    let quads = out.numel().div_ceil(4);
    e.dispatch(&pipeline, accesses, &push, [lanes as usize, quads, 1], [lanes, 64 / lanes, 1])
}

/// Where the arguments of a convolution are.
#[derive(Debug, Clone, Copy)]
struct Convolution {
    /// Scale and zero point of the input.
    input: Option<[usize; 2]>,
    weight: usize,
    scales: usize,
    /// Scale and zero point of the output.
    output: Option<[usize; 2]>,
    bias: usize,
    kernel: usize,
    stride: usize,
    padding: usize,
    /// Of a transposed convolution.
    output_padding: Option<usize>,
    dilation: usize,
    groups: usize,
    activation: Option<usize>,
}

impl Convolution {
    const fn q8ta() -> Self {
        Convolution {
            input: Some([1, 2]),
            weight: 3,
            scales: 5,
            output: Some([6, 7]),
            bias: 8,
            kernel: 9,
            stride: 10,
            padding: 11,
            output_padding: None,
            dilation: 12,
            groups: 13,
            activation: None,
        }
    }

    /// With what follows the kernel size right behind it.
    const fn shifted(self) -> Self {
        let kernel = self.kernel;
        Convolution {
            stride: kernel + 1,
            padding: kernel + 2,
            dilation: kernel + 3,
            groups: kernel + 4,
            ..self
        }
    }
}

fn q8ta_conv2d(e: &mut Encoder<'_, '_>, args: &[ValueId]) -> Result<(), Error> {
    let activation = if args.len() > 15 { Some(14) } else { None };
    convolve(e, args, &Convolution { activation, ..Convolution::q8ta() }, None).map(drop)
}

/// Two sizes from a list of one or two, each from `least` on.
fn two(
    e: &Encoder<'_, '_>,
    args: &[ValueId],
    position: usize,
    least: i64,
) -> Result<[usize; 2], Error> {
    let sizes = e.ints(e.arg(args, position)?)?;
    let (y, x) = match sizes[..] {
        [both] => (both, both),
        [y, x] => (y, x),
        _ => return Err(Error::Invalid(format!("{sizes:?} for two dimensions"))),
    };
    if y < least || x < least || y > 1 << 24 || x > 1 << 24 {
        return Err(Error::Invalid(format!("{sizes:?} is out of range")));
    }
    Ok([y as usize, x as usize])
}

/// Emits a convolution into `target` or the output, and tells its shape.
fn convolve(
    e: &mut Encoder<'_, '_>,
    args: &[ValueId],
    convolution: &Convolution,
    target: Option<Operand>,
) -> Result<Vec<usize>, Error> {
    let input = e.tensor(e.arg(args, 0)?)?;
    let weight = e.tensor(e.arg(args, convolution.weight)?)?;
    let scales = e.tensor(e.arg(args, convolution.scales)?)?;
    let kernel = two(e, args, convolution.kernel, 1)?;
    let stride = two(e, args, convolution.stride, 1)?;
    let padding = two(e, args, convolution.padding, 0)?;
    let dilation = two(e, args, convolution.dilation, 1)?;
    let groups = usize::try_from(e.int(e.arg(args, convolution.groups)?)?).unwrap_or(0);
    let depthwise = weight.rank() == 3;
    let out_channels = if depthwise { weight.size(2) } else { weight.size(0) };
    let rank = input.rank();
    if rank < 3 || groups == 0 || out_channels == 0 || weight.element != Element::I8 {
        return Err(Error::Invalid(format!("{:?} convolved with {:?}", input.sizes, weight.sizes)));
    }
    let channels = input.size(rank - 3);
    let (in_height, in_width) = (input.size(rank - 2), input.size(rank - 1));
    // Depthwise weights have a column for each channel, perhaps with padding.
    let out_channels = if depthwise { out_channels.min(channels) } else { out_channels };
    let (group_in, group_out) = (channels / groups, out_channels / groups);
    let taps = kernel[0].saturating_mul(kernel[1]);
    let fits = channels % groups == 0
        && out_channels % groups == 0
        && group_in > 0
        && if depthwise {
            group_in == 1 && taps <= weight.size(0).saturating_mul(weight.size(1))
        } else {
            weight.rank() == 2 && taps.saturating_mul(group_in) <= weight.size(1)
        };
    if !fits {
        let (input, weight) = (&input.sizes, &weight.sizes);
        return Err(Error::Invalid(format!(
            "{input:?} convolved with {weight:?} in {groups} groups of kernels {kernel:?}"
        )));
    }
    let transposed = convolution.output_padding;
    let extra = match transposed {
        Some(position) => two(e, args, position, 0)?,
        None => [0; 2],
    };
    let length = |axis: usize, size: usize| -> Option<usize> {
        let window = dilation[axis].checked_mul(kernel[axis] - 1)?;
        if transposed.is_some() {
            size.checked_sub(1)?
                .checked_mul(stride[axis])?
                .checked_add(window)?
                .checked_add(extra[axis] + 1)?
                .checked_sub(2 * padding[axis])
        } else {
            Some((size + 2 * padding[axis]).checked_sub(window + 1)? / stride[axis] + 1)
        }
    };
    let (Some(out_height), Some(out_width)) = (length(0, in_height), length(1, in_width)) else {
        return Err(Error::Invalid(format!("kernel {kernel:?} over {:?}", input.sizes)));
    };
    if dilation.iter().zip(kernel).any(|(step, size)| step.saturating_mul(size) > 1 << 30) {
        return Err(Error::invalid("the dilation is out of range"));
    }
    let mut sizes = input.sizes[..rank - 3].to_vec();
    sizes.extend([out_channels, out_height, out_width]);
    let out = match target {
        Some(target) => {
            if target.sizes != sizes {
                return Err(Error::invalid("the output has another shape"));
            }
            target
        }
        None => {
            let out = e.out(args)?;
            e.resize(out.id, &sizes)?
        }
    };
    if out.element.is_floating() == convolution.output.is_some() {
        return Err(Error::invalid("the output has another type"));
    }
    let bias = bias_of(e, args, convolution.bias, out_channels)?;
    // A transposed convolution has the scales of one group.
    let scale_count = if transposed.is_some() { group_out } else { out_channels };
    if scales.numel() < scale_count {
        return Err(Error::invalid("there are too few scales"));
    }
    let relu = match convolution.activation {
        Some(position) => is_relu(e, args, position)?,
        None => false,
    };
    let (parameters, source) = match convolution.input {
        Some(positions) => {
            let parameters = pair(e, args, positions)?;
            (parameters, quantized_input(e, &input, parameters)?)
        }
        None => ([1.0, 0.0], input.clone()),
    };
    let output = match convolution.output {
        Some(positions) => pair(e, args, positions)?,
        None => [1.0, 0.0],
    };
    let plane = out_height.saturating_mul(out_width);
    let tile = if !depthwise && plane % 4 == 0 && group_out % 4 == 0 { 4 } else { 1 };
    let weight_row = weight.sizes.last().copied().unwrap_or(1);
    let by_four = !depthwise && group_in % 4 == 0 && weight_row % 4 == 0;
    let i32_of = |size: usize| i32::try_from(size).unwrap_or(i32::MAX);
    let push = ConvolutionQuantizedPush {
        numel: u32_of(out.numel())?,
        in_channels: u32_of(channels)?,
        in_height: u32_of(in_height)?,
        in_width: u32_of(in_width)?,
        out_channels: u32_of(out_channels)?,
        out_height: u32_of(out_height)?,
        out_width: u32_of(out_width)?,
        kernel_height: u32_of(kernel[0])?,
        kernel_width: u32_of(kernel[1])?,
        stride_y: u32_of(stride[0])?,
        stride_x: u32_of(stride[1])?,
        pad_y: i32_of(padding[0]),
        pad_x: i32_of(padding[1]),
        dilation_y: i32_of(dilation[0]),
        dilation_x: i32_of(dilation[1]),
        group_in: u32_of(group_in)?,
        group_out: u32_of(group_out)?,
        weight_row: u32_of(weight_row)?,
        scales: u32_of(scale_count)?,
        input_scale: parameters[0] as f32,
        input_zero: parameters[1] as i32,
        out_inverse: (1.0 / output[0]) as f32,
        out_zero: output[1] as f32,
    };
    u32_of(source.numel())?;
    let bias_operand = bias.as_ref().unwrap_or(&scales);
    let pipeline = ConvolutionQuantized {
        input: source.element,
        scale: scales.element,
        bias: bias_operand.element,
        output: out.element,
        has_bias: bias.is_some(),
        depthwise,
        transposed: transposed.is_some(),
        tile,
        by_four,
        relu,
    };
    let accesses =
        [read(source.id), read(weight.id), read(scales.id), read(bias_operand.id), write(out.id)];
    e.dispatch_by_four(&pipeline, accesses, &push, out.numel().div_ceil(tile as usize))?;
    Ok(sizes)
}

/// Emits a change of scale and zero point, or a sum, by number of the shader's function.
fn requantize(
    e: &mut Encoder<'_, '_>,
    function: u32,
    [a, b]: [&Operand; 2],
    [a_scale, b_scale]: [[f64; 2]; 2],
    inverse: f64,
    zero: f64,
    out: &Operand,
) -> Result<(), Error> {
    let [low, high] = bounds(out.element);
    let push = RequantizePush {
        numel: u32_of(out.numel())?,
        a_scale: a_scale[0] as f32,
        a_zero: a_scale[1] as f32,
        b_scale: b_scale[0] as f32,
        b_zero: b_scale[1] as f32,
        out_inverse: inverse as f32,
        out_zero: zero as f32,
        low: low as f32,
        high: high as f32,
    };
    let pipeline = Requantize { function, a: a.element, b: b.element, output: out.element };
    e.dispatch_by_four(&pipeline, [read(a.id), read(b.id), write(out.id)], &push, out.numel())
}

fn q8ta_add(e: &mut Encoder<'_, '_>, args: &[ValueId]) -> Result<(), Error> {
    let (a, b) = (e.tensor(e.arg(args, 0)?)?, e.tensor(e.arg(args, 1)?)?);
    let (from_a, from_b) = (pair(e, args, [2, 3])?, pair(e, args, [4, 5])?);
    let to = pair(e, args, [6, 7])?;
    let alpha = e.float(e.arg(args, 8)?)?;
    let sizes = super::elementwise::broadcast_sizes(&a.sizes, &b.sizes)?;
    let out = e.out(args)?;
    let out = e.resize(out.id, &sizes)?;
    let mut expanded = Vec::new();
    for operand in [a, b] {
        if operand.sizes == sizes {
            expanded.push(operand);
            continue;
        }
        let whole = e.temporary(operand.element, &sizes)?;
        let steps = super::elementwise::broadcast_strides(&operand, sizes.len());
        gather(e, &operand, &whole, &sizes, &steps, 0)?;
        expanded.push(whole);
    }
    let from_b = [from_b[0] * alpha, from_b[1]];
    requantize(e, 2, [&expanded[0], &expanded[1]], [from_a, from_b], 1.0 / to[0], to[1], &out)
}

fn embedding_q4gsw(e: &mut Encoder<'_, '_>, args: &[ValueId]) -> Result<(), Error> {
    let (weight, scales) = (e.tensor(e.arg(args, 0)?)?, e.tensor(e.arg(args, 1)?)?);
    let group = usize::try_from(e.int(e.arg(args, 2)?)?).unwrap_or(0);
    let index = e.tensor(e.arg(args, 3)?)?;
    let low_first = if args.len() > 5 { e.bool(args[4])? } else { false };
    let (rows, depth) = (weight.size(0), weight.size(1).saturating_mul(2));
    let scale_row = if scales.rank() > 1 { scales.size(1) } else { 0 };
    let fits = weight.rank() == 2
        && weight.element.size() == 1
        && index.element == Element::I32
        && group > 0
        && rows > 0
        && depth > 0
        && if scale_row == 0 {
            scales.numel() > 0
        } else {
            scales.size(0) >= rows && depth.div_ceil(group) <= scale_row
        };
    if !fits {
        let (weight, scales) = (&weight.sizes, &scales.sizes);
        return Err(Error::Invalid(format!("a table of {weight:?} with scales of {scales:?}")));
    }
    let mut sizes = index.sizes.clone();
    sizes.push(depth);
    let out = e.out(args)?;
    let out = e.resize(out.id, &sizes)?;
    let push = EmbeddingQ4Push {
        numel: u32_of(out.numel())?,
        rows: u32_of(rows)?,
        depth: u32_of(depth)?,
        group: u32_of(group)?,
        scale_row: u32_of(scale_row)?,
    };
    u32_of(weight.numel())?;
    let pipeline = EmbeddingQ4 { scale: scales.element, output: out.element, low_first };
    let accesses = [read(weight.id), read(scales.id), read(index.id), write(out.id)];
    e.dispatch_by_four(&pipeline, accesses, &push, out.numel())
}
