//! Lowers quantize and dequantize calls. Adds the ranges and dtypes that instructions need but
//! blobs omit.

use super::bounds;
use crate::error::Error;
use crate::graph::{Value, ValueId};
use crate::lower::portable::Rule;
use crate::lower::portable::builder::{Builder, Info};
use crate::operators::{Operator, TorchaoDequantizeAffineArgs};
use alloc::format;
use alloc::vec::Vec;
use torchlet_core::ScalarType;

pub(in crate::lower::portable) const RULES: &[(Operator, Rule)] = &[
    (Operator::QUANTIZED_DECOMPOSED_QUANTIZE_PER_TENSOR, |b, args| {
        typed(b, args, Operator::QUANTIZED_DECOMPOSED_QUANTIZE_PER_TENSOR, 5, true)
    }),
    (Operator::QUANTIZED_DECOMPOSED_DEQUANTIZE_PER_TENSOR, |b, args| {
        typed(b, args, Operator::QUANTIZED_DECOMPOSED_DEQUANTIZE_PER_TENSOR, 5, false)
    }),
    (Operator::QUANTIZED_DECOMPOSED_QUANTIZE_PER_TENSOR_TENSOR, |b, args| {
        typed(b, args, Operator::QUANTIZED_DECOMPOSED_QUANTIZE_PER_TENSOR_TENSOR, 5, true)
    }),
    (Operator::QUANTIZED_DECOMPOSED_DEQUANTIZE_PER_TENSOR_TENSOR, |b, args| {
        typed(b, args, Operator::QUANTIZED_DECOMPOSED_DEQUANTIZE_PER_TENSOR_TENSOR, 5, false)
    }),
    (Operator::QUANTIZED_DECOMPOSED_QUANTIZE_PER_CHANNEL, |b, args| {
        typed(b, args, Operator::QUANTIZED_DECOMPOSED_QUANTIZE_PER_CHANNEL, 6, true)
    }),
    (Operator::QUANTIZED_DECOMPOSED_DEQUANTIZE_PER_CHANNEL, |b, args| {
        typed(b, args, Operator::QUANTIZED_DECOMPOSED_DEQUANTIZE_PER_CHANNEL, 6, false)
    }),
    (Operator::QUANTIZED_DECOMPOSED_QUANTIZE_PER_TOKEN, |b, args| {
        typed(b, args, Operator::QUANTIZED_DECOMPOSED_QUANTIZE_PER_TOKEN, 5, true)
    }),
    (Operator::QUANTIZED_DECOMPOSED_DEQUANTIZE_PER_TOKEN, |b, args| {
        typed(b, args, Operator::QUANTIZED_DECOMPOSED_DEQUANTIZE_PER_TOKEN, 5, false)
    }),
    (Operator::TORCHAO_QUANTIZE_AFFINE, |b, args| by_blocks(b, args, true)),
    (Operator::TORCHAO_DEQUANTIZE_AFFINE, |b, args| by_blocks(b, args, false)),
];

/// Fills in the missing quantized range and type. The type is the argument at index `place`, after
/// the limits of the range.
fn typed(
    b: &mut Builder<'_, '_>,
    args: &[ValueId],
    operator: Operator,
    place: usize,
    to_codes: bool,
) -> Result<(), Error> {
    let out = b.out(args)?;
    let mut inputs: Vec<ValueId> = args.split_last().map_or(Vec::new(), |(_, own)| own.to_vec());
    let codes = if to_codes { out } else { b.ends(args)?.0 };
    let scalar_type = b.info(codes)?.scalar_type;
    let [low, high] = bounds(scalar_type);
    let names_result = operator == Operator::QUANTIZED_DECOMPOSED_DEQUANTIZE_PER_TOKEN;
    for (at, number) in [(place - 2, low), (place - 1, high), (place, scalar_type as i64)] {
        let missing = || Error::Invalid(format!("argument {at} is missing"));
        let slot = *inputs.get(at).ok_or_else(missing)?;
        if matches!(b.value(slot)?, Value::None)
            && let number = b.new_int(number)
            && let Some(slot) = inputs.get_mut(at)
        {
            *slot = number;
        }
    }
    if !to_codes && inputs.len() == place + 1 {
        inputs.push(b.none());
    }
    if names_result && let Some(slot) = inputs.get_mut(place + 1) {
        let number = b.info(out)?.scalar_type as i64;
        *slot = b.new_int(number);
    }
    b.call_into(operator, &inputs, out);
    Ok(())
}

/// Quantizes or dequantizes with a scale and a zero point per block.
fn by_blocks(b: &mut Builder<'_, '_>, args: &[ValueId], to_codes: bool) -> Result<(), Error> {
    let call = TorchaoDequantizeAffineArgs::of(args)?;
    let (input, info) = b.tensor(call.input)?;
    let out = b.out(args)?;
    let blocks = blocks_of(b, &info, call.block_size)?;
    let (mut whole, mut counts) = (Vec::new(), Vec::new());
    for (size, block) in info.sizes.iter().zip(&blocks) {
        whole.extend([size / block, *block]);
        counts.extend([size / block, 1]);
    }
    let (scale, zero) = (call.scale, b.optional(call.zero_point));
    let codes = b.info(if to_codes { out } else { input })?.scalar_type;
    let [low, high] = bounds(codes).map(|bound| bound as f64);
    let low = b.optional_number(call.quant_min)?.unwrap_or(low);
    let high = b.optional_number(call.quant_max)?.unwrap_or(high);
    let numbers = b.cast(input, ScalarType::Float)?;
    let numbers = b.view_known(numbers, &whole)?;
    let mut by_block = |tensor: ValueId| {
        let tensor = b.cast(tensor, ScalarType::Float)?;
        b.view_known(tensor, &counts)
    };
    let scale = by_block(scale)?;
    let zero = zero.map(by_block).transpose()?;
    let result = if to_codes {
        let inverse = b.unary(Operator::RECIPROCAL, scale)?;
        let scaled = b.binary(Operator::MUL_TENSOR, numbers, inverse)?;
        let rounded = b.unary(Operator::ROUND, scaled)?;
        let moved = match zero {
            Some(zero) => b.binary(Operator::ADD_TENSOR, rounded, zero)?,
            None => rounded,
        };
        b.clamp(moved, Some(low), Some(high))?
    } else {
        let moved = match zero {
            Some(zero) => b.binary(Operator::SUB_TENSOR, numbers, zero)?,
            None => numbers,
        };
        b.binary(Operator::MUL_TENSOR, moved, scale)?
    };
    let result = b.view_known(result, &info.sizes)?;
    b.finish_with(result, out)
}

/// The block sizes of a tensor, each a divisor of the size of its dim.
pub(super) fn blocks_of(
    b: &Builder<'_, '_>,
    info: &Info,
    block_size: ValueId,
) -> Result<Vec<usize>, Error> {
    let blocks = b.ints(block_size)?;
    let sizes: Vec<usize> = blocks
        .iter()
        .zip(&info.sizes)
        .map(|(block, size)| usize::try_from(*block).unwrap_or(*size))
        .collect();
    let divides = |(block, size): (&usize, &usize)| *block > 0 && size % block == 0;
    if blocks.len() == info.rank() && sizes.iter().zip(&info.sizes).all(divides) {
        return Ok(sizes);
    }
    Err(Error::Invalid(format!("block_size {blocks:?} does not divide shape {:?}", info.sizes)))
}
