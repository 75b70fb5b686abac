//! Statistics: quantiles, sums without NaNs, numerical integration and differentiation.

use super::reduction::std_mean;
use super::{Builder, Info, Rule};
use crate::error::Error;
use crate::graph::{Value, ValueId};
use crate::operators::{
    AminmaxArgs, CountNonzeroArgs, GradientArgs, NanSumArgs, Operator, QuantileArgs, RenormArgs,
    TrapezoidDxArgs, TrapezoidXArgs, VarArgs, VarDimArgs,
};
use alloc::format;
use alloc::vec;
use alloc::vec::Vec;
use torchlet_core::ScalarType;

pub(in super::super) const RULES: &[(Operator, Rule)] = &[
    (Operator::AMINMAX, |b, args| {
        let call = AminmaxArgs::of(args)?;
        let dims = b.ints(call.dim)?;
        let (dims, keep) = (b.new_ints(&dims), b.truth(call.keepdim)?);
        let keep = b.push(Value::Bool(keep));
        for (operator, out) in [Operator::AMIN, Operator::AMAX].into_iter().zip(b.outs(args)?) {
            b.call_into(operator, &[call.input, dims, keep], out);
        }
        Ok(())
    }),
    (Operator::COUNT_NONZERO, |b, args| {
        let call = CountNonzeroArgs::of(args)?;
        let counted = b.compared(Operator::NE_SCALAR, call.input, 0.0)?;
        let (none, no) = (b.none(), b.push(Value::Bool(false)));
        let dims = call.dim.unwrap_or(none);
        b.call_into(Operator::SUM_DIM_INT_LIST, &[counted, dims, no, none], call.out);
        Ok(())
    }),
    (Operator::CUMULATIVE_TRAPEZOID_DX, |b, args| trapezoid_dx(b, args, true)),
    (Operator::CUMULATIVE_TRAPEZOID_X, |b, args| trapezoid_x(b, args, true)),
    (Operator::GRADIENT, gradient),
    (Operator::MSORT, |b, args| {
        let (input, out) = b.ends(args)?;
        if b.info(input)?.rank() == 0 {
            return b.stand_in(input, out);
        }
        let indices = b.new_tensor(b.info(input)?.with_type(ScalarType::Long));
        let (dim, no) = (b.new_int(0), b.push(Value::Bool(false)));
        let list = b.push(Value::List(vec![out, indices]));
        b.call_into(Operator::SORT, &[input, dim, no], list);
        Ok(())
    }),
    (Operator::NANMEAN, nanmean),
    (Operator::NANQUANTILE, |b, args| quantile(b, args, true)),
    (Operator::NANSUM, |b, args| {
        let call = NanSumArgs::of(args)?;
        let input = without_nan(b, call.input)?;
        summed(b, input, &call, call.out)
    }),
    (Operator::PDIST, |b, args| {
        let (input, out) = b.ends(args)?;
        let p = match args {
            [_, p, _] => b.optional_number(*p)?.unwrap_or(2.0),
            _ => 2.0,
        };
        let p = b.push(Value::Double(p));
        b.call_into(Operator::PDIST_FORWARD, &[input, p], out);
        Ok(())
    }),
    (Operator::QUANTILE, |b, args| quantile(b, args, false)),
    (Operator::RENORM, renorm),
    (Operator::STD_MEAN, |b, args| {
        let call = VarArgs::of(args)?;
        let inputs = corrected(b, call.input, None, call.unbiased, None)?;
        std_mean(b, args, &inputs)
    }),
    (Operator::STD_MEAN_DIM, |b, args| {
        let call = VarDimArgs::of(args)?;
        let inputs = corrected(b, call.input, Some(call.dim), call.unbiased, call.keepdim)?;
        std_mean(b, args, &inputs)
    }),
    (Operator::TRACE, |b, args| {
        let (input, out) = b.ends(args)?;
        let info = b.info(input)?;
        let made = info.with_sizes(vec![info.size(0).min(info.size(1))]);
        let (zero, one) = (b.new_int(0), b.new_int(1));
        let diagonal = b.call(Operator::DIAGONAL_COPY, &[input, zero, zero, one], made);
        let (none, no) = (b.none(), b.push(Value::Bool(false)));
        b.call_into(Operator::SUM_DIM_INT_LIST, &[diagonal, none, no, none], out);
        Ok(())
    }),
    (Operator::TRAPEZOID_DX, |b, args| trapezoid_dx(b, args, false)),
    (Operator::TRAPEZOID_X, |b, args| trapezoid_x(b, args, false)),
    (Operator::VAR_MEAN, |b, args| {
        let call = VarArgs::of(args)?;
        let inputs = corrected(b, call.input, None, call.unbiased, None)?;
        b.call_into(Operator::VAR_MEAN_CORRECTION, &inputs, call.out);
        Ok(())
    }),
];

/// The arguments of `var_mean.correction`.
fn corrected(
    b: &mut Builder<'_, '_>,
    input: ValueId,
    dim: Option<ValueId>,
    unbiased: Option<ValueId>,
    keepdim: Option<ValueId>,
) -> Result<[ValueId; 4], Error> {
    let unbiased = b.optional(unbiased).map_or(Ok(true), |id| b.truth(id))?;
    let keepdim = b.truth(keepdim)?;
    let none = b.none();
    let correction = b.new_int(i64::from(unbiased));
    Ok([input, dim.unwrap_or(none), correction, b.push(Value::Bool(keepdim))])
}

fn without_nan(b: &mut Builder<'_, '_>, input: ValueId) -> Result<ValueId, Error> {
    if !b.info(input)?.scalar_type.is_floating() {
        return Ok(input);
    }
    let is_nan = b.comparison(Operator::NE_TENSOR, input, input)?;
    b.masked(input, is_nan, 0.0)
}

fn summed(
    b: &mut Builder<'_, '_>,
    input: ValueId,
    call: &NanSumArgs,
    out: ValueId,
) -> Result<(), Error> {
    let keepdim = b.truth(call.keepdim)?;
    let (none, keepdim) = (b.none(), b.push(Value::Bool(keepdim)));
    let (dim, dtype) = (call.dim.unwrap_or(none), call.dtype.unwrap_or(none));
    b.call_into(Operator::SUM_DIM_INT_LIST, &[input, dim, keepdim, dtype], out);
    Ok(())
}

fn nanmean(b: &mut Builder<'_, '_>, args: &[ValueId]) -> Result<(), Error> {
    let call = NanSumArgs::of(args)?;
    let made = b.info(call.out)?;
    let input = without_nan(b, call.input)?;
    let sum = b.new_tensor(made.clone());
    summed(b, input, &call, sum)?;
    let counted = b.comparison(Operator::EQ_TENSOR, call.input, call.input)?;
    let count = b.new_tensor(made.with_type(ScalarType::Long));
    summed(b, counted, &NanSumArgs { dtype: None, ..call }, count)?;
    b.call_into(Operator::DIV_TENSOR, &[sum, count], call.out);
    Ok(())
}

/// Sorts a dim, and interpolates between the elements beside the positions `q * (size - 1)`.
/// Without `ignores_nan`, a NaN is the quantile, since NaNs come last.
fn quantile(b: &mut Builder<'_, '_>, args: &[ValueId], ignores_nan: bool) -> Result<(), Error> {
    let call = QuantileArgs::of(args)?;
    let mut info = b.static_info(call.input, "quantile")?;
    let mut input = call.input;
    let dim = match b.optional(call.dim) {
        Some(dim) if info.rank() > 0 => info.dim(b.int(dim)?)?,
        _ => {
            input = b.flat(input)?;
            info = b.info(input)?;
            0
        }
    };
    let size = info.size(dim);
    if size == 0 {
        return Err(Error::invalid("quantile of no elements"));
    }
    let order: Vec<usize> = (0..info.rank()).filter(|at| *at != dim).chain([dim]).collect();
    let input = b.permute(input, &order)?;
    let info = b.info(input)?;
    let last = info.rank().saturating_sub(1);
    // The positions: `[..., quantiles]`.
    let q = b.cast(call.q, info.scalar_type)?;
    let q = b.flat(q)?;
    let mut sizes = info.sizes.clone();
    if let Some(slot) = sizes.last_mut() {
        *slot = b.info(q)?.size(0);
    }
    let is_nan = b.comparison(Operator::NE_TENSOR, input, input)?;
    let positions = if ignores_nan {
        let is_number = b.unary(Operator::LOGICAL_NOT, is_nan)?;
        let is_number = b.cast(is_number, info.scalar_type)?;
        let count = b.reduce(Operator::SUM_DIM_INT_LIST, is_number, &[last])?;
        let highest = b.with_number(Operator::SUB_SCALAR, count, 1.0)?;
        let positions = b.binary(Operator::MUL_TENSOR, highest, q)?;
        b.clamp(positions, Some(0.0), None)?
    } else {
        let positions = b.with_number(Operator::MUL_SCALAR, q, (size - 1) as f64)?;
        let positions = b.expand(positions, &sizes)?;
        let is_nan = b.cast(is_nan, info.scalar_type)?;
        let is_nan = b.reduce(Operator::AMAX, is_nan, &[last])?;
        let is_nan = b.compared(Operator::NE_SCALAR, is_nan, 0.0)?;
        b.masked(positions, is_nan, (size - 1) as f64)?
    };
    let indices = b.new_tensor(info.with_type(ScalarType::Long));
    let sorted = b.new_tensor(info.clone());
    let (at, no) = (b.new_int(last as i64), b.push(Value::Bool(false)));
    let list = b.push(Value::List(vec![sorted, indices]));
    b.call_into(Operator::SORT, &[input, at, no], list);
    let value = interpolated(b, sorted, positions, b.text(call.interpolation)?.as_deref())?;
    // The quantiles come first, if they are a vector.
    let value = match b.info(call.q)?.rank() {
        0 => value,
        _ => {
            let order: Vec<usize> = [last].into_iter().chain(0..last).collect();
            b.permute(value, &order)?
        }
    };
    let wanted = b.info(call.out)?.sizes;
    let value = b.view_known(value, &wanted)?;
    b.finish_with(value, call.out)
}

/// The elements of the last dim at fractional positions.
fn interpolated(
    b: &mut Builder<'_, '_>,
    values: ValueId,
    positions: ValueId,
    mode: Option<&str>,
) -> Result<ValueId, Error> {
    let made: Info = b.info(positions)?;
    let chosen = |b: &mut Builder<'_, '_>, rounding: Operator| -> Result<[ValueId; 2], Error> {
        let rounded = b.unary(rounding, positions)?;
        let index = b.cast(rounded, ScalarType::Long)?;
        let (dim, no) = (b.new_int(-1), b.push(Value::Bool(false)));
        Ok([rounded, b.call(Operator::GATHER, &[values, dim, index, no], made.clone())])
    };
    let mode = mode.unwrap_or("linear");
    match mode {
        "lower" => return Ok(chosen(b, Operator::FLOOR)?[1]),
        "higher" => return Ok(chosen(b, Operator::CEIL)?[1]),
        "nearest" => return Ok(chosen(b, Operator::ROUND)?[1]),
        "linear" | "midpoint" => {}
        _ => return Err(Error::Invalid(format!("quantile with the interpolation `{mode}`"))),
    }
    let ([below, low], [_, high]) = (chosen(b, Operator::FLOOR)?, chosen(b, Operator::CEIL)?);
    let difference = b.binary(Operator::SUB_TENSOR, high, low)?;
    let part = if mode == "midpoint" {
        b.with_number(Operator::MUL_SCALAR, difference, 0.5)?
    } else {
        let weight = b.binary(Operator::SUB_TENSOR, positions, below)?;
        b.binary(Operator::MUL_TENSOR, difference, weight)?
    };
    b.binary(Operator::ADD_TENSOR, low, part)
}

/// Scales the slices of a dim whose norm is too large.
fn renorm(b: &mut Builder<'_, '_>, args: &[ValueId]) -> Result<(), Error> {
    let call = RenormArgs::of(args)?;
    let info = b.info(call.input)?;
    let dim = info.dim(b.int(call.dim)?)?;
    let most = b.number(call.maxnorm)?;
    let dims: Vec<i64> = (0..info.rank()).filter(|at| *at != dim).map(|at| at as i64).collect();
    let sizes = (0..info.rank()).map(|at| if at == dim { info.size(at) } else { 1 }).collect();
    let (dims, keep, none) = (b.new_ints(&dims), b.push(Value::Bool(true)), b.none());
    let inputs = [call.input, call.p, dims, keep, none];
    let norm = b.call(Operator::LINALG_VECTOR_NORM, &inputs, info.with_sizes(sizes));
    let divisor = b.with_number(Operator::ADD_SCALAR, norm, 1e-7)?;
    let factor = b.unary(Operator::RECIPROCAL, divisor)?;
    let factor = b.with_number(Operator::MUL_SCALAR, factor, most)?;
    // Slices whose norm is NaN stay.
    let is_large = b.compared(Operator::GT_SCALAR, norm, most)?;
    let stays = b.unary(Operator::LOGICAL_NOT, is_large)?;
    let factor = b.masked(factor, stays, 1.0)?;
    let scaled = b.binary(Operator::MUL_TENSOR, call.input, factor)?;
    b.finish_with(scaled, call.out)
}

/// Parts of a dim: all elements but those at the ends.
fn inner(
    b: &mut Builder<'_, '_>,
    value: ValueId,
    dim: usize,
    front: usize,
    behind: usize,
) -> Result<ValueId, Error> {
    let size = b.static_info(value, "a numerical integral or derivative")?.size(dim);
    let end = size.saturating_sub(behind);
    b.slice_known(value, dim, front.min(end), end, 1)
}

/// Sums of adjacent elements, multiplied by their distances if these differ.
fn trapezoids(
    b: &mut Builder<'_, '_>,
    y: ValueId,
    dim: usize,
    distances: Option<ValueId>,
) -> Result<ValueId, Error> {
    let (left, right) = (inner(b, y, dim, 0, 1)?, inner(b, y, dim, 1, 0)?);
    let sums = b.binary(Operator::ADD_TENSOR, left, right)?;
    match distances {
        Some(distances) => b.binary(Operator::MUL_TENSOR, sums, distances),
        None => Ok(sums),
    }
}

/// The sum, or the running sum, of the areas under a piecewise linear function.
fn integral(
    b: &mut Builder<'_, '_>,
    areas: ValueId,
    dim: usize,
    factor: f64,
    is_running: bool,
    out: ValueId,
) -> Result<(), Error> {
    let made = b.info(out)?;
    let (none, no) = (b.none(), b.push(Value::Bool(false)));
    let areas = b.cast(areas, made.scalar_type)?;
    let sum = if is_running {
        let at = b.new_int(dim as i64);
        b.call(Operator::CUMSUM, &[areas, at, none], made)
    } else {
        let dims = b.new_ints(&[dim as i64]);
        b.call(Operator::SUM_DIM_INT_LIST, &[areas, dims, no, none], made)
    };
    let sum = b.with_number(Operator::MUL_SCALAR, sum, factor)?;
    b.finish_with(sum, out)
}

fn trapezoid_dx(b: &mut Builder<'_, '_>, args: &[ValueId], is_running: bool) -> Result<(), Error> {
    let call = TrapezoidDxArgs::of(args)?;
    let dim = b.optional(call.dim).map_or(Ok(-1), |dim| b.int(dim))?;
    let dim = b.info(call.y)?.dim(dim)?;
    let dx = b.optional_number(call.dx)?.unwrap_or(1.0);
    if !b.info(call.y)?.scalar_type.is_floating() {
        // PyTorch adds the ends in the type of the integers, where they may overflow.
        return Err(Error::unsupported("a numerical integral of integers"));
    }
    if is_running {
        let areas = trapezoids(b, call.y, dim, None)?;
        let areas = b.with_number(Operator::MUL_SCALAR, areas, dx / 2.0)?;
        return integral(b, areas, dim, 1.0, is_running, call.out);
    }
    // The sum without half of the ends.
    let size = b.static_info(call.y, "a numerical integral")?.size(dim);
    let made = b.info(call.out)?;
    let (dims, none) = (b.new_ints(&[dim as i64]), b.none());
    let no = b.push(Value::Bool(false));
    let mut sum = b.call(Operator::SUM_DIM_INT_LIST, &[call.y, dims, no, none], made.clone());
    if size > 0 {
        let mut ends = Vec::new();
        for at in [0, size - 1] {
            let end = b.slice_known(call.y, dim, at, at + 1, 1)?;
            ends.push(b.view_known(end, &made.sizes)?);
        }
        let ends = b.binary(Operator::ADD_TENSOR, ends[0], ends[1])?;
        let half = b.with_number(Operator::MUL_SCALAR, ends, 0.5)?;
        sum = b.binary(Operator::SUB_TENSOR, sum, half)?;
    }
    let value = b.with_number(Operator::MUL_SCALAR, sum, dx)?;
    b.finish_with(value, call.out)
}

fn trapezoid_x(b: &mut Builder<'_, '_>, args: &[ValueId], is_running: bool) -> Result<(), Error> {
    let call = TrapezoidXArgs::of(args)?;
    let dim = b.optional(call.dim).map_or(Ok(-1), |dim| b.int(dim))?;
    let info = b.info(call.y)?;
    let dim = info.dim(dim)?;
    let mut x = call.x;
    // A vector has the positions of the dim; other tensors broadcast.
    if b.info(x)?.rank() == 1 {
        for _ in dim + 1..info.rank() {
            let rank = b.info(x)?.rank();
            x = b.unsqueeze(x, rank)?;
        }
    }
    while b.info(x)?.rank() < info.rank() {
        x = b.unsqueeze(x, 0)?;
    }
    let (right, left) = (inner(b, x, dim, 1, 0)?, inner(b, x, dim, 0, 1)?);
    let distances = b.binary(Operator::SUB_TENSOR, right, left)?;
    let areas = trapezoids(b, call.y, dim, Some(distances))?;
    integral(b, areas, dim, 0.5, is_running, call.out)
}

/// Central differences, and one-sided ones at the ends.
fn gradient(b: &mut Builder<'_, '_>, args: &[ValueId]) -> Result<(), Error> {
    let call = GradientArgs::of(args)?;
    if b.optional(call.edge_order).map_or(Ok(1), |order| b.int(order))? != 1 {
        return Err(Error::unsupported("gradient with an edge order of 2"));
    }
    let spacing = b.optional_number(call.spacing)?.unwrap_or(1.0);
    let info = b.static_info(call.input, "gradient")?;
    let dims = match b.optional(call.dim) {
        Some(dims) => b.ints(dims)?,
        None => (0..info.rank() as i64).collect(),
    };
    for (dim, out) in dims.into_iter().zip(b.outs(args)?) {
        let dim = info.dim(dim)?;
        let size = info.size(dim);
        if size < 2 {
            return Err(Error::invalid("gradient of a dim with less than 2 elements"));
        }
        let input = b.cast(call.input, b.info(out)?.scalar_type)?;
        let mut parts = Vec::new();
        for (low, high, distance) in [(0..1, 1..2, 1.0), (0..size - 2, 2..size, 2.0)] {
            let low = b.slice_known(input, dim, low.start, low.end, 1)?;
            let high = b.slice_known(input, dim, high.start, high.end, 1)?;
            let difference = b.binary(Operator::SUB_TENSOR, high, low)?;
            parts.push(b.with_number(Operator::DIV_SCALAR, difference, spacing * distance)?);
        }
        let low = b.slice_known(input, dim, size - 2, size - 1, 1)?;
        let high = b.slice_known(input, dim, size - 1, size, 1)?;
        let difference = b.binary(Operator::SUB_TENSOR, high, low)?;
        parts.push(b.with_number(Operator::DIV_SCALAR, difference, spacing)?);
        let value = b.cat(&parts, dim)?;
        b.finish_with(value, out)?;
    }
    Ok(())
}
