//! Functions of one or two tensors, element by element.

use super::{Operator, operator};
use crate::encoder::{Encoder, read, u32_of, write};
use crate::error::Error;
use crate::ir::ValueId;
use crate::tensors::Operand;
use torchlet_core::rules::broadcast;
use torchlet_shaders::{Binary, BinaryPush, Element, Fill, FillPush, MAX_DIMS, Unary, UnaryPush};

pub(super) const OPERATORS: &[Operator] = &[
    operator("aten.abs.default", |e, args| unary(e, args, 1, 0.0, 0.0)),
    operator("aten.neg.default", |e, args| unary(e, args, 2, 0.0, 0.0)),
    operator("aten.sqrt.default", |e, args| unary(e, args, 3, 0.0, 0.0)),
    operator("aten.rsqrt.default", |e, args| unary(e, args, 4, 0.0, 0.0)),
    operator("aten.exp.default", |e, args| unary(e, args, 5, 0.0, 0.0)),
    operator("aten.log10.default", |e, args| unary(e, args, 7, 0.0, 0.0)),
    operator("aten.sin.default", |e, args| unary(e, args, 8, 0.0, 0.0)),
    operator("aten.cos.default", |e, args| unary(e, args, 9, 0.0, 0.0)),
    operator("aten.tan.default", |e, args| unary(e, args, 10, 0.0, 0.0)),
    operator("aten.tanh.default", |e, args| unary(e, args, 11, 0.0, 0.0)),
    operator("aten.sigmoid.default", |e, args| unary(e, args, 12, 0.0, 0.0)),
    operator("aten.gelu.default", |e, args| {
        let tanh = args.len() > 2 && e.optional_string(args[1])? == Some("tanh");
        unary(e, args, if tanh { 14 } else { 13 }, 0.0, 0.0)
    }),
    operator("aten.round.default", |e, args| unary(e, args, 15, 0.0, 0.0)),
    operator("aten.relu.default", |e, args| unary(e, args, 18, 0.0, f64::INFINITY)),
    operator("aten.relu6.default", |e, args| unary(e, args, 18, 0.0, 6.0)),
    operator("aten.hardtanh.default", clamp),
    operator("aten.clamp.default", clamp),
    operator("aten.leaky_relu.default", |e, args| {
        let slope = if args.len() > 2 { e.float(args[1])? } else { 0.01 };
        unary(e, args, 19, slope, 0.0)
    }),
    operator("aten.hardswish.default", |e, args| unary(e, args, 20, 0.0, 0.0)),
    operator("aten.hardsigmoid.default", |e, args| unary(e, args, 21, 0.0, 0.0)),
    operator("aten.hardshrink.default", |e, args| {
        let lambda = if args.len() > 2 { e.float(args[1])? } else { 0.5 };
        unary(e, args, 22, lambda, 0.0)
    }),
    operator("aten.logical_not.default", |e, args| unary(e, args, 23, 0.0, 0.0)),
    operator("aten.bitwise_not.default", |e, args| unary(e, args, 30, 0.0, 0.0)),
    operator("aten.add.Tensor", |e, args| binary_alpha(e, args, 0)),
    operator("aten.sub.Tensor", |e, args| binary_alpha(e, args, 1)),
    operator("aten.mul.Tensor", |e, args| binary(e, args, 2)),
    operator("aten.div.Tensor", |e, args| binary(e, args, 3)),
    operator("aten.div.Tensor_mode", |e, args| {
        let function = match e.optional_string(e.arg(args, 2)?)? {
            Some("floor") => 4,
            Some("trunc") => 5,
            _ => 3,
        };
        binary(e, args, function)
    }),
    operator("aten.pow.Tensor_Tensor", |e, args| binary(e, args, 6)),
    operator("aten.pow.Tensor_Scalar", |e, args| with_number(e, args, 6)),
    operator("aten.minimum.default", |e, args| binary(e, args, 7)),
    operator("aten.maximum.default", |e, args| binary(e, args, 8)),
    operator("aten.eq.Tensor", |e, args| binary(e, args, 9)),
    operator("aten.eq.Scalar", |e, args| with_number(e, args, 9)),
    operator("aten.ne.Tensor", |e, args| binary(e, args, 10)),
    operator("aten.ne.Scalar", |e, args| with_number(e, args, 10)),
    operator("aten.lt.Tensor", |e, args| binary(e, args, 11)),
    operator("aten.lt.Scalar", |e, args| with_number(e, args, 11)),
    operator("aten.le.Tensor", |e, args| binary(e, args, 12)),
    operator("aten.le.Scalar", |e, args| with_number(e, args, 12)),
    operator("aten.gt.Tensor", |e, args| binary(e, args, 13)),
    operator("aten.gt.Scalar", |e, args| with_number(e, args, 13)),
    operator("aten.ge.Tensor", |e, args| binary(e, args, 14)),
    operator("aten.ge.Scalar", |e, args| with_number(e, args, 14)),
    operator("aten.logical_and.default", |e, args| binary(e, args, 15)),
    operator("aten.logical_or.default", |e, args| binary(e, args, 16)),
    operator("aten.bitwise_and.Tensor", |e, args| binary(e, args, 17)),
    operator("aten.bitwise_or.Tensor", |e, args| binary(e, args, 18)),
    operator("aten.full.default", |e, args| {
        let sizes = e.ints(e.arg(args, 0)?)?;
        let value = e.float(e.arg(args, 1)?)?;
        fill(e, args, Some(&sizes), value)
    }),
    operator("aten.full_like.default", |e, args| {
        let value = e.float(e.arg(args, 1)?)?;
        fill_like(e, args, value)
    }),
    operator("aten.zeros.default", |e, args| {
        let sizes = e.ints(e.arg(args, 0)?)?;
        fill(e, args, Some(&sizes), 0.0)
    }),
    operator("aten.zeros_like.default", |e, args| fill_like(e, args, 0.0)),
    operator("aten.ones.default", |e, args| {
        let sizes = e.ints(e.arg(args, 0)?)?;
        fill(e, args, Some(&sizes), 1.0)
    }),
    operator("aten.ones_like.default", |e, args| fill_like(e, args, 1.0)),
    operator("aten.scalar_tensor.default", |e, args| {
        let value = e.float(e.arg(args, 0)?)?;
        fill(e, args, None, value)
    }),
    operator("aten.arange.start_step", arange),
];

/// Sizes as the encoder counts them.
fn to_sizes(sizes: &[i64]) -> Result<Vec<usize>, Error> {
    sizes
        .iter()
        .map(|size| usize::try_from(*size).map_err(|_| Error::Invalid(format!("size {size}"))))
        .collect()
}

/// Applies function number `function` of the unary shader.
fn unary(
    e: &mut Encoder<'_, '_>,
    args: &[ValueId],
    function: u32,
    a: f64,
    b: f64,
) -> Result<(), Error> {
    let input = e.tensor(e.arg(args, 0)?)?;
    let out = e.out(args)?;
    let out = e.resize(out.id, &input.sizes)?;
    apply_unary(e, function, &input, &out, a, b)
}

/// As [`unary`], over operands.
pub(super) fn apply_unary(
    e: &mut Encoder<'_, '_>,
    function: u32,
    input: &Operand,
    out: &Operand,
    a: f64,
    b: f64,
) -> Result<(), Error> {
    apply_unary_with(e, function, input, out, [a, b, 0.0, 0.0])
}

/// As [`apply_unary`], with all parameters that the shader takes.
pub(super) fn apply_unary_with(
    e: &mut Encoder<'_, '_>,
    function: u32,
    input: &Operand,
    out: &Operand,
    parameters: [f64; 4],
) -> Result<(), Error> {
    let [a, b, c, d] = parameters.map(|parameter| parameter as f32);
    let pipeline = Unary { function, input: input.element, output: out.element };
    let push = UnaryPush { numel: u32_of(out.numel())?, a, b, c, d };
    e.dispatch_by_four(&pipeline, [read(input.id), write(out.id)], &push, out.numel())
}

fn clamp(e: &mut Encoder<'_, '_>, args: &[ValueId]) -> Result<(), Error> {
    let bound = |e: &Encoder<'_, '_>, position: usize, none: f64| -> Result<f64, Error> {
        if position + 1 < args.len() {
            Ok(e.optional_float(args[position])?.unwrap_or(none))
        } else {
            Ok(none)
        }
    };
    let (low, high) = (bound(e, 1, f64::NEG_INFINITY)?, bound(e, 2, f64::INFINITY)?);
    unary(e, args, 18, low, high)
}

fn binary_alpha(e: &mut Encoder<'_, '_>, args: &[ValueId], function: u32) -> Result<(), Error> {
    let alpha = if args.len() > 3 { e.float(args[2])? } else { 1.0 };
    let (a, b) = (e.tensor(e.arg(args, 0)?)?, e.tensor(e.arg(args, 1)?)?);
    apply_binary(e, function, &a, &b, args, alpha)
}

fn binary(e: &mut Encoder<'_, '_>, args: &[ValueId], function: u32) -> Result<(), Error> {
    let (a, b) = (e.tensor(e.arg(args, 0)?)?, e.tensor(e.arg(args, 1)?)?);
    apply_binary(e, function, &a, &b, args, 1.0)
}

/// The second operand is a number: a constant tensor of one element.
fn with_number(e: &mut Encoder<'_, '_>, args: &[ValueId], function: u32) -> Result<(), Error> {
    let a = e.tensor(e.arg(args, 0)?)?;
    let number = e.float(e.arg(args, 1)?)?;
    // An integer tensor meets a fraction in floating point.
    let fits = !a.element.is_floating() && number.fract() == 0.0;
    let (element, bytes) = if fits {
        (Element::I32, (number as i32).to_le_bytes())
    } else {
        (Element::F32, (number as f32).to_le_bytes())
    };
    let purpose = format!("number {number}");
    let b = e.derived(e.arg(args, 1)?, &purpose, element, &[], |_| Ok(bytes.to_vec()))?;
    apply_binary(e, function, &a, &b, args, 1.0)
}

fn apply_binary(
    e: &mut Encoder<'_, '_>,
    function: u32,
    a: &Operand,
    b: &Operand,
    args: &[ValueId],
    alpha: f64,
) -> Result<(), Error> {
    let sizes = broadcast_sizes(a, b)?;
    let out = e.out(args)?;
    let out = e.resize(out.id, &sizes)?;
    let same_layout = a.sizes == sizes && b.sizes == sizes;
    let mut push = BinaryPush {
        numel: u32_of(out.numel())?,
        alpha: alpha as f32,
        sizes: [1; MAX_DIMS],
        a_strides: [0; MAX_DIMS],
        b_strides: [0; MAX_DIMS],
    };
    if !same_layout {
        let steps = [broadcast_strides(a, sizes.len()), broadcast_strides(b, sizes.len())];
        let dims = super::views::merge_dims(&sizes, &steps)?;
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

/// The shape of two tensors that are broadcast.
pub(super) fn broadcast_sizes(a: &Operand, b: &Operand) -> Result<Vec<usize>, Error> {
    let narrow = |sizes: &[usize]| sizes.iter().map(|size| *size as i32).collect::<Vec<_>>();
    let sizes = broadcast(&narrow(&a.sizes), &narrow(&b.sizes)).ok_or_else(|| {
        Error::Invalid(format!("shapes {:?} and {:?} do not broadcast", a.sizes, b.sizes))
    })?;
    Ok(sizes.iter().map(|size| *size as usize).collect())
}

/// Strides of a tensor that is broadcast to `rank` dimensions.
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

fn fill_like(e: &mut Encoder<'_, '_>, args: &[ValueId], value: f64) -> Result<(), Error> {
    let sizes: Vec<i64> =
        e.tensor(e.arg(args, 0)?)?.sizes.iter().map(|size| *size as i64).collect();
    fill(e, args, Some(&sizes), value)
}

fn fill(
    e: &mut Encoder<'_, '_>,
    args: &[ValueId],
    sizes: Option<&[i64]>,
    value: f64,
) -> Result<(), Error> {
    let out = e.out(args)?;
    let sizes = to_sizes(sizes.unwrap_or(&[]))?;
    let out = e.resize(out.id, &sizes)?;
    apply_fill(e, &out, value, 0.0)
}

/// Writes `value + index * step` to all elements.
pub(super) fn apply_fill(
    e: &mut Encoder<'_, '_>,
    out: &Operand,
    value: f64,
    step: f64,
) -> Result<(), Error> {
    let push = FillPush { numel: u32_of(out.numel())?, value: value as f32, step: step as f32 };
    e.dispatch_by_four(&Fill { output: out.element }, [write(out.id)], &push, out.numel())
}

fn arange(e: &mut Encoder<'_, '_>, args: &[ValueId]) -> Result<(), Error> {
    let start = e.optional_float(e.arg(args, 0)?)?.unwrap_or(0.0);
    let end = e.float(e.arg(args, 1)?)?;
    let step = e.optional_float(e.arg(args, 2)?)?.unwrap_or(1.0);
    if step == 0.0 {
        return Err(Error::invalid("the step is zero"));
    }
    let count = ((end - start) / step).ceil().max(0.0);
    let out = e.out(args)?;
    if count > u32::MAX.into() {
        return Err(Error::unsupported("a range of more than 2^32 elements"));
    }
    let out = e.resize(out.id, &[count as usize])?;
    apply_fill(e, &out, start, step)
}
