//! Computation of scale and zero point from the range of values.

use crate::number::{Number, load, store, unsupported};
use crate::real::Real;
use crate::shape::{bad, contiguous};
use crate::table::kernels;
use torchlet_core::Param::{Float, Int, Out, Tensor};
use torchlet_core::{Invoke, Kernel, KernelError, Plan, Prepare, ScalarType, TensorRef};

kernels! { PARAMETERS:
    /// `quantized_decomposed::choose_qparams.Tensor_out(input, quant_min,
    /// quant_max, eps, dtype, scale, zero_point)`: scale and zero point for the range of all
    /// values; the scale is at least `eps`.
    CHOOSE_QPARAMS_TENSOR_OUT = Kernel::new(
        "quantized_decomposed::choose_qparams.Tensor_out",
        &[Tensor, Int, Int, Float, Int, Out, Out],
        |ctx| {
            if ctx.int(1)? >= ctx.int(2)? {
                return Err(bad(1, "quant_min: expected less than quant_max"));
            }
            ctx.resize(5, &[1])?;
            ctx.resize(6, &[1])?;
            check(ctx, 5)?;
            Ok(Plan::new(choose))
        },
    );
    /// `quantized_decomposed::choose_qparams_per_token_asymmetric.out(input,
    /// dtype, scale, zero_point)`: int8 scale and zero point for each vector of the last dim.
    CHOOSE_QPARAMS_PER_TOKEN_ASYMMETRIC_OUT = Kernel::new(
        "quantized_decomposed::choose_qparams_per_token_asymmetric.out",
        &[Tensor, Int, Out, Out],
        |ctx| {
            let mut sizes = ctx.info(0)?.sizes;
            *sizes.last_mut().ok_or(KernelError::rank(0, 0))? = 1;
            ctx.resize(2, &sizes)?;
            ctx.resize(3, &sizes)?;
            check(ctx, 2)?;
            for arg in [0, 2, 3] {
                contiguous(arg, &ctx.info(arg)?)?;
            }
            Ok(Plan::new(choose_per_token))
        },
    );
}

fn check(ctx: &Prepare, scale: usize) -> Result<(), KernelError> {
    let (input, zero) = (ctx.info(0)?, ctx.info(scale + 1)?);
    if !input.scalar_type.is_floating() {
        return Err(unsupported(0, input.scalar_type));
    }
    let found = ctx.info(scale)?.scalar_type;
    if !found.is_floating() {
        return Err(unsupported(scale, found));
    }
    if !matches!(zero.scalar_type, ScalarType::Int | ScalarType::Long) {
        return Err(unsupported(scale + 1, zero.scalar_type));
    }
    Ok(())
}

/// Minimum and maximum of 0 and of elements that are `step` apart. NaN propagates.
fn range(input: &TensorRef, start: isize, step: isize, count: usize) -> (f32, f32) {
    let (mut low, mut high) = (0f32, 0f32);
    let mut block = [0f32; 64];
    for done in (0..count).step_by(block.len()) {
        let values = block.get_mut(..(count - done).min(64)).unwrap_or_default();
        let at = start.wrapping_add(step.wrapping_mul(done as isize));
        load(input.scalar_type, input.bytes(), at, step, values);
        for &value in values.iter() {
            if value.is_nan() {
                return (value, value);
            }
            low = low.min(value);
            high = high.max(value);
        }
    }
    (low, high)
}

/// Raises a scale to a lower bound; NaN stays NaN.
fn least(scale: f32, bound: f32) -> f32 {
    if scale < bound { bound } else { scale }
}

fn choose(ctx: &mut Invoke) -> Result<(), KernelError> {
    let input = ctx.tensor(0)?;
    let (first, last) = (ctx.int(1)?, ctx.int(2)?);
    let (low, high) = range(&input, 0, 1, input.numel());
    let steps = (last as f64 - first as f64) as f32;
    let scale = least((high - low) / steps, ctx.float(3)? as f32);
    let zero = first
        .saturating_sub(i64::from_f32((low / scale).round_even()))
        .clamp(first, last.max(first));
    write(ctx, 5, 0, scale, zero)
}

/// Writes scale and zero point, arguments `arg` and `arg + 1`.
fn write(
    ctx: &mut Invoke,
    arg: usize,
    position: usize,
    scale: f32,
    zero: i64,
) -> Result<(), KernelError> {
    let mut scales = ctx.out(arg)?;
    let at = position * scales.scalar_type.size();
    let scalar_type = scales.scalar_type;
    store(scalar_type, scales.bytes_mut().get_mut(at..).unwrap_or_default(), &[f64::from(scale)]);
    let mut zeros = ctx.out(arg + 1)?;
    let at = position * zeros.scalar_type.size();
    let scalar_type = zeros.scalar_type;
    store(scalar_type, zeros.bytes_mut().get_mut(at..).unwrap_or_default(), &[zero]);
    Ok(())
}

fn choose_per_token(ctx: &mut Invoke) -> Result<(), KernelError> {
    let input = ctx.tensor(0)?;
    let width = input.rank().checked_sub(1).map_or(1, |last| input.size(last));
    let (scales, zeros) = (ctx.out(2)?, ctx.out(3)?);
    let (scale_type, zero_type) = (scales.scalar_type, zeros.scalar_type);
    let tokens = scales.numel();
    let (scales, zeros) = (scales.into_bytes(), zeros.into_bytes());
    let mut scale_rows = scales.chunks_mut(scale_type.size());
    let mut zero_rows = zeros.chunks_mut(zero_type.size());
    for token in 0..tokens {
        let (low, high) = range(&input, token.wrapping_mul(width) as isize, 1, width);
        let scale = least((high - low) / 255.0, f32::EPSILON);
        let (below, above) = (low / scale, high / scale);
        // Chooses the bound whose zero point has the smaller rounding error.
        let from_below = (-128.0 + below) + (127.0 + above) > 0.0;
        let zero = if from_below { -128.0 - below } else { 127.0 - above };
        let zero = i64::from_f32(zero.clamp(-128.0, 127.0).round_even());
        if let (Some(scales), Some(zeros)) = (scale_rows.next(), zero_rows.next()) {
            store(scale_type, scales, &[f64::from(scale)]);
            store(zero_type, zeros, &[zero]);
        }
    }
    Ok(())
}
