//! Complex matrix multiplication: a loop without workspace.

use super::BatchedMatmul;
use crate::elementwise::Real;
use crate::elementwise::complex::{ByPart, Complex, is_complex, multiply, part, read, write};
use crate::number::unsupported;
use crate::types;
use torchlet_core::{Invoke, KernelError, Plan, Prepare, ScalarType};

/// Number of elements that are read at a time.
const BLOCK: usize = 32;

/// Returns a plan if the first of these tensors is complex. All tensors must have the same type.
pub(super) fn plan(
    ctx: &Prepare,
    tensors: &[usize],
    [single, double]: ByPart,
) -> Result<Option<Plan>, KernelError> {
    let mut found = None;
    for &arg in tensors {
        let scalar_type = ctx.info(arg)?.scalar_type;
        if found.is_none() && !is_complex(scalar_type) {
            return Ok(None);
        }
        if *found.get_or_insert(scalar_type) != scalar_type {
            return Err(unsupported(arg, scalar_type));
        }
    }
    let is_double = found.and_then(part) == Some(ScalarType::Double);
    Ok(Some(Plan::new(if is_double { double } else { single })))
}

/// Computes the matrix multiplications, without addend.
pub(super) fn run<C: Real>(ctx: &mut Invoke, matmuls: &BatchedMatmul) -> Result<(), KernelError> {
    types::expect::<C>()?;
    let [left, right, out] = matmuls.args;
    let (left, right) = (ctx.tensor(left)?, ctx.tensor(right)?);
    let out = ctx.out(out)?;
    let (scalar_type, size, bytes) = (out.scalar_type, out.scalar_type.size(), out.into_bytes());
    if bytes.is_empty() {
        return Ok(());
    }
    let sum = |[a, b]: Complex<C>, [c, d]: Complex<C>| [a + c, b + d];
    let (m, k, n) = (matmuls.product.m, matmuls.product.k, matmuls.product.n);
    for index in 0..matmuls.batch.count() {
        let [a, b, c] = matmuls.layouts(index);
        for (i, j) in (0..m).flat_map(|i| (0..n).map(move |j| (i, j))) {
            let mut total = [C::default(); 2];
            for from in (0..k).step_by(BLOCK) {
                let count = BLOCK.min(k - from);
                let mut values = [[[C::default(); 2]; BLOCK]; 2];
                let (row, column) = (a.start + i * a.row, b.start + j * b.col);
                let [row_values, column_values] = &mut values;
                read(
                    &left,
                    (row + from * a.col) as isize,
                    a.col as isize,
                    &mut row_values[..count],
                );
                let at = (column + from * b.row) as isize;
                read(&right, at, b.row as isize, &mut column_values[..count]);
                let both = row_values.iter().zip(&*column_values).take(count);
                total = both.fold(total, |total, (x, y)| sum(total, multiply(*x, *y)));
            }
            let at = (c.start + i * c.row + j * c.col) * size;
            write(
                scalar_type,
                bytes.get_mut(at..).and_then(|it| it.get_mut(..size)).unwrap_or_default(),
                &[total],
            );
        }
    }
    Ok(())
}
