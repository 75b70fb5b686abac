//! Pseudoinverse, matrix square root and polar decomposition.

use super::symmetric::{complete_basis, diagonalize, make_orthogonal, singular_values};
use super::{Matrix, Shape, f64_bytes, read, resize, start, with_batch, write, write_transposed};
use crate::number::{load, unsupported};
use crate::scratch;
use crate::table::kernels;
use torchlet_core::Param::{Bool, OptionalTensor, Out, Tensor};
use torchlet_core::{Arguments, Invoke, Kernel, KernelError, Plan, ScalarType};

kernels! { PSEUDO:
    /// `aten::linalg_pinv.atol_rtol_tensor_out(self, atol, rtol, hermitian, out)`: the
    /// pseudoinverse. Singular values up to `atol`, or up to `rtol` times the largest one, count as
    /// zero. With `hermitian`, only the lower triangle is read.
    LINALG_PINV_OUT = Kernel::new(
        "aten::linalg_pinv.atol_rtol_tensor_out",
        &[Tensor, OptionalTensor, OptionalTensor, Bool, Out],
        |ctx| {
            let shape = match ctx.bool(3)? {
                true => Shape::square(ctx, 0)?,
                false => Shape::of(&ctx.info(0)?, 0)?,
            };
            (1..=2).try_for_each(|arg| check_tolerance(ctx, &shape, arg))?;
            let of = ctx.info(0)?.scalar_type;
            resize(ctx, 4, &[shape.cols, shape.rows], of)?;
            let least = shape.rows.min(shape.cols);
            let bytes = f64_bytes(&[[3, shape.numel], [least, least], [1, least]])?;
            Ok(Plan::new(pinv).with_scratch(bytes))
        },
    );
    /// `aten::linalg_matrix_sqrth.out(self, out)`: the symmetric square root of `self`, whose lower
    /// triangle is read. Negative eigenvalues count as zero.
    LINALG_MATRIX_SQRTH_OUT = Kernel::new("aten::linalg_matrix_sqrth.out", &[Tensor, Out], |ctx| {
        let (shape, of) = (Shape::square(ctx, 0)?, ctx.info(0)?.scalar_type);
        resize(ctx, 1, &[shape.rows, shape.cols], of)?;
        Ok(Plan::new(sqrth).with_scratch(f64_bytes(&[[3, shape.numel]])?))
    });
    /// `aten::linalg_polar.out(A, U, H)`: polar decomposition of matrices with at least as many
    /// rows as columns, into a matrix with orthonormal columns and a symmetric positive
    /// semidefinite one.
    LINALG_POLAR_OUT = Kernel::new("aten::linalg_polar.out", &[Tensor, Out, Out], |ctx| {
        let (shape, of) = (Shape::of(&ctx.info(0)?, 0)?, ctx.info(0)?.scalar_type);
        if shape.rows < shape.cols {
            let what = "expected matrices with at least as many rows as columns";
            return Err(KernelError::argument(0, what));
        }
        resize(ctx, 1, &[shape.rows, shape.cols], of)?;
        resize(ctx, 2, &[shape.cols, shape.cols], of)?;
        let square = [2, shape.cols.saturating_mul(shape.cols)];
        Ok(Plan::new(polar).with_scratch(f64_bytes(&[[2, shape.numel], square, [1, shape.cols]])?))
    });
}

/// Checks that a tolerance has one element, or one for each matrix.
fn check_tolerance(args: &Arguments, shape: &Shape, arg: usize) -> Result<(), KernelError> {
    let Some(info) = args.optional_info(arg)? else { return Ok(()) };
    if !matches!(info.scalar_type, ScalarType::Float | ScalarType::Double) {
        return Err(unsupported(arg, info.scalar_type));
    }
    let is_one = (0..info.rank()).all(|dim| info.size(dim) == 1);
    let fits = is_one || (info.sizes == with_batch(&args.info(0)?, &[])? && shape.count > 0);
    if fits {
        Ok(())
    } else {
        Err(KernelError::argument(arg, "expected one element, or one for each matrix"))
    }
}

/// The tolerance in argument `arg` for matrix `index`.
fn tolerance(ctx: &Invoke, arg: usize, index: usize) -> Result<Option<f64>, KernelError> {
    let Some(tensor) = ctx.optional_tensor(arg)? else { return Ok(None) };
    let at = if tensor.numel() == 1 { 0 } else { start(tensor.info(), index, 0) };
    let mut found = [0.0];
    load(tensor.scalar_type, tensor.bytes(), at, 1, &mut found);
    Ok(Some(found[0]))
}

/// Copies the lower triangle to the upper one.
fn mirror(matrix: &mut Matrix) {
    for row in 0..matrix.cols {
        for col in 0..row {
            matrix.set(col, row, matrix.at(row, col));
        }
    }
}

fn pinv(ctx: &mut Invoke) -> Result<(), KernelError> {
    let parallel = ctx.parallel();
    let input = ctx.tensor(0)?;
    let shape = Shape::of(input.info(), 0)?;
    let Shape { rows, cols, numel, .. } = shape;
    let (long, short) = (rows.max(cols), rows.min(cols));
    let memory = scratch::take::<f64>(ctx, 3 * numel + short * short + short)?;
    let (data, rest) = memory.split_at_mut_checked(numel).unwrap_or_default();
    let (left, rest) = rest.split_at_mut_checked(numel).unwrap_or_default();
    let (made, rest) = rest.split_at_mut_checked(numel).unwrap_or_default();
    let (right, squares) = rest.split_at_mut_checked(short * short).unwrap_or_default();
    let mut out = ctx.out(4)?;
    let is_symmetric = ctx.bool(3)?;
    let epsilon = match input.scalar_type {
        ScalarType::Float => f64::from(f32::EPSILON),
        _ => f64::EPSILON,
    };
    let mut matrix = Matrix { cols, data, parallel };
    let (mut left, mut right) = (
        Matrix { cols: short, data: left, parallel },
        Matrix { cols: short, data: right, parallel },
    );
    let mut made = Matrix { cols: long, data: made, parallel };
    for index in 0..shape.non_empty() {
        read(&input, index, cols, matrix.data);
        if is_symmetric {
            mirror(&mut matrix);
        }
        for row in 0..long {
            for col in 0..short {
                let value = if cols > rows { matrix.at(col, row) } else { matrix.at(row, col) };
                left.set(row, col, value);
            }
        }
        right.identity();
        make_orthogonal(&mut left, &mut right, short);
        for (col, square) in squares.iter_mut().enumerate() {
            *square = (0..long).map(|row| left.at(row, col) * left.at(row, col)).sum();
        }
        let has_nan = squares.iter().any(|square| square.is_nan());
        let largest = libm::sqrt(squares.iter().fold(0.0, |a, b| f64::max(a, *b)));
        let (atol, rtol) = (tolerance(ctx, 1, index)?, tolerance(ctx, 2, index)?);
        let usual = if atol.is_some_and(|atol| atol > 0.0) { 0.0 } else { epsilon * long as f64 };
        let least = f64::max(atol.unwrap_or(0.0), rtol.unwrap_or(usual) * largest);
        // Stored with the shorter side as rows.
        made.data.fill(if has_nan { f64::NAN } else { 0.0 });
        for (k, square) in squares.iter().enumerate() {
            if made.is_cancelled() {
                break;
            }
            if libm::sqrt(*square) > least {
                for row in 0..short {
                    let factor = right.at(row, k) / square;
                    for col in 0..long {
                        made.set(row, col, made.at(row, col) + factor * left.at(col, k));
                    }
                }
            }
        }
        if cols > rows {
            write_transposed(&mut out, index, long, made.data);
        } else {
            write(&mut out, index, long, made.data);
        }
    }
    Ok(())
}

fn sqrth(ctx: &mut Invoke) -> Result<(), KernelError> {
    let parallel = ctx.parallel();
    let input = ctx.tensor(0)?;
    let shape = Shape::square(ctx, 0)?;
    let Shape { cols, numel, .. } = shape;
    let memory = scratch::take::<f64>(ctx, 3 * numel)?;
    let (data, rest) = memory.split_at_mut_checked(numel).unwrap_or_default();
    let (vectors, made) = rest.split_at_mut_checked(numel).unwrap_or_default();
    let mut out = ctx.out(1)?;
    let mut matrix = Matrix { cols, data, parallel };
    let (mut vectors, mut made) =
        (Matrix { cols, data: vectors, parallel }, Matrix { cols, data: made, parallel });
    for index in 0..shape.non_empty() {
        read(&input, index, cols, matrix.data);
        mirror(&mut matrix);
        vectors.identity();
        diagonalize(&mut matrix, &mut vectors);
        made.data.fill(0.0);
        for k in 0..cols {
            if matrix.is_cancelled() {
                break;
            }
            let value = matrix.at(k, k);
            let root = if value < 0.0 { 0.0 } else { libm::sqrt(value) };
            for row in 0..cols {
                let factor = root * vectors.at(row, k);
                for col in 0..cols {
                    made.set(row, col, made.at(row, col) + factor * vectors.at(col, k));
                }
            }
        }
        write(&mut out, index, cols, made.data);
    }
    Ok(())
}

fn polar(ctx: &mut Invoke) -> Result<(), KernelError> {
    let parallel = ctx.parallel();
    let input = ctx.tensor(0)?;
    let shape = Shape::of(input.info(), 0)?;
    let Shape { rows, cols, numel, .. } = shape;
    let square = cols * cols;
    let memory = scratch::take::<f64>(ctx, 2 * numel + 2 * square + cols)?;
    let (left, rest) = memory.split_at_mut_checked(numel).unwrap_or_default();
    let (made, rest) = rest.split_at_mut_checked(numel).unwrap_or_default();
    let (right, rest) = rest.split_at_mut_checked(square).unwrap_or_default();
    let (stretch, lengths) = rest.split_at_mut_checked(square).unwrap_or_default();
    let (mut u_out, mut h_out) = (ctx.out(1)?, ctx.out(2)?);
    let (mut left, mut made) =
        (Matrix { cols, data: left, parallel }, Matrix { cols, data: made, parallel });
    let (mut right, mut stretch) =
        (Matrix { cols, data: right, parallel }, Matrix { cols, data: stretch, parallel });
    for index in 0..shape.non_empty() {
        read(&input, index, cols, left.data);
        if left.data.iter().any(|value| !value.is_finite()) {
            return Err(KernelError::argument(
                0,
                "expected finite elements, found infinity or NaN",
            ));
        }
        right.identity();
        singular_values(&mut left, &mut right, lengths);
        complete_basis(&mut left, lengths);
        // For the singular value decomposition `A = L S V'`, the polar factors are `U = L V'` and
        // `H = V S V'`.
        for row in 0..rows {
            if made.is_cancelled() {
                break;
            }
            for col in 0..cols {
                let value = (0..cols).map(|k| left.at(row, k) * right.at(col, k)).sum();
                made.set(row, col, value);
            }
        }
        for row in 0..cols {
            for col in 0..cols {
                let parts = lengths.iter().enumerate();
                let parts = parts.map(|(k, length)| right.at(row, k) * length * right.at(col, k));
                stretch.set(row, col, parts.sum());
            }
        }
        write(&mut u_out, index, cols, made.data);
        write(&mut h_out, index, cols, stretch.data);
    }
    Ok(())
}
