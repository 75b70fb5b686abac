//! Attention as exporters write it becomes one call.
//!
//! `softmax(q · kᵀ · scale + mask) · v`, found from the second product backwards:
//!
//! - The scale stands at the product or at `q` or `k` (PyTorch's decomposition puts its root at
//!   both), as a product with a number or a quotient by one, on either side of views and of the
//!   transposition of `k`.
//! - The mask is added to the scores, or fills them with minus infinity (or, of `f32`, with what
//!   absorbs every score) where it is true; as part of `baddbmm`, too.
//! - The softmax may have the idiom around it that gives rows zeros of which every score is minus
//!   infinity: `eq`, `logical_not`, `any`, `logical_not`, `where`.
//! - Softmax in `f32` between products in a narrower type is what the fused call computes anyway.
//! - Keys and values that are repeated for groups of heads are taken unrepeated.
//!
//! It becomes `et_vk.sdpa.default(q, k, v, mask, scale)`, whose fully masked rows are not numbers,
//! as those of a bare softmax, or [`Operator::ATTENTION`] with an argument more, where such rows
//! are zeros and heads may share keys. The idiom without a mask, or with a constant one that leaves
//! every row a key, has no such rows (but where finite products overflow to infinity) and becomes
//! the first of the two, which is the more common one. A constant mask that shows each row a key
//! more than the one before becomes the further argument, an offset: row `i` sees keys up to
//! `offset + i`, and no time is spent on others.
//!
//! Needs: each value made once, before its uses; copies that change nothing are better gone. Shapes
//! must be fixed. Keeps: products whose weights others take. Rounding: scores and weights are not
//! rounded to the type of the graph, and the scale is applied once: as in PyTorch's own fused
//! attention, sums are at least as exact as before.

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

/// The widest rows of queries that are worth one call: no processor keeps more at hand.
const MAX_WIDTH: usize = 2048;

/// Fuses attention, and says how many.
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

/// Attention, found but not yet made.
struct Attention {
    weights: Weights,
    product: Product,
    values: ValueId,
    /// What the second product makes.
    out: ValueId,
}

/// Where weights come from.
struct Weights {
    /// What the softmax is of.
    scores: ValueId,
    /// Whether a row of which every score is minus infinity has zeros.
    zeros: bool,
}

/// The scores, as made by the first product.
struct Product {
    queries: ValueId,
    keys: ValueId,
    scale: f64,
    masks: Vec<Masking>,
}

/// A mask, and the scores that it is for, which may be shaped as others than those of the softmax.
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

/// Follows weights back through views and the conversion to a narrower type, as long as nobody else
/// takes them.
fn find_weights(rewriter: &Rewriter<'_, '_>, mut id: ValueId) -> Option<Weights> {
    for _ in 0..VIEWS {
        if rewriter.uses(id) != 1 {
            return None;
        }
        let node = rewriter.maker(id)?;
        match node.operator {
            Operator::WHERE_SELF => return guarded_softmax(rewriter, inputs(node)),
            Operator::SOFTMAX => {
                let scores = softmax(rewriter, id)?;
                return Some(Weights { scores, zeros: false });
            }
            _ => id = reshaped(rewriter, node).or_else(|| converted(rewriter, node, false))?,
        }
    }
    None
}

/// What a conversion from `f32` to a type of 16 bits is of, or one the other way if it `widens`.
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

/// What a softmax over the last dimension is of.
fn softmax(rewriter: &Rewriter<'_, '_>, id: ValueId) -> Option<ValueId> {
    let [scores, dim, ..] = rewriter.call_of(id, Operator::SOFTMAX)? else { return None };
    let last = rewriter.sizes(*scores)?.len() as i64 - 1;
    let dim = rewriter.int(*dim)?;
    (last >= 1 && (dim == -1 || dim == last)).then_some(*scores)
}

/// A softmax whose rows are zeros where every score is minus infinity.
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
    // Zeros are shaped like the weights, or by themselves.
    let shaped = rewriter.maker(*zeros).is_some_and(|node| inputs(node).first() == Some(weights));
    let taken = rewriter.uses(*weights) == if shaped { 2 } else { 1 };
    (fits && taken).then_some(Weights { scores, zeros: true })
}

/// Follows scores back to the product of queries and keys.
fn find_product(rewriter: &Rewriter<'_, '_>, scores: ValueId) -> Option<Product> {
    let narrow = |id: ValueId| rewriter.maker(id).and_then(|node| converted(rewriter, node, true));
    let unmasked = narrow(scores).unwrap_or(scores);
    for (inner, masks) in maskings(rewriter, scores, unmasked) {
        let (mut product, mut scale) = peeled(rewriter, inner);
        if let Some(source) = narrow(product) {
            let (source, own) = peeled(rewriter, source);
            (product, scale) = (source, scale * own);
        }
        let Some(node) = rewriter.maker(product) else { continue };
        let (queries, keys, masks) = match (node.operator, inputs(node)) {
            (Operator::BMM | Operator::MM, [queries, keys]) => (*queries, *keys, masks),
            // What is added has the product's shape, and a scale would be its scale, too.
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

/// The ways to see scores as other scores with one mask or two, or without, where the first is what
/// a conversion may have made the scores of. Two are added, the first perhaps to a view: as
/// networks do that have a bias for each head and hide what is beyond a window.
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

/// Whether two tensors end with the same two dimensions.
fn same_rows(rewriter: &Rewriter<'_, '_>, a: ValueId, b: ValueId) -> Option<bool> {
    Some(rewriter.sizes(a)?.last_chunk::<2>()? == rewriter.sizes(b)?.last_chunk::<2>()?)
}

/// The shape of attention: batches, heads, rows of queries, keys, widths of queries and values.
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
        // Of nothing, views tell nothing.
        let fits = *value_rows == keys && *out_rows == rows && width <= MAX_WIDTH;
        (fits && !numbers.contains(&0)).then_some(shape)
    }
}

/// Makes the call, and a view of its output that is the second product's.
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
    // What shows the first row all keys hides nothing.
    let causal = causal.filter(|offset| offset + 1 < key_rows);
    let queries = viewed_as(rewriter, queries, &[batches, heads, rows, width])?;
    let full = [batches, heads, key_rows];
    // Zeros or not, a row without a key does not happen: heads may share keys in the other call
    // alone.
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

/// The sum of two masks, which broadcast.
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

/// Lets a call that is there do without its mask, where that is constant by now, and an offset says
/// as much.
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
    // A view has its elements in the same order: where it ends with the same sizes, it is made of
    // the same matrices.
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

/// The rows of keys that columns of the first product's second factor are, and how they are scaled.
fn keys(
    rewriter: &mut Rewriter<'_, '_>,
    columns: ValueId,
    [batches, heads, rows, width]: [usize; 4],
) -> Option<(ValueId, f64)> {
    let (columns, scale) = peeled_exactly(rewriter, columns);
    if !rewriter.is_lasting(columns) {
        return None;
    }
    let transposed = rewriter.maker(columns).and_then(|node| permutation(rewriter, node));
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

/// Keys and values as they are before each is repeated for a group of heads, and how many heads
/// these are of.
fn shared_heads(
    rewriter: &Rewriter<'_, '_>,
    [keys, values]: [ValueId; 2],
    full: [usize; 3],
) -> Option<(ValueId, ValueId, usize)> {
    let (keys, heads) = before_repeat(rewriter, keys, full)?;
    let (values, value_heads) = before_repeat(rewriter, values, full)?;
    (heads == value_heads).then_some((keys, values, heads))
}

/// `[batches, heads, 1, rows, width]`, where that is expanded to groups of heads.
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
