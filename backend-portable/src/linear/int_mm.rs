//! Integer matrix multiplication of 8-bit values.

use super::MatrixLayout;
use super::operators::mismatched;
use super::plain::GRAIN;
use crate::compute::split::{chunk_of_work, for_each_chunk_mut};
use crate::shape::contiguous;
use crate::table::kernels;
use torchlet_core::Param::{Out, Tensor};
use torchlet_core::rules::matmul::mm;
use torchlet_core::{Element, Invoke, Kernel, KernelError, Plan, ScalarType};

kernels! { WHOLE:
    /// `aten::_int_mm.out(self, mat2, out)`: multiplies an int8 or uint8 matrix with an int8
    /// matrix. The result is `int32`; overflow wraps.
    INT_MM_OUT = Kernel::new("aten::_int_mm.out", &[Tensor, Tensor, Out], |ctx| {
        let (a, b) = (ctx.info(0)?, ctx.info(1)?);
        let (_, sizes) = mm(&a.sizes, &b.sizes).ok_or(mismatched(1))?;
        ctx.resize(2, &sizes)?;
        let out = ctx.info(2)?;
        contiguous(2, &out)?;
        for (arg, info, wanted) in [(1, &b, ScalarType::Char), (2, &out, ScalarType::Int)] {
            if info.scalar_type != wanted {
                return Err(KernelError::scalar_type(arg, info.scalar_type));
            }
        }
        Ok(Plan::new(match a.scalar_type {
            ScalarType::Char => run::<i8>,
            ScalarType::Byte => run::<u8>,
            found => return Err(KernelError::scalar_type(0, found)),
        }))
    });
}

fn run<T: Element + Into<i32>>(ctx: &mut Invoke) -> Result<(), KernelError> {
    let (a, b) = (ctx.tensor(0)?, ctx.tensor(1)?);
    let (product, _) = mm(&a.sizes, &b.sizes).ok_or(mismatched(1))?;
    let (a_layout, b_layout) = (MatrixLayout::last_two(&a), MatrixLayout::last_two(&b));
    let (lhs, weights) = (a.data::<T>()?, b.data::<i8>()?);
    let out = ctx.out(2)?.into_data::<i32>()?;
    let (k, n) = (product.k, product.n.max(1));
    let rows = chunk_of_work(ctx.parallel(), product.m, k.saturating_mul(n), GRAIN);
    for_each_chunk_mut(ctx.parallel(), out, rows * n, &|chunk, out: &mut [i32]| {
        for (row, out) in out.chunks_mut(n).enumerate() {
            let first = (chunk * rows + row) * a_layout.row;
            let value =
                |p: usize| lhs.get(first + p * a_layout.col).map_or(0, |&value| value.into());
            out.fill(0);
            if b_layout.col == 1 {
                for p in 0..k {
                    let value: i32 = value(p);
                    let line = weights.get(p * b_layout.row..).unwrap_or_default();
                    for (sum, &weight) in out.iter_mut().zip(line) {
                        *sum = sum.wrapping_add(value.wrapping_mul(weight.into()));
                    }
                }
                continue;
            }
            for (column, sum) in out.iter_mut().enumerate() {
                let line = weights.get(column * b_layout.col..).unwrap_or_default();
                for (p, &weight) in line.iter().step_by(b_layout.row.max(1)).take(k).enumerate() {
                    *sum = sum.wrapping_add(value(p).wrapping_mul(weight.into()));
                }
            }
        }
    });
    Ok(())
}
