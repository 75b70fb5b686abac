//! GEMMs with quantized weights, and quantized embedding tables.

use super::codes;
use super::convert::{Direction, affine, bounds};
use super::regular::Regular;
use super::{bias_of, is_relu, pair, quantized_input};
use crate::derived::{Derived, Matrices, Nibbles, Packed, Rows, Transposed};
use crate::encoder::{Encoder, read, u32_of, write};
use crate::error::Error;
use crate::ops::normalize::round_rows;
use crate::ops::normed::{FEW_ROWS, Norm};
use crate::ops::{Entry, operator, placed, product};
use crate::stages::Epilogue;
use crate::tensors::Operand;
use torchlet_graph::graph::{Node, ValueId};
use torchlet_graph::operators::{
    ArgumentCount, DynamicLinearArgs, EmbeddingQ4gswArgs, LinearDq8caQ4gswArgs, LinearInt8Args,
    LinearQ4gswArgs, LinearQ8cswArgs, LinearQ8taQ8cswArgs, LinearQcs4wArgs, Operator,
    Q8taLinearArgs, QuantizedLinear, WeightInt8packMmArgs, WeightPacking,
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
        // For calls that the passes have not split in two.
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

/// The storage form of weights, with the shader's codes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::ops) enum WeightForm {
    Bytes = 0,
    LowFirst = 1,
    HighFirst = 2,
    /// 16-bit and 32-bit floats, not quantized.
    Halves = 3,
    Floats = 4,
}

impl From<WeightPacking> for WeightForm {
    fn from(packing: WeightPacking) -> Self {
        match packing {
            WeightPacking::Bytes => WeightForm::Bytes,
            WeightPacking::LowNibbleFirst => WeightForm::LowFirst,
            WeightPacking::HighNibbleFirst => WeightForm::HighFirst,
        }
    }
}

impl WeightForm {
    pub(super) fn is_quantized(self) -> bool {
        !matches!(self, WeightForm::Halves | WeightForm::Floats)
    }

    /// Returns the number of weights in 16 bytes.
    pub(super) fn in_16_bytes(self) -> usize {
        match self {
            WeightForm::Bytes => 16,
            WeightForm::LowFirst | WeightForm::HighFirst => 32,
            WeightForm::Halves => 8,
            WeightForm::Floats => 4,
        }
    }
}

/// Returns the argument positions of a GEMM of floats with quantized weights, for which GEMV
/// kernels exist.
const OF_FLOATS: &[(Operator, Reader)] = &[
    (Operator::WEIGHT_INT8PACK_MM, |args| Ok(WeightInt8packMmArgs::of(args)?.into())),
    (Operator::ET_VK_LINEAR_QCS4W, |args| Ok(LinearQcs4wArgs::of(args)?.into())),
    (Operator::ET_VK_LINEAR_Q8CSW, |args| Ok(LinearQ8cswArgs::of(args)?.into())),
    (Operator::LINEAR_INT8, |args| Ok(LinearInt8Args::of(args)?.into())),
    (Operator::ET_VK_LINEAR_Q4GSW, |args| Ok(LinearQ4gswArgs::of(args)?.into())),
    (Operator::ET_VK_Q4GSW_LINEAR, |args| Ok(LinearQ4gswArgs::of(args)?.into())),
];

/// Reads the arguments of a matrix multiplication with quantized weights.
type Reader = fn(&[ValueId]) -> Result<QuantizedLinear, ArgumentCount>;

fn of_floats(operator: Operator) -> Option<Reader> {
    OF_FLOATS.iter().find(|(own, _)| *own == operator).map(|(_, read)| *read)
}

/// Whether an operator is such a GEMM, or one with unquantized weights.
pub(crate) fn weighs_floats(operator: Operator) -> bool {
    operator == Operator::LINEAR || of_floats(operator).is_some()
}

/// Parses a call of such an operator.
pub(in crate::ops) fn weighted(e: &mut Encoder<'_, '_>, call: &Node) -> Result<Weighted, Error> {
    if call.operator == Operator::LINEAR {
        return crate::ops::linear::weighted(e, &call.args);
    }
    let read = of_floats(call.operator)
        .ok_or_else(|| Error::invalid("the operator is not a linear layer"))?;
    Weighted::of(e, &read(&call.args)?)
}

fn q8ta_linear(e: &mut Encoder<'_, '_>, args: &[ValueId]) -> Result<(), Error> {
    linear_quantized(e, &Q8taLinearArgs::of(args)?.into())
}

/// A GEMM with weights in rows: the data that its kernels share.
pub(in crate::ops) struct Weighted {
    pub(in crate::ops) input: Operand,
    pub(in crate::ops) weight: Operand,
    pub(super) form: WeightForm,
    /// Bytes per row of the weights.
    pub(super) weight_row: usize,
    /// The scales of quantized weights; an unused placeholder for other weights.
    pub(in crate::ops) scales: Operand,
    /// Whether scales are `[rows, groups]`; otherwise, grouped scales are `[groups, rows]`.
    pub(super) scales_in_rows: bool,
    /// Scales per group of terms, and the size of a group.
    pub(super) scale_row: usize,
    pub(super) group: usize,
    pub(in crate::ops) bias: Option<Operand>,
    pub(in crate::ops) out: Operand,
    pub(in crate::ops) m: usize,
    pub(in crate::ops) n: usize,
    pub(in crate::ops) k: usize,
}

impl Weighted {
    fn of(e: &mut Encoder<'_, '_>, linear: &QuantizedLinear) -> Result<Self, Error> {
        let input = e.tensor(linear.input)?;
        let weight = e.tensor(linear.weights)?;
        let scales = e.tensor(linear.weight_scales)?;
        let (Some(k), 2) = (input.sizes.last().copied(), weight.rank()) else {
            return Err(Error::Invalid(format!(
                "an input of shape {:?} does not match weights of shape {:?}",
                input.sizes, weight.sizes
            )));
        };
        let (n, weight_row) = (weight.size(0), weight.size(1));
        let m = input.numel() / k.max(1);
        let bytes = if linear.packing == WeightPacking::Bytes { k } else { k.div_ceil(2) };
        if weight.element.size() != 1 || bytes > weight_row || k == 0 {
            return Err(Error::Invalid(format!(
                "an input of shape {:?} does not match weights of shape {:?}",
                input.sizes, weight.sizes
            )));
        }
        let groups = if linear.scales_in_rows { scales.numel() / n.max(1) } else { 1 };
        if linear.scales_in_rows
            && (groups.checked_mul(n) != Some(scales.numel()) || !k.is_multiple_of(groups.max(1)))
        {
            return Err(Error::invalid("the scales do not match the weights"));
        }
        let group = match linear.group_size {
            None => k / groups.max(1),
            Some(size) => usize::try_from(e.int(size)?).unwrap_or(0),
        };
        if group == 0 {
            return Err(Error::invalid("the group size of the weights is zero"));
        }
        let scale_row = match (linear.group_size, scales.sizes.last()) {
            (Some(_), Some(row)) => *row,
            _ => n,
        };
        let groups = if linear.group_size.is_some() { k.div_ceil(group) } else { 1 };
        let needed = groups.checked_mul(scale_row);
        if scale_row < n || needed.is_none_or(|count| count > scales.numel()) {
            return Err(Error::invalid("there are too few scales"));
        }
        let bias = bias_of(e, linear.bias, n)?;
        let mut sizes = input.sizes.clone();
        if let Some(last) = sizes.last_mut() {
            *last = n;
        }
        let out = e.out(&[linear.out])?;
        let out = e.resize(out.id, &sizes)?;
        if out.element.is_floating() == linear.output_parameters.is_some() {
            return Err(Error::invalid("the output has another type"));
        }
        let (mut form, mut weight, mut weight_row) = (linear.packing.into(), weight, weight_row);
        let bits = e.optional_int(linear.bits)?;
        if bits == Some(4)
            && k == weight_row
            && k.is_multiple_of(2)
            && let Some(source) = e.constant(weight.id)
        {
            // Packing halves the bytes to read.
            weight = e.derived(Derived::Nibbles(Nibbles { source, rows: n, columns: k }))?;
            (form, weight_row) = (WeightForm::LowFirst, k / 2);
        }
        Ok(Weighted {
            input,
            weight,
            form,
            weight_row,
            scales,
            scales_in_rows: linear.scales_in_rows,
            scale_row,
            group,
            bias,
            out,
            m,
            n,
            k,
        })
    }

    /// A GEMM of `m` rows of `k` elements and `n` rows of unquantized weights.
    pub(in crate::ops) fn of_numbers(
        input: Operand,
        weight: Operand,
        bias: Option<Operand>,
        out: Operand,
        [m, n, k]: [usize; 3],
    ) -> Result<Self, Error> {
        let form =
            if weight.element == Element::F16 { WeightForm::Halves } else { WeightForm::Floats };
        let weight_row = k.checked_mul(weight.element.size());
        let weight_row =
            weight_row.ok_or_else(|| Error::unsupported("weight rows of this size"))?;
        let scales = weight.clone();
        let (scale_row, group) = (n, k);
        Ok(Weighted {
            input,
            weight,
            form,
            weight_row,
            scales,
            scales_in_rows: false,
            scale_row,
            group,
            bias,
            out,
            m,
            n,
            k,
        })
    }

    /// Whether input and output are floating point.
    pub(in crate::ops) fn is_of_floats(&self) -> bool {
        self.input.element.is_floating() && self.out.element.is_floating()
    }
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

/// Emits a GEMM with weights of regular shape. Returns `false` if no kernel exists; a fused norm
/// has then been dispatched.
pub(in crate::ops) fn product_of_rows(
    e: &mut Encoder<'_, '_>,
    it: &Weighted,
    epilogue: &Epilogue,
    norm: Option<Norm>,
) -> Result<bool, Error> {
    // With few rows, one dispatch reads and writes the memory that several dispatches use for many
    // rows: the output must not overlap their inputs.
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
            return Err(Error::invalid("there are too few input scales"));
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

/// Emits a tiled int8 GEMM; returns `false` if tiles are unsuitable.
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
        by_place: false,
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
        let source =
            source.ok_or_else(|| Error::unsupported("group scales that are not constant"))?;
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
            return Err(Error::invalid("a residual after a GEMM with quantized input"));
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
    // Short sums are shared by few invocations, long ones by many. Decided by the bound, so that
    // dynamic shapes use one pipeline.
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
            "an embedding table of shape {weight:?} does not match scales of shape {scales:?}"
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
