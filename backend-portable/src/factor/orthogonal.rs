//! QR factorisation with Householder reflections.

use super::{Matrix, Shape, f64_bytes, read, resize, write};
use crate::scratch;
use crate::table::kernels;
use torchlet_core::Param::{Out, String, Tensor};
use torchlet_core::{Arguments, Invoke, Kernel, KernelError, Plan};

kernels! { ORTHOGONAL:
    /// `aten::linalg_qr.out(A, mode, Q, R)`: QR factorisation; `mode` ("reduced", "complete" or
    /// "r") selects the columns of `Q`.
    QR = Kernel::new("aten::linalg_qr.out", &[Tensor, String, Out, Out], |ctx| {
        let info = ctx.info(0)?;
        let shape = Shape::of(&info, 0)?;
        let (q, r) = factors(ctx, &shape)?;
        match q {
            Some(q) => resize(ctx, 2, &[shape.rows, q], info.scalar_type)?,
            None => ctx.resize(2, &[0])?,
        }
        resize(ctx, 3, &[r, shape.cols], info.scalar_type)?;
        let least = shape.rows.min(shape.cols);
        let q_len = [shape.rows, q.unwrap_or(0)];
        let bytes = f64_bytes(&[[1, shape.numel], [shape.rows, least], q_len])?;
        Ok(Plan::new(qr).with_scratch(bytes))
    });
}

/// Number of columns of Q, if it is requested, and number of rows of R.
fn factors(args: &Arguments, shape: &Shape) -> Result<(Option<usize>, usize), KernelError> {
    let least = shape.rows.min(shape.cols);
    match args.optional_string(1)?.unwrap_or("reduced") {
        "reduced" => Ok((Some(least), least)),
        "complete" => Ok((Some(shape.rows), shape.rows)),
        "r" => Ok((None, least)),
        _ => Err(KernelError::argument(1, "expected 'reduced', 'complete' or 'r'")),
    }
}

fn qr(ctx: &mut Invoke) -> Result<(), KernelError> {
    let parallel = ctx.parallel();
    let input = ctx.tensor(0)?;
    let shape = Shape::of(input.info(), 0)?;
    let (q_cols, r_rows) = factors(ctx, &shape)?;
    let q_cols = q_cols.unwrap_or(0);
    let Shape { rows, cols, numel, count } = shape;
    let least = rows.min(cols);
    let memory = scratch::take::<f64>(ctx, numel + rows * least + rows * q_cols)?;
    let (r, rest) = memory.split_at_mut_checked(numel).unwrap_or_default();
    let (vectors, q) = rest.split_at_mut_checked(rows * least).unwrap_or_default();
    let (mut q_out, mut r_out) = (ctx.out(2)?, ctx.out(3)?);
    let (mut r, mut q) =
        (Matrix { cols, data: r, parallel }, Matrix { cols: q_cols, data: q, parallel });
    if q_out.numel() == 0 && r_out.numel() == 0 {
        return Ok(());
    }
    for index in 0..count {
        read(&input, index, cols, r.data);
        for (k, vector) in vectors.chunks_exact_mut(rows.max(1)).enumerate() {
            if r.is_cancelled() {
                break;
            }
            find_reflection(&mut r, k, vector);
            reflect(&mut r, k, vector);
            for row in k + 1..rows {
                r.set(row, k, 0.0);
            }
        }
        write(&mut r_out, index, cols, r.data.get(..r_rows * cols).unwrap_or_default());
        if q_cols > 0 {
            // Applies the reflections to the identity, starting with the last. Columns that are not
            // requested need not be computed.
            q.identity();
            for (k, vector) in vectors.chunks_exact(rows.max(1)).enumerate().rev() {
                if q.is_cancelled() {
                    break;
                }
                reflect(&mut q, k, vector);
            }
            write(&mut q_out, index, q_cols, q.data);
        }
    }
    Ok(())
}

/// Finds the reflection that maps column `k`, from row `k` on, to a multiple of the unit vector,
/// and writes its unit vector. Writes zeros if the column already has that form.
fn find_reflection(matrix: &mut Matrix, k: usize, vector: &mut [f64]) {
    let rows = matrix.rows();
    vector.fill(0.0);
    let below: f64 = (k + 1..rows).map(|row| matrix.at(row, k) * matrix.at(row, k)).sum();
    if below == 0.0 {
        return;
    }
    let first = matrix.at(k, k);
    let norm = -libm::sqrt(first * first + below).copysign(first);
    let length = libm::sqrt((first - norm) * (first - norm) + below);
    for (row, slot) in vector.iter_mut().enumerate().skip(k) {
        let value = if row == k { first - norm } else { matrix.at(row, k) };
        *slot = value / length;
    }
}

/// Applies the reflection with this unit vector, which is zero before row `k`, to all columns.
fn reflect(matrix: &mut Matrix, k: usize, vector: &[f64]) {
    for col in 0..matrix.cols {
        let along = || vector.iter().enumerate().skip(k);
        let dot: f64 = along().map(|(row, v)| matrix.at(row, col) * v).sum();
        for (row, v) in along() {
            matrix.set(row, col, matrix.at(row, col) - 2.0 * dot * v);
        }
    }
}
