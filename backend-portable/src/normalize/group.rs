//! Group norm: normalizes the channels of each group, per sample.

use super::{Coefficients, affine, coefficients, expect_shape, is_double, moments};
use crate::number::store;
use crate::real::Real;
use crate::reduce::{expect_same_layout, store_states};
use crate::scratch;
use crate::table::kernels;
use torchlet_core::Param::{Float, Int, OptionalTensor, Out, Tensor};
use torchlet_core::layout::MAX_RANK;
use torchlet_core::rules::DimSet;
use torchlet_core::{Arguments, Invoke, Kernel, KernelError, Plan, Prepare, TensorInfo, TensorRef};

kernels! {
    /// `aten::native_group_norm.out(input, weight, bias, N, C, HxW, group, eps, out0, out1, out2)`:
    /// the normalized input, and the mean and inverse standard deviation of each sample and group.
    GROUP_NORM_OUT = Kernel::new(
        "aten::native_group_norm.out",
        &[Tensor, OptionalTensor, OptionalTensor, Int, Int, Int, Int, Float, Out, Out, Out],
        prepare,
    );
}

/// Number of samples, channels and groups, from the input's shape.
fn groups(args: &Arguments) -> Result<(usize, usize, usize), KernelError> {
    let input = args.info(0)?;
    if !(2..MAX_RANK).contains(&input.rank()) {
        return Err(KernelError::rank(0, input.rank()));
    }
    let (samples, channels) = (input.size(0), input.size(1));
    let groups = usize::try_from(args.int(6)?).ok();
    let groups = groups.filter(|groups| {
        (1..=channels.max(1)).contains(groups) && channels.is_multiple_of(*groups)
    });
    let what = "number of groups does not divide the number of channels";
    Ok((samples, channels, groups.ok_or(KernelError::argument(6, what))?))
}

/// Number of samples, channels and groups; checks that `N`, `C` and `HxW` match the input's shape.
fn extent(args: &Arguments) -> Result<(usize, usize, usize), KernelError> {
    let extent = groups(args)?;
    let input = args.info(0)?;
    let rest = input.sizes.iter().skip(2).map(|&size| i64::from(size));
    let sizes = [
        (3, i64::from(input.sizes[0])),
        (4, i64::from(input.sizes[1])),
        (5, rest.fold(1, i64::saturating_mul)),
    ];
    for (arg, expected) in sizes {
        if args.int(arg)? != expected {
            return Err(KernelError::argument(arg, "expected the size of the input"));
        }
    }
    Ok(extent)
}

fn prepare(ctx: &mut Prepare) -> Result<Plan, KernelError> {
    let input = ctx.info(0)?;
    let double = is_double(ctx, 0)?;
    let (samples, channels, groups) = groups(ctx)?;
    let len = samples.saturating_mul(channels.saturating_add(groups));
    let scratch = scratch::bytes_for(len, if double { 24 } else { 12 })?;
    ctx.scratch_at_most(scratch);
    extent(ctx)?;
    for arg in [1, 2] {
        expect_shape(ctx, arg, &[input.sizes[1]])?;
    }
    ctx.resize(8, &input.sizes)?;
    for arg in [9, 10] {
        // At most as many groups as channels, so it fits.
        ctx.resize(arg, &[input.sizes[0], groups as i32])?;
    }
    for arg in [8, 9, 10] {
        is_double(ctx, arg)?;
    }
    expect_same_layout(ctx, [9, 10])?;
    Ok(Plan::new(if double { invoke::<f64> } else { invoke::<f32> }).with_scratch(scratch))
}

/// Splits the channel dim into groups and channels per group.
fn grouped<'a>(input: &TensorRef<'a>, groups: usize) -> Option<TensorRef<'a>> {
    let mut info = input.info().clone();
    let groups = i32::try_from(groups).ok()?;
    info.sizes.insert(1, groups).ok()?;
    info.sizes[2] = input.sizes[1].checked_div(groups)?;
    info.dim_order.clear();
    for &dim in &input.dim_order {
        info.dim_order.push(if dim > 1 { dim + 1 } else { dim }).ok()?;
        if dim == 1 {
            info.dim_order.push(2).ok()?;
        }
    }
    TensorRef::new(info, input.bytes())
}

fn invoke<C: Real>(ctx: &mut Invoke) -> Result<(), KernelError> {
    crate::types::expect::<C>()?;
    let (samples, channels, groups) = extent(ctx)?;
    let memory = scratch::take::<C>(ctx, 3 * samples * (channels + groups))?;
    let (scale, memory) = memory.split_at_mut(samples * channels);
    let (shift, memory) = memory.split_at_mut(samples * channels);
    let (center, memory) = memory.split_at_mut(samples * channels);
    let (mean, memory) = memory.split_at_mut(samples * groups);
    let (low, variance) = memory.split_at_mut(samples * groups);

    let (input, weight, bias) = (ctx.tensor(0)?, ctx.optional_tensor(1)?, ctx.optional_tensor(2)?);
    let eps = C::from_f64(ctx.float(7)?);
    let out = ctx.out(8)?;
    let (mut out_mean, mut out_rstd) = (ctx.out(9)?, ctx.out(10)?);
    let view = grouped(&input, groups).ok_or(KernelError::rank(0, input.rank()))?;
    let layout = TensorInfo { scalar_type: C::SCALAR_TYPE, ..out_mean.info().clone() };
    let kept = DimSet::of(&[0, 1], view.rank()).unwrap_or(DimSet::NONE);
    let found = [&mut *mean, &mut *low, &mut *variance];
    moments(ctx, &view, kept.complement(view.rank()), &layout, found);
    store(out_mean.scalar_type, out_mean.bytes_mut(), mean);
    let scalar_type = out_rstd.scalar_type;
    store_states(scalar_type, variance, out_rstd.bytes_mut(), |variance| {
        C::count(1) / (variance + eps).sqrt()
    });

    // Expands coefficients from groups to channels.
    let strides = layout.strides();
    let each = channels / groups;
    for sample in 0..samples {
        for group in 0..groups {
            let at = sample * strides[0] + group * strides[1];
            let channel = group * each;
            let start = sample * channels + channel;
            let (shift, scale) = (&mut shift[start..start + each], &mut scale[start..start + each]);
            center[start..start + each].fill(mean[at]);
            shift.fill(low[at]);
            scale.fill(variance[at]);
            coefficients(weight.as_ref(), bias.as_ref(), channel, eps, shift, scale);
        }
    }
    let mut sizes = [1; MAX_RANK];
    sizes[..2].copy_from_slice(&input.sizes[..2]);
    let sizes = &sizes[..input.rank()];
    let inner = input.is_contiguous().then(|| input.strides()[1]);
    let info = out.info().clone();
    let coefficients = Coefficients { mean: center, scale, shift };
    affine(ctx, &input, (&info, out.into_bytes()), (sizes, coefficients), inner)
}
