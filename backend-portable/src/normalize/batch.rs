//! Batch norm, with the running mean and variance or with those of the batch.

use super::{Coefficients, affine, coefficients, expect_shape, fill, is_double, moments};
use crate::number::{load, store};
use crate::real::Real;
use crate::reduce::store_states;
use crate::scratch;
use crate::table::kernels;
use torchlet_core::Param::{Bool, Float, OptionalTensor, Out, Tensor};
use torchlet_core::rules::DimSet;
use torchlet_core::{Arguments, Invoke, Kernel, KernelError, Plan, Prepare, TensorInfo, TensorMut};

kernels! {
    /// `aten::_native_batch_norm_legit_no_training.out(input, weight,
    /// bias, running_mean, running_var, momentum, eps, out0, out1, out2)`: normalizes with the
    /// running mean and variance. The last two outputs are empty.
    BATCH_NORM_NO_TRAINING_OUT = Kernel::new(
        "aten::_native_batch_norm_legit_no_training.out",
        &[Tensor, OptionalTensor, OptionalTensor, Tensor, Tensor, Float, Float, Out, Out, Out],
        |ctx| prepare(ctx, NO_TRAINING),
    );
    /// `aten::_native_batch_norm_legit.out(input, weight, bias, running_mean,
    /// running_var, training, momentum, eps, out, save_mean, save_invstd)`: normalizes with the
    /// running mean and variance. In training, normalizes with those of the batch, which also
    /// update the running ones.
    BATCH_NORM_OUT = Kernel::new(
        "aten::_native_batch_norm_legit.out",
        &[
            Tensor, OptionalTensor, OptionalTensor, Out, Out, Bool, Float, Float, Out, Out, Out,
        ],
        |ctx| prepare(ctx, TRAINING),
    );
    /// `aten::_native_batch_norm_legit.no_stats_out(input, weight, bias,
    /// training, momentum, eps, out, save_mean, save_invstd)`: normalizes with the mean and
    /// variance of the batch.
    BATCH_NORM_NO_STATS_OUT = Kernel::new(
        "aten::_native_batch_norm_legit.no_stats_out",
        &[Tensor, OptionalTensor, OptionalTensor, Bool, Float, Float, Out, Out, Out],
        |ctx| prepare(ctx, NO_STATS),
    );
    /// `aten::_batch_norm_no_update.out(input, weight, bias, running_mean,
    /// running_var, momentum, eps, out0, out1, out2, out3)`: normalizes with the running mean and
    /// variance. The last three outputs are empty.
    BATCH_NORM_NO_UPDATE_OUT = Kernel::new(
        "aten::_batch_norm_no_update.out",
        &[
            Tensor, OptionalTensor, OptionalTensor, Tensor, Tensor, Float, Float, Out, Out, Out,
            Out,
        ],
        |ctx| {
            ctx.resize(10, &[0])?;
            prepare(ctx, NO_TRAINING)
        },
    );
}

/// Argument indices of an operator. The input is 0, weight and bias are 1 and 2.
#[derive(Clone, Copy)]
struct Call {
    /// Running mean, followed by the running variance.
    running: Option<usize>,
    training: Option<usize>,
    /// Momentum of the running mean and variance, followed by epsilon.
    momentum: usize,
    /// The output, followed by the batch's mean and inverse standard deviation.
    out: usize,
    invoke: [torchlet_core::InvokeFn; 2],
}

const NO_TRAINING: Call = Call {
    running: Some(3),
    training: None,
    momentum: 5,
    out: 7,
    invoke: [no_training::<f32>, no_training::<f64>],
};
const TRAINING: Call = Call {
    running: Some(3),
    training: Some(5),
    momentum: 6,
    out: 8,
    invoke: [with_stats::<f32>, with_stats::<f64>],
};
const NO_STATS: Call = Call {
    running: None,
    training: Some(3),
    momentum: 4,
    out: 6,
    invoke: [no_stats::<f32>, no_stats::<f64>],
};

impl Call {
    /// Whether the mean and variance of the batch are used.
    fn is_training(&self, args: &Arguments) -> Result<bool, KernelError> {
        self.training.map_or(Ok(false), |arg| args.bool(arg))
    }
}

fn prepare(ctx: &mut Prepare, call: Call) -> Result<Plan, KernelError> {
    let input = ctx.info(0)?;
    let double = is_double(ctx, 0)?;
    if input.rank() < 2 {
        return Err(KernelError::rank(0, input.rank()));
    }
    let is_training = call.is_training(ctx)?;
    let channels = [input.sizes[1]];
    for arg in [1, 2] {
        expect_shape(ctx, arg, &channels)?;
    }
    match call.running {
        Some(running) => {
            expect_shape(ctx, running, &channels)?;
            expect_shape(ctx, running + 1, &channels)?;
        }
        None if !is_training => {
            return Err(KernelError::unsupported(
                "batch norm without running statistics outside training",
            ));
        }
        None => {}
    }
    ctx.resize(call.out, &input.sizes)?;
    is_double(ctx, call.out)?;
    for arg in [call.out + 1, call.out + 2] {
        ctx.resize(arg, if is_training { &channels } else { &[0] })?;
        is_double(ctx, arg)?;
    }
    let element = if double { 8 } else { 4 };
    let scratch = scratch::bytes_for(input.size(1), 3 * element)?;
    Ok(Plan::new(call.invoke[usize::from(double)]).with_scratch(scratch))
}

/// Normalizes with means and variances; `memory` holds means, their rounding errors, and variances.
/// Overwrites the latter two.
fn apply<C: Real>(
    ctx: &Invoke,
    eps: C,
    [mean, low, variance]: [&mut [C]; 3],
    out: TensorMut,
) -> Result<(), KernelError> {
    let (input, weight, bias) = (ctx.tensor(0)?, ctx.optional_tensor(1)?, ctx.optional_tensor(2)?);
    coefficients(weight.as_ref(), bias.as_ref(), 0, eps, low, variance);
    // One coefficient per channel.
    let mut sizes = [1; torchlet_core::layout::MAX_RANK];
    sizes[1] = input.sizes[1];
    let sizes = &sizes[..input.rank()];
    let inner = input.strides().get(1).copied();
    let info = out.info().clone();
    let coefficients = Coefficients { mean, scale: variance, shift: low };
    affine(ctx, &input, (&info, out.into_bytes()), (sizes, coefficients), inner)
}

/// Splits memory into means, their rounding errors, and variances.
fn parts<C>(memory: &mut [C], channels: usize) -> [&mut [C]; 3] {
    let (mean, memory) = memory.split_at_mut(channels);
    let (low, variance) = memory.split_at_mut(channels);
    [mean, low, variance]
}

fn no_training<C: Real>(ctx: &mut Invoke) -> Result<(), KernelError> {
    crate::types::expect::<C>()?;
    let channels = ctx.info(0)?.size(1);
    let memory = scratch::take::<C>(ctx, 3 * channels)?;
    let [mean, low, variance] = parts(memory, channels);
    low.fill(C::default());
    fill(Some(&ctx.tensor(3)?), 0, C::default(), mean);
    fill(Some(&ctx.tensor(4)?), 0, C::default(), variance);
    let eps = C::from_f64(ctx.float(NO_TRAINING.momentum + 1)?);
    let out = ctx.out(NO_TRAINING.out)?;
    apply(ctx, eps, [mean, low, variance], out)
}

fn with_stats<C: Real>(ctx: &mut Invoke) -> Result<(), KernelError> {
    crate::types::expect::<C>()?;
    let channels = ctx.info(0)?.size(1);
    let memory = scratch::take::<C>(ctx, 3 * channels)?;
    let [mean, low, variance] = parts(memory, channels);
    let (mut running_mean, mut running_var) = (ctx.out(3)?, ctx.out(4)?);
    if TRAINING.is_training(ctx)? {
        batch_moments(ctx, [&mut *mean, &mut *low, &mut *variance])?;
        let momentum = C::from_f64(ctx.float(TRAINING.momentum)?);
        // Bessel's correction, for an unbiased running variance.
        let input = ctx.info(0)?;
        let count = C::count(input.numel().checked_div(channels).unwrap_or(0));
        let correction = count / (count - C::count(1));
        update(&mut running_mean, mean, momentum, C::count(1));
        update(&mut running_var, variance, momentum, correction);
        return finish_training(ctx, TRAINING, [mean, low, variance]);
    }
    low.fill(C::default());
    for (values, running) in [(&mut *mean, &mut running_mean), (&mut *variance, &mut running_var)] {
        let scalar_type = running.scalar_type;
        load(scalar_type, running.bytes_mut(), 0, 1, values);
    }
    let eps = C::from_f64(ctx.float(TRAINING.momentum + 1)?);
    let out = ctx.out(TRAINING.out)?;
    apply(ctx, eps, [mean, low, variance], out)
}

fn no_stats<C: Real>(ctx: &mut Invoke) -> Result<(), KernelError> {
    crate::types::expect::<C>()?;
    let channels = ctx.info(0)?.size(1);
    let memory = scratch::take::<C>(ctx, 3 * channels)?;
    let [mean, low, variance] = parts(memory, channels);
    batch_moments(ctx, [&mut *mean, &mut *low, &mut *variance])?;
    finish_training(ctx, NO_STATS, [mean, low, variance])
}

fn batch_moments<C: Real>(ctx: &Invoke, found: [&mut [C]; 3]) -> Result<(), KernelError> {
    let input = ctx.tensor(0)?;
    let channel = DimSet::of(&[1], input.rank()).unwrap_or(DimSet::NONE);
    let dims = channel.complement(input.rank());
    let layout = TensorInfo::contiguous(C::SCALAR_TYPE, &[input.sizes[1]]);
    let layout = layout.ok_or(KernelError::access(0))?;
    moments(ctx, &input, dims, &layout, found);
    Ok(())
}

/// Updates the running mean or variance with that of the batch.
fn update<C: Real>(running: &mut TensorMut, batch: &[C], momentum: C, correction: C) {
    let (scalar_type, size) = (running.scalar_type, running.scalar_type.size());
    for (batch, bytes) in batch.chunks(32).zip(running.bytes_mut().chunks_mut(32 * size)) {
        let mut values = [C::default(); 32];
        let values = &mut values[..batch.len()];
        load(scalar_type, bytes, 0, 1, values);
        for (value, batch) in values.iter_mut().zip(batch) {
            *value = *value * (C::count(1) - momentum) + *batch * correction * momentum;
        }
        store(scalar_type, bytes, values);
    }
}

/// Stores the mean and inverse standard deviation of the batch, and normalizes.
fn finish_training<C: Real>(
    ctx: &mut Invoke,
    call: Call,
    [mean, low, variance]: [&mut [C]; 3],
) -> Result<(), KernelError> {
    crate::types::expect::<C>()?;
    let eps = C::from_f64(ctx.float(call.momentum + 1)?);
    let out = ctx.out(call.out)?;
    let mut save_mean = ctx.out(call.out + 1)?;
    let mut save_invstd = ctx.out(call.out + 2)?;
    store(save_mean.scalar_type, save_mean.bytes_mut(), mean);
    let scalar_type = save_invstd.scalar_type;
    let bytes = save_invstd.bytes_mut();
    store_states(scalar_type, variance, bytes, |variance| C::count(1) / (variance + eps).sqrt());
    apply(ctx, eps, [mean, low, variance], out)
}
