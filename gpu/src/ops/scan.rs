//! Prefix scans: cumulative sums, products, and similar.

use super::elementwise::apply_unary_with;
use super::index::{take_each, values_and_places};
use super::{Entry, check_length, check_line, operator};
use crate::encoder::{Encoder, read, u32_of, write};
use crate::error::Error;
use crate::tensors::Operand;
use torchlet_graph::graph::ValueId;
use torchlet_graph::operators::{CumsumArgs, DimArgs, Operator};
use torchlet_shaders::functions::{scan, unary};
use torchlet_shaders::{Element, Scan, ScanPush};

pub(super) const OPERATORS: &[Entry] = &[
    operator(Operator::CUMSUM, |e, args| along(e, args, scan::SUM)),
    operator(Operator::CUMPROD, |e, args| along(e, args, scan::PROD)),
    operator(Operator::LOGCUMSUMEXP, |e, args| along(e, args, scan::LOG_SUM)),
    operator(Operator::CUMMAX, |e, args| extremes(e, args, scan::MAX)),
    operator(Operator::CUMMIN, |e, args| extremes(e, args, scan::MIN)),
];

/// The maximum lengths of scans, for the three algorithms: every output reads all elements before
/// it; an invocation scans several lines; a workgroup scans a row.
const LONGEST: usize = 1 << 13;
const LONGEST_LINE: usize = 1 << 16;
const LONGEST_ROW: usize = 1 << 22;
/// The minimum length for the algorithm with one workgroup per row.
const MIN_OF_ROW: usize = 1 << 10;
/// Invocations per workgroup. Each scans one segment of a row.
const SHARES: u32 = 128;

fn along(e: &mut Encoder<'_, '_>, args: &[ValueId], function: u32) -> Result<(), Error> {
    let call = CumsumArgs::of(args)?;
    let input = e.tensor(call.input)?;
    let dim = input.dim(e.int(call.dim)?)?;
    let out = e.out(args)?;
    let out = e.resize(out.id, &input.sizes)?;
    if function == scan::LOG_SUM && !(input.element.is_floating() && out.element.is_floating()) {
        return Err(Error::unsupported(format!(
            "logcumsumexp of {:?} to {:?}; expected floating point",
            input.element, out.element
        )));
    }
    emit(e, function, &input, dim, &out)
}

/// Emits the prefix sum of a row of integers.
pub(super) fn sums(e: &mut Encoder<'_, '_>, input: &Operand, out: &Operand) -> Result<(), Error> {
    emit(e, scan::SUM, input, 0, out)
}

/// Encodes cumulative maxima or minima, and their indices.
fn extremes(e: &mut Encoder<'_, '_>, args: &[ValueId], function: u32) -> Result<(), Error> {
    let call = DimArgs::of(args)?;
    let input = e.tensor(call.input)?;
    let dim = input.dim(e.int(call.dim)?)?;
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
    let pipeline = Scan { function, input: input.element, output: out.element, form: scan::EACH };
    // Decided by the largest shape, so that dynamic shapes always use the same kernels.
    let bound = e.bound_sizes(input);
    let (longest, is_row) = (bound.get(dim).copied().unwrap_or(1), dim + 1 >= input.rank());
    if is_row && longest >= MIN_OF_ROW {
        check_length(e, input, dim, LONGEST_ROW)?;
        return along_rows(e, pipeline, &push, input, out);
    }
    let by_line = inner.is_multiple_of(4) && !e.is_of_varying_shapes();
    let form = match by_line {
        true => check_length(e, input, dim, LONGEST_LINE).map(|_| scan::LINES)?,
        false => check_line(e, input, dim, LONGEST).map(|()| scan::EACH)?,
    };
    let pipeline = Scan { form, ..pipeline };
    let elements = if by_line { out.numel() / count.max(1) } else { out.numel() };
    e.dispatch_by_four(&pipeline, [read(input.id), write(out.id)], &push, elements)
}

/// Emits a scan with one workgroup per row, which writes 32-bit words.
fn along_rows(
    e: &mut Encoder<'_, '_>,
    pipeline: Scan,
    push: &ScanPush,
    input: &Operand,
    out: &Operand,
) -> Result<(), Error> {
    let words = match (out.element.size(), out.element.is_floating()) {
        (4, _) => out.clone(),
        (_, true) => e.temporary(Element::F32, &out.sizes)?,
        (_, false) => e.temporary(Element::I32, &out.sizes)?,
    };
    let pipeline = Scan { output: words.element, form: scan::ROW, ..pipeline };
    let rows = out.numel() / (push.count as usize).max(1);
    let accesses = [read(input.id), write(words.id)];
    let workgroup = [SHARES, 1];
    e.dispatch_along_y(&pipeline, accesses, push, [SHARES as usize, rows], workgroup)?;
    match words.id == out.id {
        true => Ok(()),
        false => apply_unary_with(e, unary::COPY, &words, out, [0.0; 4]),
    }
}
