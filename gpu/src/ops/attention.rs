//! Scaled dot-product attention (SDPA): parsing of its variants, and choice of the kernel.

mod kernels;

use self::kernels::{Kernel, SIDE};
use super::caches::{position, update_caches};
use super::views::gather;
use super::{Entry, operator};
use crate::derived::{Derived, Shared};
use crate::encoder::{Encoder, read, u32_of, write};
use crate::error::Error;
use crate::tensors::Operand;
use torchlet_graph::graph::ValueId;
use torchlet_graph::operators::{AttentionArgs, CustomSdpaArgs, Operator, SdpaWithKvCacheArgs};
use torchlet_shaders::{
    Attention, AttentionCooperative, AttentionCooperativePush, AttentionPush, AttentionScores,
    AttentionScoresPush, AttentionSplit, AttentionSplitPush, AttentionTiled, AttentionTiledPush,
};

pub(super) const OPERATORS: &[Entry] = &[
    operator(Operator::ET_VK_SDPA, |e, args| sdpa(e, args, false)),
    operator(Operator::ATTENTION, |e, args| sdpa(e, args, true)),
    operator(Operator::LLAMA_CUSTOM_SDPA, |e, args| {
        let call = CustomSdpaArgs::of(args)?;
        let tensors = three(e, args)?;
        custom_sdpa(e, call, tensors)
    }),
    operator(Operator::SDPA_WITH_KV_CACHE, |e, args| {
        let [q, k, v] = three(e, args)?;
        let caches = update_caches(e, args, [&k, &v])?;
        let [k, v] = caches;
        let call = CustomSdpaArgs::from(SdpaWithKvCacheArgs::of(args)?);
        custom_sdpa(e, call, [q, k, v])
    }),
    operator(Operator::TESTING_COMPUTE_ATTN_WEIGHT_WITH_KV_CACHE, |e, args| {
        let [q, k, v] = three(e, args)?;
        let [cache, _] = update_caches(e, args, [&k, &v])?;
        let offset = position(e, SdpaWithKvCacheArgs::of(args)?.start_pos)?;
        let out = e.out(args)?;
        scores(e, &q, &cache, offset, &out)
    }),
];

/// Encodes SDPA with queries, keys, values, an optional mask and a scale. If `hidden_zeros` is set,
/// rows whose keys are all masked become zero, and an optional offset argument follows: row `i`
/// attends to keys up to `offset + i`.
fn sdpa(e: &mut Encoder<'_, '_>, args: &[ValueId], hidden_zeros: bool) -> Result<(), Error> {
    let call = AttentionArgs::of(args)?;
    let (mask, scale) = (e.optional_tensor(call.mask)?, e.optional_float(call.scale)?);
    // Older files have no offset argument.
    let offset = call.offset.filter(|_| hidden_zeros);
    let causal = match e.optional_int(offset)? {
        Some(_) => offset.map(|offset| position(e, offset)).transpose()?,
        None => None,
    };
    let [q, k, v] = three(e, args)?;
    let form = Form { order: Order { head: 1, row: 2 }, causal, hidden_zeros };
    let (keys, out) = (k.size(2), e.out(args)?.id);
    attend(e, [&q, &k, &v], form, mask.as_ref(), keys, scale, out)
}

/// Returns the first three arguments, which must have four dims.
pub(super) fn three(e: &Encoder<'_, '_>, args: &[ValueId]) -> Result<[Operand; 3], Error> {
    let [q, k, v, ..] = args[..] else {
        return Err(Error::Invalid(format!(
            "expected query, key and value, found {} arguments",
            args.len()
        )));
    };
    let tensors = [e.tensor(q)?, e.tensor(k)?, e.tensor(v)?];
    match tensors.iter().find(|tensor| tensor.rank() != 4) {
        Some(tensor) => Err(Error::Invalid(format!(
            "query, key and value: expected 4 dims, found shape {:?}",
            tensor.sizes
        ))),
        None => Ok(tensors),
    }
}

/// The indices of the head and row dims of a tensor. Batches are the first dim, and the
/// elements of a head the last.
#[derive(Debug, Clone, Copy)]
struct Order {
    head: usize,
    row: usize,
}

impl Order {
    /// Selects the strides of batch, head and row from all strides.
    fn strides(self, all: &[usize]) -> Result<[u32; 3], Error> {
        let stride = |dim: usize| u32_of(all.get(dim).copied().unwrap_or(0));
        Ok([stride(0)?, stride(self.head)?, stride(self.row)?])
    }
}

/// Encodes attention over `[batch, position, head, depth]`, with queries from position `offset` on.
fn custom_sdpa(
    e: &mut Encoder<'_, '_>,
    call: CustomSdpaArgs,
    [q, k, v]: [Operand; 3],
) -> Result<(), Error> {
    let offset = position(e, call.start_pos)?;
    let mask = e.optional_tensor(call.attn_mask)?;
    if e.optional_float(call.dropout_p)?.is_some_and(|dropout| dropout != 0.0) {
        return Err(Error::unsupported("dropout other than 0"));
    }
    let causal = e.optional_int(call.is_causal)?.is_none_or(|causal| causal != 0);
    let scale = e.optional_float(call.scale)?;
    let keys = match &mask {
        Some(mask) => mask.sizes.last().copied().unwrap_or(1).min(k.size(1)),
        None => offset.saturating_add(q.size(1)).min(k.size(1)),
    };
    let out = e.out(&[call.out])?.id;
    let form = Form {
        order: Order { head: 2, row: 1 },
        causal: causal.then_some(offset),
        hidden_zeros: false,
    };
    attend(e, [&q, &k, &v], form, mask.as_ref(), keys, scale, out)
}

/// The properties that distinguish variants of attention.
#[derive(Debug, Clone, Copy)]
struct Form {
    order: Order,
    /// The position of the first query, for causal attention.
    causal: Option<usize>,
    /// Whether rows whose keys are all masked become zero.
    hidden_zeros: bool,
}

/// The maximum number of query rows for which several workgroups share the keys of a row.
const SPLIT_ROWS: usize = 4;

/// The minimum number of keys for sharing, and the minimum number of keys per share.
const SPLIT_KEYS: usize = 64;

/// The maximum number of shares, since combining them costs time too.
const MAX_SHARES: usize = 32;

/// Attention of few query rows over many keys, which several workgroups share.
struct Split {
    pipeline: AttentionSplit,
    shares: usize,
    /// The number of groups of heads; each group has separate workgroups.
    groups: usize,
}

impl Split {
    /// Chooses how to divide the keys; `None` if other kernels are used for any number of rows.
    fn of(
        e: &Encoder<'_, '_>,
        [q, k, v]: [&Operand; 3],
        form: Form,
        mask: Option<&Operand>,
        out: &Operand,
    ) -> Result<Option<Self>, Error> {
        let (depth, value_depth) = (q.size(3), v.size(3));
        let key_heads = k.size(form.order.head);
        let sharing = q.size(form.order.head) / key_heads.max(1);
        // Limited so that 16 KiB of shared memory suffice, which every device has.
        let (tile, most_heads) = match depth.max(value_depth) {
            0..=64 => (32, 16),
            65..=128 => (16, 8),
            129..=256 => (8, 4),
            _ => return Ok(None),
        };
        let most = e.bound_sizes(k).get(form.order.row).copied().unwrap_or(0);
        let fits = depth > 0
            && value_depth > 0
            && depth.is_multiple_of(4)
            && value_depth.is_multiple_of(4)
            && sharing > 0
            && most >= SPLIT_KEYS
            && [q, k, v].iter().all(|operand| operand.element.is_floating());
        if !fits {
            return Ok(None);
        }
        // As few groups as possible, all of the same size.
        let group = (1..=most_heads).rev().find(|it| sharing.is_multiple_of(*it)).unwrap_or(1);
        let groups = sharing / group;
        // Enough workgroups to saturate the device with a single row. Smaller batches use no more
        // shares, since memory is planned for the largest batch.
        let batches = e.bound_sizes(q).first().copied().unwrap_or(1);
        let wanted = (e.busy() / 128)
            .div_ceil(batches.saturating_mul(key_heads).saturating_mul(groups).max(1));
        let wanted = if e.limits().device_scope { wanted } else { 1 };
        let shares = most.div_ceil(SPLIT_KEYS).min(MAX_SHARES).min(wanted).max(1);
        let pipeline = AttentionSplit {
            query: q.element,
            key: k.element,
            value: v.element,
            mask: mask.unwrap_or(q).element,
            has_mask: mask.is_some(),
            causal: form.causal.is_some(),
            quads: u32_of(depth / 4)?,
            value_quads: u32_of(value_depth / 4)?,
            group: u32_of(group)?,
            tile,
            output: out.element,
            hidden_zeros: form.hidden_zeros,
            groups: u32_of(groups)?,
        };
        let groups = key_heads.saturating_mul(groups);
        Ok(Some(Split { pipeline, shares, groups }))
    }
}

fn attend(
    e: &mut Encoder<'_, '_>,
    [q, k, v]: [&Operand; 3],
    form: Form,
    mask: Option<&Operand>,
    keys: usize,
    scale: Option<f64>,
    out: ValueId,
) -> Result<(), Error> {
    let Form { order, causal, hidden_zeros } = form;
    let (batches, heads, rows) = (q.size(0), q.size(order.head), q.size(order.row));
    let (depth, value_depth) = (q.size(3), v.size(3));
    let key_heads = k.size(order.head);
    let fits = k.size(3) == depth
        && k.size(0) == batches
        && v.size(0) == batches
        && v.size(order.head) == key_heads
        && key_heads > 0
        && heads % key_heads == 0
        && keys <= k.size(order.row)
        && keys <= v.size(order.row);
    if !fits {
        let (q, k, v) = (&q.sizes, &k.sizes, &v.sizes);
        return Err(Error::Invalid(format!(
            "query shape {q:?} does not match key shape {k:?} and value shape {v:?} with {keys} \
             keys"
        )));
    }
    if let Some(other) = [q, k, v].iter().find(|operand| !operand.element.is_floating()) {
        return Err(Error::unsupported(format!(
            "attention with operands of type {:?}; expected floating point",
            other.element
        )));
    }
    // The shader keeps a row in shared memory, of which every device has 16 KiB.
    let row = match depth {
        0..=512 => 512,
        513..=2048 => 2048,
        _ => {
            return Err(Error::unsupported(format!(
                "attention heads of {depth} elements; the limit is 2048"
            )));
        }
    };
    let mut sizes = q.sizes.clone();
    sizes[3] = value_depth;
    let out = e.resize(out, &sizes)?;
    if !out.element.is_floating() {
        return Err(Error::Invalid(format!(
            "output: expected floating point, found {:?}",
            out.element
        )));
    }
    if out.numel() == 0 {
        return Ok(());
    }
    let mut mask_strides = [0; 4];
    if let Some(mask) = mask {
        let missing = 4usize.checked_sub(mask.rank());
        let missing = missing.ok_or_else(|| {
            Error::Invalid(format!(
                "attention mask: expected at most 4 dims, found shape {:?}",
                mask.sizes
            ))
        })?;
        let own = mask.strides();
        for (dim, wanted) in [batches, heads, rows, keys].into_iter().enumerate() {
            let Some(source) = dim.checked_sub(missing) else { continue };
            let size = mask.size(source);
            if size != 1 && size < wanted {
                return Err(Error::Invalid(format!(
                    "the attention mask of shape {:?} does not broadcast to {:?}",
                    mask.sizes,
                    [batches, heads, rows, keys]
                )));
            }
            mask_strides[dim] = if size == 1 { 0 } else { u32_of(own[source])? };
        }
    }
    // The shader writes output rows four elements at a time; rows of other lengths are written to a
    // wider temporary tensor.
    let mut wide = sizes.clone();
    wide[3] = value_depth.next_multiple_of(4);
    let padded = wide[3] != value_depth;
    let target = if padded { e.temporary(out.element, &wide)? } else { out.clone() };
    if !padded {
        e.give_permuted(&out)?;
    }
    for operand in [q, k, v, &target] {
        u32_of(operand.numel())?;
    }
    let mask_operand = mask.unwrap_or(q);
    let scale = scale.unwrap_or(1.0 / (depth.max(1) as f64).sqrt()) as f32;
    let offset = u32_of(causal.unwrap_or(0).min(1 << 30))?;
    let aligned = depth.is_multiple_of(4) && value_depth.is_multiple_of(4);
    let accesses = [read(q.id), read(k.id), read(v.id), read(mask_operand.id), write(target.id)];
    let [q_strides, k_strides, v_strides, out_strides] = [
        order.strides(&e.strides(q))?,
        order.strides(&e.strides(k))?,
        order.strides(&e.strides(v))?,
        order.strides(&e.strides(&target))?,
    ];
    // The push constants common to all kernels.
    macro_rules! push {
        ($push:ident, {$($field:ident: $value:expr),* $(,)?}) => {
            $push {
                keys: u32_of(keys)?,
                offset,
                scale,
                q_strides,
                k_strides,
                v_strides,
                mask_strides,
                out_strides,
                base_z: 0,
                $($field: $value,)*
            }
        };
    }
    let bound = e.bound_sizes(q);
    let most = |dim: usize, now: usize| bound.get(dim).copied().unwrap_or(now);
    let [most_batches, most_heads] = [most(0, batches), most(order.head, heads)];
    let most_rows = most(order.row, rows);
    let split = Split::of(e, [q, k, v], form, mask, &out)?;
    let few = rows <= SPLIT_ROWS;
    if let Some(Split { pipeline, shares, groups }) = split {
        // Requested for any number of rows, since the next run may have fewer rows.
        let places = most_batches.saturating_mul(most_heads);
        let places = places.saturating_mul(SPLIT_ROWS.min(most_rows));
        let first_share = places.div_ceil(4);
        let quads = places.saturating_mul(shares).saturating_mul(value_depth / 4 + 1);
        let shared = Shared { counts: first_share, shares: quads };
        let parts = e.derived(Derived::Shared(shared))?;
        if few {
            // One dim may exceed its bound while another is smaller.
            if batches.saturating_mul(heads).saturating_mul(rows) > places {
                let q = &q.sizes;
                return Err(Error::Invalid(format!(
                    "query: expected at most shape {bound:?}, found {q:?}"
                )));
            }
            let push = push!(AttentionSplitPush, {
                groups: u32_of(groups)?,
                first_share: u32_of(first_share)?,
            });
            u32_of(parts.numel())?;
            let [q, k, v, mask, target] = accesses;
            let accesses = [q, k, v, mask, target, write(parts.id)];
            let invocations = [128 * shares, rows, batches.saturating_mul(groups)];
            return e.dispatch(&pipeline, accesses, &push, invocations, [128, 1, 1]);
        }
        e.reserve(&parts);
    }
    let strides = [q_strides, k_strides, v_strides];
    let most_keys = e.bound_sizes(k).get(order.row).copied().unwrap_or(0);
    let most = [most_batches.saturating_mul(most_heads), most_rows, most_keys];
    let kernels = Kernel::all(e, [q, k, v], strides, most);
    let first = kernels.first().copied().unwrap_or(Kernel::Plain);
    let question = (
        [q.element, k.element, v.element, out.element],
        mask.map(|mask| mask.element),
        (causal.is_some(), depth, value_depth),
        (most, key_heads, strides),
    );
    let others = |first: &Kernel| kernels.iter().copied().filter(|it| it != first).collect();
    let kernel = e.choose(&out, question, first, others);
    if let Kernel::Cooperative(units) = kernel {
        let push = push!(AttentionCooperativePush, {
            heads: u32_of(heads)?,
            heads_per_key: u32_of(heads / key_heads)?,
            rows: u32_of(rows)?,
        });
        let pipeline = AttentionCooperative {
            mask: mask_operand.element,
            output: out.element,
            has_mask: mask.is_some(),
            causal: causal.is_some(),
            hidden_zeros,
            sides: u32_of(depth / SIDE)?,
            value_sides: u32_of(value_depth / SIDE)?,
            parts: u32_of(units.parts)?,
            key_parts: u32_of(units.key_parts)?,
            value_parts: u32_of(units.value_parts)?,
        };
        let lanes = units.lanes();
        let workgroups = rows.div_ceil(SIDE * units.parts);
        let invocations = [lanes, workgroups, batches.saturating_mul(heads)];
        return e.dispatch(&pipeline, accesses, &push, invocations, [u32_of(lanes)?, 1, 1]);
    }
    if let Kernel::Tiled(tile) = kernel {
        let push = push!(AttentionTiledPush, {
            heads: u32_of(heads)?,
            heads_per_key: u32_of(heads / key_heads)?,
            rows: u32_of(rows)?,
        });
        let pipeline = AttentionTiled {
            query: q.element,
            key: k.element,
            value: v.element,
            mask: mask_operand.element,
            output: out.element,
            has_mask: mask.is_some(),
            causal: causal.is_some(),
            hidden_zeros,
            quads: u32_of(depth / 4)?,
            value_quads: u32_of(value_depth / 4)?,
            rows: u32_of(tile)?,
        };
        let invocations = [128, rows.div_ceil(tile), batches.saturating_mul(heads)];
        return e.dispatch(&pipeline, accesses, &push, invocations, [128, 1, 1]);
    }
    let push = push!(AttentionPush, {
        heads: u32_of(heads)?,
        heads_per_key: u32_of(heads / key_heads)?,
        depth: u32_of(depth)?,
        value_start: 0,
        value_end: 0,
    });
    let pipeline = Attention {
        query: q.element,
        key: k.element,
        value: v.element,
        mask: mask_operand.element,
        output: out.element,
        has_mask: mask.is_some(),
        causal: causal.is_some(),
        aligned,
        row,
        hidden_zeros,
    };
    // The shader relies on workgroups of 128 invocations, each of which sums four elements.
    let invocations = [128, rows, batches.saturating_mul(heads)];
    for start in (0..value_depth).step_by(512) {
        let (value_start, value_end) = (u32_of(start)?, u32_of(value_depth.min(start + 512))?);
        let push = AttentionPush { value_start, value_end, ..push };
        e.dispatch(&pipeline, accesses, &push, invocations, [128, 1, 1])?;
    }
    if padded {
        let strides: Vec<i64> =
            crate::tensors::strides(&wide).iter().map(|stride| *stride as i64).collect();
        gather(e, &target, &out, &sizes, &strides, 0)?;
    }
    Ok(())
}

/// Emits the attention scores of queries from position `offset` on against cached keys.
fn scores(
    e: &mut Encoder<'_, '_>,
    q: &Operand,
    k: &Operand,
    offset: usize,
    out: &Operand,
) -> Result<(), Error> {
    let (heads, key_heads, rank) = (q.size(2), k.size(2), out.rank());
    let fits = k.size(3) == q.size(3)
        && key_heads > 0
        && heads % key_heads == 0
        && rank == 4
        && out.size(0) == q.size(0)
        && k.size(0) == q.size(0)
        && out.size(1) == heads;
    if !fits {
        return Err(Error::Invalid(format!(
            "query shape {:?} does not match key shape {:?} and output shape {:?}",
            q.sizes, k.sizes, out.sizes
        )));
    }
    let order = Order { head: 2, row: 1 };
    let push = AttentionScoresPush {
        numel: u32_of(out.numel())?,
        heads: u32_of(heads)?,
        heads_per_key: u32_of(heads / key_heads)?,
        rows: u32_of(out.size(2))?,
        columns: u32_of(out.size(3))?,
        q_rows: u32_of(q.size(1))?,
        keys: u32_of(k.size(1))?,
        depth: u32_of(q.size(3))?,
        offset: u32_of(offset.min(1 << 30))?,
        scale: (1.0 / (q.size(3).max(1) as f64).sqrt()) as f32,
        q_strides: order.strides(&q.strides())?,
        k_strides: order.strides(&k.strides())?,
    };
    let pipeline = AttentionScores { query: q.element, key: k.element, output: out.element };
    e.dispatch_by_four(&pipeline, [read(q.id), read(k.id), write(out.id)], &push, out.numel())
}

#[cfg(test)]
mod tests;
