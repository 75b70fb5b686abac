//! Gradients of sampling a picture at the places that a grid names, in plain loops: of the picture, whose pixels get what they gave by their
//! weights; and of the grid, by the slopes of these weights.

use super::backward::{misfit, picture};
use super::grid::{Axis, Mode, Padding, read_modes, sampled_sizes};
use super::picture::CHANNELS;
use super::sample::weighted;
use crate::number::{Number, elements, elements_mut, unsupported};
use crate::real::Real;
use crate::table::kernels;
use torchlet_core::Param::{Bool, BoolList, Int, Out, Tensor};
use torchlet_core::{Arguments, Invoke, Kernel, KernelError, Plan, Prepare, ScalarType};

kernels! { GRID_BACKWARD:
    /// `aten::grid_sampler_2d_backward.out(grad_output, input, grid, interpolation_mode, padding_mode, align_corners, output_mask, out0, out1)`
    GRID_SAMPLER_2D_BACKWARD_OUT = Kernel::new(
        "aten::grid_sampler_2d_backward.out",
        &[Tensor, Tensor, Tensor, Int, Int, Bool, BoolList, Out, Out],
        prepare,
    );
}

const GRAD_INPUT: usize = 7;
const GRAD_GRID: usize = 8;

/// Which gradients are wanted: those of the picture and the grid.
fn mask(ctx: &Arguments) -> Result<[bool; 2], KernelError> {
    Ok([ctx.list_bool(6, 0)?, ctx.list_bool(6, 1)?])
}

fn prepare(ctx: &mut Prepare) -> Result<Plan, KernelError> {
    let (grad, input, grid) = (ctx.info(0)?, ctx.info(1)?, ctx.info(2)?);
    if sampled_sizes(ctx, 1, 2)? != grad.sizes {
        return Err(misfit(0));
    }
    read_modes(ctx, 3)?;
    let wanted = mask(ctx)?;
    let found = grad.scalar_type;
    for (arg, info) in [(1, &input), (2, &grid)] {
        if info.scalar_type != found {
            return Err(unsupported(arg, info.scalar_type));
        }
    }
    for ((out, info), _) in
        [(GRAD_INPUT, &input), (GRAD_GRID, &grid)].into_iter().zip(wanted).filter(|it| it.1)
    {
        ctx.resize(out, &info.sizes)?;
        let made = ctx.info(out)?.scalar_type;
        if made != found {
            return Err(unsupported(out, made));
        }
    }
    Ok(Plan::new(match found {
        ScalarType::Float => run::<f32>,
        ScalarType::Double => run::<f64>,
        _ => return Err(unsupported(0, found)),
    }))
}

fn run<C: Real + Number>(ctx: &mut Invoke) -> Result<(), KernelError> {
    crate::types::expect::<C>()?;
    let (mode, padding): (Mode, Padding) = read_modes(ctx, 3)?;
    let align_corners = ctx.bool(5)?;
    let [of_input, of_grid] = mask(ctx)?;
    let (grad, input, grid) = (ctx.tensor(0)?, ctx.tensor(1)?, ctx.tensor(2)?);
    let (to, from) = (picture(&grad, 2, 0)?, picture(&input, 2, 1)?);
    let axis =
        |dim: usize| Axis { size: from.sizes[dim], mode, padding, align_corners, ends_last: false };
    let (y_axis, x_axis) = (axis(3), axis(4));
    let grads = elements::<C>(grad.bytes());
    let (data, places) = (elements::<C>(input.bytes()), elements::<C>(grid.bytes()));
    let steps = grid.strides();
    let step = |dim: usize| steps.get(dim).copied().unwrap_or(0);
    let place = |[batch, row, column]: [usize; 3], which: usize| {
        let at = batch * step(0) + row * step(1) + column * step(2) + which * step(3);
        places.get(at).copied().unwrap_or_default()
    };
    let value = |at: [usize; 3], channel: usize| {
        let [batch, row, column] = at;
        let at = batch * to.strides[0]
            + channel * to.strides[CHANNELS]
            + row * to.strides[3]
            + column * to.strides[4];
        grads.get(at).copied().unwrap_or_default()
    };
    let each = |f: &mut dyn FnMut([usize; 3])| {
        for batch in 0..to.sizes[0] {
            for row in 0..to.sizes[3] {
                for column in 0..to.sizes[4] {
                    f([batch, row, column]);
                }
            }
        }
    };
    if of_input {
        let out = ctx.out(GRAD_INPUT)?;
        let back = picture(&out, 2, GRAD_INPUT)?;
        let out = elements_mut::<C>(out.into_bytes());
        out.fill(C::default());
        each(&mut |at| {
            let (y, x) = (y_axis.taps(place(at, 1)), x_axis.taps(place(at, 0)));
            for channel in 0..to.sizes[CHANNELS] {
                let value = value(at, channel);
                let plane = at[0] * back.strides[0] + channel * back.strides[CHANNELS];
                for (row, tall) in y.iter() {
                    for (column, wide) in x.iter() {
                        let at = plane + row * back.strides[3] + column * back.strides[4];
                        if let Some(slot) = out.get_mut(at) {
                            *slot = *slot + value * tall * wide;
                        }
                    }
                }
            }
        });
    }
    if of_grid {
        let out = ctx.out(GRAD_GRID)?;
        let back = out.strides();
        let back = |dim: usize| back.get(dim).copied().unwrap_or(0);
        let steps = [back(0), back(1), back(2), back(3)];
        let out = elements_mut::<C>(out.into_bytes());
        each(&mut |at| {
            let axes = [(&x_axis, place(at, 0)), (&y_axis, place(at, 1))];
            let [(x, x_slopes), (y, y_slopes)] =
                axes.map(|(axis, at)| (axis.taps(at), axis.slopes(at)));
            let mut sums = [C::default(); 2];
            for channel in 0..to.sizes[CHANNELS] {
                let value = value(at, channel);
                let plane = at[0] * from.strides[0] + channel * from.strides[CHANNELS];
                let across = weighted(data, plane, &from, &y, &x_slopes);
                let down = weighted(data, plane, &from, &y_slopes, &x);
                sums = [sums[0] + value * across, sums[1] + value * down];
            }
            for (which, sum) in sums.into_iter().enumerate() {
                let [batch, row, column] = at;
                let at = batch * steps[0] + row * steps[1] + column * steps[2] + which * steps[3];
                if let Some(slot) = out.get_mut(at) {
                    *slot = sum;
                }
            }
        });
    }
    Ok(())
}
