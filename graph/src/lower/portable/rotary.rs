//! Lowers rotary embeddings (RoPE): pairs of elements are rotated by angles that depend on the
//! position.

use super::Rule;
use super::builder::{Builder, Size};
use crate::error::Error;
use crate::graph::ValueId;
use crate::operators::{
    ApplyRotaryEmbArgs, ApplyRotaryEmbHfArgs, ApplyRotaryEmbInterleavedArgs, Operator,
};
use alloc::format;
use torchlet_core::ScalarType;

pub(super) const RULES: &[(Operator, Rule)] = &[
    (Operator::ET_VK_APPLY_ROTARY_EMB, |b, args| both(b, args, Pairs::Neighbours)),
    (Operator::ET_VK_APPLY_ROTARY_EMB_HF, |b, args| both(b, args, Pairs::Halves)),
    (Operator::ET_VK_APPLY_ROTARY_EMB_INTERLEAVED, |b, args| {
        let call = ApplyRotaryEmbInterleavedArgs::of(args)?;
        let (input, info) = b.tensor(call.input)?;
        let (angles, angle_info) = b.tensor(call.freqs_cis)?;
        let (positions, depth) = (b.size(input, 1)?, info.last());
        if info.rank() != 3 || depth == 0 || depth % 2 != 0 {
            return Err(Error::Invalid(format!(
                "input: expected 3 dims with an even, nonempty last one, found shape {:?}",
                info.sizes
            )));
        }
        // Interleaved cosines and sines, one row per position.
        let angles = b.cast(angles, ScalarType::Float)?;
        let any = b.new_int(-1);
        let elements = angle_info.sizes.iter().fold(1usize, |all, size| all.saturating_mul(*size));
        let rows = Size { bound: elements.checked_div(depth).unwrap_or(0), value: any };
        let depth_size = b.known(depth);
        let angles = b.view(angles, &[rows, depth_size])?;
        let zero = b.new_int(0);
        let angles = b.slice(angles, 0, zero, positions.value, 1)?;
        let cosine = b.slice_known(angles, 1, 0, depth, 2)?;
        let sine = b.slice_known(angles, 1, 1, depth, 2)?;
        let input = b.cast(input, ScalarType::Float)?;
        let rotated = rotate(b, input, depth, Pairs::Neighbours, [cosine, sine])?;
        b.finish_with(rotated, b.out(args)?)
    }),
];

/// Pairing of elements.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Pairs {
    /// Adjacent elements, with one angle per pair.
    Neighbours,
    /// Elements of the first and the second half, with one angle per element.
    Halves,
}

/// Rotates queries and keys, `[batch, position, head, dim]`. Angles of shape `[1, position, angle]`
/// mean `[batch, head, position, dim]` inputs: exporters match Hugging Face's rotation by its
/// pattern, and insert a head dim after the first dim of the angles, whatever their shape.
fn both(b: &mut Builder<'_, '_>, args: &[ValueId], pairs: Pairs) -> Result<(), Error> {
    let outs = b.outs(args)?;
    let (inputs, given, start) = match pairs {
        Pairs::Neighbours => {
            let call = ApplyRotaryEmbArgs::of(args)?;
            ([call.xq, call.xk], [call.freqs_cos, call.freqs_sin], b.new_int(0))
        }
        Pairs::Halves => {
            let call = ApplyRotaryEmbHfArgs::of(args)?;
            ([call.xq, call.xk], [call.freqs_cos, call.freqs_sin], call.start_pos)
        }
    };
    for (input, out) in inputs.into_iter().zip(outs) {
        let info = b.info(input)?;
        let (mut angles, angle_info) = (given, b.info(given[0])?);
        let depth =
            angle_info.last().saturating_mul(if pairs == Pairs::Neighbours { 2 } else { 1 });
        let by_head = pairs == Pairs::Neighbours
            && angle_info.rank() == 3
            && angle_info.size(1) == info.size(2);
        let heads_first = pairs == Pairs::Halves
            && angle_info.rank() == 3
            && angle_info.size(0) == 1
            && angle_info.size(1) == info.size(2)
            && b.int(start)? == 0;
        if info.rank() != 4
            || depth > info.last()
            || depth % 2 != 0
            || !(by_head || heads_first || angle_info.rank() == 2)
        {
            let (input, angles) = (&info.sizes, &angle_info.sizes);
            return Err(Error::Invalid(format!(
                "input shape {input:?} does not match angles of shape {angles:?}"
            )));
        }
        let positions = b.size(input, 1)?;
        let end = b.sum(start, positions.value)?;
        for angle in &mut angles {
            let wide = b.cast(*angle, ScalarType::Float)?;
            let rows = if heads_first { wide } else { b.slice(wide, 0, start, end, 1)? };
            *angle = if by_head { rows } else { b.unsqueeze(rows, 1)? };
        }
        let input = b.cast(input, ScalarType::Float)?;
        let rotated = rotate(b, input, depth, pairs, angles)?;
        b.finish_with(rotated, out)?;
    }
    Ok(())
}

/// Rotates the first `depth` elements of each row, and keeps the others.
fn rotate(
    b: &mut Builder<'_, '_>,
    input: ValueId,
    depth: usize,
    pairs: Pairs,
    [cosine, sine]: [ValueId; 2],
) -> Result<ValueId, Error> {
    let info = b.info(input)?;
    let (last, whole) = (info.rank().saturating_sub(1), info.last());
    let half = depth / 2;
    let part = |b: &mut Builder<'_, '_>, value: ValueId, second: bool| {
        let dim = b.info(value)?.rank().saturating_sub(1);
        match (pairs, second) {
            (Pairs::Neighbours, second) => b.slice_known(value, dim, usize::from(second), depth, 2),
            (Pairs::Halves, false) => b.slice_known(value, dim, 0, half, 1),
            (Pairs::Halves, true) => b.slice_known(value, dim, half, depth, 1),
        }
    };
    let angle = |b: &mut Builder<'_, '_>, value: ValueId, second: bool| match pairs {
        Pairs::Neighbours => Ok(value),
        Pairs::Halves => part(b, value, second),
    };
    let (first, second) = (part(b, input, false)?, part(b, input, true)?);
    let mut rotated = [first, second];
    for (at, slot) in rotated.iter_mut().enumerate() {
        let is_second = at == 1;
        let (own, other) = if is_second { (second, first) } else { (first, second) };
        let (cosine, sine) = (angle(b, cosine, is_second)?, angle(b, sine, is_second)?);
        let (own, other) = (
            b.binary(Operator::MUL_TENSOR, own, cosine)?,
            b.binary(Operator::MUL_TENSOR, other, sine)?,
        );
        let operator = if is_second { Operator::ADD_TENSOR } else { Operator::SUB_TENSOR };
        *slot = b.binary(operator, own, other)?;
    }
    let mut result = match pairs {
        Pairs::Neighbours => b.interleave(rotated[0], rotated[1])?,
        Pairs::Halves => b.cat(&rotated, last)?,
    };
    if depth < whole {
        let rest = b.slice_known(input, last, depth, whole, 1)?;
        result = b.cat(&[result, rest], last)?;
    }
    Ok(result)
}
