//! The gated delta rule: linear attention as a recurrence over positions. Each key head has a state
//! matrix.

use super::four;
use crate::compute::split::for_each_chunks_mut;
use crate::shape::{bad, contiguous, of_type};
use crate::table::{kernels, renamed};
use torchlet_core::Param::{Out, Tensor};
use torchlet_core::{Invoke, Kernel, KernelError, Plan, Prepare, ScalarType};

kernels! { RECURRENCES:
    /// `llama::gated_delta_rule.out(query, key, value, decay, beta,
    /// initial_state, out, final_state_out)`. At each position, the state is multiplied by `decay`
    /// (one factor, or one for each element of a key). Then `beta * (value - prediction)` is added,
    /// where the prediction is the state applied to `key`. The output is the state applied to the
    /// query. The number of query heads is a multiple of the number of key heads; neighbouring
    /// query heads share a state.
    GATED_DELTA_RULE_OUT = Kernel::new(
        "llama::gated_delta_rule.out",
        &[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Out, Out],
        prepare,
    );
    /// `llama::channelwise_gated_delta_rule.out`: former name of [`GATED_DELTA_RULE_OUT`].
    CHANNELWISE_GATED_DELTA_RULE_OUT =
        renamed(GATED_DELTA_RULE_OUT, "llama::channelwise_gated_delta_rule.out");
}

fn prepare(ctx: &mut Prepare) -> Result<Plan, KernelError> {
    let (query, key, value) = (four(ctx, 0)?, four(ctx, 1)?, four(ctx, 2)?);
    let (decay, beta, state) = (ctx.info(3)?, ctx.info(4)?, four(ctx, 5)?);
    for (arg, info) in [&query, &key, &value, &decay, &beta, &state].into_iter().enumerate() {
        of_type(arg, info, ScalarType::Float)?;
        contiguous(arg, info)?;
    }
    let [&[qb, qh, qt, qk], &[kb, kh, kt, kk], &[vb, vh, vt, depth]] =
        [&query.sizes[..], &key.sizes[..], &value.sizes[..]]
    else {
        return Err(KernelError::rank(0, query.rank()));
    };
    if [qb, qt, qk] != [kb, kt, kk] || kh < 1 || qh % kh != 0 {
        return Err(bad(
            1,
            "expected keys with the shape of the queries, except for a number of heads that \
             divides that of the queries",
        ));
    }
    if [vb, vh, vt] != [kb, kh, kt] {
        return Err(bad(2, "expected the batch size, heads and positions of the keys"));
    }
    if decay.sizes != key.sizes && decay.sizes[..] != [kb, kh, kt] {
        return Err(bad(3, "expected the shape of the keys, or [batch, heads, positions]"));
    }
    if beta.sizes[..] != [kb, kh, kt] {
        return Err(bad(4, "expected shape [batch, heads, positions]"));
    }
    if state.sizes[..] != [kb, kh, kk, depth] {
        return Err(bad(5, "expected shape [batch, heads, key size, value size]"));
    }
    ctx.resize(6, &[qb, qh, qt, depth])?;
    ctx.resize(7, &state.sizes)?;
    for arg in [6, 7] {
        let info = ctx.info(arg)?;
        of_type(arg, &info, ScalarType::Float)?;
        contiguous(arg, &info)?;
    }
    Ok(Plan::new(invoke))
}

fn invoke(ctx: &mut Invoke) -> Result<(), KernelError> {
    crate::types::expect::<f32>()?;
    let info = |arg| ctx.info(arg);
    let (query, key, decay) = (info(0)?, info(1)?, info(3)?);
    let depth = info(2)?.size(3);
    let shape = Shape {
        shared: query.size(1) / key.size(1).max(1),
        length: key.size(2),
        width: key.size(3),
        depth,
        by_element: decay.rank() == 4,
    };
    let [query, key, value, decay, beta, initial] = [
        ctx.tensor(0)?,
        ctx.tensor(1)?,
        ctx.tensor(2)?,
        ctx.tensor(3)?,
        ctx.tensor(4)?,
        ctx.tensor(5)?,
    ];
    let (query, key, value) = (query.data::<f32>()?, key.data::<f32>()?, value.data::<f32>()?);
    let (decay, beta, initial) =
        (decay.data::<f32>()?, beta.data::<f32>()?, initial.data::<f32>()?);
    let parallel = ctx.parallel();
    let out = ctx.out(6)?.into_data::<f32>()?;
    let state = ctx.out(7)?.into_data::<f32>()?;
    state.copy_from_slice(initial);
    let Shape { shared, length, width, depth, .. } = shape;
    let gates = if shape.by_element { length * width } else { length };
    let lens = [width * depth, shared * length * depth];
    if lens[0] == 0 {
        // Without key elements, the state is empty and the output is zero.
        out.fill(0.0);
        return Ok(());
    }
    for_each_chunks_mut(parallel, [state, out], lens, &|head, [state, out]| {
        let part = |data: &'_ [f32], len: usize| -> core::ops::Range<usize> {
            let start = (head * len).min(data.len());
            start..(start + len).min(data.len())
        };
        shape.run(
            Head {
                query: &query[part(query, shared * length * width)],
                key: &key[part(key, length * width)],
                value: &value[part(value, length * depth)],
                decay: &decay[part(decay, gates)],
                beta: &beta[part(beta, length)],
            },
            state,
            out,
        );
    });
    Ok(())
}

#[derive(Debug, Clone, Copy)]
struct Shape {
    /// Number of query heads that share a key head.
    shared: usize,
    /// Number of positions.
    length: usize,
    /// Number of elements of a key vector.
    width: usize,
    /// Number of elements of a value vector.
    depth: usize,
    /// Whether each element of a key has its own decay.
    by_element: bool,
}

/// Inputs of one key head.
struct Head<'a> {
    query: &'a [f32],
    key: &'a [f32],
    value: &'a [f32],
    decay: &'a [f32],
    beta: &'a [f32],
}

/// `y += x * factor`
#[inline(always)]
fn add_scaled(y: &mut [f32], x: &[f32], factor: f32) {
    for (y, x) in y.iter_mut().zip(x) {
        *y += x * factor;
    }
}

impl Shape {
    fn run(&self, head: Head<'_>, state: &mut [f32], out: &mut [f32]) {
        let Shape { shared, length, width, depth, by_element } = *self;
        let positions = head.key.chunks_exact(width).zip(head.value.chunks_exact(depth));
        for (position, ((key, value), beta)) in positions.zip(head.beta).enumerate() {
            let decay = |row: usize| {
                let at = if by_element { position * width + row } else { position };
                head.decay.get(at).copied().unwrap_or(0.0)
            };
            // The output slice of the first query head is used as a temporary; its result is
            // computed last.
            let Some(difference) = out.get_mut(position * depth..(position + 1) * depth) else {
                return;
            };
            difference.fill(0.0);
            for (row, (key, state)) in key.iter().zip(state.chunks_exact_mut(depth)).enumerate() {
                let decay = decay(row);
                state.iter_mut().for_each(|state| *state *= decay);
                add_scaled(difference, state, *key);
            }
            for (difference, value) in difference.iter_mut().zip(value) {
                *difference = (value - *difference) * beta;
            }
            for (key, state) in key.iter().zip(state.chunks_exact_mut(depth)) {
                add_scaled(state, difference, *key);
            }
            for number in 0..shared {
                let row = number * length + position;
                let query = head.query.get(row * width..(row + 1) * width).unwrap_or_default();
                let answer = out.get_mut(row * depth..(row + 1) * depth).unwrap_or_default();
                answer.fill(0.0);
                for (query, state) in query.iter().zip(state.chunks_exact(depth)) {
                    add_scaled(answer, state, *query);
                }
            }
        }
    }
}
