//! Matrix multiplications of any ranks.

use super::shape::sizes_of;
use super::{Builder, Info, Rule, Size};
use crate::error::Error;
use crate::graph::{Value, ValueId};
use crate::operators::{BilinearArgs, BinaryArgs, Operator, OuterArgs};
use alloc::format;
use alloc::vec::Vec;

pub(in super::super) const RULES: &[(Operator, Rule)] = &[
    (Operator::BILINEAR, bilinear),
    (Operator::MATMUL, matmul),
    (Operator::OUTER, |b, args| {
        let call = OuterArgs::of(args)?;
        let column = b.unsqueeze(call.input, 1)?;
        let product = b.binary(Operator::MUL_TENSOR, column, call.vec2)?;
        b.finish_with(product, call.out)
    }),
];

fn matmul(b: &mut Builder<'_, '_>, args: &[ValueId]) -> Result<(), Error> {
    let call = BinaryArgs::of(args)?;
    let (one, other) = (b.info(call.input)?, b.info(call.other)?);
    if one.rank() == 0 || other.rank() == 0 {
        return Err(Error::invalid("matmul of a scalar"));
    }
    if (one.rank(), other.rank()) == (1, 1) {
        b.call_into(Operator::DOT, &[call.input, call.other], call.out);
        return Ok(());
    }
    if (one.rank(), other.rank()) == (2, 2) {
        b.call_into(Operator::MM, &[call.input, call.other], call.out);
        return Ok(());
    }
    // A vector is a row on the left, and a column on the right.
    let lhs = if one.rank() == 1 { b.unsqueeze(call.input, 0)? } else { call.input };
    let rhs = if other.rank() == 1 { b.unsqueeze(call.other, 1)? } else { call.other };
    let product = general(b, lhs, rhs)?;
    let sizes = wanted(b, [call.input, call.other])?;
    let product =
        if b.info(product)?.rank() == sizes.len() { product } else { b.view(product, &sizes)? };
    b.finish_with(product, call.out)
}

/// The sizes of a product, without the dims that vectors lack.
fn wanted(b: &mut Builder<'_, '_>, [lhs, rhs]: [ValueId; 2]) -> Result<Vec<Size>, Error> {
    let (one, other) = (sizes_of(b, lhs)?, sizes_of(b, rhs)?);
    let outer = |sizes: &[Size]| sizes.len().saturating_sub(2);
    let mut sizes = broadcast(
        one.get(..outer(&one)).unwrap_or_default(),
        other.get(..outer(&other)).unwrap_or_default(),
    );
    if one.len() >= 2 {
        sizes.extend(one.get(one.len() - 2));
    }
    if other.len() >= 2 {
        sizes.extend(other.last());
    }
    Ok(sizes)
}

/// Broadcasts leading dims. A size of one gives way to the other.
pub(super) fn broadcast(one: &[Size], other: &[Size]) -> Vec<Size> {
    let rank = one.len().max(other.len());
    let at = |sizes: &[Size], dim: usize| {
        (dim + sizes.len()).checked_sub(rank).and_then(|dim| sizes.get(dim)).copied()
    };
    let dims = (0..rank).filter_map(|dim| match (at(one, dim), at(other, dim)) {
        (Some(one), Some(other)) => Some(if one.bound == 1 { other } else { one }),
        (one, other) => one.or(other),
    });
    dims.collect()
}

/// The product of matrices with any leading dims.
pub(super) fn general(
    b: &mut Builder<'_, '_>,
    lhs: ValueId,
    rhs: ValueId,
) -> Result<ValueId, Error> {
    let (one, other) = (b.info(lhs)?, b.info(rhs)?);
    if other.rank() == 2 {
        if one.rank() == 2 {
            return b.matmul(lhs, rhs);
        }
        let rows = b.rows(lhs)?;
        let product = b.matmul(rows, rhs)?;
        let mut sizes = sizes_of(b, lhs)?;
        let last = b.size(rhs, 1)?;
        if let Some(slot) = sizes.last_mut() {
            *slot = last;
        }
        return b.view(product, &sizes);
    }
    let (left, right) = (sizes_of(b, lhs)?, sizes_of(b, rhs)?);
    let split = |sizes: &[Size]| -> Result<(Vec<Size>, [Size; 2]), Error> {
        match sizes {
            [batch @ .., rows, columns] => Ok((batch.to_vec(), [*rows, *columns])),
            _ => Err(Error::Invalid(format!("matmul of a tensor of rank {}", sizes.len()))),
        }
    };
    let ((left, [rows, depth]), (right, [own_depth, columns])) = (split(&left)?, split(&right)?);
    let batch = broadcast(&left, &right);
    let a = batched(b, lhs, &left, &batch, [rows, depth])?;
    let c = batched(b, rhs, &right, &batch, [own_depth, columns])?;
    let product = b.matmul(a, c)?;
    if batch.len() == 1 {
        return Ok(product);
    }
    let sizes: Vec<Size> = batch.into_iter().chain([rows, columns]).collect();
    b.view(product, &sizes)
}

/// Broadcasts the leading dims of matrices, and merges them into one.
fn batched(
    b: &mut Builder<'_, '_>,
    value: ValueId,
    own: &[Size],
    batch: &[Size],
    matrix: [Size; 2],
) -> Result<ValueId, Error> {
    let info: Info = b.info(value)?;
    let bounds = |sizes: &[Size]| -> Vec<usize> { sizes.iter().map(|size| size.bound).collect() };
    let mut value = value;
    if bounds(own) != bounds(batch) {
        let sizes: Vec<Size> = batch.iter().copied().chain(matrix).collect();
        let made = Info { sizes: bounds(&sizes), ..info };
        let (list, no) = (b.sizes(&sizes)?, b.push(Value::Bool(false)));
        let varies = sizes.iter().any(|size| !matches!(b.value(size.value), Ok(Value::Int(_))));
        let made = Info { dynamic: made.dynamic || varies, ..made };
        value = b.call(Operator::EXPAND_COPY, &[value, list, no], made);
    }
    if batch.len() == 1 {
        return Ok(value);
    }
    let bound = batch.iter().fold(1usize, |bound, size| bound.saturating_mul(size.bound));
    let merged = match b.info(value)?.dynamic {
        true => Size { bound, value: b.new_int(-1) },
        false => b.known(bound),
    };
    b.view(value, &[merged, matrix[0], matrix[1]])
}

/// `x[i] * weight[o, i, j] * y[j]`, summed over `i` and `j`, plus a bias.
fn bilinear(b: &mut Builder<'_, '_>, args: &[ValueId]) -> Result<(), Error> {
    let call = BilinearArgs::of(args)?;
    let (one, weight) = (b.info(call.input1)?, b.info(call.weight)?);
    let [outputs, left, right] = weight.sizes[..] else {
        return Err(Error::invalid("bilinear: expected weights of rank 3"));
    };
    let rows = b.rows(call.input1)?;
    // `[rows, outputs * right]`
    let flat = b.permute(call.weight, &[1, 0, 2])?;
    let flat = b.view_known(flat, &[left, outputs.saturating_mul(right)])?;
    let product = b.matmul(rows, flat)?;
    let count = b.size(rows, 0)?;
    let (outputs, right) = (b.known(outputs), b.known(right));
    let product = b.view(product, &[count, outputs, right])?;
    let other = b.rows(call.input2)?;
    let other = b.unsqueeze(other, 1)?;
    let product = b.binary(Operator::MUL_TENSOR, product, other)?;
    let last = b.new_ints(&[2]);
    let (no, none) = (b.push(Value::Bool(false)), b.none());
    let info = b.info(product)?;
    let made = info.with_sizes([info.size(0), info.size(1)].to_vec());
    let mut sum = b.call(Operator::SUM_DIM_INT_LIST, &[product, last, no, none], made);
    if let Some(bias) = b.optional(call.bias) {
        sum = b.binary(Operator::ADD_TENSOR, sum, bias)?;
    }
    let mut sizes = sizes_of(b, call.input1)?;
    if let Some(slot) = sizes.last_mut() {
        *slot = outputs;
    }
    let sum = if one.rank() == 2 { sum } else { b.view(sum, &sizes)? };
    b.finish_with(sum, call.out)
}
