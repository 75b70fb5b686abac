//! `addbmm`: the sum of batched matrix multiplications, in a plain loop for every element type.

use super::operators::check_addend;
use super::{Ring, plain};
use crate::compute::split::{chunk_of_work, for_each_chunk_mut};
use crate::number::{ComputeType, load, store, unsupported};
use crate::table::kernels;
use crate::walk::Steps;
use torchlet_core::Param::{Out, Scalar, Tensor};
use torchlet_core::rules::matmul::bmm;
use torchlet_core::{Invoke, InvokeFn, Kernel, KernelError, Plan, ScalarType};

kernels! { ADDBMM:
    /// `aten::addbmm.out(self, batch1, batch2, beta, alpha, out)`:
    /// `beta * self + alpha * sum of batch1 * batch2`.
    ADDBMM_OUT =
        Kernel::new("aten::addbmm.out", &[Tensor, Tensor, Tensor, Scalar, Scalar, Out], |ctx| {
            let mismatched = KernelError::argument(2, "shape does not match argument 1");
            let (_, sizes) =
                bmm(&ctx.info(1)?.sizes, &ctx.info(2)?.sizes).ok_or(mismatched)?;
            let &[_, rows, columns] = &*sizes else {
                return Err(KernelError::rank(1, sizes.len()));
            };
            ctx.resize(5, &[rows, columns])?;
            check_addend(ctx, &[rows, columns])?;
            let found = ctx.info(1)?.scalar_type;
            for arg in [0, 2, 5] {
                let other = ctx.info(arg)?.scalar_type;
                if other != found {
                    return Err(unsupported(arg, other));
                }
            }
            if !ctx.info(5)?.is_contiguous() {
                return Err(KernelError::layout(5));
            }
            let invoke: InvokeFn = match ComputeType::of(found) {
                Some(ComputeType::F32) => run::<f32>,
                Some(ComputeType::F64) => run::<f64>,
                Some(ComputeType::I64) if found != torchlet_core::ScalarType::Bool => run::<i64>,
                _ => return Err(unsupported(1, found)),
            };
            Ok(Plan::new(invoke))
        });
}

fn run<C: Ring>(ctx: &mut Invoke) -> Result<(), KernelError> {
    crate::types::expect::<C>()?;
    let (addend, a, b) = (ctx.tensor(0)?, ctx.tensor(1)?, ctx.tensor(2)?);
    let (beta, alpha) = (ctx.scalar(3)?, ctx.scalar(4)?);
    let out = ctx.out(5)?;
    let info = out.info().clone();
    let (scalar_type, size) = (info.scalar_type, info.scalar_type.size());
    let (batch, columns, k) = (a.size(0), info.size(1), a.size(2));
    let mismatched = KernelError::argument(0, "shape does not broadcast to that of the output");
    let steps = Steps::broadcast(&info, addend.info()).ok_or(mismatched)?;
    // PyTorch ignores the addend if beta is zero, even NaN.
    let counts = if scalar_type.is_floating() { beta.to_f64() != 0.0 } else { beta.to_i64() != 0 };
    let (beta, alpha) = (C::of_scalar(beta), C::of_scalar(alpha));
    // For `f32` and `f64`, `alpha == 0` skips the matrix multiplication, so that NaN in the
    // operands has no effect. In half precision, PyTorch computes it.
    let exact = matches!(scalar_type, ScalarType::Float | ScalarType::Double);
    let batch = if k == 0 || exact && alpha == C::default() { 0 } else { batch };
    let (a_steps, b_steps) = (a.strides(), b.strides());
    let step = |strides: &[usize], dim: usize| strides.get(dim).map_or(0, |&step| step as isize);
    let row = columns * size;
    if row == 0 {
        return Ok(());
    }
    let work = columns.saturating_mul(k).saturating_mul(batch).max(1);
    let rows = chunk_of_work(ctx.parallel(), info.size(0), work, plain::GRAIN);
    for_each_chunk_mut(ctx.parallel(), out.into_bytes(), rows * row, &|chunk, out: &mut [u8]| {
        let (mut sums, mut values) = ([C::default(); plain::BLOCK], [C::default(); plain::BLOCK]);
        for (i, out) in out.chunks_exact_mut(row).enumerate() {
            let i = (chunk * rows + i) as isize;
            for (block, out) in out.chunks_mut(plain::BLOCK * size).enumerate() {
                let (first, count) = ((block * plain::BLOCK) as isize, out.len() / size);
                let (sums, values) = (&mut sums[..count], &mut values[..count]);
                sums.fill(C::default());
                for at in (0..batch as isize).flat_map(|n| (0..k as isize).map(move |p| (n, p))) {
                    let (n, p) = at;
                    let mut term = [C::default()];
                    let from =
                        n * step(&a_steps, 0) + i * step(&a_steps, 1) + p * step(&a_steps, 2);
                    load(scalar_type, a.bytes(), from, 1, &mut term);
                    let along = step(&b_steps, 2);
                    let from = n * step(&b_steps, 0) + p * step(&b_steps, 1) + first * along;
                    load(scalar_type, b.bytes(), from, along, values);
                    for (sum, &value) in sums.iter_mut().zip(values.iter()) {
                        *sum = sum.mul_add(term[0], value);
                    }
                }
                let [down, along, ..] = steps.strides;
                load(scalar_type, addend.bytes(), i * down + first * along, along, values);
                for (sum, &value) in sums.iter_mut().zip(values.iter()) {
                    let product = C::default().mul_add(alpha, *sum);
                    *sum = if counts { product.mul_add(beta, value) } else { product };
                }
                store(scalar_type, out, sums);
            }
        }
    });
    Ok(())
}
