//! Reductions.

use super::{Entry, operator};
use crate::encoder::{Encoder, read, u32_of, write};
use crate::error::Error;
use crate::tensors::Operand;
use torchlet_graph::graph::ValueId;
use torchlet_graph::operators::{
    ArgmaxArgs, Operator, ReduceDimArgs, SumArgs, VarCorrectionArgs, VarDimArgs,
};
use torchlet_shaders::functions::reduce;
use torchlet_shaders::{Element, Reduce, ReducePush};

pub(super) const OPERATORS: &[Entry] = &[
    operator(Operator::SUM_DIM_INT_LIST, |e, args| over_dims(e, args, Function::Sum, false)),
    operator(Operator::MEAN_DIM, |e, args| over_dims(e, args, Function::Sum, true)),
    operator(Operator::AMAX, |e, args| over_dims(e, args, Function::Max, false)),
    operator(Operator::AMIN, |e, args| over_dims(e, args, Function::Min, false)),
    operator(Operator::ARGMAX, |e, args| search(e, args, Function::ArgMax)),
    operator(Operator::ARGMIN, |e, args| search(e, args, Function::ArgMin)),
    operator(Operator::VAR_DIM, |e, args| {
        let call = VarDimArgs::of(args)?;
        let unbiased = e.optional_bool(call.unbiased)?.unwrap_or(true);
        let out = e.out(args)?.id;
        variance(e, args, if unbiased { 1.0 } else { 0.0 }, out, None)
    }),
    operator(Operator::VAR_CORRECTION, |e, args| {
        let (correction, out) = (correction(e, args)?, e.out(args)?.id);
        variance(e, args, correction, out, None)
    }),
    operator(Operator::VAR_MEAN_CORRECTION, |e, args| {
        let (correction, outs) = (correction(e, args)?, e.outs(args)?);
        let [out, mean] = outs[..] else {
            return Err(Error::Invalid(format!(
                "expected two outputs, variance and mean, found {}",
                outs.len()
            )));
        };
        variance(e, args, correction, out, Some(mean))
    }),
    operator(Operator::MEAN, |e, args| over_all(e, args, Function::Sum, true)),
    operator(Operator::MAX, |e, args| over_all(e, args, Function::Max, false)),
    operator(Operator::MIN, |e, args| over_all(e, args, Function::Min, false)),
    operator(Operator::ANY, |e, args| over_all(e, args, Function::Any, false)),
    operator(Operator::ANY_DIM, |e, args| over_dims(e, args, Function::Any, false)),
    operator(Operator::ANY_DIMS, |e, args| over_dims(e, args, Function::Any, false)),
    operator(Operator::ALL, |e, args| over_all(e, args, Function::All, false)),
    operator(Operator::ALL_DIM, |e, args| over_dims(e, args, Function::All, false)),
    operator(Operator::ALL_DIMS, |e, args| over_dims(e, args, Function::All, false)),
    operator(Operator::PROD, |e, args| over_all(e, args, Function::Prod, false)),
    operator(Operator::PROD_DIM_INT, |e, args| over_dims(e, args, Function::Prod, false)),
    operator(Operator::MAX_DIM, |e, args| extreme(e, args, [Function::Max, Function::ArgMax])),
    operator(Operator::MIN_DIM, |e, args| extreme(e, args, [Function::Min, Function::ArgMin])),
];

/// The functions of the reduction shader, with the values that the shader uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub(super) enum Function {
    Sum = reduce::SUM,
    Max = reduce::MAX,
    Min = reduce::MIN,
    ArgMax = reduce::ARGMAX,
    ArgMin = reduce::ARGMIN,
    SumExp = reduce::SUM_EXP,
    SumSquaredDifference = reduce::SUM_SQUARED_DIFFERENCE,
    SumSquares = reduce::SUM_SQUARES,
    Any = reduce::ANY,
    All = reduce::ALL,
    Prod = reduce::PROD,
}

impl Function {
    /// Returns the function that combines the partial results of a reduction, if one exists.
    fn after_parts(self) -> Option<Self> {
        match self {
            Function::SumExp | Function::SumSquaredDifference | Function::SumSquares => {
                Some(Function::Sum)
            }
            Function::ArgMax | Function::ArgMin => None,
            _ => Some(self),
        }
    }
}

/// Invocations per workgroup.
const WORKGROUP: u32 = 256;

/// Emits a reduction over the middle dim of `input`, viewed as `outer * count * inner`.
pub(super) fn emit(
    e: &mut Encoder<'_, '_>,
    function: Function,
    input: &Operand,
    other: Option<&Operand>,
    out: &Operand,
    [count, inner]: [usize; 2],
    scale: f64,
) -> Result<(), Error> {
    let parts = parts(e, out.numel(), count);
    let Some(after) = function.after_parts().filter(|_| parts > 1) else {
        return emit_part(e, function, input, other, out, [count, inner, 1], scale);
    };
    let partial = e.temporary(between(input, out), &[out.numel(), parts])?;
    let part = [count / parts, inner, parts];
    emit_part(e, function, input, other, &partial, part, 1.0)?;
    emit_part(e, after, &partial, None, out, [parts, inner, 1], scale)
}

/// Returns the element type of partial results. Integers stay integers, unless the result is
/// floating point, which does not overflow.
fn between(input: &Operand, out: &Operand) -> Element {
    match input.element.is_floating() || out.element.is_floating() {
        true => Element::F32,
        false => Element::I32,
    }
}

/// Returns the number of equal parts into which a reduction is divided.
fn parts(e: &Encoder<'_, '_>, numel: usize, count: usize) -> usize {
    let invocations = numel.div_ceil(4).saturating_mul(WORKGROUP as usize);
    // With dynamic shapes, a division could change the number of temporary tensors.
    let profile = e.profile().reduction;
    if count < profile.long || invocations >= e.busy() || e.is_of_varying_shapes() {
        return 1;
    }
    let most = (count / profile.part).min(WORKGROUP as usize);
    (1..=most).rev().find(|parts| count.is_multiple_of(*parts)).unwrap_or(1)
}

/// Emits one dispatch of a reduction. Each element of `other` belongs to `parts` consecutive
/// outputs.
fn emit_part(
    e: &mut Encoder<'_, '_>,
    function: Function,
    input: &Operand,
    other: Option<&Operand>,
    out: &Operand,
    [count, inner, parts]: [usize; 3],
    scale: f64,
) -> Result<(), Error> {
    let numel = out.numel();
    let push = ReducePush {
        numel: u32_of(numel)?,
        count: u32_of(count)?,
        inner: u32_of(inner.max(1))?,
        parts: u32_of(parts)?,
        scale: scale as f32,
    };
    let other_operand = other.unwrap_or(input);
    let pipeline = Reduce {
        function: function as u32,
        input: input.element,
        other: other_operand.element,
        output: out.element,
    };
    // Few invocations share a short reduction, many share a long one.
    let lanes = (count.div_ceil(4).next_power_of_two() as u32).clamp(1, WORKGROUP);
    let rows = (WORKGROUP / lanes).min((numel.div_ceil(4) as u32).next_power_of_two()).max(1);
    let [lanes, rows] = e.as_planned([lanes, rows]);
    let accesses = [read(input.id), read(other_operand.id), write(out.id)];
    let invocations = [lanes as usize, numel.div_ceil(4)];
    e.dispatch_along_y(&pipeline, accesses, &push, invocations, [lanes, rows])
}

/// Returns the indices of the dims to reduce, sorted and without duplicates. An empty list
/// means all dims.
fn dims_of(input: &Operand, dims: &[i64]) -> Result<Vec<usize>, Error> {
    if dims.is_empty() {
        return Ok((0..input.rank()).collect());
    }
    let mut found = Vec::new();
    for dim in dims {
        let dim = input.dim(*dim)?;
        if dim < input.rank() && !found.contains(&dim) {
            found.push(dim);
        }
    }
    found.sort_unstable();
    Ok(found)
}

pub(super) fn reduced_sizes(input: &Operand, dims: &[usize], keep: bool) -> Vec<usize> {
    let sizes = input.sizes.iter().enumerate();
    if keep {
        sizes.map(|(dim, size)| if dims.contains(&dim) { 1 } else { *size }).collect()
    } else {
        sizes.filter(|(dim, _)| !dims.contains(dim)).map(|(_, size)| *size).collect()
    }
}

/// Reduces several dims, with one dispatch per group of adjacent dims, innermost first.
fn reduce_dims(
    e: &mut Encoder<'_, '_>,
    function: Function,
    input: &Operand,
    out: &Operand,
    dims: &[usize],
    scale: f64,
) -> Result<(), Error> {
    let mut runs: Vec<(usize, usize)> = Vec::new();
    for dim in dims {
        match runs.last_mut() {
            Some((_, end)) if *end == *dim => *end += 1,
            _ => runs.push((*dim, *dim + 1)),
        }
    }
    if runs.is_empty() {
        // If no dim is reduced, the reduction is over a dim of size one.
        runs.push((input.rank(), input.rank()));
    }
    let mut current = input.clone();
    while let Some((start, end)) = runs.pop() {
        let count: usize = current.sizes[start..end].iter().product();
        let inner: usize = current.sizes[end..].iter().product();
        let last = runs.is_empty();
        let target = if last {
            out.clone()
        } else {
            let mut sizes = current.sizes.clone();
            sizes[start..end].fill(1);
            e.temporary(between(&current, out), &sizes)?
        };
        emit(e, function, &current, None, &target, [count, inner], if last { scale } else { 1.0 })?;
        current = target;
    }
    Ok(())
}

/// Whether reduced dims stay, with size one (`keepdim`).
pub(super) fn keep_dim(e: &Encoder<'_, '_>, keep: Option<ValueId>) -> Result<bool, Error> {
    Ok(e.optional_bool(keep)?.unwrap_or(false))
}

fn over_dims(
    e: &mut Encoder<'_, '_>,
    args: &[ValueId],
    function: Function,
    mean: bool,
) -> Result<(), Error> {
    let call = SumArgs::of(args)?;
    let input = e.tensor(call.input)?;
    let dims = e.optional_ints(call.dim)?.unwrap_or_default();
    let dims = dims_of(&input, &dims)?;
    let keep = keep_dim(e, call.keepdim)?;
    reduce(e, args, &input, &dims, keep, function, mean)
}

/// Reduces all dims. Further arguments of the call set the output type, which is known from
/// the output.
fn over_all(
    e: &mut Encoder<'_, '_>,
    args: &[ValueId],
    function: Function,
    mean: bool,
) -> Result<(), Error> {
    let input = e.tensor(e.ends(args)?.0)?;
    let dims: Vec<usize> = (0..input.rank()).collect();
    reduce(e, args, &input, &dims, false, function, mean)
}

fn reduce(
    e: &mut Encoder<'_, '_>,
    args: &[ValueId],
    input: &Operand,
    dims: &[usize],
    keep: bool,
    function: Function,
    mean: bool,
) -> Result<(), Error> {
    let out = e.out(args)?;
    let out = e.resize(out.id, &reduced_sizes(input, dims, keep))?;
    let count: usize = dims.iter().map(|dim| input.size(*dim)).product();
    let scale = if mean { 1.0 / count as f64 } else { 1.0 };
    reduce_dims(e, function, input, &out, dims, scale)
}

/// Encodes extreme values over one dim, and their indices.
fn extreme(
    e: &mut Encoder<'_, '_>,
    args: &[ValueId],
    functions: [Function; 2],
) -> Result<(), Error> {
    let call = ReduceDimArgs::of(args)?;
    let input = e.tensor(call.input)?;
    let dim = input.dim(e.int(call.dim)?)?;
    let sizes = reduced_sizes(&input, &[dim], keep_dim(e, call.keepdim)?);
    let shape = [input.size(dim), input.sizes.iter().skip(dim + 1).product()];
    for (function, out) in functions.into_iter().zip(e.outs(args)?) {
        let out = e.resize(out, &sizes)?;
        emit(e, function, &input, None, &out, shape, 1.0)?;
    }
    Ok(())
}

fn search(e: &mut Encoder<'_, '_>, args: &[ValueId], function: Function) -> Result<(), Error> {
    let call = ArgmaxArgs::of(args)?;
    let input = e.tensor(call.input)?;
    let dim = e.optional_int(call.dim)?;
    let keep = keep_dim(e, call.keepdim)?;
    let out = e.out(args)?;
    let (sizes, shape) = match dim {
        Some(dim) => {
            let dim = input.dim(dim)?;
            let inner = input.sizes.iter().skip(dim + 1).product();
            (reduced_sizes(&input, &[dim], keep), [input.size(dim), inner])
        }
        None => {
            let all: Vec<usize> = (0..input.rank()).collect();
            (reduced_sizes(&input, &all, keep), [input.numel(), 1])
        }
    };
    let out = e.resize(out.id, &sizes)?;
    emit(e, function, &input, None, &out, shape, 1.0)
}

/// Returns the correction argument (Bessel's correction) of a variance.
fn correction(e: &Encoder<'_, '_>, args: &[ValueId]) -> Result<f64, Error> {
    let call = VarCorrectionArgs::of(args)?;
    Ok(e.optional_float(call.correction)?.unwrap_or(1.0))
}

/// Encodes a variance with this correction, and the mean if it is an output.
fn variance(
    e: &mut Encoder<'_, '_>,
    args: &[ValueId],
    correction: f64,
    out: ValueId,
    mean: Option<ValueId>,
) -> Result<(), Error> {
    let call = VarCorrectionArgs::of(args)?;
    let input = e.tensor(call.input)?;
    let dims = e.optional_ints(call.dim)?.unwrap_or_default();
    let dims = dims_of(&input, &dims)?;
    let keep = keep_dim(e, call.keepdim)?;
    let sizes = reduced_sizes(&input, &dims, keep);
    let out = e.resize(out, &sizes)?;
    let count: usize = dims.iter().map(|dim| input.size(*dim)).product();
    let neighbours = dims.windows(2).all(|pair| pair[1] == pair[0] + 1);
    let (input, dims) = if neighbours {
        (input, dims)
    } else {
        // The reduced dims are moved to the end.
        let kept = (0..input.rank()).filter(|dim| !dims.contains(dim));
        let order: Vec<usize> = kept.chain(dims.iter().copied()).collect();
        let ordered = super::views::permuted(e, &input, &order)?;
        (ordered, (input.rank() - dims.len()..input.rank()).collect())
    };
    let end = dims.last().map_or(input.rank(), |dim| dim + 1);
    let inner: usize = input.sizes[end..].iter().product();
    let mean = mean.map(|mean| e.resize(mean, &sizes)).transpose()?;
    let means = match &mean {
        Some(mean) if mean.element == Element::F32 => mean.clone(),
        _ => e.temporary(Element::F32, &[out.numel()])?,
    };
    let divisor = (count as f64 - correction).max(0.0);
    emit(e, Function::Sum, &input, None, &means, [count, inner], 1.0 / count as f64)?;
    if let Some(mean) = mean.filter(|mean| mean.id != means.id) {
        super::views::copy_all(e, &means, &mean)?;
    }
    let scale = 1.0 / divisor;
    emit(e, Function::SumSquaredDifference, &input, Some(&means), &out, [count, inner], scale)
}
