//! Distances between vectors.

use super::dims::common_shape;
use super::elementwise::broadcast_strides;
use super::{Entry, check_looks, operator};
use crate::encoder::{Encoder, read, u32_of, write};
use crate::error::Error;
use crate::tensors::Operand;
use torchlet_graph::graph::ValueId;
use torchlet_graph::operators::{CdistArgs, Operator};
use torchlet_shaders::functions::distances;
use torchlet_shaders::{Distances, DistancesPush, Element};

pub(super) const OPERATORS: &[Entry] = &[operator(Operator::CDIST_FORWARD, between)];

/// Encodes the p-norm distance of each row of one matrix from each row of another. The Euclidean
/// norm is always computed from differences. PyTorch may use a GEMM instead, which loses small
/// distances to cancellation.
fn between(e: &mut Encoder<'_, '_>, args: &[ValueId]) -> Result<(), Error> {
    let call = CdistArgs::of(args)?;
    let (a, b) = (e.tensor(call.x1)?, e.tensor(call.x2)?);
    let p = e.float(call.p)?;
    let function = match p {
        0.0 => distances::COUNT,
        1.0 => distances::SUM,
        2.0 => distances::SQUARES,
        f64::INFINITY => distances::MAX,
        p if p > 0.0 => distances::POWERS,
        p => return Err(Error::Invalid(format!("p: expected at least 0, found {p}"))),
    };
    let mismatch =
        || Error::Invalid(format!("shapes {:?} and {:?} do not match", a.sizes, b.sizes));
    let (Some((a_batch, &[rows, width])), Some((b_batch, &[columns, other]))) =
        (a.sizes.split_last_chunk::<2>(), b.sizes.split_last_chunk::<2>())
    else {
        return Err(mismatch());
    };
    let batch = common_shape([a_batch, b_batch]).ok_or_else(mismatch)?;
    if width != other {
        return Err(mismatch());
    }
    let out = e.out(args)?;
    let out = e.resize(out.id, &[&batch[..], &[rows, columns]].concat())?;
    if [&a, &b, &out].iter().any(|operand| operand.element != Element::F32) {
        return Err(Error::unsupported(format!(
            "cdist of types {:?} and {:?} to {:?} on a GPU; expected F32",
            a.element, b.element, out.element
        )));
    }
    check_looks(out.numel(), width)?;
    if out.numel() == 0 {
        return Ok(());
    }
    let varies = !batch.is_empty() && (e.is_dynamic(&a) || e.is_dynamic(&b));
    let a = in_each(e, &a, &batch, varies)?;
    let b = in_each(e, &b, &batch, varies)?;
    let push = DistancesPush {
        numel: u32_of(out.numel())?,
        rows: u32_of(rows)?,
        columns: u32_of(columns)?,
        width: u32_of(width)?,
        p: p as f32,
    };
    for operand in [&a, &b] {
        u32_of(operand.numel())?;
    }
    // With dynamic shapes, the dispatch always uses the same pipeline.
    let aligned = width.is_multiple_of(4) && !e.is_of_varying_shapes();
    let pipeline = Distances { function, aligned };
    let accesses = [read(a.id), read(b.id), write(out.id)];
    e.dispatch_along_x(&pipeline, accesses, &push, out.numel())
}

/// Broadcasts a matrix to more batches, with a copy if the number of batches differs. `varies`
/// tells whether other numbers of batches may occur.
fn in_each(
    e: &mut Encoder<'_, '_>,
    matrix: &Operand,
    batch: &[usize],
    varies: bool,
) -> Result<Operand, Error> {
    let own = matrix.sizes.len().saturating_sub(2);
    let sizes = [batch, &matrix.sizes[own..]].concat();
    let needed = sizes.iter().product::<usize>() != matrix.numel();
    match e.temporary_for([needed, varies], matrix.element, &sizes)? {
        None => Ok(matrix.clone()),
        Some(whole) => {
            let strides = broadcast_strides(matrix, sizes.len());
            super::views::gather(e, matrix, &whole, &sizes, &strides, 0)?;
            Ok(whole)
        }
    }
}
