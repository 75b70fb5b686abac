//! Integer convolutions of channels-last images.

use super::{
    Operand, Sum, contiguous, expect_type, list, padded, positive, window_count, zero_point,
};
use crate::compute::split::{chunk_of_work, for_each_chunk_mut};
use crate::shape::bad;
use crate::table::kernels;
use torchlet_core::Param::{Int, IntList, Out, Tensor};
use torchlet_core::rules::window::Window;
use torchlet_core::{
    Arguments, Elements, Invoke, Kernel, KernelError, Plan, Prepare, ScalarType, TensorInfo,
};

kernels! { CONVOLUTION:
    /// `tosa::conv2d.out(input, weight, bias, padding, stride, dilation, input_zp, weight_zp,
    /// out)`: sums of products of int8 or int16 values and int8 weights
    /// `[outputs, height, width, inputs]`, before rescaling.
    CONV2D_OUT = convolution!("tosa::conv2d.out", Kind::Plain, 2);
    /// `tosa::conv3d.out(...)`: like [`CONV2D_OUT`], over volumes.
    CONV3D_OUT = convolution!("tosa::conv3d.out", Kind::Plain, 3);
    /// `tosa::depthwise_conv2d.out(...)`: like [`CONV2D_OUT`], with weights
    /// `[height, width, channels, multiplier]`, each for one channel.
    DEPTHWISE_CONV2D_OUT = convolution!("tosa::depthwise_conv2d.out", Kind::Depthwise, 2);
    /// `tosa::transpose_conv2d.out(input, weight, bias, out_padding, stride, input_zp, weight_zp,
    /// out)`: the transposed convolution, with weights `[outputs, height, width, inputs]`.
    TRANSPOSE_CONV2D_OUT = Kernel::new(
        "tosa::transpose_conv2d.out",
        &[Tensor, Tensor, Tensor, IntList, IntList, Int, Int, Out],
        |ctx| {
            let geometry = Geometry::of(ctx, Kind::Transposed, 2)?;
            prepare(ctx, &geometry, 7)?;
            Ok(Plan::new(|ctx| invoke(ctx, Kind::Transposed, 2, 7)))
        },
    )
    .with_elements(Elements::Typed);
}

macro_rules! convolution {
    ($name:literal, $kind:expr, $dims:literal) => {
        Kernel::new(
            $name,
            &[Tensor, Tensor, Tensor, IntList, IntList, IntList, Int, Int, Out],
            |ctx| {
                let geometry = Geometry::of(ctx, $kind, $dims)?;
                prepare(ctx, &geometry, 8)?;
                Ok(Plan::new(|ctx| invoke(ctx, $kind, $dims, 8)))
            },
        )
        .with_elements(Elements::Typed)
    };
}
use convolution;

/// Minimum number of multiplications for each thread.
const GRAIN: usize = 1 << 14;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Plain,
    Depthwise,
    Transposed,
}

/// Geometry of a spatial dim.
#[derive(Debug, Clone, Copy, Default)]
struct Axis {
    size: usize,
    kernel: usize,
    made: usize,
    before: i64,
    stride: i64,
    dilation: i64,
}

impl Axis {
    /// Index in the input that output index `made` reads with kernel index `tap`.
    #[inline(always)]
    fn source(&self, kind: Kind, made: usize, tap: usize) -> Option<usize> {
        let (made, tap) = (made as i64, tap as i64);
        let at = if kind == Kind::Transposed {
            let at = made - self.before - tap;
            if at % self.stride != 0 {
                return None;
            }
            at / self.stride
        } else {
            made * self.stride + tap * self.dilation - self.before
        };
        usize::try_from(at).ok().filter(|at| *at < self.size)
    }
}

/// Geometry of a convolution: depth, height and width. Images have depth 1.
#[derive(Debug, Clone, Copy)]
struct Geometry {
    kind: Kind,
    batch: usize,
    axes: [Axis; 3],
    inputs: usize,
    outputs: usize,
    input_zp: i32,
    weight_zp: i32,
}

impl Geometry {
    fn of(ctx: &Arguments, kind: Kind, dims: usize) -> Result<Self, KernelError> {
        let (input, weight) = (contiguous(ctx, 0, dims + 2)?, contiguous(ctx, 1, dims + 2)?);
        let transposed = kind == Kind::Transposed;
        // Images get a depth of 1.
        let (mut pad, mut stride, mut dilation) = ([0; 6], [1; 3], [1; 3]);
        if dims == 3 {
            (pad, stride, dilation) = (list(ctx, 3)?, positive(ctx, 4)?, positive(ctx, 5)?);
        } else {
            pad[2..].copy_from_slice(&list::<4>(ctx, 3)?);
            stride[1..].copy_from_slice(&positive::<2>(ctx, 4)?);
            if !transposed {
                dilation[1..].copy_from_slice(&positive::<2>(ctx, 5)?);
            }
        }
        let at = if transposed { 5 } else { 6 };
        let mut axes = [Axis::default(); 3];
        let first = usize::from(kind != Kind::Depthwise);
        let (pads, _) = pad.as_chunks::<2>();
        for (number, (axis, [before, after])) in axes.iter_mut().zip(pads).enumerate() {
            let (stride, dilation) = (stride[number], dilation[number]);
            let (mut size, mut kernel) = (1, 1);
            if number + dims >= 3 {
                let dim = number + dims - 3;
                (size, kernel) = (input.size(dim + 1), weight.size(dim + first));
            }
            let (taps, pad) = (kernel as i64, [*before, *after]);
            let made = match transposed {
                true => Window::new(taps, stride, 0, 1)
                    .and_then(|window| padded(window.transposed(size, 0)?, pad)),
                false => window_count(size, taps, pad, [stride, dilation]),
            };
            let made = made.filter(|made| *made > 0 && size > 0);
            let made = made.ok_or(bad(1, "kernel or padding does not fit the input"))?;
            *axis = Axis { size, kernel, made, before: *before, stride, dilation };
        }
        let channels = |info: &TensorInfo, at: usize| info.size(info.rank() - at);
        let (inputs, outputs) = match kind {
            Kind::Depthwise => {
                (channels(&weight, 2), channels(&weight, 2).saturating_mul(channels(&weight, 1)))
            }
            _ => (channels(&weight, 1), weight.size(0)),
        };
        if inputs != channels(&input, 1) {
            return Err(bad(1, "must have as many input channels as the input"));
        }
        let batch = input.size(0);
        let (input_zp, weight_zp) = (zero_point(ctx, at)?, zero_point(ctx, at + 1)?);
        Ok(Geometry { kind, batch, axes, inputs, outputs, input_zp, weight_zp })
    }

    fn taps(&self) -> usize {
        self.axes.iter().map(|axis| axis.kernel).product()
    }
}

fn prepare(ctx: &mut Prepare, geometry: &Geometry, out: usize) -> Result<(), KernelError> {
    use ScalarType::{Char, Int, Long, Short};
    expect_type(ctx, 0, &[Char, Short])?;
    expect_type(ctx, 1, &[Char])?;
    let sum = if ctx.info(0)?.scalar_type == Char { Int } else { Long };
    expect_type(ctx, 2, &[sum])?;
    expect_type(ctx, out, &[sum])?;
    if contiguous(ctx, 2, 1)?.size(0) != geometry.outputs {
        return Err(bad(2, "must have a value for each output channel"));
    }
    let rank = ctx.info(0)?.rank();
    let made = geometry.axes.map(|axis| axis.made);
    let sizes = [&[geometry.batch], made.get(5 - rank..).unwrap_or_default(), &[geometry.outputs]];
    let mut narrow = [0i32; 5];
    for (narrow, size) in narrow.iter_mut().zip(sizes.into_iter().flatten()) {
        *narrow = i32::try_from(*size).map_err(|_| bad(out, "too large"))?;
    }
    ctx.resize(out, narrow.get(..rank).unwrap_or_default())?;
    contiguous(ctx, out, rank).map(drop)
}

fn invoke(ctx: &mut Invoke, kind: Kind, dims: usize, out: usize) -> Result<(), KernelError> {
    let geometry = Geometry::of(ctx, kind, dims)?;
    match ctx.info(0)?.scalar_type {
        ScalarType::Char => convolve::<i8>(ctx, &geometry, out),
        _ => convolve::<i16>(ctx, &geometry, out),
    }
}

fn convolve<T: Operand>(ctx: &mut Invoke, it: &Geometry, out: usize) -> Result<(), KernelError> {
    let (input, weight, bias) = (ctx.tensor(0)?, ctx.tensor(1)?, ctx.tensor(2)?);
    let (input, weight) = (input.data::<T>()?, weight.data::<i8>()?);
    let bias = bias.data::<T::Sum>()?;
    let out = ctx.out(out)?.into_data::<T::Sum>()?;
    let (parallel, outputs) = (ctx.parallel(), it.outputs.max(1));
    let depth = if it.kind == Kind::Depthwise { 1 } else { it.inputs };
    let work = it.taps().saturating_mul(depth).saturating_mul(outputs);
    let pixels = chunk_of_work(parallel, out.len() / outputs, work, GRAIN);
    for_each_chunk_mut(parallel, out, pixels * outputs, &|chunk, out| {
        for (number, out) in out.chunks_mut(outputs).enumerate() {
            pixel(it, input, weight, bias, chunk * pixels + number, out);
        }
    });
    Ok(())
}

/// Computes all channels of one position.
fn pixel<T: Operand>(
    it: &Geometry,
    input: &[T],
    weight: &[i8],
    bias: &[T::Sum],
    position: usize,
    out: &mut [T::Sum],
) {
    let [deep, tall, wide] = it.axes;
    let (x, rest) = (position % wide.made, position / wide.made);
    let (y, rest) = (rest % tall.made, rest / tall.made);
    let (z, batch) = (rest % deep.made, rest / deep.made);
    for (out, bias) in out.iter_mut().zip(bias) {
        *out = *bias;
    }
    let taps = it.taps();
    for tap in 0..taps {
        let (kx, rest) = (tap % wide.kernel, tap / wide.kernel);
        let (ky, kz) = (rest % tall.kernel, rest / tall.kernel);
        let at = deep.source(it.kind, z, kz).zip(tall.source(it.kind, y, ky));
        let Some(((iz, iy), ix)) = at.zip(wide.source(it.kind, x, kx)) else { continue };
        let row = ((batch * deep.size + iz) * tall.size + iy) * wide.size + ix;
        let values = input.get(row * it.inputs..).and_then(|input| input.get(..it.inputs));
        let values = values.unwrap_or_default();
        if it.kind == Kind::Depthwise {
            let weights = weight.get(tap * it.outputs..).unwrap_or_default();
            let each = (it.outputs / it.inputs.max(1)).max(1);
            for ((out, weights), value) in
                out.chunks_mut(each).zip(weights.chunks(each)).zip(values)
            {
                let value = value.less(it.input_zp);
                for (out, weight) in out.iter_mut().zip(weights) {
                    *out = out.add(value.times(T::Sum::of(i32::from(*weight) - it.weight_zp)));
                }
            }
            continue;
        }
        for (number, out) in out.iter_mut().enumerate() {
            let first = (number * taps + tap) * it.inputs;
            let weights = weight.get(first..).and_then(|weight| weight.get(..it.inputs));
            let mut sum = T::Sum::default();
            for (value, weight) in values.iter().zip(weights.unwrap_or_default()) {
                let weight = T::Sum::of(i32::from(*weight) - it.weight_zp);
                sum = sum.add(value.less(it.input_zp).times(weight));
            }
            *out = out.add(sum);
        }
    }
}
