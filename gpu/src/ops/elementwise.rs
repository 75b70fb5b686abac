//! Element-wise operators.
//!
//! The table defines each operator as a [`Stage`]. A single stage is dispatched on its own;
//! consecutive stages are fused into a chain.

use super::{Entry, activation, operator, pointwise, pointwise_integers};
use crate::derived::{Derived, Number};
use crate::encoder::{Encoder, read, u32_of, write};
use crate::error::Error;
use crate::stages::{Source, Stage};
use crate::tensors::Operand;
use torchlet_core::ScalarType;
use torchlet_core::rules::broadcast;
use torchlet_graph::graph::ValueId;
use torchlet_graph::operators::{
    AddArgs, AddScalarArgs, BinaryArgs, BinaryScalarArgs, ClampArgs, ClampTensorArgs, DivModeArgs,
    EluArgs, GeluArgs, HardshrinkArgs, LeakyReluArgs, Operator,
};
use torchlet_shaders::functions::{binary, unary};
use torchlet_shaders::{Binary, BinaryPush, Element, MAX_DIMS, Unary, UnaryPush};

pub(super) const OPERATORS: &[Entry] = &[
    pointwise(Operator::ABS, |e, args| unary(e, args, unary::ABS, 0.0, 0.0)),
    pointwise(Operator::NEG, |e, args| unary(e, args, unary::NEG, 0.0, 0.0)),
    pointwise(Operator::SQRT, |e, args| unary(e, args, unary::SQRT, 0.0, 0.0)),
    pointwise(Operator::RSQRT, |e, args| unary(e, args, unary::RSQRT, 0.0, 0.0)),
    pointwise(Operator::EXP, |e, args| unary(e, args, unary::EXP, 0.0, 0.0)),
    pointwise(Operator::LOG, |e, args| unary(e, args, unary::LOG, 0.0, 0.0)),
    pointwise(Operator::LOG10, |e, args| unary(e, args, unary::LOG10, 0.0, 0.0)),
    pointwise(Operator::SIN, |e, args| unary(e, args, unary::SIN, 0.0, 0.0)),
    pointwise(Operator::COS, |e, args| unary(e, args, unary::COS, 0.0, 0.0)),
    pointwise(Operator::TAN, |e, args| unary(e, args, unary::TAN, 0.0, 0.0)),
    activation(Operator::TANH, |e, args| unary(e, args, unary::TANH, 0.0, 0.0)),
    activation(Operator::SIGMOID, |e, args| unary(e, args, unary::SIGMOID, 0.0, 0.0)),
    activation(Operator::GELU, |e, args| {
        let call = GeluArgs::of(args)?;
        let tanh = e.optional_string(call.approximate)? == Some("tanh");
        unary(e, args, if tanh { unary::GELU_TANH } else { unary::GELU }, 0.0, 0.0)
    }),
    pointwise(Operator::FLOOR, |e, args| unary(e, args, unary::FLOOR, 0.0, 0.0)),
    pointwise(Operator::CEIL, |e, args| unary(e, args, unary::CEIL, 0.0, 0.0)),
    pointwise(Operator::RECIPROCAL, |e, args| unary(e, args, unary::RECIPROCAL, 0.0, 0.0)),
    pointwise(Operator::ERF, |e, args| unary(e, args, unary::ERF, 0.0, 0.0)),
    pointwise(Operator::ELU, |e, args| {
        let call = EluArgs::of(args)?;
        let number = |id| Ok::<_, Error>(e.optional_float(id)?.unwrap_or(1.0));
        match [number(call.alpha)?, number(call.scale)?, number(call.input_scale)?] {
            [alpha, scale, 1.0] => unary(e, args, unary::ELU, alpha * scale, scale),
            [alpha, 1.0, input_scale] => unary(e, args, unary::CELU, alpha, input_scale),
            _ => Err(Error::unsupported("ELU with both scale and input_scale other than 1")),
        }
    }),
    pointwise(Operator::ROUND, |e, args| unary(e, args, unary::ROUND, 0.0, 0.0)),
    activation(Operator::RELU, |e, args| unary(e, args, unary::CLAMP, 0.0, f64::INFINITY)),
    activation(Operator::RELU6, |e, args| unary(e, args, unary::CLAMP, 0.0, 6.0)),
    activation(Operator::HARDTANH, clamp),
    operator(Operator::CLAMP_TENSOR, clamp_between),
    activation(Operator::CLAMP, clamp),
    activation(Operator::LEAKY_RELU, |e, args| {
        let call = LeakyReluArgs::of(args)?;
        let slope = e.optional_float(call.negative_slope)?.unwrap_or(0.01);
        unary(e, args, unary::LEAKY_RELU, slope, 0.0)
    }),
    activation(Operator::HARDSWISH, |e, args| unary(e, args, unary::HARDSWISH, 0.0, 0.0)),
    activation(Operator::HARDSIGMOID, |e, args| unary(e, args, unary::HARDSIGMOID, 0.0, 0.0)),
    activation(Operator::SILU, |e, args| unary(e, args, unary::SILU, 0.0, 0.0)),
    pointwise(Operator::HARDSHRINK, |e, args| {
        let call = HardshrinkArgs::of(args)?;
        let lambda = e.optional_float(call.lambd)?.unwrap_or(0.5);
        unary(e, args, unary::HARDSHRINK, lambda, 0.0)
    }),
    pointwise(Operator::LOGICAL_NOT, |e, args| unary(e, args, unary::LOGICAL_NOT, 0.0, 0.0)),
    pointwise_integers(Operator::BITWISE_NOT, |e, args| {
        unary(e, args, unary::BITWISE_NOT, 0.0, 0.0)
    }),
    pointwise(Operator::ADD_TENSOR, |e, args| binary_alpha(e, args, binary::ADD)),
    pointwise(Operator::SUB_TENSOR, |e, args| binary_alpha(e, args, binary::SUB)),
    pointwise(Operator::MUL_TENSOR, |_, args| binary(args, binary::MUL)),
    pointwise(Operator::DIV_TENSOR, |_, args| binary(args, binary::DIV)),
    pointwise(Operator::DIV_TENSOR_MODE, |e, args| {
        let call = DivModeArgs::of(args)?;
        let function = rounding(e, args)?;
        Ok(Stage::Binary(function, call.input, Source::Tensor(call.other), 1.0))
    }),
    pointwise(Operator::FLOOR_DIVIDE, |_, args| binary(args, binary::DIV_FLOOR)),
    pointwise(Operator::ADD_SCALAR, |e, args| with_number_alpha(e, args, binary::ADD)),
    pointwise(Operator::SUB_SCALAR, |e, args| with_number_alpha(e, args, binary::SUB)),
    pointwise(Operator::MUL_SCALAR, |e, args| with_number(e, args, binary::MUL)),
    pointwise(Operator::DIV_SCALAR, |e, args| with_number(e, args, binary::DIV)),
    pointwise(Operator::DIV_SCALAR_MODE, |e, args| {
        let call = DivModeArgs::of(args)?;
        let number = Source::Number(e.float(call.other)?);
        Ok(Stage::Binary(rounding(e, args)?, call.input, number, 1.0))
    }),
    pointwise(Operator::RSUB_SCALAR, |e, args| {
        let call = AddScalarArgs::of(args)?;
        // The shader function supports floats only.
        if !e.tensor(call.input)?.element.is_floating() {
            return Err(Error::unsupported("rsub of integers on a GPU"));
        }
        let alpha = e.optional_float(call.alpha)?;
        let a = call.input;
        let number = rounded(e, a, e.float(call.other)?)?;
        unary(e, args, unary::LINE, -rounded(e, a, alpha.unwrap_or(1.0))?, number)
    }),
    pointwise(Operator::POW_TENSOR_TENSOR, |_, args| binary(args, binary::POW)),
    pointwise(Operator::POW_TENSOR_SCALAR, |e, args| with_rounded(e, args, binary::POW)),
    pointwise(Operator::MINIMUM, |_, args| binary(args, binary::MINIMUM)),
    pointwise(Operator::MAXIMUM, |_, args| binary(args, binary::MAXIMUM)),
    pointwise(Operator::EQ_TENSOR, |_, args| binary(args, binary::EQ)),
    pointwise(Operator::EQ_SCALAR, |e, args| with_rounded(e, args, binary::EQ)),
    pointwise(Operator::NE_TENSOR, |_, args| binary(args, binary::NE)),
    pointwise(Operator::NE_SCALAR, |e, args| with_rounded(e, args, binary::NE)),
    pointwise(Operator::LT_TENSOR, |_, args| binary(args, binary::LT)),
    pointwise(Operator::LT_SCALAR, |e, args| with_rounded(e, args, binary::LT)),
    pointwise(Operator::LE_TENSOR, |_, args| binary(args, binary::LE)),
    pointwise(Operator::LE_SCALAR, |e, args| with_rounded(e, args, binary::LE)),
    pointwise(Operator::GT_TENSOR, |_, args| binary(args, binary::GT)),
    pointwise(Operator::GT_SCALAR, |e, args| with_rounded(e, args, binary::GT)),
    pointwise(Operator::GE_TENSOR, |_, args| binary(args, binary::GE)),
    pointwise(Operator::GE_SCALAR, |e, args| with_rounded(e, args, binary::GE)),
    pointwise(Operator::LOGICAL_AND, |_, args| binary(args, binary::LOGICAL_AND)),
    pointwise(Operator::LOGICAL_OR, |_, args| binary(args, binary::LOGICAL_OR)),
    pointwise_integers(Operator::BITWISE_AND_TENSOR, |_, args| binary(args, binary::BITWISE_AND)),
    pointwise_integers(Operator::BITWISE_OR_TENSOR, |_, args| binary(args, binary::BITWISE_OR)),
    pointwise_integers(Operator::BITWISE_XOR_TENSOR, |_, args| binary(args, binary::BITWISE_XOR)),
    pointwise_integers(Operator::BITWISE_AND_SCALAR, |e, args| {
        with_number(e, args, binary::BITWISE_AND)
    }),
    pointwise_integers(Operator::BITWISE_OR_SCALAR, |e, args| {
        with_number(e, args, binary::BITWISE_OR)
    }),
    pointwise_integers(Operator::BITWISE_XOR_SCALAR, |e, args| {
        with_number(e, args, binary::BITWISE_XOR)
    }),
    pointwise_integers(Operator::LSHIFT_SCALAR, |e, args| shift(e, args, binary::MUL)),
    pointwise_integers(Operator::BITWISE_LEFT_SHIFT_TENSOR_SCALAR, |e, args| {
        shift(e, args, binary::MUL)
    }),
    pointwise_integers(Operator::RSHIFT_SCALAR, |e, args| shift(e, args, binary::DIV_FLOOR)),
    pointwise_integers(Operator::BITWISE_RIGHT_SHIFT_TENSOR_SCALAR, |e, args| {
        shift(e, args, binary::DIV_FLOOR)
    }),
];

fn unary(
    e: &Encoder<'_, '_>,
    args: &[ValueId],
    function: u32,
    a: f64,
    b: f64,
) -> Result<Stage, Error> {
    Ok(Stage::Unary(function, e.ends(args)?.0, [a, b]))
}

fn clamp(e: &Encoder<'_, '_>, args: &[ValueId]) -> Result<Stage, Error> {
    let call = ClampArgs::of(args)?;
    let low = e.optional_float(call.min)?.unwrap_or(f64::NEG_INFINITY);
    let high = e.optional_float(call.max)?.unwrap_or(f64::INFINITY);
    unary(e, args, unary::CLAMP, low, high)
}

fn binary_alpha(e: &Encoder<'_, '_>, args: &[ValueId], function: u32) -> Result<Stage, Error> {
    let call = AddArgs::of(args)?;
    let alpha = e.optional_float(call.alpha)?;
    let (a, b) = (call.input, call.other);
    let alpha = rounded(e, e.out(args)?.id, alpha.unwrap_or(1.0))?;
    Ok(Stage::Binary(function, a, Source::Tensor(b), alpha))
}

fn binary(args: &[ValueId], function: u32) -> Result<Stage, Error> {
    let call = BinaryArgs::of(args)?;
    Ok(Stage::Binary(function, call.input, Source::Tensor(call.other), 1.0))
}

/// Returns the shader function of a division, given its rounding mode.
fn rounding(e: &Encoder<'_, '_>, args: &[ValueId]) -> Result<u32, Error> {
    let call = DivModeArgs::of(args)?;
    let mode = e.optional_string(call.rounding_mode)?;
    if mode.is_some() && e.scalar_type(&e.out(args)?) == Some(ScalarType::BFloat16) {
        return Err(Error::unsupported("bfloat16 division with a rounding mode"));
    }
    Ok(match mode {
        Some("floor") => binary::DIV_FLOOR,
        Some("trunc") => binary::DIV_TRUNC,
        _ => binary::DIV,
    })
}

fn with_number_alpha(e: &Encoder<'_, '_>, args: &[ValueId], function: u32) -> Result<Stage, Error> {
    let call = AddScalarArgs::of(args)?;
    let alpha = e.optional_float(call.alpha)?;
    let a = call.input;
    let number = rounded(e, a, e.float(call.other)?)?;
    let alpha = rounded(e, a, alpha.unwrap_or(1.0))?;
    Ok(Stage::Binary(function, a, Source::Number(number), alpha))
}

/// Rounds a scalar to the type of tensor `a`, if `a` has a 16-bit type, as PyTorch does.
pub(super) fn rounded(e: &Encoder<'_, '_>, a: ValueId, number: f64) -> Result<f64, Error> {
    Ok(match e.scalar_type(&e.tensor(a)?) {
        // A graph that the exporter narrowed from 32 bits keeps its scalars: 1e-8 must not become
        // zero.
        Some(ScalarType::Half) if e.is_narrowed() => number,
        Some(ScalarType::Half) => half::f16::from_f32(number as f32).to_f64(),
        Some(ScalarType::BFloat16) => half::bf16::from_f32(number as f32).to_f64(),
        _ => number,
    })
}

fn with_rounded(e: &Encoder<'_, '_>, args: &[ValueId], function: u32) -> Result<Stage, Error> {
    let call = BinaryScalarArgs::of(args)?;
    let a = call.input;
    let number = rounded(e, a, e.float(call.other)?)?;
    Ok(Stage::Binary(function, a, Source::Number(number), 1.0))
}

fn with_number(e: &Encoder<'_, '_>, args: &[ValueId], function: u32) -> Result<Stage, Error> {
    let call = BinaryScalarArgs::of(args)?;
    let number = e.float(call.other)?;
    Ok(Stage::Binary(function, call.input, Source::Number(number), 1.0))
}

/// Encodes a shift by a constant number of bits: multiplication by a power of two, or division that
/// rounds down.
fn shift(e: &Encoder<'_, '_>, args: &[ValueId], function: u32) -> Result<Stage, Error> {
    let call = BinaryScalarArgs::of(args)?;
    let (a, bits) = (call.input, call.other);
    if e.tensor(a)?.element.is_floating() || e.tensor(e.out(args)?.id)?.element.is_floating() {
        return Err(Error::unsupported("bitwise shift with floating-point tensors"));
    }
    let by = e.float(bits)?;
    if e.is_symbolic(bits) || !(0.0..=30.0).contains(&by) || by.fract() != 0.0 {
        return Err(Error::unsupported(format!(
            "bitwise shift by {by} bits; expected a constant integer of 0 to 30"
        )));
    }
    Ok(Stage::Binary(function, a, Source::Number(f64::from(1_u32 << by as u32)), 1.0))
}

/// Returns the element-wise computation of a call of this operator, if the operator is
/// element-wise.
pub(super) fn stage_of(
    e: &Encoder<'_, '_>,
    operator: Operator,
    args: &[ValueId],
) -> Result<Stage, Error> {
    let stage = super::find(operator).and_then(|operator| operator.stage);
    let stage = stage.ok_or_else(|| {
        Error::Invalid(format!("internal error: {operator:?} is not element-wise"))
    })?;
    stage(e, args)
}

/// Emits the dispatch of a single element-wise operator.
pub(super) fn encode(e: &mut Encoder<'_, '_>, args: &[ValueId]) -> Result<(), Error> {
    match stage_of(e, e.operator()?, args)? {
        Stage::Unary(function, input, [a, b]) => {
            let input = e.tensor(input)?;
            let out = e.out(args)?;
            let out = e.resize(out.id, &input.sizes)?;
            apply_unary_with(e, function, &input, &out, [a, b, 0.0, 0.0])
        }
        Stage::Binary(function, a, b, alpha) => {
            let a = e.tensor(a)?;
            let b = match b {
                Source::Tensor(b) => e.tensor(b)?,
                Source::Number(it) => number(e, &a, second(args)?, it)?,
            };
            let out = e.out(args)?.id;
            apply_binary(e, function, [&a, &b], out, alpha)
        }
        Stage::Where(_) => super::select::where_self(e, args),
    }
}

/// Returns the id of a scalar argument, which follows the tensor that it is combined with.
fn second(args: &[ValueId]) -> Result<ValueId, Error> {
    match args {
        [_, number, ..] => Ok(*number),
        _ => Err(Error::Invalid(format!("expected two arguments, found {}", args.len()))),
    }
}

/// Returns a scalar as a tensor of one element, to be combined with `a`: a constant, or, if the
/// argument varies from run to run, a tensor that is filled in each run.
pub(super) fn number(
    e: &mut Encoder<'_, '_>,
    a: &Operand,
    argument: ValueId,
    number: f64,
) -> Result<Operand, Error> {
    if e.is_symbolic(argument) {
        let element = if a.element.is_floating() { Element::F32 } else { Element::I32 };
        let made = e.temporary(element, &[1])?;
        super::create::apply_fill(e, &made, number, 0.0)?;
        return Ok(made);
    }
    // With a scalar that is fractional or too large, an integer tensor is computed in floating
    // point.
    let fits = !a.element.is_floating() && number == f64::from(number as i32);
    let number =
        if fits { Number::Int(number as i32) } else { Number::Float((number as f32).to_bits()) };
    e.derived(Derived::Number(number))
}

/// Emits a unary function of the element-wise shader, with two parameters.
pub(super) fn apply_unary_with(
    e: &mut Encoder<'_, '_>,
    function: u32,
    input: &Operand,
    out: &Operand,
    parameters: [f64; 4],
) -> Result<(), Error> {
    let [a, b, c, d] = parameters;
    let pipeline = Unary { function, input: input.element, output: out.element };
    let push = UnaryPush {
        numel: u32_of(out.numel())?,
        a: a as f32,
        a_int: a as i32,
        b: b as f32,
        b_int: b as i32,
        c: c as f32,
        d: d as f32,
    };
    e.dispatch_by_four(&pipeline, [read(input.id), write(out.id)], &push, out.numel())
}

/// Emits a function of the binary shader.
pub(super) fn apply_binary(
    e: &mut Encoder<'_, '_>,
    function: u32,
    [a, b]: [&Operand; 2],
    out: ValueId,
    alpha: f64,
) -> Result<(), Error> {
    let sizes = broadcast_sizes(&a.sizes, &b.sizes)?;
    let out = e.resize(out, &sizes)?;
    emit_binary(e, function, [a, b], (&out, &sizes), alpha)
}

/// Emits a binary function into a tensor that already has the broadcast shape.
pub(super) fn emit_binary(
    e: &mut Encoder<'_, '_>,
    function: u32,
    [a, b]: [&Operand; 2],
    (out, sizes): (&Operand, &[usize]),
    alpha: f64,
) -> Result<(), Error> {
    let same_layout = a.sizes == sizes && b.sizes == sizes;
    let mut push = BinaryPush {
        numel: u32_of(out.numel())?,
        alpha: alpha as f32,
        alpha_int: alpha as i32,
        sizes: [1; MAX_DIMS],
        a_strides: [0; MAX_DIMS],
        b_strides: [0; MAX_DIMS],
    };
    if !same_layout {
        let steps = [broadcast_strides(a, sizes.len()), broadcast_strides(b, sizes.len())];
        let dims = super::dims::merge_dims(sizes, &steps)?;
        for (slot, (size, strides)) in (0..MAX_DIMS).rev().zip(dims.iter().rev()) {
            push.sizes[slot] = u32_of(*size)?;
            push.a_strides[slot] = strides[0] as u32;
            push.b_strides[slot] = strides[1] as u32;
        }
    }
    let pipeline =
        Binary { function, a: a.element, b: b.element, output: out.element, same_layout };
    e.dispatch_by_four(&pipeline, [read(a.id), read(b.id), write(out.id)], &push, out.numel())
}

/// Clamps the input between two tensors, either of which may be absent.
fn clamp_between(e: &mut Encoder<'_, '_>, args: &[ValueId]) -> Result<(), Error> {
    let call = ClampTensorArgs::of(args)?;
    let input = e.tensor(call.input)?;
    let (lower, upper) = (e.optional_tensor(call.min)?, e.optional_tensor(call.max)?);
    let bounds = || [&lower, &upper].into_iter().flatten();
    // `bfloat16` tensors are stored as 32-bit floats. A bound of a wider type would yield values
    // that are not rounded to `bfloat16`.
    let out = e.out(args)?;
    let is_wide = e.scalar_type(&out) != Some(ScalarType::BFloat16);
    let fits = |bound: &Operand| {
        e.scalar_type(bound) == e.scalar_type(&input)
            || (is_wide && bound.element.is_floating() && input.element.is_floating())
    };
    if !bounds().all(fits) {
        return Err(Error::unsupported(format!(
            "clamp of type {:?} with bounds of another type",
            input.element
        )));
    }
    let is_narrow = bounds().all(|bound| bound.element == input.element);
    let element = if is_narrow { input.element } else { Element::F32 };
    let out = out.id;
    match (&lower, &upper) {
        (Some(lower), Some(upper)) => {
            let sizes = broadcast_sizes(&input.sizes, &lower.sizes)?;
            let raised = e.temporary(element, &sizes)?;
            emit_binary(e, binary::MAXIMUM, [&input, lower], (&raised, &sizes), 1.0)?;
            apply_binary(e, binary::MINIMUM, [&raised, upper], out, 1.0)
        }
        (Some(lower), None) => apply_binary(e, binary::MAXIMUM, [&input, lower], out, 1.0),
        (None, Some(upper)) => apply_binary(e, binary::MINIMUM, [&input, upper], out, 1.0),
        (None, None) => Err(Error::invalid("expected min, max or both, found neither")),
    }
}

/// Returns the shape that two shapes broadcast to.
pub(super) fn broadcast_sizes(a: &[usize], b: &[usize]) -> Result<Vec<usize>, Error> {
    let narrow = |sizes: &[usize]| sizes.iter().map(|size| *size as i32).collect::<Vec<_>>();
    let sizes = broadcast(&narrow(a), &narrow(b))
        .ok_or_else(|| Error::Invalid(format!("shapes {a:?} and {b:?} do not broadcast")))?;
    Ok(sizes.iter().map(|size| *size as usize).collect())
}

/// Returns the strides of a tensor broadcast to `rank` dims.
pub(super) fn broadcast_strides(tensor: &Operand, rank: usize) -> Vec<i64> {
    let own = tensor.strides();
    let missing = rank - tensor.rank();
    (0..rank)
        .map(|dim| match dim.checked_sub(missing) {
            Some(dim) if tensor.size(dim) != 1 => own[dim] as i64,
            _ => 0,
        })
        .collect()
}
