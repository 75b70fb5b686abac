//! Gradients of resampling in one to three dims, in plain loops: each output gradient is
//! distributed to the input pixels by their weights.

use super::backward::{feature_map, shape_mismatch};
use super::feature_map::{CHANNELS, DIMS};
use super::resample::{Axis, Filter, Method};
use crate::number::{Number, elements, elements_mut, unsupported};
use crate::real::Real;
use crate::table::kernels;
use torchlet_core::Param::{Bool, IntList, OptionalFloat, Out, Tensor};
use torchlet_core::{
    Arguments, Invoke, InvokeFn, Kernel, KernelError, Plan, Prepare, ScalarType, Sizes,
};

/// A kernel `(grad_output, output_size, input_size, align_corners, scales…, grad_input)`: the
/// gradient of a method over `$spatial` dims. `nearest` methods have no `align_corners`.
macro_rules! gradient {
    ($name:literal, $spatial:tt, nearest $method:expr) => {
        gradient!(@ $name, $spatial, $method, false, gradient!(params $spatial,))
    };
    ($name:literal, $spatial:tt, $method:expr) => {
        gradient!(@ $name, $spatial, $method, true, gradient!(params $spatial, Bool,))
    };
    (params 1, $($bool:ident,)?) => { &[Tensor, IntList, IntList, $($bool,)? OptionalFloat, Out] };
    (params 2, $($bool:ident,)?) => {
        &[Tensor, IntList, IntList, $($bool,)? OptionalFloat, OptionalFloat, Out]
    };
    (params 3, $($bool:ident,)?) => {
        &[Tensor, IntList, IntList, $($bool,)? OptionalFloat, OptionalFloat, OptionalFloat, Out]
    };
    (@ $name:literal, $spatial:literal, $method:expr, $corners:literal, $params:expr) => {
        Kernel::new($name, $params, |ctx| {
            const FORM: Form = Form { method: $method, spatial: $spatial, has_corners: $corners };
            prepare(ctx, FORM, [|ctx| run::<f32>(ctx, FORM), |ctx| run::<f64>(ctx, FORM)])
        })
    };
}

kernels! { RESAMPLING_BACKWARD:
    /// `aten::upsample_nearest1d_backward.grad_input(grad_output, output_size,
    /// input_size, scales, grad_input)`: the gradient of the resampled input.
    UPSAMPLE_NEAREST1D_BACKWARD_GRAD_INPUT =
        gradient!("aten::upsample_nearest1d_backward.grad_input", 1, nearest Method::Nearest);
    /// `aten::upsample_nearest2d_backward.grad_input(grad_output, output_size,
    /// input_size, scales_h, scales_w, grad_input)`: the gradient of the resampled input.
    UPSAMPLE_NEAREST2D_BACKWARD_GRAD_INPUT =
        gradient!("aten::upsample_nearest2d_backward.grad_input", 2, nearest Method::Nearest);
    /// `aten::upsample_nearest3d_backward.grad_input(grad_output, output_size,
    /// input_size, scales_d, scales_h, scales_w, grad_input)`: the gradient of the resampled input.
    UPSAMPLE_NEAREST3D_BACKWARD_GRAD_INPUT =
        gradient!("aten::upsample_nearest3d_backward.grad_input", 3, nearest Method::Nearest);
    /// `aten::_upsample_nearest_exact1d_backward.grad_input(grad_output,
    /// output_size, input_size, scales, grad_input)`: the gradient of the resampled input.
    UPSAMPLE_NEAREST_EXACT1D_BACKWARD_GRAD_INPUT =
        gradient!(
            "aten::_upsample_nearest_exact1d_backward.grad_input", 1, nearest Method::NearestExact
        );
    /// `aten::_upsample_nearest_exact2d_backward.grad_input(grad_output,
    /// output_size, input_size, scales_h, scales_w, grad_input)`: the gradient of the resampled
    /// input.
    UPSAMPLE_NEAREST_EXACT2D_BACKWARD_GRAD_INPUT =
        gradient!(
            "aten::_upsample_nearest_exact2d_backward.grad_input", 2, nearest Method::NearestExact
        );
    /// `aten::_upsample_nearest_exact3d_backward.grad_input(grad_output,
    /// output_size, input_size, scales_d, scales_h, scales_w, grad_input)`: the gradient of the
    /// resampled input.
    UPSAMPLE_NEAREST_EXACT3D_BACKWARD_GRAD_INPUT =
        gradient!(
            "aten::_upsample_nearest_exact3d_backward.grad_input", 3, nearest Method::NearestExact
        );
    /// `aten::upsample_linear1d_backward.grad_input(grad_output, output_size,
    /// input_size, align_corners, scales, grad_input)`: the gradient of the resampled input.
    UPSAMPLE_LINEAR1D_BACKWARD_GRAD_INPUT =
        gradient!("aten::upsample_linear1d_backward.grad_input", 1, Method::Linear);
    /// `aten::upsample_bilinear2d_backward.grad_input(grad_output, output_size,
    /// input_size, align_corners, scales_h, scales_w, grad_input)`: the gradient of the resampled
    /// input.
    UPSAMPLE_BILINEAR2D_BACKWARD_GRAD_INPUT =
        gradient!("aten::upsample_bilinear2d_backward.grad_input", 2, Method::Linear);
    /// `aten::upsample_trilinear3d_backward.grad_input(grad_output,
    /// output_size, input_size, align_corners, scales_d, scales_h, scales_w, grad_input)`: the
    /// gradient of the resampled input.
    UPSAMPLE_TRILINEAR3D_BACKWARD_GRAD_INPUT =
        gradient!("aten::upsample_trilinear3d_backward.grad_input", 3, Method::Linear);
    /// `aten::upsample_bicubic2d_backward.grad_input(grad_output, output_size,
    /// input_size, align_corners, scales_h, scales_w, grad_input)`: the gradient of the resampled
    /// input.
    UPSAMPLE_BICUBIC2D_BACKWARD_GRAD_INPUT =
        gradient!("aten::upsample_bicubic2d_backward.grad_input", 2, Method::Cubic);
    /// `aten::_upsample_bilinear2d_aa_backward.grad_input(grad_output,
    /// output_size, input_size, align_corners, scales_h, scales_w, grad_input)`: the gradient of
    /// the resampled input.
    UPSAMPLE_BILINEAR2D_AA_BACKWARD_GRAD_INPUT =
        gradient!(
            "aten::_upsample_bilinear2d_aa_backward.grad_input", 2,
            Method::Antialiased(Filter::Linear)
        );
    /// `aten::_upsample_bicubic2d_aa_backward.grad_input(grad_output,
    /// output_size, input_size, align_corners, scales_h, scales_w, grad_input)`: the gradient of
    /// the resampled input.
    UPSAMPLE_BICUBIC2D_AA_BACKWARD_GRAD_INPUT =
        gradient!(
            "aten::_upsample_bicubic2d_aa_backward.grad_input", 2,
            Method::Antialiased(Filter::Cubic)
        );
    /// `aten::_upsample_lanczos2d_aa_backward.grad_input(grad_output,
    /// output_size, input_size, align_corners, scales_h, scales_w, grad_input)`: the gradient of
    /// the resampled input.
    UPSAMPLE_LANCZOS2D_AA_BACKWARD_GRAD_INPUT =
        gradient!(
            "aten::_upsample_lanczos2d_aa_backward.grad_input", 2,
            Method::Antialiased(Filter::Lanczos)
        );
}

/// The resampling method of a gradient operator, and its argument indices.
#[derive(Debug, Clone, Copy)]
struct Form {
    method: Method,
    /// Number of resized dims.
    spatial: usize,
    /// Whether argument 3 is `align_corners`.
    has_corners: bool,
}

impl Form {
    /// Argument index of the first scale; the scales of the other resized dims follow.
    fn scales(self) -> usize {
        3 + usize::from(self.has_corners)
    }

    fn out(self) -> usize {
        self.scales() + self.spatial
    }
}

/// The shape of the input, from argument 2.
fn input_sizes(ctx: &Arguments, spatial: usize) -> Result<Sizes, KernelError> {
    let (given, grad, output) = (ctx.ints(2)?, ctx.info(0)?.sizes, ctx.ints(1)?);
    let mut sizes = Sizes::new();
    for &size in given.iter() {
        let size = i32::try_from(size).ok().filter(|size| *size >= 0).ok_or(shape_mismatch(2))?;
        sizes.push(size).map_err(|_| shape_mismatch(2))?;
    }
    if grad.len() != spatial + 2 {
        return Err(KernelError::rank(0, grad.len()));
    }
    let (outer, shown) = grad.split_at(2);
    let is_shown = output.len() == spatial
        && output.iter().zip(shown).all(|(&size, &shown)| size == i64::from(shown) && shown > 0);
    if !is_shown {
        return Err(shape_mismatch(1));
    }
    match sizes.split_at_checked(2) {
        Some((own, space)) if own == outer && space.len() == spatial && !space.contains(&0) => {
            Ok(sizes)
        }
        _ => Err(shape_mismatch(2)),
    }
}

fn prepare(
    ctx: &mut Prepare,
    form: Form,
    [single, double]: [InvokeFn; 2],
) -> Result<Plan, KernelError> {
    let sizes = input_sizes(ctx, form.spatial)?;
    ctx.resize(form.out(), &sizes)?;
    let (found, made) = (ctx.info(0)?.scalar_type, ctx.info(form.out())?.scalar_type);
    if made != found {
        return Err(unsupported(form.out(), made));
    }
    Ok(Plan::new(match found {
        ScalarType::Float => single,
        ScalarType::Double => double,
        _ => return Err(unsupported(0, found)),
    }))
}

fn run<C: Real + Number>(ctx: &mut Invoke, form: Form) -> Result<(), KernelError> {
    match form.method {
        // Positions are computed in single precision, whatever the dtype.
        Method::Nearest | Method::NearestExact => spread::<C, f32>(ctx, form),
        _ => spread::<C, C>(ctx, form),
    }
}

/// Distributes the gradient, with weights of type `W`.
fn spread<C: Real + Number, W: Real + Number>(
    ctx: &mut Invoke,
    form: Form,
) -> Result<(), KernelError> {
    crate::types::expect::<C>()?;
    let align_corners = form.has_corners && ctx.bool(3)?;
    let (grad, out) = (ctx.tensor(0)?, ctx.out(form.out())?);
    let from = feature_map(&grad, form.spatial, 0)?;
    let to = feature_map(&out, form.spatial, form.out())?;
    let first = DIMS - form.spatial;
    let axis = |dim: usize| {
        let Some(index) = dim.checked_sub(first) else {
            // Dims that the tensor lacks have a size of one pixel.
            return Ok(Axis::<W>::new(Method::Nearest, false, 1, 1, None));
        };
        let scale = ctx.optional_float(form.scales() + index)?;
        Ok(Axis::new(form.method, align_corners, to.sizes[dim], from.sizes[dim], scale))
    };
    let (z, y, x) = (axis(2)?, axis(3)?, axis(4)?);
    let (data, out) = (elements::<C>(grad.bytes()), elements_mut::<C>(out.into_bytes()));
    out.fill(C::default());
    let offset = |strides: &[usize; DIMS], at: [usize; 3]| {
        at.iter().zip(&strides[2..]).map(|(at, stride)| at * stride).sum::<usize>()
    };
    // Contribution of a gradient pixel to an input pixel, in all channels.
    let mut give = |at: [usize; 3], back: [usize; 3], weight: W| {
        let (read, write) = (offset(&from.strides, at), offset(&to.strides, back));
        let weight = C::of(weight);
        for batch in 0..from.sizes[0] {
            for channel in 0..from.sizes[CHANNELS] {
                let plane = |strides: &[usize; DIMS]| batch * strides[0] + channel * strides[1];
                let found = data.get(plane(&from.strides) + read).copied();
                let slot = out.get_mut(plane(&to.strides) + write);
                if let (Some(slot), Some(value)) = (slot, found) {
                    *slot = *slot + weight * value;
                }
            }
        }
    };
    for plane in 0..from.sizes[2] {
        for row in 0..from.sizes[3] {
            for column in 0..from.sizes[4] {
                z.each(plane, |deep, thick| {
                    y.each(row, |down, tall| {
                        x.each(column, |right, wide| {
                            let at = [plane, row, column];
                            give(at, [deep, down, right], thick * tall * wide);
                        });
                    });
                });
            }
        }
    }
    Ok(())
}
