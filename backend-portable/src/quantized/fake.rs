//! Fake quantization, as in quantization-aware training: values are rounded to representable
//! quantized values and stay floating-point.

use crate::number::{ComputeType, load, store, unsupported};
use crate::real::Real;
use crate::shape::bad;
use crate::table::kernels;
use torchlet_core::Param::{Float, Int, Out, Tensor};
use torchlet_core::rules::normalize_dim;
use torchlet_core::{
    Arguments, Invoke, InvokeFn, Kernel, KernelError, Plan, Prepare, ScalarType, TensorRef,
};

/// A fake-quantization kernel.
macro_rules! fake {
    ($operator:literal, [$($param:ident),*], $form:expr) => {
        Kernel::new($operator, &[$($param),*], |ctx| {
            const FORM: Form = $form;
            prepare(ctx, FORM, [|ctx| run::<f32>(ctx, FORM), |ctx| run::<f64>(ctx, FORM)])
        })
    };
}

kernels! { FAKE:
    /// `aten::fake_quantize_per_tensor_affine_cachemask.out(self, scale,
    /// zero_point, quant_min, quant_max, out0, out1)`: the dequantized values, and a mask of those
    /// within the bounds.
    FAKE_QUANTIZE_PER_TENSOR_OUT = fake!(
        "aten::fake_quantize_per_tensor_affine_cachemask.out",
        [Tensor, Float, Int, Int, Int, Out, Out],
        Form::Numbers
    );
    /// `aten::_fake_quantize_per_tensor_affine_cachemask_tensor_qparams.out(self,
    /// scale, zero_point, fake_quant_enabled, quant_min, quant_max, out0, out1)`: like
    /// [`FAKE_QUANTIZE_PER_TENSOR_OUT`], with scale, zero point and an enable flag as tensors.
    FAKE_QUANTIZE_PER_TENSOR_TENSOR_OUT = fake!(
        "aten::_fake_quantize_per_tensor_affine_cachemask_tensor_qparams.out",
        [Tensor, Tensor, Tensor, Tensor, Int, Int, Out, Out],
        Form::Tensors
    );
    /// `aten::fake_quantize_per_channel_affine_cachemask.out(self, scale,
    /// zero_point, axis, quant_min, quant_max, out0, out1)`: like [`FAKE_QUANTIZE_PER_TENSOR_OUT`],
    /// with a scale and zero point for each index of `axis`.
    FAKE_QUANTIZE_PER_CHANNEL_OUT = fake!(
        "aten::fake_quantize_per_channel_affine_cachemask.out",
        [Tensor, Tensor, Tensor, Int, Int, Int, Out, Out],
        Form::Channels
    );
}

/// Granularity and kind of scale and zero point (arguments 1 and 2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    Numbers,
    Tensors,
    Channels,
}

impl Form {
    /// Argument index of the minimum quantized value; the maximum follows, then the outputs.
    fn bounds(self) -> usize {
        if self == Form::Numbers { 3 } else { 4 }
    }
}

fn prepare(ctx: &mut Prepare, form: Form, by: [InvokeFn; 2]) -> Result<Plan, KernelError> {
    let input = ctx.info(0)?;
    let (low, out) = (form.bounds(), form.bounds() + 2);
    if ctx.int(low)? > ctx.int(low + 1)? {
        return Err(bad(low, "quant_min: expected at most quant_max"));
    }
    let count = match form {
        Form::Numbers => 0,
        Form::Tensors => 1,
        Form::Channels => channels(ctx)?.0,
    };
    let tensors = if form == Form::Tensors { 1..4 } else { 1..3 };
    for arg in tensors.filter(|_| form != Form::Numbers) {
        let found = ctx.info(arg)?;
        ComputeType::of_any(found.scalar_type).ok_or(unsupported(arg, found.scalar_type))?;
        if found.numel() != count || found.rank() > 1 {
            return Err(bad(arg, "expected one element, or one per channel of `axis`"));
        }
    }
    for (arg, wanted) in [(out, input.scalar_type), (out + 1, ScalarType::Bool)] {
        ctx.resize(arg, &input.sizes)?;
        let found = ctx.info(arg)?;
        if found.scalar_type != wanted {
            return Err(unsupported(arg, found.scalar_type));
        }
        // All tensors must have the same layout.
        if !found.same_layout_as(&input) {
            return Err(KernelError::layout(arg));
        }
    }
    let [single, double] = by;
    match ComputeType::of(input.scalar_type).filter(|_| input.scalar_type.is_floating()) {
        Some(ComputeType::F64) => Ok(Plan::new(double)),
        Some(_) => Ok(Plan::new(single)),
        None => Err(unsupported(0, input.scalar_type)),
    }
}

/// Number of channels, and the stride between neighbouring channels.
fn channels(ctx: &Arguments) -> Result<(usize, usize), KernelError> {
    let input = ctx.info(0)?;
    let axis = normalize_dim(ctx.int(3)?, input.rank()).filter(|_| input.rank() > 0);
    let axis = axis.ok_or(bad(3, "dim is out of range for the input"))?;
    Ok((input.size(axis), input.strides().get(axis).copied().unwrap_or(1)))
}

/// A scalar, or a tensor.
enum Parameter<'c, C> {
    Number(C),
    Tensor(TensorRef<'c>),
}

impl<'c, C: Real> Parameter<'c, C> {
    /// Argument `arg`: the scale is a float, other scalars are integers.
    fn new(ctx: &Invoke<'c, '_>, form: Form, arg: usize) -> Result<Self, KernelError> {
        Ok(match (form, arg) {
            (Form::Numbers, 1) => Parameter::Number(C::from_f64(ctx.float(1)?)),
            (Form::Numbers, _) => Parameter::Number(C::from_i64(ctx.int(arg)?)),
            _ => Parameter::Tensor(ctx.tensor(arg)?),
        })
    }

    fn at(&self, index: usize) -> C {
        let mut value = [C::default()];
        match self {
            Parameter::Number(number) => return *number,
            Parameter::Tensor(tensor) => {
                load(tensor.scalar_type, tensor.bytes(), index as isize, 1, &mut value);
            }
        }
        value[0]
    }
}

/// Number of elements that are handled at once.
const BLOCK: usize = 64;

fn run<C: Real>(ctx: &mut Invoke, form: Form) -> Result<(), KernelError> {
    crate::types::expect::<C>()?;
    let input = ctx.tensor(0)?;
    let (low, high) = (ctx.int(form.bounds())?, ctx.int(form.bounds() + 1)?);
    let (low, high) = (C::from_i64(low), C::from_i64(high));
    let out = form.bounds() + 2;
    let parameters = [Parameter::<C>::new(ctx, form, 1)?, Parameter::new(ctx, form, 2)?];
    let (count, stride) = if form == Form::Channels { channels(ctx)? } else { (1, usize::MAX) };
    let enabled = form != Form::Tensors || Parameter::<C>::new(ctx, form, 3)?.at(0).truth();
    let fractions = form == Form::Channels && ctx.tensor(2)?.scalar_type.is_floating();
    let whole = C::real(-(i64::MIN as f64));
    let (mut result, mut mask) = (ctx.out(out)?, ctx.out(out + 1)?);
    let size = input.scalar_type.size();
    // Number of consecutive elements of one channel, at most a block.
    let run = stride.clamp(1, BLOCK);
    let (mut values, mut inside) = ([C::default(); BLOCK], [0i64; BLOCK]);
    let (mut at, numel) = (0, input.numel());
    while at < numel {
        let len = run.min(numel - at).min(stride - at % stride);
        let channel = at / stride % count.max(1);
        let [scale, zero] = parameters.each_ref().map(|parameter| parameter.at(channel));
        // Per tensor, zero points are truncated to integers; per channel, fractional ones are added
        // before rounding.
        let zero = if form == Form::Tensors { zero.trunc() } else { zero };
        // PyTorch computes with scales in single precision, for all element types.
        let scale = scale.to_f32();
        let inverse = C::from_f64((1.0 / scale).into());
        let (values, inside) = (&mut values[..len], &mut inside[..len]);
        load(input.scalar_type, input.bytes(), at as isize, 1, values);
        for (value, inside) in values.iter_mut().zip(inside.iter_mut()) {
            *inside = 1;
            if enabled {
                let quantized = match fractions {
                    true => (*value * inverse + zero).round_even(),
                    false => (*value * inverse).round_even() + zero,
                };
                // Per channel, PyTorch quantizes to 64-bit integers. Values that do not fit, and
                // NaN, become the minimum, as in PyTorch on x86.
                let beyond =
                    form == Form::Channels && (quantized.is_nan() || quantized.abs() >= whole);
                let quantized = if beyond { -whole } else { quantized };
                *inside = i64::from(quantized >= low && quantized <= high);
                let bounded = if quantized > low { quantized } else { low };
                let bounded = if bounded < high { bounded } else { high };
                *value = match form {
                    Form::Channels => {
                        C::from_f64((bounded.to_f64() - zero.to_f64()) * f64::from(scale))
                    }
                    _ => C::from_f64(((bounded - zero).to_f32() * scale).into()),
                };
            }
        }
        if let (Some(result), Some(mask)) = (
            result.bytes_mut().get_mut(at * size..(at + len) * size),
            mask.bytes_mut().get_mut(at..at + len),
        ) {
            store(input.scalar_type, result, values);
            store(ScalarType::Bool, mask, inside);
        }
        at += len;
    }
    Ok(())
}
