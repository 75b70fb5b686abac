//! Sums, products and the like of all elements up to each one.

use super::index::{take_each, values_and_places};
use super::{Entry, check_line, operator};
use crate::encoder::{Encoder, read, u32_of, write};
use crate::error::Error;
use crate::tensors::Operand;
use torchlet_graph::graph::ValueId;
use torchlet_graph::operators::Operator;
use torchlet_shaders::functions::scan;
use torchlet_shaders::{Scan, ScanPush};

pub(super) const OPERATORS: &[Entry] = &[
    operator(Operator::CUMSUM, |e, args| along(e, args, scan::SUM)),
    operator(Operator::CUMPROD, |e, args| along(e, args, scan::PROD)),
    operator(Operator::LOGCUMSUMEXP, |e, args| along(e, args, scan::LOG_SUM)),
    operator(Operator::CUMMAX, |e, args| extremes(e, args, scan::LARGEST)),
    operator(Operator::CUMMIN, |e, args| extremes(e, args, scan::SMALLEST)),
];

/// The longest dimension: every output is made of all elements before it.
const LONGEST: usize = 1 << 13;

fn along(e: &mut Encoder<'_, '_>, args: &[ValueId], function: u32) -> Result<(), Error> {
    let input = e.tensor(e.arg(args, 0)?)?;
    let dim = input.dim(e.int(e.arg(args, 1)?)?)?;
    check_line(e, &input, dim, LONGEST)?;
    let out = e.out(args)?;
    let out = e.resize(out.id, &input.sizes)?;
    if function == scan::LOG_SUM && !(input.element.is_floating() && out.element.is_floating()) {
        return Err(Error::unsupported("logarithms of integers"));
    }
    emit(e, function, &input, dim, &out)
}

/// The largest or smallest elements so far, and where they are.
fn extremes(e: &mut Encoder<'_, '_>, args: &[ValueId], function: u32) -> Result<(), Error> {
    let input = e.tensor(e.arg(args, 0)?)?;
    let dim = input.dim(e.int(e.arg(args, 1)?)?)?;
    check_line(e, &input, dim, LONGEST)?;
    let [values, places] = values_and_places(e, args, &input.sizes)?;
    if values.numel() == 0 {
        return Ok(());
    }
    emit(e, function, &input, dim, &places)?;
    take_each(e, &input, &places, dim, &values)
}

fn emit(
    e: &mut Encoder<'_, '_>,
    function: u32,
    input: &Operand,
    dim: usize,
    out: &Operand,
) -> Result<(), Error> {
    let (count, inner) = (input.size(dim), input.sizes.iter().skip(dim + 1).product::<usize>());
    let push =
        ScanPush { numel: u32_of(out.numel())?, count: u32_of(count)?, inner: u32_of(inner)? };
    let by_line = inner.is_multiple_of(4) && !e.is_of_varying_shapes();
    let pipeline = Scan { function, input: input.element, output: out.element, by_line };
    let elements = if by_line { out.numel() / count.max(1) } else { out.numel() };
    e.dispatch_by_four(&pipeline, [read(input.id), write(out.id)], &push, elements)
}
