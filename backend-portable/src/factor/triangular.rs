//! Cholesky factorisation, and systems of equations with triangular matrices.

use super::{
    Matrix, Shape, batch_of, broadcast_sizes, f64_bytes, read, read_in, resize, resize_to, write,
    write_scalar,
};
use crate::scratch;
use crate::table::kernels;
use torchlet_core::Param::{Bool, Out, Tensor};
use torchlet_core::{Invoke, Kernel, KernelError, Plan, ScalarType};

kernels! { TRIANGULAR:
    /// `aten::linalg_cholesky_ex.L(self, upper, check_errors, L, info)`: the Cholesky factor of
    /// symmetric matrices, an upper or lower triangular matrix; only that triangle of `self` is
    /// read. `info` is the number of the first leading minor that is not positive definite
    /// (1-based), or 0.
    CHOLESKY_EX = Kernel::new("aten::linalg_cholesky_ex.L", &[Tensor, Bool, Bool, Out, Out], |ctx| {
        let shape = Shape::square(ctx, 0)?;
        let of = ctx.info(0)?.scalar_type;
        resize(ctx, 3, &[shape.rows, shape.cols], of)?;
        resize(ctx, 4, &[], ScalarType::Int)?;
        Ok(Plan::new(cholesky).with_scratch(f64_bytes(&[[1, shape.numel]])?))
    });
    /// `aten::linalg_solve_triangular.out(self, B, upper, left, unitriangular, out)`: solves
    /// `self * X = B` or `X * self = B`.
    SOLVE_TRIANGULAR = Kernel::new(
        "aten::linalg_solve_triangular.out",
        &[Tensor, Tensor, Bool, Bool, Bool, Out],
        |ctx| {
            let shape = Shape::square(ctx, 0)?;
            let (a, b) = (ctx.info(0)?, ctx.info(1)?);
            let right = Shape::of(&b, 1)?;
            let fits = if ctx.bool(3)? { right.rows } else { right.cols } == shape.rows;
            let sizes = broadcast_sizes(&a, &b, right.rows, right.cols)?.filter(|_| fits);
            let Some(sizes) = sizes else {
                return Err(KernelError::argument(1, "shape does not match the matrices"));
            };
            resize_to(ctx, 5, &sizes, b.scalar_type)?;
            let bytes = f64_bytes(&[[1, right.numel], [1, shape.numel]])?;
            Ok(Plan::new(solve_triangular).with_scratch(bytes))
        },
    );
}

fn cholesky(ctx: &mut Invoke) -> Result<(), KernelError> {
    let parallel = ctx.parallel();
    let input = ctx.tensor(0)?;
    let shape = Shape::square(ctx, 0)?;
    let (upper, checks) = (ctx.bool(1)?, ctx.bool(2)?);
    let data = scratch::take::<f64>(ctx, shape.numel)?;
    let (mut out, mut infos) = (ctx.out(3)?, ctx.out(4)?);
    let (n, mut matrix) = (shape.rows, Matrix { cols: shape.cols, data, parallel });
    for index in 0..shape.count {
        read(&input, index, n, matrix.data);
        if upper {
            matrix.transpose();
        }
        let failed = factor(&mut matrix);
        if checks && failed > 0 {
            return Err(KernelError::argument(0, "a matrix is not positive definite"));
        }
        for row in 0..n {
            for col in row + 1..n {
                matrix.set(row, col, 0.0);
            }
        }
        if upper {
            matrix.transpose();
        }
        write(&mut out, index, n, matrix.data);
        write_scalar(&mut infos, index, failed as f64);
    }
    Ok(())
}

/// Replaces the lower triangle by the Cholesky factor. Returns the number of the first row
/// (1-based) at which the matrix is not positive definite, or 0.
fn factor(matrix: &mut Matrix) -> usize {
    for row in 0..matrix.cols {
        if matrix.is_cancelled() {
            break;
        }
        for col in 0..=row {
            let known: f64 = (0..col).map(|k| matrix.at(row, k) * matrix.at(col, k)).sum();
            let rest = matrix.at(row, col) - known;
            if col < row {
                matrix.set(row, col, rest / matrix.at(col, col));
                continue;
            }
            let root = libm::sqrt(rest);
            if root.is_nan() || root == 0.0 {
                matrix.set(row, row, rest);
                return row + 1;
            }
            matrix.set(row, row, root);
        }
    }
    0
}

fn solve_triangular(ctx: &mut Invoke) -> Result<(), KernelError> {
    let parallel = ctx.parallel();
    let (a, b) = (ctx.tensor(0)?, ctx.tensor(1)?);
    let (shape, right) = (Shape::square(ctx, 0)?, Shape::of(b.info(), 1)?);
    let (upper, left, unit) = (ctx.bool(2)?, ctx.bool(3)?, ctx.bool(4)?);
    let memory = scratch::take::<f64>(ctx, shape.numel + right.numel)?;
    let (data, solution) = memory.split_at_mut_checked(shape.numel).unwrap_or_default();
    let mut out = ctx.out(5)?;
    let solved = out.info().clone();
    let batch = batch_of(&solved);
    let count = Shape::of(out.info(), 5)?.non_empty();
    let (n, mut matrix) = (shape.rows, Matrix { cols: shape.cols, data, parallel });
    let mut solution = Matrix { cols: right.cols, data: solution, parallel };
    for index in 0..count {
        read_in(&a, batch, index, n, matrix.data);
        read_in(&b, batch, index, right.cols, solution.data);
        // `X * A = B` is solved as the transposed equation.
        if !left {
            matrix.transpose();
        }
        let from_below = upper == left;
        for line in 0..if left { right.cols } else { right.rows } {
            if matrix.is_cancelled() {
                break;
            }
            let coordinates = |k: usize| if left { (k, line) } else { (line, k) };
            for step in 0..n {
                let row = if from_below { n - 1 - step } else { step };
                let known = if from_below { row + 1..n } else { 0..row };
                let known: f64 = known
                    .map(|k| matrix.at(row, k) * solution.at(coordinates(k).0, coordinates(k).1))
                    .sum();
                let (i, j) = coordinates(row);
                let value = solution.at(i, j) - known;
                solution.set(i, j, if unit { value } else { value / matrix.at(row, row) });
            }
        }
        write(&mut out, index, right.cols, solution.data);
    }
    Ok(())
}
