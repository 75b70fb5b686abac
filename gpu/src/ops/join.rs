//! Operators that write tensors into larger ones: concatenation, padding, writing into slices.

use super::create::apply_fill;
use super::views::successor;
use super::{Entry, operator};
use crate::encoder::{Encoder, read, u32_of, write};
use crate::error::Error;
use crate::tensors::Operand;
use torchlet_graph::graph::ValueId;
use torchlet_graph::operators::{
    CatArgs, ConstantPadArgs, Operator, PadArgs, SelectScatterArgs, SliceScatterArgs,
};
use torchlet_shaders::functions::pad as functions;
use torchlet_shaders::{Insert, InsertPush, MAX_DIMS, Pad, PadPush};

pub(super) const OPERATORS: &[Entry] = &[
    operator(Operator::CAT, cat),
    operator(Operator::STACK, stack),
    operator(Operator::CONSTANT_PAD_ND, constant_pad),
    operator(Operator::REFLECTION_PAD1D, |e, args| extend(e, args, 1, functions::REFLECTED)),
    operator(Operator::REFLECTION_PAD2D, |e, args| extend(e, args, 2, functions::REFLECTED)),
    operator(Operator::REFLECTION_PAD3D, |e, args| extend(e, args, 3, functions::REFLECTED)),
    operator(Operator::REPLICATION_PAD1D, |e, args| extend(e, args, 1, functions::REPEATED)),
    operator(Operator::REPLICATION_PAD2D, |e, args| extend(e, args, 2, functions::REPEATED)),
    operator(Operator::REPLICATION_PAD3D, |e, args| extend(e, args, 3, functions::REPEATED)),
    operator(Operator::SLICE_SCATTER, slice_scatter),
    operator(Operator::SELECT_SCATTER, select_scatter),
];

fn cat(e: &mut Encoder<'_, '_>, args: &[ValueId]) -> Result<(), Error> {
    let call = CatArgs::of(args)?;
    let mut inputs = Vec::new();
    for id in e.list(call.tensors)? {
        inputs.push(e.tensor(id)?);
    }
    let dim = e.optional_int(call.dim)?.unwrap_or(0);
    // PyTorch ignores empty one-dimensional tensors among others.
    let legacy = |input: &Operand| input.rank() == 1 && input.numel() == 0;
    let first = inputs.iter().find(|input| !legacy(input)).or(inputs.first());
    let first =
        first.ok_or_else(|| Error::invalid("tensors: expected at least one, found none"))?;
    let dim = first.dim(dim)?;
    let mut sizes = first.sizes.clone();
    let total = inputs.iter().filter(|input| !legacy(input)).map(|input| input.size(dim)).sum();
    match sizes.get_mut(dim) {
        Some(size) => *size = total,
        None => return Err(Error::invalid("tensors: expected at least 1 dim, found a scalar")),
    }
    for input in inputs.iter().filter(|input| !legacy(input)) {
        let fits = input.rank() == sizes.len()
            && (0..sizes.len()).all(|other| other == dim || input.size(other) == sizes[other]);
        if !fits {
            return Err(Error::Invalid(format!(
                "shape {:?} does not match the concatenated shape {sizes:?} outside dim {dim}",
                input.sizes
            )));
        }
    }
    let out = e.out(args)?;
    let out = e.resize(out.id, &sizes)?;
    let mut start = 0;
    for input in inputs.iter().filter(|input| !legacy(input)) {
        place(e, input, &out, dim, start)?;
        start += input.size(dim);
    }
    Ok(())
}

fn stack(e: &mut Encoder<'_, '_>, args: &[ValueId]) -> Result<(), Error> {
    let call = CatArgs::of(args)?;
    let mut inputs = Vec::new();
    for id in e.list(call.tensors)? {
        inputs.push(e.tensor(id)?);
    }
    let first = inputs
        .first()
        .ok_or_else(|| Error::invalid("tensors: expected at least one, found none"))?;
    let dim = e.optional_int(call.dim)?.unwrap_or(0);
    let dim = torchlet_core::rules::normalize_dim(dim, first.rank() + 1).ok_or_else(|| {
        Error::Invalid(format!(
            "dim {dim} is out of range for a result of {} dims",
            first.rank() + 1
        ))
    })?;
    if let Some(other) = inputs.iter().find(|input| input.sizes != first.sizes) {
        return Err(Error::Invalid(format!(
            "tensors: expected shape {:?}, found {:?}",
            first.sizes, other.sizes
        )));
    }
    let mut sizes = first.sizes.clone();
    sizes.insert(dim, inputs.len());
    let out = e.out(args)?;
    let out = e.resize(out.id, &sizes)?;
    for (number, mut input) in inputs.into_iter().enumerate() {
        input.sizes.insert(dim, 1);
        place(e, &input, &out, dim, number)?;
    }
    Ok(())
}

/// Writes a tensor into a range of a new one over one dim, without a copy if the range is
/// contiguous.
fn place(
    e: &mut Encoder<'_, '_>,
    input: &Operand,
    out: &Operand,
    dim: usize,
    start: usize,
) -> Result<(), Error> {
    let outer: usize = out.sizes.iter().take(dim).product();
    let inner: usize = out.sizes.iter().skip(dim + 1).product();
    if outer == 1 && input.numel() > 0 && e.give_part(input, out, start * inner)? {
        return Ok(());
    }
    insert(e, input, out, dim, start, 1)
}

/// Emits a write of a tensor into a range of another over one dim.
pub(super) fn insert(
    e: &mut Encoder<'_, '_>,
    input: &Operand,
    out: &Operand,
    dim: usize,
    start: usize,
    step: usize,
) -> Result<(), Error> {
    if input.numel() == 0 {
        return Ok(());
    }
    let inner: usize = out.sizes.iter().skip(dim + 1).product();
    let outer: usize = out.sizes.iter().take(dim).product();
    let (length, pitch) = (input.size(dim) * inner, out.size(dim) * inner);
    // One invocation writes four output elements. The distance between rows must be large enough
    // that no group of four contains elements of two rows.
    let fits = start.checked_add(input.size(dim)).is_some_and(|end| end <= out.size(dim));
    let apart = step == 1 && fits && (outer == 1 || pitch - length >= 3);
    let quads = if apart { length.div_ceil(4) + 1 } else { 0 };
    let push = InsertPush {
        numel: u32_of(out.numel())?,
        out_size: u32_of(out.size(dim))?,
        in_size: u32_of(input.size(dim))?,
        inner: u32_of(inner)?,
        start: u32_of(start)?,
        step: u32_of(step.max(1))?,
        quads: u32_of(quads)?,
    };
    let pipeline = Insert { input: input.element, output: out.element };
    let elements = if apart { outer.saturating_mul(quads).saturating_mul(4) } else { out.numel() };
    e.dispatch_by_four(&pipeline, [read(input.id), write(out.id)], &push, elements)
}

fn slice_scatter(e: &mut Encoder<'_, '_>, args: &[ValueId]) -> Result<(), Error> {
    let call = SliceScatterArgs::of(args)?;
    let (input, source) = (e.tensor(call.input)?, e.tensor(call.src)?);
    let dim = input.dim(e.optional_int(call.dim)?.unwrap_or(0))?;
    let start = e.optional_int(call.start)?.unwrap_or(0);
    let step = e.optional_int(call.step)?.unwrap_or(1);
    let size = input.size(dim) as i64;
    let start = if start < 0 { (start + size).max(0) } else { start.min(size) } as usize;
    let step = usize::try_from(step)
        .ok()
        .filter(|step| *step > 0)
        .ok_or_else(|| Error::Invalid(format!("step: expected at least 1, found {step}")))?;
    let out = e.out(args)?;
    let out = successor(e, &input, &out, &source)?;
    insert(e, &source, &out, dim, start, step)
}

/// Writes a tensor to a single index of a dim that the tensor lacks.
fn select_scatter(e: &mut Encoder<'_, '_>, args: &[ValueId]) -> Result<(), Error> {
    let call = SelectScatterArgs::of(args)?;
    let (input, mut source) = (e.tensor(call.input)?, e.tensor(call.src)?);
    let dim = input.dim(e.int(call.dim)?)?;
    let (index, size) = (e.int(call.index)?, input.size(dim));
    let at = if index < 0 { index.checked_add(size as i64) } else { Some(index) };
    let at = at.and_then(|at| usize::try_from(at).ok()).filter(|at| *at < size);
    let at = at.ok_or_else(|| {
        Error::Invalid(format!("index {index} is out of range for dim {dim} of size {size}"))
    })?;
    let mut sizes = input.sizes.clone();
    sizes.remove(dim);
    if source.sizes != sizes {
        let (found, wanted) = (&source.sizes, &sizes);
        return Err(Error::Invalid(format!("source: expected shape {wanted:?}, found {found:?}")));
    }
    source.sizes.insert(dim, 1);
    let out = e.out(args)?;
    let out = successor(e, &input, &out, &source)?;
    insert(e, &source, &out, dim, at, 1)
}

fn constant_pad(e: &mut Encoder<'_, '_>, args: &[ValueId]) -> Result<(), Error> {
    let call = ConstantPadArgs::of(args)?;
    let input = e.tensor(call.input)?;
    let value = e.optional_float(call.value)?.unwrap_or(0.0);
    let (sizes, before) = margins(&input, &e.ints(call.pad)?)?;
    let out = e.out(args)?;
    let out = e.resize(out.id, &sizes)?;
    pad(e, &input, &out, &before, value)
}

/// Pads the last dims of a tensor with elements of that tensor.
fn extend(
    e: &mut Encoder<'_, '_>,
    args: &[ValueId],
    dims: usize,
    around: u32,
) -> Result<(), Error> {
    let call = PadArgs::of(args)?;
    let input = e.tensor(call.input)?;
    let pads = e.ints(call.padding)?;
    if pads.len() != 2 * dims || input.rank() < dims {
        let (count, rank) = (pads.len(), input.rank());
        return Err(Error::Invalid(format!(
            "padding: expected {} values for the last {dims} of {rank} dims, found {count}",
            2 * dims
        )));
    }
    for (dim, pair) in input.sizes.iter().rev().zip(pads.chunks_exact(2)) {
        // Reflection does not repeat the edge element.
        let most = match around {
            functions::REFLECTED => *dim as i64 - 1,
            _ if *dim == 0 => 0,
            _ => i64::MAX,
        };
        if pair.iter().any(|pad| *pad > most.max(0)) {
            return Err(Error::Invalid(format!(
                "padding {pair:?} of a dim of {dim} elements: the limit is {}",
                most.max(0)
            )));
        }
    }
    let (sizes, before) = margins(&input, &pads)?;
    let out = e.out(args)?;
    let out = e.resize(out.id, &sizes)?;
    surround(e, &input, &out, &before, (around, 0.0))
}

/// Returns the padded sizes, and the number of padding elements before each dim.
fn margins(input: &Operand, pads: &[i64]) -> Result<(Vec<usize>, Vec<i32>), Error> {
    if !pads.len().is_multiple_of(2) || pads.len() / 2 > input.rank() {
        return Err(Error::Invalid(format!(
            "padding: found {} values, expected two for each of at most {} dims",
            pads.len(),
            input.rank()
        )));
    }
    let mut before = vec![0; input.rank()];
    let mut sizes = input.sizes.clone();
    for (position, pair) in pads.chunks_exact(2).enumerate() {
        let dim = input.rank() - 1 - position;
        let size = (input.size(dim) as i64)
            .checked_add(pair[0])
            .and_then(|size| size.checked_add(pair[1]));
        let size = size.and_then(|size| usize::try_from(size).ok());
        sizes[dim] = size.ok_or_else(|| {
            let size = input.size(dim);
            Error::Invalid(format!(
                "padding {pair:?} of dim {dim} with {size} elements: the result is out of range"
            ))
        })?;
        before[dim] = i32::try_from(pair[0])
            .map_err(|_| Error::Invalid(format!("padding {} exceeds 32 bits", pair[0])))?;
    }
    Ok((sizes, before))
}

/// Pads a tensor with a constant; `before` is the number of elements before it in each dim.
pub(super) fn pad(
    e: &mut Encoder<'_, '_>,
    input: &Operand,
    out: &Operand,
    before: &[i32],
    value: f64,
) -> Result<(), Error> {
    surround(e, input, out, before, (functions::NUMBER, value))
}

fn surround(
    e: &mut Encoder<'_, '_>,
    input: &Operand,
    out: &Operand,
    before: &[i32],
    (around, value): (u32, f64),
) -> Result<(), Error> {
    if input.rank() > MAX_DIMS {
        return Err(Error::unsupported(format!(
            "padding of {} dims; the limit is {MAX_DIMS}",
            input.rank()
        )));
    }
    if input.numel() == 0 {
        return apply_fill(e, out, value, 0.0);
    }
    // Adjacent dims without padding are merged.
    let mut dims: Vec<([usize; 2], i32)> = Vec::new();
    let is_whole = |([out, input], margin): &([usize; 2], i32)| out == input && *margin == 0;
    for dim in 0..input.rank() {
        let margin = before.get(dim).copied().unwrap_or(0);
        let own = ([out.size(dim), input.size(dim)], margin);
        match dims.last_mut().filter(|last| is_whole(last) && is_whole(&own)) {
            Some((sizes, _)) => *sizes = sizes.map(|size| size * own.0[0]),
            None => dims.push(own),
        }
    }
    let first = MAX_DIMS.saturating_sub(dims.len().max(1));
    let mut push = PadPush {
        numel: u32_of(out.numel())?,
        value: value as f32,
        value_int: value as i32,
        first: u32_of(first)?,
        out_sizes: [1; MAX_DIMS],
        in_sizes: [1; MAX_DIMS],
        before: [0; MAX_DIMS],
    };
    for (slot, ([out, input], margin)) in (first..MAX_DIMS).zip(dims) {
        push.out_sizes[slot] = u32_of(out)?;
        push.in_sizes[slot] = u32_of(input)?;
        push.before[slot] = margin;
    }
    let pipeline = Pad { input: input.element, output: out.element, around };
    e.dispatch_by_four(&pipeline, [read(input.id), write(out.id)], &push, out.numel())
}
