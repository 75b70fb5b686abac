//! Integer matrix multiplication.

use super::{Operand, Sum, contiguous, expect_type, zero_point};
use crate::compute::split::{chunk_of_work, for_each_chunk_mut};
use crate::shape::bad;
use crate::table::kernels;
use torchlet_core::Param::{Int, Out, Tensor};
use torchlet_core::{Elements, Invoke, Kernel, KernelError, Plan, ScalarType};

kernels! { PRODUCT:
    /// `tosa::matmul.out(a, b, a_zp, b_zp, out)`: batched matrix multiplication of int8 or int16
    /// values, before rescaling.
    MATMUL_OUT = Kernel::new("tosa::matmul.out", &[Tensor, Tensor, Int, Int, Out], |ctx| {
        use ScalarType::{Char, Int, Long, Short};
        expect_type(ctx, 0, &[Char, Short])?;
        let of = ctx.info(0)?.scalar_type;
        expect_type(ctx, 1, &[of])?;
        expect_type(ctx, 4, &[if of == Char { Int } else { Long }])?;
        let (a, b) = (contiguous(ctx, 0, 3)?, contiguous(ctx, 1, 3)?);
        let (&[batch, rows, depth], &[other, inner, columns]) = (&a.sizes[..], &b.sizes[..]) else {
            return Err(KernelError::rank(0, a.rank()));
        };
        if batch != other || depth != inner {
            return Err(bad(1, "shape does not match the other operand"));
        }
        zero_point(ctx, 2)?;
        zero_point(ctx, 3)?;
        ctx.resize(4, &[batch, rows, columns])?;
        contiguous(ctx, 4, 3)?;
        Ok(Plan::new(if of == Char { multiply::<i8> } else { multiply::<i16> }))
    })
    .with_elements(Elements::Typed);
}

/// Minimum number of multiplications for each thread.
const GRAIN: usize = 1 << 14;

fn multiply<T: Operand>(ctx: &mut Invoke) -> Result<(), KernelError> {
    let (a, b) = (ctx.tensor(0)?, ctx.tensor(1)?);
    let (rows, depth, columns) = (a.size(1), a.size(2), b.size(2));
    let (a_zp, b_zp) = (zero_point(ctx, 2)?, zero_point(ctx, 3)?);
    let (a, b) = (a.data::<T>()?, b.data::<T>()?);
    let out = ctx.out(4)?.into_data::<T::Sum>()?;
    let (parallel, width) = (ctx.parallel(), columns.max(1));
    let work = depth.saturating_mul(width);
    let count = chunk_of_work(parallel, out.len() / width, work, GRAIN);
    for_each_chunk_mut(parallel, out, count * width, &|chunk, out| {
        for (number, out) in out.chunks_mut(width).enumerate() {
            let row = chunk * count + number;
            out.fill(T::Sum::default());
            let values = a.get(row * depth..).and_then(|a| a.get(..depth)).unwrap_or_default();
            let matrix = b.get(row / rows.max(1) * depth * width..).unwrap_or_default();
            for (value, line) in values.iter().zip(matrix.chunks(width)) {
                let value = value.less(a_zp);
                for (out, other) in out.iter_mut().zip(line) {
                    *out = out.add(value.times(other.less(b_zp)));
                }
            }
        }
    });
    Ok(())
}
