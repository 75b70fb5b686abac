//! Fuses decomposed attention into one call.
//!
//! Matches `softmax(q · kᵀ · scale + mask) · v`, backwards from the second matrix multiplication:
//!
//! - The scale is a multiplication or division by a constant, applied to the scores, to `q` or to
//!   `k`, before or after views and the transposition of `k`. PyTorch's decomposition applies its
//!   square root to both `q` and `k`.
//! - The mask is added to the scores, also as part of `baddbmm`, or fills masked scores with minus
//!   infinity. In `f32` graphs, the mask may also use a finite value so low that adding it absorbs
//!   every score.
//! - The softmax may be wrapped in the idiom `eq`, `logical_not`, `any`, `logical_not`, `where`. It
//!   gives zeros for rows whose scores are all minus infinity. Our own lowering of attention fills
//!   these rows.
//! - An `f32` softmax between matrix multiplications of a narrower type is matched, as the fused
//!   call computes it the same way.
//! - Keys and values that are repeated for grouped-query attention are read without the repetition.
//!
//! The result is `et_vk.sdpa.default(q, k, v, mask, scale)`, whose fully masked rows are NaN like
//! those of a plain softmax, or [`Operator::ATTENTION`], which has one more argument. With
//! [`Operator::ATTENTION`], fully masked rows are zeros, and heads may share keys and values. The
//! idiom becomes the more common `et_vk.sdpa` if no row can be fully masked: without a mask, or
//! with a constant mask that leaves every row a key (finite scores that overflow to infinity
//! aside). A constant causal mask becomes the extra argument, an offset: row `i` sees keys up to
//! `offset + i`, and no time is spent on later keys.
//!
//! Needs: a graph in which each value is produced once, before its uses, preferably without
//! redundant copies. Shapes must be fixed. Keeps: patterns whose attention weights other calls
//! read. Rounding: scores and weights are not rounded to the graph's type, and the scale is applied
//! once. As in PyTorch's fused attention, the result is at least as exact as before.

use super::masks::{Known, Mask, Masks};
use super::rewrite::{Rewriter, each_call};
use super::uses::inputs;
use super::views::{
    VIEWS, peeled, peeled_exactly, peeled_views, permutation, permuted, reshaped, view_into,
    viewed_as,
};
use crate::graph::{Graph, Node, Value, ValueId};
use crate::operators::Operator;
use alloc::vec;
use alloc::vec::Vec;
use torchlet_core::ScalarType;

/// Maximum head dim of a fused call, a limit of the attention kernels.
const MAX_WIDTH: usize = 2048;

/// Fuses attention. Returns the number of changes.
pub fn run(graph: &mut Graph<'_>) -> usize {
    let mut masks = Masks::default();
    each_call(graph, |rewriter, node| {
        if !rewriter.has_fixed_shapes() {
            return false;
        }
        if matches!(node.operator, Operator::ET_VK_SDPA | Operator::ATTENTION) {
            return unmask(rewriter, &mut masks, node).is_some();
        }
        let found = find(rewriter, node);
        found.is_some_and(|attention| emit(rewriter, &mut masks, attention).is_some())
    })
}

/// A matched attention pattern.
struct Attention {
    weights: Weights,
    product: Product,
    values: ValueId,
    /// The result of the second matrix multiplication.
    out: ValueId,
}

/// Origin of the attention weights.
struct Weights {
    /// The input of the softmax.
    scores: ValueId,
    /// Whether fully masked rows give zeros.
    zeros: bool,
}

/// The first matrix multiplication, which computes the scores.
struct Product {
    queries: ValueId,
    keys: ValueId,
    scale: f64,
    masks: Vec<Masking>,
}

/// A mask, and the scores that it applies to. Their shape may differ from that of the softmax.
#[derive(Clone, Copy)]
struct Masking {
    mask: Mask,
    scores: ValueId,
}

fn find(rewriter: &Rewriter<'_, '_>, node: &Node) -> Option<Attention> {
    if !matches!(node.operator, Operator::BMM | Operator::MM) {
        return None;
    }
    let [weights, values] = inputs(node) else { return None };
    let weights = find_weights(rewriter, *weights)?;
    let product = find_product(rewriter, weights.scores)?;
    Some(Attention { weights, product, values: *values, out: *node.args.last()? })
}

/// Follows attention weights back to the softmax through views and a narrowing conversion, provided
/// that nothing else reads them.
fn find_weights(rewriter: &Rewriter<'_, '_>, mut id: ValueId) -> Option<Weights> {
    for _ in 0..VIEWS {
        if rewriter.uses(id) != 1 {
            return None;
        }
        let node = rewriter.producer(id)?;
        match node.operator {
            Operator::WHERE_SELF => return guarded_softmax(rewriter, inputs(node)),
            Operator::MASKED_FILL_SCALAR => return filled_softmax(rewriter, inputs(node)),
            Operator::SOFTMAX => {
                let scores = softmax(rewriter, id)?;
                return Some(Weights { scores, zeros: false });
            }
            _ => id = reshaped(rewriter, node).or_else(|| converted(rewriter, node, false))?,
        }
    }
    None
}

/// The input of a conversion from `f32` to a 16-bit float type, or of the reverse if `widens`.
fn converted(rewriter: &Rewriter<'_, '_>, node: &Node, widens: bool) -> Option<ValueId> {
    if !matches!(node.operator, Operator::TO_COPY | Operator::DIM_ORDER_OPS_TO_DIM_ORDER_COPY) {
        return None;
    }
    let input = *inputs(node).first()?;
    let (from, to) = (rewriter.scalar_type(input)?, rewriter.scalar_type(*node.args.last()?)?);
    let (narrow, wide) = if widens { (from, to) } else { (to, from) };
    let fits = matches!(narrow, ScalarType::Half | ScalarType::BFloat16);
    (fits && wide == ScalarType::Float).then_some(input)
}

/// The input of a softmax over the last dim.
fn softmax(rewriter: &Rewriter<'_, '_>, id: ValueId) -> Option<ValueId> {
    let [scores, dim, ..] = rewriter.call_of(id, Operator::SOFTMAX)? else { return None };
    let last = rewriter.sizes(*scores)?.len() as i64 - 1;
    let dim = rewriter.int(*dim)?;
    (last >= 1 && (dim == -1 || dim == last)).then_some(*scores)
}

/// Matches the idiom that gives zeros for rows whose scores are all minus infinity.
fn guarded_softmax(rewriter: &Rewriter<'_, '_>, args: &[ValueId]) -> Option<Weights> {
    let [condition, zeros, weights] = args else { return None };
    let any = rewriter.call_of(*condition, Operator::LOGICAL_NOT)?.first()?;
    let [visible, dim, keep] = rewriter.call_of(*any, Operator::ANY_DIM)? else { return None };
    let hidden = rewriter.call_of(*visible, Operator::LOGICAL_NOT)?.first()?;
    let [compared, infinity] = rewriter.call_of(*hidden, Operator::EQ_SCALAR)? else { return None };
    let scores = softmax(rewriter, *weights)?;
    let last = rewriter.sizes(scores)?.len() as i64 - 1;
    let dim = rewriter.int(*dim)?;
    let fits = *compared == scores
        && rewriter.number(*infinity) == Some(f64::NEG_INFINITY)
        && (dim == -1 || dim == last)
        && rewriter.flag(Some(keep), false) == Some(true)
        && super::masks::filled(rewriter, *zeros) == Some(0.0);
    // The zeros are created with the shape of the weights (`full_like`) or independently.
    let shaped =
        rewriter.producer(*zeros).is_some_and(|node| inputs(node).first() == Some(weights));
    let taken = rewriter.uses(*weights) == if shaped { 2 } else { 1 };
    (fits && taken).then_some(Weights { scores, zeros: true })
}

/// Matches the same as [`guarded_softmax`], in the form that our lowering of attention has: rows
/// whose largest score is minus infinity are filled with zeros.
fn filled_softmax(rewriter: &Rewriter<'_, '_>, args: &[ValueId]) -> Option<Weights> {
    let [weights, hidden, zero] = args else { return None };
    let [largest, infinity] = rewriter.call_of(*hidden, Operator::EQ_SCALAR)? else { return None };
    let [compared, dims, keep] = rewriter.call_of(*largest, Operator::AMAX)? else { return None };
    let scores = softmax(rewriter, *weights)?;
    let last = rewriter.sizes(scores)?.len() as i64 - 1;
    let fits = *compared == scores
        && rewriter.number(*zero) == Some(0.0)
        && rewriter.number(*infinity) == Some(f64::NEG_INFINITY)
        && matches!(rewriter.ints(*dims).as_deref(), Some([dim]) if *dim == -1 || *dim == last)
        && rewriter.flag(Some(keep), false) == Some(true);
    (fits && rewriter.uses(*weights) == 1).then_some(Weights { scores, zeros: true })
}

/// Follows scores back to the matrix multiplication of queries and keys.
fn find_product(rewriter: &Rewriter<'_, '_>, scores: ValueId) -> Option<Product> {
    let narrow =
        |id: ValueId| rewriter.producer(id).and_then(|node| converted(rewriter, node, true));
    let unmasked = narrow(scores).unwrap_or(scores);
    for (inner, masks) in maskings(rewriter, scores, unmasked) {
        let (mut product, mut scale) = peeled(rewriter, inner);
        if let Some(source) = narrow(product) {
            let (source, own) = peeled(rewriter, source);
            (product, scale) = (source, scale * own);
        }
        let Some(node) = rewriter.producer(product) else { continue };
        let (queries, keys, masks) = match (node.operator, inputs(node)) {
            (Operator::BMM | Operator::MM, [queries, keys]) => (*queries, *keys, masks),
            // `baddbmm` adds its mask before any later scale, so the scale must be one.
            (Operator::BADDBMM, [mask, queries, keys, factors @ ..]) if masks.is_empty() => {
                let one = |id: &ValueId| rewriter.number(*id) == Some(1.0);
                let same = rewriter.sizes(product) == rewriter.sizes(scores);
                if scale != 1.0 || !same || !factors.iter().all(one) {
                    continue;
                }
                (*queries, *keys, vec![Masking { mask: Mask::Added(*mask), scores }])
            }
            _ => continue,
        };
        if same_rows(rewriter, product, inner) == Some(true) {
            return Some(Product { queries, keys, scale, masks });
        }
    }
    None
}

/// Candidates for the unmasked scores, each with zero, one or two masks. `unmasked` is `scores`, or
/// its input if `scores` is a widening conversion. Two masks are added one after the other, perhaps
/// with a view between: networks with windowed attention add a bias per head and then a window
/// mask.
fn maskings(
    rewriter: &Rewriter<'_, '_>,
    scores: ValueId,
    unmasked: ValueId,
) -> Vec<(ValueId, Vec<Masking>)> {
    let mut found = Vec::new();
    for (inner, mask) in Mask::candidates(rewriter, unmasked) {
        found.push((inner, mask.map(|mask| Masking { mask, scores }).into_iter().collect()));
    }
    let same_rows = |a, b| same_rows(rewriter, a, b) == Some(true);
    let outer = peeled_views(rewriter, unmasked);
    let added = |id| {
        let candidates = Mask::candidates(rewriter, id).into_iter();
        candidates.filter(|(_, mask)| matches!(mask, Some(Mask::Added(_))))
    };
    for (between, first) in added(outer).filter(|_| same_rows(outer, unmasked)) {
        let inner = peeled_views(rewriter, between);
        for (product, second) in added(inner).filter(|_| same_rows(inner, between)) {
            let of = |mask: Option<Mask>, scores| mask.map(|mask| Masking { mask, scores });
            let masks = of(first, outer).into_iter().chain(of(second, inner));
            found.push((product, masks.collect()));
        }
    }
    found
}

/// Whether the last two dims of both tensors are equal.
fn same_rows(rewriter: &Rewriter<'_, '_>, a: ValueId, b: ValueId) -> Option<bool> {
    Some(rewriter.sizes(a)?.last_chunk::<2>()? == rewriter.sizes(b)?.last_chunk::<2>()?)
}

/// Dims of an attention call: batches, heads, query rows, keys, and head dims of queries and
/// values.
struct Shape {
    batches: usize,
    heads: usize,
    rows: usize,
    keys: usize,
    width: usize,
    value_width: usize,
}

impl Shape {
    fn of(rewriter: &Rewriter<'_, '_>, attention: &Attention) -> Option<Self> {
        let Attention { weights, product, values, out } = attention;
        let (lead, [rows, keys]) = rewriter.sizes(weights.scores)?.split_last_chunk::<2>()?;
        let [_, width] = rewriter.sizes(product.queries)?.last_chunk::<2>()?;
        let [value_rows, value_width] = rewriter.sizes(*values)?.last_chunk::<2>()?;
        let [out_rows, _] = rewriter.sizes(*out)?.last_chunk::<2>()?;
        let (heads, batches) =
            lead.split_last().map_or((1, &[][..]), |(heads, rest)| (*heads, rest));
        let batches = batches.iter().product();
        let (rows, keys, width, value_width) = (*rows, *keys, *width, *value_width);
        let shape = Shape { batches, heads, rows, keys, width, value_width };
        let numbers = [batches, heads, rows, keys, width, value_width];
        // Views of empty tensors do not determine the dims.
        let fits = *value_rows == keys && *out_rows == rows && width <= MAX_WIDTH;
        (fits && !numbers.contains(&0)).then_some(shape)
    }
}

/// Adds the fused call, and a view of its result with the shape of the second multiplication's.
fn emit(rewriter: &mut Rewriter<'_, '_>, masks: &mut Masks, found: Attention) -> Option<()> {
    let shape = Shape::of(rewriter, &found)?;
    let Shape { batches, heads, rows, keys: key_rows, width, value_width } = shape;
    let Attention { weights, product, values, out } = found;
    let scalar_type = rewriter.scalar_type(out)?;
    for id in [product.queries, product.keys, values] {
        if rewriter.scalar_type(id) != Some(scalar_type) {
            return None;
        }
    }
    let (queries, query_scale) = peeled_exactly(rewriter, product.queries);
    let (keys, key_scale) = keys(rewriter, product.keys, [batches, heads, key_rows, width])?;
    let scale = product.scale * query_scale * key_scale;
    if !scale.is_finite() || !rewriter.is_lasting(queries) {
        return None;
    }
    let values = peeled_views(rewriter, values);
    if !rewriter.is_lasting(keys) || !rewriter.is_lasting(values) {
        return None;
    }
    let Known { shows_each_row, causal } = match product.masks[..] {
        [] => Known { shows_each_row: true, causal: None },
        [Masking { mask, .. }] => masks.known(rewriter, mask, [rows, key_rows]),
        _ => Known { shows_each_row: false, causal: None },
    };
    let mask = match product.masks[..] {
        [Masking { mask, scores }] if causal.is_none() => {
            mask.make(rewriter, scores, [batches, heads])?
        }
        [first, second] => {
            let of = [first, second].map(|it| it.mask.make(rewriter, it.scores, [batches, heads]));
            sum(rewriter, of[0]?, of[1]?)?
        }
        _ => rewriter.value(Value::None),
    };
    // An offset that shows the first row all keys masks nothing.
    let causal = causal.filter(|offset| offset + 1 < key_rows);
    let queries = viewed_as(rewriter, queries, &[batches, heads, rows, width])?;
    let full = [batches, heads, key_rows];
    // If no row can be fully masked, zeros and NaN are the same, and the operator that supports
    // shared heads may be used.
    let shared =
        shared_heads(rewriter, [keys, values], full).filter(|_| weights.zeros || shows_each_row);
    let (keys, values, key_heads) = shared.unwrap_or((keys, values, heads));
    let keys = viewed_as(rewriter, keys, &[batches, key_heads, key_rows, width])?;
    let values = viewed_as(rewriter, values, &[batches, key_heads, key_rows, value_width])?;
    let plain = key_heads == heads && causal.is_none() && (!weights.zeros || shows_each_row);
    let scale = rewriter.value(Value::Double(scale));
    let mut inputs = vec![queries, keys, values, mask, scale];
    let operator = if plain {
        Operator::ET_VK_SDPA
    } else {
        let offset = causal.and_then(|offset| i64::try_from(offset).ok());
        inputs.push(rewriter.value(offset.map_or(Value::None, Value::Int)));
        Operator::ATTENTION
    };
    let sizes = vec![batches, heads, rows, value_width];
    let fused = rewriter.call_new(operator, &inputs, scalar_type, sizes);
    view_into(rewriter, fused, out)
}

/// Adds the broadcast sum of two masks.
fn sum(rewriter: &mut Rewriter<'_, '_>, a: ValueId, b: ValueId) -> Option<ValueId> {
    let scalar_type = rewriter.scalar_type(a)?;
    let mut whole = |id| {
        let own = rewriter.sizes(id)?;
        let mut sizes = vec![1; 4usize.checked_sub(own.len())?];
        sizes.extend(own);
        viewed_as(rewriter, id, &sizes)
    };
    let (a, b) = (whole(a)?, whole(b)?);
    let [first, second]: [[usize; 4]; 2] =
        [rewriter.sizes(a)?.try_into().ok()?, rewriter.sizes(b)?.try_into().ok()?];
    let mut sizes = vec![0; 4];
    for (size, (own, second)) in sizes.iter_mut().zip(first.iter().zip(second)) {
        *size = match (*own, second) {
            (own, second) if own == second || second == 1 => own,
            (1, second) => second,
            _ => return None,
        };
    }
    (rewriter.scalar_type(b)? == scalar_type).then_some(())?;
    let one = rewriter.value(Value::Int(1));
    Some(rewriter.call_new(Operator::ADD_TENSOR, &[a, b, one], scalar_type, sizes))
}

/// Removes the mask of a fused call if the mask is constant by now and equivalent to a causal
/// offset.
fn unmask(rewriter: &mut Rewriter<'_, '_>, masks: &mut Masks, node: &Node) -> Option<()> {
    let (&[q, k, v, mask, ref rest @ ..], out) = (inputs(node), *node.args.last()?) else {
        return None;
    };
    let (&[_, _, rows, _], &[_, _, keys, _]) = (rewriter.sizes(q)?, rewriter.sizes(k)?) else {
        return None;
    };
    if rewriter.is_none(Some(&mask)) || !rewriter.is_none(rest.get(1)) {
        return None;
    }
    // Views keep the order of elements. If the last two dims of the mask are `[rows, keys]`, the
    // tensor below the views has the same matrices in its memory order.
    let made = peeled_views(rewriter, mask);
    if rewriter.sizes(mask)?.last_chunk::<2>() != Some(&[rows, keys]) {
        return None;
    }
    let made = match rewriter.scalar_type(made)? {
        ScalarType::Bool => {
            Mask::Filled { condition: made, inverted: true, number: f64::NEG_INFINITY }
        }
        _ => Mask::Added(made),
    };
    let offset = masks.known(rewriter, made, [rows, keys]).causal?;
    let none = rewriter.value(Value::None);
    let scale = rest.first().copied().unwrap_or(none);
    let mut args = vec![q, k, v, none, scale];
    let hides = offset + 1 < keys;
    let operator = if hides { Operator::ATTENTION } else { node.operator };
    if operator == Operator::ATTENTION {
        let offset = i64::try_from(offset).ok().filter(|_| hides);
        args.push(rewriter.value(offset.map_or(Value::None, Value::Int)));
    }
    rewriter.call(operator, &args, out);
    Some(())
}

/// The keys as rows, from the transposed keys of the first multiplication, and their scale.
fn keys(
    rewriter: &mut Rewriter<'_, '_>,
    columns: ValueId,
    [batches, heads, rows, width]: [usize; 4],
) -> Option<(ValueId, f64)> {
    let (columns, scale) = peeled_exactly(rewriter, columns);
    if !rewriter.is_lasting(columns) {
        return None;
    }
    let transposed = rewriter.producer(columns).and_then(|node| permutation(rewriter, node));
    let ends_right = rewriter.sizes(columns)?.last_chunk::<2>() == Some(&[width, rows]);
    if let Some((source, mut order)) = transposed.filter(|_| ends_right) {
        let last = order.len().checked_sub(1)?;
        order.swap(last.checked_sub(1)?, last);
        if order.iter().enumerate().all(|(at, dim)| at == *dim) {
            let (source, own) = peeled_exactly(rewriter, source);
            return Some((source, scale * own));
        }
        return Some((permuted(rewriter, source, &order)?, scale));
    }
    let columns = viewed_as(rewriter, columns, &[batches, heads, width, rows])?;
    Some((permuted(rewriter, columns, &[0, 1, 3, 2])?, scale))
}

/// Keys and values before their repetition for grouped-query attention, and the number of key
/// heads.
fn shared_heads(
    rewriter: &Rewriter<'_, '_>,
    [keys, values]: [ValueId; 2],
    full: [usize; 3],
) -> Option<(ValueId, ValueId, usize)> {
    let (keys, heads) = before_repeat(rewriter, keys, full)?;
    let (values, value_heads) = before_repeat(rewriter, values, full)?;
    (heads == value_heads).then_some((keys, values, heads))
}

/// The input of an expansion to head groups, shaped `[batches, heads, 1, rows, width]`, and its
/// number of heads.
fn before_repeat(
    rewriter: &Rewriter<'_, '_>,
    id: ValueId,
    [batches, heads, rows]: [usize; 3],
) -> Option<(ValueId, usize)> {
    let id = peeled_views(rewriter, id);
    let source = *rewriter.call_of(id, Operator::EXPAND_COPY)?.first()?;
    let (from, to) = (rewriter.sizes(source)?, rewriter.sizes(id)?);
    let [own_batches, own_heads, 1, own_rows, width] = *from else { return None };
    let group = heads.checked_div(own_heads)?;
    let fits = own_batches == batches && own_rows == rows && own_heads * group == heads;
    (fits && to == [batches, own_heads, group, rows, width]).then_some((source, own_heads))
}

#[cfg(test)]
mod tests;
