//! Layer norm: normalizes over the last dims.

use super::{GRAIN, expect_shape, fill, is_double, moments};
use crate::compute::simd::{Simd, Tier, Vectorized};
use crate::compute::split::for_each_chunk_mut;
use crate::map::{Function, map_tensors};
use crate::number::{Number, elements, elements_mut, store, with_number};
use crate::real::Real;
use crate::reduce::expect_same_layout;
use crate::scratch;
use crate::table::kernels;
use crate::walk::Walk;
use torchlet_core::Param::{Float, IntList, OptionalTensor, Out, Tensor};
use torchlet_core::layout::Sizes;
use torchlet_core::rules::DimSet;
use torchlet_core::{Arguments, Invoke, Kernel, KernelError, Plan, Prepare, TensorInfo, TensorRef};

kernels! {
    /// `aten::native_layer_norm.out(input, normalized_shape, weight, bias, eps, out0, out1, out2)`:
    /// the normalized input, and the mean and inverse standard deviation of each row.
    LAYER_NORM_OUT = Kernel::new(
        "aten::native_layer_norm.out",
        &[Tensor, IntList, OptionalTensor, OptionalTensor, Float, Out, Out, Out],
        prepare,
    );
}

fn shape_mismatch() -> KernelError {
    KernelError::argument(1, "normalized_shape differs from the last dims of the input")
}

/// First normalized dim, number of rows and elements per row, from the input's shape.
fn rows(args: &Arguments) -> Result<(usize, usize, usize), KernelError> {
    let input = args.info(0)?;
    let first = input.rank().checked_sub(args.ints(1)?.len()).ok_or(shape_mismatch())?;
    let (outer, inner) = input.sizes.split_at(first);
    let numel = |sizes: &[i32]| torchlet_core::layout::checked_numel(sizes).unwrap_or(0);
    Ok((first, numel(outer), numel(inner)))
}

/// Like [`rows`], checking that the normalized shape matches the input's last dims.
fn extent(args: &Arguments) -> Result<(usize, usize, usize), KernelError> {
    let extent = rows(args)?;
    let (input, normalized) = (args.info(0)?, args.ints(1)?);
    let inner = input.sizes.get(extent.0..).unwrap_or(&[]);
    let equal = inner.iter().zip(&normalized).all(|(a, b)| i64::from(*a) == *b);
    if inner.is_empty() || !equal { Err(shape_mismatch()) } else { Ok(extent) }
}

fn prepare(ctx: &mut Prepare) -> Result<Plan, KernelError> {
    let input = ctx.info(0)?;
    let double = is_double(ctx, 0)?;
    let (first, rows, len) = rows(ctx)?;
    let values = rows.saturating_mul(3).saturating_add(len.saturating_mul(2));
    let scratch = scratch::bytes_for(values, if double { 8 } else { 4 })?;
    ctx.scratch_at_most(scratch);
    extent(ctx)?;
    for arg in [2, 3] {
        expect_shape(ctx, arg, &input.sizes[first..])?;
    }
    let mut sizes: Sizes = input.sizes.clone();
    sizes[first..].fill(1);
    ctx.resize(5, &input.sizes)?;
    for arg in [6, 7] {
        ctx.resize(arg, &sizes)?;
    }
    for arg in [5, 6, 7] {
        is_double(ctx, arg)?;
    }
    expect_same_layout(ctx, [6, 7])?;
    Ok(Plan::new(if double { invoke::<f64> } else { invoke::<f32> }).with_scratch(scratch))
}

fn invoke<C: Real>(ctx: &mut Invoke) -> Result<(), KernelError> {
    crate::types::expect::<C>()?;
    let (first, rows, len) = extent(ctx)?;
    let memory = scratch::take::<C>(ctx, 3 * rows + 2 * len)?;
    let (mean, memory) = memory.split_at_mut(rows);
    let (low, memory) = memory.split_at_mut(rows);
    let (rstd, memory) = memory.split_at_mut(rows);
    let (gamma, beta) = memory.split_at_mut(len);

    let (input, weight, bias) = (ctx.tensor(0)?, ctx.optional_tensor(2)?, ctx.optional_tensor(3)?);
    let eps = C::from_f64(ctx.float(4)?);
    let out = ctx.out(5)?;
    let (mut out_mean, mut out_rstd) = (ctx.out(6)?, ctx.out(7)?);
    let layout = TensorInfo { scalar_type: C::SCALAR_TYPE, ..out_mean.info().clone() };
    let dims: heapless::Vec<i64, { torchlet_core::layout::MAX_RANK }> =
        (first as i64..input.rank() as i64).collect();
    let dims = DimSet::of(&dims, input.rank()).ok_or(KernelError::access(0))?;
    moments(ctx, &input, dims, &layout, [&mut *mean, &mut *low, &mut *rstd]);
    for value in rstd.iter_mut() {
        *value = C::count(1) / (*value + eps).sqrt();
    }
    store(out_mean.scalar_type, out_mean.bytes_mut(), mean);
    store(out_rstd.scalar_type, out_rstd.bytes_mut(), rstd);
    fill(weight.as_ref(), 0, C::count(1), gamma);
    fill(bias.as_ref(), 0, C::default(), beta);

    let info = out.info().clone();
    let bytes = out.into_bytes();
    let plain = [&weight, &bias]
        .iter()
        .all(|tensor| tensor.as_ref().is_none_or(|tensor| tensor.is_contiguous()));
    let in_rows = input.is_contiguous() && info.is_contiguous() && layout.is_contiguous();
    if in_rows && plain && input.scalar_type == info.scalar_type {
        let (parallel, tier) = (ctx.parallel(), Tier::detect());
        let together = (GRAIN / len.max(1)).max(1);
        let (mean, low, rstd, gamma, beta) = (&*mean, &*low, &*rstd, &*gamma, &*beta);
        with_number!(float info.scalar_type, |T| {
            let (src, dst) = (elements::<T>(input.bytes()), elements_mut::<T>(bytes));
            let chunk = together.saturating_mul(len);
            for_each_chunk_mut(parallel, dst, chunk, &|index, dst: &mut [T]| {
                let first = index * together;
                let src = src.get(first * len..).unwrap_or(&[]);
                let (mean, low, rstd) = (&mean[first..], &low[first..], &rstd[first..]);
                tier.dispatch(Rows { src, dst, mean, low, rstd, gamma, beta });
            });
        }, else ());
        return Ok(());
    }
    let shape = KernelError::access(0);
    let part = |values, layout: &TensorInfo| {
        TensorRef::new(TensorInfo { scalar_type: C::SCALAR_TYPE, ..layout.clone() }, values)
    };
    // Weights in scratch memory have the memory order of their tensors.
    let row = TensorInfo::contiguous(C::SCALAR_TYPE, &input.sizes[first..]).ok_or(shape.clone())?;
    let of = |tensor: &Option<TensorRef>| tensor.as_ref().map_or(row.clone(), |t| t.info().clone());
    let tensors = [
        Some(input.clone()),
        part(bytemuck::cast_slice(mean), &layout),
        part(bytemuck::cast_slice(low), &layout),
        part(bytemuck::cast_slice(rstd), &layout),
        part(bytemuck::cast_slice(gamma), &of(&weight)),
        part(bytemuck::cast_slice(beta), &of(&bias)),
    ];
    let [Some(x), Some(mean), Some(low), Some(rstd), Some(gamma), Some(beta)] = tensors else {
        return Err(shape);
    };
    let tensors = [x, mean, low, rstd, gamma, beta];
    let walk = Walk::broadcast(&info, core::array::from_fn(|i| tensors[i].info()))?;
    map_tensors::<C, 6>(ctx, &walk, &tensors, &info, bytes, &Normalize);
    Ok(())
}

/// `(x - mean - low) * rstd * gamma + beta`, where `low` is the rounding error of the mean.
struct Normalize;

impl<C: Real> Function<6, C> for Normalize {
    fn apply(&self, [x, mean, low, rstd, gamma, beta]: [&[C]; 6], out: &mut [C]) {
        let moments = mean.iter().zip(low).zip(rstd);
        let weights = gamma.iter().zip(beta);
        for (((out, x), ((mean, low), rstd)), (gamma, beta)) in
            out.iter_mut().zip(x).zip(moments).zip(weights)
        {
            *out = (*x - *mean - *low) * *rstd * *gamma + *beta;
        }
    }
}

/// [`Normalize`] for consecutive whole rows.
struct Rows<'a, T, C> {
    src: &'a [T],
    dst: &'a mut [T],
    mean: &'a [C],
    low: &'a [C],
    rstd: &'a [C],
    gamma: &'a [C],
    beta: &'a [C],
}

impl<T: Number, C: Real> Vectorized for Rows<'_, T, C> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        let len = self.gamma.len().max(1);
        let rows = self.src.chunks_exact(len).zip(self.dst.chunks_exact_mut(len));
        let moments = self.mean.iter().zip(self.low).zip(self.rstd);
        for ((src, dst), ((mean, low), rstd)) in rows.zip(moments) {
            let weights = self.gamma.iter().zip(self.beta);
            for ((out, x), (gamma, beta)) in dst.iter_mut().zip(src).zip(weights) {
                *out = ((C::of(*x) - *mean - *low) * *rstd * *gamma + *beta).to();
            }
        }
    }
}
