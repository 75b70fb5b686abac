//! Dynamically quantized linear layers: activations are quantized per row at run time, weights stay
//! quantized.

use super::elementwise::as_stored;
use super::int8::matmul_weights;
use crate::compute::gemm::ShapeMismatch;
use crate::compute::int8::rows::{
    Columns, Nibbles, RowsLayout, gemm, gemm_nibbles, nibbles_len, pack_nibbles,
};
use crate::compute::int8::scales::{GroupScales, are_upper, pack_scales, scales_len};
use crate::compute::int8::{LANES, pack};
use crate::compute::simd::Tier;
use crate::engine::builder::{Builder, Refusal};
use crate::engine::packed::{Constant, Form};
use crate::engine::plan::{Element, Io, Step};
use crate::engine::view::View;
use std::borrow::ToOwned;
use std::vec::Vec;
use torchlet_graph::graph::ValueId;
use torchlet_graph::operators::DynamicLinearArgs;

/// Lowers `dynamic_linear(input, weights, scales, sums, bias, bits)`.
pub(super) fn linear(builder: &mut Builder<'_, '_>, args: &[ValueId]) -> Result<(), Refusal> {
    let call = DynamicLinearArgs::of(args)?;
    let input = as_stored(builder, call.input)?;
    let (quantized, scales) = (call.weights, call.weight_scales);
    let &[n, k] = builder.sizes(quantized)? else {
        return Err("weights: expected 2 dims".to_owned());
    };
    let are_constant = builder.is_constant(quantized) && builder.is_constant(scales);
    if !are_constant || builder.element(quantized)? != Element::Code {
        return Err("weights or scales other than constants, with int8 weights".to_owned());
    }
    let groups = match *builder.sizes(scales)? {
        [rows, groups] if rows == n && groups > 0 => groups,
        _ => return Err("weight scales: expected 2 dims and a row per output".to_owned()),
    };
    if k == 0 || input.sizes.last() != Some(&k) {
        return Err(std::format!(
            "input shape {:?} does not match weights of {n} rows and {k} columns",
            input.sizes
        ));
    }
    let bits = builder.integer(call.bits)?;
    if !(bits == 4 && nibbles_len([k, n], groups).is_some() || bits == 8 && groups == 1) {
        return Err(std::format!("{bits}-bit weights with {k} columns in {groups} groups"));
    }
    let rows = input.numel() / k;
    let input = builder.contiguous(&input)?;
    let (sums, bias) = (builder.view(call.weight_sums)?, builder.optional(call.bias)?);
    // The packed form of int8 weights includes their sums.
    let beside = if bits == 4 { sums } else { builder.view(scales)? };
    let mut reads = Vec::from([builder.contiguous(&beside)?]);
    if let Some(bias) = bias {
        reads.push(builder.contiguous(&bias)?);
    }
    if reads.iter().any(|view| view.numel() != n) {
        return Err("scales, sums or bias: expected an element per output".to_owned());
    }
    let mut sizes = input.sizes.clone();
    if let Some(last) = sizes.last_mut() {
        *last = n;
    }
    let out = builder.make(&sizes)?;
    if !builder.is_question() {
        let weights = if bits == 4 {
            nibble_weights(builder, [quantized, scales], [k, n], groups)?
        } else {
            Weights::Bytes(matmul_weights(builder, quantized, [k, n])?)
        };
        let layout = RowsLayout::new(rows, k, if bits == 4 { groups } else { 1 });
        let columns = reads.first().map_or(0, |view| view.offset);
        let bias = reads.get(1).map(|view| view.offset);
        let step = Matmul {
            rows,
            shape: [k, n],
            groups,
            at: input.offset,
            columns,
            bias,
            layout,
            weights,
        };
        let reads: Vec<&View> = core::iter::once(&input).chain(&reads).collect();
        builder.push(step, &reads, &out);
    }
    builder.define(call.out, out)
}

fn nibble_weights<'p>(
    builder: &mut Builder<'_, 'p>,
    [quantized, scales]: [ValueId; 2],
    [k, n]: [usize; 2],
    groups: usize,
) -> Result<Weights<'p>, Refusal> {
    let wrong = || {
        "int4 weights that are out of range or have less data than their shape requires".to_owned()
    };
    let len = nibbles_len([k, n], groups).ok_or_else(wrong)?;
    let form = Form::Nibbles { k, n, groups };
    let quantized = builder.packed_bytes(quantized, form, len, |_, data, packed| {
        let weight =
            |row: usize, col: usize| data.get(col * k + row).map(|weight| weight.cast_signed());
        pack_nibbles([k, n], groups, weight, packed).ok_or_else(wrong)
    })?;
    // Uses the scales that were packed ahead of time, or packs them now.
    let form = |are_upper| Form::Scales { n, groups, are_upper };
    let are_upper = match builder.plain_numbers(scales) {
        Some(data) => are_upper(&data),
        None => builder.is_packed_as(scales, form(true)),
    };
    let len = scales_len(n, groups, are_upper).ok_or_else(wrong)?;
    let scales = builder.packed(scales, form(are_upper), len, |_, data, packed| {
        pack_scales([n, groups], data, are_upper, packed).ok_or_else(wrong)
    })?;
    Ok(Weights::Nibbles { quantized, scales, are_upper })
}

enum Weights<'p> {
    Bytes(Constant<'p>),
    Nibbles { quantized: Constant<'p>, scales: Constant<'p>, are_upper: bool },
}

/// Step of a GEMM that quantizes the rows of its input dynamically; the weights are quantized.
struct Matmul<'p> {
    rows: usize,
    shape: [usize; 2],
    groups: usize,
    /// Offset of the input in the first buffer. `columns` is the offset of the column scales (int8)
    /// or column sums (int4) in the second buffer, `bias` that of the bias in the third.
    at: usize,
    columns: usize,
    bias: Option<usize>,
    layout: RowsLayout,
    weights: Weights<'p>,
}

impl Step for Matmul<'_> {
    fn workspace(&self, _: Tier, _: usize) -> usize {
        self.layout.words().saturating_add(pack::padded(self.shape[1]).saturating_mul(2))
    }

    fn run(&self, io: Io<'_>) -> Result<(), ShapeMismatch> {
        let Io { inputs, out, workspace, context } = io;
        let [k, n] = self.shape;
        let padded = pack::padded(n);
        let (quantized, rest) =
            workspace.split_at_mut_checked(self.layout.words()).ok_or(ShapeMismatch)?;
        let (columns, rest) = rest.split_at_mut_checked(padded).ok_or(ShapeMismatch)?;
        let bias_place = rest.get_mut(..padded).ok_or(ShapeMismatch)?;
        let given = |read: usize, at: usize| inputs.get(read)?.get(at..)?.get(..n);
        let columns = pad_to_panels(given(1, self.columns).ok_or(ShapeMismatch)?, columns);
        let is_biased = self.bias.is_some();
        let bias = match self.bias {
            Some(at) => pad_to_panels(given(2, at).ok_or(ShapeMismatch)?, bias_place),
            // int4 kernels accept an absent bias and do not read it.
            None if matches!(self.weights, Weights::Nibbles { .. }) => &[],
            None => {
                bias_place.fill(0.0);
                &*bias_place
            }
        };
        let values = inputs[0].get(self.at..).ok_or(ShapeMismatch)?;
        let rows = self.layout.quantize(context, values, k, quantized)?;
        let out = out.get_mut(..self.rows * n).ok_or(ShapeMismatch)?;
        match &self.weights {
            Weights::Bytes(quantized) => {
                let packed =
                    pack::Packed::of(self.shape, quantized.as_slice()).ok_or(ShapeMismatch)?;
                gemm(context, rows, packed, Columns { scales: columns, bias }, out)
            }
            Weights::Nibbles { quantized, scales, are_upper } => {
                let scales = GroupScales::of([n, self.groups], scales.as_slice(), *are_upper)
                    .ok_or(ShapeMismatch)?;
                let parts = [quantized.as_slice(), columns];
                let right = Nibbles::of(self.shape, self.groups, parts, scales);
                let right = right.ok_or(ShapeMismatch)?;
                gemm_nibbles(context, rows, right, is_biased.then_some(bias), out)
            }
        }
    }
}

/// Pads per-column values with zeros to whole panels, in `padded`; borrowed if no padding is
/// needed.
fn pad_to_panels<'a>(given: &'a [f32], padded: &'a mut [f32]) -> &'a [f32] {
    if given.len().is_multiple_of(LANES) {
        return given;
    }
    let (front, behind) = padded.split_at_mut(given.len().min(padded.len()));
    front.copy_from_slice(&given[..front.len()]);
    behind.fill(0.0);
    padded
}
