//! Gradients of pictures of another size, in plain loops: each pixel of the result's gradient goes back to the pixels that it shows, by their
//! weights.

use super::backward::misfit;
use super::picture::{CHANNELS, Picture};
use super::resample::{Axis, Method};
use crate::number::{Number, elements, elements_mut, unsupported};
use crate::real::Real;
use crate::table::kernels;
use torchlet_core::Param::{Bool, IntList, OptionalFloat, Out, Tensor};
use torchlet_core::{
    Arguments, Invoke, InvokeFn, Kernel, KernelError, Param, Plan, Prepare, ScalarType, Sizes,
};

const BY_CORNERS: &[Param] = &[Tensor, IntList, IntList, Bool, OptionalFloat, OptionalFloat, Out];

kernels! { RESAMPLING_BACKWARD:
    /// `aten::upsample_nearest2d_backward.grad_input(grad_output, output_size, input_size, scales_h, scales_w, grad_input)`
    UPSAMPLE_NEAREST2D_BACKWARD_GRAD_INPUT = Kernel::new(
        "aten::upsample_nearest2d_backward.grad_input",
        &[Tensor, IntList, IntList, OptionalFloat, OptionalFloat, Out],
        |ctx| prepare(ctx, 5, [nearest::<f32>, nearest::<f64>]),
    );
    /// `aten::upsample_bilinear2d_backward.grad_input(grad_output, output_size, input_size, align_corners, scales_h, scales_w, grad_input)`
    UPSAMPLE_BILINEAR2D_BACKWARD_GRAD_INPUT = Kernel::new(
        "aten::upsample_bilinear2d_backward.grad_input",
        BY_CORNERS,
        |ctx| prepare(ctx, 6, [linear::<f32>, linear::<f64>]),
    );
    /// `aten::upsample_bicubic2d_backward.grad_input(grad_output, output_size, input_size, align_corners, scales_h, scales_w, grad_input)`
    UPSAMPLE_BICUBIC2D_BACKWARD_GRAD_INPUT = Kernel::new(
        "aten::upsample_bicubic2d_backward.grad_input",
        BY_CORNERS,
        |ctx| prepare(ctx, 6, [cubic::<f32>, cubic::<f64>]),
    );
    /// `aten::_upsample_bilinear2d_aa_backward.grad_input(grad_output, output_size, input_size, align_corners, scales_h, scales_w,
    /// grad_input)`
    UPSAMPLE_BILINEAR2D_AA_BACKWARD_GRAD_INPUT = Kernel::new(
        "aten::_upsample_bilinear2d_aa_backward.grad_input",
        BY_CORNERS,
        |ctx| prepare(ctx, 6, [antialiased::<f32>, antialiased::<f64>]),
    );
}

/// The shape of the input, which the call names.
fn input_sizes(ctx: &Arguments) -> Result<Sizes, KernelError> {
    let (given, grad, output) = (ctx.ints(2)?, ctx.info(0)?.sizes, ctx.ints(1)?);
    let mut sizes = Sizes::new();
    for &size in given.iter() {
        let size = i32::try_from(size).ok().filter(|size| *size >= 0).ok_or(misfit(2))?;
        sizes.push(size).map_err(|_| misfit(2))?;
    }
    let (&[batch, channels, height, width], &[.., high, wide]) = (&*grad, &*output) else {
        return Err(KernelError::rank(0, grad.len()));
    };
    let is_shown = output.len() == 2 && [high, wide] == [i64::from(height), i64::from(width)];
    if !is_shown || [height, width].contains(&0) {
        return Err(misfit(1));
    }
    match &*sizes {
        &[n, c, high, wide] if [n, c] == [batch, channels] && high > 0 && wide > 0 => Ok(sizes),
        _ => Err(misfit(2)),
    }
}

fn prepare(
    ctx: &mut Prepare,
    out: usize,
    [single, double]: [InvokeFn; 2],
) -> Result<Plan, KernelError> {
    let sizes = input_sizes(ctx)?;
    ctx.resize(out, &sizes)?;
    let (found, made) = (ctx.info(0)?.scalar_type, ctx.info(out)?.scalar_type);
    if made != found {
        return Err(unsupported(out, made));
    }
    Ok(Plan::new(match found {
        ScalarType::Float => single,
        ScalarType::Double => double,
        _ => return Err(unsupported(0, found)),
    }))
}

fn nearest<C: Real + Number>(ctx: &mut Invoke) -> Result<(), KernelError> {
    // Places are found in single precision, whatever the type.
    spread::<C, f32>(ctx, Method::Nearest, None)
}

fn linear<C: Real + Number>(ctx: &mut Invoke) -> Result<(), KernelError> {
    spread::<C, C>(ctx, Method::Linear, Some(3))
}

fn cubic<C: Real + Number>(ctx: &mut Invoke) -> Result<(), KernelError> {
    spread::<C, C>(ctx, Method::Cubic, Some(3))
}

fn antialiased<C: Real + Number>(ctx: &mut Invoke) -> Result<(), KernelError> {
    spread::<C, C>(ctx, Method::Antialiased, Some(3))
}

/// Spreads the gradient, with weights of type `W`; scales follow whether corners are aligned, if the call says that.
fn spread<C: Real + Number, W: Real + Number>(
    ctx: &mut Invoke,
    method: Method,
    corners: Option<usize>,
) -> Result<(), KernelError> {
    crate::types::expect::<C>()?;
    let align_corners = corners.map(|arg| ctx.bool(arg)).transpose()?.unwrap_or(false);
    let first = corners.map_or(3, |arg| arg + 1);
    let scales = [ctx.optional_float(first)?, ctx.optional_float(first + 1)?];
    let (grad, out) = (ctx.tensor(0)?, ctx.out(first + 2)?);
    let from = Picture::new(&grad, 2).ok_or(KernelError::rank(0, grad.rank()))?;
    let to = Picture::new(&out, 2).ok_or(KernelError::rank(first + 2, out.rank()))?;
    let axis = |dim: usize| {
        Axis::<W>::new(method, align_corners, to.sizes[dim], from.sizes[dim], scales[dim - 3])
    };
    let (y, x) = (axis(3), axis(4));
    let (data, out) = (elements::<C>(grad.bytes()), elements_mut::<C>(out.into_bytes()));
    out.fill(C::default());
    for row in 0..from.sizes[3] {
        for column in 0..from.sizes[4] {
            y.each(row, |down, tall| {
                x.each(column, |right, wide| {
                    let weight = C::of(tall * wide);
                    for batch in 0..from.sizes[0] {
                        for channel in 0..from.sizes[CHANNELS] {
                            let at = |picture: &Picture, row: usize, column: usize| {
                                let [of_batch, of_channel, _, of_row, of_column] = picture.strides;
                                batch * of_batch
                                    + channel * of_channel
                                    + row * of_row
                                    + column * of_column
                            };
                            let found = data.get(at(&from, row, column)).copied();
                            if let (Some(slot), Some(value)) =
                                (out.get_mut(at(&to, down, right)), found)
                            {
                                *slot = *slot + weight * value;
                            }
                        }
                    }
                });
            });
        }
    }
    Ok(())
}
