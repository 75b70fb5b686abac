//! Scatter operators.

use super::join::pad;
use super::{Entry, check_looks, operator};
use crate::derived::{Derived, Number};
use crate::encoder::{Encoder, read, u32_of, write};
use crate::error::Error;
use crate::tensors::Operand;
use torchlet_graph::graph::ValueId;
use torchlet_graph::operators::{
    Operator, ScatterArgs, ScatterReduceArgs, ScatterReduceTwoArgs, ScatterValueArgs,
    ScatterValueReduceArgs,
};
use torchlet_shaders::functions::scatter;
use torchlet_shaders::{Element, Scatter, ScatterPush};

pub(super) const OPERATORS: &[Entry] = &[
    operator(Operator::SCATTER_SRC, |e, args| {
        let source = e.tensor(ScatterArgs::of(args)?.src)?;
        send(e, args, &source, false, scatter::REPLACE)
    }),
    operator(Operator::SCATTER_VALUE, |e, args| {
        let source = one_number(e, args, ScatterValueArgs::of(args)?.value)?;
        send(e, args, &source, true, scatter::REPLACE)
    }),
    operator(Operator::SCATTER_REDUCE, |e, args| {
        let call = ScatterReduceArgs::of(args)?;
        let source = e.tensor(call.src)?;
        send(e, args, &source, false, combining(e, call.reduce)?)
    }),
    operator(Operator::SCATTER_VALUE_REDUCE, |e, args| {
        let call = ScatterValueReduceArgs::of(args)?;
        let source = one_number(e, args, call.value)?;
        send(e, args, &source, true, combining(e, call.reduce)?)
    }),
    operator(Operator::SCATTER_ADD, |e, args| {
        let source = e.tensor(ScatterArgs::of(args)?.src)?;
        send(e, args, &source, false, scatter::ADD)
    }),
    operator(Operator::SCATTER_REDUCE_TWO, |e, args| {
        let call = ScatterReduceTwoArgs::of(args)?;
        let source = e.tensor(call.src)?;
        let function = match e.optional_string(call.reduce)? {
            Some("sum") => scatter::ADD,
            Some("prod") => scatter::MULTIPLY,
            Some("amax") => scatter::MAX,
            Some("amin") => scatter::MIN,
            other => {
                let reduce = other.unwrap_or("None");
                return Err(Error::unsupported(format!("scatter_reduce with reduce = '{reduce}'")));
            }
        };
        if e.optional_bool(call.include_self)? == Some(false) {
            return Err(Error::unsupported("scatter_reduce with include_self=False"));
        }
        send(e, args, &source, false, function)
    }),
];

/// Returns the scalar that a call scatters.
fn one_number(
    e: &mut Encoder<'_, '_>,
    args: &[ValueId],
    number: ValueId,
) -> Result<Operand, Error> {
    let (number, out) = (e.float(number)?, e.out(args)?);
    let number = match out.element.is_floating() {
        true => Number::Float((number as f32).to_bits()),
        false if number == f64::from(number as i32) => Number::Int(number as i32),
        false => {
            return Err(Error::unsupported(format!(
                "the scalar {number} for an output of type {:?}",
                out.element
            )));
        }
    };
    e.derived(Derived::Number(number))
}

/// Returns the function that combines old and scattered elements.
fn combining(e: &Encoder<'_, '_>, reduce: ValueId) -> Result<u32, Error> {
    match e.optional_string(reduce)? {
        Some("add") => Ok(scatter::ADD),
        Some("multiply") => Ok(scatter::MULTIPLY),
        other => {
            let reduce = other.unwrap_or("None");
            Err(Error::unsupported(format!("scatter with reduce = '{reduce}'")))
        }
    }
}

/// The maximum number of indices that each output element searches.
const MAX_INDICES: usize = 1 << 12;

/// A scatter: the combining function, and whether the source is a single element.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sent {
    pub(super) function: u32,
    pub(super) one_source: bool,
}

impl Sent {
    /// Emits `out[o, index[o, j, r], r] = source[o, j, r]`. The scattered dimension has `size`
    /// elements in the output and `count` in the index; `inner` is the number of elements per
    /// index.
    pub(super) fn emit(
        self,
        e: &mut Encoder<'_, '_>,
        [input, index, source, out]: [&Operand; 4],
        [size, count, inner]: [usize; 3],
    ) -> Result<(), Error> {
        if count > MAX_INDICES {
            return Err(Error::unsupported(format!(
                "scatter with {count} indices; the limit is {MAX_INDICES}"
            )));
        }
        check_looks(input.numel(), count)?;
        let push = ScatterPush {
            numel: u32_of(out.numel())?,
            size: u32_of(size)?,
            count: u32_of(count)?,
            inner: u32_of(inner)?,
        };
        u32_of(index.numel())?;
        let pipeline = Scatter {
            function: self.function,
            input: input.element,
            source: source.element,
            output: out.element,
            one_source: self.one_source,
        };
        let accesses = [read(input.id), read(index.id), read(source.id), write(out.id)];
        e.dispatch_by_four(&pipeline, accesses, &push, out.numel())
    }
}

fn send(
    e: &mut Encoder<'_, '_>,
    args: &[ValueId],
    source: &Operand,
    one_source: bool,
    function: u32,
) -> Result<(), Error> {
    let [input, dim, index, ..] = args[..] else {
        return Err(Error::Invalid(format!(
            "expected input, dim and index, found {} arguments",
            args.len()
        )));
    };
    let (input, index) = (e.tensor(input)?, e.tensor(index)?);
    let dim = input.dim(e.int(dim)?)?;
    let fits = index.element == Element::I32
        && index.rank() == input.rank()
        && (0..input.rank()).all(|it| it == dim || index.size(it) <= input.size(it));
    if !fits {
        let (element, index, input) = (index.element, &index.sizes, &input.sizes);
        return Err(Error::unsupported(format!(
            "indices {element:?} of shape {index:?} for input shape {input:?}; expected int32 or \
             int64 within the input's shape outside dim {dim}"
        )));
    }
    let has_all = source.rank() == index.rank()
        && (0..index.rank()).all(|it| index.size(it) <= source.size(it));
    if !one_source && !has_all {
        let (source, index) = (&source.sizes, &index.sizes);
        return Err(Error::unsupported(format!(
            "a source of shape {source:?} that is smaller than indices of shape {index:?}"
        )));
    }
    // The indices may cover only a part of the tensor and of the source. The rest of the source is
    // not scattered.
    let varies = [&input, &index, source].into_iter().any(|tensor| e.is_dynamic(tensor));
    let mut whole = input.sizes.clone();
    if let Some(size) = whole.get_mut(dim) {
        *size = index.size(dim);
    }
    let index = surrounded(e, index, &whole, varies, -1.0)?;
    let source = match one_source {
        true => source.clone(),
        false => surrounded(e, source.clone(), &whole, varies, 0.0)?,
    };
    let out = e.out(args)?;
    let out = e.resize(out.id, &input.sizes)?;
    let inner = input.sizes.iter().skip(dim + 1).product();
    let sent = Sent { function, one_source };
    sent.emit(e, [&input, &index, &source, &out], [input.size(dim), index.size(dim), inner])
}

/// Pads a tensor at the end of each dim to these sizes.
fn surrounded(
    e: &mut Encoder<'_, '_>,
    tensor: Operand,
    sizes: &[usize],
    varies: bool,
    number: f64,
) -> Result<Operand, Error> {
    let needed = tensor.sizes != sizes;
    match e.temporary_for([needed, varies], tensor.element, sizes)? {
        None => Ok(tensor),
        Some(whole) => {
            pad(e, &tensor, &whole, &[], number)?;
            Ok(whole)
        }
    }
}
