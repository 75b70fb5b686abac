//! Operators that sort over one dim.

use super::create::apply_fill;
use super::index::{take_each, values_and_places};
use super::reduce::{keep_dim, reduced_sizes};
use super::views::gather;
use super::{Entry, check_length, check_line, operator};
use crate::encoder::{Encoder, read, u32_of, write};
use crate::error::Error;
use crate::tensors::Operand;
use torchlet_graph::graph::ValueId;
use torchlet_graph::operators::{Operator, ReduceDimArgs, SortArgs, SortStableArgs, TopkArgs};
use torchlet_shaders::functions::order as functions;
use torchlet_shaders::{Element, Merge, MergePush, Order, OrderPush};

pub(super) const OPERATORS: &[Entry] = &[
    operator(Operator::SORT_STABLE, |e, args| {
        let call = SortStableArgs::of(args)?;
        let descending = e.optional_bool(call.descending)?.unwrap_or(false);
        let dim = e.optional_int(call.dim)?.unwrap_or(-1);
        order(e, args, dim, None, descending)
    }),
    operator(Operator::SORT, |e, args| {
        let call = SortArgs::of(args)?;
        let descending = e.optional_bool(call.descending)?.unwrap_or(false);
        let dim = e.optional_int(call.dim)?.unwrap_or(-1);
        order(e, args, dim, None, descending)
    }),
    operator(Operator::TOPK, |e, args| {
        let call = TopkArgs::of(args)?;
        let k = e.int(call.k)?;
        let first = usize::try_from(k);
        let first =
            first.map_err(|_| Error::Invalid(format!("k: expected at least 0, found {k}")))?;
        let dim = e.optional_int(call.dim)?.unwrap_or(-1);
        let largest = e.optional_bool(call.largest)?.unwrap_or(true);
        order(e, args, dim, Some(first), largest)
    }),
    operator(Operator::MEDIAN, |e, args| median(e, args, functions::MEDIAN)),
    operator(Operator::NANMEDIAN, |e, args| median(e, args, functions::MEDIAN_OF_NUMBERS)),
    operator(Operator::MEDIAN_DIM, |e, args| median_along(e, args, functions::MEDIAN)),
    operator(Operator::NANMEDIAN_DIM, |e, args| {
        median_along(e, args, functions::MEDIAN_OF_NUMBERS)
    }),
];

/// The maximum length for sorting by comparing each element with all others.
const LONGEST: usize = 1 << 14;
/// The minimum length for merge sort.
const MIN_OF_RUNS: usize = 1 << 11;
/// The length of the initial runs of merge sort.
const RUN: usize = 1 << 5;
/// The maximum length for merge sort.
const LONGEST_OF_RUNS: usize = 1 << 24;

/// Encodes a sort over one dim. Outputs the values and indices of the first `first` elements,
/// or of all elements.
fn order(
    e: &mut Encoder<'_, '_>,
    args: &[ValueId],
    dim: i64,
    first: Option<usize>,
    descending: bool,
) -> Result<(), Error> {
    let input = e.tensor(e.ends(args)?.0)?;
    let dim = input.dim(dim)?;
    let count = input.size(dim);
    let first = first.unwrap_or(count);
    if first > count {
        return Err(Error::Invalid(format!("k = {first} exceeds dim {dim} of {count} elements")));
    }
    let mut sizes = input.sizes.clone();
    if let Some(size) = sizes.get_mut(dim) {
        *size = first;
    }
    let [values, places] = values_and_places(e, args, &sizes)?;
    if values.numel() == 0 {
        return Ok(());
    }
    // Decided by the largest shape, so that dynamic shapes always use the same kernels.
    let longest = check_length(e, &input, dim, LONGEST_OF_RUNS)?;
    if longest >= MIN_OF_RUNS {
        merge(e, &input, &places, (dim, first), descending, longest)?;
        return take_each(e, &input, &places, dim, &values);
    }
    let pipeline = Order { input: input.element, descending, function: functions::FIRST };
    emit(e, pipeline, [&input, &places, &values], dim, first)
}

/// Emits a merge sort over a dim of at most `longest` elements: initial runs, then pairwise
/// merges.
fn merge(
    e: &mut Encoder<'_, '_>,
    input: &Operand,
    places: &Operand,
    (dim, first): (usize, usize),
    descending: bool,
    longest: usize,
) -> Result<(), Error> {
    let count = input.size(dim);
    let inner = input.sizes.iter().skip(dim + 1).product();
    let (numel, run) = (u32_of(input.numel())?, u32_of(RUN)?);
    let push = MergePush { numel, count: u32_of(count)?, inner: u32_of(inner)?, run };
    let pipeline = Merge { input: input.element, descending, first_step: true };
    let mut from = e.temporary(Element::I32, &input.sizes)?;
    let mut to = e.temporary(Element::I32, &input.sizes)?;
    let accesses = [read(input.id), read(input.id), write(from.id)];
    e.dispatch_along_x(&pipeline, accesses, &push, input.numel())?;
    let pipeline = Merge { first_step: false, ..pipeline };
    let mut run = RUN;
    while run < longest {
        let push = MergePush { run: u32_of(run)?, ..push };
        let accesses = [read(input.id), read(from.id), write(to.id)];
        e.dispatch_along_x(&pipeline, accesses, &push, input.numel())?;
        std::mem::swap(&mut from, &mut to);
        run *= 2;
    }
    let mut sizes = input.sizes.clone();
    if let Some(size) = sizes.get_mut(dim) {
        *size = first;
    }
    let strides: Vec<i64> = input.strides().iter().map(|stride| *stride as i64).collect();
    gather(e, &from, places, &sizes, &strides, 0)
}

/// Encodes the median of all elements.
fn median(e: &mut Encoder<'_, '_>, args: &[ValueId], function: u32) -> Result<(), Error> {
    let input = e.tensor(e.ends(args)?.0)?;
    let input = Operand { sizes: vec![input.numel()], ..input };
    check_line(e, &input, 0, LONGEST)?;
    let out = e.out(args)?;
    let out = e.resize(out.id, &[])?;
    let place = e.temporary(Element::I32, &[1])?;
    if input.numel() == 0 {
        // If the input is empty: NaN, as in PyTorch. For integers, PyTorch's result depends on the
        // processor.
        return match out.element.is_floating() {
            true => apply_fill(e, &out, f64::NAN, 0.0),
            false => Err(Error::unsupported("the median of an empty integer tensor")),
        };
    }
    let pipeline = Order { input: input.element, descending: false, function };
    emit(e, pipeline, [&input, &place, &out], 0, 1)
}

/// Encodes medians over one dim, with their indices.
fn median_along(e: &mut Encoder<'_, '_>, args: &[ValueId], function: u32) -> Result<(), Error> {
    let call = ReduceDimArgs::of(args)?;
    let input = e.tensor(call.input)?;
    let dim = input.dim(e.int(call.dim)?)?;
    check_line(e, &input, dim, LONGEST)?;
    let sizes = reduced_sizes(&input, &[dim], keep_dim(e, call.keepdim)?);
    let [values, places] = values_and_places(e, args, &sizes)?;
    if values.numel() == 0 {
        return Ok(());
    }
    if input.numel() == 0 {
        return Err(Error::Invalid(format!("dim {dim} of input shape {:?} is empty", input.sizes)));
    }
    let places = Operand { sizes: reduced_sizes(&input, &[dim], true), ..places };
    let pipeline = Order { input: input.element, descending: false, function };
    emit(e, pipeline, [&input, &places, &values], dim, 1)
}

/// Emits a search for the first `first` indices over a dim, with their values.
fn emit(
    e: &mut Encoder<'_, '_>,
    pipeline: Order,
    [input, places, values]: [&Operand; 3],
    dim: usize,
    first: usize,
) -> Result<(), Error> {
    let push = OrderPush {
        numel: u32_of(input.numel())?,
        count: u32_of(input.size(dim))?,
        inner: u32_of(input.sizes.iter().skip(dim + 1).product())?,
        first: u32_of(first)?,
    };
    let accesses = [read(input.id), write(places.id)];
    e.dispatch_along_x(&pipeline, accesses, &push, input.numel())?;
    take_each(e, input, places, dim, values)
}
