//! Matrix exponential.

use super::{Shape, f64_bytes, read, resize, write};
use crate::compute::split::is_cancelled;
use crate::scratch;
use crate::table::kernels;
use torchlet_core::Param::{Out, Tensor};
use torchlet_core::{Invoke, Kernel, KernelError, Parallel, Plan};

kernels! { EXPONENTIAL:
    /// `aten::linalg_matrix_exp.out(self, out)`: the exponential of each matrix.
    MATRIX_EXP = Kernel::new("aten::linalg_matrix_exp.out", &[Tensor, Out], |ctx| {
        let shape = Shape::square(ctx, 0)?;
        let of = ctx.info(0)?.scalar_type;
        resize(ctx, 1, &[shape.rows, shape.cols], of)?;
        Ok(Plan::new(exponential).with_scratch(f64_bytes(&[[4, shape.numel]])?))
    });
}

/// Number of terms of the Taylor series that give full precision if the norm is at most 1/2.
const TERMS: u8 = 18;

/// Computes the exponential by scaling and squaring.
fn exponential(ctx: &mut Invoke) -> Result<(), KernelError> {
    let input = ctx.tensor(0)?;
    let shape = Shape::square(ctx, 0)?;
    let (n, numel) = (shape.rows, shape.numel);
    let memory = scratch::take::<f64>(ctx, 4 * numel)?;
    let (matrix, rest) = memory.split_at_mut_checked(numel).unwrap_or_default();
    let (sum, rest) = rest.split_at_mut_checked(numel).unwrap_or_default();
    let (term, product) = rest.split_at_mut_checked(numel).unwrap_or_default();
    let mut out = ctx.out(1)?;
    if numel == 0 {
        return Ok(());
    }
    let parallel = ctx.parallel();
    for index in 0..shape.count {
        read(&input, index, n, matrix);
        let norm = matrix
            .chunks_exact(n.max(1))
            .map(|row| row.iter().map(|value| value.abs()).sum::<f64>())
            .fold(0.0, f64::max);
        if n == 1 {
            sum.copy_from_slice(matrix);
            sum.iter_mut().for_each(|value| *value = libm::exp(*value));
            write(&mut out, index, n, sum);
            continue;
        }
        if norm.is_infinite() {
            sum.fill(f64::NAN);
            write(&mut out, index, n, sum);
            continue;
        }
        // `f64` values are below 2^1024.
        let mut halvings = 0;
        while libm::ldexp(norm, -halvings) > 0.5 && halvings < 1100 {
            halvings += 1;
        }
        for value in matrix.iter_mut() {
            *value = libm::ldexp(*value, -halvings);
        }
        for (at, (sum, term)) in sum.iter_mut().zip(term.iter_mut()).enumerate() {
            let one = if at % (n + 1) == 0 { 1.0 } else { 0.0 };
            (*sum, *term) = (one, one);
        }
        for k in 1..=TERMS {
            multiply(parallel, term, matrix, product, n);
            for ((term, product), sum) in term.iter_mut().zip(&*product).zip(sum.iter_mut()) {
                *term = product / f64::from(k);
                *sum += *term;
            }
        }
        for _ in 0..halvings {
            multiply(parallel, sum, sum, product, n);
            sum.copy_from_slice(product);
            // Further terms would not change the result.
            if sum.iter().all(|value| *value == 0.0) || sum.iter().any(|value| value.is_nan()) {
                break;
            }
        }
        write(&mut out, index, n, sum);
    }
    Ok(())
}

fn multiply(parallel: &dyn Parallel, a: &[f64], b: &[f64], out: &mut [f64], n: usize) {
    let n = n.max(1);
    for (row, out) in a.chunks_exact(n).zip(out.chunks_exact_mut(n)) {
        if is_cancelled(parallel) {
            return;
        }
        out.fill(0.0);
        for (factor, b) in row.iter().zip(b.chunks_exact(n)) {
            for (out, b) in out.iter_mut().zip(b) {
                *out += factor * b;
            }
        }
    }
}
