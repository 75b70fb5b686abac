//! Normally distributed values with given means and standard deviations: `normal`.

use super::random::{next_key, normal};
use crate::number::{load, number_type, store, unsupported};
use crate::table::kernels;
use crate::walk::Walk;
use torchlet_core::Param::{Float, IntList, OptionalInt, Out, Tensor};
use torchlet_core::layout::Sizes;
use torchlet_core::rules::broadcast;
use torchlet_core::{
    Arguments, Invoke, InvokeFn, Kernel, KernelError, Plan, Prepare, ScalarType, TensorInfo,
};

kernels! { NORMAL:
    /// `aten::normal.float_float_out(mean, std, size, generator, out)`: one mean and standard
    /// deviation for a tensor of shape `size`.
    NORMAL_FLOAT_FLOAT_OUT = Kernel::new(
        "aten::normal.float_float_out",
        &[Float, Float, IntList, OptionalInt, Out],
        |ctx| {
            super::prepare_sizes(ctx, 2, 4)?;
            let sizes = ctx.info(4)?.sizes;
            check_deviation(ctx, 1)?;
            prepare(ctx, 4, &sizes, |ctx| {
                draw(ctx, [ParamSource::Scalar(0), ParamSource::Scalar(1)], 4)
            })
        },
    );
    /// `aten::normal.Tensor_float_out(mean, std, generator, out)`: a mean per element.
    NORMAL_TENSOR_FLOAT_OUT = Kernel::new(
        "aten::normal.Tensor_float_out",
        &[Tensor, Float, OptionalInt, Out],
        |ctx| {
            let sizes = ctx.info(0)?.sizes;
            check_deviation(ctx, 1)?;
            number_type(0, ctx.info(0)?.scalar_type)?;
            prepare(ctx, 3, &sizes, |ctx| {
                draw(ctx, [ParamSource::Tensor(0), ParamSource::Scalar(1)], 3)
            })
        },
    );
    /// `aten::normal.float_Tensor_out(mean, std, generator, out)`: a standard deviation per
    /// element.
    NORMAL_FLOAT_TENSOR_OUT = Kernel::new(
        "aten::normal.float_Tensor_out",
        &[Float, Tensor, OptionalInt, Out],
        |ctx| {
            let sizes = ctx.info(1)?.sizes;
            number_type(1, ctx.info(1)?.scalar_type)?;
            prepare(ctx, 3, &sizes, |ctx| {
                draw(ctx, [ParamSource::Scalar(0), ParamSource::Tensor(1)], 3)
            })
        },
    );
    /// `aten::normal.Tensor_Tensor_out(mean, std, generator, out)`: both per element, broadcast.
    NORMAL_TENSOR_TENSOR_OUT = Kernel::new(
        "aten::normal.Tensor_Tensor_out",
        &[Tensor, Tensor, OptionalInt, Out],
        |ctx| {
            for arg in [0, 1] {
                number_type(arg, ctx.info(arg)?.scalar_type)?;
            }
            let sizes = broadcast(&ctx.info(0)?.sizes, &ctx.info(1)?.sizes);
            let sizes = sizes.ok_or(KernelError::argument(1, "shapes of mean and standard \
                                                              deviation do not broadcast"))?;
            prepare(ctx, 3, &sizes, |ctx| {
                draw(ctx, [ParamSource::Tensor(0), ParamSource::Tensor(1)], 3)
            })
        },
    );
}

/// Argument index of the means or standard deviations, a scalar or a tensor.
#[derive(Clone, Copy)]
enum ParamSource {
    Scalar(usize),
    Tensor(usize),
}

/// Number of values that are computed at a time, in buffers on the stack.
const BLOCK: usize = 64;

fn negative_deviation(arg: usize) -> KernelError {
    KernelError::argument(arg, "standard deviation: expected at least 0")
}

fn check_deviation(args: &Arguments, arg: usize) -> Result<(), KernelError> {
    if args.float(arg)? >= 0.0 { Ok(()) } else { Err(negative_deviation(arg)) }
}

fn prepare(
    ctx: &mut Prepare,
    out: usize,
    sizes: &Sizes,
    invoke: InvokeFn,
) -> Result<Plan, KernelError> {
    ctx.resize(out, sizes)?;
    let found = ctx.info(out)?.scalar_type;
    if found.is_floating() { Ok(Plan::new(invoke)) } else { Err(unsupported(out, found)) }
}

fn draw(ctx: &mut Invoke, sources: [ParamSource; 2], out: usize) -> Result<(), KernelError> {
    let one = TensorInfo::contiguous(ScalarType::Double, &[]).ok_or(KernelError::access(out))?;
    let (mut tensors, mut infos, mut fixed) = ([None, None], [one.clone(), one], [0.0; 2]);
    for (side, source) in sources.into_iter().enumerate() {
        match source {
            ParamSource::Scalar(arg) => fixed[side] = ctx.float(arg)?,
            ParamSource::Tensor(arg) => {
                let tensor = ctx.tensor(arg)?;
                infos[side] = tensor.info().clone();
                tensors[side] = Some(tensor);
            }
        }
    }
    let out = ctx.out(out)?;
    let scalar_type = out.scalar_type;
    let walk = Walk::broadcast(out.info(), [&infos[0], &infos[1]])?;
    let (bytes, steps) = (out.into_bytes(), walk.inner_steps());
    let (key, size, mut is_negative) = (next_key(), scalar_type.size(), false);
    walk.for_each_run(0, walk.numel(), &mut |start, mut at, len| {
        for first in (0..len).step_by(BLOCK) {
            let count = BLOCK.min(len - first);
            let mut parts = fixed.map(|number| [number; BLOCK]);
            for (side, tensor) in tensors.iter().enumerate() {
                if let (Some(tensor), Some(part)) = (tensor, parts[side].get_mut(..count)) {
                    load(tensor.scalar_type, tensor.bytes(), at[side], steps[side], part);
                }
                at[side] += steps[side] * count as isize;
            }
            let [mut made, deviations] = parts;
            for (i, (made, deviation)) in made.iter_mut().zip(&deviations).enumerate() {
                let number = normal(key.wrapping_add((start + first + i) as u64));
                is_negative |= *deviation < 0.0;
                *made += number * deviation;
            }
            let offset = (start + first) * size;
            if let Some(bytes) = bytes.get_mut(offset..offset + count * size) {
                store(scalar_type, bytes, &made[..count]);
            }
        }
    });
    match (is_negative, sources[1]) {
        (true, ParamSource::Tensor(arg) | ParamSource::Scalar(arg)) => Err(negative_deviation(arg)),
        _ => Ok(()),
    }
}
