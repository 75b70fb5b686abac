//! Gradient of an embedding table.

use super::{Indices, index_type};
use crate::linear::Ring;
use crate::number::{ComputeType, load, store, unsupported};
use crate::real::Real;
use crate::scratch;
use crate::shape::{bad, contiguous, same_type};
use crate::table::kernels;
use torchlet_core::Param::{Bool, Int, Out, Tensor};
use torchlet_core::{Invoke, Kernel, KernelError, Plan, Prepare};

kernels! { GRADIENTS:
    /// `aten::embedding_dense_backward.out(grad_output, indices, num_weights,
    /// padding_idx, scale_grad_by_freq, out)`: the gradient of an embedding table. Each row is the
    /// sum of the gradients of its lookups, or their mean with `scale_grad_by_freq`. All tensors
    /// are contiguous; gradients are floating-point.
    EMBEDDING_DENSE_BACKWARD_OUT = Kernel::new(
        "aten::embedding_dense_backward.out",
        &[Tensor, Tensor, Int, Int, Bool, Out],
        prepare,
    );
}

fn prepare(ctx: &mut Prepare) -> Result<Plan, KernelError> {
    let (grad, indices) = (ctx.info(0)?, ctx.info(1)?);
    index_type(1, &indices)?;
    let Some((&width, rows)) = grad.sizes.split_last() else {
        return Err(KernelError::rank(0, grad.rank()));
    };
    if rows != &indices.sizes[..] {
        return Err(bad(0, "expected the shape of the indices, and a last dim"));
    }
    let weights = ctx.int(2)?;
    let count = i32::try_from(weights).ok().filter(|count| *count >= 0);
    let count = count.ok_or(bad(2, "number of rows: expected 0 to 2^31 - 1"))?;
    ctx.resize(5, &[count, width])?;
    same_type(ctx, 0, 5)?;
    for arg in [0, 1, 5] {
        contiguous(arg, &ctx.info(arg)?)?;
    }
    // If the number of rows is not known yet, the shape of the output is its upper bound.
    let counted = if ctx.bool(4)? { ctx.info(5)?.size(0) } else { 0 };
    let scratch = scratch::bytes_for(counted, size_of::<i64>())?;
    let run = match ComputeType::of(grad.scalar_type) {
        Some(ComputeType::F32) => run::<f32>,
        Some(ComputeType::F64) => run::<f64>,
        _ => return Err(unsupported(0, grad.scalar_type)),
    };
    Ok(Plan::new(run).with_scratch(scratch))
}

fn run<C: Real + Ring>(ctx: &mut Invoke) -> Result<(), KernelError> {
    crate::types::expect::<C>()?;
    let (grad, index, padding) = (ctx.tensor(0)?, ctx.tensor(1)?, ctx.int(3)?);
    let out = ctx.out(5)?;
    let (count, width) = (out.size(0), out.size(1));
    let indices = Indices::checked(&index, 1, 0, count)?;
    let counts = scratch::take::<i64>(ctx, if ctx.bool(4)? { count } else { 0 })?;
    counts.fill(0);
    for row in 0..index.numel() {
        if let Some(count) = counts.get_mut(indices.at(row as isize) as usize) {
            *count += 1;
        }
    }
    let (scalar_type, size) = (grad.scalar_type, grad.scalar_type.size());
    let out = out.into_bytes();
    out.fill(0);
    for row in 0..index.numel() {
        let to = indices.at(row as isize);
        if to == padding {
            continue;
        }
        let share = counts
            .get(to as usize)
            .map_or(C::count(1), |count| C::count(1) / C::count(*count as usize));
        let (mut sums, mut values) = ([C::default(); 64], [C::default(); 64]);
        for at in (0..width).step_by(sums.len()) {
            let len = sums.len().min(width - at);
            let (sums, values) = (&mut sums[..len], &mut values[..len]);
            let start = to as usize * width + at;
            load(scalar_type, grad.bytes(), (row * width + at) as isize, 1, values);
            load(scalar_type, out, start as isize, 1, sums);
            for (sum, value) in sums.iter_mut().zip(values) {
                *sum = sum.mul_add(*value, share);
            }
            if let Some(out) = out.get_mut(start * size..(start + len) * size) {
                store(scalar_type, out, sums);
            }
        }
    }
    Ok(())
}
