//! Operators that select elements by index tensors and by conditions.

use super::dims::{common_shape, merge_dims};
use super::elementwise::{broadcast_strides, emit_binary};
use super::scatter::Sent;
use super::select::choose;
use super::views::successor;
use super::{Entry, operator, pointwise};
use crate::derived::{Derived, Number};
use crate::encoder::{Encoder, read, u32_of, write};
use crate::error::Error;
use crate::stages::Stage;
use crate::tensors::{Operand, numel_of};
use torchlet_graph::graph::ValueId;
use torchlet_graph::operators::{
    EmbeddingArgs, GatherArgs, IndexArgs, IndexPutArgs, IndexSelectArgs, MaskedFillArgs,
    MaskedScatterArgs, Operator, WhereArgs,
};
use torchlet_shaders::functions::{binary, scatter};
use torchlet_shaders::{Binary, BinaryPush, Element, MAX_DIMS, Put, PutPush, Take, TakePush};

pub(super) const OPERATORS: &[Entry] = &[
    operator(Operator::INDEX_SELECT, |e, args| {
        let call = IndexSelectArgs::of(args)?;
        let (input, index) = (e.tensor(call.input)?, e.tensor(call.index)?);
        let dim = input.dim(e.int(call.dim)?)?;
        let mut sizes = input.sizes.clone();
        if let Some(size) = sizes.get_mut(dim) {
            *size = index.numel();
        }
        take(e, args, &input, &index, dim, 1, &sizes)
    }),
    operator(Operator::EMBEDDING, |e, args| {
        let call = EmbeddingArgs::of(args)?;
        let (weight, index) = (e.tensor(call.weight)?, e.tensor(call.indices)?);
        let mut sizes = index.sizes.clone();
        sizes.extend(weight.sizes.iter().skip(1));
        take(e, args, &weight, &index, 0, 1, &sizes)
    }),
    operator(Operator::INDEX_TENSOR, index_tensor),
    operator(Operator::INDEX_PUT, index_put),
    operator(Operator::MASKED_SCATTER, masked_scatter),
    operator(Operator::GATHER, gather),
    operator(Operator::MASKED_FILL_SCALAR, |e, args| {
        let call = MaskedFillArgs::of(args)?;
        let (input, mask) = (e.tensor(call.input)?, e.tensor(call.mask)?);
        let argument = call.value;
        let number = e.float(argument)?;
        let number = super::elementwise::number(e, &input, argument, number)?;
        choose(e, args, [mask, number, input])
    }),
    pointwise(Operator::WHERE_SELF, |_, args| {
        let call = WhereArgs::of(args)?;
        Ok(Stage::Where([call.condition, call.input, call.other]))
    }),
];

/// Emits a gather over the `count` dimensions from `dim` on, which one linear index addresses.
fn take(
    e: &mut Encoder<'_, '_>,
    args: &[ValueId],
    input: &Operand,
    index: &Operand,
    dim: usize,
    count: usize,
    sizes: &[usize],
) -> Result<(), Error> {
    if index.element != Element::I32 {
        return Err(Error::unsupported(format!(
            "indices of type {:?}; expected int32 or int64",
            index.element
        )));
    }
    let out = e.out(args)?;
    let out = e.resize(out.id, sizes)?;
    let end = (dim + count).min(input.rank());
    let inner: usize = input.sizes[end..].iter().product();
    let in_size: usize = input.sizes[dim.min(end)..end].iter().product();
    if out.numel() > 0 && in_size == 0 {
        return Err(Error::Invalid(format!(
            "input of shape {:?}: an index into an empty dim",
            input.sizes
        )));
    }
    let push = TakePush {
        numel: u32_of(out.numel())?,
        in_size: u32_of(in_size)?,
        out_size: u32_of(index.numel())?,
        inner: u32_of(inner)?,
        in_outer_step: u32_of(in_size * inner)?,
        in_inner: u32_of(inner)?,
    };
    let pipeline = Take { input: input.element, output: out.element, by_element: false };
    e.dispatch_by_four(
        &pipeline,
        [read(input.id), read(index.id), write(out.id)],
        &push,
        out.numel(),
    )
}

fn index_tensor(e: &mut Encoder<'_, '_>, args: &[ValueId]) -> Result<(), Error> {
    let call = IndexArgs::of(args)?;
    let input = e.tensor(call.input)?;
    let mut indices = index_tensors(e, call.indices)?;
    let (Some(&(first, _)), Some(&(last, _))) = (indices.first(), indices.last()) else {
        return Err(Error::invalid("indices: expected at least one index tensor, found none"));
    };
    if last >= input.rank() {
        return Err(Error::Invalid(format!(
            "indices: an index tensor for dim {last}, the input has {} dims",
            input.rank()
        )));
    }
    // If the indexed dims are not adjacent, they come first in the output, so the input is
    // permuted first.
    let (first, input) = if last - first + 1 == indices.len() {
        (first, input)
    } else {
        let indexed: Vec<usize> = indices.iter().map(|(dim, _)| *dim).collect();
        let others = (0..input.rank()).filter(|dim| !indexed.contains(dim));
        let order: Vec<usize> = indexed.iter().copied().chain(others).collect();
        for ((dim, _), place) in indices.iter_mut().zip(0..) {
            *dim = place;
        }
        (0, super::views::permuted(e, &input, &order)?)
    };
    let shape = broadcast_shape(&indices)?;
    let index = combined(e, &input, &indices, &shape)?;
    let count = indices.len();
    let mut sizes = input.sizes[..first].to_vec();
    sizes.extend(&shape);
    sizes.extend(&input.sizes[first + count..]);
    take(e, args, &input, &index, first, count, &sizes)
}

/// Returns the index tensors of a list, each with the dim that it indexes.
fn index_tensors(e: &Encoder<'_, '_>, list: ValueId) -> Result<Vec<(usize, Operand)>, Error> {
    let mut indices = Vec::new();
    for (dim, id) in e.list(list)?.into_iter().enumerate() {
        if let Some(index) = e.optional_tensor(id)? {
            if index.element != Element::I32 {
                return Err(Error::unsupported(format!(
                    "indices of type {:?}; expected int32 or int64",
                    index.element
                )));
            }
            indices.push((dim, index));
        }
    }
    Ok(indices)
}

/// Returns the shape that several index tensors broadcast to.
fn broadcast_shape(indices: &[(usize, Operand)]) -> Result<Vec<usize>, Error> {
    common_shape(indices.iter().map(|(_, index)| &index.sizes[..])).ok_or_else(|| {
        let shapes: Vec<_> = indices.iter().map(|(_, index)| &index.sizes).collect();
        Error::Invalid(format!("index tensors of shapes {shapes:?} do not broadcast"))
    })
}

/// Combines the indices of several adjacent dims into one linear index.
fn combined(
    e: &mut Encoder<'_, '_>,
    input: &Operand,
    indices: &[(usize, Operand)],
    shape: &[usize],
) -> Result<Operand, Error> {
    let mut indices = indices.iter();
    let (_, first) = indices
        .next()
        .ok_or_else(|| Error::invalid("internal error: there are no index tensors"))?;
    let mut index = first.clone();
    for (dim, next) in indices {
        let combined = e.temporary(Element::I32, shape)?;
        linear_index(e, &index, next, input.size(*dim), &combined)?;
        index = combined;
    }
    Ok(index)
}

/// Writes rows into a tensor at indices of one dim. If no other call reads the old contents,
/// the rows are written in place. Otherwise, each output element searches for the value written to
/// it.
fn index_put(e: &mut Encoder<'_, '_>, args: &[ValueId]) -> Result<(), Error> {
    let call = IndexPutArgs::of(args)?;
    let (input, value) = (e.tensor(call.input)?, e.tensor(call.values)?);
    let adds = e.optional_bool(call.accumulate)?.unwrap_or(false);
    if let Some(mask) = mask_of(e, call.indices, &input)? {
        let is_one = value.numel() == 1 && value.element == input.element;
        return match is_one && !adds {
            true => choose(e, args, [mask, Operand { sizes: Vec::new(), ..value }, input]),
            false => Err(Error::unsupported(
                "index_put with a mask and accumulation, several values, or a value of another \
                 type",
            )),
        };
    }
    let indices = index_tensors(e, call.indices)?;
    if value.element.is_floating() != input.element.is_floating() {
        return Err(Error::unsupported(format!(
            "index_put of values of type {:?} into {:?}",
            value.element, input.element
        )));
    }
    let [(dim, index)] = &indices[..] else {
        return put_each(e, args, [&input, &value], &indices, adds);
    };
    let dim = *dim;
    if adds || index.rank() != 1 || dim >= input.rank() {
        return put_each(e, args, [&input, &value], &indices, adds);
    }
    let mut rows = input.sizes.clone();
    if let Some(size) = rows.get_mut(dim) {
        *size = index.numel();
    }
    // Leading dims of size 1 may be missing.
    let missing = rows.len().saturating_sub(value.rank());
    let is_whole = rows.get(missing..) == Some(&value.sizes[..])
        && rows.iter().take(missing).all(|size| *size == 1);
    if !is_whole {
        return put_each(e, args, [&input, &value], &indices, adds);
    }
    let out = e.out(args)?;
    let out = successor(e, &input, &out, &value)?;
    if value.numel() == 0 || out.numel() == 0 {
        return Ok(());
    }
    let inner: usize = out.sizes.iter().skip(dim + 1).product();
    let by_rows = inner.is_multiple_of(4);
    let numel = if by_rows { value.numel() } else { out.numel() };
    let push = PutPush {
        numel: u32_of(numel)?,
        out_size: u32_of(out.size(dim))?,
        count: u32_of(index.numel())?,
        inner: u32_of(inner)?,
    };
    u32_of(out.numel())?;
    let pipeline = Put { input: value.element, output: out.element, by_rows };
    e.dispatch_by_four(&pipeline, [read(value.id), read(index.id), write(out.id)], &push, numel)
}

/// If a mask is the only index, returns the mask, broadcast to the input.
fn mask_of(e: &Encoder<'_, '_>, list: ValueId, input: &Operand) -> Result<Option<Operand>, Error> {
    let mut found = None;
    for (dim, id) in e.list(list)?.into_iter().enumerate() {
        let Some(index) = e.optional_tensor(id)? else { continue };
        if index.element != Element::Bool || found.is_some() {
            return Ok(None);
        }
        found = Some((dim, index));
    }
    let Some((first, mut mask)) = found else { return Ok(None) };
    if input.sizes.get(first..first + mask.rank()) != Some(&mask.sizes[..]) {
        return Err(Error::Invalid(format!(
            "mask shape {:?} does not match input shape {:?} from dim {first}",
            mask.sizes, input.sizes
        )));
    }
    let behind = input.rank() - first - mask.rank();
    mask.sizes.extend(std::iter::repeat_n(1, behind));
    Ok(Some(mask))
}

/// Replaces the elements that a mask selects with consecutive elements of the source.
fn masked_scatter(e: &mut Encoder<'_, '_>, args: &[ValueId]) -> Result<(), Error> {
    let call = MaskedScatterArgs::of(args)?;
    let (input, mask, source) =
        (e.tensor(call.input)?, e.tensor(call.mask)?, e.tensor(call.source)?);
    let sizes = common_shape([&input.sizes[..], &mask.sizes]).ok_or_else(|| {
        Error::Invalid(format!(
            "input shape {:?} and mask shape {:?} do not broadcast",
            input.sizes, mask.sizes
        ))
    })?;
    let count = numel_of(&sizes)?;
    if mask.element != Element::Bool || source.element != input.element || source.numel() == 0 {
        return Err(Error::unsupported(format!(
            "masked_scatter with mask {:?} and a source of {} elements of type {:?}; expected \
             Bool and a nonempty source of type {:?}",
            mask.element,
            source.numel(),
            source.element,
            input.element
        )));
    }
    // A prefix sum over the mask gives the number of selected elements up to each position.
    let wanted = e.temporary(Element::I32, &sizes)?;
    let strides = broadcast_strides(&mask, sizes.len());
    super::views::gather(e, &mask, &wanted, &sizes, &strides, 0)?;
    let wanted = Operand { sizes: vec![count], ..wanted };
    let through = e.temporary(Element::I32, &[count])?;
    super::scan::sums(e, &wanted, &through)?;
    let places = e.temporary(Element::I32, &[count])?;
    let one = e.derived(Derived::Number(Number::Int(-1)))?;
    emit_binary(e, binary::ADD, [&through, &one], (&places, &[count]), 1.0)?;
    let source = Operand { sizes: vec![source.numel()], ..source };
    let picked = e.temporary(input.element, &sizes)?;
    take_each(e, &source, &places, 0, &Operand { sizes: vec![count], ..picked.clone() })?;
    choose(e, args, [mask, picked, input])
}

/// Writes or adds elements at index tensors of adjacent dims. Additions happen in a fixed
/// order, so that results are deterministic.
fn put_each(
    e: &mut Encoder<'_, '_>,
    args: &[ValueId],
    [input, value]: [&Operand; 2],
    indices: &[(usize, Operand)],
    adds: bool,
) -> Result<(), Error> {
    let (Some(&(first, _)), Some(&(last, _))) = (indices.first(), indices.last()) else {
        return Err(Error::invalid("indices: expected at least one index tensor, found none"));
    };
    let end = first + indices.len();
    if last + 1 != end || end > input.rank() {
        return Err(Error::unsupported("index_put with index tensors for non-adjacent dimensions"));
    }
    let is_counted = input.element.is_floating() || input.element == Element::I32;
    if adds && !is_counted {
        return Err(Error::unsupported(format!(
            "index_put with accumulation in type {:?}; expected floats or int32",
            input.element
        )));
    }
    let shape = broadcast_shape(indices)?;
    let product = |sizes: &[usize]| sizes.iter().product::<usize>();
    let sides = [product(&input.sizes[..first]), product(&input.sizes[end..])];
    let (size, count) = (product(&input.sizes[first..end]), numel_of(&shape)?);
    let mut sizes = input.sizes[..first].to_vec();
    sizes.extend(&shape);
    sizes.extend(&input.sizes[end..]);
    // The target position of each value in the combined dims.
    let index = combined(e, input, indices, &shape)?;
    let index = Operand { sizes: vec![count, 1], ..index };
    let places = e.temporary(Element::I32, &[sides[0], count, sides[1]])?;
    let nothing = e.derived(Derived::Number(Number::Int(0)))?;
    linear_index(e, &nothing, &index, size, &places)?;
    let needed = value.sizes != sizes;
    let varies =
        e.is_dynamic(value) || e.is_dynamic(input) || indices.iter().any(|it| e.is_dynamic(&it.1));
    let value = match e.temporary_for([needed, varies], value.element, &sizes)? {
        None => value.clone(),
        Some(whole) => {
            if common_shape([&value.sizes[..], &sizes]).as_ref() != Some(&sizes) {
                let value = &value.sizes;
                return Err(Error::unsupported(format!(
                    "values of shape {value:?}, which do not broadcast to {sizes:?}"
                )));
            }
            let strides = broadcast_strides(value, sizes.len());
            super::views::gather(e, value, &whole, &sizes, &strides, 0)?;
            whole
        }
    };
    let out = e.out(args)?;
    let out = e.resize(out.id, &input.sizes)?;
    let sent =
        Sent { function: if adds { scatter::ADD } else { scatter::REPLACE }, one_source: false };
    sent.emit(e, [input, &places, &value, &out], [size, count, sides[1]])
}

/// Emits `out = a * size + b`, broadcast; negative indices `b` count from the end.
fn linear_index(
    e: &mut Encoder<'_, '_>,
    a: &Operand,
    b: &Operand,
    size: usize,
    out: &Operand,
) -> Result<(), Error> {
    let mut push = BinaryPush {
        numel: u32_of(out.numel())?,
        alpha: size as f32,
        alpha_int: i32::try_from(size).map_err(|_| {
            Error::unsupported(format!("a dim of {size} elements; the limit is 2^31 - 1"))
        })?,
        sizes: [1; MAX_DIMS],
        a_strides: [0; MAX_DIMS],
        b_strides: [0; MAX_DIMS],
    };
    let steps = [broadcast_strides(a, out.rank()), broadcast_strides(b, out.rank())];
    let dims = merge_dims(&out.sizes, &steps)?;
    for (slot, (size, strides)) in (0..MAX_DIMS).rev().zip(dims.iter().rev()) {
        push.sizes[slot] = u32_of(*size)?;
        push.a_strides[slot] = strides[0] as u32;
        push.b_strides[slot] = strides[1] as u32;
    }
    let pipeline = Binary {
        function: binary::LINEAR_INDEX,
        a: a.element,
        b: b.element,
        output: out.element,
        same_layout: false,
    };
    e.dispatch_by_four(&pipeline, [read(a.id), read(b.id), write(out.id)], &push, out.numel())
}

fn gather(e: &mut Encoder<'_, '_>, args: &[ValueId]) -> Result<(), Error> {
    let call = GatherArgs::of(args)?;
    let (input, index) = (e.tensor(call.input)?, e.tensor(call.index)?);
    let dim = input.dim(e.int(call.dim)?)?;
    let fits = input.rank() == index.rank()
        && (0..input.rank()).all(|other| other == dim || input.size(other) >= index.size(other));
    if !fits {
        let (input, index) = (&input.sizes, &index.sizes);
        return Err(Error::Invalid(format!(
            "index shape {index:?} does not match input shape {input:?} outside dim {dim}"
        )));
    }
    let out = e.out(args)?;
    let out = e.resize(out.id, &index.sizes)?;
    // Only the part of the input that the index spans is read. If the index is narrower only in the
    // first dim on either side of `dim`, strides suffice for this.
    let mut part = index.sizes.clone();
    if let Some(size) = part.get_mut(dim) {
        *size = input.size(dim);
    }
    let rank = input.rank();
    let mut others = (1..dim).chain(dim + 2..rank);
    let needed = others.clone().any(|other| part[other] != input.sizes[other]);
    let varies = others.next().is_some() && (e.is_dynamic(&input) || e.is_dynamic(&index));
    let input = match e.temporary_for([needed, varies], input.element, &part)? {
        None => input,
        Some(view) => {
            let strides: Vec<i64> = input.strides().iter().map(|stride| *stride as i64).collect();
            super::views::gather(e, &input, &view, &part, &strides, 0)?;
            view
        }
    };
    take_each(e, &input, &index, dim, &out)
}

/// Returns the outputs of a call with two results, values and indices, of the given shape.
pub(super) fn values_and_places(
    e: &mut Encoder<'_, '_>,
    args: &[ValueId],
    sizes: &[usize],
) -> Result<[Operand; 2], Error> {
    let outs = e.outs(args)?;
    let [values, places] = outs[..] else {
        return Err(Error::Invalid(format!(
            "expected two outputs, values and indices, found {}",
            outs.len()
        )));
    };
    let (values, places) = (e.resize(values, sizes)?, e.resize(places, sizes)?);
    if places.element != Element::I32 {
        return Err(Error::Invalid(format!(
            "index output: expected int32 or int64, found {:?}",
            places.element
        )));
    }
    Ok([values, places])
}

/// Emits a gather with one index per element over one dim:
/// `out[…, k, …] = input[…, index[…, k, …], …]`. The index may be narrower than the input in the
/// first dim before this one, and in the first dim after it.
pub(super) fn take_each(
    e: &mut Encoder<'_, '_>,
    input: &Operand,
    index: &Operand,
    dim: usize,
    out: &Operand,
) -> Result<(), Error> {
    let behind = |tensor: &Operand| tensor.sizes.iter().skip(dim + 1).product::<usize>();
    let in_inner = behind(input);
    let push = TakePush {
        numel: u32_of(out.numel())?,
        in_size: u32_of(input.size(dim))?,
        out_size: u32_of(index.size(dim))?,
        inner: u32_of(behind(index))?,
        in_outer_step: u32_of(input.size(dim) * in_inner)?,
        in_inner: u32_of(in_inner)?,
    };
    let pipeline = Take { input: input.element, output: out.element, by_element: true };
    e.dispatch_by_four(
        &pipeline,
        [read(input.id), read(index.id), write(out.id)],
        &push,
        out.numel(),
    )
}
