//! Kernels that normalise rows of elements by statistics of each row.

use super::reduce::{Function, emit};
use crate::encoder::{Encoder, read, u32_of, write};
use crate::error::Error;
use crate::tensors::Operand;
use torchlet_shaders::functions::normalize::{LAYER, RMS, ROUND};
use torchlet_shaders::functions::row::{ADDED, WRITTEN};
use torchlet_shaders::{Element, Normalize, NormalizePush, Row, RowPush};

/// A sum whose rows are normalised. The second term may broadcast over rows; `is_kept` tells
/// whether the sum is also an output.
#[derive(Debug)]
pub(super) struct Sum {
    pub(super) terms: [Operand; 2],
    pub(super) is_kept: bool,
}

/// The maximum length of a row that a single workgroup processes; several workgroups divide a
/// longer row.
pub(crate) const LONGEST_ROW: usize = 1 << 14;
/// The maximum number of invocations per row.
const LANES: u32 = 256;

/// The rows of a tensor. All elements of a row are normalised by the same statistics.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rows<'o> {
    /// Elements per row.
    pub(super) count: usize,
    /// The distance between the elements of a row.
    pub(super) inner: usize,
    /// The maximum number of rows, and of elements per row.
    pub(super) bound: [usize; 2],
    /// The fused sum that computes the rows, if any.
    pub(super) sum: Option<&'o Sum>,
}

impl Rows<'_> {
    /// Each row spans all dims from `first` on.
    pub(super) fn from_dim(e: &Encoder<'_, '_>, input: &Operand, first: usize) -> Self {
        let bound = e.bound_sizes(input);
        let (outer, own) = bound.split_at(first.min(bound.len()));
        let count = input.sizes.iter().skip(first).product();
        let bound = [outer.iter().product(), own.iter().product()];
        Rows { count, inner: 1, bound, sum: None }
    }

    /// A given number of rows, independent of the tensor's dims.
    pub(super) fn of_number(e: &Encoder<'_, '_>, input: &Operand, rows: usize) -> Self {
        let bound: usize = e.bound_sizes(input).iter().product();
        let rows = rows.max(1);
        Rows { count: input.numel() / rows, inner: 1, bound: [rows, bound / rows], sum: None }
    }

    /// Whether one workgroup can process each row.
    pub(super) fn are_short(&self) -> bool {
        self.inner == 1 && self.bound[1] <= LONGEST_ROW
    }
}

/// Weight and bias of a normalisation. Element `i` of the input has the index `i / step % count` in
/// each.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Weights<'o> {
    pub(super) weight: Option<&'o Operand>,
    pub(super) bias: Option<&'o Operand>,
    pub(super) step: usize,
    pub(super) count: usize,
}

impl<'o> Weights<'o> {
    /// Returns the weight and bias to bind, which must have the same type. Unused bindings get the
    /// other one or `input`.
    fn bound(&self, input: &'o Operand) -> Result<[&'o Operand; 2], Error> {
        let fits =
            |operand: &Operand| operand.element.is_floating() && operand.numel() >= self.count;
        let alike = match (self.weight, self.bias) {
            (Some(weight), Some(bias)) => weight.element == bias.element,
            _ => true,
        };
        if alike && [self.weight, self.bias].into_iter().flatten().all(fits) {
            let any = self.weight.or(self.bias).unwrap_or(input);
            return Ok([self.weight.unwrap_or(any), self.bias.unwrap_or(any)]);
        }
        Err(Error::Invalid(format!(
            "weight and bias: expected the same floating-point type and at least {} elements",
            self.count
        )))
    }
}

/// The maximum number of groups of four elements that an invocation keeps in registers.
const MAX_CACHED: usize = 4;

/// Emits a normalisation of rows that a single workgroup can process.
pub(super) fn row(
    e: &mut Encoder<'_, '_>,
    function: u32,
    input: &Operand,
    rows: Rows<'_>,
    weights: Weights<'_>,
    epsilon: f64,
    out: &Operand,
) -> Result<(), Error> {
    // Unused bindings get any tensor. The last one is declared as written even if it is unused.
    let (from, added, made) = match rows.sum {
        Some(Sum { terms: [x, added], is_kept }) => (x, added, if *is_kept { input } else { out }),
        None => (input, input, out),
    };
    let [weight, bias] = weights.bound(from)?;
    if out.numel() == 0 {
        return Ok(());
    }
    let lanes = (rows.bound[1].div_ceil(8).next_power_of_two() as u32).clamp(1, LANES);
    let groups = rows.bound[1].div_ceil(4 * lanes as usize);
    let aligned = rows.count.is_multiple_of(4);
    let pipeline = Row {
        function,
        input: input.element,
        weight: weight.element,
        output: out.element,
        has_weight: weights.weight.is_some(),
        has_bias: weights.bias.is_some(),
        kept: if groups <= MAX_CACHED { u32_of(groups)? } else { 0 },
        weights_aligned: aligned && weights.step == 1 && weights.count == rows.count,
        aligned: aligned && !e.is_dynamic(input),
        sum: rows.sum.map_or(0, |sum| if sum.is_kept { WRITTEN } else { ADDED }),
    };
    let number = out.numel() / rows.count;
    let push = RowPush {
        rows: u32_of(number)?,
        count: u32_of(rows.count)?,
        aligned: u32::from(aligned),
        weight_step: u32_of(weights.step.max(1))?,
        weight_count: u32_of(weights.count.max(1))?,
        epsilon: epsilon as f32,
        added_rows: u32_of((added.numel() / rows.count).max(1))?,
    };
    let [from, weight, bias, added] = [from, weight, bias, added].map(|operand| read(operand.id));
    let accesses = [from, weight, bias, write(out.id), added, write(made.id)];
    e.dispatch_along_y(&pipeline, accesses, &push, [lanes as usize, number], [lanes, 1])
}

/// Emits the dynamic int8 quantization of each row, followed by dequantization.
pub(super) fn round_rows(
    e: &mut Encoder<'_, '_>,
    input: &Operand,
    out: &Operand,
) -> Result<(), Error> {
    let rows = Rows::from_dim(e, input, input.rank().saturating_sub(1));
    if !rows.are_short() {
        return Err(Error::unsupported(format!(
            "dynamic quantization of rows as long as those of shape {:?}",
            input.sizes
        )));
    }
    row(e, ROUND, input, rows, Weights::default(), 0.0, out)
}

/// Emits a normalisation by mean and variance of each row.
pub(super) fn centered(
    e: &mut Encoder<'_, '_>,
    input: &Operand,
    rows: Rows<'_>,
    weights: Weights<'_>,
    epsilon: f64,
    out: &Operand,
) -> Result<(), Error> {
    if rows.are_short() {
        return row(e, LAYER, input, rows, weights, epsilon, out);
    }
    let (number, shape) = (input.numel() / rows.count.max(1), [rows.count, 1]);
    let scale = 1.0 / rows.count as f64;
    let mean = e.temporary(Element::F32, &[number])?;
    emit(e, Function::Sum, input, None, &mean, shape, scale)?;
    let variance = e.temporary(Element::F32, &[number])?;
    emit(e, Function::SumSquaredDifference, input, Some(&mean), &variance, shape, scale)?;
    normalize(e, LAYER, input, [&mean, &variance], shape, weights, epsilon, out)
}

/// Emits a normalisation with the statistics `a` and `b` of each row. Each group of `size` elements
/// consists of `inner` interleaved rows.
#[allow(clippy::too_many_arguments)]
pub(super) fn normalize(
    e: &mut Encoder<'_, '_>,
    function: u32,
    input: &Operand,
    [a, b]: [&Operand; 2],
    [size, inner]: [usize; 2],
    weights: Weights<'_>,
    epsilon: f64,
    out: &Operand,
) -> Result<(), Error> {
    let [weight, bias] = weights.bound(input)?;
    let push = NormalizePush {
        numel: u32_of(out.numel())?,
        row_size: u32_of(size.max(1))?,
        row_inner: u32_of(inner.max(1))?,
        weight_step: u32_of(weights.step.max(1))?,
        weight_count: u32_of(weights.count.max(1))?,
        epsilon: epsilon as f32,
    };
    let pipeline = Normalize {
        function,
        input: input.element,
        weight: weight.element,
        output: out.element,
        has_weight: weights.weight.is_some(),
        has_bias: weights.bias.is_some(),
    };
    let [input, a, b, weight, bias] = [input, a, b, weight, bias].map(|operand| read(operand.id));
    let accesses = [input, a, b, weight, bias, write(out.id)];
    e.dispatch_by_four(&pipeline, accesses, &push, out.numel())
}

/// Emits `input / rms(input) * weight` of each row, with a fused sum if the rows are short.
pub(super) fn emit_rms_norm(
    e: &mut Encoder<'_, '_>,
    input: &Operand,
    sum: Option<&Sum>,
    weight: &Operand,
    epsilon: f64,
    out: &Operand,
) -> Result<(), Error> {
    let count = input.sizes.last().copied().unwrap_or(1);
    let rows = input.numel() / count.max(1);
    let weights = Weights { weight: Some(weight), bias: None, step: 1, count };
    let short = Rows { sum, ..Rows::from_dim(e, input, input.rank().saturating_sub(1)) };
    if short.are_short() {
        return row(e, RMS, input, short, weights, epsilon, out);
    }
    let mean = e.temporary(Element::F32, &[rows])?;
    emit(e, Function::SumSquares, input, None, &mean, [count, 1], 1.0 / count as f64)?;
    normalize(e, RMS, input, [&mean, &mean], [count, 1], weights, epsilon, out)
}
