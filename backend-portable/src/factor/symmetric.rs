//! Eigenvalues of symmetric matrices, and singular values, with Jacobi rotations.
//!
//! As in LAPACK, the signs of vectors, and the basis for equal values, are arbitrary.

use super::{Matrix, Shape, f64_bytes, read, resize, write, write_transposed, write_vector};
use crate::scratch;
use crate::table::kernels;
use torchlet_core::Param::{Bool, OptionalString, Out, String, Tensor};
use torchlet_core::{Invoke, Kernel, KernelError, Plan};

kernels! { SYMMETRIC:
    /// `aten::_linalg_eigh.eigenvalues(A, UPLO, compute_v, eigenvalues, eigenvectors)`: eigenvalues
    /// in ascending order, and eigenvectors, of symmetric matrices. `UPLO` selects the triangle
    /// that is read.
    EIGH = Kernel::new(
        "aten::_linalg_eigh.eigenvalues",
        &[Tensor, String, Bool, Out, Out],
        |ctx| {
            let shape = Shape::square(ctx, 0)?;
            let of = ctx.info(0)?.scalar_type;
            resize(ctx, 3, &[shape.rows], of)?;
            if ctx.bool(2)? {
                resize(ctx, 4, &[shape.rows, shape.cols], of)?;
            } else {
                ctx.resize(4, &[0])?;
            }
            let bytes = f64_bytes(&[[2, shape.numel], [1, shape.rows]])?;
            Ok(Plan::new(eigh).with_scratch(bytes))
        },
    );
    /// `aten::_linalg_svd.U(A, full_matrices, compute_uv, driver, U, S, Vh)`: singular value
    /// decomposition, with values in descending order. `driver` selects an algorithm on GPUs and is
    /// ignored.
    SVD = Kernel::new(
        "aten::_linalg_svd.U",
        &[Tensor, Bool, Bool, OptionalString, Out, Out, Out],
        |ctx| {
            let info = ctx.info(0)?;
            let shape = Shape::of(&info, 0)?;
            let least = shape.rows.min(shape.cols);
            resize(ctx, 5, &[least], info.scalar_type)?;
            if ctx.bool(2)? {
                let full = ctx.bool(1)?;
                let (u, v) = if full { (shape.rows, shape.cols) } else { (least, least) };
                resize(ctx, 4, &[shape.rows, u], info.scalar_type)?;
                resize(ctx, 6, &[v, shape.cols], info.scalar_type)?;
            } else {
                ctx.resize(4, &[0])?;
                ctx.resize(6, &[0])?;
            }
            let (long, left) = left_shape(&shape, ctx.bool(1)?, ctx.bool(2)?);
            let bytes = f64_bytes(&[[long, left], [least, least], [1, shape.numel], [1, least]])?;
            Ok(Plan::new(svd).with_scratch(bytes))
        },
    );
}

/// Maximum number of sweeps; convergence is quadratic.
const MAX_SWEEPS: usize = 60;

/// Cosine and sine of the rotation that makes two vectors with these squared lengths and this dot
/// product orthogonal.
fn rotation(first: f64, second: f64, product: f64) -> (f64, f64) {
    let ratio = (second - first) / (2.0 * product);
    let tangent = 1f64.copysign(ratio) / (ratio.abs() + libm::sqrt(1.0 + ratio * ratio));
    let cosine = 1.0 / libm::sqrt(1.0 + tangent * tangent);
    (cosine, cosine * tangent)
}

/// Rotates columns `p` and `q` of a matrix.
fn rotate_columns(matrix: &mut Matrix, p: usize, q: usize, (cosine, sine): (f64, f64)) {
    for row in 0..matrix.rows() {
        let (a, b) = (matrix.at(row, p), matrix.at(row, q));
        matrix.set(row, p, cosine * a - sine * b);
        matrix.set(row, q, sine * a + cosine * b);
    }
}

fn swap_columns(matrix: &mut Matrix, a: usize, b: usize) {
    for row in 0..matrix.rows() {
        let (left, right) = (matrix.at(row, a), matrix.at(row, b));
        matrix.set(row, a, right);
        matrix.set(row, b, left);
    }
}

/// Sorts values, and the columns of the matrices accordingly.
fn sort_by_value(values: &mut [f64], descending: bool, columns: &mut [&mut Matrix]) {
    for position in 0..values.len() {
        let mut best = position;
        for other in position + 1..values.len() {
            let (a, b) = (values[other], values[best]);
            if if descending { a > b } else { a < b } {
                best = other;
            }
        }
        if best != position {
            values.swap(position, best);
            for matrix in columns.iter_mut() {
                swap_columns(matrix, position, best);
            }
        }
    }
}

fn eigh(ctx: &mut Invoke) -> Result<(), KernelError> {
    let parallel = ctx.parallel();
    let input = ctx.tensor(0)?;
    let shape = Shape::square(ctx, 0)?;
    let upper = match ctx.optional_string(1)?.unwrap_or("L") {
        "L" | "l" => false,
        "U" | "u" => true,
        _ => return Err(KernelError::argument(1, "expected 'L' or 'U'")),
    };
    let wants_vectors = ctx.bool(2)?;
    let n = shape.rows;
    if n == 0 {
        return Ok(());
    }
    let memory = scratch::take::<f64>(ctx, 2 * shape.numel + n)?;
    let (data, rest) = memory.split_at_mut_checked(shape.numel).unwrap_or_default();
    let (vectors, values) = rest.split_at_mut_checked(shape.numel).unwrap_or_default();
    let (mut values_out, mut vectors_out) = (ctx.out(3)?, ctx.out(4)?);
    let (mut matrix, mut vectors) =
        (Matrix { cols: n, data, parallel }, Matrix { cols: n, data: vectors, parallel });
    for index in 0..shape.count {
        read(&input, index, n, matrix.data);
        for row in 0..n {
            for col in 0..row {
                let value = if upper { matrix.at(col, row) } else { matrix.at(row, col) };
                matrix.set(row, col, value);
                matrix.set(col, row, value);
            }
        }
        vectors.identity();
        diagonalize(&mut matrix, &mut vectors);
        for (k, value) in values.iter_mut().enumerate() {
            *value = matrix.at(k, k);
        }
        sort_by_value(values, false, &mut [&mut vectors]);
        write_vector(&mut values_out, index, values);
        if wants_vectors {
            write(&mut vectors_out, index, n, vectors.data);
        }
    }
    Ok(())
}

/// Diagonalises a symmetric matrix, and applies the rotations to the columns of `vectors`.
pub(super) fn diagonalize(matrix: &mut Matrix, vectors: &mut Matrix) {
    let n = matrix.cols;
    for _ in 0..MAX_SWEEPS {
        let mut turned = false;
        for p in 0..n {
            if matrix.is_cancelled() {
                return;
            }
            for q in p + 1..n {
                let product = matrix.at(p, q);
                let size = libm::sqrt(matrix.at(p, p).abs()) * libm::sqrt(matrix.at(q, q).abs());
                if product.abs() <= f64::EPSILON * size || product.abs() < f64::MIN_POSITIVE {
                    continue;
                }
                if !product.is_finite() {
                    return;
                }
                turned = true;
                let by = rotation(matrix.at(p, p), matrix.at(q, q), product);
                rotate_columns(matrix, p, q, by);
                // Applies the same rotation to the rows.
                for col in 0..n {
                    let (a, b) = (matrix.at(p, col), matrix.at(q, col));
                    matrix.set(p, col, by.0 * a - by.1 * b);
                    matrix.set(q, col, by.1 * a + by.0 * b);
                }
                matrix.set(p, q, 0.0);
                matrix.set(q, p, 0.0);
                rotate_columns(vectors, p, q, by);
            }
        }
        if !turned {
            return;
        }
    }
}

/// Shape of the factor that belongs to the longer side of the matrix.
fn left_shape(shape: &Shape, full: bool, wants_vectors: bool) -> (usize, usize) {
    let (long, short) = (shape.rows.max(shape.cols), shape.rows.min(shape.cols));
    (long, if full && wants_vectors { long } else { short })
}

fn svd(ctx: &mut Invoke) -> Result<(), KernelError> {
    let parallel = ctx.parallel();
    let input = ctx.tensor(0)?;
    let shape = Shape::of(input.info(), 0)?;
    let (full, wants_vectors) = (ctx.bool(1)?, ctx.bool(2)?);
    let short = shape.rows.min(shape.cols);
    let (long, left_cols) = left_shape(&shape, full, wants_vectors);
    let is_wide = shape.cols > shape.rows;
    let count = long * left_cols + short * short + shape.numel + short;
    let memory = scratch::take::<f64>(ctx, count)?;
    let (data, rest) = memory.split_at_mut_checked(shape.numel).unwrap_or_default();
    let (left, rest) = rest.split_at_mut_checked(long * left_cols).unwrap_or_default();
    let (right, values) = rest.split_at_mut_checked(short * short).unwrap_or_default();
    let (mut u_out, mut s_out, mut v_out) = (ctx.out(4)?, ctx.out(5)?, ctx.out(6)?);
    let mut left = Matrix { cols: left_cols, data: left, parallel };
    if u_out.numel() == 0 && s_out.numel() == 0 && v_out.numel() == 0 {
        return Ok(());
    }
    let mut right = Matrix { cols: short, data: right, parallel };
    for index in 0..shape.count {
        read(&input, index, shape.cols, data);
        // The first columns of `left` are the matrix, transposed if it is wide.
        left.data.fill(0.0);
        for row in 0..long {
            for col in 0..short {
                let at = if is_wide { col * shape.cols + row } else { row * shape.cols + col };
                left.set(row, col, data.get(at).copied().unwrap_or(0.0));
            }
        }
        right.identity();
        singular_values(&mut left, &mut right, values);
        write_vector(&mut s_out, index, values);
        if !wants_vectors {
            continue;
        }
        complete_basis(&mut left, values);
        if is_wide {
            write_transposed(&mut v_out, index, left.cols, left.data);
            write(&mut u_out, index, short, right.data);
        } else {
            write(&mut u_out, index, left_cols, left.data);
            write_transposed(&mut v_out, index, right.cols, right.data);
        }
    }
    Ok(())
}

/// Computes singular values: rotates the first `values.len()` columns of `left` until they are
/// orthogonal, and `right` with them. The values are the lengths of the columns, in descending
/// order.
pub(super) fn singular_values<'m>(
    left: &mut Matrix<'m>,
    right: &mut Matrix<'m>,
    values: &mut [f64],
) {
    make_orthogonal(left, right, values.len());
    for (col, value) in values.iter_mut().enumerate() {
        let squares = (0..left.rows()).map(|row| left.at(row, col) * left.at(row, col));
        *value = libm::sqrt(squares.sum());
    }
    sort_by_value(values, true, &mut [left, right]);
}

/// Rotates the first `count` columns of `left` until they are orthogonal, and `right` with them.
pub(super) fn make_orthogonal(left: &mut Matrix, right: &mut Matrix, count: usize) {
    let rows = left.rows();
    for _ in 0..MAX_SWEEPS {
        let mut turned = false;
        for p in 0..count {
            if left.is_cancelled() {
                return;
            }
            for q in p + 1..count {
                let dot = |a: usize, b: usize| -> f64 {
                    (0..rows).map(|row| left.at(row, a) * left.at(row, b)).sum()
                };
                let (first, second, product) = (dot(p, p), dot(q, q), dot(p, q));
                let size = libm::sqrt(first) * libm::sqrt(second);
                if product.abs() <= f64::EPSILON * size || product.abs() < f64::MIN_POSITIVE {
                    continue;
                }
                if !product.is_finite() {
                    return;
                }
                turned = true;
                let by = rotation(first, second, product);
                rotate_columns(left, p, q, by);
                rotate_columns(right, p, q, by);
            }
        }
        if !turned {
            return;
        }
    }
}

/// Normalises the columns. Columns of length zero, and those without a value, become orthonormal to
/// all previous ones.
pub(super) fn complete_basis(left: &mut Matrix, values: &[f64]) {
    let rows = left.rows();
    let smallest = values.first().map_or(0.0, |largest| largest * f64::EPSILON * rows as f64);
    let mut next = 0;
    for col in 0..left.cols {
        if left.is_cancelled() {
            return;
        }
        match values.get(col) {
            Some(&length) if length > smallest => {
                for row in 0..rows {
                    left.set(row, col, left.at(row, col) / length);
                }
            }
            Some(length) if length.is_nan() => {}
            // Makes a unit vector orthogonal to the previous columns, if the remainder is long
            // enough, which is the case for at least one unit vector.
            _ => {
                while next < rows {
                    for row in 0..rows {
                        left.set(row, col, if row == next { 1.0 } else { 0.0 });
                    }
                    next += 1;
                    // Twice, to recover the precision that the first pass loses.
                    for _ in 0..2 {
                        for before in 0..col {
                            let dot: f64 =
                                (0..rows).map(|row| left.at(row, col) * left.at(row, before)).sum();
                            for row in 0..rows {
                                left.set(row, col, left.at(row, col) - dot * left.at(row, before));
                            }
                        }
                    }
                    let square: f64 =
                        (0..rows).map(|row| left.at(row, col) * left.at(row, col)).sum();
                    let length = libm::sqrt(square);
                    // At least one of the unit vectors has a component of this length outside a
                    // proper subspace.
                    if length * length * rows as f64 >= 0.5 {
                        for row in 0..rows {
                            left.set(row, col, left.at(row, col) / length);
                        }
                        break;
                    }
                }
            }
        }
    }
}
