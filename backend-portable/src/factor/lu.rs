//! LU factorisation with partial pivoting: determinants, inverses, linear equations.

use super::{
    Matrix, Shape, f64_bytes, read, resize, with_batch, write, write_scalar, write_vector,
};
use crate::scratch;
use crate::table::kernels;
use torchlet_core::Param::{Bool, Out, Tensor};
use torchlet_core::{Invoke, Kernel, KernelError, Plan, Prepare, ScalarType};

kernels! { LU:
    /// `aten::_linalg_det.result(A, result, LU, pivots)`: determinants, and the factors of the
    /// transposed matrices, as in PyTorch.
    DET = Kernel::new("aten::_linalg_det.result", &[Tensor, Out, Out, Out], |ctx| {
        let shape = Shape::square(ctx, 0)?;
        prepare_factors(ctx, &shape, 2)?;
        let of = ctx.info(0)?.scalar_type;
        resize(ctx, 1, &[], of)?;
        plan(ctx, det)
    });
    /// `aten::_linalg_slogdet.sign(A, sign, logabsdet, LU, pivots)`: signs and logarithms of the
    /// magnitudes of determinants, and the factors of the transposed matrices, as in PyTorch.
    SLOGDET = Kernel::new("aten::_linalg_slogdet.sign", &[Tensor, Out, Out, Out, Out], |ctx| {
        let shape = Shape::square(ctx, 0)?;
        prepare_factors(ctx, &shape, 3)?;
        let of = ctx.info(0)?.scalar_type;
        resize(ctx, 1, &[], of)?;
        resize(ctx, 2, &[], of)?;
        plan(ctx, slogdet)
    });
    /// `aten::linalg_lu_factor_ex.out(A, pivot, check_errors, LU, pivots, info)`: `info` is the
    /// number of the first zero pivot (1-based), or 0.
    LU_FACTOR_EX = Kernel::new(
        "aten::linalg_lu_factor_ex.out",
        &[Tensor, Bool, Bool, Out, Out, Out],
        |ctx| {
            if !ctx.bool(1)? {
                return Err(KernelError::unsupported("LU factorization without pivoting"));
            }
            let shape = Shape::of(&ctx.info(0)?, 0)?;
            prepare_factors(ctx, &shape, 3)?;
            resize(ctx, 5, &[], ScalarType::Int)?;
            plan(ctx, |ctx| factor_all(ctx, 3, false, None, &mut |_, _, _| {}, Some((5, 2))))
        },
    );
    /// `aten::linalg_inv_ex.inverse(A, check_errors, inverse, info)`: the inverse of each matrix.
    /// `info` is the number of the first zero pivot (1-based), or 0.
    INV_EX = Kernel::new("aten::linalg_inv_ex.inverse", &[Tensor, Bool, Out, Out], |ctx| {
        let shape = Shape::square(ctx, 0)?;
        let of = ctx.info(0)?.scalar_type;
        resize(ctx, 2, &[shape.rows, shape.cols], of)?;
        resize(ctx, 3, &[], ScalarType::Int)?;
        let bytes = f64_bytes(&[[2, shape.numel], [1, shape.rows]])?;
        Ok(Plan::new(inverse).with_scratch(bytes))
    });
    /// `aten::_linalg_solve_ex.result(A, B, left, check_errors, result, LU, pivots, info)`: solves
    /// `A * X = B`. The batch sizes must be equal.
    SOLVE_EX = Kernel::new(
        "aten::_linalg_solve_ex.result",
        &[Tensor, Tensor, Bool, Bool, Out, Out, Out, Out],
        |ctx| {
            let shape = Shape::square(ctx, 0)?;
            prepare_factors(ctx, &shape, 5)?;
            let (a, b) = (ctx.info(0)?, ctx.info(1)?);
            if !ctx.bool(2)? {
                return Err(KernelError::unsupported("solving `X * A = B` (`left` = false)"));
            }
            let columns = columns(&a, &b, &shape)?;
            ctx.resize(4, &b.sizes)?;
            resize(ctx, 7, &[], ScalarType::Int)?;
            let bytes = f64_bytes(&[[shape.rows, columns], [1, shape.numel], [1, shape.rows]])?;
            Ok(Plan::new(solve).with_scratch(bytes))
        },
    );
}

/// Number of right-hand sides for each matrix: `b` is a batch of vectors or of matrices.
fn columns(
    a: &torchlet_core::TensorInfo,
    b: &torchlet_core::TensorInfo,
    shape: &Shape,
) -> Result<usize, KernelError> {
    if b.scalar_type != a.scalar_type {
        return Err(KernelError::scalar_type(1, b.scalar_type));
    }
    if b.sizes == with_batch(a, &[shape.rows])? {
        return Ok(1);
    }
    let columns = b.rank().checked_sub(1).map_or(0, |last| b.size(last));
    if b.sizes != with_batch(a, &[shape.rows, columns])? {
        return Err(KernelError::argument(1, "shape does not match the matrices"));
    }
    Ok(columns)
}

/// Resizes the factors, output `out`, and the pivots, output `out + 1`.
fn prepare_factors(ctx: &mut Prepare, shape: &Shape, out: usize) -> Result<(), KernelError> {
    let of = ctx.info(0)?.scalar_type;
    resize(ctx, out, &[shape.rows, shape.cols], of)?;
    resize(ctx, out + 1, &[shape.rows.min(shape.cols)], ScalarType::Int)
}

fn plan(ctx: &Prepare, invoke: torchlet_core::InvokeFn) -> Result<Plan, KernelError> {
    let shape = Shape::of(&ctx.info(0)?, 0)?;
    let bytes = f64_bytes(&[[1, shape.numel], [1, shape.rows.min(shape.cols)]])?;
    Ok(Plan::new(invoke).with_scratch(bytes))
}

/// Factors a matrix in place into L and U; the diagonal of L, all ones, is implicit. `pivots`
/// receives the row that each row was exchanged with (1-based). Returns the number of the first
/// zero pivot (1-based), or 0.
pub(super) fn factor(matrix: &mut Matrix, pivots: &mut [f64]) -> usize {
    let (rows, cols, mut singular) = (matrix.rows(), matrix.cols, 0);
    for (k, pivot) in pivots.iter_mut().enumerate() {
        if matrix.is_cancelled() {
            // Pivots must stay valid row numbers.
            *pivot = (k + 1) as f64;
            continue;
        }
        let mut best = k;
        for row in k + 1..rows {
            if matrix.at(row, k).abs() > matrix.at(best, k).abs() {
                best = row;
            }
        }
        *pivot = (best + 1) as f64;
        // A zero column needs no elimination; NaN propagates.
        let is_zero = matrix.at(best, k) == 0.0;
        if is_zero && singular == 0 {
            singular = k + 1;
        }
        if best != k {
            matrix.swap_rows(best, k);
        }
        for row in k + 1..rows {
            let below = matrix.at(row, k);
            let factor = if is_zero { below } else { below / matrix.at(k, k) };
            matrix.set(row, k, factor);
            for col in k + 1..cols {
                matrix.set(row, col, matrix.at(row, col) - factor * matrix.at(k, col));
            }
        }
    }
    singular
}

/// Solves `A * X = B`, given the factors of `A`; `right` is `B`, and becomes `X`.
pub(super) fn solve_factored(factors: &Matrix, pivots: &[f64], right: &mut Matrix) {
    let n = factors.cols;
    if n == 0 {
        return;
    }
    for (row, pivot) in pivots.iter().enumerate() {
        let other = *pivot as usize - 1;
        if other != row {
            right.swap_rows(row, other);
        }
    }
    for col in 0..right.cols {
        if right.is_cancelled() {
            break;
        }
        for row in 0..n {
            let known: f64 = (0..row).map(|k| factors.at(row, k) * right.at(k, col)).sum();
            right.set(row, col, right.at(row, col) - known);
        }
        for row in (0..n).rev() {
            let known: f64 = (row + 1..n).map(|k| factors.at(row, k) * right.at(k, col)).sum();
            right.set(row, col, (right.at(row, col) - known) / factors.at(row, row));
        }
    }
}

/// Callback for each matrix: its batch index, factors and pivots.
type Each<'e> = &'e mut dyn FnMut(usize, &Matrix, &[f64]);

/// Factors all matrices, and writes factors (output `out`) and pivots (output `out + 1`). `info`,
/// if present, holds the output for the numbers of zero pivots, and the argument that turns a zero
/// pivot into an error.
fn factor_all(
    ctx: &mut Invoke,
    out: usize,
    transposed: bool,
    memory: Option<&mut [f64]>,
    each: Each,
    info: Option<(usize, usize)>,
) -> Result<(), KernelError> {
    let parallel = ctx.parallel();
    let input = ctx.tensor(0)?;
    let shape = Shape::of(input.info(), 0)?;
    let count = shape.numel + shape.rows.min(shape.cols);
    let memory = match memory {
        Some(memory) => memory,
        None => scratch::take::<f64>(ctx, count)?,
    };
    let (data, pivots) = memory.split_at_mut_checked(shape.numel).unwrap_or_default();
    let checks = info.map(|(_, check)| ctx.bool(check)).transpose()?.unwrap_or(false);
    let (mut factors, mut pivots_out) = (ctx.out(out)?, ctx.out(out + 1)?);
    let mut infos = info.map(|(info, _)| ctx.out(info)).transpose()?;
    let mut matrix = Matrix { cols: shape.cols, data, parallel };
    for index in 0..shape.count {
        read(&input, index, shape.cols, matrix.data);
        if transposed {
            matrix.transpose();
        }
        let singular = factor(&mut matrix, pivots);
        if checks && singular > 0 {
            return Err(KernelError::argument(0, "a matrix is singular"));
        }
        write(&mut factors, index, shape.cols, matrix.data);
        write_vector(&mut pivots_out, index, pivots);
        if let Some(infos) = &mut infos {
            write_scalar(infos, index, singular as f64);
        }
        each(index, &matrix, pivots);
    }
    Ok(())
}

/// Sign of the row permutation.
fn sign(pivots: &[f64]) -> f64 {
    let exchanged =
        pivots.iter().enumerate().filter(|(row, pivot)| **pivot != (row + 1) as f64).count();
    if exchanged % 2 == 0 { 1.0 } else { -1.0 }
}

fn det(ctx: &mut Invoke) -> Result<(), KernelError> {
    let mut out = ctx.out(1)?;
    factor_all(
        ctx,
        2,
        true,
        None,
        &mut |index, factors, pivots| {
            let diagonal: f64 = (0..factors.cols).map(|k| factors.at(k, k)).product();
            write_scalar(&mut out, index, sign(pivots) * diagonal);
        },
        None,
    )
}

fn slogdet(ctx: &mut Invoke) -> Result<(), KernelError> {
    let (mut signs, mut logarithms) = (ctx.out(1)?, ctx.out(2)?);
    factor_all(
        ctx,
        3,
        true,
        None,
        &mut |index, factors, pivots| {
            let (mut product, mut sum) = (sign(pivots), 0.0);
            for pivot in (0..factors.cols).map(|k| factors.at(k, k)) {
                product *= if pivot == 0.0 { 0.0 } else { 1f64.copysign(pivot) };
                sum += libm::log(pivot.abs());
            }
            write_scalar(&mut signs, index, product);
            write_scalar(&mut logarithms, index, sum);
        },
        None,
    )
}

fn inverse(ctx: &mut Invoke) -> Result<(), KernelError> {
    let parallel = ctx.parallel();
    let input = ctx.tensor(0)?;
    let shape = Shape::square(ctx, 0)?;
    let checks = ctx.bool(1)?;
    let memory = scratch::take::<f64>(ctx, 2 * shape.numel + shape.rows)?;
    let (data, rest) = memory.split_at_mut_checked(shape.numel).unwrap_or_default();
    let (right, pivots) = rest.split_at_mut_checked(shape.numel).unwrap_or_default();
    let (mut out, mut infos) = (ctx.out(2)?, ctx.out(3)?);
    let (mut matrix, mut right) = (
        Matrix { cols: shape.cols, data, parallel },
        Matrix { cols: shape.cols, data: right, parallel },
    );
    for index in 0..shape.count {
        read(&input, index, shape.cols, matrix.data);
        let singular = factor(&mut matrix, pivots);
        if checks && singular > 0 {
            return Err(KernelError::argument(0, "a matrix is singular"));
        }
        right.identity();
        solve_factored(&matrix, pivots, &mut right);
        write(&mut out, index, shape.cols, right.data);
        write_scalar(&mut infos, index, singular as f64);
    }
    Ok(())
}

fn solve(ctx: &mut Invoke) -> Result<(), KernelError> {
    let parallel = ctx.parallel();
    let b = ctx.tensor(1)?;
    let shape = Shape::square(ctx, 0)?;
    let columns = columns(&ctx.info(0)?, b.info(), &shape)?;
    let is_vector = b.rank() + 1 == ctx.info(0)?.rank();
    let count = shape.rows * columns;
    let memory = scratch::take::<f64>(ctx, count + shape.numel + shape.rows)?;
    let (right, memory) = memory.split_at_mut_checked(count).unwrap_or_default();
    let mut out = ctx.out(4)?;
    let mut right = Matrix { cols: columns, data: right, parallel };
    factor_all(
        ctx,
        5,
        false,
        Some(memory),
        &mut |index, factors, pivots| {
            if is_vector {
                let first = super::start(b.info(), index, 1);
                let step = b.strides().last().map_or(1, |&stride| stride as isize);
                crate::number::load(b.scalar_type, b.bytes(), first, step, right.data);
            } else {
                read(&b, index, columns, right.data);
            }
            solve_factored(factors, pivots, &mut right);
            if is_vector {
                write_vector(&mut out, index, right.data);
            } else {
                write(&mut out, index, columns, right.data);
            }
        },
        Some((7, 3)),
    )
}
