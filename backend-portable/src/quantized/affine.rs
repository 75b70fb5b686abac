//! Quantizing and dequantizing per tensor, per channel and per token.

use crate::compute::split::{chunk_len, for_each_chunk_mut};
use crate::number::{ComputeType, Number, elements_mut, load, store, unsupported, with_number};
use crate::real::Real;
use crate::shape::bad;
use crate::table::kernels;
use crate::types::has;
use crate::walk::{Steps, Walk};
use torchlet_core::Param::{Float, Int, OptionalInt, OptionalTensor, Out, Tensor};
use torchlet_core::layout::MAX_RANK;
use torchlet_core::rules::normalize_dim;
use torchlet_core::{
    Arguments, Elements, Invoke, InvokeFn, Kernel, KernelError, Plan, Prepare, Scalar, ScalarType,
    TensorInfo, TensorRef,
};

/// A kernel with a scale and a zero point. `$form` has its argument indices.
macro_rules! affine {
    ($operator:literal, [$($param:ident),*], $form:expr, $prepare:path, $function:ident) => {
        Kernel::new($operator, &[$($param),*], |ctx| {
            const FORM: Form = $form;
            $prepare(
                ctx,
                FORM,
                [|ctx| $function::<f32>(ctx, FORM), |ctx| $function::<f64>(ctx, FORM)],
            )
        })
        .with_elements(Elements::Float)
    };
}

kernels! { AFFINE:
    /// `quantized_decomposed::quantize_per_tensor.out(input, scale,
    /// zero_point, quant_min, quant_max, dtype, out)`: quantizes with one scale and zero point.
    QUANTIZE_PER_TENSOR_OUT = affine!(
        "quantized_decomposed::quantize_per_tensor.out",
        [Tensor, Float, Int, Int, Int, Int, Out],
        form(Numbers, 6),
        prepare_quantize,
        quantize
    );
    /// Like [`QUANTIZE_PER_TENSOR_OUT`], with scale and zero point as tensors.
    QUANTIZE_PER_TENSOR_TENSOR_OUT = affine!(
        "quantized_decomposed::quantize_per_tensor.Tensor_out",
        [Tensor, Tensor, Tensor, Int, Int, Int, Out],
        form(Tensors, 6),
        prepare_quantize,
        quantize
    );
    /// `quantized_decomposed::quantize_per_channel.out(input, scales,
    /// zero_points, axis, quant_min, quant_max, dtype, out)`: quantizes with a scale and zero point
    /// for each index of `axis`.
    QUANTIZE_PER_CHANNEL_OUT = affine!(
        "quantized_decomposed::quantize_per_channel.out",
        [Tensor, Tensor, OptionalTensor, Int, Int, Int, Int, Out],
        form(Channel, 7),
        prepare_quantize,
        quantize
    );
    /// `quantized_decomposed::quantize_per_token.out(input, scales,
    /// zero_points, quant_min, quant_max, dtype, out)`: quantizes with a scale and zero point for
    /// each vector of the last dim.
    QUANTIZE_PER_TOKEN_OUT = affine!(
        "quantized_decomposed::quantize_per_token.out",
        [Tensor, Tensor, Tensor, Int, Int, Int, Out],
        form(Token, 6),
        prepare_quantize,
        quantize
    );
    /// `quantized_decomposed::dequantize_per_tensor.out(input, scale,
    /// zero_point, quant_min, quant_max, dtype, out_dtype, out)`: dequantizes with one scale and
    /// zero point.
    DEQUANTIZE_PER_TENSOR_OUT = affine!(
        "quantized_decomposed::dequantize_per_tensor.out",
        [Tensor, Float, Int, Int, Int, Int, OptionalInt, Out],
        form(Numbers, 7),
        prepare_dequantize,
        dequantize
    );
    /// Like [`DEQUANTIZE_PER_TENSOR_OUT`], with scale and zero point as tensors.
    DEQUANTIZE_PER_TENSOR_TENSOR_OUT = affine!(
        "quantized_decomposed::dequantize_per_tensor.Tensor_out",
        [Tensor, Tensor, Tensor, Int, Int, Int, OptionalInt, Out],
        form(Tensors, 7),
        prepare_dequantize,
        dequantize
    );
    /// `quantized_decomposed::dequantize_per_channel.out(input, scales,
    /// zero_points, axis, quant_min, quant_max, dtype, out_dtype, out)`: dequantizes with a scale
    /// and zero point for each index of `axis`.
    DEQUANTIZE_PER_CHANNEL_OUT = affine!(
        "quantized_decomposed::dequantize_per_channel.out",
        [Tensor, Tensor, OptionalTensor, Int, Int, Int, Int, OptionalInt, Out],
        form(Channel, 8),
        prepare_dequantize,
        dequantize
    );
    /// `quantized_decomposed::dequantize_per_token.out(input, scales,
    /// zero_points, quant_min, quant_max, dtype, output_dtype, out)`: dequantizes with a scale and
    /// zero point for each vector of the last dim.
    DEQUANTIZE_PER_TOKEN_OUT = affine!(
        "quantized_decomposed::dequantize_per_token.out",
        [Tensor, Tensor, Tensor, Int, Int, Int, Int, Out],
        form(Token, 7),
        prepare_dequantize,
        dequantize
    );
}

/// Granularity of scale and zero point (arguments 1 and 2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Granularity {
    /// Two scalars for the whole tensor.
    Numbers,
    /// Two tensors of one element for the whole tensor.
    Tensors,
    /// Two vectors, with an element for each index of the dim in argument 3.
    Channel,
    /// Two tensors that are broadcast; normally with an element for each vector of the last
    /// dim.
    Token,
}

use Granularity::{Channel, Numbers, Tensors, Token};

/// Granularity and argument indices of an operator.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Form {
    granularity: Granularity,
    /// Index of the minimum quantized value; the maximum follows.
    bounds: u8,
    out: u8,
}

impl Form {
    fn bounds(self) -> usize {
        self.bounds.into()
    }

    fn out(self) -> usize {
        self.out.into()
    }
}

// Consists of small integers, so that it is passed in a register. If an application uses only one
// form, the optimiser propagates it as a constant.
const fn form(granularity: Granularity, out: u8) -> Form {
    Form { granularity, bounds: if let Channel = granularity { 4 } else { 3 }, out }
}

/// Per-tensor quantization with scalars; the output has no dtype argument.
pub(crate) const QUANTIZE_FORM: Form = form(Numbers, 6);
/// Per-tensor dequantization with scalars; the output has no dtype argument.
pub(crate) const DEQUANTIZE_FORM: Form = form(Numbers, 6);

/// Scale or zero point: a scalar, or a tensor with strides over the output's dims.
struct Parameter<'c> {
    number: f64,
    tensor: Option<TensorRef<'c>>,
    steps: Steps,
}

impl<'c> Parameter<'c> {
    fn number(number: f64) -> Self {
        Parameter { number, tensor: None, steps: Steps { strides: [0; MAX_RANK], base: 0 } }
    }

    /// Reads argument `arg`; `absent` replaces a missing optional tensor.
    fn new(
        ctx: &Invoke<'c, '_>,
        form: Form,
        arg: usize,
        info: &TensorInfo,
        absent: f64,
    ) -> Result<Self, KernelError> {
        if form.granularity == Numbers {
            return Ok(Self::number(ctx.float(arg)?));
        }
        let Some(tensor) = ctx.optional_tensor(arg)? else { return Ok(Self::number(absent)) };
        let mut steps = Steps { strides: [0; MAX_RANK], base: 0 };
        match form.granularity {
            Channel => {
                let axis = normalize_dim(ctx.int(3)?, info.rank());
                let stride = axis.and_then(|axis| steps.strides.get_mut(axis));
                *stride.ok_or(bad(3, "dim is out of range for the input"))? = 1;
            }
            Token => {
                steps = Steps::broadcast(info, tensor.info())
                    .ok_or(bad(arg, "shape does not broadcast to that of the input"))?;
            }
            Numbers | Tensors => {
                let mut number = [0.0f64];
                load(tensor.scalar_type, tensor.bytes(), 0, 0, &mut number);
                return Ok(Self::number(number[0]));
            }
        }
        Ok(Parameter { number: 0.0, tensor: Some(tensor), steps })
    }

    fn load<C: Real>(&self, at: isize, step: isize, out: &mut [C]) {
        match &self.tensor {
            Some(tensor) => load(tensor.scalar_type, tensor.bytes(), at, step, out),
            None => out.fill(C::from_f64(self.number)),
        }
    }
}

/// Checks the arguments of a quantize or dequantize operator, and returns the compute type.
fn prepare(ctx: &mut Prepare, form: Form) -> Result<ComputeType, KernelError> {
    let info = ctx.info(0)?;
    ctx.resize(form.out(), &info.sizes)?;
    let mut compute = ComputeType::F32;
    if form.granularity == Numbers {
        return Ok(compute);
    }
    for arg in [1, 2] {
        let Some(parameter) = ctx.optional_info(arg)? else { continue };
        // Checks for any compute type: integer parameters are converted even if the build does not
        // compute in integers.
        match ComputeType::of_any(parameter.scalar_type) {
            Some(ComputeType::F64) if form.granularity != Tensors => compute = ComputeType::F64,
            Some(_) => {}
            None => return Err(unsupported(arg, parameter.scalar_type)),
        }
        let fits = match form.granularity {
            Tensors => parameter.numel() == 1,
            Channel => {
                let axis = normalize_dim(ctx.int(3)?, info.rank());
                let axis = axis
                    .filter(|_| info.rank() > 0)
                    .ok_or(bad(3, "dim is out of range for the input"))?;
                parameter.rank() == 1 && parameter.size(0) == info.size(axis)
            }
            _ => Steps::broadcast(&info, &parameter).is_some(),
        };
        if !fits {
            return Err(bad(
                arg,
                "expected one element, one per channel of `axis`, or a shape that broadcasts to \
                 the input",
            ));
        }
    }
    Ok(compute)
}

fn is_quantized(scalar_type: ScalarType) -> bool {
    matches!(
        scalar_type,
        ScalarType::Byte
            | ScalarType::Char
            | ScalarType::Short
            | ScalarType::Int
            | ScalarType::UInt16
    )
}

fn check_declared(ctx: &Arguments, arg: usize, found: ScalarType) -> Result<(), KernelError> {
    let declared = ctx.optional_scalar_type(arg)?;
    if declared.is_none_or(|declared| declared == found) {
        Ok(())
    } else {
        Err(bad(arg, "declared dtype differs from that of the tensor"))
    }
}

/// Prepares a quantize operator; `by` has the functions that compute in `f32` and `f64`.
pub(crate) fn prepare_quantize(
    ctx: &mut Prepare,
    form: Form,
    by: [InvokeFn; 2],
) -> Result<Plan, KernelError> {
    let compute = prepare(ctx, form)?;
    let (input, out) = (ctx.info(0)?.scalar_type, ctx.info(form.out())?.scalar_type);
    if !input.is_floating() {
        return Err(unsupported(0, input));
    }
    if !is_quantized(out) {
        return Err(unsupported(form.out(), out));
    }
    check_declared(ctx, form.bounds() + 2, out)?;
    let [single, double] = by;
    Ok(Plan::new(if compute == ComputeType::F64 || input == ScalarType::Double {
        double
    } else {
        single
    }))
}

/// Prepares a dequantize operator; `by` has the functions that compute in `f32` and `f64`.
pub(crate) fn prepare_dequantize(
    ctx: &mut Prepare,
    form: Form,
    by: [InvokeFn; 2],
) -> Result<Plan, KernelError> {
    let compute = prepare(ctx, form)?;
    let (input, out) = (ctx.info(0)?.scalar_type, ctx.info(form.out())?.scalar_type);
    // Exporters for `cortex_m` sometimes store quantized values in a floating-point tensor.
    let loose =
        form.out() == form.bounds() + 3 && form.granularity == Numbers && input.is_floating();
    if !is_quantized(input) && !loose {
        return Err(unsupported(0, input));
    }
    if !out.is_floating() {
        return Err(unsupported(form.out(), out));
    }
    if !loose {
        check_declared(ctx, form.bounds() + 2, input)?;
    }
    if form.out() > form.bounds() + 3 {
        check_declared(ctx, form.bounds() + 3, out)?;
    }
    let [single, double] = by;
    Ok(Plan::new(if compute == ComputeType::F64 || out == ScalarType::Double {
        double
    } else {
        single
    }))
}

/// Number of values that are converted at once.
const BLOCK: usize = 64;

/// Calls `visit` for each block, with the input values, scales, zero points, and bytes of the
/// output.
fn for_each_block<C: Real>(
    ctx: &mut Invoke,
    form: Form,
    visit: &(dyn Fn(&mut [C], &[C], &[C], ScalarType, &mut [u8]) + Sync),
) -> Result<(), KernelError> {
    crate::types::expect::<C>()?;
    let input = ctx.tensor(0)?;
    let info = ctx.info(form.out())?;
    let scale = Parameter::new(ctx, form, 1, &info, 1.0)?;
    let zero = Parameter::new(ctx, form, 2, &info, 0.0)?;
    let out = ctx.out(form.out())?.into_bytes();
    let own = Steps::broadcast(&info, input.info())
        .ok_or(bad(0, "shape does not broadcast to that of the output"))?;
    let walk = Walk::new(&info, &[own, scale.steps, zero.steps]);
    let [step, scale_step, zero_step] = walk.inner_steps();
    let size = info.scalar_type.size();
    let grain = chunk_len(ctx.parallel(), info.numel(), 16 * 1024);
    for_each_chunk_mut(ctx.parallel(), out, grain * size, &|chunk, out: &mut [u8]| {
        let from = chunk * grain;
        let (mut values, mut scales, mut zeros) =
            ([C::default(); BLOCK], [C::default(); BLOCK], [C::default(); BLOCK]);
        walk.for_each_run(
            from,
            from + out.len() / size,
            &mut |start, [at, scale_at, zero_at], len| {
                for done in (0..len).step_by(BLOCK) {
                    let count = (len - done).min(BLOCK);
                    let moved =
                        |at: isize, step: isize| at.wrapping_add(step.wrapping_mul(done as isize));
                    load(
                        input.scalar_type,
                        input.bytes(),
                        moved(at, step),
                        step,
                        &mut values[..count],
                    );
                    // Scalars and constant parameters are loaded once.
                    if done == 0 || scale_step != 0 {
                        let count = if scale_step == 0 { len.min(BLOCK) } else { count };
                        scale.load(moved(scale_at, scale_step), scale_step, &mut scales[..count]);
                    }
                    if done == 0 || zero_step != 0 {
                        let count = if zero_step == 0 { len.min(BLOCK) } else { count };
                        zero.load(moved(zero_at, zero_step), zero_step, &mut zeros[..count]);
                    }
                    let byte = (start - from + done) * size;
                    let out = out.get_mut(byte..byte + count * size).unwrap_or_default();
                    visit(
                        &mut values[..count],
                        &scales[..count],
                        &zeros[..count],
                        info.scalar_type,
                        out,
                    );
                }
            },
        );
    });
    Ok(())
}

/// Minimum and maximum quantized value.
fn bounds(ctx: &Arguments, form: Form) -> Result<(i64, i64), KernelError> {
    Ok((ctx.int(form.bounds())?, ctx.int(form.bounds() + 1)?))
}

pub(crate) fn quantize<C: Real>(ctx: &mut Invoke, form: Form) -> Result<(), KernelError> {
    crate::types::expect::<C>()?;
    let (low, high) = bounds(ctx, form)?;
    // PyTorch computes the reciprocal of a scalar scale in double precision, and that of a tensor
    // in its own type.
    let inverse = if form.granularity == Numbers || form.granularity == Tensors {
        let scale = Parameter::new(ctx, form, 1, &ctx.info(form.out())?, 1.0)?;
        Some(C::from_f64(1.0 / scale.number))
    } else {
        None
    };
    let one = C::from_f64(1.0);
    for_each_block::<C>(ctx, form, &|values, scales, zeros, scalar_type, out| {
        match (form.granularity, inverse) {
            // Per token, the zero point is added before rounding.
            (Token, _) => {
                for ((value, &scale), &zero) in values.iter_mut().zip(scales).zip(zeros) {
                    *value = (*value * (one / scale) + zero).round_even();
                }
            }
            (_, Some(inverse)) => {
                for (value, &zero) in values.iter_mut().zip(zeros) {
                    *value = scaled(*value, inverse, zero);
                }
            }
            (_, None) => {
                for ((value, &scale), &zero) in values.iter_mut().zip(scales).zip(zeros) {
                    *value = (*value * (one / scale)).round_even() + zero;
                }
            }
        }
        with_number!(
            scalar_type,
            |T| write_bounded::<C, T>(values, low, high, elements_mut(out)),
            else ()
        );
    })
}

/// Scales a value and adds the zero point; the result is not bounded yet.
#[inline(always)]
pub(crate) fn scaled<C: Real>(value: C, inverse: C, zero: C) -> C {
    (value * inverse).round_even() + zero
}

/// Converts a scaled value to a quantized one. `none` is the result for NaN, which PyTorch does not
/// clamp but converts directly.
#[inline(always)]
pub(crate) fn bounded<C: Real, T: Number>(value: C, (low, high): (C, C), none: T) -> T {
    let value = if value < low { low } else { value };
    let value = if value > high { high } else { value };
    let whole = T::from_i64(i64::from(value.to_f32() as i32));
    if value.is_nan() { none } else { whole }
}

/// Dequantizes a value.
#[inline(always)]
pub(crate) fn dequantized<C: Real>(value: C, scale: C, zero: C) -> C {
    (value - zero) * scale
}

fn write_bounded<C: Real, T: Number>(values: &[C], low: i64, high: i64, out: &mut [T]) {
    const EXACT: core::ops::RangeInclusive<i64> = -(1 << 24)..=1 << 24;
    let none = T::from_f32(f32::NAN);
    if EXACT.contains(&low) && EXACT.contains(&high) {
        // Bounds that all compute types represent exactly.
        let bounds = (C::from_i64(low), C::from_i64(high));
        for (out, &value) in out.iter_mut().zip(values) {
            *out = bounded(value, bounds, none);
        }
        return;
    }
    // As in PyTorch, the bounds are rounded to the type of the values, and so may exceed the range
    // of the quantized type.
    let (low, high) = (C::of_scalar(Scalar::Int(low)), C::of_scalar(Scalar::Int(high)));
    for (out, &value) in out.iter_mut().zip(values) {
        let value = if value < low { low } else { value };
        *out = (if value > high { high } else { value }).to();
    }
}

pub(crate) fn dequantize<C: Real>(ctx: &mut Invoke, form: Form) -> Result<(), KernelError> {
    crate::types::expect::<C>()?;
    // Per tensor, PyTorch computes in the output type; otherwise it converts at the end.
    let stepwise = matches!(form.granularity, Numbers | Tensors);
    for_each_block::<C>(ctx, form, &|values, scales, zeros, scalar_type, out| {
        match scalar_type {
            ScalarType::Half if stepwise && has(ScalarType::Half) => {
                stepped::<C, half::f16>(values, scales, zeros);
            }
            ScalarType::BFloat16 if stepwise && has(ScalarType::BFloat16) => {
                stepped::<C, half::bf16>(values, scales, zeros);
            }
            _ => {
                for ((value, &scale), &zero) in values.iter_mut().zip(scales).zip(zeros) {
                    *value = dequantized(*value, scale, zero);
                }
            }
        }
        store(scalar_type, out, values);
    })
}

/// Dequantizes in a 16-bit float type, rounding after each step.
fn stepped<C: Real, T: Number>(values: &mut [C], scales: &[C], zeros: &[C]) {
    let rounded = |value: C| C::of(value.to::<T>());
    for ((value, &scale), &zero) in values.iter_mut().zip(scales).zip(zeros) {
        *value = rounded(rounded(*value) - zero) * scale;
    }
}

#[cfg(test)]
mod tests {
    use super::write_bounded;

    #[test]
    fn quantized_values_are_clamped() {
        let values = [f32::NEG_INFINITY, -128.0, 0.0, 127.0, f32::INFINITY, f32::NAN];
        let mut out = [0i8; 6];
        write_bounded(&values, -128, 127, &mut out);
        assert_eq!(out, [-128, -128, 0, 127, 127, 0]);
        let mut out = [0i32; 6];
        write_bounded(&values, i32::MIN.into(), i32::MAX.into(), &mut out);
        // The maximum is 2^31 in `f32`, which does not fit `i32`.
        assert_eq!(out, [i32::MIN, -128, 0, 127, i32::MIN, i32::MIN]);
        write_bounded(&values.map(f64::from), i32::MIN.into(), i32::MAX.into(), &mut out);
        assert_eq!(out, [i32::MIN, -128, 0, 127, i32::MAX, i32::MIN]);
    }
}
