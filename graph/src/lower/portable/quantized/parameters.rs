//! Lowers the computation of scales and zero points from value ranges.

use super::bounds;
use super::convert::blocks_of;
use crate::error::Error;
use crate::graph::ValueId;
use crate::lower::portable::Rule;
use crate::lower::portable::builder::Builder;
use crate::operators::{ChooseQparamsTensorArgs, Operator, TorchaoChooseQparamsAffineArgs};
use alloc::format;
use alloc::vec::Vec;
use torchlet_core::ScalarType;

pub(in crate::lower::portable) const RULES: &[(Operator, Rule)] = &[
    (Operator::TORCHAO_CHOOSE_QPARAMS_AFFINE, affine),
    (Operator::QUANTIZED_DECOMPOSED_CHOOSE_QPARAMS_TENSOR, |b, args| {
        let call = ChooseQparamsTensorArgs::of(args)?;
        let (input, info) = b.tensor(call.input)?;
        let range = Range {
            low: b.number(call.quant_min)?,
            high: b.number(call.quant_max)?,
            least: b.number(call.eps)?,
            mapping: Mapping::Asymmetric,
        };
        let dims: Vec<usize> = (0..info.rank()).collect();
        choose(b, input, &dims, &range, &b.outs(args)?)
    }),
    (Operator::QUANTIZED_DECOMPOSED_CHOOSE_QPARAMS_PER_TOKEN_ASYMMETRIC, |b, args| {
        // The default is int8, which files may leave out.
        let (input, outs) = b.ends(args)?;
        let number = b.new_int(ScalarType::Char as i64);
        let choose = Operator::QUANTIZED_DECOMPOSED_CHOOSE_QPARAMS_PER_TOKEN_ASYMMETRIC;
        b.call_into(choose, &[input, number], outs);
        Ok(())
    }),
    (Operator::ETVK_CHOOSE_QPARAMS_PER_ROW, |b, args| {
        // Its outputs are separate arguments, not a list.
        let [input, low, high, scale, zero] = args[..] else {
            return Err(Error::Invalid(format!(
                "expected an input, 2 limits and 2 outputs, found {} values",
                args.len()
            )));
        };
        let info = b.info(input)?;
        let range = Range {
            low: b.optional_number(low)?.unwrap_or(-128.0),
            high: b.optional_number(high)?.unwrap_or(127.0),
            least: least_of(info.scalar_type),
            mapping: Mapping::Asymmetric,
        };
        choose(b, input, &[info.rank().saturating_sub(1)], &range, &[scale, zero])
    }),
];

/// How scales and zero points derive from the range of values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mapping {
    /// The zero point derives from the minimum.
    Asymmetric,
    /// The range is symmetric.
    Symmetric,
    /// The range is as asymmetric as the quantized range, so no value is clipped.
    SymmetricNoClipping,
}

/// The quantized range, and how parameters are chosen for it.
struct Range {
    low: f64,
    high: f64,
    /// Minimum scale.
    least: f64,
    mapping: Mapping,
}

/// Default of the minimum scale: the machine epsilon of the type.
fn least_of(scalar_type: ScalarType) -> f64 {
    if scalar_type == ScalarType::Half { 0.000_976_562_5 } else { f64::from(f32::EPSILON) }
}

fn affine(b: &mut Builder<'_, '_>, args: &[ValueId]) -> Result<(), Error> {
    let call = TorchaoChooseQparamsAffineArgs::of(args)?;
    let (input, info) = b.tensor(call.input)?;
    let mapping = match b.text(call.mapping_type)?.as_deref() {
        None | Some("ASYMMETRIC") => Mapping::Asymmetric,
        Some("SYMMETRIC") => Mapping::Symmetric,
        Some("SYMMETRIC_NO_CLIPPING_ERR") => Mapping::SymmetricNoClipping,
        Some(other) => return Err(Error::Unsupported(format!("mapping_type '{other}'"))),
    };
    let outs = b.outs(args)?;
    let zero = outs
        .get(1)
        .copied()
        .ok_or_else(|| Error::invalid("expected two outputs, scale and zero point"))?;
    let [low, high] = bounds(b.info(zero)?.scalar_type).map(|bound| bound as f64);
    let range = Range {
        low: b.optional_number(call.quant_min)?.unwrap_or(low),
        high: b.optional_number(call.quant_max)?.unwrap_or(high),
        least: b.optional_number(call.eps)?.unwrap_or(least_of(info.scalar_type)),
        mapping,
    };
    let blocks = b.ints(call.block_size)?;
    // With whole rows as blocks, shapes may be dynamic.
    let Some((last, outer)) = blocks.split_last() else {
        return Err(Error::invalid("block_size: expected at least one value, found none"));
    };
    let whole = *last < 0 || usize::try_from(*last) == Ok(info.last());
    if whole && outer.iter().all(|block| *block == 1) && blocks.len() == info.rank() {
        return choose(b, input, &[info.rank().saturating_sub(1)], &range, &outs);
    }
    let blocks = blocks_of(b, &info, call.block_size)?;
    let mut sizes = Vec::new();
    for (size, block) in info.sizes.iter().zip(&blocks) {
        sizes.extend([size / block, *block]);
    }
    let dims: Vec<usize> = (0..blocks.len()).map(|dim| 2 * dim + 1).collect();
    let split = b.view_known(input, &sizes)?;
    choose(b, split, &dims, &range, &outs)
}

/// Computes scales and zero points from the extremes over dims.
fn choose(
    b: &mut Builder<'_, '_>,
    input: ValueId,
    dims: &[usize],
    range: &Range,
    outs: &[ValueId],
) -> Result<(), Error> {
    let Range { low, high, least, mapping } = *range;
    let [scale_out, zero_out] = outs[..] else {
        return Err(Error::invalid("expected two outputs, scale and zero point"));
    };
    if high <= low {
        return Err(Error::Invalid(format!(
            "expected quant_min < quant_max, found {low} and {high}"
        )));
    }
    let input = b.cast(input, ScalarType::Float)?;
    let lowest = b.reduce(Operator::AMIN, input, dims)?;
    let negative = b.clamp(lowest, None, Some(0.0))?;
    let highest = b.reduce(Operator::AMAX, input, dims)?;
    let positive = b.clamp(highest, Some(0.0), None)?;
    let wide = match mapping {
        Mapping::Asymmetric => {
            let width = b.binary(Operator::SUB_TENSOR, positive, negative)?;
            b.with_number(Operator::DIV_SCALAR, width, high - low)?
        }
        Mapping::Symmetric => {
            let below = b.unary(Operator::NEG, negative)?;
            let larger = b.binary(Operator::MAXIMUM, below, positive)?;
            b.with_number(Operator::DIV_SCALAR, larger, (high - low) / 2.0)?
        }
        Mapping::SymmetricNoClipping => {
            let below = b.with_number(Operator::DIV_SCALAR, negative, low)?;
            let above = b.with_number(Operator::DIV_SCALAR, positive, high)?;
            b.binary(Operator::MAXIMUM, below, above)?
        }
    };
    let scale = b.clamp(wide, Some(least), None)?;
    let zero = match mapping {
        Mapping::Asymmetric => {
            let steps = b.binary(Operator::DIV_TENSOR, negative, scale)?;
            let steps = b.unary(Operator::ROUND, steps)?;
            let steps = b.unary(Operator::NEG, steps)?;
            let zero = b.with_number(Operator::ADD_SCALAR, steps, low)?;
            b.clamp(zero, Some(low), Some(high))?
        }
        Mapping::Symmetric | Mapping::SymmetricNoClipping => {
            let nothing = b.with_number(Operator::MUL_SCALAR, scale, 0.0)?;
            b.with_number(Operator::ADD_SCALAR, nothing, middle(low, high))?
        }
    };
    for (made, out) in [(scale, scale_out), (zero, zero_out)] {
        let shaped = shaped_like(b, made, out)?;
        b.finish_with(shaped, out)?;
    }
    Ok(())
}

/// The middle of the quantized range, the zero point of symmetric mappings.
fn middle(low: f64, high: f64) -> f64 {
    let twice = low + high + 1.0;
    // Rounds down; quantized values are small integers.
    (twice as i64).div_euclid(2) as f64
}

/// Reshapes a value to the shape of an output.
fn shaped_like(b: &mut Builder<'_, '_>, value: ValueId, out: ValueId) -> Result<ValueId, Error> {
    let (own, wanted) = (b.info(value)?, b.info(out)?);
    if own.sizes == wanted.sizes {
        return Ok(value);
    }
    if !own.dynamic {
        return b.view_known(value, &wanted.sizes);
    }
    // The shapes differ only in dims of size one; the other dims correspond in order.
    let mut sizes = Vec::new();
    let mut dims = (0..own.rank()).filter(|dim| own.size(*dim) != 1);
    for bound in wanted.sizes {
        let dim = if bound == 1 { None } else { dims.next() };
        sizes.push(match dim {
            Some(dim) => b.size(value, dim)?,
            None => b.known(1),
        });
    }
    b.view(value, &sizes)
}
