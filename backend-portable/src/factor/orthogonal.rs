//! Orthogonal and triangular factors, by reflections.

use super::{Matrix, Shape, numbers, read, resize, write};
use crate::scratch;
use crate::table::kernels;
use torchlet_core::Param::{Out, String, Tensor};
use torchlet_core::{Arguments, Invoke, Kernel, KernelError, Plan};

kernels! { ORTHOGONAL:
    /// `aten::linalg_qr.out(A, mode, Q, R)`
    QR = Kernel::new("aten::linalg_qr.out", &[Tensor, String, Out, Out], |ctx| {
        let info = ctx.info(0)?;
        let shape = Shape::of(&info, 0)?;
        let (q, r) = factors(ctx, &shape)?;
        if q == 0 {
            ctx.resize(2, &[0])?;
        } else {
            resize(ctx, 2, &[shape.rows, q], info.scalar_type)?;
        }
        resize(ctx, 3, &[r, shape.cols], info.scalar_type)?;
        let count = shape.rows.checked_mul(shape.rows).and_then(|q| q.checked_add(shape.numel()));
        Ok(Plan::new(qr).with_scratch(numbers(count.and_then(|n| n.checked_add(shape.rows)))?))
    });
}

/// The columns of Q, none if it is not wanted, and the rows of R.
fn factors(args: &Arguments, shape: &Shape) -> Result<(usize, usize), KernelError> {
    let least = shape.rows.min(shape.cols);
    match args.optional_string(1)?.unwrap_or("reduced") {
        "reduced" => Ok((least, least)),
        "complete" => Ok((shape.rows, shape.rows)),
        "r" => Ok((0, least)),
        _ => Err(KernelError::argument(1, "is none of 'reduced', 'complete', 'r'")),
    }
}

fn qr(ctx: &mut Invoke) -> Result<(), KernelError> {
    let input = ctx.tensor(0)?;
    let shape = Shape::of(input.info(), 0)?;
    let (q_cols, r_rows) = factors(ctx, &shape)?;
    let Shape { rows, cols, count } = shape;
    let memory = scratch::take::<f64>(ctx, rows * rows + shape.numel() + rows)?;
    let (data, rest) = memory.split_at_mut_checked(shape.numel()).unwrap_or_default();
    let (q, vector) = rest.split_at_mut_checked(rows * rows).unwrap_or_default();
    let (mut q_out, mut r_out) = (ctx.out(2)?, ctx.out(3)?);
    let (mut r, mut q) = (Matrix { cols, data }, Matrix { cols: rows, data: q });
    for index in 0..count {
        read(&input, index, cols, r.data);
        q.identity();
        for k in 0..rows.min(cols) {
            reflect(&mut r, &mut q, k, vector);
        }
        write(&mut r_out, index, cols, r.data.get(..r_rows * cols).unwrap_or_default());
        if q_cols > 0 {
            // The columns that are wanted, one after the other, over what is no longer needed.
            for row in 0..rows {
                for col in 0..q_cols {
                    let value = q.at(row, col);
                    if let Some(place) = q.data.get_mut(row * q_cols + col) {
                        *place = value;
                    }
                }
            }
            write(&mut q_out, index, q_cols, q.data.get(..rows * q_cols).unwrap_or_default());
        }
    }
    Ok(())
}

/// Reflects what is left of column `k` onto its first element, in R, and undoes that in Q.
fn reflect(r: &mut Matrix, q: &mut Matrix, k: usize, vector: &mut [f64]) {
    let rows = r.rows();
    let below: f64 = (k + 1..rows).map(|row| r.at(row, k) * r.at(row, k)).sum();
    if below == 0.0 {
        return;
    }
    let first = r.at(k, k);
    let norm = -libm::sqrt(first * first + below).copysign(first);
    let vector = vector.get_mut(k..rows).unwrap_or_default();
    for (row, place) in (k..rows).zip(vector.iter_mut()) {
        *place = if row == k { first - norm } else { r.at(row, k) };
    }
    let square: f64 = vector.iter().map(|value| value * value).sum();
    for col in k..r.cols {
        let dot: f64 = (k..rows).zip(&*vector).map(|(row, v)| r.at(row, col) * v).sum();
        let factor = 2.0 * dot / square;
        for (row, v) in (k..rows).zip(&*vector) {
            r.set(row, col, r.at(row, col) - factor * v);
        }
    }
    for row in k + 1..rows {
        r.set(row, k, 0.0);
    }
    for row in 0..rows {
        let dot: f64 = (k..rows).zip(&*vector).map(|(col, v)| q.at(row, col) * v).sum();
        let factor = 2.0 * dot / square;
        for (col, v) in (k..rows).zip(&*vector) {
            q.set(row, col, q.at(row, col) - factor * v);
        }
    }
}
