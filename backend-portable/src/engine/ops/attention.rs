//! Scaled dot-product attention (SDPA), computed in blocks of query rows whose scores stay in the
//! L1/L2 caches.

use super::matmul::MatrixLayout;
use crate::compute::gemm::{Context, Epilogue, MatrixMut, ShapeMismatch, gemm, gemm_workspace_len};
use crate::compute::rows::softmax_rows;
use crate::compute::simd::Tier;
use crate::compute::split::{Outcome, Serial, for_each_chunks_mut};
use crate::engine::builder::{Builder, Refusal};
use crate::engine::plan::{Io, Step};
use crate::engine::view::View;
use torchlet_graph::graph::ValueId;
use torchlet_graph::operators::AttentionArgs;

/// Maximum number of scores per block.
const MAX_SCORES: usize = 1 << 15;

/// Maximum length of a block of k in a GEMM: see [`gemm_workspace_len`].
const MAX_K_BLOCK: usize = 512;

/// Lowers `softmax(q · kᵀ · scale + mask) · v`. Rows in which every score is minus infinity yield
/// zero. With a causal offset, row `i` attends to keys up to `offset + i`; see the table of
/// operators.
pub(super) fn attention(builder: &mut Builder<'_, '_>, args: &[ValueId]) -> Result<(), Refusal> {
    // Programs of older compilers lack the offset argument.
    let call = AttentionArgs::of(args)?;
    let offset = builder.optional_integer(call.offset)?.map(usize::try_from);
    let offset = offset.transpose().map_err(|_| "a negative causal offset")?;
    attend(builder, &call, offset, 0.0)
}

/// Like [`attention`], but fully masked rows yield NaN.
pub(super) fn sdpa(builder: &mut Builder<'_, '_>, args: &[ValueId]) -> Result<(), Refusal> {
    attend(builder, &AttentionArgs::of(args)?, None, f32::NAN)
}

fn attend(
    builder: &mut Builder<'_, '_>,
    call: &AttentionArgs,
    causal: Option<usize>,
    hidden: f32,
) -> Result<(), Refusal> {
    let q = builder.view(call.query)?;
    let (k, v) = (builder.view(call.key)?, builder.view(call.value)?);
    let mask = builder.optional(call.mask)?;
    let scale = builder.optional_number(call.scale)?;
    let (&[batch, heads, rows, width], &[kb, key_heads, keys, kw], &[vb, vh, vk, value_width]) =
        (&q.sizes[..], &k.sizes[..], &v.sizes[..])
    else {
        return Err(std::format!(
            "query, key and value: expected 4 dims, found shapes {:?}, {:?} and {:?}",
            q.sizes,
            k.sizes,
            v.sizes
        ));
    };
    let fits = [kb, vb] == [batch; 2] && kw == width && vh == key_heads && vk == keys;
    if !fits || !heads.is_multiple_of(key_heads.max(1)) {
        return Err(std::format!(
            "query shape {:?} does not match key shape {:?} and value shape {:?}",
            q.sizes,
            k.sizes,
            v.sizes
        ));
    }
    let mask = match mask {
        Some(mask) => Some(
            mask.expanded(&[batch, heads, rows, keys])
                .ok_or("attention mask: expected a shape that broadcasts to the scores")?,
        ),
        None => None,
    };
    // Dim order batch, rows, heads, depth: the following linear layer reads the heads of a row
    // together.
    let out = builder.make_in_order(&[batch, heads, rows, value_width], &[0, 2, 1, 3])?;
    let step = Attention {
        shape: Shape { batch, heads, rows, width, keys, value_width },
        shared: heads / key_heads.max(1),
        q: Heads::of(&q),
        k: Heads::of(&k),
        v: Heads::of(&v),
        mask: mask.as_ref().map(Heads::of),
        causal,
        scale: scale.unwrap_or_else(|| 1.0 / libm::sqrt(width as f64)) as f32,
        hidden,
    };
    let reads = [&q, &k, &v].into_iter().chain(&mask);
    let reads: std::vec::Vec<&View> = reads.collect();
    builder.push(step, &reads, &out);
    builder.define(call.out, out)
}

#[derive(Debug, Clone, Copy)]
struct Shape {
    batch: usize,
    heads: usize,
    rows: usize,
    width: usize,
    keys: usize,
    value_width: usize,
}

/// Layout of an operand with one matrix per sample and head.
#[derive(Debug, Clone, Copy)]
struct Heads {
    /// Layout of the matrices of one sample, with the heads as the batch; then the stride between
    /// samples.
    layout: MatrixLayout,
    sample: usize,
}

impl Heads {
    fn of(view: &View) -> Self {
        Heads { layout: MatrixLayout::of(view), sample: view.strides.first().copied().unwrap_or(0) }
    }

    /// Returns the data starting with a sample.
    fn from<'a>(&self, data: &'a [f32], sample: usize) -> Result<&'a [f32], ShapeMismatch> {
        data.get(sample.checked_mul(self.sample).ok_or(ShapeMismatch)?..).ok_or(ShapeMismatch)
    }
}

struct Attention {
    shape: Shape,
    /// Number of query heads that share a key head.
    shared: usize,
    q: Heads,
    k: Heads,
    v: Heads,
    mask: Option<Heads>,
    /// Causal offset: the last key that row 0 attends to; `None` if attention is not causal.
    causal: Option<usize>,
    scale: f32,
    /// Attention weights of a fully masked row.
    hidden: f32,
}

impl Attention {
    /// Number of query rows per block.
    fn block(&self, threads: usize) -> usize {
        let Shape { rows, keys, .. } = self.shape;
        let share = rows.div_ceil(threads.max(1));
        (MAX_SCORES / keys.max(1)).clamp(1, share.max(1))
    }

    /// Returns the number of samples per task if threads divide the batch. `None` if they divide
    /// the rows of each sample instead.
    fn together(&self, threads: usize) -> Option<usize> {
        let batch = self.shape.batch;
        (batch > 1 && batch >= threads).then(|| batch.div_ceil(threads.max(1) * 4))
    }

    fn slot(&self, tier: Tier, rows: usize) -> usize {
        let Shape { width, keys, value_width, .. } = self.shape;
        let of = |keys: usize| {
            let scores = gemm_workspace_len(tier, 1, rows, keys, width).unwrap_or(0);
            let values = gemm_workspace_len(tier, 1, rows, value_width, keys).unwrap_or(0);
            scores.max(values)
        };
        // With few keys, the block of k can be longer than the equal blocks that all keys are
        // divided into.
        let fewer = if self.causal.is_some() { of(keys.min(MAX_K_BLOCK)) } else { 0 };
        rows.saturating_mul(keys).saturating_add(of(keys).max(fewer))
    }

    /// Computes all heads of a block of rows of a sample.
    fn rows(
        &self,
        context: Context<'_>,
        inputs: [&[f32]; 4],
        sample: usize,
        first: usize,
        out: &mut [f32],
        workspace: &mut [f32],
    ) -> Result<(), ShapeMismatch> {
        let Shape { heads, width, keys, value_width, .. } = self.shape;
        let [q, k, v, mask] = inputs;
        let (q, k, v) = (self.q.from(q, sample)?, self.k.from(k, sample)?, self.v.from(v, sample)?);
        let across = heads * value_width;
        let rows = out.len() / across.max(1);
        // Skips keys that no row of the block attends to.
        let first_end = self.causal.map(|offset| offset.saturating_add(first).saturating_add(1));
        let keys = first_end.map_or(keys, |end| end.saturating_add(rows - 1).min(keys));
        let (scores, workspace) =
            workspace.split_at_mut_checked(rows * keys).ok_or(ShapeMismatch)?;
        let (queries, transposed_keys) =
            (self.q.layout.rows_from(first), self.k.layout.transposed());
        for head in 0..heads {
            let shared = head / self.shared.max(1);
            let a = queries.matrix(q, head, [rows, width])?;
            let b = transposed_keys.matrix(k, shared, [width, keys])?;
            let c = MatrixMut::row_major(scores, rows, keys).ok_or(ShapeMismatch)?;
            let scaled = Epilogue { alpha: self.scale, ..Epilogue::default() };
            gemm(context, a, b, c, &scaled, workspace)?;
            if let Some(heads) = &self.mask {
                let mask = heads.from(mask, sample)?;
                heads.layout.rows_from(first).add(mask, head, keys, scores)?;
            }
            if let Some(end) = first_end {
                for (row, scores) in scores.chunks_exact_mut(keys).enumerate() {
                    let behind = scores.get_mut(end.saturating_add(row)..).unwrap_or_default();
                    behind.fill(f32::NEG_INFINITY);
                }
            }
            softmax(context, keys, self.hidden, scores, workspace)?;
            let a = MatrixLayout::row_major(keys).matrix(scores, 0, [rows, keys])?;
            let b = self.v.layout.matrix(v, shared, [keys, value_width])?;
            let own = out.get_mut(head * value_width..).ok_or(ShapeMismatch)?;
            let c = MatrixMut::new(own, rows, value_width, across, 1).ok_or(ShapeMismatch)?;
            gemm(context, a, b, c, &Epilogue::default(), workspace)?;
        }
        Ok(())
    }
}

/// Row-wise softmax in place. The weights of a fully masked row are `hidden`.
fn softmax(
    context: Context<'_>,
    keys: usize,
    hidden: f32,
    scores: &mut [f32],
    workspace: &mut [f32],
) -> Result<(), ShapeMismatch> {
    let (row, _) = workspace.split_at_mut_checked(keys).ok_or(ShapeMismatch)?;
    for scores in scores.chunks_exact_mut(keys) {
        if scores.iter().all(|score| *score == f32::NEG_INFINITY) {
            scores.fill(hidden);
            continue;
        }
        row.copy_from_slice(scores);
        softmax_rows(context, row, keys, scores);
    }
    Ok(())
}

impl Step for Attention {
    fn workspace(&self, tier: Tier, threads: usize) -> usize {
        let Shape { batch, rows, keys, .. } = self.shape;
        let block = self.block(threads);
        let slot = self.slot(tier, block).saturating_add(keys);
        let slots = match self.together(threads) {
            Some(together) => batch.div_ceil(together),
            None => rows.div_ceil(block),
        };
        slot.saturating_mul(slots)
    }

    fn run(&self, io: Io<'_>) -> Result<(), ShapeMismatch> {
        let Io { inputs, out, workspace, context } = io;
        let Shape { batch, heads, rows, value_width, .. } = self.shape;
        let serial = Context { parallel: &Serial, ..context };
        let threads = context.parallel.threads();
        let block = self.block(threads);
        let row = heads.checked_mul(value_width).filter(|row| *row > 0).ok_or(ShapeMismatch)?;
        let each = row.checked_mul(rows).filter(|each| *each > 0).ok_or(ShapeMismatch)?;
        let out = out.get_mut(..batch * each).ok_or(ShapeMismatch)?;
        let sample = |index: usize, out: &mut [f32], workspace: &mut [f32]| {
            for (number, out) in out.chunks_mut(block * row).enumerate() {
                self.rows(serial, inputs, index, number * block, out, workspace)?;
            }
            Ok::<_, ShapeMismatch>(())
        };
        let outcome = Outcome::default();
        if let Some(together) = self.together(threads) {
            let slot = workspace.len() / batch.div_ceil(together);
            let lens = [together * each, slot];
            for_each_chunks_mut(context.parallel, [out, workspace], lens, &|group, [outs, own]| {
                for (index, out) in outs.chunks_exact_mut(each).enumerate() {
                    outcome.note(sample(group * together + index, out, own));
                }
            });
        } else {
            let slot = workspace.len() / rows.div_ceil(block);
            for (index, out) in out.chunks_exact_mut(each).enumerate() {
                let lens = [block * row, slot];
                for_each_chunks_mut(
                    context.parallel,
                    [out, &mut *workspace],
                    lens,
                    &|number, [out, own]| {
                        let rows = self.rows(serial, inputs, index, number * block, out, own);
                        outcome.note(rows);
                    },
                );
            }
        }
        outcome.result()
    }
}
