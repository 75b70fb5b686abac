//! Reductions: norms, statistics, losses and distances.

use super::super::builder::broadcast_sizes;
use super::{Builder, Rule};
use crate::error::Error;
use crate::graph::{Value, ValueId};
use crate::operators::{
    CompositeCdistArgs, CosineSimilarityArgs, LinalgNormArgs, LogsumexpArgs, LossArgs, NormDimArgs,
    Operator, ReduceAllArgs, VarArgs, VarCorrectionArgs, VarDimArgs, WeightNormArgs,
};
use alloc::vec::Vec;

pub(in super::super) const RULES: &[(Operator, Rule)] = &[
    (Operator::CDIST, |b, args| {
        let call = CompositeCdistArgs::of(args)?;
        let p = b.optional_number(call.p)?.unwrap_or(2.0);
        let (p, mode) = (b.push(Value::Double(p)), b.none());
        b.call_into(Operator::CDIST_FORWARD, &[call.x1, call.x2, p, mode], call.out);
        Ok(())
    }),
    (Operator::COSINE_SIMILARITY, cosine_similarity),
    (Operator::LINALG_NORM, linalg_norm),
    (Operator::LOGSUMEXP, logsumexp),
    (Operator::MSE_LOSS, mse_loss),
    (Operator::NORM_DIM, |b, args| {
        let call = NormDimArgs::of(args)?;
        let p = b.optional_number(call.p)?.unwrap_or(2.0);
        let (p, none) = (b.new_number(p), b.none());
        let keepdim = b.truth(call.keepdim)?;
        let keepdim = b.push(Value::Bool(keepdim));
        let inputs = [call.input, p, call.dim, keepdim, none];
        b.call_into(Operator::LINALG_VECTOR_NORM, &inputs, call.out);
        Ok(())
    }),
    (Operator::NORM_SCALAR, |b, args| {
        let (input, out) = b.ends(args)?;
        let p = match args {
            [_, p, _] => b.optional_number(*p)?.unwrap_or(2.0),
            _ => 2.0,
        };
        let (p, none, no) = (b.new_number(p), b.none(), b.push(Value::Bool(false)));
        b.call_into(Operator::LINALG_VECTOR_NORM, &[input, p, none, no, none], out);
        Ok(())
    }),
    (Operator::STD, |b, args| statistics(b, args, Operator::STD_CORRECTION)),
    (Operator::STD_MEAN_CORRECTION, |b, args| {
        let call = VarCorrectionArgs::of(args)?;
        std_mean(b, args, &call.inputs())
    }),
    (Operator::SUM, |b, args| {
        let call = ReduceAllArgs::of(args)?;
        let (none, no) = (b.none(), b.push(Value::Bool(false)));
        let dtype = call.dtype.unwrap_or(none);
        b.call_into(Operator::SUM_DIM_INT_LIST, &[call.input, none, no, dtype], call.out);
        Ok(())
    }),
    (Operator::VAR, |b, args| statistics(b, args, Operator::VAR_CORRECTION)),
    (Operator::VAR_MEAN_DIM, |b, args| {
        let call = VarDimArgs::of(args)?;
        let unbiased = b.optional(call.unbiased).map_or(Ok(true), |id| b.truth(id))?;
        let correction = b.new_int(i64::from(unbiased));
        let keepdim = b.truth(call.keepdim)?;
        let keepdim = b.push(Value::Bool(keepdim));
        let inputs = [call.input, call.dim, correction, keepdim];
        b.call_into(Operator::VAR_MEAN_CORRECTION, &inputs, call.out);
        Ok(())
    }),
    (Operator::WEIGHT_NORM, |b, args| {
        let call = WeightNormArgs::of(args)?;
        let (scaled, _) = weight_norm(b, &call)?;
        b.finish_with(scaled, call.out)
    }),
    (Operator::WEIGHT_NORM_INTERFACE, |b, args| {
        let call = WeightNormArgs::of(args)?;
        let (scaled, norm) = weight_norm(b, &call)?;
        for (made, out) in [scaled, norm].into_iter().zip(b.outs(args)?) {
            b.finish_with(made, out)?;
        }
        Ok(())
    }),
];

/// Variance or standard deviation of all elements.
fn statistics(b: &mut Builder<'_, '_>, args: &[ValueId], operator: Operator) -> Result<(), Error> {
    let call = VarArgs::of(args)?;
    let unbiased = b.optional(call.unbiased).map_or(Ok(true), |id| b.truth(id))?;
    let (correction, none) = (b.new_int(i64::from(unbiased)), b.none());
    let no = b.push(Value::Bool(false));
    b.call_into(operator, &[call.input, none, correction, no], call.out);
    Ok(())
}

/// The standard deviation and the mean; `inputs` are those of `var_mean.correction`.
pub(super) fn std_mean(
    b: &mut Builder<'_, '_>,
    args: &[ValueId],
    inputs: &[ValueId],
) -> Result<(), Error> {
    let [std, mean] = b.outs(args)?[..] else {
        return Err(Error::invalid("std_mean: expected two outputs"));
    };
    let info = b.info(std)?;
    let variance = b.new_tensor(info);
    let list = b.push(Value::List([variance, mean].to_vec()));
    b.call_into(Operator::VAR_MEAN_CORRECTION, inputs, list);
    b.call_into(Operator::SQRT, &[variance], std);
    Ok(())
}

/// The norm of vectors, or of matrices if an order is given for two dims.
fn linalg_norm(b: &mut Builder<'_, '_>, args: &[ValueId]) -> Result<(), Error> {
    let call = LinalgNormArgs::of(args)?;
    let info = b.info(call.input)?;
    let order = b.optional_number(call.ord)?;
    let dims = match b.optional(call.dim) {
        Some(dim) => b.ints(dim)?.len(),
        None => info.rank(),
    };
    if let (Some(_), Some(order)) = (order, call.ord)
        && dims > 1
    {
        let last = b.new_ints(&[-2, -1]);
        let keepdim = b.truth(call.keepdim)?;
        let (keepdim, none) = (b.push(Value::Bool(keepdim)), b.none());
        let dim = b.optional(call.dim).unwrap_or(last);
        let inputs = [call.input, order, dim, keepdim, call.dtype.unwrap_or(none)];
        b.call_into(Operator::LINALG_MATRIX_NORM, &inputs, call.out);
        return Ok(());
    }
    let (none, order) = (b.none(), b.new_number(order.unwrap_or(2.0)));
    let keepdim = b.truth(call.keepdim)?;
    let keepdim = b.push(Value::Bool(keepdim));
    let (dim, dtype) = (call.dim.unwrap_or(none), call.dtype.unwrap_or(none));
    let inputs = [call.input, order, dim, keepdim, dtype];
    b.call_into(Operator::LINALG_VECTOR_NORM, &inputs, call.out);
    Ok(())
}

/// `log(sum(exp(x - max))) + max`, with a maximum of 0 where it is infinite.
fn logsumexp(b: &mut Builder<'_, '_>, args: &[ValueId]) -> Result<(), Error> {
    let call = LogsumexpArgs::of(args)?;
    let (input, info) = b.tensor(call.input)?;
    let mut dims = Vec::new();
    for dim in b.ints(call.dim)? {
        dims.push(info.dim(dim)?);
    }
    if dims.is_empty() {
        dims = (0..info.rank()).collect();
    }
    let out = b.info(call.out)?.scalar_type;
    let input = b.cast(input, out)?;
    let max = b.reduce(Operator::AMAX, input, &dims)?;
    let size = b.unary(Operator::ABS, max)?;
    let is_infinite = b.compared(Operator::EQ_SCALAR, size, f64::INFINITY)?;
    let max = b.masked(max, is_infinite, 0.0)?;
    let moved = b.binary(Operator::SUB_TENSOR, input, max)?;
    let powers = b.unary(Operator::EXP, moved)?;
    let sum = b.reduce(Operator::SUM_DIM_INT_LIST, powers, &dims)?;
    let log = b.unary(Operator::LOG, sum)?;
    let total = b.binary(Operator::ADD_TENSOR, log, max)?;
    if b.truth(call.keepdim)? {
        return b.finish_with(total, call.out);
    }
    let list: Vec<i64> = dims.iter().map(|dim| *dim as i64).collect();
    let list = b.new_ints(&list);
    b.call_into(Operator::SQUEEZE_COPY_DIMS, &[total, list], call.out);
    Ok(())
}

fn mse_loss(b: &mut Builder<'_, '_>, args: &[ValueId]) -> Result<(), Error> {
    let call = LossArgs::of(args)?;
    let difference = b.binary(Operator::SUB_TENSOR, call.input, call.target)?;
    let square = b.binary(Operator::MUL_TENSOR, difference, difference)?;
    let none = b.none();
    // 0: none, 1: mean, 2: sum.
    match b.optional(call.reduction).map_or(Ok(1), |id| b.int(id))? {
        0 => b.finish_with(square, call.out)?,
        1 => b.call_into(Operator::MEAN, &[square, none], call.out),
        _ => {
            let no = b.push(Value::Bool(false));
            b.call_into(Operator::SUM_DIM_INT_LIST, &[square, none, no, none], call.out);
        }
    }
    Ok(())
}

/// `sum(x / max(|x|, eps) * y / max(|y|, eps))` over a dim of the broadcast operands.
fn cosine_similarity(b: &mut Builder<'_, '_>, args: &[ValueId]) -> Result<(), Error> {
    let call = CosineSimilarityArgs::of(args)?;
    let eps = b.optional_number(call.eps)?.unwrap_or(1e-8);
    let dim = b.optional(call.dim).map_or(Ok(1), |dim| b.int(dim))?;
    let (one, other) = (b.info(call.x1)?, b.info(call.x2)?);
    let sizes = broadcast_sizes(&one.sizes, &other.sizes)?;
    if one.sizes != other.sizes && (one.dynamic || other.dynamic) {
        return Err(Error::unsupported("cosine_similarity of dynamic shapes that differ"));
    }
    let at = one.with_sizes(sizes.clone()).dim(dim)?;
    let mut units = Vec::new();
    for (x, info) in [(call.x1, one), (call.x2, other)] {
        let x = if info.sizes == sizes { x } else { b.expand(x, &sizes)? };
        let norm = b.reduce(Operator::LINALG_VECTOR_NORM, x, &[at])?;
        let norm = b.clamp(norm, Some(eps), None)?;
        units.push(b.binary(Operator::DIV_TENSOR, x, norm)?);
    }
    let [x, y] = units[..] else { return Ok(()) };
    let product = b.binary(Operator::MUL_TENSOR, x, y)?;
    let list = b.new_ints(&[at as i64]);
    let (no, none) = (b.push(Value::Bool(false)), b.none());
    b.call_into(Operator::SUM_DIM_INT_LIST, &[product, list, no, none], call.out);
    Ok(())
}

/// `v * g / |v|`, with norms over all dims but one. Also returns the norms.
fn weight_norm(
    b: &mut Builder<'_, '_>,
    call: &WeightNormArgs,
) -> Result<(ValueId, ValueId), Error> {
    let info = b.info(call.v)?;
    let dim = b.optional(call.dim).map_or(Ok(0), |dim| b.int(dim))?;
    let kept = if dim == -1 { None } else { Some(info.dim(dim)?) };
    let dims: Vec<usize> = (0..info.rank()).filter(|dim| Some(*dim) != kept).collect();
    let norm = b.reduce(Operator::LINALG_VECTOR_NORM, call.v, &dims)?;
    let factor = b.binary(Operator::DIV_TENSOR, call.g, norm)?;
    Ok((b.binary(Operator::MUL_TENSOR, call.v, factor)?, norm))
}
