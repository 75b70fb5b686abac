//! Gradients of `grid_sampler` in plain loops. Each output gradient is added to the input pixels,
//! multiplied by their weights. The grid's gradient uses the derivatives of these weights.

use super::backward::{feature_map, for_each, shape_mismatch};
use super::feature_map::{CHANNELS, DIMS, FeatureMap, SPACE};
use super::grid::{Axis, Mode, read_modes, sampled_sizes};
use super::sample::{Taps, weighted};
use crate::number::{Number, elements, elements_mut, unsupported};
use crate::real::Real;
use crate::table::kernels;
use torchlet_core::Param::{Bool, BoolList, Int, Out, Tensor};
use torchlet_core::{Arguments, Invoke, Kernel, KernelError, Param, Plan, Prepare, ScalarType};

/// `(grad_output, input, grid, interpolation_mode, padding_mode,
/// align_corners, output_mask, out0, out1)`
const PARAMS: &[Param] = &[Tensor, Tensor, Tensor, Int, Int, Bool, BoolList, Out, Out];

kernels! { GRID_BACKWARD:
    /// `aten::grid_sampler_2d_backward.out(grad_output, input, grid,
    /// interpolation_mode, padding_mode, align_corners, output_mask, out0, out1)`: the gradients of
    /// images and grid.
    GRID_SAMPLER_2D_BACKWARD_OUT =
        Kernel::new("aten::grid_sampler_2d_backward.out", PARAMS, |ctx| prepare(ctx, 2));
    /// `aten::grid_sampler_3d_backward.out(grad_output, input, grid,
    /// interpolation_mode, padding_mode, align_corners, output_mask, out0, out1)`: the gradients of
    /// volumes and grid.
    GRID_SAMPLER_3D_BACKWARD_OUT =
        Kernel::new("aten::grid_sampler_3d_backward.out", PARAMS, |ctx| prepare(ctx, 3));
}

const GRAD_INPUT: usize = 7;
const GRAD_GRID: usize = 8;

/// Which gradients are requested: of the images and the grid.
fn mask(ctx: &Arguments) -> Result<[bool; 2], KernelError> {
    Ok([ctx.list_bool(6, 0)?, ctx.list_bool(6, 1)?])
}

fn prepare(ctx: &mut Prepare, spatial: usize) -> Result<Plan, KernelError> {
    let (grad, input, grid) = (ctx.info(0)?, ctx.info(1)?, ctx.info(2)?);
    if sampled_sizes(ctx, 1, spatial)? != grad.sizes {
        return Err(shape_mismatch(0));
    }
    let (mode, _) = read_modes(ctx, 3)?;
    if spatial == 3 && mode == Mode::Bicubic {
        return Err(KernelError::argument(
            3,
            "interpolation mode: expected 0 or 1, because bicubic does not support volumes",
        ));
    }
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
    let (mode, padding) = read_modes(ctx, 3)?;
    let align_corners = ctx.bool(5)?;
    let [of_input, of_grid] = mask(ctx)?;
    let (grad, input, grid) = (ctx.tensor(0)?, ctx.tensor(1)?, ctx.tensor(2)?);
    let spatial = grad.rank().saturating_sub(2);
    let (to, from) = (feature_map(&grad, spatial, 0)?, feature_map(&input, spatial, 1)?);
    let axis = |dim: usize| {
        let size = from.sizes[dim];
        Axis { size, mode, padding, align_corners, nan_is_last: spatial == 3 }
    };
    let (z_axis, y_axis, x_axis) = (axis(2), axis(3), axis(4));
    let grads = elements::<C>(grad.bytes());
    let (data, coordinates) = (elements::<C>(input.bytes()), elements::<C>(grid.bytes()));
    // Grids have no channels, but one coordinate per dim for each position.
    let in_grid = |strides: &[usize], at: [usize; DIMS], which: usize| {
        let step = |dim: usize| strides.get(dim).copied().unwrap_or(0);
        let space = (0..spatial).map(|dim| at[DIMS - spatial + dim] * step(1 + dim));
        at[0] * step(0) + space.sum::<usize>() + which * step(spatial + 1)
    };
    let steps = grid.strides();
    let coordinate = |at: [usize; DIMS], which: usize| {
        coordinates.get(in_grid(&steps, at, which)).copied().unwrap_or_default()
    };
    let plane = |map: &FeatureMap, batch: usize, channel: usize| {
        batch * map.strides[0] + channel * map.strides[CHANNELS]
    };
    let value = |at: [usize; DIMS], channel: usize| {
        let space = (SPACE..DIMS).map(|dim| at[dim] * to.strides[dim]).sum::<usize>();
        grads.get(plane(&to, at[0], channel) + space).copied().unwrap_or_default()
    };
    let pixels = [to.sizes[0], 1, to.sizes[2], to.sizes[3], to.sizes[4]];
    let deep = spatial == 3;
    if of_input {
        let out = ctx.out(GRAD_INPUT)?;
        let back = feature_map(&out, spatial, GRAD_INPUT)?;
        let out = elements_mut::<C>(out.into_bytes());
        out.fill(C::default());
        for_each(pixels, |at| {
            let z = if deep { z_axis.taps(coordinate(at, 2)) } else { Taps::one(0) };
            let (y, x) = (y_axis.taps(coordinate(at, 1)), x_axis.taps(coordinate(at, 0)));
            for channel in 0..to.sizes[CHANNELS] {
                let value = value(at, channel);
                let plane = plane(&back, at[0], channel);
                for (depth, thick) in z.iter() {
                    let plane = plane + depth * back.strides[2];
                    for (row, tall) in y.iter() {
                        for (column, wide) in x.iter() {
                            let at = plane + row * back.strides[3] + column * back.strides[4];
                            if let Some(slot) = out.get_mut(at) {
                                *slot = *slot + value * thick * tall * wide;
                            }
                        }
                    }
                }
            }
        });
    }
    if of_grid {
        let out = ctx.out(GRAD_GRID)?;
        let back = out.strides();
        let out = elements_mut::<C>(out.into_bytes());
        // Weighted sum over the pixels of a volume.
        let sum = |plane: usize, z: &Taps<C>, y: &Taps<C>, x: &Taps<C>| {
            z.iter().fold(C::default(), |sum, (depth, weight)| {
                sum + weight * weighted(data, plane + depth * from.strides[2], &from, y, x)
            })
        };
        for_each(pixels, |at| {
            let of = |axis: &Axis, at: C| (axis.taps(at), axis.slopes(at));
            let (x, x_slopes) = of(&x_axis, coordinate(at, 0));
            let (y, y_slopes) = of(&y_axis, coordinate(at, 1));
            let (z, z_slopes) =
                if deep { of(&z_axis, coordinate(at, 2)) } else { (Taps::one(0), Taps::none()) };
            let mut sums = [C::default(); 3];
            for channel in 0..to.sizes[CHANNELS] {
                let value = value(at, channel);
                let plane = plane(&from, at[0], channel);
                let slopes = [
                    sum(plane, &z, &y, &x_slopes),
                    sum(plane, &z, &y_slopes, &x),
                    sum(plane, &z_slopes, &y, &x),
                ];
                for (sum, slope) in sums.iter_mut().zip(slopes) {
                    *sum = *sum + value * slope;
                }
            }
            for (which, sum) in sums.into_iter().take(spatial).enumerate() {
                if let Some(slot) = out.get_mut(in_grid(&back, at, which)) {
                    *slot = sum;
                }
            }
        });
    }
    Ok(())
}
