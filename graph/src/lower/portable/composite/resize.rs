//! Resizing. Kernels resize images; other forms select elements along each dim.

use super::creation::MAX_SEQUENCE;
use super::{Builder, Info, Rule};
use crate::error::Error;
use crate::graph::{Value, ValueId};
use crate::operators::{
    Operator, Upsample2dArgs, UpsampleBilinearArgs, UpsampleNearest2dArgs, UpsampleNearestArgs,
};
use alloc::vec;
use alloc::vec::Vec;
use torchlet_core::ScalarType;

pub(in super::super) const RULES: &[(Operator, Rule)] = &[
    (Operator::UPSAMPLE_BICUBIC2D, |b, args| image(b, args, Operator::UPSAMPLE_BICUBIC2D_VEC)),
    (Operator::UPSAMPLE_BICUBIC2D_AA_COMPOSITE, |b, args| {
        smoothed(b, args, Operator::UPSAMPLE_BICUBIC2D_AA)
    }),
    (Operator::UPSAMPLE_BILINEAR2D, |b, args| image(b, args, Operator::UPSAMPLE_BILINEAR2D_VEC)),
    (Operator::UPSAMPLE_BILINEAR2D_AA_COMPOSITE, |b, args| {
        smoothed(b, args, Operator::UPSAMPLE_BILINEAR2D_AA)
    }),
    (Operator::UPSAMPLE_LINEAR1D_VEC, linear),
    (Operator::UPSAMPLE_NEAREST1D_VEC, |b, args| nearest(b, args, 0.0)),
    (Operator::UPSAMPLE_NEAREST2D, |b, args| {
        let call = UpsampleNearest2dArgs::of(args)?;
        let (size, scales) = size_or_scales(b, call.output_size, [call.scales_h, call.scales_w])?;
        b.call_into(Operator::UPSAMPLE_NEAREST2D_VEC, &[call.input, size, scales], call.out);
        Ok(())
    }),
    (Operator::UPSAMPLE_NEAREST3D_VEC, |b, args| nearest(b, args, 0.0)),
    (Operator::UPSAMPLE_NEAREST_EXACT1D_VEC, |b, args| nearest(b, args, 0.5)),
    (Operator::UPSAMPLE_NEAREST_EXACT2D_VEC, |b, args| nearest(b, args, 0.5)),
    (Operator::UPSAMPLE_NEAREST_EXACT3D_VEC, |b, args| nearest(b, args, 0.5)),
    (Operator::UPSAMPLE_TRILINEAR3D_VEC, linear),
];

/// The arguments of the kernels: an output size, or scales if they are given.
fn size_or_scales(
    b: &mut Builder<'_, '_>,
    size: ValueId,
    scales: [Option<ValueId>; 2],
) -> Result<(ValueId, ValueId), Error> {
    let [height, width] = scales;
    let (height, width) = (b.optional_number(height)?, b.optional_number(width)?);
    let none = b.none();
    Ok(match (height, width) {
        (Some(height), Some(width)) => (none, b.push(Value::DoubleList(vec![height, width]))),
        _ => (size, none),
    })
}

fn image(b: &mut Builder<'_, '_>, args: &[ValueId], operator: Operator) -> Result<(), Error> {
    let call = Upsample2dArgs::of(args)?;
    let (size, scales) = size_or_scales(b, call.output_size, [call.scales_h, call.scales_w])?;
    b.call_into(operator, &[call.input, size, call.align_corners, scales], call.out);
    Ok(())
}

/// Resizing with antialiasing.
fn smoothed(b: &mut Builder<'_, '_>, args: &[ValueId], operator: Operator) -> Result<(), Error> {
    let call = UpsampleBilinearArgs::of(args)?;
    let info = b.info(call.out)?;
    if info.dynamic {
        return Err(Error::unsupported("antialiased resizing of dynamic shapes"));
    }
    let size = b.new_ints(&[info.size(2) as i64, info.size(3) as i64]);
    let scales = doubles(b, call.scale_factors)?;
    let mut inputs = vec![call.input, size, call.align_corners];
    for at in 0..2 {
        inputs.push(match scales.get(at) {
            Some(scale) => b.push(Value::Double(*scale)),
            None => b.none(),
        });
    }
    b.call_into(operator, &inputs, call.out);
    Ok(())
}

fn doubles(b: &Builder<'_, '_>, id: ValueId) -> Result<Vec<f64>, Error> {
    Ok(match b.optional(id).map(|id| b.value(id)).transpose()? {
        Some(Value::DoubleList(items)) => items.clone(),
        _ => Vec::new(),
    })
}

/// The input and output sizes and the given scale of each resized dim.
fn dims(
    b: &Builder<'_, '_>,
    input: ValueId,
    out: ValueId,
    scales: &[f64],
) -> Result<Vec<(usize, usize, usize, Option<f64>)>, Error> {
    let (info, made) = (b.info(input)?, b.info(out)?);
    if info.dynamic {
        return Err(Error::unsupported("resizing of dynamic shapes over one or three dims"));
    }
    if made.sizes.iter().any(|size| *size > MAX_SEQUENCE) {
        return Err(Error::unsupported("resizing to more than 2^24 elements in a dim"));
    }
    let list = (2..info.rank())
        .map(|dim| (dim, info.size(dim), made.size(dim), scales.get(dim - 2).copied()));
    Ok(list.collect())
}

/// Nearest elements. `shift` is 0.5 for the centres of elements.
fn nearest(b: &mut Builder<'_, '_>, args: &[ValueId], shift: f32) -> Result<(), Error> {
    let call = UpsampleNearestArgs::of(args)?;
    let scales = doubles(b, call.scale_factors)?;
    let mut value = call.input;
    for (dim, from, to, scale) in dims(b, call.input, call.out, &scales)? {
        let step = match scale {
            Some(scale) if scale > 0.0 => (1.0 / scale) as f32,
            _ => from as f32 / to.max(1) as f32,
        };
        let last = from.saturating_sub(1);
        let index = (0..to).map(|at| (((at as f32 + shift) * step) as usize).min(last));
        let index: Vec<usize> = index.collect();
        value = select(b, value, dim, &index)?;
    }
    b.finish_with(value, call.out)
}

/// Linear interpolation over each dim.
fn linear(b: &mut Builder<'_, '_>, args: &[ValueId]) -> Result<(), Error> {
    let call = UpsampleBilinearArgs::of(args)?;
    let scales = doubles(b, call.scale_factors)?;
    let aligned = b.truth(call.align_corners)?;
    let mut value = call.input;
    let rank = b.info(value)?.rank();
    for (dim, from, to, scale) in dims(b, call.input, call.out, &scales)? {
        let last = from.saturating_sub(1);
        let step = match (aligned, scale) {
            (true, _) if to > 1 => last as f32 / (to - 1) as f32,
            (true, _) => 0.0,
            (false, Some(scale)) if scale > 0.0 => (1.0 / scale) as f32,
            (false, _) => from as f32 / to.max(1) as f32,
        };
        let mut low = Vec::new();
        let mut high = Vec::new();
        let mut weights = Vec::new();
        for at in 0..to {
            let place = match aligned {
                true => at as f32 * step,
                false => ((at as f32 + 0.5) * step - 0.5).max(0.0),
            };
            let first = (place as usize).min(last);
            low.push(first);
            high.push((first + 1).min(last));
            weights.push(place - first as f32);
        }
        let (low, high) = (select(b, value, dim, &low)?, select(b, value, dim, &high)?);
        let mut sizes = vec![1; rank];
        if let Some(slot) = sizes.get_mut(dim) {
            *slot = to;
        }
        let bytes = weights.iter().flat_map(|weight: &f32| weight.to_le_bytes()).collect();
        let weights = b.constant(ScalarType::Float, sizes, bytes)?;
        let weights = b.cast(weights, b.info(value)?.scalar_type)?;
        let difference = b.binary(Operator::SUB_TENSOR, high, low)?;
        let part = b.binary(Operator::MUL_TENSOR, difference, weights)?;
        value = b.binary(Operator::ADD_TENSOR, low, part)?;
    }
    b.finish_with(value, call.out)
}

fn select(
    b: &mut Builder<'_, '_>,
    value: ValueId,
    dim: usize,
    index: &[usize],
) -> Result<ValueId, Error> {
    let info: Info = b.info(value)?;
    let mut sizes = info.sizes.clone();
    if let Some(size) = sizes.get_mut(dim) {
        *size = index.len();
    }
    let bytes = index.iter().flat_map(|at| (*at as i64).to_le_bytes()).collect();
    let index = b.constant(ScalarType::Long, vec![index.len()], bytes)?;
    let dim = b.new_int(dim as i64);
    Ok(b.call(Operator::INDEX_SELECT, &[value, dim, index], info.with_sizes(sizes)))
}
