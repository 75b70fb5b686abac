//! Lowers attention to matrix multiplications and a softmax in `f32`.

use super::Rule;
use super::builder::{Builder, Info, Size};
use super::cache::{persistent, store};
use super::results::inputs;
use crate::error::Error;
use crate::graph::{Value, ValueId};
use crate::operators::{AttentionArgs, CustomSdpaArgs, Operator, SdpaWithKvCacheArgs};
use alloc::format;
use torchlet_core::ScalarType;

pub(super) const RULES: &[(Operator, Rule)] = &[
    (Operator::ET_VK_SDPA, |b, args| sdpa(b, args, None, HiddenRows::AreNoNumbers)),
    (Operator::ATTENTION, |b, args| {
        // Older files lack the offset.
        let start = b.optional(AttentionArgs::of(args)?.offset);
        sdpa(b, args, start, HiddenRows::AreZeros)
    }),
    (Operator::LLAMA_CUSTOM_SDPA, |b, args| {
        let qkv = three(b, args)?;
        if has_kernel(b, args, qkv)? {
            b.call_into(Operator::LLAMA_CUSTOM_SDPA, inputs(args), b.out(args)?);
            return Ok(());
        }
        custom_sdpa(b, &CustomSdpaArgs::of(args)?, qkv)
    }),
    (Operator::SDPA_WITH_KV_CACHE, |b, args| {
        let [q, k, v] = three(b, args)?;
        let caches = update_caches(b, args, [k, v])?;
        let call = CustomSdpaArgs::from(SdpaWithKvCacheArgs::of(args)?);
        custom_sdpa(b, &call, [q, caches[0], caches[1]])
    }),
    (Operator::TESTING_COMPUTE_ATTN_WEIGHT_WITH_KV_CACHE, |b, args| {
        let [q, k, v] = three(b, args)?;
        let [cache, _] = update_caches(b, args, [k, v])?;
        let start = SdpaWithKvCacheArgs::of(args)?.start_pos;
        let out = b.out(args)?;
        let wanted = b.info(out)?;
        let heads = grouped(b, q, cache)?;
        // The output may have more rows and keys than the cache: extra rows are zero, and extra
        // keys are masked.
        let scores = scores(b, &heads, None)?;
        let scores = resized(b, scores, 2, wanted.size(2), 0.0)?;
        let scores = causal(b, scores, start)?;
        let fitted = resized(b, scores, 3, wanted.size(3), f64::NEG_INFINITY)?;
        b.finish_with(fitted, out)
    }),
];

/// Attention weights of fully masked rows.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum HiddenRows {
    /// Their softmax is NaN, as every score is minus infinity.
    AreNoNumbers,
    AreZeros,
}

/// Lowers attention; causal with this offset, if one is given.
fn sdpa(
    b: &mut Builder<'_, '_>,
    args: &[ValueId],
    start: Option<ValueId>,
    hidden: HiddenRows,
) -> Result<(), Error> {
    let call = AttentionArgs::of(args)?;
    let qkv = three(b, args)?;
    let mask = b.optional(call.mask);
    let scale = b.optional_number(call.scale)?;
    let out = attend(b, qkv, mask, start, scale, hidden)?;
    b.finish_with(out, b.out(args)?)
}

/// The first three arguments, which must have rank 4.
fn three(b: &Builder<'_, '_>, args: &[ValueId]) -> Result<[ValueId; 3], Error> {
    let [q, k, v, ..] = args[..] else {
        return Err(Error::Invalid(format!(
            "expected query, key and value, found {} arguments",
            args.len()
        )));
    };
    for id in [q, k, v] {
        let info = b.info(id)?;
        if info.rank() != 4 {
            return Err(Error::Invalid(format!(
                "query, key and value: expected 4 dims, found shape {:?}",
                info.sizes
            )));
        }
    }
    Ok([q, k, v])
}

/// Whether the kernel of `llama.custom_sdpa` supports these arguments. It supports the forms of CPU
/// programs: a single type, and a floating-point mask over queries and keys.
fn has_kernel(b: &Builder<'_, '_>, args: &[ValueId], qkv: [ValueId; 3]) -> Result<bool, Error> {
    let call = CustomSdpaArgs::of(args)?;
    let [q, k, v] = [b.info(qkv[0])?, b.info(qkv[1])?, b.info(qkv[2])?];
    let out = b.info(b.out(args)?)?;
    let same = [&k, &v, &out].iter().all(|info| info.scalar_type == q.scalar_type);
    let known = b.optional(call.dropout_p).is_none_or(|id| b.number(id).is_ok_and(|p| p == 0.0))
        && b.optional(call.is_causal).is_some();
    let fits = match b.optional(call.attn_mask) {
        None => true,
        Some(mask) => {
            let mask = b.info(mask)?;
            mask.rank() == 2
                && mask.scalar_type.is_floating()
                && mask.size(0) == q.size(1)
                && mask.size(1) == k.size(1)
                && !b.truth(call.is_causal)?
        }
    };
    Ok(same && known && fits && args.len() == 9 && q.scalar_type != ScalarType::Double)
}

/// Writes keys and values to the key and value caches of a call.
fn update_caches(
    b: &mut Builder<'_, '_>,
    args: &[ValueId],
    values: [ValueId; 2],
) -> Result<[ValueId; 2], Error> {
    let call = SdpaWithKvCacheArgs::of(args)?;
    let start = call.start_pos;
    let mut caches = [call.key_cache, call.value_cache];
    for (cache, value) in caches.iter_mut().zip(values) {
        *cache = persistent(b, *cache)?;
        store(b, value, *cache, start)?;
    }
    Ok(caches)
}

/// Lowers attention with keys and values as `[batch, position, head, dim]`.
fn custom_sdpa(
    b: &mut Builder<'_, '_>,
    call: &CustomSdpaArgs,
    [q, mut k, mut v]: [ValueId; 3],
) -> Result<(), Error> {
    let start = call.start_pos;
    let mask = b.optional(call.attn_mask);
    if b.optional_number(call.dropout_p)?.is_some_and(|dropout| dropout != 0.0) {
        return Err(Error::unsupported("attention with dropout other than 0"));
    }
    let is_causal = b.optional_number(call.is_causal)?.is_none_or(|causal| causal != 0.0);
    let scale = b.optional_number(call.scale)?;
    // Slice off keys after the last one that any query sees.
    let zero = b.new_int(0);
    let end = match mask {
        Some(mask) => {
            let last = b.info(mask)?.rank().saturating_sub(1);
            b.size(mask, last)?.value
        }
        None => {
            let length = b.size(q, 1)?;
            b.sum(start, length.value)?
        }
    };
    for cache in [&mut k, &mut v] {
        *cache = b.slice(*cache, 1, zero, end, 1)?;
    }
    // To `[batch, head, position, dim]`.
    let mut tensors = [q, k, v];
    for tensor in &mut tensors {
        *tensor = b.permute(*tensor, &[0, 2, 1, 3])?;
    }
    let start = is_causal.then_some(start);
    let out = attend(b, tensors, mask, start, scale, HiddenRows::AreNoNumbers)?;
    let out = b.permute(out, &[0, 2, 1, 3])?;
    b.finish_with(out, call.out)
}

/// Queries and keys for a batched matrix multiplication over key heads. The query heads that share
/// a key head are merged into its rows.
struct Heads {
    /// `[batch * key heads, query heads per key head * rows, dim]`.
    q: ValueId,
    /// `[batch * key heads, dim, keys]`.
    k: ValueId,
    batches: Size,
    batch: Size,
    heads: Size,
    rows: Size,
    keys: Size,
    depth: usize,
}

impl Heads {
    fn new(b: &mut Builder<'_, '_>, q: ValueId, k: ValueId) -> Result<Self, Error> {
        let (info, keys) = (b.info(q)?, b.info(k)?);
        let (heads, key_heads, depth) = (info.size(1), keys.size(1), info.last());
        let fits = keys.last() == depth
            && keys.size(0) == info.size(0)
            && key_heads > 0
            && heads % key_heads == 0;
        if !fits {
            return Err(Error::Invalid(format!(
                "query shape {:?} does not match key shape {:?}",
                info.sizes, keys.sizes
            )));
        }
        let (batch, heads, rows) = (b.size(q, 0)?, b.known(heads), b.size(q, 2)?);
        let keys = b.size(k, 2)?;
        let batches = b.product(batch.value, key_heads)?;
        let batches = Size { bound: batch.bound.saturating_mul(key_heads), value: batches };
        let own_depth = b.known(depth);
        let q = folded(b, q, batches, rows.bound * (heads.bound / key_heads), own_depth)?;
        let k = b.permute(k, &[0, 1, 3, 2])?;
        let k = b.view(k, &[batches, own_depth, keys])?;
        Ok(Heads { q, k, batches, batch, heads, rows, keys, depth })
    }
}

/// Reshapes `[batch, head, row, element]`, merging the heads that share a key head into rows.
fn folded(
    b: &mut Builder<'_, '_>,
    value: ValueId,
    batches: Size,
    rows: usize,
    last: Size,
) -> Result<ValueId, Error> {
    let any = b.new_int(-1);
    b.view(value, &[batches, Size { bound: rows, value: any }, last])
}

fn grouped(b: &mut Builder<'_, '_>, q: ValueId, k: ValueId) -> Result<Heads, Error> {
    let (q, k) = (b.permute(q, &[0, 2, 1, 3])?, b.permute(k, &[0, 2, 1, 3])?);
    Heads::new(b, q, k)
}

/// Scaled scores, `[batch, head, row, key]`.
fn scores(b: &mut Builder<'_, '_>, heads: &Heads, scale: Option<f64>) -> Result<ValueId, Error> {
    let scale = scale.unwrap_or_else(|| 1.0 / square_root(heads.depth.max(1) as f64));
    let (q, k) = (b.cast(heads.q, ScalarType::Float)?, b.cast(heads.k, ScalarType::Float)?);
    let q = b.with_number(Operator::MUL_SCALAR, q, scale)?;
    let scores = b.matmul(q, k)?;
    b.view(scores, &[heads.batch, heads.heads, heads.rows, heads.keys])
}

/// Sets scores of keys after the query's position to minus infinity.
fn causal(b: &mut Builder<'_, '_>, scores: ValueId, start: ValueId) -> Result<ValueId, Error> {
    let (rows, keys) = (b.size(scores, 2)?, b.size(scores, 3)?);
    let zero = b.new_int(0);
    let end = b.sum(start, rows.value)?;
    let own = b.range(start, end, rows.bound)?;
    let own = b.unsqueeze(own, 1)?;
    let others = b.range(zero, keys.value, keys.bound)?;
    let behind = b.comparison(Operator::GT_TENSOR, others, own)?;
    b.masked(scores, behind, f64::NEG_INFINITY)
}

/// Attention over `[batch, head, row, dim]`; causal with offset `start`, if it is given.
pub(super) fn attend(
    b: &mut Builder<'_, '_>,
    [q, k, v]: [ValueId; 3],
    mask: Option<ValueId>,
    start: Option<ValueId>,
    scale: Option<f64>,
    hidden: HiddenRows,
) -> Result<ValueId, Error> {
    let heads = Heads::new(b, q, k)?;
    let mut weights = scores(b, &heads, scale)?;
    if let Some(start) = start {
        weights = causal(b, weights, start)?;
    }
    if let Some(mask) = mask {
        let mask = fitted(b, mask, &heads)?;
        weights = match b.info(mask)?.scalar_type {
            ScalarType::Bool => {
                let hidden = b.unary(Operator::LOGICAL_NOT, mask)?;
                b.masked(weights, hidden, f64::NEG_INFINITY)?
            }
            _ => {
                let mask = b.cast(mask, ScalarType::Float)?;
                b.binary(Operator::ADD_TENSOR, weights, mask)?
            }
        };
    }
    let scores = weights;
    let mut weights = b.softmax(Operator::SOFTMAX, scores)?;
    if hidden == HiddenRows::AreZeros && mask.is_some() {
        let rows = hidden_rows(b, scores)?;
        weights = b.masked(weights, rows, 0.0)?;
    }
    let info = b.info(v)?;
    let key_heads = heads.batches.bound / heads.batch.bound.max(1);
    let shared = heads.heads.bound / key_heads.max(1);
    let weights = folded(b, weights, heads.batches, heads.rows.bound * shared, heads.keys)?;
    let depth = b.known(info.last());
    let keys = b.size(v, 2)?;
    let v = b.view(v, &[heads.batches, keys, depth])?;
    let v = b.cast(v, ScalarType::Float)?;
    let out = b.matmul(weights, v)?;
    b.view(out, &[heads.batch, heads.heads, heads.rows, depth])
}

/// Mask of rows whose scores are all minus infinity.
fn hidden_rows(b: &mut Builder<'_, '_>, scores: ValueId) -> Result<ValueId, Error> {
    let mut info = b.info(scores)?;
    if let Some(last) = info.sizes.last_mut() {
        *last = 1;
    }
    let (dims, keep) = (b.new_ints(&[-1]), b.push(Value::Bool(true)));
    let largest = b.call(Operator::AMAX, &[scores, dims, keep], info.clone());
    let infinity = b.push(Value::Double(f64::NEG_INFINITY));
    let made = Info { scalar_type: ScalarType::Bool, ..info };
    Ok(b.call(Operator::EQ_SCALAR, &[largest, infinity], made))
}

/// Slices a mask to the rows and keys of a call.
fn fitted(b: &mut Builder<'_, '_>, mask: ValueId, heads: &Heads) -> Result<ValueId, Error> {
    let info: Info = b.info(mask)?;
    if info.rank() > 4 {
        return Err(Error::Invalid(format!(
            "attention mask: expected at most 4 dims, found shape {:?}",
            info.sizes
        )));
    }
    let mut mask = mask;
    for (wanted, back) in [(heads.keys, 1), (heads.rows, 2)] {
        let Some(dim) = info.rank().checked_sub(back) else { break };
        if info.size(dim) != 1 && (info.dynamic || info.size(dim) != wanted.bound) {
            let zero = b.new_int(0);
            mask = b.slice(mask, dim, zero, wanted.value, 1)?;
        }
    }
    Ok(mask)
}

/// Truncates or pads a dim at its end to this size.
fn resized(
    b: &mut Builder<'_, '_>,
    value: ValueId,
    dim: usize,
    size: usize,
    filler: f64,
) -> Result<ValueId, Error> {
    let mut info = b.info(value)?;
    let Some(count) = size.checked_sub(info.size(dim)).filter(|count| *count > 0) else {
        return b.slice_known(value, dim, 0, size, 1);
    };
    let mut pads = alloc::vec![0; 2 * info.rank().saturating_sub(dim)];
    if let Some(slot) = pads.last_mut() {
        *slot = count as i64;
    }
    if let Some(size) = info.sizes.get_mut(dim) {
        *size = size.saturating_add(count);
    }
    let (pads, filler) = (b.new_ints(&pads), b.new_number(filler));
    Ok(b.call(Operator::CONSTANT_PAD_ND, &[value, pads, filler], info))
}

/// Square root of a positive number, as `core` has none.
fn square_root(number: f64) -> f64 {
    // Newton's method from above decreases until it converges.
    let mut root = number.max(1.0);
    for _ in 0..64 {
        let next = 0.5 * (root + number / root);
        if next >= root {
            break;
        }
        root = next;
    }
    root
}

#[cfg(test)]
mod tests {
    #[test]
    fn square_roots_are_close() {
        for number in [1.0f64, 2.0, 16.0, 64.0, 80.0, 1e6] {
            let (found, exact) = (super::square_root(number), number.sqrt());
            assert!((found - exact).abs() <= 1e-15 * exact, "{number}: {found}");
        }
    }
}
