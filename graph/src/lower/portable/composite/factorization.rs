//! Functions of matrices that factorizations compute: determinants, inverses, norms.

use super::fourier::is_complex;
use super::{Builder, Info, Rule};
use crate::error::Error;
use crate::graph::{Value, ValueId};
use crate::operators::{
    CholeskyArgs, CondArgs, EighArgs, FrobeniusNormArgs, LuFactorArgs, MatrixNormArgs,
    MatrixNormStrArgs, MatrixRankArgs, MatrixRankFloatArgs, NuclearNormArgs, Operator, SolveArgs,
    SvdArgs, SvdvalsArgs,
};
use alloc::format;
use alloc::vec;
use alloc::vec::Vec;
use torchlet_core::ScalarType;

pub(in super::super) const RULES: &[(Operator, Rule)] = &[
    (Operator::FROBENIUS_NORM, |b, args| {
        // The root of the sum of all squares, over any number of dims.
        let call = FrobeniusNormArgs::of(args)?;
        let (two, keepdim, none) = (b.new_int(2), b.truth(call.keepdim)?, b.none());
        let inputs = [call.input, two, call.dim, b.push(Value::Bool(keepdim)), none];
        b.call_into(Operator::LINALG_VECTOR_NORM, &inputs, call.out);
        Ok(())
    }),
    (Operator::NUCLEAR_NORM, |b, args| {
        let call = NuclearNormArgs::of(args)?;
        nuclear_norm(b, call.input, None, call.keepdim, call.out)
    }),
    (Operator::NUCLEAR_NORM_DIM, |b, args| {
        let call = FrobeniusNormArgs::of(args)?;
        nuclear_norm(b, call.input, Some(call.dim), call.keepdim, call.out)
    }),
    (Operator::DET, |b, args| {
        let (input, out) = b.ends(args)?;
        let info = b.info(input)?;
        let further = [info.clone(), pivots(&info)];
        first(b, Operator::LINALG_DET, &[input], &[out], &further)
    }),
    (Operator::LINALG_CHOLESKY, |b, args| {
        let call = CholeskyArgs::of(args)?;
        let (upper, yes) = (b.truth(call.upper)?, b.push(Value::Bool(true)));
        let inputs = [call.input, b.push(Value::Bool(upper)), yes];
        let status = status(&b.info(call.input)?);
        first(b, Operator::LINALG_CHOLESKY_EX, &inputs, &[call.out], &[status])
    }),
    (Operator::LINALG_COND, |b, args| {
        // The quotient of the largest and the smallest singular value.
        let call = CondArgs::of(args)?;
        let p = b.optional_number(call.p)?.unwrap_or(2.0);
        if p.abs() != 2.0 {
            return Err(Error::Unsupported(format!("cond with the norm {p}; only 2 and -2")));
        }
        let values = singular_values(b, call.input)?;
        let last = b.info(values)?.rank().saturating_sub(1);
        let most = extreme(b, Operator::AMAX, values, last)?;
        let least = extreme(b, Operator::AMIN, values, last)?;
        let operands = if p > 0.0 { [most, least] } else { [least, most] };
        b.call_into(Operator::DIV_TENSOR, &operands, call.out);
        Ok(())
    }),
    (Operator::LINALG_EIGH_COMPOSITE, |b, args| {
        let call = EighArgs::of(args)?;
        let (side, yes) = (b.push(Value::String("L".into())), b.push(Value::Bool(true)));
        let inputs = [call.input, call.uplo.unwrap_or(side), yes];
        let outs = b.outs(args)?;
        first(b, Operator::LINALG_EIGH, &inputs, &outs, &[])
    }),
    (Operator::LINALG_EIGVALSH, |b, args| {
        // The kernel needs room for the vectors only if it computes them.
        let call = EighArgs::of(args)?;
        let (side, no) = (b.push(Value::String("L".into())), b.push(Value::Bool(false)));
        let inputs = [call.input, call.uplo.unwrap_or(side), no];
        let none = b.info(call.input)?.with_sizes(vec![0]);
        first(b, Operator::LINALG_EIGH, &inputs, &[call.out], &[none])
    }),
    (Operator::LINALG_INV, |b, args| {
        let (input, out) = b.ends(args)?;
        let (info, yes) = (b.info(input)?, b.push(Value::Bool(true)));
        first(b, Operator::LINALG_INV_EX, &[input, yes], &[out], &[status(&info)])
    }),
    (Operator::LINALG_LU_FACTOR, |b, args| {
        let call = LuFactorArgs::of(args)?;
        let pivot = b.optional(call.pivot).map_or(Ok(true), |id| b.truth(id))?;
        let (pivot, yes) = (b.push(Value::Bool(pivot)), b.push(Value::Bool(true)));
        let (outs, status) = (b.outs(args)?, status(&b.info(call.a)?));
        first(b, Operator::LINALG_LU_FACTOR_EX, &[call.a, pivot, yes], &outs, &[status])
    }),
    (Operator::LINALG_MATRIX_NORM, |b, args| {
        let call = MatrixNormArgs::of(args)?;
        let order = b.number(call.ord)?;
        let (dims, keepdim) = (call.dim, b.truth(call.keepdim)?);
        let planes = planes(b, call.input, dims, call.out)?;
        let norm = match order.abs() {
            2.0 => spectral(b, planes, order > 0.0)?,
            1.0 | f64::INFINITY => sums(b, planes, order)?,
            _ => return Err(Error::Unsupported(format!("the matrix norm of order {order}"))),
        };
        finish(b, norm, keepdim, call.out)
    }),
    (Operator::LINALG_MATRIX_NORM_STR, |b, args| {
        let call = MatrixNormStrArgs::of(args)?;
        let (order, keepdim) = (b.text(call.ord)?, b.truth(call.keepdim)?);
        let planes = planes(b, call.input, call.dim, call.out)?;
        let rank = b.info(planes)?.rank();
        let norm = match order.as_deref().unwrap_or("fro") {
            "fro" => b.reduce(Operator::LINALG_VECTOR_NORM, planes, &[rank - 2, rank - 1])?,
            "nuc" => {
                let values = singular_values(b, planes)?;
                b.reduce(Operator::SUM_DIM_INT_LIST, values, &[rank - 2])?
            }
            order => return Err(Error::Invalid(format!("the matrix norm `{order}`"))),
        };
        finish(b, norm, keepdim, call.out)
    }),
    (Operator::LINALG_MATRIX_RANK, |b, args| {
        let call = MatrixRankArgs::of(args)?;
        let (atol, rtol) = (b.optional(call.atol), b.optional(call.rtol));
        matrix_rank(b, call.input, [atol, rtol], call.hermitian, call.out)
    }),
    (Operator::LINALG_MATRIX_RANK_FLOAT, |b, args| {
        let call = MatrixRankFloatArgs::of(args)?;
        let info = b.info(call.input)?;
        let mut tolerances = [None; 2];
        for (slot, given) in tolerances.iter_mut().zip([call.atol, call.rtol]) {
            if let Some(number) = b.optional_number(given)? {
                *slot = Some(b.filled(info.with_sizes(Vec::new()), number)?);
            }
        }
        matrix_rank(b, call.input, tolerances, call.hermitian, call.out)
    }),
    (Operator::LINALG_SOLVE, |b, args| {
        let call = SolveArgs::of(args)?;
        let info = b.info(call.a)?;
        let left = b.optional(call.left).map_or(Ok(true), |id| b.truth(id))?;
        let (left, yes) = (b.push(Value::Bool(left)), b.push(Value::Bool(true)));
        let further = [info.clone(), pivots(&info), status(&info)];
        first(b, Operator::LINALG_SOLVE_EX, &[call.a, call.b, left, yes], &[call.out], &further)
    }),
    (Operator::LINALG_SVD_COMPOSITE, |b, args| {
        let call = SvdArgs::of(args)?;
        let full = b.optional(call.full_matrices).map_or(Ok(true), |id| b.truth(id))?;
        let (full, yes, none) = (b.push(Value::Bool(full)), b.push(Value::Bool(true)), b.none());
        let outs = b.outs(args)?;
        first(b, Operator::LINALG_SVD, &[call.a, full, yes, none], &outs, &[])
    }),
    (Operator::LINALG_SVDVALS, |b, args| {
        let call = SvdvalsArgs::of(args)?;
        let values = singular_values(b, call.a)?;
        b.finish_with(values, call.out)
    }),
    (Operator::LOGDET, |b, args| {
        // Negative determinants have no logarithm.
        let (input, out) = b.ends(args)?;
        let info = b.info(input)?;
        let made = b.info(out)?;
        let (sign, log) = (b.new_tensor(made.clone()), b.new_tensor(made));
        let further = [info.clone(), pivots(&info)];
        first(b, Operator::LINALG_SLOGDET, &[input], &[sign, log], &further)?;
        let is_negative = b.compared(Operator::LT_SCALAR, sign, 0.0)?;
        let value = b.masked(log, is_negative, f64::NAN)?;
        b.finish_with(value, out)
    }),
    (Operator::SLOGDET, |b, args| {
        let (input, _) = b.ends(args)?;
        let info = b.info(input)?;
        let outs = b.outs(args)?;
        first(b, Operator::LINALG_SLOGDET, &[input], &outs, &[info.clone(), pivots(&info)])
    }),
];

/// Adds a call with these first outputs; `further` describes its other outputs.
fn first(
    b: &mut Builder<'_, '_>,
    operator: Operator,
    inputs: &[ValueId],
    outs: &[ValueId],
    further: &[Info],
) -> Result<(), Error> {
    let mut outs = outs.to_vec();
    for info in further {
        outs.push(b.new_tensor(info.clone()));
    }
    let list = b.push(Value::List(outs));
    b.call_into(operator, inputs, list);
    Ok(())
}

/// The leading dims of matrices.
fn batch(info: &Info) -> Vec<usize> {
    info.sizes.get(..info.rank().saturating_sub(2)).unwrap_or_default().to_vec()
}

/// The smaller size of matrices.
fn smaller(info: &Info) -> usize {
    let last_two = info.sizes.iter().rev().take(2);
    last_two.min().copied().unwrap_or(0)
}

/// The row that each step of an LU factorization swaps.
fn pivots(info: &Info) -> Info {
    let sizes = [batch(info), vec![smaller(info)]].concat();
    info.with_sizes(sizes).with_type(ScalarType::Int)
}

/// Whether a factorization failed, and at which step.
fn status(info: &Info) -> Info {
    info.with_sizes(batch(info)).with_type(ScalarType::Int)
}

/// The inverses of square matrices.
pub(super) fn inverse(b: &mut Builder<'_, '_>, input: ValueId) -> Result<ValueId, Error> {
    let info = b.info(input)?;
    let out = b.new_tensor(info);
    let call = [input, out];
    b.call_into(Operator::LINALG_INV, &call[..1], out);
    Ok(out)
}

fn singular_values(b: &mut Builder<'_, '_>, input: ValueId) -> Result<ValueId, Error> {
    let info = b.info(input)?;
    if is_complex(info.scalar_type) {
        return Err(Error::unsupported("singular values of complex matrices"));
    }
    let values = b.new_tensor(info.with_sizes([batch(&info), vec![smaller(&info)]].concat()));
    let (no, none) = (b.push(Value::Bool(false)), b.none());
    let [u, vh] = [0, 1].map(|_| b.new_tensor(info.with_sizes(vec![0])));
    let list = b.push(Value::List(vec![u, values, vh]));
    b.call_into(Operator::LINALG_SVD, &[input, no, no, none], list);
    Ok(values)
}

/// The largest or smallest element of a dim, which is dropped.
fn extreme(
    b: &mut Builder<'_, '_>,
    operator: Operator,
    value: ValueId,
    dim: usize,
) -> Result<ValueId, Error> {
    let info = b.info(value)?;
    let sizes = info.sizes.iter().enumerate().filter(|(at, _)| *at != dim);
    let made = info.with_sizes(sizes.map(|(_, size)| *size).collect());
    let (dims, no) = (b.new_ints(&[dim as i64]), b.push(Value::Bool(false)));
    Ok(b.call(operator, &[value, dims, no], made))
}

/// Matrices of two dims, which become the last ones, in the dtype of the output.
fn planes(
    b: &mut Builder<'_, '_>,
    input: ValueId,
    dims: Option<ValueId>,
    out: ValueId,
) -> Result<ValueId, Error> {
    b.refuse_complex(input, "a matrix norm")?;
    let input = b.cast(input, b.info(out)?.scalar_type)?;
    let info = b.info(input)?;
    let given = b.optional(dims).map_or(Ok(vec![-2, -1]), |dims| b.ints(dims))?;
    let [rows, columns] = given[..] else {
        return Err(Error::invalid("the norm of matrices: expected two dims"));
    };
    let dims = [info.dim(rows)?, info.dim(columns)?];
    // Dims before the last ones keep their order; `keepdim` needs them in place.
    let others = (0..info.rank()).filter(|dim| !dims.contains(dim));
    let order: Vec<usize> = others.chain(dims).collect();
    if order.len() != info.rank() || order.len() < 2 {
        return Err(Error::invalid("the norm of matrices: repeated dims"));
    }
    if order.is_sorted() { Ok(input) } else { b.permute(input, &order) }
}

/// The largest (or smallest) singular value.
fn spectral(b: &mut Builder<'_, '_>, planes: ValueId, is_largest: bool) -> Result<ValueId, Error> {
    let values = singular_values(b, planes)?;
    let last = b.info(values)?.rank().saturating_sub(1);
    let operator = if is_largest { Operator::AMAX } else { Operator::AMIN };
    extreme(b, operator, values, last)
}

/// The largest (or smallest) sum of absolute values of a column (order 1) or row (infinity).
fn sums(b: &mut Builder<'_, '_>, planes: ValueId, order: f64) -> Result<ValueId, Error> {
    let rank = b.info(planes)?.rank();
    let size = b.unary(Operator::ABS, planes)?;
    let (summed, compared) = match order.is_infinite() {
        true => (rank - 1, rank - 2),
        false => (rank - 2, rank - 1),
    };
    let sums = b.reduce(Operator::SUM_DIM_INT_LIST, size, &[summed])?;
    let operator = if order > 0.0 { Operator::AMAX } else { Operator::AMIN };
    b.reduce(operator, sums, &[compared])
}

/// Gives a norm the shape of the output, which may keep the dims.
fn finish(
    b: &mut Builder<'_, '_>,
    norm: ValueId,
    keepdim: bool,
    out: ValueId,
) -> Result<(), Error> {
    let what = if keepdim { "a norm of matrices that keeps dims" } else { "a norm of matrices" };
    let wanted = b.static_info(out, what)?.sizes;
    let norm = b.view_known(norm, &wanted)?;
    b.finish_with(norm, out)
}

/// The sum of the singular values.
fn nuclear_norm(
    b: &mut Builder<'_, '_>,
    input: ValueId,
    dim: Option<ValueId>,
    keepdim: Option<ValueId>,
    out: ValueId,
) -> Result<(), Error> {
    let order = b.push(Value::String("nuc".into()));
    let (dims, keepdim, none) = (b.new_ints(&[-2, -1]), b.truth(keepdim)?, b.none());
    let inputs = [input, order, dim.unwrap_or(dims), b.push(Value::Bool(keepdim)), none];
    b.call_into(Operator::LINALG_MATRIX_NORM_STR, &inputs, out);
    Ok(())
}

/// The number of singular values above a tolerance.
fn matrix_rank(
    b: &mut Builder<'_, '_>,
    input: ValueId,
    [atol, rtol]: [Option<ValueId>; 2],
    hermitian: Option<ValueId>,
    out: ValueId,
) -> Result<(), Error> {
    let info = b.info(input)?;
    if b.truth(hermitian)? || info.rank() < 2 {
        return Err(Error::unsupported("matrix_rank of Hermitian matrices"));
    }
    let sizes = info.sizes.iter().rev().take(2);
    let size = sizes.max().copied().unwrap_or(0);
    let epsilon = match info.scalar_type {
        ScalarType::Double => f64::EPSILON,
        _ => f64::from(f32::EPSILON),
    };
    let values = singular_values(b, input)?;
    let last = b.info(values)?.rank().saturating_sub(1);
    let most = b.reduce(Operator::AMAX, values, &[last])?;
    let raised = |b: &mut Builder<'_, '_>, value: ValueId| {
        let rank = b.info(value)?.rank();
        b.unsqueeze(value, rank)
    };
    let atol = atol.map(|atol| raised(b, atol)).transpose()?;
    let mut tolerance = match rtol {
        Some(rtol) => {
            let rtol = raised(b, rtol)?;
            b.binary(Operator::MUL_TENSOR, most, rtol)?
        }
        None => {
            let default = b.with_number(Operator::MUL_SCALAR, most, epsilon * size as f64)?;
            match atol {
                // An absolute tolerance replaces the default one unless it is 0.
                Some(atol) => {
                    let is_given = b.compared(Operator::GT_SCALAR, atol, 0.0)?;
                    b.masked(default, is_given, 0.0)?
                }
                None => default,
            }
        }
    };
    if let Some(atol) = atol {
        tolerance = b.binary(Operator::MAXIMUM, tolerance, atol)?;
    }
    let counted = b.comparison(Operator::GT_TENSOR, values, tolerance)?;
    let (dims, no, none) = (b.new_ints(&[-1]), b.push(Value::Bool(false)), b.none());
    b.call_into(Operator::SUM_DIM_INT_LIST, &[counted, dims, no, none], out);
    Ok(())
}
