//! GEMMs with quantized weights, and quantized embedding tables.

use super::codes;
use super::convert::{Direction, affine, bounds};
use super::regular::Regular;
use super::weighted::{WeightForm, Weighted};
use super::{is_relu, pair, quantized_input};
use crate::derived::{Derived, Matrices, Packed, Rows, Transposed};
use crate::encoder::{Encoder, read, u32_of, write};
use crate::error::Error;
use crate::ops::gemm_rows::FEW_ROWS;
use crate::ops::normed::Norm;
use crate::ops::row_norms::round_rows;
use crate::ops::{Entry, operator, placed, product};
use crate::stages::Epilogue;
use crate::tensors::Operand;
use torchlet_graph::graph::ValueId;
use torchlet_graph::operators::{
    DynamicLinearArgs, EmbeddingQ4gswArgs, LinearDq8caQ4gswArgs, LinearInt8Args, LinearQ4gswArgs,
    LinearQ8cswArgs, LinearQ8taQ8cswArgs, LinearQcs4wArgs, Operator, Q8taLinearArgs,
    QuantizedLinear, WeightInt8packMmArgs,
};
use torchlet_shaders::functions::unary;
use torchlet_shaders::{
    Element, EmbeddingQ4, EmbeddingQ4Push, LinearQuantized, LinearQuantizedPush,
};

pub(in crate::ops) const OPERATORS: &[Entry] = &[
    product(Operator::WEIGHT_INT8PACK_MM, |e, args| plain(e, WeightInt8packMmArgs::of(args)?)),
    product(Operator::ET_VK_LINEAR_QCS4W, |e, args| plain(e, LinearQcs4wArgs::of(args)?)),
    product(Operator::ET_VK_LINEAR_Q8CSW, |e, args| plain(e, LinearQ8cswArgs::of(args)?)),
    product(Operator::ET_VK_LINEAR_Q4GSW, |e, args| plain(e, LinearQ4gswArgs::of(args)?)),
    product(Operator::ET_VK_Q4GSW_LINEAR, |e, args| plain(e, LinearQ4gswArgs::of(args)?)),
    product(Operator::LINEAR_INT8, |e, args| plain(e, LinearInt8Args::of(args)?)),
    operator(Operator::DYNAMIC_LINEAR, |e, args| {
        // Handles calls that the passes have not split into two calls.
        let mut it = Weighted::of(e, &DynamicLinearArgs::of(args)?.into())?;
        let rounded = e.temporary(Element::F32, &it.input.sizes)?;
        round_rows(e, &it.input, &rounded)?;
        it.input = rounded;
        product_of(e, &it, &Epilogue::none(), None)
    }),
    operator(Operator::ET_VK_LINEAR_DQ8CA_Q4GSW, |e, args| {
        linear_quantized(e, &LinearDq8caQ4gswArgs::of(args)?.into())
    }),
    operator(Operator::ET_VK_LINEAR_Q8TA_Q8CSW, |e, args| {
        linear_quantized(e, &LinearQ8taQ8cswArgs::of(args)?.into())
    }),
    operator(Operator::ET_VK_Q8TA_LINEAR, q8ta_linear),
    operator(Operator::ET_VK_Q8TA_LINEAR_GEMV, q8ta_linear),
    operator(Operator::ET_VK_EMBEDDING_Q4GSW, embedding_q4gsw),
];

fn q8ta_linear(e: &mut Encoder<'_, '_>, args: &[ValueId]) -> Result<(), Error> {
    linear_quantized(e, &Q8taLinearArgs::of(args)?.into())
}

/// Encodes a GEMM of floats, possibly with a fused norm.
fn plain(e: &mut Encoder<'_, '_>, linear: impl Into<QuantizedLinear>) -> Result<(), Error> {
    let it = Weighted::of(e, &linear.into())?;
    let epilogue = e.take_epilogue().unwrap_or_else(Epilogue::none);
    let norm = Norm::of(e, &it.input)?;
    product_of(e, &it, &epilogue, norm)
}

fn product_of(
    e: &mut Encoder<'_, '_>,
    it: &Weighted,
    epilogue: &Epilogue,
    norm: Option<Norm>,
) -> Result<(), Error> {
    if product_of_rows(e, it, epilogue, norm)? {
        return Ok(());
    }
    any(e, it, epilogue, &Input::plain(&it.input))
}

/// Emits a GEMM with weights of regular shape. Returns `false` if no kernel supports it; a fused
/// norm has then been dispatched.
pub(in crate::ops) fn product_of_rows(
    e: &mut Encoder<'_, '_>,
    it: &Weighted,
    epilogue: &Epilogue,
    norm: Option<Norm>,
) -> Result<bool, Error> {
    // With few rows, a single dispatch is used, whose output must not overlap its inputs. With many
    // rows, several dispatches use the memory one after the other, so planning alone would allow an
    // overlap.
    e.reserve(&it.out);
    if it.is_of_floats()
        && let Some(regular) = Regular::of(e, it)?
    {
        let is_left = placed::leave(e, it, norm.as_ref());
        if (is_left && it.m <= FEW_ROWS) || regular.encode(e, it, epilogue, norm.as_ref())? {
            return Ok(true);
        }
    }
    if let Some(norm) = norm.filter(|norm| norm.is_left) {
        norm.emit(e, &it.input, None)?;
    }
    Ok(false)
}

/// The quantized input of a GEMM.
struct Input {
    operand: Operand,
    scale: f64,
    zero: f64,
    /// Scale and zero point per row.
    by_row: Option<(Operand, Operand)>,
    /// Scale and zero point of the output.
    output: [f64; 2],
}

impl Input {
    fn plain(operand: &Operand) -> Self {
        Input { operand: operand.clone(), scale: 1.0, zero: 0.0, by_row: None, output: [1.0, 0.0] }
    }
}

fn linear_quantized(e: &mut Encoder<'_, '_>, linear: &QuantizedLinear) -> Result<(), Error> {
    let it = Weighted::of(e, linear)?;
    let relu = is_relu(e, linear.activation)?;
    let mut epilogue = e.take_epilogue().unwrap_or_else(Epilogue::none);
    if relu {
        epilogue = Epilogue { residual: epilogue.residual, ..Epilogue::clamp(0.0, f64::INFINITY) };
    }
    let mut input = Input::plain(&it.input);
    if let Some(parameters) = linear.input_parameters {
        let [scale, zero] = pair(e, parameters)?;
        let operand = quantized_input(e, &it.input, [scale, zero])?;
        input = Input { operand, scale, zero, ..input };
    } else if let Some([scale, zero]) = linear.row_parameters {
        let (scale, zero) = (e.tensor(scale)?, e.tensor(zero)?);
        if scale.numel() < it.m || zero.numel() < it.m {
            return Err(Error::Invalid(format!(
                "expected at least {} input scales and zero points, found {} and {}",
                it.m,
                scale.numel(),
                zero.numel()
            )));
        }
        let codes = e.temporary(Element::I8, &it.input.sizes)?;
        let bounds = bounds(Element::I8);
        let to = Direction::Quantize;
        let sizes = [it.m, it.k];
        affine(e, to, &it.input, &scale, Some(&zero), &sizes, &[1, 0], bounds, &codes)?;
        input = Input { operand: codes, by_row: Some((scale, zero)), ..input };
    }
    if let Some(parameters) = linear.output_parameters {
        input.output = pair(e, parameters)?;
    }
    if input.by_row.is_none() && in_tiles(e, &it, &epilogue, &input)? {
        return Ok(());
    }
    any(e, &it, &epilogue, &input)
}

/// Emits a tiled int8 GEMM. Returns `false` if tiles are unsuitable.
fn in_tiles(
    e: &mut Encoder<'_, '_>,
    it: &Weighted,
    epilogue: &Epilogue,
    source: &Input,
) -> Result<bool, Error> {
    let plain = it.form == WeightForm::Bytes
        && it.group >= it.k
        && it.weight_row == it.k
        && epilogue.residual.is_none()
        && epilogue.activation == unary::CLAMP;
    let Some(source_of_weights) = e.constant(it.weight.id).filter(|_| plain) else {
        return Ok(false);
    };
    let rows = Rows { count: it.n, pitch: it.k, parts: 1, codes: it.k };
    let weights = Packed { source: source_of_weights, rows };
    let product = codes::Product {
        input: &source.operand,
        parameters: [source.scale, source.zero],
        weights,
        scales: &it.scales,
        bias: it.bias.as_ref(),
        out: &it.out,
        out_parameters: source.output,
        clamp: [epilogue.a, epilogue.b].map(f64::from),
        windows: None,
        is_channels_last: false,
        table: None,
    };
    product.encode(e)
}

/// Emits the generic GEMM kernel.
fn any(
    e: &mut Encoder<'_, '_>,
    it: &Weighted,
    epilogue: &Epilogue,
    source: &Input,
) -> Result<(), Error> {
    let Weighted { m, n, k, weight_row, group, mut scale_row, .. } = *it;
    let grouped = k > group;
    let mut scales = it.scales.clone();
    if grouped && it.scales_in_rows {
        let source = e.constant(scales.id);
        let source = source
            .ok_or_else(|| Error::unsupported("grouped weight scales that are not constant"))?;
        let matrices = Matrices { count: 1, rows: n, columns: k / group };
        scale_row = matrices.pitch();
        scales = e.derived(Derived::Transposed(Transposed { source, matrices }))?;
    }
    let word = if it.form == WeightForm::Bytes { 4 } else { 2 };
    let aligned = k % 4 == 0 && weight_row % word == 0 && (!grouped || group % 4 == 0);
    let rows = if n % 4 == 0 && m >= 4 { 4 } else { 1 };
    let push = LinearQuantizedPush {
        m: u32_of(m)?,
        n: u32_of(n)?,
        k: u32_of(k)?,
        weight_row: u32_of(weight_row)?,
        group: u32_of(group)?,
        scale_row: u32_of(scale_row)?,
        input_scale: source.scale as f32,
        input_zero: source.zero as i32,
        out_inverse: (1.0 / source.output[0]) as f32,
        out_zero: source.output[1] as f32,
        a: epilogue.a,
        b: epilogue.b,
    };
    u32_of(it.weight.numel())?;
    u32_of(source.operand.numel())?;
    u32_of(it.out.numel())?;
    let bias = it.bias.as_ref().unwrap_or(&scales);
    let residual = epilogue.residual.as_ref();
    let (scale, zero) = match &source.by_row {
        Some(_) if residual.is_some() => {
            return Err(Error::invalid(
                "internal error: a residual was fused into a GEMM with quantized input",
            ));
        }
        Some((scale, zero)) => (scale, zero),
        None => (residual.unwrap_or(&scales), &scales),
    };
    let pipeline = LinearQuantized {
        input: source.operand.element,
        scale: scales.element,
        bias: bias.element,
        input_scale: scale.element,
        input_zero: zero.element,
        output: it.out.element,
        weight: it.form as u32,
        has_bias: it.bias.is_some(),
        by_row: source.by_row.is_some(),
        aligned,
        grouped,
        rows,
        activation: epilogue.activation,
        residual: residual.map_or(Element::F32, |residual| residual.element),
        has_residual: residual.is_some(),
    };
    let accesses = [
        read(source.operand.id),
        read(it.weight.id),
        read(scales.id),
        read(bias.id),
        read(scale.id),
        read(zero.id),
        write(it.out.id),
    ];
    if rows > 1 {
        let tiles = (n / 4).saturating_mul(m.div_ceil(4));
        return e.dispatch_along_y(&pipeline, accesses, &push, [1, tiles], [1, 64]);
    }
    // Few invocations share a short sum, many share a long one. Decided by the largest shape, so
    // that dynamic shapes use one pipeline.
    let longest = e.bound_sizes(&source.operand).last().copied().unwrap_or(k);
    let steps = longest.div_ceil(if aligned { 4 } else { 1 });
    let lanes = (steps.div_ceil(4).next_power_of_two()).clamp(1, 64) as u32;
    let quads = it.out.numel().div_ceil(4);
    let workgroup = [lanes, 64 / lanes];
    e.dispatch_along_y(&pipeline, accesses, &push, [lanes as usize, quads], workgroup)
}

fn embedding_q4gsw(e: &mut Encoder<'_, '_>, args: &[ValueId]) -> Result<(), Error> {
    let call = EmbeddingQ4gswArgs::of(args)?;
    let (weight, scales) = (e.tensor(call.weight)?, e.tensor(call.weight_scales)?);
    let group = usize::try_from(e.int(call.group_size)?).unwrap_or(0);
    let index = e.tensor(call.indices)?;
    let low_first = e.optional_bool(call.is_linear_weight)?.unwrap_or(false);
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
        return Err(Error::Invalid(format!(
            "weight shape {weight:?} does not match scale shape {scales:?} in groups of {group} \
             with indices of type {:?}",
            index.element
        )));
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
