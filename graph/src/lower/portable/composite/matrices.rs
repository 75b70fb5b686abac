//! Products of matrices and vectors.

use super::arrangement::members;
use super::linear::general;
use super::{Builder, Info, Rule};
use crate::error::Error;
use crate::graph::{Value, ValueId};
use crate::operators::{
    AddrArgs, BinaryArgs, CrossArgs, MatrixPowerArgs, Operator, StackedArgs, TensordotArgs,
    VanderArgs, VecdotArgs,
};
use alloc::vec;
use alloc::vec::Vec;
use torchlet_core::ScalarType;

pub(in super::super) const RULES: &[(Operator, Rule)] = &[
    (Operator::ADDR, |b, args| {
        // `beta * x + alpha * outer(a, b)`
        let call = AddrArgs::of(args)?;
        let column = b.unsqueeze(call.vec1, 1)?;
        let product = b.binary(Operator::MUL_TENSOR, column, call.vec2)?;
        let one = b.new_int(1);
        let beta = b.optional_number(call.beta)?.unwrap_or(1.0);
        if beta == 0.0 {
            let info = b.info(product)?;
            let alpha = call.alpha.unwrap_or(one);
            let scaled = b.call(Operator::MUL_SCALAR, &[product, alpha], info);
            return b.finish_with(scaled, call.out);
        }
        let mut input = call.input;
        if beta != 1.0 {
            input = b.with_number(Operator::MUL_SCALAR, input, beta)?;
        }
        let inputs = [input, product, call.alpha.unwrap_or(one)];
        b.call_into(Operator::ADD_TENSOR, &inputs, call.out);
        Ok(())
    }),
    (Operator::CROSS, |b, args| {
        let call = CrossArgs::of(args)?;
        let dim = match b.optional(call.dim) {
            Some(dim) => b.int(dim)?,
            None => {
                // The first dim with three elements.
                let info = b.info(call.input)?;
                let found = info.sizes.iter().position(|size| *size == 3);
                found.ok_or_else(|| Error::invalid("cross without a dim of size 3"))? as i64
            }
        };
        cross(b, &call, dim)
    }),
    (Operator::INNER, inner),
    (Operator::KRON, kron),
    (Operator::LINALG_CROSS, |b, args| {
        let call = CrossArgs::of(args)?;
        let dim = b.optional(call.dim).map_or(Ok(-1), |dim| b.int(dim))?;
        cross(b, &call, dim)
    }),
    (Operator::LINALG_MULTI_DOT, multi_dot),
    (Operator::LINALG_VECDOT, |b, args| {
        let call = VecdotArgs::of(args)?;
        b.refuse_complex(call.x, "vecdot")?;
        b.refuse_complex(call.y, "vecdot")?;
        // PyTorch multiplies half precision in a matrix multiplication, which does not overflow.
        let made = match b.info(call.out)?.scalar_type {
            ScalarType::Half | ScalarType::BFloat16 => ScalarType::Float,
            made => made,
        };
        let (x, y) = (b.cast(call.x, made)?, b.cast(call.y, made)?);
        let product = b.binary(Operator::MUL_TENSOR, x, y)?;
        let dim = b.optional(call.dim).map_or(Ok(-1), |dim| b.int(dim))?;
        let (dims, no, none) = (b.new_ints(&[dim]), b.push(Value::Bool(false)), b.none());
        let sums = b.info(call.out)?.with_type(made);
        let sums = b.call(Operator::SUM_DIM_INT_LIST, &[product, dims, no, none], sums);
        b.finish_with(sums, call.out)
    }),
    (Operator::MATRIX_POWER, matrix_power),
    (Operator::TENSORDOT, tensordot),
    (Operator::VANDER, vander),
];

/// Two products of rotated operands, whose difference is the cross product.
fn cross(b: &mut Builder<'_, '_>, call: &CrossArgs, dim: i64) -> Result<(), Error> {
    let rotated = |b: &mut Builder<'_, '_>, value: ValueId, shift: i64| {
        let info = b.info(value)?;
        let (shifts, dims) = (b.new_ints(&[shift]), b.new_ints(&[dim]));
        Ok::<_, Error>(b.call(Operator::ROLL, &[value, shifts, dims], info))
    };
    // `a[i + 1] * b[i + 2] - a[i + 2] * b[i + 1]`
    let (a, c) = (rotated(b, call.input, -1)?, rotated(b, call.other, -2)?);
    let positive = b.binary(Operator::MUL_TENSOR, a, c)?;
    let (a, c) = (rotated(b, call.input, -2)?, rotated(b, call.other, -1)?);
    let negative = b.binary(Operator::MUL_TENSOR, a, c)?;
    let difference = b.binary(Operator::SUB_TENSOR, positive, negative)?;
    b.finish_with(difference, call.out)
}

/// Products of the last dims.
fn inner(b: &mut Builder<'_, '_>, args: &[ValueId]) -> Result<(), Error> {
    let call = BinaryArgs::of(args)?;
    let (one, other) = (b.info(call.input)?, b.info(call.other)?);
    if one.rank() == 0 || other.rank() == 0 {
        b.call_into(Operator::MUL_TENSOR, &[call.input, call.other], call.out);
        return Ok(());
    }
    let dims = [vec![one.rank() - 1], vec![other.rank() - 1]];
    contracted(b, [call.input, call.other], dims, call.out)
}

fn tensordot(b: &mut Builder<'_, '_>, args: &[ValueId]) -> Result<(), Error> {
    let call = TensordotArgs::of(args)?;
    let dims = |b: &Builder<'_, '_>, value: ValueId, dims: ValueId| -> Result<Vec<usize>, Error> {
        let info = b.info(value)?;
        b.ints(dims)?.into_iter().map(|dim| info.dim(dim)).collect()
    };
    let one = dims(b, call.input, call.dims_self)?;
    let other = dims(b, call.other, call.dims_other)?;
    contracted(b, [call.input, call.other], [one, other], call.out)
}

/// Sums products over pairs of dims. The other dims of both operands follow each other.
fn contracted(
    b: &mut Builder<'_, '_>,
    operands: [ValueId; 2],
    dims: [Vec<usize>; 2],
    out: ValueId,
) -> Result<(), Error> {
    let mut matrices = Vec::new();
    for (is_right, (operand, dims)) in operands.into_iter().zip(dims).enumerate() {
        let info: Info = b.static_info(operand, "a contraction")?;
        let free: Vec<usize> = (0..info.rank()).filter(|dim| !dims.contains(dim)).collect();
        let count = |dims: &[usize]| {
            dims.iter().fold(1usize, |count, dim| count.saturating_mul(info.size(*dim)))
        };
        let (outer, depth) = (count(&free), count(&dims));
        let (order, sizes) = match is_right {
            0 => ([free, dims].concat(), [outer, depth]),
            _ => ([dims, free].concat(), [depth, outer]),
        };
        let matrix = b.permute(operand, &order)?;
        matrices.push(b.view_known(matrix, &sizes)?);
    }
    let [left, right] = matrices[..] else { return Ok(()) };
    let product = b.matmul(left, right)?;
    let wanted = b.static_info(out, "a contraction")?.sizes;
    let product = b.view_known(product, &wanted)?;
    b.finish_with(product, out)
}

/// Each element of the first operand, times the whole second one.
fn kron(b: &mut Builder<'_, '_>, args: &[ValueId]) -> Result<(), Error> {
    let call = BinaryArgs::of(args)?;
    let infos = [b.static_info(call.input, "kron")?, b.static_info(call.other, "kron")?];
    let rank = infos.iter().map(Info::rank).max().unwrap_or(0);
    // Dims of both alternate.
    let mut views = Vec::new();
    for (at, (operand, info)) in [call.input, call.other].into_iter().zip(&infos).enumerate() {
        let mut sizes = vec![1; rank * 2];
        for (dim, size) in info.sizes.iter().enumerate() {
            if let Some(slot) = sizes.get_mut((rank - info.rank() + dim) * 2 + at) {
                *slot = *size;
            }
        }
        views.push(b.view_known(operand, &sizes)?);
    }
    let [one, other] = views[..] else { return Ok(()) };
    let product = b.binary(Operator::MUL_TENSOR, one, other)?;
    let wanted = b.info(call.out)?.sizes;
    let product = b.view_known(product, &wanted)?;
    b.finish_with(product, call.out)
}

/// The product of several matrices; the first and the last operand may be vectors.
fn multi_dot(b: &mut Builder<'_, '_>, args: &[ValueId]) -> Result<(), Error> {
    let call = StackedArgs::of(args)?;
    let mut operands = members(b, call.tensors)?;
    if let Some(first) = operands.first_mut()
        && b.info(*first)?.rank() == 1
    {
        *first = b.unsqueeze(*first, 0)?;
    }
    if let Some(last) = operands.last_mut()
        && b.info(*last)?.rank() == 1
    {
        *last = b.unsqueeze(*last, 1)?;
    }
    let mut operands = operands.into_iter();
    let first = operands.next().ok_or_else(|| Error::invalid("a product of no matrices"))?;
    let product = operands.try_fold(first, |product, next| b.matmul(product, next))?;
    let wanted = b.static_info(call.out, "multi_dot")?.sizes;
    let product = b.view_known(product, &wanted)?;
    b.finish_with(product, call.out)
}

/// A power of square matrices, by squaring.
fn matrix_power(b: &mut Builder<'_, '_>, args: &[ValueId]) -> Result<(), Error> {
    let call = MatrixPowerArgs::of(args)?;
    let n = b.int(call.n)?;
    let info = b.static_info(call.input, "matrix_power")?;
    if n == 0 {
        let size = b.new_int(info.last() as i64);
        let none = b.none();
        let made = Info { sizes: vec![info.last(), info.last()], ..info.clone() };
        let identity = b.call(Operator::EYE, &[size, none, none, none, none], made);
        let identity = b.expand(identity, &info.sizes)?;
        return b.finish_with(identity, call.out);
    }
    let mut base = call.input;
    if n < 0 {
        base = super::factorization::inverse(b, base)?;
    }
    let (mut rest, mut product) = (n.unsigned_abs(), None);
    while rest > 0 {
        if rest % 2 == 1 {
            product = Some(match product {
                Some(product) => general(b, product, base)?,
                None => base,
            });
        }
        rest /= 2;
        if rest > 0 {
            base = general(b, base, base)?;
        }
    }
    match product {
        Some(product) => b.finish_with(product, call.out),
        None => Err(Error::invalid("matrix_power without a power")),
    }
}

/// Powers of each element, from the highest to the lowest or the other way around.
fn vander(b: &mut Builder<'_, '_>, args: &[ValueId]) -> Result<(), Error> {
    let call = VanderArgs::of(args)?;
    let made = b.static_info(call.out, "vander")?;
    let input = b.cast(call.x, made.scalar_type)?;
    let rank = b.info(input)?.rank();
    let column = b.unsqueeze(input, rank)?;
    let count = made.last() as i64;
    let (zero, end) = (b.new_int(0), b.new_int(count));
    let mut powers = b.range(zero, end, made.last())?;
    if !b.truth(call.increasing)? {
        let dims = b.new_ints(&[0]);
        let info = b.info(powers)?;
        powers = b.call(Operator::FLIP, &[powers, dims], info);
    }
    if made.scalar_type != ScalarType::Long {
        powers = b.cast(powers, made.scalar_type)?;
    }
    b.call_into(Operator::POW_TENSOR_TENSOR, &[column, powers], call.out);
    Ok(())
}
