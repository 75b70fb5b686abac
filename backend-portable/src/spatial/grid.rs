//! Sampling a picture at the places that a grid names.

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
        Kernel::new("aten::grid_sampler_2d.out", &[Tensor, Tensor, Int, Int, Bool, Out], prepare);
}

fn prepare(ctx: &mut Prepare) -> Result<Plan, KernelError> {
    let (input, grid) = (ctx.info(0)?, ctx.info(1)?);
    let (&[batch, channels, height, width], &[same, rows, columns, 2]) =
        (&*input.sizes, &*grid.sizes)
    else {
        return Err(KernelError::argument(1, "does not name places of pictures"));
    };
    if same != batch || height < 1 || width < 1 {
        return Err(KernelError::argument(0, "has no pixels, or a grid for another batch"));
    }
    ctx.resize(5, &[batch, channels, rows, columns])?;
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
        // NaN becomes the first pixel.
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
    let picture =
        |info: &TensorInfo, arg| Picture::new(info, 2).ok_or(KernelError::rank(arg, info.rank()));
    let (from, to) = (picture(&input, 0)?, picture(&out, 5)?);
    let axis = |dim: usize| Axis { size: from.sizes[dim], mode, padding, align_corners };
    let (y_axis, x_axis) = (axis(3), axis(4));
    let steps = grid.strides();
    let step = |dim: usize| steps.get(dim).copied().unwrap_or(0);
    let (data, places) = (elements::<T>(input.bytes()), elements::<T>(grid.bytes()));
    let taps = |at: [usize; 5]| {
        let start = at[0] * step(0) + at[3] * step(1) + at[4] * step(2);
        let read = |at: usize| places.get(at).map_or(C::default(), |&place| C::of(place));
        (y_axis.taps(read(start + step(3))), x_axis.taps(read(start)))
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
                *out = weighted(data, plane, &from, &pixels.0, &pixels.1).to();
            }
        },
    );
    Ok(())
}
