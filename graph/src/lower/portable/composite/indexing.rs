//! Gathers, scatters and sorts.

use super::shape::sizes_of;
use super::{Builder, Info, Rule};
use crate::error::Error;
use crate::graph::{Value, ValueId};
use crate::operators::{
    GridSamplerArgs, IndexAddArgs, IndexCopyArgs, IndexFillArgs, MaskedFillTensorArgs, OneHotArgs,
    Operator, TakeAlongDimArgs,
};
use alloc::vec;
use torchlet_core::ScalarType;

pub(in super::super) const RULES: &[(Operator, Rule)] = &[
    (Operator::ARGSORT, |b, args| argsort(b, args, Operator::SORT)),
    (Operator::ARGSORT_STABLE, |b, args| argsort(b, args, Operator::SORT_STABLE)),
    (Operator::GRID_SAMPLER, |b, args| {
        let call = GridSamplerArgs::of(args)?;
        let operator = match b.info(call.input)?.rank() {
            4 => Operator::GRID_SAMPLER_2D,
            _ => Operator::GRID_SAMPLER_3D,
        };
        b.call_into(operator, &call.inputs(), call.out);
        Ok(())
    }),
    (Operator::INDEX_ADD, index_add),
    (Operator::INDEX_COPY, |b, args| {
        let call = IndexCopyArgs::of(args)?;
        put(b, call.input, call.dim, call.index, call.source, call.out)
    }),
    (Operator::INDEX_FILL, |b, args| {
        let call = IndexFillArgs::of(args)?;
        let scalar_type = b.info(call.input)?.scalar_type;
        let info = Info { scalar_type, sizes: vec![], dynamic: false };
        let (empty, none) = (b.new_ints(&[]), b.none());
        let value = b.call(Operator::FULL, &[empty, call.value, none, none, none, none], info);
        put(b, call.input, call.dim, call.index, value, call.out)
    }),
    (Operator::MASKED_FILL_TENSOR, |b, args| {
        let call = MaskedFillTensorArgs::of(args)?;
        let value = b.cast(call.value, b.info(call.input)?.scalar_type)?;
        b.call_into(Operator::WHERE_SELF, &[call.mask, value, call.input], call.out);
        Ok(())
    }),
    (Operator::ONE_HOT, one_hot),
    (Operator::TAKE_ALONG_DIM, take_along_dim),
];

/// The indices that sorting returns.
fn argsort(b: &mut Builder<'_, '_>, args: &[ValueId], operator: Operator) -> Result<(), Error> {
    let (input, out) = b.ends(args)?;
    let info = b.info(input)?;
    let values = b.new_tensor(info);
    let list = b.push(Value::List(vec![values, out]));
    let inputs = args.split_last().map_or(&[][..], |(_, inputs)| inputs);
    b.call_into(operator, inputs, list);
    Ok(())
}

/// Adds slices of a tensor at positions of a dim, which may repeat.
fn index_add(b: &mut Builder<'_, '_>, args: &[ValueId]) -> Result<(), Error> {
    let call = IndexAddArgs::of(args)?;
    let info = b.info(call.source)?;
    let dim = info.dim(b.int(call.dim)?)?;
    let mut source = call.source;
    let alpha = b.optional_number(call.alpha)?.unwrap_or(1.0);
    if alpha != 1.0 {
        source = b.with_number(Operator::MUL_SCALAR, source, alpha)?;
    }
    let mut index = call.index;
    for at in 0..info.rank() {
        if at != dim {
            index = b.unsqueeze(index, at)?;
        }
    }
    let sizes = sizes_of(b, call.source)?;
    let (list, no) = (b.sizes(&sizes)?, b.push(Value::Bool(false)));
    let made = info.with_type(b.info(index)?.scalar_type);
    let index = b.call(Operator::EXPAND_COPY, &[index, list, no], made);
    let at = b.new_int(dim as i64);
    b.call_into(Operator::SCATTER_ADD, &[call.input, at, index, source], call.out);
    Ok(())
}

/// Overwrites slices at positions of a dim.
fn put(
    b: &mut Builder<'_, '_>,
    input: ValueId,
    dim: ValueId,
    index: ValueId,
    mut source: ValueId,
    out: ValueId,
) -> Result<(), Error> {
    let info = b.info(input)?;
    let dim = info.dim(b.int(dim)?)?;
    // Dims in front of the index keep their place in the values.
    let mut indices = vec![];
    for _ in 0..dim {
        indices.push(b.none());
    }
    indices.push(index);
    if b.info(source)?.rank() == 0 {
        source = b.unsqueeze(source, 0)?;
    }
    let (list, no) = (b.push(Value::List(indices)), b.push(Value::Bool(false)));
    b.call_into(Operator::INDEX_PUT, &[input, list, source, no], out);
    Ok(())
}

fn one_hot(b: &mut Builder<'_, '_>, args: &[ValueId]) -> Result<(), Error> {
    let call = OneHotArgs::of(args)?;
    let info = b.info(call.input)?;
    let classes = b.info(call.out)?.last();
    let (zero, end) = (b.new_int(0), b.new_int(classes as i64));
    let classes = b.range(zero, end, classes)?;
    let input = b.unsqueeze(call.input, info.rank())?;
    let is_class = b.comparison(Operator::EQ_TENSOR, input, classes)?;
    let made = b.cast(is_class, ScalarType::Long)?;
    b.finish_with(made, call.out)
}

fn take_along_dim(b: &mut Builder<'_, '_>, args: &[ValueId]) -> Result<(), Error> {
    let call = TakeAlongDimArgs::of(args)?;
    let Some(dim) = b.optional(call.dim) else {
        return Err(Error::unsupported("take_along_dim without a dim"));
    };
    let (info, own) = (b.info(call.input)?, b.info(call.indices)?);
    let at = info.dim(b.int(dim)?)?;
    let fits = (0..info.rank()).all(|dim| dim == at || info.size(dim) == own.size(dim));
    if !fits {
        return Err(Error::unsupported("take_along_dim with broadcasting"));
    }
    let no = b.push(Value::Bool(false));
    b.call_into(Operator::GATHER, &[call.input, dim, call.indices, no], call.out);
    Ok(())
}
