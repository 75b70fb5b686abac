//! Operators that put elements in order along one dimension.

use super::index::take_each;
use super::{Entry, check_line, operator};
use crate::encoder::{Encoder, read, u32_of, write};
use crate::error::Error;
use torchlet_graph::graph::ValueId;
use torchlet_graph::operators::Operator;
use torchlet_shaders::{Element, Order, OrderPush};

pub(super) const OPERATORS: &[Entry] = &[
    operator(Operator::SORT_STABLE, |e, args| {
        let descending = if args.len() > 4 { e.bool(args[3])? } else { false };
        let dim = if args.len() > 3 { e.int(args[2])? } else { -1 };
        order(e, args, dim, None, descending)
    }),
    operator(Operator::SORT, |e, args| {
        let descending = if args.len() > 3 { e.bool(args[2])? } else { false };
        let dim = if args.len() > 2 { e.int(args[1])? } else { -1 };
        order(e, args, dim, None, descending)
    }),
    operator(Operator::TOPK, |e, args| {
        let first = usize::try_from(e.int(e.arg(args, 1)?)?);
        let first = first.map_err(|_| Error::invalid("fewer than no elements are wanted"))?;
        let dim = if args.len() > 3 { e.int(args[2])? } else { -1 };
        let largest = if args.len() > 4 { e.bool(args[3])? } else { true };
        order(e, args, dim, Some(first), largest)
    }),
];

/// The longest dimension that is put in order: each element is compared with each other one.
const LONGEST: usize = 1 << 14;

/// The first elements in order and where they were; all if it is not said how many.
fn order(
    e: &mut Encoder<'_, '_>,
    args: &[ValueId],
    dim: i64,
    first: Option<usize>,
    descending: bool,
) -> Result<(), Error> {
    let input = e.tensor(e.arg(args, 0)?)?;
    let dim = input.dim(dim)?;
    let count = input.size(dim);
    let first = first.unwrap_or(count);
    check_line(e, &input, dim, LONGEST)?;
    if first > count {
        return Err(Error::Invalid(format!("the first {first} of {count} elements")));
    }
    let mut sizes = input.sizes.clone();
    if let Some(size) = sizes.get_mut(dim) {
        *size = first;
    }
    let outs = e.outs(args)?;
    let [values, places] = outs[..] else { return Err(Error::invalid("there are two results")) };
    let (values, places) = (e.resize(values, &sizes)?, e.resize(places, &sizes)?);
    if places.element != Element::I32 {
        return Err(Error::invalid("places are integers of 64 bits"));
    }
    if values.numel() == 0 {
        return Ok(());
    }
    let inner: usize = input.sizes.iter().skip(dim + 1).product();
    let push = OrderPush {
        numel: u32_of(input.numel())?,
        count: u32_of(count)?,
        inner: u32_of(inner)?,
        first: u32_of(first)?,
    };
    let pipeline = Order { input: input.element, descending };
    let accesses = [read(input.id), write(places.id)];
    e.dispatch_along_x(&pipeline, accesses, &push, input.numel())?;
    take_each(e, &input, &places, dim, &values)
}
