//! Fractional max pooling, with pseudorandom window positions.

use crate::number::{Compute, load, store, unsupported};
use crate::real::{Real, by_type};
use crate::table::kernels;
use torchlet_core::Param::{IntList, Out, Tensor};
use torchlet_core::layout::Sizes;
use torchlet_core::{
    Arguments, Invoke, InvokeFn, Kernel, KernelError, Param, Plan, Prepare, ScalarType, TensorInfo,
    TensorMut, TensorRef,
};

const PARAMS: &[Param] = &[Tensor, IntList, IntList, Tensor, Out, Out];

kernels! { FRACTIONAL:
    /// `aten::fractional_max_pool2d.output(self, kernel_size, output_size,
    /// random_samples, output, indices)`: `random_samples` holds per channel a value in 0..1 for
    /// the width and one for the height.
    FRACTIONAL_MAX_POOL2D_OUT = Kernel::new("aten::fractional_max_pool2d.output", PARAMS, |ctx| {
        prepare::<2>(ctx, [pool::<f32, 2>, pool::<f64, 2>])
    });
    /// `aten::fractional_max_pool3d.output(self, kernel_size, output_size,
    /// random_samples, output, indices)`: `random_samples` holds per channel a value in 0..1 for
    /// depth, height and width.
    FRACTIONAL_MAX_POOL3D_OUT = Kernel::new("aten::fractional_max_pool3d.output", PARAMS, |ctx| {
        prepare::<3>(ctx, [pool::<f32, 3>, pool::<f64, 3>])
    });
}

/// Windows over the last `D` dims, and the number of planes.
struct Windows<const D: usize> {
    input: [usize; D],
    kernel: [usize; D],
    output: [usize; D],
    /// Batch and channels.
    planes: [usize; 2],
}

impl<const D: usize> Windows<D> {
    fn of(args: &Arguments) -> Result<Self, KernelError> {
        let input = args.info(0)?;
        let leading = input.rank().checked_sub(D).filter(|leading| (1..=2).contains(leading));
        let leading = leading.ok_or(KernelError::rank(0, input.rank()))?;
        let sizes = |arg: usize| {
            let list = args.ints(arg)?;
            let mut sizes = [0; D];
            for (dim, size) in sizes.iter_mut().enumerate() {
                let given = list.get(dim).filter(|_| list.len() == D);
                let given = given.and_then(|given| usize::try_from(*given).ok());
                let wrong = KernelError::argument(arg, "expected a positive integer per dim");
                *size = given.filter(|size| *size > 0).ok_or(wrong)?;
            }
            Ok::<_, KernelError>(sizes)
        };
        let (kernel, output) = (sizes(1)?, sizes(2)?);
        let spatial: [usize; D] = core::array::from_fn(|dim| input.size(leading + dim));
        let fits = (0..D).all(|dim| {
            let reach = output[dim].checked_add(kernel[dim]);
            reach.is_some_and(|reach| reach - 1 <= spatial[dim])
        });
        if !fits {
            return Err(KernelError::argument(
                2,
                "output size plus kernel size exceed the input size by more than 1",
            ));
        }
        let batch = if leading == 2 { input.size(0) } else { 1 };
        let planes = [batch, input.size(leading - 1)];
        Ok(Windows { input: spatial, kernel, output, planes })
    }

    /// Start of a window over a dim, for a sample in 0..1.
    fn start<C: Real>(&self, dim: usize, at: usize, sample: C) -> usize {
        let last = self.input[dim] - self.kernel[dim];
        if at + 1 == self.output[dim] {
            return last;
        }
        let step = C::count(last) / C::count(self.output[dim] - 1);
        let start_of = |from: C| (from * step).trunc().to_f64() as usize;
        start_of(C::count(at) + sample).saturating_sub(start_of(sample)).min(last)
    }
}

fn prepare<const D: usize>(
    ctx: &mut Prepare,
    functions: [InvokeFn; 2],
) -> Result<Plan, KernelError> {
    let windows = Windows::<D>::of(ctx)?;
    let (input, samples) = (ctx.info(0)?, ctx.info(3)?);
    let mut sizes = Sizes::new();
    let large = KernelError::argument(2, "output size exceeds 2^31 - 1");
    let leading = input.sizes.get(..input.rank() - D).unwrap_or_default();
    sizes.extend_from_slice(leading).map_err(|_| large.clone())?;
    for size in windows.output {
        let size = i32::try_from(size).map_err(|_| large.clone())?;
        sizes.push(size).map_err(|_| large.clone())?;
    }
    ctx.resize(4, &sizes)?;
    ctx.resize(5, &sizes)?;
    let [batch, channels] = windows.planes;
    let fits = samples.rank() == 3
        && samples.size(0) >= batch
        && samples.size(1) == channels
        && samples.size(2) == D;
    if !fits {
        return Err(KernelError::argument(
            3,
            "random samples: expected shape [batch, channels, spatial dims]",
        ));
    }
    let of = input.scalar_type;
    for (arg, found, wanted) in [
        (3, samples.scalar_type, of),
        (4, ctx.info(4)?.scalar_type, of),
        (5, ctx.info(5)?.scalar_type, ScalarType::Long),
    ] {
        if found != wanted {
            return Err(unsupported(arg, found));
        }
    }
    by_type(ctx, 0, functions)
}

/// Memory position of the first element of a plane, and the strides of its dims.
fn plane<const D: usize>(info: &TensorInfo, [batch, channel]: [usize; 2]) -> (usize, [usize; D]) {
    let strides = info.strides();
    let stride = |dim: usize| strides.get(dim).copied().unwrap_or(0);
    let leading = info.rank().saturating_sub(D);
    let first = if leading == 2 { batch * stride(0) } else { 0 };
    let steps = core::array::from_fn(|dim| stride(leading + dim));
    (first + channel * stride(leading.saturating_sub(1)), steps)
}

fn pool<C: Real + PartialOrd, const D: usize>(ctx: &mut Invoke) -> Result<(), KernelError> {
    crate::types::expect::<C>()?;
    let windows = Windows::<D>::of(ctx)?;
    let (input, samples) = (ctx.tensor(0)?, ctx.tensor(3)?);
    let (mut out, mut indices) = (ctx.out(4)?, ctx.out(5)?);
    let [batch, channels] = windows.planes;
    let count: usize = windows.output.iter().product();
    for at in 0..batch * channels {
        let at = [at / channels, at % channels];
        // In 2D, the first sample is for the width.
        let number = |dim: usize| {
            let strides = samples.info().strides();
            let sample_index = if D == 2 { D - 1 - dim } else { dim };
            let offset: usize =
                strides.iter().zip([at[0], at[1], sample_index]).map(|(a, b)| a * b).sum();
            one::<C>(&samples, offset)
        };
        let samples: [C; D] = core::array::from_fn(number);
        let (first, steps) = plane::<D>(input.info(), at);
        let (first_out, steps_out) = plane::<D>(out.info(), at);
        let (first_index, steps_index) = plane::<D>(indices.info(), at);
        for number in 0..count {
            let out_index = split(number, windows.output);
            let start: [usize; D] =
                core::array::from_fn(|dim| windows.start(dim, out_index[dim], samples[dim]));
            let mut largest = None;
            for tap in 0..windows.kernel.iter().product() {
                let tap = split(tap, windows.kernel);
                let taken: [usize; D] = core::array::from_fn(|dim| start[dim] + tap[dim]);
                let value = one::<C>(&input, first + dot(taken, steps));
                let is_nan = value.to_f64().is_nan();
                if largest.is_none_or(|(_, found)| value > found || is_nan) {
                    let index =
                        (0..D).fold(0, |index, dim| index * windows.input[dim] + taken[dim]);
                    largest = Some((index, value));
                }
            }
            let (index, value) = largest.unwrap_or((0, C::default()));
            put(&mut out, first_out + dot(out_index, steps_out), value);
            put(&mut indices, first_index + dot(out_index, steps_index), index as i64);
        }
    }
    Ok(())
}

/// Converts a row-major index to an index per dim.
fn split<const D: usize>(mut rest: usize, sizes: [usize; D]) -> [usize; D] {
    let mut index = [0; D];
    for (index, size) in index.iter_mut().zip(sizes).rev() {
        *index = rest % size.max(1);
        rest /= size.max(1);
    }
    index
}

fn dot<const D: usize>(a: [usize; D], b: [usize; D]) -> usize {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

fn one<C: Compute>(tensor: &TensorRef, at: usize) -> C {
    let mut value = [C::default()];
    load(tensor.scalar_type, tensor.bytes(), at as isize, 1, &mut value);
    value[0]
}

fn put<C: Compute>(tensor: &mut TensorMut, at: usize, value: C) {
    let (scalar_type, size) = (tensor.scalar_type, tensor.scalar_type.size());
    let start = at.saturating_mul(size);
    if let Some(bytes) = tensor.bytes_mut().get_mut(start..start.saturating_add(size)) {
        store(scalar_type, bytes, &[value]);
    }
}
