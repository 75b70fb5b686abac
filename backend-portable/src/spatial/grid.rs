//! Sampling of images and volumes at the coordinates in a grid: `grid_sampler`.

use super::feature_map::{CHANNELS, FeatureMap, for_each_row};
use super::sample::{Taps, cubic, cubic_slopes, weighted};
use crate::number::{Number, elements, elements_mut, unsupported};
use crate::real::Real;
use crate::table::kernels;
use crate::types;
use torchlet_core::Param::{Bool, Int, Out, Tensor};
use torchlet_core::{
    Arguments, Invoke, InvokeFn, Kernel, KernelError, Plan, Prepare, ScalarType, Sizes, TensorInfo,
};

kernels! { GRID:
    /// `aten::grid_sampler_2d.out(input, grid, interpolation_mode, padding_mode,
    /// align_corners, out)`: samples images at the coordinates in `grid`.
    GRID_SAMPLER_2D_OUT =
        Kernel::new(
            "aten::grid_sampler_2d.out", &[Tensor, Tensor, Int, Int, Bool, Out],
            |ctx| prepare(ctx, 2)
        );
    /// `aten::grid_sampler_3d.out(input, grid, interpolation_mode, padding_mode,
    /// align_corners, out)`: samples volumes at the coordinates in `grid`.
    GRID_SAMPLER_3D_OUT =
        Kernel::new(
            "aten::grid_sampler_3d.out", &[Tensor, Tensor, Int, Int, Bool, Out],
            |ctx| prepare(ctx, 3)
        );
}

/// Shape of the output of sampling argument `arg` at the coordinates in the next argument.
pub(super) fn sampled_sizes(
    ctx: &Prepare,
    arg: usize,
    spatial: usize,
) -> Result<Sizes, KernelError> {
    let (input, grid) = (ctx.info(arg)?, ctx.info(arg + 1)?);
    if input.rank() != spatial + 2
        || grid.rank() != spatial + 2
        || grid.size(spatial + 1) != spatial
    {
        return Err(KernelError::argument(
            arg + 1,
            "grid: expected as many dims as the input, and a coordinate per spatial dim in the \
             last one",
        ));
    }
    if input.sizes[0] != grid.sizes[0] || input.sizes[2..].iter().any(|&size| size < 1) {
        return Err(KernelError::argument(
            arg,
            "expected a nonempty input with the batch size of the grid",
        ));
    }
    let mut sizes = input.sizes.clone();
    for (size, &len) in sizes.iter_mut().skip(2).zip(grid.sizes.iter().skip(1)) {
        *size = len;
    }
    Ok(sizes)
}

/// Decodes the interpolation mode in argument `arg` and the padding mode in the next.
pub(super) fn read_modes(ctx: &Arguments, arg: usize) -> Result<(Mode, Padding), KernelError> {
    let mode = match ctx.int(arg)? {
        0 => Mode::Bilinear,
        1 => Mode::Nearest,
        2 => Mode::Bicubic,
        _ => {
            return Err(KernelError::argument(
                arg,
                "interpolation mode: expected 0 (bilinear), 1 (nearest) or 2 (bicubic)",
            ));
        }
    };
    let padding = match ctx.int(arg + 1)? {
        0 => Padding::Zeros,
        1 => Padding::Border,
        2 => Padding::Reflection,
        _ => {
            return Err(KernelError::argument(
                arg + 1,
                "padding mode: expected 0 (zeros), 1 (border) or 2 (reflection)",
            ));
        }
    };
    Ok((mode, padding))
}

fn prepare(ctx: &mut Prepare, spatial: usize) -> Result<Plan, KernelError> {
    let sizes = sampled_sizes(ctx, 0, spatial)?;
    let input = ctx.info(0)?;
    ctx.resize(5, &sizes)?;
    for arg in [1, 5] {
        let found = ctx.info(arg)?.scalar_type;
        if found != input.scalar_type {
            return Err(unsupported(arg, found));
        }
    }
    let (mode, _) = read_modes(ctx, 2)?;
    if spatial == 3 && mode == Mode::Bicubic {
        return Err(KernelError::argument(
            2,
            "interpolation mode: expected 0 or 1, because bicubic does not support volumes",
        ));
    }
    let invoke: InvokeFn = match input.scalar_type {
        ScalarType::Float => run::<f32, f32>,
        ScalarType::Half if types::has(ScalarType::Half) => run::<half::f16, f32>,
        ScalarType::BFloat16 if types::has(ScalarType::BFloat16) => run::<half::bf16, f32>,
        ScalarType::Double => run::<f64, f64>,
        found => return Err(unsupported(0, found)),
    };
    Ok(Plan::new(invoke))
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mode {
    Bilinear,
    Nearest,
    Bicubic,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Padding {
    Zeros,
    Border,
    Reflection,
}

/// Sampling over one dim of the input.
#[derive(Debug, Clone, Copy)]
pub(super) struct Axis {
    pub(super) size: usize,
    pub(super) mode: Mode,
    pub(super) padding: Padding,
    pub(super) align_corners: bool,
    /// Whether NaN coordinates map to the last pixel (volumes) instead of the first (images).
    pub(super) nan_is_last: bool,
}

impl Axis {
    /// Returns the pixels that contribute to coordinate `at` (in -1..1), with their weights.
    pub(super) fn taps<C: Real>(&self, at: C) -> Taps<C> {
        let one = C::real(1.0);
        let position = self.pixel_position(at);
        let mut taps = Taps::none();
        match self.mode {
            Mode::Bilinear => {
                let position = self.apply_padding(position);
                let first = position.floor();
                let behind = position - first;
                self.push(&mut taps, first, one - behind);
                self.push(&mut taps, first + one, behind);
            }
            Mode::Nearest => {
                self.push(&mut taps, self.apply_padding(position).round_even(), one);
            }
            Mode::Bicubic => {
                let first = position.floor();
                for (i, weight) in cubic(position - first).into_iter().enumerate() {
                    let position = self.apply_padding(first + C::count(i) - one);
                    self.push(&mut taps, position, weight);
                }
            }
        }
        taps
    }

    /// Returns the same pixels as [`taps`](Self::taps), with the derivatives of their weights with
    /// respect to the coordinate.
    pub(super) fn slopes<C: Real>(&self, at: C) -> Taps<C> {
        let (one, two, size) = (C::real(1.0), C::real(2.0), C::count(self.size));
        let position = self.pixel_position(at);
        let pace = if self.align_corners { (size - one) / two } else { size / two };
        let mut slopes = Taps::none();
        match self.mode {
            Mode::Bilinear => {
                let pace = pace * self.padding_slope(position);
                let first = self.apply_padding(position).floor();
                self.push(&mut slopes, first, C::default() - pace);
                self.push(&mut slopes, first + one, pace);
            }
            // The weights are piecewise constant, so the derivative is zero.
            Mode::Nearest => {}
            Mode::Bicubic => {
                let first = position.floor();
                for (i, slope) in cubic_slopes(position - first).into_iter().enumerate() {
                    let position = self.apply_padding(first + C::count(i) - one);
                    self.push(&mut slopes, position, slope * pace);
                }
            }
        }
        slopes
    }

    /// Converts coordinate `at` to pixels.
    fn pixel_position<C: Real>(&self, at: C) -> C {
        let (one, two, size) = (C::real(1.0), C::real(2.0), C::count(self.size));
        match self.align_corners {
            true => (at + one) / two * (size - one),
            false => ((at + one) * size - one) / two,
        }
    }

    /// Derivative of [`apply_padding`](Self::apply_padding): 1, -1 or 0.
    fn padding_slope<C: Real>(&self, position: C) -> C {
        let (one, none) = (C::real(1.0), C::default());
        let last = C::count(self.size) - one;
        let mut slope = one;
        let mut position = position;
        if self.padding == Padding::Reflection {
            let (low, span) = match self.align_corners {
                true => (none, last),
                false => (C::real(-0.5), C::count(self.size)),
            };
            if span == none {
                return none;
            }
            let flips = ((position - low).abs() / span).floor();
            let is_odd = (flips / C::real(2.0)).floor() * C::real(2.0) != flips;
            slope = if (position < low) != is_odd { none - one } else { one };
            position = reflect(position, low, span);
        }
        match self.padding {
            Padding::Zeros => one,
            _ if position > none && position < last => slope,
            _ => none,
        }
    }

    /// Adds a pixel if it is inside the image.
    fn push<C: Real>(&self, taps: &mut Taps<C>, position: C, weight: C) {
        if position >= C::default() && position < C::count(self.size) {
            taps.push(usize::try_from(position.to_i64()).unwrap_or(0), weight);
        }
    }

    /// Applies the padding mode to a position outside the image.
    fn apply_padding<C: Real>(&self, position: C) -> C {
        let position = match self.padding {
            Padding::Zeros => return position,
            Padding::Border => position,
            Padding::Reflection if self.align_corners => {
                reflect(position, C::default(), C::count(self.size) - C::real(1.0))
            }
            Padding::Reflection => reflect(position, C::real(-0.5), C::count(self.size)),
        };
        let last = C::count(self.size) - C::real(1.0);
        if position.is_nan() {
            return if self.nan_is_last { last } else { C::default() };
        }
        let position = if position > C::default() { position } else { C::default() };
        if position < last { position } else { last }
    }
}

/// Reflects a position into the range from `low` to `low + span`.
fn reflect<C: Real>(position: C, low: C, span: C) -> C {
    if span == C::default() {
        return C::default();
    }
    let distance = (position - low).abs();
    let flips = (distance / span).floor();
    let extra = distance - flips * span;
    let odd = (flips / C::real(2.0)).floor() * C::real(2.0) != flips;
    if odd { span - extra + low } else { extra + low }
}

fn run<T: Number, C: Real>(ctx: &mut Invoke) -> Result<(), KernelError> {
    crate::types::expect::<C>()?;
    let (mode, padding) = read_modes(ctx, 2)?;
    let align_corners = ctx.bool(4)?;
    let (input, grid) = (ctx.tensor(0)?, ctx.tensor(1)?);
    let out = ctx.out(5)?;
    let spatial = input.rank().saturating_sub(2);
    let feature_map = |info: &TensorInfo, arg| {
        FeatureMap::new(info, spatial).ok_or(KernelError::rank(arg, info.rank()))
    };
    let (from, to) = (feature_map(&input, 0)?, feature_map(&out, 5)?);
    let nan_is_last = spatial == 3;
    let axis = |dim: usize| {
        let size = from.sizes[dim];
        Axis { size, mode, padding, align_corners, nan_is_last }
    };
    let (z_axis, y_axis, x_axis) = (axis(2), axis(3), axis(4));
    let steps = grid.strides();
    let step = |dim: usize| steps.get(dim).copied().unwrap_or(0);
    let (data, coordinates) = (elements::<T>(input.bytes()), elements::<T>(grid.bytes()));
    let taps = |at: [usize; 5]| {
        // The grid has coordinates for each output pixel, x first.
        let mut start = at[0] * step(0);
        for dim in 0..spatial {
            start += at[5 - spatial + dim] * step(1 + dim);
        }
        let read = |which: usize| {
            coordinates
                .get(start + which * step(spatial + 1))
                .map_or(C::default(), |&position| C::of(position))
        };
        let z = if spatial == 3 { z_axis.taps(read(2)) } else { Taps::one(0) };
        (z, y_axis.taps(read(1)), x_axis.taps(read(0)))
    };
    for_each_row(
        ctx.parallel(),
        &to,
        out.into_bytes(),
        size_of::<T>(),
        32,
        &|mut at, inner, row| {
            let mut pixels = taps(at);
            for (i, out) in elements_mut::<T>(row).iter_mut().enumerate() {
                at[inner] = i;
                if inner != CHANNELS {
                    pixels = taps(at);
                }
                let plane = at[0] * from.strides[0] + at[CHANNELS] * from.strides[CHANNELS];
                let (z, y, x) = &pixels;
                let mut sum = C::default();
                for (depth, weight) in z.iter() {
                    let plane = plane + depth * from.strides[2];
                    sum = sum + weight * weighted(data, plane, &from, y, x);
                }
                *out = sum.to();
            }
        },
    );
    Ok(())
}
