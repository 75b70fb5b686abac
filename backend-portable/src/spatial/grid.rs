//! Sampling a picture or a volume at the places that a grid names.

use super::picture::{CHANNELS, Picture, for_each_row};
use super::sample::{Taps, cubic, weighted};
use crate::number::{Number, elements, elements_mut, unsupported};
use crate::real::Real;
use crate::table::kernels;
use crate::types;
use torchlet_core::Param::{Bool, Int, Out, Tensor};
use torchlet_core::{Invoke, InvokeFn, Kernel, KernelError, Plan, Prepare, ScalarType, TensorInfo};

kernels! { GRID:
    /// `aten::grid_sampler_2d.out(input, grid, interpolation_mode, padding_mode, align_corners, out)`
    GRID_SAMPLER_2D_OUT =
        Kernel::new("aten::grid_sampler_2d.out", &[Tensor, Tensor, Int, Int, Bool, Out], |ctx| prepare(ctx, 2));
    /// `aten::grid_sampler_3d.out(input, grid, interpolation_mode, padding_mode, align_corners, out)`
    GRID_SAMPLER_3D_OUT =
        Kernel::new("aten::grid_sampler_3d.out", &[Tensor, Tensor, Int, Int, Bool, Out], |ctx| prepare(ctx, 3));
}

fn prepare(ctx: &mut Prepare, spatial: usize) -> Result<Plan, KernelError> {
    let (input, grid) = (ctx.info(0)?, ctx.info(1)?);
    if input.rank() != spatial + 2
        || grid.rank() != spatial + 2
        || grid.size(spatial + 1) != spatial
    {
        return Err(KernelError::argument(1, "does not name places of pictures"));
    }
    if input.sizes[0] != grid.sizes[0] || input.sizes[2..].iter().any(|&size| size < 1) {
        return Err(KernelError::argument(0, "has no pixels, or a grid for another batch"));
    }
    let mut sizes = input.sizes.clone();
    for (size, &places) in sizes.iter_mut().skip(2).zip(grid.sizes.iter().skip(1)) {
        *size = places;
    }
    ctx.resize(5, &sizes)?;
    for arg in [1, 5] {
        let found = ctx.info(arg)?.scalar_type;
        if found != input.scalar_type {
            return Err(unsupported(arg, found));
        }
    }
    for (arg, name) in [(2, "is no interpolation mode"), (3, "is no padding mode")] {
        if !(0..3).contains(&ctx.int(arg)?) {
            return Err(KernelError::argument(arg, name));
        }
    }
    if spatial == 3 && ctx.int(2)? == 2 {
        return Err(KernelError::argument(2, "is bicubic, which volumes have not"));
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
enum Mode {
    Bilinear,
    Nearest,
    Bicubic,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Padding {
    Zeros,
    Border,
    Reflection,
}

/// One dimension of the input.
#[derive(Debug, Clone, Copy)]
struct Axis {
    size: usize,
    mode: Mode,
    padding: Padding,
    align_corners: bool,
    /// Whether places that are no numbers become the last pixel: in volumes they do, in pictures the first.
    ends_last: bool,
}

impl Axis {
    /// The pixels that take part at coordinate `at`, which goes from -1 to 1.
    fn taps<C: Real>(&self, at: C) -> Taps<C> {
        let (one, two, size) = (C::real(1.0), C::real(2.0), C::count(self.size));
        let place = if self.align_corners {
            (at + one) / two * (size - one)
        } else {
            ((at + one) * size - one) / two
        };
        let mut taps = Taps::none();
        match self.mode {
            Mode::Bilinear => {
                let place = self.bring_inside(place);
                let first = place.floor();
                let behind = place - first;
                self.push(&mut taps, first, one - behind);
                self.push(&mut taps, first + one, behind);
            }
            Mode::Nearest => {
                self.push(&mut taps, self.bring_inside(place).round_even(), one);
            }
            Mode::Bicubic => {
                let first = place.floor();
                for (i, weight) in cubic(place - first).into_iter().enumerate() {
                    let place = self.bring_inside(first + C::count(i) - one);
                    self.push(&mut taps, place, weight);
                }
            }
        }
        taps
    }

    /// Adds a pixel, if it is one.
    fn push<C: Real>(&self, taps: &mut Taps<C>, position: C, weight: C) {
        if position >= C::default() && position < C::count(self.size) {
            taps.push(usize::try_from(position.to_i64()).unwrap_or(0), weight);
        }
    }

    /// What the padding makes of a place outside the picture.
    fn bring_inside<C: Real>(&self, place: C) -> C {
        let place = match self.padding {
            Padding::Zeros => return place,
            Padding::Border => place,
            Padding::Reflection if self.align_corners => {
                reflect(place, C::default(), C::count(self.size) - C::real(1.0))
            }
            Padding::Reflection => reflect(place, C::real(-0.5), C::count(self.size)),
        };
        let last = C::count(self.size) - C::real(1.0);
        if place.is_nan() {
            return if self.ends_last { last } else { C::default() };
        }
        let place = if place > C::default() { place } else { C::default() };
        if place < last { place } else { last }
    }
}

/// Reflects a place until it is within `low` and `low + span`.
fn reflect<C: Real>(place: C, low: C, span: C) -> C {
    if span == C::default() {
        return C::default();
    }
    let distance = (place - low).abs();
    let flips = (distance / span).floor();
    let extra = distance - flips * span;
    let odd = (flips / C::real(2.0)).floor() * C::real(2.0) != flips;
    if odd { span - extra + low } else { extra + low }
}

fn run<T: Number, C: Real>(ctx: &mut Invoke) -> Result<(), KernelError> {
    crate::types::expect::<C>()?;
    let mode = match ctx.int(2)? {
        0 => Mode::Bilinear,
        1 => Mode::Nearest,
        _ => Mode::Bicubic,
    };
    let padding = match ctx.int(3)? {
        0 => Padding::Zeros,
        1 => Padding::Border,
        _ => Padding::Reflection,
    };
    let align_corners = ctx.bool(4)?;
    let (input, grid) = (ctx.tensor(0)?, ctx.tensor(1)?);
    let out = ctx.out(5)?;
    let spatial = input.rank().saturating_sub(2);
    let picture = |info: &TensorInfo, arg| {
        Picture::new(info, spatial).ok_or(KernelError::rank(arg, info.rank()))
    };
    let (from, to) = (picture(&input, 0)?, picture(&out, 5)?);
    let ends_last = spatial == 3;
    let axis = |dim: usize| {
        let size = from.sizes[dim];
        Axis { size, mode, padding, align_corners, ends_last }
    };
    let (z_axis, y_axis, x_axis) = (axis(2), axis(3), axis(4));
    let steps = grid.strides();
    let step = |dim: usize| steps.get(dim).copied().unwrap_or(0);
    let (data, places) = (elements::<T>(input.bytes()), elements::<T>(grid.bytes()));
    let taps = |at: [usize; 5]| {
        // The grid has a place for each pixel of the result, and names its width first.
        let mut start = at[0] * step(0);
        for dim in 0..spatial {
            start += at[5 - spatial + dim] * step(1 + dim);
        }
        let read = |which: usize| {
            places
                .get(start + which * step(spatial + 1))
                .map_or(C::default(), |&place| C::of(place))
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
