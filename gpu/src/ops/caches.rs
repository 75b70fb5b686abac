//! KV caches and rotary embeddings (RoPE).
//!
//! A cache is a persistent tensor that is updated in place. If rotated keys are only written to a
//! cache, the rotation is fused into the cache update.

use super::placed;
use super::placing::{COMBINED, HALVES, NEIGHBOURS, Placing};
use super::quantized::Weighted;
use super::views::successor;
use super::{Entry, operator};
use crate::derived::{Beside, Derived};
use crate::encoder::{Encoder, numel_of, read, u32_of, write};
use crate::error::Error;
use crate::state::LateFusion;
use crate::tensors::Operand;
use torchlet_graph::graph::{Node, ValueId};
use torchlet_graph::operators::{
    ApplyRotaryEmbArgs, ApplyRotaryEmbHfArgs, ApplyRotaryEmbInterleavedArgs, Operator, RotaryArgs,
    SdpaWithKvCacheArgs, UpdateCacheArgs,
};
use torchlet_shaders::{Overwrite, OverwritePush, Rotary, RotaryPush};

pub(super) const OPERATORS: &[Entry] = &[
    operator(Operator::UPDATE_CACHE, update_cache),
    operator(Operator::LLAMA_UPDATE_CACHE, update_cache),
    operator(Operator::ET_VK_APPLY_ROTARY_EMB, rotate_both),
    operator(Operator::ET_VK_APPLY_ROTARY_EMB_HF, rotate_both),
    operator(Operator::ROTARY, rotate_one),
    operator(Operator::ET_VK_APPLY_ROTARY_EMB_INTERLEAVED, rotate_one),
];

/// Reads a sequence position from an argument.
pub(super) fn position(e: &Encoder<'_, '_>, id: ValueId) -> Result<usize, Error> {
    let position = e.int(id)?;
    usize::try_from(position).ok().filter(|position| u32::try_from(*position).is_ok()).ok_or_else(
        || Error::Invalid(format!("sequence position: expected 0 to 2^32 - 1, found {position}")),
    )
}

/// Emits a write of `value` into a cache, starting at a position. If a rotation was fused into the
/// write, the keys are rotated first.
fn store(
    e: &mut Encoder<'_, '_>,
    value: &Operand,
    cache: &Operand,
    start: usize,
) -> Result<(), Error> {
    let row = cache.size(2).saturating_mul(cache.size(3));
    let fits = value.rank() == 4
        && cache.rank() == 4
        && value.size(0) == cache.size(0)
        && value.sizes[2..] == cache.sizes[2..]
        && value.element.is_floating() == cache.element.is_floating()
        && start.checked_add(value.size(1)).is_some_and(|end| end <= cache.size(1));
    if !fits {
        let (value, cache) = (&value.sizes, &cache.sizes);
        return Err(Error::Invalid(format!(
            "values of shape {value:?} do not fit into a cache of shape {cache:?} at position \
             {start}"
        )));
    }
    u32_of(cache.numel())?;
    if value.numel() == 0 {
        return Ok(());
    }
    if let Some((rotation, own)) = Rotation::left(e, value)? {
        e.reserve(&own);
        if rotation.has_rows_of(value) {
            return rotation.emit(e, cache, Some(start * row));
        }
        // The cache and the rotation have different row sizes.
        rotation.emit(e, &own, None)?;
    }
    let batches = value.size(0);
    let (batch, out_batch) = (value.numel() / batches, cache.numel() / batches);
    let push = as_it_is(value, cache, start)?;
    if placed::place(e, value, &Placing { rotation: None, push, out: cache })? {
        return Ok(());
    }
    let push = OverwritePush {
        numel: u32_of(batch)?,
        start: u32_of(start * row)?,
        from: 0,
        batch: u32_of(batch)?,
        out_batch: u32_of(out_batch)?,
    };
    let pipeline = Overwrite { input: value.element, output: cache.element };
    let accesses = [read(value.id), write(cache.id)];
    // One additional group of four elements, since the first one may be unaligned.
    let across = batch.saturating_add(3).div_ceil(4);
    // If batches share groups of four elements, they are written by successive dispatches, so that
    // each group has one writer at a time.
    let at_once = if out_batch % 4 == 0 { e.limits().fold_at[1] as usize } else { 1 };
    for first in (0..batches).step_by(at_once) {
        let push = OverwritePush {
            start: u32_of(start * row + first * out_batch)?,
            from: u32_of(first * batch)?,
            ..push
        };
        let down = at_once.min(batches - first);
        e.dispatch(&pipeline, accesses, &push, [across, down, 1], [64, 1, 1])?;
    }
    Ok(())
}

/// Returns the parameters of the rotation shader for writing a value to a cache without rotating
/// it.
fn as_it_is(value: &Operand, cache: &Operand, start: usize) -> Result<RotaryPush, Error> {
    Ok(RotaryPush {
        out_start: u32_of(start.saturating_mul(cache.size(2).saturating_mul(cache.size(3))))?,
        out_batch: u32_of(cache.numel() / value.size(0).max(1))?,
        ..rows(value, [value.size(1), value.size(2), value.size(3)])?
    })
}

/// Returns the parameters of a rotation of zero elements: `positions` positions, with `heads` heads
/// of `depth` elements each.
fn rows(value: &Operand, [positions, heads, depth]: [usize; 3]) -> Result<RotaryPush, Error> {
    Ok(RotaryPush {
        numel: u32_of(value.numel())?,
        depth: u32_of(depth)?,
        heads: u32_of(heads)?,
        positions: u32_of(positions)?,
        start: 0,
        rotated: 0,
        angle_row: 0,
        angle_head: 0,
        out_start: 0,
        out_batch: 0,
    })
}

/// Returns the cache to which a call writes the argument at index `place`, if it does.
fn cache_of(call: &Node, place: usize) -> Option<ValueId> {
    match (call.operator, place) {
        (Operator::UPDATE_CACHE | Operator::LLAMA_UPDATE_CACHE, 0) => {
            UpdateCacheArgs::of(call).ok().map(|call| call.cache)
        }
        (Operator::SDPA_WITH_KV_CACHE, 1 | 2) => {
            let call = SdpaWithKvCacheArgs::of(call).ok()?;
            Some(if place == 1 { call.key_cache } else { call.value_cache })
        }
        _ => None,
    }
}

/// Returns the indices of the arguments that an operator rotates.
fn rotated(operator: Operator) -> &'static [usize] {
    match operator {
        Operator::ET_VK_APPLY_ROTARY_EMB | Operator::ET_VK_APPLY_ROTARY_EMB_HF => &[0, 1],
        Operator::ET_VK_APPLY_ROTARY_EMB_INTERLEAVED | Operator::ROTARY => &[0],
        _ => &[],
    }
}

/// Whether a GEMV kernel can compute a call that reads its result at argument index `place`: a
/// rotation or a cache update.
pub(super) fn places(e: &Encoder<'_, '_>, call: &Node, place: usize, it: &Weighted) -> bool {
    let placing = || -> Result<bool, Error> {
        let value = call.args.get(place).ok_or_else(|| {
            Error::Invalid(format!(
                "expected an argument {place}, found {} arguments",
                call.args.len()
            ))
        })?;
        let value = e.tensor(*value)?;
        if let Some(cache) = cache_of(call, place) {
            let cache = e.tensor(cache)?;
            if value.rank() != 4 || cache.rank() != 4 {
                return Ok(false);
            }
            let push = as_it_is(&value, &cache, 0)?;
            return Ok(Placing { rotation: None, push, out: &cache }.fits(it));
        }
        if !rotated(call.operator).contains(&place) {
            return Ok(false);
        }
        let Rotation { form, input, angles: [cosine, sine], push } = Rotation::of(e, call, place)?;
        Ok(Placing { rotation: Some((form, [&cosine, &sine])), push, out: &input }.fits(it))
    };
    placing().unwrap_or(false)
}

fn update_cache(e: &mut Encoder<'_, '_>, args: &[ValueId]) -> Result<(), Error> {
    let call = UpdateCacheArgs::of(args)?;
    let (value, cache) = (e.tensor(call.value)?, e.tensor(call.cache)?);
    let start = position(e, call.start_pos)?;
    let out = e.out(args)?;
    if out.element != cache.element || out.sizes != cache.sizes {
        // The returned tensor is not the cache and has no readers.
        return store(e, &value, &cache, start);
    }
    let cache = successor(e, &cache, &out, &value)?;
    store(e, &value, &cache, start)
}

/// Writes keys and values into the caches, arguments 3 and 4.
pub(super) fn update_caches(
    e: &mut Encoder<'_, '_>,
    args: &[ValueId],
    values: [&Operand; 2],
) -> Result<[Operand; 2], Error> {
    let call = SdpaWithKvCacheArgs::of(args)?;
    let start = position(e, call.start_pos)?;
    let mut caches = [call.key_cache, call.value_cache].map(|id| e.tensor(id));
    for (cache, value) in caches.iter_mut().zip(values) {
        let Ok(cache) = cache else { continue };
        // A cache argument without persistent memory gets a separate persistent tensor.
        if !e.is_persistent(cache.id) {
            let numel = numel_of(&e.bound_sizes(cache))?;
            let (tensor, element) = (cache.id, cache.element);
            let beside = e.derived(Derived::Beside(Beside { tensor, element, numel }))?;
            *cache = Operand { id: beside.id, ..cache.clone() };
        }
        store(e, value, cache, start)?;
    }
    let [k, v] = caches;
    Ok([k?, v?])
}

/// A rotation of queries or keys by angles `[1, position, angle]`. The input is
/// `[batch, position, head, depth]` or `[batch, head, position, depth]`.
struct Rotation {
    form: u32,
    input: Operand,
    /// The cosines and sines of the angles.
    angles: [Operand; 2],
    push: RotaryPush,
}

impl Rotation {
    /// Parses a call whose angles tensor interleaves cosines and sines.
    fn interleaved(e: &Encoder<'_, '_>, args: &[ValueId]) -> Result<Self, Error> {
        let call = ApplyRotaryEmbInterleavedArgs::of(args)?;
        let (input, angles) = (e.tensor(call.input)?, e.tensor(call.freqs_cis)?);
        let fits = input.rank() == 3
            && input.size(2).is_multiple_of(2)
            && angles.numel() >= input.size(1).saturating_mul(input.size(2));
        if !fits {
            let (input, angles) = (&input.sizes, &angles.sizes);
            return Err(Error::Invalid(format!(
                "input shape {input:?} does not match angles of shape {angles:?}"
            )));
        }
        let (positions, depth) = (input.size(1), input.size(2));
        let push = RotaryPush {
            rotated: u32_of(depth)?,
            angle_row: u32_of(depth)?,
            ..rows(&input, [positions, 1, depth])?
        };
        Ok(Rotation { form: COMBINED, input, angles: [angles.clone(), angles], push })
    }

    /// Parses a call of `torchlet.rotary`.
    fn spelt_out(e: &Encoder<'_, '_>, args: &[ValueId]) -> Result<Self, Error> {
        let call = RotaryArgs::of(args)?;
        let input = e.tensor(call.input)?;
        let (cosine, sine) = (e.tensor(call.cosine)?, e.tensor(call.sine)?);
        let form = if e.int(call.form)? == 0 { NEIGHBOURS } else { HALVES };
        let (depth, angles) = match (form, &input.sizes[..]) {
            (NEIGHBOURS, [_, _, _, pairs, 2]) => (pairs.saturating_mul(2), *pairs),
            (HALVES, [_, _, _, depth]) => (*depth, *depth),
            _ => {
                return Err(Error::Invalid(format!(
                    "input: expected 4 dims, or 5 with a last dim of 2 for pairs, found shape {:?}",
                    input.sizes
                )));
            }
        };
        let own_sizes = [input.size(1), input.size(2)];
        // Missing dims have size one.
        let own = |from_last: usize| cosine.sizes.iter().rev().nth(from_last).copied().unwrap_or(1);
        let (own_rows, own_angles) = ([own(2), own(1)], own(0));
        let position = own_rows[1].saturating_mul(angles);
        let fits = own_angles == angles
            && cosine.numel() == own_rows[0].saturating_mul(position)
            && cosine.sizes == sine.sizes
            && cosine.element == sine.element
            && own_rows.iter().zip(own_sizes).all(|(own, row)| *own == row || *own == 1);
        if !fits {
            let (input, angles) = (&input.sizes, &cosine.sizes);
            return Err(Error::Invalid(format!(
                "input shape {input:?} does not match angles of shape {angles:?}"
            )));
        }
        let stride = |size: usize, own: usize| if size == 1 { Ok(0) } else { u32_of(own) };
        let push = RotaryPush {
            rotated: u32_of(depth)?,
            angle_row: stride(own_rows[0], position)?,
            angle_head: stride(own_rows[1], angles)?,
            ..rows(&input, [own_sizes[0], own_sizes[1], depth])?
        };
        Ok(Rotation { form, input, angles: [cosine, sine], push })
    }

    /// Parses the rotation of the input at index `which` of a call.
    fn of(e: &Encoder<'_, '_>, call: &Node, which: usize) -> Result<Self, Error> {
        let args = &call.args;
        match call.operator {
            Operator::ROTARY => return Rotation::spelt_out(e, args),
            Operator::ET_VK_APPLY_ROTARY_EMB_INTERLEAVED => return Rotation::interleaved(e, args),
            _ => {}
        }
        let halves = call.operator == Operator::ET_VK_APPLY_ROTARY_EMB_HF;
        let (inputs, angles, start) = if halves {
            let call = ApplyRotaryEmbHfArgs::of(args)?;
            let start = position(e, call.start_pos)?;
            ([call.xq, call.xk], [call.freqs_cos, call.freqs_sin], start)
        } else {
            let call = ApplyRotaryEmbArgs::of(args)?;
            ([call.xq, call.xk], [call.freqs_cos, call.freqs_sin], 0)
        };
        let input = e.tensor(inputs[which.min(1)])?;
        let (cosine, sine) = (e.tensor(angles[0])?, e.tensor(angles[1])?);
        let (positions, heads, depth) = (input.size(1), input.size(2), input.size(3));
        let angles = cosine.sizes.last().copied().unwrap_or(1);
        let rotated = if halves { angles } else { angles.saturating_mul(2) };
        // With three dims, the angles differ between heads.
        let by_head = cosine.rank() == 3 && cosine.size(1) == heads && !halves;
        // In some programs, heads precede positions, because exporters match Hugging Face's
        // rotations by pattern. The shader then treats heads as positions, and positions as heads
        // that share angles.
        let heads_first = cosine.rank() == 3
            && halves
            && cosine.size(0) == 1
            && cosine.size(1) == heads
            && start == 0;
        let row = if by_head { angles.saturating_mul(heads) } else { angles };
        let needed = if heads_first { heads } else { start.saturating_add(positions) };
        let needed = needed.saturating_mul(row);
        let fits = input.rank() == 4
            && rotated <= depth
            && rotated % 2 == 0
            && cosine.sizes == sine.sizes
            && cosine.element == sine.element
            && (cosine.rank() == 2 || by_head || heads_first)
            && needed <= cosine.numel();
        if !fits {
            let (input, angles) = (&input.sizes, &cosine.sizes);
            return Err(Error::Invalid(format!(
                "input shape {input:?} from position {start} does not match angles of shape \
                 {angles:?}"
            )));
        }
        let push = RotaryPush {
            start: u32_of(start)?,
            rotated: u32_of(rotated)?,
            angle_row: if heads_first { 0 } else { u32_of(row)? },
            angle_head: if by_head || heads_first { u32_of(angles)? } else { 0 },
            ..rows(&input, [positions, heads, depth])?
        };
        let form = if halves { HALVES } else { NEIGHBOURS };
        Ok(Rotation { form, input, angles: [cosine, sine], push })
    }

    /// If a rotation was fused into the cache update of `value`, returns the rotation, and the
    /// tensor that it would write otherwise.
    fn left(e: &Encoder<'_, '_>, value: &Operand) -> Result<Option<(Self, Operand)>, Error> {
        let Some(own) = e.whole(value) else { return Ok(None) };
        let left = e.left(own, LateFusion::Rotation);
        left.map(|(call, which)| Ok((Rotation::of(e, call, which)?, e.tensor(own)?))).transpose()
    }

    /// Whether a value has the batches and rows of the rotation's input.
    fn has_rows_of(&self, value: &Operand) -> bool {
        let RotaryPush { positions, heads, depth, .. } = self.push;
        let [positions, heads, depth] = [positions, heads, depth].map(|it| it as usize);
        value.numel() == self.input.numel()
            && positions == value.size(1)
            && heads.checked_mul(depth) == value.size(2).checked_mul(value.size(3))
    }

    /// Fuses the rotation into the readers of its result, if all of them write the result to a
    /// cache.
    fn leave(&self, e: &mut Encoder<'_, '_>, out: &Operand, which: usize) -> Result<bool, Error> {
        // Each row of the cache must start at a multiple of four.
        if !self.push.depth.is_multiple_of(4) {
            return Ok(false);
        }
        let [cosine, sine] = &self.angles;
        // If a GEMV was fused into the rotation, it is fused into the cache update as well.
        let of_product = placed::read_by_left(e, &self.input)?;
        let inputs: Vec<&Operand> =
            [&self.input, cosine, sine].into_iter().chain(&of_product).collect();
        let stores = |_: &Encoder<'_, '_>, call: &Node, place| cache_of(call, place).is_some();
        Ok(placed::leave_to(e, LateFusion::Rotation, (out, which), &inputs, stores))
    }

    /// Emits the rotation. The result is written to the output, or to a cache from element `start`
    /// on.
    fn emit(
        self,
        e: &mut Encoder<'_, '_>,
        out: &Operand,
        start: Option<usize>,
    ) -> Result<(), Error> {
        let Rotation { form, input, angles: [cosine, sine], mut push } = self;
        if !input.element.is_floating() || !out.element.is_floating() {
            return Err(Error::Invalid(format!(
                "expected floating-point tensors, found input {:?} and output {:?}",
                input.element, out.element
            )));
        }
        // For the shader, a batch comprises all positions, also in the interleaved form, whose
        // input has no head dim.
        let batch = push.positions as usize * push.heads as usize * push.depth as usize;
        let batches = (input.numel() / batch.max(1)).max(1);
        let all = if start.is_some() { out.numel() } else { input.numel() };
        push.out_start = u32_of(start.unwrap_or(0))?;
        push.out_batch = u32_of(all / batches)?;
        let angles = [&cosine, &sine];
        let placing = Placing { rotation: Some((form, angles)), push, out };
        if placed::place(e, &input, &placing)? {
            return Ok(());
        }
        let pipeline =
            Rotary { form, input: input.element, angle: cosine.element, output: out.element };
        let accesses = [read(input.id), read(cosine.id), read(sine.id), write(out.id)];
        e.dispatch_by_four(&pipeline, accesses, &push, input.numel())
    }
}

/// Encodes a rotation of queries or keys.
fn rotate_one(e: &mut Encoder<'_, '_>, args: &[ValueId]) -> Result<(), Error> {
    let rotation = Rotation::of(e, e.call()?, 0)?;
    let out = e.out(args)?;
    let out = e.resize(out.id, &rotation.input.sizes)?;
    if rotation.leave(e, &out, 0)? { Ok(()) } else { rotation.emit(e, &out, None) }
}

/// Rotates queries and keys, `[batch, position, head, depth]`.
fn rotate_both(e: &mut Encoder<'_, '_>, args: &[ValueId]) -> Result<(), Error> {
    let call = e.call()?;
    let outs = e.outs(args)?;
    for (which, out) in outs.into_iter().enumerate().take(2) {
        let rotation = Rotation::of(e, call, which)?;
        let out = e.resize(out, &rotation.input.sizes)?;
        if !rotation.leave(e, &out, which)? {
            rotation.emit(e, &out, None)?;
        }
    }
    Ok(())
}
