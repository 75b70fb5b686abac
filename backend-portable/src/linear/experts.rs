//! Mixture of experts (MoE): feed-forward layers with int4 or int8 weights. Each token activates a
//! few of them.

use crate::compute::functions::{Sigmoid, map1_in_place};
use crate::compute::gemm::{Context, Epilogue, Matrix, MatrixMut, gemm, gemm_workspace_len};
use crate::compute::rows::softmax_rows;
use crate::compute::simd::Tier;
use crate::compute::split::for_each_chunk_with;
use crate::machine;
use crate::scratch;
use crate::shape::{bad, contiguous, of_type};
use crate::table::kernels;
use torchlet_core::Param::{Float, Int, Out, String, Tensor};
use torchlet_core::{
    Arguments, Invoke, Kernel, KernelError, Parallel, Plan, Prepare, ScalarType, Serial,
};

kernels! { EXPERTS:
    /// `llama::quantized_moe_ffn.out(x, gate_weight, expert_bias, packed_w13,
    /// packed_w2, num_activated_experts, num_experts, hidden_dim, dim,
    /// group_size, weight_nbit, score_func, route_scale, out)`: each token activates the experts
    /// with the highest scores `x · gateᵀ`, and receives the weighted sum of
    /// `(silu(x · w1ᵀ) * (x · w3ᵀ)) · w2ᵀ`. With `sigmoid`, experts are selected by the sigmoid of
    /// the score plus a bias, which does not affect the weights. An expert's weights are packed as
    /// described at [`Packed`], with the rows of `w3` after those of `w1`.
    QUANTIZED_MOE_FFN_OUT = Kernel::new(
        "llama::quantized_moe_ffn.out",
        &[
            Tensor, Tensor, Tensor, Tensor, Tensor, Int, Int, Int, Int, Int, Int, String, Float,
            Out,
        ],
        prepare,
    );
}

/// Number of weight rows that are packed together.
const ROWS: usize = 8;
/// Number of consecutive elements of a row that are packed together.
const ELEMENTS: usize = 16;
/// Bytes of the header of packed weights.
const HEADER: usize = 64;
/// First words of the header: format and version.
const FORMAT: [u32; 2] = [6712, 1];

/// Sizes of the operator's tensors, all positive.
#[derive(Debug, Clone, Copy)]
struct Shape {
    tokens: usize,
    experts: usize,
    active: usize,
    hidden: usize,
    dim: usize,
    group: usize,
    bits: usize,
    sigmoid: bool,
}

impl Shape {
    fn of(args: &Arguments) -> Result<Self, KernelError> {
        let size = |arg: usize| {
            let size = usize::try_from(args.int(arg)?).ok().filter(|size| *size > 0);
            size.ok_or(bad(arg, "expected at least 1"))
        };
        let sigmoid = match args.optional_string(11)? {
            Some("sigmoid") => true,
            Some("softmax") => false,
            _ => return Err(bad(11, "expected 'sigmoid' or 'softmax'")),
        };
        let shape = Shape {
            tokens: args.info(0)?.size(0),
            experts: size(6)?,
            active: size(5)?,
            hidden: size(7)?,
            dim: size(8)?,
            group: size(9)?,
            bits: size(10)?,
            sigmoid,
        };
        if shape.active > shape.experts {
            return Err(bad(5, "expected at most the number of experts (argument 6)"));
        }
        if ![4, 8].contains(&shape.bits) {
            return Err(bad(10, "expected 4 or 8 bits"));
        }
        let whole = |size: usize| size.is_multiple_of(shape.group);
        if !shape.group.is_multiple_of(ELEMENTS) || !whole(shape.dim) || !whole(shape.hidden) {
            return Err(bad(
                9,
                "group size: expected a multiple of 16 that divides both sizes (arguments 7 and 8)",
            ));
        }
        Ok(shape)
    }

    /// Layouts of the packed weights of an expert: of the first layers (`w1` and `w3`), and of the
    /// second.
    fn packed(&self) -> Option<[Packed; 2]> {
        let (group, bits) = (self.group, self.bits);
        let first = Packed { rows: self.hidden.checked_mul(2)?, width: self.dim, group, bits };
        Some([first, Packed { rows: self.dim, width: self.hidden, group, bits }])
    }

    /// Workspace in elements: sections that all threads share, and the part of each thread.
    fn memory(&self, tier: Tier) -> Option<(Sections, usize)> {
        let pairs = self.tokens.checked_mul(self.active)?;
        // Token-expert pairs are counted in 32 bits.
        u32::try_from(pairs).ok()?;
        let widest = self.dim.max(self.hidden);
        let between = self.hidden.checked_mul(2)?.max(self.dim);
        let sections = Sections {
            scores: self.tokens.checked_mul(self.experts)?,
            row: self.experts,
            pairs,
            counts: self.experts.checked_add(1)?,
            gathered: self.tokens.checked_mul(widest)?,
            between: self.tokens.checked_mul(between)?,
        };
        let products = gemm_workspace_len(tier, 1, self.tokens, ROWS, widest)?;
        Some((sections, widest.checked_mul(ROWS)?.checked_add(products)?))
    }
}

/// Lengths of the sections of the workspace.
#[derive(Debug, Clone, Copy)]
struct Sections {
    scores: usize,
    row: usize,
    pairs: usize,
    counts: usize,
    gathered: usize,
    between: usize,
}

impl Sections {
    fn len(&self) -> Option<usize> {
        let pairs = self.pairs.checked_mul(3)?;
        let lens = [self.scores, self.row, pairs, self.counts, self.gathered, self.between];
        lens.into_iter().try_fold(0usize, usize::checked_add)
    }
}

fn prepare(ctx: &mut Prepare) -> Result<Plan, KernelError> {
    let wanted = [
        ScalarType::Float,
        ScalarType::Float,
        ScalarType::Float,
        ScalarType::Byte,
        ScalarType::Byte,
    ];
    for (arg, wanted) in wanted.into_iter().enumerate() {
        let info = ctx.info(arg)?;
        of_type(arg, &info, wanted)?;
        let rank = if arg == 2 { 1 } else { 2 };
        if info.rank() != rank {
            return Err(KernelError::rank(arg, info.rank()));
        }
        contiguous(arg, &info)?;
    }
    let shape = Shape::of(ctx)?;
    if ctx.info(0)?.size(1) != shape.dim {
        return Err(bad(0, "last dim: expected the size in argument 8 (`dim`)"));
    }
    let gate = ctx.info(1)?;
    if (gate.size(0), gate.size(1)) != (shape.experts, shape.dim) {
        return Err(bad(1, "expected a row of `dim` (argument 8) elements for each expert"));
    }
    let bias = ctx.info(2)?.numel();
    if bias > 0 && (bias != shape.experts || !shape.sigmoid) {
        return Err(bad(2, "expected no elements, or one for each expert and 'sigmoid' scores"));
    }
    let too_large =
        KernelError::unsupported("a mixture of experts whose sizes exceed the address space");
    for (arg, packed) in [3, 4].into_iter().zip(shape.packed().ok_or(too_large.clone())?) {
        let (info, len) = (ctx.info(arg)?, packed.len().ok_or(too_large.clone())?);
        if info.size(0) != shape.experts || info.size(1) < len {
            return Err(bad(arg, "expected a row for each expert that holds its packed weights"));
        }
    }
    let x = ctx.info(0)?.sizes;
    ctx.resize(13, &x)?;
    let out = ctx.info(13)?;
    of_type(13, &out, ScalarType::Float)?;
    contiguous(13, &out)?;
    let len = || {
        let (sections, slot) = shape.memory(machine::tier(ctx))?;
        sections.len()?.checked_add(slot.checked_mul(ctx.threads().max(1))?)
    };
    let len = len().ok_or(too_large)?;
    Ok(Plan::new(invoke).with_scratch(scratch::bytes_for(len, size_of::<f32>())?))
}

/// Weights of one layer in torchao's universal packing.
///
/// A header is followed by blocks of eight rows; missing rows are zero. A block contains, for each
/// group of elements, three parts: the quantized values of the eight rows, their scales, and the
/// sums of their quantized values. Scales and sums have one element for each row.
///
/// The quantized values of a group consist of units of 16 elements of each of the eight rows: first
/// eight elements of each row, then the other eight. 4-bit values are stored with 8 added. Of 32
/// consecutive ones, the first 16 are in the lower nibbles of 16 bytes, the others in the upper
/// nibbles.
#[derive(Debug, Clone, Copy)]
struct Packed {
    rows: usize,
    width: usize,
    group: usize,
    bits: usize,
}

impl Packed {
    /// Size in bytes of the quantized values of one group, for eight rows.
    fn group_bytes(&self) -> usize {
        self.group * self.bits
    }

    /// Size in bytes of a block of eight rows.
    fn together(&self) -> Option<usize> {
        let group = self.group.checked_mul(self.bits)?.checked_add(ROWS * 8)?;
        group.checked_mul(self.width / self.group)
    }

    /// Total size in bytes, including the header.
    fn len(&self) -> Option<usize> {
        self.together()?.checked_mul(self.rows.div_ceil(ROWS))?.checked_add(HEADER)
    }

    /// Dequantizes a block of eight rows, starting with row `first`, into `out`.
    fn unpack(&self, bytes: &[u8], first: usize, out: &mut [f32]) {
        let together = self.together().unwrap_or(0);
        let start = HEADER.saturating_add((first / ROWS).saturating_mul(together));
        let bytes = bytes.get(start..start.saturating_add(together)).unwrap_or_default();
        let groups = bytes.chunks_exact(self.group_bytes() + ROWS * 8);
        for (number, group) in groups.enumerate() {
            let (quantized, rest) = group.split_at(self.group_bytes());
            let mut scales = [0f32; ROWS];
            for (scale, bytes) in scales.iter_mut().zip(rest.as_chunks::<4>().0) {
                *scale = f32::from_le_bytes(*bytes);
            }
            for (part, quantized) in
                quantized.chunks_exact(ROWS * ELEMENTS * self.bits / 8).enumerate()
            {
                let column = number * self.group + part * ELEMENTS;
                for packed_index in 0..ROWS * ELEMENTS {
                    let value = match self.bits {
                        4 => {
                            let byte = quantized[packed_index / 32 * 16 + packed_index % 16];
                            let half = if packed_index % 32 < 16 { byte & 15 } else { byte >> 4 };
                            f32::from(half) - 8.0
                        }
                        _ => f32::from(quantized[packed_index] as i8),
                    };
                    let (side, row) = (packed_index / (ROWS * 8), packed_index / 8 % ROWS);
                    let at = row * self.width + column + side * 8 + packed_index % 8;
                    if let (Some(out), Some(scale)) = (out.get_mut(at), scales.get(row)) {
                        *out = value * scale;
                    }
                }
            }
        }
    }
}

fn invoke(ctx: &mut Invoke) -> Result<(), KernelError> {
    crate::types::expect::<f32>()?;
    let shape = Shape::of(ctx)?;
    let [x, gate, bias, first, second] =
        [ctx.tensor(0)?, ctx.tensor(1)?, ctx.tensor(2)?, ctx.tensor(3)?, ctx.tensor(4)?];
    for (arg, packed) in [(3, &first), (4, &second)] {
        let len = packed.size(1);
        for header in packed.bytes().chunks_exact(len.max(1)) {
            let words = header.as_chunks::<4>().0.iter().map(|word| u32::from_le_bytes(*word));
            if !words.take(2).eq(FORMAT) {
                return Err(bad(
                    arg,
                    "weights: expected the header of torchao's universal packing",
                ));
            }
        }
    }
    let scale = ctx.float(12)? as f32;
    let too_little =
        KernelError::unsupported("internal error: scratch memory is smaller than requested");
    let parallel = ctx.parallel();
    let tier = Tier::detect();
    let (sections, slot) = shape.memory(tier).ok_or(too_little.clone())?;
    let memory = bytemuck::try_cast_slice_mut::<u8, f32>(ctx.scratch()).unwrap_or_default();
    let mut memory = Some(memory);
    let mut part = |len: usize| {
        let (part, rest) = memory.take()?.split_at_mut_checked(len)?;
        memory = Some(rest);
        Some(part)
    };
    let mut parts = || {
        Some((
            part(sections.scores)?,
            part(sections.row)?,
            part(sections.pairs)?,
            part(sections.pairs)?,
            part(sections.pairs)?,
            part(sections.counts)?,
            part(sections.gathered)?,
            part(sections.between)?,
        ))
    };
    let (scores, row, weights, chosen, order, counts, gathered, between) =
        parts().ok_or(too_little.clone())?;
    let workspace = memory.take().unwrap_or_default();
    let chosen: &mut [u32] = bytemuck::cast_slice_mut(chosen);
    let order: &mut [u32] = bytemuck::cast_slice_mut(order);
    let counts: &mut [u32] = bytemuck::cast_slice_mut(counts);
    let (x, gate, bias) = (x.data::<f32>()?, gate.data::<f32>()?, bias.data::<f32>()?);
    let out = ctx.out(13)?.into_data::<f32>()?;
    out.fill(0.0);
    if shape.tokens == 0 {
        return Ok(());
    }
    let context = Context { tier, parallel };
    let mut product = || {
        let a = Matrix::row_major(x, shape.tokens, shape.dim)?;
        let b = Matrix::row_major(gate, shape.experts, shape.dim)?.transposed();
        let c = MatrixMut::row_major(scores, shape.tokens, shape.experts)?;
        gemm(context, a, b, c, &Epilogue::default(), workspace).ok()
    };
    product().ok_or(too_little.clone())?;
    route(&shape, (scores, row), bias, scale, chosen, weights);
    sort_by_expert(chosen, counts, order);
    let [packed_first, packed_second] = shape.packed().ok_or(too_little.clone())?;
    let layers = [(packed_first, &first), (packed_second, &second)];
    let mut start = 0;
    for expert in 0..shape.experts {
        // After the counting sort, the end of this expert's pairs.
        let end = counts.get(expert).map_or(start, |end| *end as usize);
        let pairs = order.get(start..end).unwrap_or_default();
        start = end;
        if pairs.is_empty() {
            continue;
        }
        let tokens = pairs.len();
        for (pair, row) in pairs.iter().zip(gathered.chunks_exact_mut(shape.dim)) {
            let token = *pair as usize / shape.active;
            row.copy_from_slice(&x[token * shape.dim..][..shape.dim]);
        }
        let run = Layer { context, tokens, slot };
        let weights_of = |number: usize| {
            let (packed, tensor) = layers[number];
            let len = tensor.size(1);
            (packed, tensor.bytes().get(expert * len..(expert + 1) * len).unwrap_or_default())
        };
        run.layer(weights_of(0), gathered, between, workspace).ok_or(too_little.clone())?;
        let (ups, gates) = between.split_at(shape.hidden * tokens);
        for token in 0..tokens {
            let row = &mut gathered[token * shape.hidden..][..shape.hidden];
            for (slot, up) in row.iter_mut().zip(ups.iter().skip(token).step_by(tokens)) {
                *slot = *up;
            }
            map1_in_place(Context { tier, parallel: &Serial }, Sigmoid, row);
            let columns = ups.iter().zip(gates).skip(token).step_by(tokens);
            for (slot, (up, gate)) in row.iter_mut().zip(columns) {
                *slot = up * *slot * gate;
            }
        }
        run.layer(weights_of(1), gathered, between, workspace).ok_or(too_little.clone())?;
        for (number, pair) in pairs.iter().enumerate() {
            let (pair, weight) =
                (*pair as usize, weights.get(*pair as usize).copied().unwrap_or(0.0));
            let token = pair / shape.active;
            let row = &mut out[token * shape.dim..][..shape.dim];
            for (out, y) in row.iter_mut().zip(between.iter().skip(number).step_by(tokens)) {
                *out += weight * y;
            }
        }
    }
    Ok(())
}

/// Selects the experts of each token, and computes their weights.
fn route(
    shape: &Shape,
    (scores, row): (&mut [f32], &mut [f32]),
    bias: &[f32],
    scale: f32,
    chosen: &mut [u32],
    weights: &mut [f32],
) {
    let context = Context { tier: Tier::detect(), parallel: &Serial };
    if shape.sigmoid {
        map1_in_place(context, Sigmoid, scores);
    }
    let tokens = chosen.chunks_exact_mut(shape.active).zip(weights.chunks_exact_mut(shape.active));
    for (scores, (chosen, weights)) in scores.chunks_exact(shape.experts).zip(tokens) {
        row.copy_from_slice(scores);
        row.iter_mut().zip(bias).for_each(|(score, bias)| *score += bias);
        for number in 0..shape.active {
            let (before, rest) = chosen.split_at_mut(number);
            let mut best: Option<(usize, f32)> = None;
            for (expert, score) in row.iter().enumerate() {
                let larger = best.map_or(!score.is_nan(), |(_, best)| *score > best);
                if larger {
                    best = Some((expert, *score));
                }
            }
            // If all remaining scores are NaN, selects the first expert that is not yet selected.
            let free = || (0..shape.experts).find(|expert| !before.contains(&(*expert as u32)));
            let expert = best.map(|(expert, _)| expert).or_else(free).unwrap_or(0);
            row[expert] = f32::NAN;
            rest[0] = expert as u32;
            weights[number] = scores[expert];
        }
        if shape.sigmoid {
            let sum: f32 = weights.iter().sum();
            let scale = scale / if sum < f32::MIN_POSITIVE { f32::MIN_POSITIVE } else { sum };
            weights.iter_mut().for_each(|weight| *weight *= scale);
        } else {
            let count = weights.len();
            row[..count].copy_from_slice(weights);
            softmax_rows(context, &row[..count], count, weights);
        }
    }
}

/// Counting sort of token-expert pairs by expert. Afterwards, `counts` has the end of each expert's
/// pairs.
fn sort_by_expert(chosen: &[u32], counts: &mut [u32], order: &mut [u32]) {
    counts.fill(0);
    for expert in chosen {
        counts[*expert as usize + 1] += 1;
    }
    let mut total = 0;
    for count in counts.iter_mut() {
        total += *count;
        *count = total;
    }
    for (pair, expert) in chosen.iter().enumerate() {
        let next = &mut counts[*expert as usize];
        order[*next as usize] = pair as u32;
        *next += 1;
    }
}

/// A layer of an expert, applied to some tokens.
struct Layer<'a> {
    context: Context<'a>,
    tokens: usize,
    /// Floats of workspace for each thread.
    slot: usize,
}

impl Layer<'_> {
    /// Computes `out = weights · xᵀ`. The rows of `out` are the rows of the weights.
    fn layer(
        &self,
        (packed, bytes): (Packed, &[u8]),
        x: &[f32],
        out: &mut [f32],
        workspace: &mut [f32],
    ) -> Option<()> {
        let (tokens, width) = (self.tokens, packed.width);
        let x = x.get(..tokens * width)?;
        let out = out.get_mut(..packed.rows * tokens)?;
        let serial = Context { parallel: &Serial, ..self.context };
        let parallel: &dyn Parallel = self.context.parallel;
        for_each_chunk_with(
            parallel,
            out,
            ROWS * tokens,
            workspace,
            self.slot,
            &|index, out, own| {
                let Some((tile, rest)) = own.split_at_mut_checked(ROWS * width) else { return };
                packed.unpack(bytes, index * ROWS, tile);
                let rows = out.len() / tokens;
                let mut product = || {
                    let a = Matrix::row_major(&tile[..rows * width], rows, width)?;
                    let b = Matrix::row_major(x, tokens, width)?.transposed();
                    let c = MatrixMut::row_major(out, rows, tokens)?;
                    gemm(serial, a, b, c, &Epilogue::default(), rest).ok()
                };
                // Cannot fail: sizes were checked.
                let _ = product();
            },
        );
        Some(())
    }
}
