//! LDL factorisation of symmetric indefinite matrices with Bunch–Kaufman pivoting: a unit lower
//! triangular matrix, a block diagonal matrix of 1×1 and 2×2 blocks, and the transposed triangular
//! matrix. As in LAPACK's `sytf2` and `sytrs`.

use super::from_factors::check_pivots;
use super::{
    Matrix, Shape, batch_of, broadcast_sizes, f64_bytes, read, read_in, resize, resize_to,
    start_in, write, write_scalar, write_vector,
};
use crate::number::load;
use crate::scratch;
use crate::table::kernels;
use torchlet_core::Param::{Bool, Out, Tensor};
use torchlet_core::{Invoke, Kernel, KernelError, Plan, ScalarType};

kernels! { INDEFINITE:
    /// `aten::linalg_ldl_factor_ex.out(self, hermitian, check_errors, LD, pivots, info)`: reads the
    /// lower triangle. `info` is the number of the first zero column (1-based), or 0. Negative
    /// pivots belong to 2×2 blocks; both rows of a block have the same pivot.
    LDL_FACTOR_EX = Kernel::new(
        "aten::linalg_ldl_factor_ex.out",
        &[Tensor, Bool, Bool, Out, Out, Out],
        |ctx| {
            let (shape, of) = (Shape::square(ctx, 0)?, ctx.info(0)?.scalar_type);
            resize(ctx, 3, &[shape.rows, shape.cols], of)?;
            resize(ctx, 4, &[shape.rows], ScalarType::Int)?;
            resize(ctx, 5, &[], ScalarType::Int)?;
            let bytes = f64_bytes(&[[1, shape.numel], [1, shape.rows]])?;
            Ok(Plan::new(factor_all).with_scratch(bytes))
        },
    );
    /// `aten::linalg_ldl_solve.out(LD, pivots, B, hermitian, out)`: solves `A * X = B`, given the
    /// factors of `A`.
    LDL_SOLVE = Kernel::new(
        "aten::linalg_ldl_solve.out",
        &[Tensor, Tensor, Tensor, Bool, Out],
        |ctx| {
            let shape = Shape::square(ctx, 0)?;
            check_pivots(ctx, &shape, 1)?;
            let (a, b) = (ctx.info(0)?, ctx.info(2)?);
            let right = Shape::of(&b, 2)?;
            let sizes = broadcast_sizes(&a, &b, right.rows, right.cols)?;
            let Some(sizes) =
                sizes.filter(|_| a.scalar_type == b.scalar_type && right.rows == shape.rows)
            else {
                return Err(KernelError::argument(2, "shape does not match the matrices"));
            };
            resize_to(ctx, 4, &sizes, a.scalar_type)?;
            let bytes = f64_bytes(&[[1, shape.numel], [1, right.numel], [1, shape.rows]])?;
            Ok(Plan::new(solve).with_scratch(bytes))
        },
    );
}

/// Bunch and Kaufman's threshold `(1 + sqrt(17)) / 8`: the minimum ratio of a diagonal element to
/// the largest off-diagonal one for a 1×1 pivot.
const PIVOT_THRESHOLD: f64 = 0.640_388_203_202_207_6;

/// The row in `first..end` with the largest magnitude, and the magnitude; the first of several
/// equal ones.
fn argmax_abs(first: usize, end: usize, at: impl Fn(usize) -> f64) -> (usize, f64) {
    let mut best = (first, if first < end { at(first).abs() } else { 0.0 });
    for row in first..end {
        let size = at(row).abs();
        if size > best.1 {
            best = (row, size);
        }
    }
    best
}

/// A pivot of `rows` rows starting at `k`, and the row to exchange with its last row.
struct Pivot {
    with: usize,
    rows: usize,
}

/// Selects the pivot at `k`; `None` if its column is zero.
fn choose_pivot(matrix: &Matrix, k: usize) -> Option<Pivot> {
    let n = matrix.cols;
    let own = matrix.at(k, k).abs();
    let (below, size) = argmax_abs(k + 1, n, |row| matrix.at(row, k));
    if own.max(size) == 0.0 || own.is_nan() {
        return None;
    }
    if own >= PIVOT_THRESHOLD * size {
        return Some(Pivot { with: k, rows: 1 });
    }
    // Largest off-diagonal magnitude in the row of the candidate pivot.
    let (_, left) = argmax_abs(k, below, |col| matrix.at(below, col));
    let (_, under) = argmax_abs(below + 1, n, |row| matrix.at(row, below));
    let beside = left.max(under);
    if own >= PIVOT_THRESHOLD * size * (size / beside) {
        return Some(Pivot { with: k, rows: 1 });
    }
    let rows = if matrix.at(below, below).abs() >= PIVOT_THRESHOLD * beside { 1 } else { 2 };
    Some(Pivot { with: below, rows })
}

/// Exchanges rows and columns `a` and `b >= a` of a symmetric matrix stored in its lower triangle.
/// Columns before `a` are unchanged.
fn exchange(matrix: &mut Matrix, a: usize, b: usize) {
    let n = matrix.cols;
    let mut swap = |one: [usize; 2], other: [usize; 2]| {
        let (first, second) = (matrix.at(one[0], one[1]), matrix.at(other[0], other[1]));
        matrix.set(one[0], one[1], second);
        matrix.set(other[0], other[1], first);
    };
    for row in b + 1..n {
        swap([row, a], [row, b]);
    }
    for between in a + 1..b {
        swap([between, a], [b, between]);
    }
    swap([a, a], [b, b]);
}

/// Factors a symmetric matrix in place, in its lower triangle. `pivots` receives the row that each
/// row was exchanged with (1-based). Returns the number of the first zero column (1-based), or 0.
fn factor(matrix: &mut Matrix, pivots: &mut [f64]) -> usize {
    let (n, mut singular, mut k) = (matrix.cols, 0, 0);
    while k < n {
        if matrix.is_cancelled() {
            break;
        }
        let Some(Pivot { with, rows }) = choose_pivot(matrix, k) else {
            if singular == 0 {
                singular = k + 1;
            }
            note(pivots, k, (k + 1) as f64);
            k += 1;
            continue;
        };
        let last = k + rows - 1;
        if with != last {
            exchange(matrix, last, with);
            if rows == 2 {
                let (own, other) = (matrix.at(k + 1, k), matrix.at(with, k));
                matrix.set(k + 1, k, other);
                matrix.set(with, k, own);
            }
        }
        if rows == 1 {
            eliminate(matrix, k);
            note(pivots, k, (with + 1) as f64);
        } else {
            eliminate_2x2(matrix, k);
            note(pivots, k, -((with + 1) as f64));
            note(pivots, k + 1, -((with + 1) as f64));
        }
        k += rows;
    }
    singular
}

fn note(pivots: &mut [f64], at: usize, pivot: f64) {
    if let Some(pivot_row) = pivots.get_mut(at) {
        *pivot_row = pivot;
    }
}

/// Eliminates a column with a 1×1 pivot.
fn eliminate(matrix: &mut Matrix, k: usize) {
    let (n, inverse) = (matrix.cols, 1.0 / matrix.at(k, k));
    for col in k + 1..n {
        let factor = inverse * matrix.at(col, k);
        for row in col..n {
            matrix.set(row, col, matrix.at(row, col) - matrix.at(row, k) * factor);
        }
    }
    for row in k + 1..n {
        matrix.set(row, k, matrix.at(row, k) * inverse);
    }
}

/// Eliminates two columns with a 2×2 pivot.
fn eliminate_2x2(matrix: &mut Matrix, k: usize) {
    let n = matrix.cols;
    let beside = matrix.at(k + 1, k);
    let (first, second) = (matrix.at(k + 1, k + 1) / beside, matrix.at(k, k) / beside);
    let scale = 1.0 / (first * second - 1.0) / beside;
    for col in k + 2..n {
        let (a, b) = (matrix.at(col, k), matrix.at(col, k + 1));
        let factors = [scale * (first * a - b), scale * (second * b - a)];
        for row in col..n {
            let taken = matrix.at(row, k) * factors[0] + matrix.at(row, k + 1) * factors[1];
            matrix.set(row, col, matrix.at(row, col) - taken);
        }
        matrix.set(col, k, factors[0]);
        matrix.set(col, k + 1, factors[1]);
    }
}

fn factor_all(ctx: &mut Invoke) -> Result<(), KernelError> {
    let parallel = ctx.parallel();
    let input = ctx.tensor(0)?;
    let shape = Shape::square(ctx, 0)?;
    let n = shape.rows;
    let memory = scratch::take::<f64>(ctx, shape.numel + n)?;
    let (data, pivots) = memory.split_at_mut_checked(shape.numel).unwrap_or_default();
    let (mut factors, mut pivots_out, mut info) = (ctx.out(3)?, ctx.out(4)?, ctx.out(5)?);
    if shape.numel == 0 {
        info.bytes_mut().fill(0);
        return Ok(());
    }
    let mut matrix = Matrix { cols: n, data, parallel };
    for index in 0..shape.count {
        read(&input, index, n, matrix.data);
        for row in 0..n {
            for col in row + 1..n {
                matrix.set(row, col, 0.0);
            }
        }
        let singular = factor(&mut matrix, pivots);
        write(&mut factors, index, n, matrix.data);
        write_vector(&mut pivots_out, index, pivots);
        write_scalar(&mut info, index, singular as f64);
        if ctx.bool(2)? && singular != 0 {
            return Err(KernelError::argument(0, "a matrix is singular"));
        }
    }
    Ok(())
}

/// Subtracts `factor(row) * solution[of]` from each row of the solution, from row `first` on.
fn subtract_row(solution: &mut Matrix, of: usize, first: usize, factor: impl Fn(usize) -> f64) {
    for row in first..solution.rows() {
        let factor = factor(row);
        for col in 0..solution.cols {
            solution.set(row, col, solution.at(row, col) - factor * solution.at(of, col));
        }
    }
}

/// Subtracts `factor(row) * solution[row]`, summed over the rows from `first` on, from row `of`.
fn subtract_rows_from(
    solution: &mut Matrix,
    of: usize,
    first: usize,
    factor: impl Fn(usize) -> f64,
) {
    for col in 0..solution.cols {
        let sum: f64 =
            (first..solution.rows()).map(|row| factor(row) * solution.at(row, col)).sum();
        solution.set(of, col, solution.at(of, col) - sum);
    }
}

fn solve(ctx: &mut Invoke) -> Result<(), KernelError> {
    let parallel = ctx.parallel();
    let (factors, pivots, b) = (ctx.tensor(0)?, ctx.tensor(1)?, ctx.tensor(2)?);
    let (shape, right) = (Shape::square(ctx, 0)?, Shape::of(b.info(), 2)?);
    let n = shape.rows;
    let memory = scratch::take::<f64>(ctx, shape.numel + right.numel + n)?;
    let (data, rest) = memory.split_at_mut_checked(shape.numel).unwrap_or_default();
    let (solution, pivot_rows) = rest.split_at_mut_checked(right.numel).unwrap_or_default();
    let mut out = ctx.out(4)?;
    let solved = out.info().clone();
    let batch = batch_of(&solved);
    let count = Shape::of(out.info(), 4)?.non_empty();
    let matrix = Matrix { cols: n, data, parallel };
    let mut solution = Matrix { cols: right.cols, data: solution, parallel };
    let step = pivots.strides().last().map_or(1, |stride| *stride as isize);
    for index in 0..count {
        read_in(&factors, batch, index, n, matrix.data);
        read_in(&b, batch, index, right.cols, solution.data);
        let first = start_in(pivots.info(), batch, index, 1);
        load(pivots.scalar_type, pivots.bytes(), first, step, pivot_rows);
        if pivot_rows.iter().any(|pivot_row| !(1.0..=n as f64).contains(&pivot_row.abs())) {
            return Err(KernelError::argument(1, "a pivot is outside the rows of its matrix"));
        }
        forward(&matrix, pivot_rows, &mut solution)?;
        backward(&matrix, pivot_rows, &mut solution);
        write(&mut out, index, right.cols, solution.data);
    }
    Ok(())
}

/// The row that pivot `k` was exchanged with, and whether it belongs to a 2×2 block.
fn pivot(pivot_rows: &[f64], k: usize) -> (usize, bool) {
    let pivot_row = pivot_rows.get(k).copied().unwrap_or(1.0);
    (pivot_row.abs() as usize - 1, pivot_row < 0.0)
}

/// Forward substitution with the lower triangle and the diagonal blocks.
fn forward(matrix: &Matrix, pivot_rows: &[f64], solution: &mut Matrix) -> Result<(), KernelError> {
    let (n, mut k) = (matrix.cols, 0);
    while k < n {
        if matrix.is_cancelled() {
            break;
        }
        let (with, is_double) = pivot(pivot_rows, k);
        if !is_double {
            solution.swap_rows(k, with);
            subtract_row(solution, k, k + 1, |row| matrix.at(row, k));
            for col in 0..solution.cols {
                solution.set(k, col, solution.at(k, col) / matrix.at(k, k));
            }
            k += 1;
            continue;
        }
        if k + 1 == n {
            return Err(KernelError::argument(1, "a pivot of a 2x2 block lacks its second row"));
        }
        solution.swap_rows(k + 1, with);
        subtract_row(solution, k, k + 2, |row| matrix.at(row, k));
        subtract_row(solution, k + 1, k + 2, |row| matrix.at(row, k + 1));
        let beside = matrix.at(k + 1, k);
        let (first, second) = (matrix.at(k, k) / beside, matrix.at(k + 1, k + 1) / beside);
        let scale = first * second - 1.0;
        for col in 0..solution.cols {
            let (a, b) = (solution.at(k, col) / beside, solution.at(k + 1, col) / beside);
            solution.set(k, col, (second * a - b) / scale);
            solution.set(k + 1, col, (first * b - a) / scale);
        }
        k += 2;
    }
    Ok(())
}

/// Back substitution with the transposed triangle.
fn backward(matrix: &Matrix, pivot_rows: &[f64], solution: &mut Matrix) {
    let mut left = matrix.cols;
    while let Some(k) = left.checked_sub(1) {
        if matrix.is_cancelled() {
            break;
        }
        let (with, is_double) = pivot(pivot_rows, k);
        subtract_rows_from(solution, k, k + 1, |row| matrix.at(row, k));
        left = k;
        if is_double && let Some(before) = k.checked_sub(1) {
            subtract_rows_from(solution, before, k + 1, |row| matrix.at(row, before));
            left = before;
        }
        solution.swap_rows(k, with);
    }
}
