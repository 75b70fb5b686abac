//! `custom_sdpa` and related operators.

use super::cache::{check as check_cache, first_position, write};
use super::contiguous_of_rank;
use super::flash::{Attention, Mask, Order, QuantParams, Samples, Vectors, slot_len};
use super::slots::checked;
use crate::compute::simd::Tier;
use crate::machine;
use crate::number::unsupported;
use crate::scratch;
use crate::shape::{bad, contiguous, of_type};
use crate::table::kernels;
use torchlet_core::Param::{Bool, Float, Int, OptionalFloat, OptionalTensor, Out, Tensor};
use torchlet_core::{
    Arguments, Invoke, Kernel, KernelError, Plan, Prepare, ScalarType, TensorInfo, TensorRef,
};

kernels! { ATTENTION:
    /// `llama::custom_sdpa.out(query, key, value, start_pos, attn_mask,
    /// drpout_p, is_causal, scale, out)`: attention of queries, starting at position `start_pos`,
    /// over KV caches; all are `[batch, position, head, depth]`. Without a mask, keys after the
    /// last query are ignored.
    CUSTOM_SDPA_OUT = Kernel::new(
        "llama::custom_sdpa.out",
        &[Tensor, Tensor, Tensor, Int, OptionalTensor, Float, Bool, OptionalFloat, Out],
        |ctx| {
            let args = ArgIndices { q: 0, k: 1, v: 2, start: 3, out: 8 };
            prepare(ctx, args, |ctx| {
                let args = ArgIndices { q: 0, k: 1, v: 2, start: 3, out: 8 };
                let (k, v) = (ctx.tensor(1)?, ctx.tensor(2)?);
                attend(ctx, args, [k, v], false)
            })
        },
    );
    /// `llama::sdpa_with_kv_cache.out(query, key, value, key_cache,
    /// value_cache, start_pos, seq_len, attn_mask, drpout_p, is_causal, scale, out)`: writes keys
    /// and values to their caches, starting at position `start_pos`, and attends over the caches.
    SDPA_WITH_KV_CACHE_OUT = Kernel::new(
        "llama::sdpa_with_kv_cache.out",
        &[
            Tensor, Tensor, Tensor, Out, Out, Int, Int, OptionalTensor, Float, Bool, OptionalFloat,
            Out,
        ],
        |ctx| {
            check_cache(ctx, 1, 3)?;
            check_cache(ctx, 2, 4)?;
            prepare(ctx, WITH_CACHE, update_and_attend)
        },
    );
    /// `llama::custom_quantized_sdpa.out(query, key, value, start_pos,
    /// attn_mask, drpout_p, is_causal, scale, q_zero_points, q_scales,
    /// k_zero_points, k_scales, v_zero_points, v_scales, is_seq_at_dim_2, out)`: attention over
    /// int8 vectors, each with a zero point and a scale. Also supports the layout
    /// `[batch, head, position, depth]`.
    CUSTOM_QUANTIZED_SDPA_OUT = Kernel::new(
        "llama::custom_quantized_sdpa.out",
        &[
            Tensor, Tensor, Tensor, Int, OptionalTensor, Float, Bool, OptionalFloat,
            OptionalTensor, OptionalTensor, OptionalTensor, OptionalTensor, OptionalTensor,
            OptionalTensor, Bool, Out,
        ],
        |ctx| {
            let is_quantized = ctx.info(0)?.scalar_type == ScalarType::Char;
            for arg in 0..3 {
                let (info, zero) = (ctx.info(arg)?, FIRST_ZERO_POINTS + 2 * arg);
                let scale = zero + 1;
                for (arg, wanted) in [(zero, ScalarType::Char), (scale, ScalarType::Float)] {
                    let Some(found) = ctx.optional_info(arg)? else {
                        if is_quantized {
                            return Err(bad(arg, "missing; int8 query, key and value require zero \
                                                 points and scales"));
                        }
                        continue;
                    };
                    of_type(arg, &found, wanted)?;
                    contiguous(arg, &found)?;
                    let around = info.rank().saturating_sub(1);
                    if found.rank() != info.rank()
                        || found.sizes.get(..around) != info.sizes.get(..around)
                        || found.size(around) < 1
                    {
                        return Err(bad(arg, "expected the shape of the quantized tensor, with one \
                                             or more elements in the last dim"));
                    }
                }
            }
            prepare(ctx, QUANTIZED, |ctx| {
                let (k, v) = (ctx.tensor(1)?, ctx.tensor(2)?);
                attend(ctx, QUANTIZED, [k, v], true)
            })
        },
    );
    /// `torchlet::slots_sdpa.out(query, key, value, slots, starts, attn_mask, dropout_p,
    /// is_causal, scale, out)`: `llama::custom_sdpa` of several rows, each over a slot of the
    /// caches and from a position of its own. Queries are
    /// `[row, batch, position, head, depth]`, the caches `[slot, batch, position, head, depth]`,
    /// `slots` and `starts` `[row]`. The mask is `[query, key]` for all rows, or
    /// `[row, query, key]`.
    SLOTS_SDPA_OUT = Kernel::new(
        "torchlet::slots_sdpa.out",
        &[
            Tensor, Tensor, Tensor, Tensor, Tensor, OptionalTensor, Float, Bool, OptionalFloat, Out,
        ],
        |ctx| {
            let rows = ctx.info(0)?.size(0);
            for arg in [3, 4] {
                let info = ctx.info(arg)?;
                of_type(arg, &info, ScalarType::Long)?;
                contiguous(arg, &info)?;
                if info.rank() != 1 || info.size(0) != rows {
                    return Err(bad(arg, "expected a slot and a position for each row of queries"));
                }
            }
            prepare(ctx, SLOTS_SDPA, |ctx| {
                let (k, v) = (ctx.tensor(1)?, ctx.tensor(2)?);
                attend(ctx, SLOTS_SDPA, [k, v], false)
            })
        },
    );
}

/// Argument indices. Mask, dropout, causality and scale are consecutive.
#[derive(Debug, Clone, Copy)]
struct ArgIndices {
    q: usize,
    k: usize,
    v: usize,
    start: usize,
    out: usize,
}

const WITH_CACHE: ArgIndices = ArgIndices { q: 0, k: 3, v: 4, start: 5, out: 11 };
const QUANTIZED: ArgIndices = ArgIndices { q: 0, k: 1, v: 2, start: 3, out: 15 };
const SLOTS_SDPA: ArgIndices = ArgIndices { q: 0, k: 1, v: 2, start: 4, out: 9 };
/// Zero points of the queries; their scales follow, then those of keys and values.
const FIRST_ZERO_POINTS: usize = 8;

impl ArgIndices {
    /// The mask; dropout, causality and scale follow.
    fn mask(self) -> usize {
        // With caches, the number of positions precedes the mask.
        self.start + if self.out == WITH_CACHE.out { 2 } else { 1 }
    }

    /// Number of dims before those of a sample.
    fn outer(self) -> usize {
        usize::from(self.out == SLOTS_SDPA.out)
    }

    /// Whether heads precede positions.
    fn heads_first(self, args: &Arguments) -> Result<bool, KernelError> {
        if self.out == QUANTIZED.out { args.bool(14) } else { Ok(false) }
    }
}

fn order(info: &TensorInfo, heads_first: bool) -> Order {
    let dim = |from_end: usize| info.rank().checked_sub(from_end).map_or(0, |dim| info.size(dim));
    let (positions, heads) = if heads_first { (dim(2), dim(3)) } else { (dim(3), dim(2)) };
    Order { heads, positions, heads_first }
}

fn prepare(
    ctx: &mut Prepare,
    args: ArgIndices,
    invoke: torchlet_core::InvokeFn,
) -> Result<Plan, KernelError> {
    let outer = args.outer();
    let rank = 4 + outer;
    let [q, k, v] = [args.q, args.k, args.v].map(|arg| contiguous_of_rank(ctx, arg, rank));
    let ([q, k, v], depth) = ([q?, k?, v?], rank - 1);
    let heads_first = args.heads_first(ctx)?;
    let is_quantized = args.out == QUANTIZED.out && q.scalar_type == ScalarType::Char;
    let floats = [ScalarType::Float, ScalarType::Half, ScalarType::BFloat16];
    if !is_quantized && !floats.contains(&q.scalar_type) {
        return Err(unsupported(args.q, q.scalar_type));
    }
    let threads = ctx.threads().max(1);
    let slot = slot_len(machine::tier(ctx), q.size(depth))?;
    let len = slot
        .checked_mul(threads)
        .ok_or(bad(args.q, "head size: its scratch memory exceeds the address space"))?;
    let scratch = scratch::bytes_for(len, size_of::<f32>())?;
    ctx.scratch_at_most(scratch);
    for (arg, info) in [(args.k, &k), (args.v, &v)] {
        of_type(arg, info, q.scalar_type)?;
        if info.size(depth) != q.size(depth) || info.size(outer) != q.size(outer) {
            return Err(bad(arg, "batch size or head size differs from that of the query"));
        }
        if outer > 0 && info.size(0) != k.size(0) {
            return Err(bad(arg, "number of slots differs from that of the key"));
        }
    }
    let (queries, keys, values) =
        (order(&q, heads_first), order(&k, heads_first), order(&v, heads_first));
    if values.heads != keys.heads || values.positions != keys.positions {
        return Err(bad(args.v, "number of heads or positions differs from that of the key"));
    }
    if keys.heads == 0 || !queries.heads.is_multiple_of(keys.heads) {
        return Err(bad(
            args.k,
            "expected a number of key heads that divides the number of query heads",
        ));
    }
    let mask = args.mask();
    if let Some(info) = ctx.optional_info(mask)? {
        let is_per_row = outer > 0 && info.rank() == 3;
        if info.rank() != 2 && !is_per_row {
            return Err(KernelError::rank(mask, info.rank()));
        }
        if !floats.contains(&info.scalar_type) {
            return Err(unsupported(mask, info.scalar_type));
        }
        contiguous(mask, &info)?;
        if ctx.bool(mask + 2)? {
            return Err(bad(mask, "expected no mask, because attention is causal"));
        }
        let (row, sizes) = info.sizes.split_at(usize::from(is_per_row));
        let fits = |size: &i32, wanted: usize| usize::try_from(*size) == Ok(wanted);
        let fit = match sizes {
            [a, b] => fits(a, queries.positions) && fits(b, keys.positions),
            _ => false,
        };
        if !fit || row.iter().any(|rows| !fits(rows, q.size(0))) {
            return Err(bad(mask, "expected shape [query positions, key positions]"));
        }
    }
    if ctx.float(mask + 1)? != 0.0 {
        return Err(bad(mask + 1, "dropout: expected 0"));
    }
    ctx.resize(args.out, &q.sizes)?;
    let out = ctx.info(args.out)?;
    contiguous(args.out, &out)?;
    let fits = if is_quantized {
        floats.contains(&out.scalar_type)
    } else {
        out.scalar_type == q.scalar_type
    };
    if !fits {
        return Err(unsupported(args.out, out.scalar_type));
    }
    Ok(Plan::new(invoke).with_scratch(scratch))
}

fn update_and_attend(ctx: &mut Invoke) -> Result<(), KernelError> {
    let start = ctx.int(WITH_CACHE.start)?;
    let mut caches: [Option<TensorRef>; 2] = [None, None];
    let length = ctx.info(1)?.size(1);
    if usize::try_from(ctx.int(6)?) != Ok(length) || ctx.info(2)?.size(1) != length {
        return Err(bad(6, "expected the number of positions of the key and value caches"));
    }
    for (number, slot) in caches.iter_mut().enumerate() {
        let (value, at) = (ctx.tensor(1 + number)?, 3 + number);
        let info = ctx.info(at)?;
        let first = first_position(&value, &info, start, WITH_CACHE.start)?;
        let cache = ctx.out(at)?.into_bytes();
        write(value.info(), value.bytes(), &info, cache, &|_, position| first + position);
        *slot = TensorRef::new(info, cache);
    }
    let [Some(k), Some(v)] = caches else { return Err(KernelError::access(3)) };
    attend(ctx, WITH_CACHE, [k, v], false)
}

/// The vectors of an argument; `at` is the argument index of their zero points, for quantized
/// vectors.
fn vectors<'a>(
    ctx: &Invoke<'a, '_>,
    tensor: &TensorRef<'a>,
    heads_first: bool,
    at: Option<usize>,
) -> Result<Vectors<'a>, KernelError> {
    let quant = match at.filter(|_| tensor.scalar_type == ScalarType::Char) {
        None => None,
        Some(at) => {
            let (zero_points, scales) = (ctx.tensor(at)?, ctx.tensor(at + 1)?);
            Some(QuantParams {
                scale_step: scales.size(3),
                zero_point_step: zero_points.size(3),
                scales: scales.data()?,
                zero_points: zero_points.data()?,
            })
        }
    };
    let (scalar_type, bytes) = (tensor.scalar_type, tensor.bytes());
    Ok(Vectors { order: order(tensor.info(), heads_first), scalar_type, bytes, quant })
}

fn attend<'c>(
    ctx: &mut Invoke<'c, '_>,
    args: ArgIndices,
    [k, v]: [TensorRef<'c>; 2],
    quantized: bool,
) -> Result<(), KernelError> {
    crate::types::expect::<f32>()?;
    let q = ctx.tensor(args.q)?;
    let heads_first = args.heads_first(ctx)?;
    let at = |number: usize| quantized.then_some(FIRST_ZERO_POINTS + 2 * number);
    let q_vectors = vectors(ctx, &q, heads_first, at(0))?;
    let k_vectors = vectors(ctx, &k, heads_first, at(1))?;
    let v_vectors = vectors(ctx, &v, heads_first, at(2))?;
    let mask = ctx.optional_tensor(args.mask())?;
    let (queries, all) = (q_vectors.order.positions, k_vectors.order.positions);
    let last_start = all.checked_sub(queries);
    let start = |start: i64| {
        let start = usize::try_from(start).ok();
        let fits = |start: &usize| mask.is_some() || last_start.is_some_and(|last| *start <= last);
        start.filter(fits).ok_or(bad(
            args.start,
            "start position is negative, or the queries exceed the cache from there on",
        ))
    };
    let samples = if args.out == SLOTS_SDPA.out {
        let starts: &[i64] = ctx.tensor(args.start)?.data()?;
        starts.iter().try_for_each(|it| start(*it).map(drop))?;
        let slots = checked(&ctx.tensor(args.start - 1)?, args.start - 1, k.size(0))?;
        Samples::Slots { batch: q.size(1), slots, starts }
    } else {
        Samples::Same { start: start(ctx.int(args.start)?)? }
    };
    let depth = q.size(q.rank().saturating_sub(1));
    let scale = ctx.optional_float(args.mask() + 3)?;
    let mask_step = |mask: &TensorRef| if mask.rank() == 3 { queries * all } else { 0 };
    let attention = Attention {
        q: q_vectors,
        k: k_vectors,
        v: v_vectors,
        depth,
        samples,
        is_causal: ctx.bool(args.mask() + 2)?,
        mask: mask.as_ref().map(|mask| Mask {
            scalar_type: mask.scalar_type,
            bytes: mask.bytes(),
            step: mask_step(mask),
        }),
        scale: scale.unwrap_or_else(|| 1.0 / libm::sqrt(depth as f64)) as f32,
    };
    let slot = slot_len(Tier::detect(), depth)?;
    let threads = ctx.parallel().threads().max(1);
    let parallel = ctx.parallel();
    let bytes = ctx.scratch();
    let workspace = bytemuck::try_cast_slice_mut(bytes);
    let workspace: &mut [f32] = workspace.unwrap_or_default();
    // At most as many threads as `prepare` counted.
    let len = slot.saturating_mul(threads).min(workspace.len());
    let workspace = workspace.get_mut(..len).unwrap_or_default();
    let out = ctx.out(args.out)?;
    let scalar_type = out.scalar_type;
    attention.run(parallel, (scalar_type, out.into_bytes()), (workspace, slot));
    Ok(())
}
