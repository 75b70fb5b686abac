//! Scaled dot-product attention over any number of leading dims.

use super::super::attention::{HiddenRows, attend};
use super::{Builder, Rule, Size};
use crate::error::Error;
use crate::graph::{Value, ValueId};
use crate::operators::{FlashAttentionForCpuArgs, Operator, ScaledDotProductAttentionArgs};
use alloc::format;
use alloc::vec::Vec;

pub(in super::super) const RULES: &[(Operator, Rule)] = &[
    (Operator::FLASH_ATTENTION_FOR_CPU, |b, args| {
        let call = FlashAttentionForCpuArgs::of(args)?;
        let outs = b.outs(args)?;
        let (none, no) = (b.none(), b.push(Value::Bool(false)));
        let inputs = [
            call.query,
            call.key,
            call.value,
            call.attn_mask.unwrap_or(none),
            call.dropout_p.unwrap_or(none),
            call.is_causal.unwrap_or(no),
            call.scale.unwrap_or(none),
            no,
        ];
        let inputs: Vec<ValueId> = inputs.into_iter().chain(outs.first().copied()).collect();
        attention(b, &inputs)
    }),
    (Operator::SCALED_DOT_PRODUCT_ATTENTION, attention),
];

/// As in PyTorch, a causal mask starts at the first key, and fully masked rows are zeros.
fn attention(b: &mut Builder<'_, '_>, args: &[ValueId]) -> Result<(), Error> {
    let call = ScaledDotProductAttentionArgs::of(args)?;
    if b.optional_number(call.dropout_p)?.is_some_and(|dropout| dropout != 0.0) {
        return Err(Error::unsupported("attention with dropout"));
    }
    let mask = b.optional(call.attn_mask);
    let scale = b.optional_number(call.scale)?;
    let is_causal = b.truth(call.is_causal)?;
    let start = is_causal.then(|| b.new_int(0));
    let rank = b.info(call.query)?.rank();
    let mut tensors = [call.query, call.key, call.value];
    for tensor in &mut tensors {
        *tensor = with_rank_four(b, *tensor, rank)?;
    }
    let out = attend(b, tensors, mask, start, scale, HiddenRows::AreZeros)?;
    if rank == 4 {
        return b.finish_with(out, call.out);
    }
    let mut sizes = Vec::new();
    for dim in 0..rank.saturating_sub(1) {
        sizes.push(b.size(call.query, dim)?);
    }
    let depth = b.info(call.value)?.last();
    sizes.push(b.known(depth));
    let out = b.view(out, &sizes)?;
    b.finish_with(out, call.out)
}

/// Reshapes a tensor to `[batch, heads, rows, depth]`. Masks align with the last dims, so missing
/// dims are added in front.
fn with_rank_four(
    b: &mut Builder<'_, '_>,
    mut tensor: ValueId,
    rank: usize,
) -> Result<ValueId, Error> {
    let own = b.info(tensor)?.rank();
    if own != rank || !(2..=5).contains(&rank) {
        return Err(Error::Unsupported(format!(
            "attention of tensors of rank {own} with queries of rank {rank}"
        )));
    }
    if rank == 5 {
        let (first, second) = (b.info(tensor)?.size(0), b.info(tensor)?.size(1));
        let any = b.new_int(-1);
        let merged = Size { bound: first.saturating_mul(second), value: any };
        let mut sizes = [merged].to_vec();
        for dim in 2..rank {
            sizes.push(b.size(tensor, dim)?);
        }
        return b.view(tensor, &sizes);
    }
    for _ in rank..4 {
        tensor = b.unsqueeze(tensor, 0)?;
    }
    Ok(tensor)
}
