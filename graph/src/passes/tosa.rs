//! Replaces integer operators of TOSA by int8 operators: a layer with its rescaling, and others.
//!
//! TOSA spells a quantized layer as its exact integer parts: sums of products, then `RESCALE`. With
//! int8 activations and constant parameters,
//!
//! - `CONV2D` and `DEPTHWISE_CONV2D` with a rescaling become `et_vk.q8ta_conv2d` or, on a single
//!   pixel, `et_vk.q8ta_linear`;
//! - sums, differences and products of two rescaled tensors, rescaled, become `et_vk.q8ta_add` and
//!   `torchlet.q8ta_mul`; with a constant of one element, `torchlet.q8ta_lookup`;
//! - `REDUCE_SUM` over image dims or the last dim, rescaled, becomes a depthwise convolution or a
//!   linear layer whose weights are ones;
//! - `AVG_POOL2D` becomes a depthwise convolution too, or with padding `aten.avg_pool2d` between a
//!   dequantization and a quantization;
//! - other chains of `int32` calls between rescalings, and `MATMUL`, become floating-point calls
//!   between a dequantization and a quantization;
//! - `TABLE`, `CLAMP`, and `RESCALE` from int8 to int8 become `torchlet.q8ta_lookup`.
//!
//! Needs: a graph in which each value is produced once. A call is produced only if `takes` accepts
//! it; otherwise the `tosa.*` calls stay, which kernels compute. Keeps: intermediate values that
//! other calls read. Rounding: lookups are exact; so are convolutions, linear layers and averages
//! on processors that support exact scales, such as the CPU engine. Other int8 operators requantize
//! in `f32`, like those of programs for XNNPACK, so a result close to the middle between two
//! quantized values may round to the other one.

mod floats;
mod layers;
mod windows;

pub(crate) use windows::{padded, symmetric_padding, window_count};

use super::constant::decode;
use super::rewrite::{Rewriter, each_call};
use crate::graph::{Graph, Node, Tensor, Value, ValueId};
use crate::operators::{
    ClampArgs, LookupArgs, Operator, Q8taConv2dArgs, Q8taLinearArgs, TosaRescaleArgs,
};
use alloc::borrow::Cow;
use alloc::vec::Vec;
use floats::Floats;
use torchlet_core::ScalarType;

/// Replaces integer operators of TOSA by int8 operators. `takes` decides whether the processor
/// supports a call. Returns the number of replacements.
pub fn run(graph: &mut Graph<'_>, takes: &mut dyn FnMut(&Graph<'_>, &Node) -> bool) -> usize {
    if !graph.nodes.iter().any(|node| node.operator.name().starts_with("tosa.")) {
        return 0;
    }
    let mut floats = Floats::new();
    each_call(graph, |rewriter, node| replace(rewriter, node, &mut floats, takes).is_some())
}

/// Whether a call computes TOSA's integers exactly. A processor that does not support it gets a
/// call in `f32` instead.
pub fn is_exact(graph: &Graph<'_>, node: &Node) -> bool {
    let scales = match node.operator {
        Operator::RESCALED_ARITHMETIC => return true,
        Operator::ET_VK_Q8TA_CONV2D | Operator::ET_VK_Q8TA_CONV2D_DW => {
            Q8taConv2dArgs::of(node).map(|call| call.weight_scales)
        }
        Operator::ET_VK_Q8TA_LINEAR => Q8taLinearArgs::of(node).map(|call| call.weight_scales),
        _ => return false,
    };
    let scales = scales.ok().and_then(|id| graph.values.get(id));
    matches!(scales, Some(Value::Tensor(scales)) if scales.sizes.len() == 2)
}

type Takes<'t> = &'t mut dyn FnMut(&Graph<'_>, &Node) -> bool;

fn replace(
    rewriter: &mut Rewriter<'_, '_>,
    node: &Node,
    floats: &mut Floats,
    takes: Takes<'_>,
) -> Option<()> {
    let out = *node.args.last()?;
    match node.operator {
        Operator::TOSA_RESCALE => {
            let rescale = Rescale::of(rewriter, node)?;
            if rewriter.scalar_type(out)? != ScalarType::Char {
                return None;
            }
            match rewriter.scalar_type(rescale.input)? {
                ScalarType::Char => {
                    let table = rescale.table()?;
                    lookup(rewriter, rescale.input, table, out, takes)
                }
                ScalarType::Int => layers::rescaled(rewriter, &rescale, out, takes)
                    .or_else(|| floats::island(rewriter, &rescale, out, floats, takes)),
                _ => None,
            }
        }
        Operator::TOSA_TABLE => {
            let LookupArgs { input, lut, .. } = LookupArgs::of(node).ok()?;
            let is_char = rewriter.scalar_type(input)? == ScalarType::Char;
            let (_, table) = rewriter.constant(lut).filter(|_| is_char)?;
            let table = table.to_vec();
            lookup(rewriter, input, table, out, takes)
        }
        Operator::CLAMP if rewriter.scalar_type(out)? == ScalarType::Char => {
            let call = ClampArgs::of(node).ok()?;
            let limits = [rewriter.int(call.min?)?, rewriter.int(call.max?)?];
            let table = (-128..=127i64).map(|value| value.max(limits[0]).min(limits[1]));
            let table = table.map(|value| (value as i8).cast_unsigned()).collect();
            lookup(rewriter, call.input, table, out, takes)
        }
        Operator::TOSA_AVG_POOL2D => layers::averaged(rewriter, node, takes),
        _ => None,
    }
}

/// A rescaling with constant parameters.
struct Rescale {
    input: ValueId,
    /// One for all elements, or one for each element of the last dim.
    multipliers: Vec<i64>,
    shifts: Vec<u32>,
    input_zp: i64,
    output_zp: i64,
    double_round: bool,
    input_unsigned: bool,
    output_unsigned: bool,
}

impl Rescale {
    fn of(rewriter: &Rewriter<'_, '_>, node: &Node) -> Option<Self> {
        if node.operator != Operator::TOSA_RESCALE {
            return None;
        }
        let call = TosaRescaleArgs::of(node).ok()?;
        let flag = |id: ValueId| rewriter.flag(Some(&id), false);
        let integers = |id: ValueId, types: &[ScalarType]| -> Option<Vec<i64>> {
            let (of, data) = rewriter.constant(id)?;
            types.contains(&of.scalar_type).then_some(())?;
            Some(decode(of.scalar_type, data)?.map(|number| number as i64).collect())
        };
        let multipliers = integers(call.multiplier, &[ScalarType::Int, ScalarType::Short])?;
        let shifts = integers(call.shift, &[ScalarType::Char])?.into_iter();
        let shifts = shifts.map(|shift| u32::try_from(shift).ok().filter(|shift| *shift < 63));
        let shifts = shifts.collect::<Option<Vec<u32>>>()?;
        (shifts.len() == multipliers.len() && !shifts.is_empty()).then_some(Rescale {
            input: call.input,
            multipliers,
            shifts,
            input_zp: rewriter.int(call.input_zp)?,
            output_zp: rewriter.int(call.output_zp)?,
            double_round: flag(call.double_round)?,
            input_unsigned: flag(call.input_unsigned)?,
            output_unsigned: flag(call.output_unsigned)?,
        })
    }

    /// The rescaling that produces a value.
    fn producer(rewriter: &Rewriter<'_, '_>, id: ValueId) -> Option<Self> {
        Self::of(rewriter, rewriter.producer(id)?)
    }

    /// Whether all values are signed.
    fn is_signed(&self) -> bool {
        !self.input_unsigned && !self.output_unsigned
    }

    /// The factors as real numbers.
    fn factors(&self) -> Vec<f64> {
        let pairs = self.multipliers.iter().zip(&self.shifts);
        pairs.map(|(multiplier, shift)| *multiplier as f64 / (1u64 << shift) as f64).collect()
    }

    /// The factor, if it is the same for all channels.
    fn factor(&self) -> Option<f64> {
        match self.factors()[..] {
            [factor] => Some(factor),
            _ => None,
        }
    }

    /// Whether values are rounded once, by the last shift.
    fn is_one_shift(&self) -> bool {
        !self.double_round || self.shifts.iter().all(|shift| *shift <= 31)
    }

    /// The exact result for a value, before saturation; `None` if channels differ or it overflows.
    fn scaled(&self, value: i64) -> Option<i64> {
        let ([multiplier], [shift]) = (&self.multipliers[..], &self.shifts[..]) else {
            return None;
        };
        let value = value.checked_sub(self.input_zp)?;
        let mut round = (1i64 << shift) >> 1;
        if self.double_round && *shift > 31 {
            round += if value >= 0 { 1 << 30 } else { -(1 << 30) };
        }
        let scaled = value.checked_mul(*multiplier)?.checked_add(round)? >> shift;
        scaled.checked_add(self.output_zp)
    }

    /// The exact result for a value, as 8 bits.
    fn int8(&self, value: i64) -> Option<u8> {
        let range = if self.output_unsigned { 0..=255 } else { -128..=127i64 };
        let scaled = self.scaled(value)?;
        Some(scaled.clamp(*range.start(), *range.end()).cast_unsigned() as u8)
    }

    /// The exact results for int8 values, from -128 on.
    fn table(&self) -> Option<Vec<u8>> {
        let bits = |value: i64| if self.input_unsigned { value & 0xFF } else { value };
        (-128..=127).map(|value| self.int8(bits(value))).collect()
    }
}

/// Replaces a call by a lookup of int8 values.
fn lookup(
    rewriter: &mut Rewriter<'_, '_>,
    input: ValueId,
    table: Vec<u8>,
    out: ValueId,
    takes: Takes<'_>,
) -> Option<()> {
    let lut = constant(rewriter, ScalarType::Char, table);
    rewriter.call_if_taken(Operator::Q8TA_LOOKUP, &[input, lut], out, takes)
}

/// Adds a constant with one dim.
fn constant(rewriter: &mut Rewriter<'_, '_>, scalar_type: ScalarType, data: Vec<u8>) -> ValueId {
    rewriter.value(Value::Tensor(constant_tensor(scalar_type, data)))
}

fn constant_tensor(scalar_type: ScalarType, data: Vec<u8>) -> Tensor<'static> {
    Tensor {
        scalar_type,
        host_type: scalar_type,
        sizes: [data.len() / scalar_type.size().max(1)].to_vec(),
        dynamic: false,
        data: Some(Cow::Owned(data)),
        changes: Some(false),
    }
}

#[cfg(test)]
mod tests;
