//! Diagonals of matrices.

use super::arrangement::members;
use super::shape::raised;
use super::{Builder, Rule};
use crate::error::Error;
use crate::graph::ValueId;
use crate::operators::{DiagArgs, DiagEmbedArgs, FillDiagonalArgs, Operator, StackedArgs};
use alloc::format;
use alloc::vec;
use alloc::vec::Vec;
use torchlet_core::ScalarType;

pub(in super::super) const RULES: &[(Operator, Rule)] = &[
    (Operator::BLOCK_DIAG, block_diag),
    (Operator::DIAG, |b, args| {
        let call = DiagArgs::of(args)?;
        let offset = b.optional(call.diagonal).map_or(Ok(0), |it| b.int(it))?;
        match b.info(call.input)?.rank() {
            1 => embedded(b, call.input, offset, [0, 1], call.out),
            2 => {
                let (offset, rows, columns) = (b.new_int(offset), b.new_int(0), b.new_int(1));
                let inputs = [call.input, offset, rows, columns];
                b.call_into(Operator::DIAGONAL_COPY, &inputs, call.out);
                Ok(())
            }
            rank => Err(Error::Invalid(format!("diag of a tensor of {rank} dims"))),
        }
    }),
    (Operator::DIAGFLAT, |b, args| {
        let call = DiagArgs::of(args)?;
        let offset = b.optional(call.diagonal).map_or(Ok(0), |it| b.int(it))?;
        let flat = b.flat(call.input)?;
        embedded(b, flat, offset, [0, 1], call.out)
    }),
    (Operator::DIAG_EMBED, |b, args| {
        let call = DiagEmbedArgs::of(args)?;
        let int =
            |id: Option<ValueId>, default: i64| b.optional(id).map_or(Ok(default), |it| b.int(it));
        let (offset, dims) = (int(call.offset, 0)?, [int(call.dim1, -2)?, int(call.dim2, -1)?]);
        embedded(b, call.input, offset, dims, call.out)
    }),
    (Operator::FILL_DIAGONAL, fill_diagonal),
];

/// Zeros, except for a diagonal.
fn embedded(
    b: &mut Builder<'_, '_>,
    input: ValueId,
    offset: i64,
    dims: [i64; 2],
    out: ValueId,
) -> Result<(), Error> {
    let made = b.static_info(out, "a diagonal")?;
    let zeros = b.filled(made, 0.0)?;
    let [one, other] = dims.map(|dim| b.new_int(dim));
    let offset = b.new_int(offset);
    b.call_into(Operator::DIAGONAL_SCATTER, &[zeros, input, offset, one, other], out);
    Ok(())
}

fn block_diag(b: &mut Builder<'_, '_>, args: &[ValueId]) -> Result<(), Error> {
    let call = StackedArgs::of(args)?;
    let made = b.static_info(call.out, "block_diag")?;
    let width = made.last();
    let (mut rows, mut left) = (Vec::new(), 0usize);
    for tensor in members(b, call.tensors)? {
        let block = raised(b, tensor, 2)?;
        let block = b.cast(block, made.scalar_type)?;
        let info = b.static_info(block, "block_diag")?;
        let right = left.saturating_add(info.last());
        let behind = width.checked_sub(right);
        let behind = behind.ok_or_else(|| Error::invalid("block_diag: the blocks do not fit"))?;
        let (pads, zero) = (b.new_ints(&[left as i64, behind as i64]), b.new_int(0));
        let padded = info.with_sizes(vec![info.size(0), width]);
        rows.push(b.call(Operator::CONSTANT_PAD_ND, &[block, pads, zero], padded));
        left = right;
    }
    let value = b.cat(&rows, 0)?;
    b.finish_with(value, call.out)
}

/// Overwrites the elements whose indices are equal. If `wrap` is set, the diagonal of a high matrix
/// begins again after each row that it skips.
fn fill_diagonal(b: &mut Builder<'_, '_>, args: &[ValueId]) -> Result<(), Error> {
    let call = FillDiagonalArgs::of(args)?;
    let info = b.static_info(call.input, "fill_diagonal_")?;
    let count = info.sizes.iter().fold(1usize, |count, size| count.saturating_mul(*size));
    if info.rank() < 2 {
        return Err(Error::invalid("fill_diagonal_ of a tensor of less than 2 dims"));
    }
    b.spend(count)?;
    // The distance of two elements of the diagonal in the flattened tensor.
    let mut step = 0usize;
    for (at, _) in info.sizes.iter().enumerate() {
        let inner = info.sizes.iter().skip(at + 1);
        step = step.saturating_add(inner.fold(1usize, |size, dim| size.saturating_mul(*dim)));
    }
    let wraps = b.truth(call.wrap)? && info.rank() == 2;
    let length = info.sizes.iter().min().copied().unwrap_or(0);
    let mut mask = vec![0u8; count];
    let slots = mask.iter_mut().step_by(step.max(1));
    slots.take(if wraps { count } else { length }).for_each(|slot| *slot = 1);
    let mask = b.constant(ScalarType::Bool, info.sizes, mask)?;
    b.call_into(Operator::MASKED_FILL_SCALAR, &[call.input, mask, call.fill_value], call.out);
    Ok(())
}
