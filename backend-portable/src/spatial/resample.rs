//! Image resampling: nearest, bilinear and bicubic; antialiased bilinear, bicubic and Lanczos.

use super::feature_map::{CHANNELS, DIMS, FeatureMap, for_each_row};
use super::sample::{Taps, cubic, weighted};
use crate::number::{ComputeType, Number, elements, elements_mut, unsupported};
use crate::real::Real;
use crate::table::kernels;
use crate::types;
use torchlet_core::Param::{
    Bool, IntList, OptionalFloat, OptionalFloatList, OptionalIntList, Out, Tensor,
};
use torchlet_core::{
    Arguments, Invoke, InvokeFn, Kernel, KernelError, Param, Plan, Prepare, ScalarType, Sizes,
    TensorInfo,
};

kernels! { RESAMPLING:
    /// `aten::upsample_nearest2d.vec_out(input, output_size, scale_factors, out)`:
    /// nearest-neighbour interpolation.
    UPSAMPLE_NEAREST2D_VEC_OUT = Kernel::new(
        "aten::upsample_nearest2d.vec_out",
        &[Tensor, OptionalIntList, OptionalFloatList, Out],
        |ctx| {
            let size = ctx.info(0)?.scalar_type.size();
            // Pixels are copied without computation, so only their size in bytes matters.
            let invoke: InvokeFn = match size {
                1 => nearest::<u8>,
                2 => nearest::<u16>,
                4 => nearest::<u32>,
                8 => nearest::<u64>,
                _ => return Err(unsupported(0, ctx.info(0)?.scalar_type)),
            };
            prepare(ctx, VECTOR_NEAREST, Some(invoke))
        },
    );
    /// `aten::upsample_bilinear2d.vec_out(input, output_size, align_corners, scale_factors, out)`:
    /// bilinear interpolation.
    UPSAMPLE_BILINEAR2D_VEC_OUT = Kernel::new(
        "aten::upsample_bilinear2d.vec_out",
        &[Tensor, OptionalIntList, Bool, OptionalFloatList, Out],
        |ctx| prepare(ctx, VECTOR_LINEAR, None),
    );
    /// `aten::upsample_bicubic2d.vec_out(input, output_size, align_corners, scale_factors, out)`:
    /// bicubic interpolation.
    UPSAMPLE_BICUBIC2D_VEC_OUT = Kernel::new(
        "aten::upsample_bicubic2d.vec_out",
        &[Tensor, OptionalIntList, Bool, OptionalFloatList, Out],
        |ctx| prepare(ctx, VECTOR_CUBIC, None),
    );
    /// `aten::_upsample_bilinear2d_aa.out(self, output_size, align_corners,
    /// scales_h, scales_w, out)`: antialiased bilinear interpolation.
    UPSAMPLE_BILINEAR2D_AA_OUT = Kernel::new(
        "aten::_upsample_bilinear2d_aa.out",
        SIZED,
        |ctx| prepare(ctx, ANTIALIASED, None),
    );
    /// `aten::_upsample_bicubic2d_aa.out(self, output_size, align_corners,
    /// scales_h, scales_w, out)`: antialiased bicubic interpolation.
    UPSAMPLE_BICUBIC2D_AA_OUT = Kernel::new(
        "aten::_upsample_bicubic2d_aa.out",
        SIZED,
        |ctx| prepare(ctx, ANTIALIASED_CUBIC, None),
    );
    /// `aten::_upsample_lanczos2d_aa.out(self, output_size, align_corners,
    /// scales_h, scales_w, out)`: antialiased Lanczos interpolation.
    UPSAMPLE_LANCZOS2D_AA_OUT = Kernel::new(
        "aten::_upsample_lanczos2d_aa.out",
        SIZED,
        |ctx| prepare(ctx, ANTIALIASED_LANCZOS, None),
    );
}

const SIZED: &[Param] = &[Tensor, IntList, Bool, OptionalFloat, OptionalFloat, Out];

/// Resampling method.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Method {
    Nearest,
    /// Nearest neighbour of the centre of the output pixel (`nearest-exact`).
    NearestExact,
    Linear,
    Cubic,
    /// A filter over all input pixels that an output pixel covers.
    Antialiased(Filter),
}

/// Filter kernel: weight of a pixel by distance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Filter {
    Linear,
    /// Cubic convolution with a coefficient of -1/2, unlike [`cubic`].
    Cubic,
    /// Lanczos with three lobes.
    Lanczos,
}

impl Filter {
    /// Distance from a pixel at which its weight becomes zero.
    fn reach<C: Real>(self) -> C {
        C::real(match self {
            Filter::Linear => 1.0,
            Filter::Cubic => 2.0,
            Filter::Lanczos => 3.0,
        })
    }

    /// Weight of a pixel at a nonnegative distance.
    fn weight<C: Real>(self, distance: C) -> C {
        let (one, two) = (C::real(1.0), C::real(2.0));
        if distance >= self.reach() {
            return C::default();
        }
        match self {
            Filter::Linear => one - distance,
            Filter::Cubic if distance < one => {
                (C::real(1.5) * distance - C::real(2.5)) * distance * distance + one
            }
            Filter::Cubic => {
                let half = C::real(0.5);
                ((C::real(2.5) - half * distance) * distance - C::real(4.0)) * distance + two
            }
            Filter::Lanczos if distance == C::default() => one,
            Filter::Lanczos => {
                let angle = C::real(core::f64::consts::PI) * distance;
                let third = angle / C::real(3.0);
                angle.sin() / angle * (third.sin() / third)
            }
        }
    }
}

/// Argument indices of an operator.
#[derive(Debug, Clone, Copy)]
struct Form {
    method: Method,
    align_corners: Option<usize>,
    /// Argument index of the scales, and whether they are one list or two scalars.
    scales: Scales,
    out: usize,
}

#[derive(Debug, Clone, Copy)]
enum Scales {
    List(usize),
    Two(usize, usize),
}

const VECTOR_NEAREST: Form =
    Form { method: Method::Nearest, align_corners: None, scales: Scales::List(2), out: 3 };
const VECTOR_LINEAR: Form =
    Form { method: Method::Linear, align_corners: Some(2), scales: Scales::List(3), out: 4 };
const VECTOR_CUBIC: Form = Form { method: Method::Cubic, ..VECTOR_LINEAR };
const ANTIALIASED: Form = antialiased_by(Filter::Linear);
const ANTIALIASED_CUBIC: Form = antialiased_by(Filter::Cubic);
const ANTIALIASED_LANCZOS: Form = antialiased_by(Filter::Lanczos);

const fn antialiased_by(filter: Filter) -> Form {
    let method = Method::Antialiased(filter);
    Form { method, align_corners: Some(2), scales: Scales::Two(3, 4), out: 5 }
}

impl Form {
    /// Reads the scales of height and width, if given.
    fn scales(&self, ctx: &Arguments) -> Result<[Option<f64>; 2], KernelError> {
        match self.scales {
            Scales::List(arg) if ctx.is_none(arg) => Ok([None; 2]),
            Scales::List(arg) => Ok([Some(ctx.list_float(arg, 0)?), Some(ctx.list_float(arg, 1)?)]),
            Scales::Two(height, width) => {
                Ok([ctx.optional_float(height)?, ctx.optional_float(width)?])
            }
        }
    }

    /// Shape of the output.
    fn shape(&self, ctx: &Arguments) -> Result<Sizes, KernelError> {
        let input = ctx.info(0)?;
        let (&[batch, channels, height, width], wrong) =
            (&*input.sizes, KernelError::argument(1, "expected a positive height and width"))
        else {
            return Err(KernelError::rank(0, input.rank()));
        };
        if [channels, height, width].contains(&0) {
            return Err(KernelError::argument(0, "expected a nonempty input"));
        }
        let mut sizes = Sizes::new();
        // The capacity suffices for any tensor.
        let _ = sizes.extend_from_slice(&[batch, channels]);
        let given = ctx.optional_ints(1)?;
        let scales = self.scales(ctx)?;
        for (dim, size) in [height, width].into_iter().enumerate() {
            let size = match (&given, scales[dim]) {
                (Some(given), _) if given.len() == 2 => given[dim],
                // As in PyTorch: multiplied in double precision, then truncated.
                (None, Some(scale)) => (f64::from(size) * scale) as i64,
                _ => return Err(wrong),
            };
            match i32::try_from(size) {
                Ok(size) if size > 0 => {
                    let _ = sizes.push(size);
                }
                _ => return Err(wrong),
            }
        }
        Ok(sizes)
    }
}

/// Mapping from output pixels to input positions over one dim.
#[derive(Debug, Clone, Copy)]
pub(super) struct Axis<C> {
    method: Method,
    input: usize,
    output: usize,
    align_corners: bool,
    /// Number of input pixels per output pixel.
    scale: C,
    /// For antialiasing: whether the dim is copied unchanged.
    is_copied: bool,
}

impl<C: Real> Axis<C> {
    pub(super) fn new(
        method: Method,
        align_corners: bool,
        input: usize,
        output: usize,
        given: Option<f64>,
    ) -> Self {
        let scale = match given {
            _ if align_corners && output > 1 => C::count(input - 1) / C::count(output - 1),
            _ if align_corners => C::default(),
            Some(scale) if scale > 0.0 => C::real(1.0 / scale),
            _ => C::count(input) / C::count(output),
        };
        Axis { method, input, output, align_corners, scale, is_copied: false }
    }

    /// Copies the dim if its size is unchanged, whatever the scale. Not for gradients, as in
    /// PyTorch.
    fn copied_if_unchanged(self) -> Self {
        Axis { is_copied: self.input == self.output, ..self }
    }

    /// Input position of output pixel `at`.
    fn position(&self, at: usize) -> C {
        if self.align_corners {
            return self.scale * C::count(at);
        }
        self.scale * (C::count(at) + C::real(0.5)) - C::real(0.5)
    }

    fn taps(&self, at: usize) -> Taps<C> {
        let last = self.input - 1;
        let clamped = |position: C| usize::try_from(position.to_i64()).unwrap_or(0).min(last);
        match self.method {
            Method::Nearest if self.input == self.output => Taps::one(at),
            Method::Nearest => Taps::one(clamped((self.scale * C::count(at)).floor())),
            Method::NearestExact => {
                Taps::one(clamped(((C::count(at) + C::real(0.5)) * self.scale).floor()))
            }
            Method::Cubic => {
                let position = self.position(at);
                let first = position.floor();
                let mut taps = Taps::none();
                for (i, weight) in cubic(position - first).into_iter().enumerate() {
                    taps.push(clamped(first + C::count(i) - C::real(1.0)), weight);
                }
                taps
            }
            _ if self.input == self.output => Taps::one(at),
            _ => {
                let position = self.position(at);
                let position = if position < C::default() { C::default() } else { position };
                let first = clamped(position);
                let behind = position - C::count(first);
                let behind = if behind > C::real(1.0) { C::real(1.0) } else { behind };
                let mut taps = Taps::none();
                taps.push(first, C::real(1.0) - behind);
                taps.push((first + 1).min(last), behind);
                taps
            }
        }
    }

    /// Visits the input pixels of output pixel `at`, with their weights.
    pub(super) fn each(&self, at: usize, mut visit: impl FnMut(usize, C)) {
        let Method::Antialiased(filter) = self.method else {
            return self.taps(at).iter().for_each(|(position, weight)| visit(position, weight));
        };
        let (first, count, total) = self.covered(filter, at);
        for position in first..first + count {
            visit(position, self.weight(filter, at, position) / total);
        }
    }

    /// For antialiasing: returns the first input pixel of output pixel `at`, the number of pixels,
    /// and the sum of their weights.
    fn covered(&self, filter: Filter, at: usize) -> (usize, usize, C) {
        if self.is_copied {
            return (at, 1, C::real(1.0));
        }
        let reach = filter.reach::<C>();
        let support = if self.scale > C::real(1.0) { reach * self.scale } else { reach };
        let center = self.center(at);
        let half = C::real(0.5);
        let cut = |value: C| usize::try_from(value.to_i64()).unwrap_or(0).min(self.input);
        let first = cut(center - support + half);
        let count = cut(center + support + half).saturating_sub(first);
        let mut total = C::default();
        for position in first..first + count {
            total = total + self.weight(filter, at, position);
        }
        (first, count, total)
    }

    /// For antialiasing: the centre of output pixel `at`, in input pixels. As in PyTorch,
    /// `align_corners` only affects the scale.
    fn center(&self, at: usize) -> C {
        self.scale * (C::count(at) + C::real(0.5))
    }

    fn weight(&self, filter: Filter, at: usize, position: usize) -> C {
        if self.is_copied {
            return C::real(1.0);
        }
        let distance = (C::count(position) - self.center(at) + C::real(0.5)).abs();
        filter.weight(if self.scale > C::real(1.0) { distance / self.scale } else { distance })
    }
}

/// The two input pixels that an output pixel interpolates over one dim, and their weights.
#[cfg(feature = "engine")]
#[derive(Debug, Clone, Copy)]
pub(crate) struct LinearTap {
    pub(crate) positions: [usize; 2],
    pub(crate) weights: [f32; 2],
}

/// The taps of all output pixels over one dim.
#[cfg(feature = "engine")]
pub(crate) fn linear_taps(
    input: usize,
    output: usize,
    align_corners: bool,
    scale: Option<f64>,
) -> impl Iterator<Item = LinearTap> {
    let axis = Axis::<f32>::new(Method::Linear, align_corners, input, output, scale);
    (0..output).map(move |at| {
        let taps = axis.taps(at);
        let mut tap = LinearTap { positions: [0; 2], weights: [0.0; 2] };
        for (slot, (position, weight)) in taps.iter().take(2).enumerate() {
            (tap.positions[slot], tap.weights[slot]) = (position, weight);
        }
        tap
    })
}

fn prepare(ctx: &mut Prepare, form: Form, invoke: Option<InvokeFn>) -> Result<Plan, KernelError> {
    let sizes = form.shape(ctx)?;
    ctx.resize(form.out, &sizes)?;
    let found = ctx.info(0)?.scalar_type;
    if ctx.info(form.out)?.scalar_type != found || ComputeType::of(found).is_none() {
        return Err(unsupported(form.out, found));
    }
    if let Some(invoke) = invoke {
        return Ok(Plan::new(invoke));
    }
    macro_rules! by_method {
        ($t:ty, $c:ty) => {
            match form.method {
                Method::Antialiased(Filter::Linear) => {
                    |ctx| antialiased::<$t, $c>(ctx, Filter::Linear)
                }
                Method::Antialiased(Filter::Cubic) => {
                    |ctx| antialiased::<$t, $c>(ctx, Filter::Cubic)
                }
                Method::Antialiased(Filter::Lanczos) => {
                    |ctx| antialiased::<$t, $c>(ctx, Filter::Lanczos)
                }
                Method::Cubic => interpolated_cubic::<$t, $c>,
                _ => interpolated_linear::<$t, $c>,
            }
        };
    }
    Ok(Plan::new(match found {
        ScalarType::Float => by_method!(f32, f32),
        ScalarType::Half if types::has(ScalarType::Half) => by_method!(half::f16, f32),
        ScalarType::BFloat16 if types::has(ScalarType::BFloat16) => by_method!(half::bf16, f32),
        ScalarType::Double => by_method!(f64, f64),
        _ => return Err(unsupported(0, found)),
    }))
}

/// The images of a call, the axes of height and width, and the data.
struct Call<'c, C> {
    from: FeatureMap,
    to: FeatureMap,
    axes: [Axis<C>; 2],
    input: &'c [u8],
    out: &'c mut [u8],
}

fn call<'c, C: Real>(ctx: &mut Invoke<'c, '_>, form: &Form) -> Result<Call<'c, C>, KernelError> {
    let align_corners = form.align_corners.map(|arg| ctx.bool(arg)).transpose()?.unwrap_or(false);
    let scales = form.scales(ctx)?;
    let input = ctx.tensor(0)?;
    let out = ctx.out(form.out)?;
    let feature_map = |info: &TensorInfo, arg| {
        FeatureMap::new(info, 2).ok_or(KernelError::rank(arg, info.rank()))
    };
    let (from, to) = (feature_map(&input, 0)?, feature_map(&out, form.out)?);
    let axis = |dim: usize| {
        Axis::new(form.method, align_corners, from.sizes[3 + dim], to.sizes[3 + dim], scales[dim])
    };
    Ok(Call { from, to, axes: [axis(0), axis(1)], input: input.bytes(), out: out.into_bytes() })
}

fn nearest<T: Number>(ctx: &mut Invoke) -> Result<(), KernelError> {
    let parallel = ctx.parallel();
    let Call { from, to, axes: [y, x], input, out } = call::<f32>(ctx, &VECTOR_NEAREST)?;
    let data: &[T] = elements(input);
    let position = |axis: &Axis<f32>, at: usize| axis.taps(at).iter().next().map_or(0, |tap| tap.0);
    for_each_row(parallel, &to, out, size_of::<T>(), 2, &|mut at, inner, row| {
        let start = |at: [usize; DIMS]| {
            at[0] * from.strides[0]
                + at[CHANNELS] * from.strides[CHANNELS]
                + position(&y, at[3]) * from.strides[3]
        };
        let row: &mut [T] = elements_mut(row);
        if inner == CHANNELS {
            let start = start(at) + position(&x, at[4]) * from.strides[4];
            for (channel, out) in row.iter_mut().enumerate() {
                if let Some(&value) = data.get(start + channel * from.strides[CHANNELS]) {
                    *out = value;
                }
            }
            return;
        }
        let fixed = (inner == 4).then(|| start(at));
        for (i, out) in row.iter_mut().enumerate() {
            at[inner] = i;
            let start = fixed.unwrap_or_else(|| start(at));
            if let Some(&value) = data.get(start + position(&x, at[4]) * from.strides[4]) {
                *out = value;
            }
        }
    });
    Ok(())
}

fn interpolated_linear<T: Number, C: Real>(ctx: &mut Invoke) -> Result<(), KernelError> {
    crate::types::expect::<C>()?;
    interpolated::<T, C>(ctx, &VECTOR_LINEAR)
}

fn interpolated_cubic<T: Number, C: Real>(ctx: &mut Invoke) -> Result<(), KernelError> {
    crate::types::expect::<C>()?;
    interpolated::<T, C>(ctx, &VECTOR_CUBIC)
}

fn interpolated<T: Number, C: Real>(ctx: &mut Invoke, form: &Form) -> Result<(), KernelError> {
    crate::types::expect::<C>()?;
    let parallel = ctx.parallel();
    let Call { from, to, axes: [y, x], input, out } = call::<C>(ctx, form)?;
    let data: &[T] = elements(input);
    for_each_row(parallel, &to, out, size_of::<T>(), 8, &|mut at, inner, row| {
        let (mut rows, mut columns) = (y.taps(at[3]), x.taps(at[4]));
        for (i, out) in elements_mut::<T>(row).iter_mut().enumerate() {
            at[inner] = i;
            match inner {
                3 => rows = y.taps(i),
                4 => columns = x.taps(i),
                _ => {}
            }
            let plane = at[0] * from.strides[0] + at[CHANNELS] * from.strides[CHANNELS];
            *out = weighted(data, plane, &from, &rows, &columns).to();
        }
    });
    Ok(())
}

/// Maximum number of horizontal weights that are computed only once for each output pixel.
const MAX_ROW_TAPS: usize = 32;

fn antialiased<T: Number, C: Real>(ctx: &mut Invoke, filter: Filter) -> Result<(), KernelError> {
    crate::types::expect::<C>()?;
    let parallel = ctx.parallel();
    let Call { from, to, axes, input, out } = call::<C>(ctx, &antialiased_by(filter))?;
    let [y, x] = axes.map(Axis::copied_if_unchanged);
    let data: &[T] = elements(input);
    let pixels = (from.sizes[3] / to.sizes[3] + 2).saturating_mul(from.sizes[4] / to.sizes[4] + 2);
    for_each_row(
        parallel,
        &to,
        out,
        size_of::<T>(),
        pixels.saturating_mul(4),
        &|mut at, inner, row| {
            for (i, out) in elements_mut::<T>(row).iter_mut().enumerate() {
                at[inner] = i;
                let plane = at[0] * from.strides[0] + at[CHANNELS] * from.strides[CHANNELS];
                let ((top, height, down), (left, width, across)) =
                    (y.covered(filter, at[3]), x.covered(filter, at[4]));
                let mut weights = [C::default(); MAX_ROW_TAPS];
                for (weight, column) in weights.iter_mut().zip(left..left + width) {
                    *weight = x.weight(filter, at[4], column);
                }
                let mut sum = C::default();
                for row in top..top + height {
                    let start = plane + row * from.strides[3];
                    let mut line = C::default();
                    for column in left..left + width {
                        if let Some(&value) = data.get(start + column * from.strides[4]) {
                            let weight = weights.get(column - left).copied();
                            let weight = weight.unwrap_or_else(|| x.weight(filter, at[4], column));
                            line = line + weight * C::of(value);
                        }
                    }
                    sum = sum + y.weight(filter, at[3], row) * line;
                }
                *out = (sum / (down * across)).to();
            }
        },
    );
    Ok(())
}
