//! Removes calls that change nothing, and merges pairs of calls.
//!
//! - Copies and views to the same dtype and shape are replaced by their input: `clone`,
//!   `alias_copy`, `detach_copy`, `_to_copy`, `expand_copy`, `view_copy`, `slice_copy`,
//!   `et_vk.prepack` and similar. Requested memory layouts do not matter to the graph.
//! - Two consecutive permutations become one, or are removed if they cancel out. The same holds for
//!   views.
//! - A permutation that moves only dims of size one becomes a view.
//! - A `cat` whose only use is another `cat` over the same dim is merged into it.
//! - Two consecutive dtype conversions become one, or are removed, if the first one is lossless.
//! - Dropout at inference is replaced by its input, as are a multiplication or division by one, a
//!   subtraction of zero, and a power of one. (A floating-point addition of zero is not an
//!   identity: it turns minus zero into zero.)
//!
//! Needs: a graph in which each value is produced once, before its uses. Keeps: inputs and outputs
//! of the graph remain distinct values. All elements keep their bits. Sizes that are only upper
//! bounds justify no change.

use super::rewrite::{Rewriter, each_call};
use super::uses::inputs;
use super::views::{permutation, reshaped, view_into};
use crate::graph::{Graph, Node, Value, ValueId};
use crate::operators::Operator;
use alloc::vec::Vec;
use torchlet_core::ScalarType;

/// Removes and merges redundant calls. Returns the number of changes.
pub fn run(graph: &mut Graph<'_>) -> usize {
    each_call(graph, simplify)
}

fn simplify(rewriter: &mut Rewriter<'_, '_>, node: &Node) -> bool {
    let (Some(out), Some(input)) = (node.args.last().copied(), inputs(node).first().copied())
    else {
        return false;
    };
    if is_copy(rewriter, node) && rewriter.replace(out, input) {
        return true;
    }
    match node.operator {
        Operator::TO_COPY | Operator::DIM_ORDER_OPS_TO_DIM_ORDER_COPY => {
            convert_once(rewriter, node, input, out)
        }
        Operator::CAT => {
            only_member(rewriter, input).is_some_and(|id| rewriter.replace(out, id))
                || join_once(rewriter, node, out)
        }
        Operator::NATIVE_DROPOUT => drop_nothing(rewriter, node, input, out),
        _ => permute_once(rewriter, node, out) || view_once(rewriter, node, out),
    }
}

/// Whether the output of a call equals its first input, provided that both have the same type and
/// shape.
fn is_copy(rewriter: &Rewriter<'_, '_>, node: &Node) -> bool {
    let number = || inputs(node).get(1).and_then(|id| rewriter.number(*id));
    match node.operator {
        Operator::CLONE
        | Operator::ALIAS_COPY
        | Operator::DETACH_COPY
        | Operator::LIFT_FRESH_COPY
        | Operator::DIM_ORDER_OPS_CLONE_DIM_ORDER
        | Operator::TO_COPY
        | Operator::DIM_ORDER_OPS_TO_DIM_ORDER_COPY
        | Operator::ET_VK_PREPACK => true,
        // With an unchanged shape, these keep the order of elements.
        Operator::EXPAND_COPY
        | Operator::REPEAT
        | Operator::SLICE_COPY_TENSOR
        | Operator::SLICE_TENSOR
        | Operator::NARROW_COPY
        | Operator::VIEW_COPY
        | Operator::UNSQUEEZE_COPY
        | Operator::SQUEEZE_COPY_DIM
        | Operator::SQUEEZE_COPY_DIMS => rewriter.has_fixed_shapes(),
        Operator::CONSTANT_PAD_ND => {
            let pads = inputs(node).get(1).and_then(|id| rewriter.ints(*id));
            pads.is_some_and(|pads| pads.iter().all(|pad| *pad == 0))
        }
        Operator::MUL_SCALAR
        | Operator::MUL_TENSOR
        | Operator::DIV_SCALAR
        | Operator::DIV_TENSOR
        | Operator::POW_TENSOR_SCALAR => rewriter.has_fixed_shapes() && number() == Some(1.0),
        Operator::SUB_SCALAR | Operator::SUB_TENSOR => {
            let zero = number().is_some_and(|number| number == 0.0 && number.is_sign_positive());
            rewriter.has_fixed_shapes() && zero
        }
        _ => false,
    }
}

fn only_member(rewriter: &Rewriter<'_, '_>, list: ValueId) -> Option<ValueId> {
    match rewriter.get(list)? {
        Value::List(items) if items.len() == 1 => items.first().copied(),
        _ => None,
    }
}

/// Maximum number of operands of a merged `cat`. Without it, a chain of `cat` calls would build
/// lists of quadratic total length.
const MAX_JOINED: usize = 512;

/// Merges operands that are `cat` results over the same dim, without other uses, into this `cat`.
fn join_once(rewriter: &mut Rewriter<'_, '_>, node: &Node, out: ValueId) -> bool {
    let Some(joined) = joined(rewriter, inputs(node), out) else { return false };
    let (mut members, mut found) = (Vec::new(), false);
    for id in joined.members {
        let alone = rewriter.uses(id) == 1;
        let before = rewriter.call_of(id, Operator::CAT).filter(|_| alone);
        match before.and_then(|args| self::joined(rewriter, args, id)) {
            Some(before)
                if before.dim == joined.dim
                    && members.len() + before.members.len() <= MAX_JOINED =>
            {
                members.extend(before.members);
                found = true;
            }
            _ => members.push(id),
        }
    }
    if !found {
        return false;
    }
    let dim = i64::try_from(joined.dim).unwrap_or(0);
    let [list, dim] = [Value::List(members), Value::Int(dim)].map(|it| rewriter.value(it));
    rewriter.call(Operator::CAT, &[list, dim], out);
    true
}

/// Operands and dim of a `cat` call.
struct Joined {
    members: Vec<ValueId>,
    dim: usize,
}

/// Parses a `cat` call. Returns `None` unless all operands have the type and rank of the result:
/// otherwise, some are converted or skipped.
fn joined(rewriter: &Rewriter<'_, '_>, inputs: &[ValueId], out: ValueId) -> Option<Joined> {
    let (list, dim) = inputs.split_first()?;
    let Some(Value::List(members)) = rewriter.get(*list) else { return None };
    let whole = rewriter.tensor(out)?;
    let alike = |id: &ValueId| {
        rewriter.tensor(*id).is_some_and(|it| {
            it.scalar_type == whole.scalar_type && it.sizes.len() == whole.sizes.len()
        })
    };
    let dim = dim.first().map_or(Some(0), |dim| rewriter.int(*dim))?;
    let dim = torchlet_core::rules::normalize_dim(dim, whole.sizes.len())?;
    members.iter().all(alike).then(|| Joined { members: members.clone(), dim })
}

/// Removes the first of two conversions if it is lossless, and both if the second restores the
/// type.
fn convert_once(
    rewriter: &mut Rewriter<'_, '_>,
    node: &Node,
    input: ValueId,
    out: ValueId,
) -> bool {
    let first = rewriter
        .call_of(input, Operator::TO_COPY)
        .or_else(|| rewriter.call_of(input, Operator::DIM_ORDER_OPS_TO_DIM_ORDER_COPY));
    let Some(source) = first.and_then(|args| args.first().copied()) else { return false };
    let types = (rewriter.scalar_type(source), rewriter.scalar_type(input));
    let (Some(from), Some(between)) = types else { return false };
    if !holds(between, from) {
        return false;
    }
    if rewriter.replace(out, source) {
        return true;
    }
    let mut args = inputs(node).to_vec();
    if let Some(input) = args.first_mut() {
        *input = source;
    }
    rewriter.call(node.operator, &args, out);
    true
}

/// Whether a type represents all values of another.
fn holds(wide: ScalarType, narrow: ScalarType) -> bool {
    use ScalarType::{BFloat16, Bool, Byte, Char, Double, Float, Half, Int, Long, Short};
    wide == narrow
        || match narrow {
            Bool => {
                matches!(wide, Byte | Char | Short | Int | Long | Half | BFloat16 | Float | Double)
            }
            Byte | Char => matches!(wide, Short | Int | Long | Half | Float | Double),
            Short => matches!(wide, Int | Long | Float | Double),
            Int => matches!(wide, Long | Double),
            Half | BFloat16 => matches!(wide, Float | Double),
            Float => wide == Double,
            _ => false,
        }
}

/// Removes dropout, the identity at inference.
fn drop_nothing(
    rewriter: &mut Rewriter<'_, '_>,
    node: &Node,
    input: ValueId,
    out: ValueId,
) -> bool {
    if rewriter.flag(inputs(node).get(2), true) != Some(false) {
        return false;
    }
    let Some(Value::List(outs)) = rewriter.get(out) else { return false };
    let Some((kept, mask)) = outs.split_first() else { return false };
    let (kept, whole) = (*kept, mask.iter().all(|mask| rewriter.uses(*mask) == 0));
    // If the mask is used, the call stays for it.
    rewriter.replace(kept, input) && whole
}

/// Merges two permutations, and removes identity permutations.
fn permute_once(rewriter: &mut Rewriter<'_, '_>, node: &Node, out: ValueId) -> bool {
    let Some((input, mut order)) = permutation(rewriter, node) else { return false };
    let mut source = input;
    if let Some((first, own)) =
        rewriter.producer(input).and_then(|node| permutation(rewriter, node))
    {
        let Some(both) = order.iter().map(|dim| own.get(*dim).copied()).collect() else {
            return false;
        };
        (source, order) = (first, both);
    }
    if order.iter().enumerate().all(|(at, dim)| at == *dim) && rewriter.replace(out, source) {
        return true;
    }
    if is_view(rewriter, source, &order) {
        return view_into(rewriter, source, out).is_some();
    }
    if source == input {
        return false;
    }
    let order = order.into_iter().map(|dim| dim as i64).collect();
    let order = rewriter.value(Value::IntList(order));
    rewriter.call(Operator::PERMUTE_COPY, &[source, order], out);
    true
}

/// Whether a permutation keeps the order of elements because only dims of size one move.
fn is_view(rewriter: &Rewriter<'_, '_>, source: ValueId, order: &[usize]) -> bool {
    let Some(sizes) = rewriter.sizes(source) else { return false };
    let moving = order.iter().filter(|dim| sizes.get(**dim) != Some(&1));
    rewriter.has_fixed_shapes() && moving.is_sorted()
}

/// Merges two views.
fn view_once(rewriter: &mut Rewriter<'_, '_>, node: &Node, out: ValueId) -> bool {
    let Some(input) = reshaped(rewriter, node) else { return false };
    let first = rewriter.producer(input).and_then(|node| reshaped(rewriter, node));
    let Some(source) = first else { return false };
    if rewriter.replace(out, source) {
        return true;
    }
    view_into(rewriter, source, out).is_some()
}

#[cfg(test)]
mod tests {
    use super::MAX_JOINED;
    use crate::graph::{Graph, Value};
    use crate::passes::text;
    use alloc::format;
    use alloc::string::String;
    use alloc::vec::Vec;

    fn simplified(text: &str) -> (Graph<'static>, Vec<String>) {
        let graph = text::after(text, super::run);
        let calls = text::calls(&graph);
        (graph, calls)
    }

    #[test]
    fn copies_go() {
        let (_, calls) = simplified(
            "in x f32[2,4]
             const w f32[2,4] = 2
             a f32[2,4] = aten.clone.default(x)
             b f32[2,4] = dim_order_ops._clone_dim_order.default(a, false, [0, 1])
             c f32[2,4] = aten.expand_copy.default(b, [2, 4])
             d f32[2,4] = aten.slice_copy.Tensor(c, 0, 0, 9223372036854775807, 1)
             e f32[2,4] = aten._to_copy.default(d)
             p f32[2,4] = et_vk.prepack.default(w)
             f f32[2,4] = aten.mul.Tensor(e, p)
             out f",
        );
        assert_eq!(calls, ["%8 = aten.mul.Tensor(%0, %1)"]);
    }

    #[test]
    fn what_changes_something_stays() {
        let text = "in x f32[2,4]
             a f16[2,4] = aten._to_copy.default(x)
             b f32[2,4] = aten._to_copy.default(a)
             c f32[2,2] = aten.slice_copy.Tensor(b, 1, 0, 2, 1)
             d f32[2,2] = aten.add.Scalar(c, 0.0, 1)
             e f32[2,2] = aten.sub.Scalar(d, -0.0, 1)
             out e";
        assert_eq!(simplified(text).1.len(), 5);
    }

    #[test]
    fn edges_keep_values_of_their_own() {
        // An input, a constant, and a value that is an output already.
        let (graph, calls) = simplified(
            "in x f32[4]
             const w f32[4] = 1
             var state f32[4]
             a f32[4] = aten.clone.default(x)
             b f32[4] = aten.clone.default(w)
             c f32[4] = aten.neg.default(x)
             d f32[4] = aten.clone.default(c)
             e f32[4] = aten.clone.default(x)
             update e state
             out a b c d",
        );
        assert_eq!((calls.len(), graph.outputs), (5, alloc::vec![3, 4, 5, 6]));
        // A value that leaves the graph only through the copy gets the output's id, also in earlier
        // uses.
        let (_, calls) = simplified(
            "in x f32[4]
             c f32[4] = aten.neg.default(x)
             b f32[4] = aten.clone.default(c)
             e f32[8] = aten.cat.default([c, b], 0)
             d f32[4] = aten.clone.default(c)
             f f32[8] = aten.cat.default([d, c], 0)
             out d e f",
        );
        let expected = [
            "%4 = aten.neg.default(%0)",
            "%3 = aten.cat.default([%4, %4], 0)",
            "%5 = aten.cat.default([%4, %4], 0)",
        ];
        assert_eq!(calls, expected);
    }

    #[test]
    fn a_copy_of_what_is_overwritten_stays() {
        let (_, calls) = simplified(
            "in x f32[1,1,1,4]
             var cache f32[1,8,1,4]
             a f32[1,8,1,4] = aten.clone.default(cache)
             b f32[1,1,1,4] = llama.update_cache.default(x, cache, 0)
             c f32[1,8,1,4] = aten.sub.Tensor(a, cache, 1)
             out c",
        );
        assert_eq!(calls.len(), 3);
    }

    #[test]
    fn what_is_overwritten_is_not_what_made_it() {
        let (_, calls) = simplified(
            "in x f32[1,1,1,4]
             in y f32[1,1,8,4]
             a f32[1,8,1,4] = aten.permute_copy.default(y, [0, 2, 1, 3])
             b f32[1,1,1,4] = llama.update_cache.default(x, a, 0)
             c f32[1,1,8,4] = aten.permute_copy.default(a, [0, 2, 1, 3])
             out c",
        );
        assert_eq!(calls.len(), 3);
        assert!(calls[2].contains("(%2, "), "{calls:#?}");
    }

    #[test]
    fn permutations_join() {
        // As after attention: a permutation, its inverse, and others.
        let (_, calls) = simplified(
            "in x f32[2,4,16,8]
             a f32[16,2,4,8] = aten.permute_copy.default(x, [2, 0, 1, 3])
             b f32[16,2,4,8] = aten.clone.default(a)
             c f32[2,4,16,8] = aten.permute_copy.default(b, [1, 2, 0, 3])
             d f32[2,16,4,8] = aten.transpose_copy.int(c, 1, -2)
             e f32[2,16,4,8] = aten.neg.default(d)
             f f32[2,4,16,8] = aten.neg.default(c)
             g f32[4,16,2,8] = aten.permute_copy.default(a, [2, 0, 1, 3])
             out e f g",
        );
        let expected = [
            "%4 = aten.transpose_copy.int(%0, 1, -2)",
            "%5 = aten.neg.default(%4)",
            "%6 = aten.neg.default(%0)",
            "%7 = aten.permute_copy.default(%0, [1, 2, 0, 3])",
        ];
        assert_eq!(calls, expected);
    }

    #[test]
    fn permutations_of_single_elements_are_views() {
        let (_, calls) = simplified(
            "in x f32[1,17,4]
             a f32[17,1,4] = aten.permute_copy.default(x, [1, 0, 2])
             b f32[17,4] = aten.view_copy.default(a, [17, 4])
             out b",
        );
        assert_eq!(calls, ["%2 = aten.view_copy.default(%0, [17, 4])"]);
    }

    #[test]
    fn views_join() {
        let (_, calls) = simplified(
            "in x f32[2,4,8]
             a f32[8,8] = aten.view_copy.default(x, [8, 8])
             b f32[8,1,8] = aten.unsqueeze_copy.default(a, 1)
             c f32[1,8,1,8] = aten.expand_copy.default(b, [1, 8, 1, 8])
             d f32[2,4,8] = aten.view_copy.default(c, [2, 4, 8])
             e f32[2,4,8] = aten.neg.default(d)
             f f32[1,8,1,8] = aten.neg.default(c)
             out e f",
        );
        let expected = [
            "%3 = aten.view_copy.default(%0, [1, 8, 1, 8])",
            "%5 = aten.neg.default(%0)",
            "%6 = aten.neg.default(%3)",
        ];
        assert_eq!(calls, expected);
    }

    #[test]
    fn conversions_join_where_nothing_is_lost() {
        let (_, calls) = simplified(
            "in x f16[4]
             in n i64[4]
             a f32[4] = aten._to_copy.default(x)
             b f16[4] = aten._to_copy.default(a)
             c f16[4] = aten.neg.default(b)
             d f64[4] = aten._to_copy.default(a)
             e f32[4] = aten._to_copy.default(n)
             f i64[4] = aten._to_copy.default(e)
             out c d f",
        );
        let expected = [
            "%4 = aten.neg.default(%0)",
            "%5 = aten._to_copy.default(%0)",
            "%6 = aten._to_copy.default(%1)",
            "%7 = aten._to_copy.default(%6)",
        ];
        assert_eq!(calls, expected);
    }

    #[test]
    fn what_is_joined_twice_is_joined_once() {
        let (_, calls) = simplified(
            "in x f32[2,4]
             in n i64[2,4]
             a f32[4,4] = aten.cat.default([x, x], 0)
             b f32[6,4] = aten.cat.default([a, x], -2)
             c f32[2,8] = aten.cat.default([x, x], 1)
             d f32[8,8] = aten.cat.default([c, c, c, c], 0)
             e f32[2,8] = aten.cat.default([x, n], 1)
             f f32[2,12] = aten.cat.default([e, x], 1)
             g f32[4,4] = aten.cat.default([x, x], 0)
             h f32[4,8] = aten.cat.default([g, g], 1)
             out b d f h",
        );
        // Not merged: another dim, operands with other uses, and implicit conversions.
        let joined = calls.iter().filter(|call| call.contains("[%0, %0, %0], 0)")).count();
        assert_eq!((calls.len(), joined), (7, 1), "{calls:#?}");
    }

    /// A chain of `cat` calls, each of which adds one value, gives lists of bounded length.
    #[test]
    fn long_chains_are_joined_in_pieces() {
        let mut text = String::from("in x f32[1]\n");
        let mut last = String::from("x");
        for step in 1..3000 {
            let size = step + 1;
            text += &format!("v{step} f32[{size}] = aten.cat.default([{last}, x], 0)\n");
            last = format!("v{step}");
        }
        let (graph, _) = simplified(&format!("{text}out {last}"));
        let lists = graph.values.iter().filter_map(|value| match value {
            Value::List(items) => Some(items.len()),
            _ => None,
        });
        let (longest, all) = lists.fold((0, 0), |(most, all), len| (len.max(most), all + len));
        assert!((MAX_JOINED / 2..=MAX_JOINED + 1).contains(&longest), "{longest}");
        assert!(all < 3000 * MAX_JOINED, "{all}");
    }

    #[test]
    fn dropout_is_nothing_at_inference() {
        let (_, calls) = simplified(
            "in x f32[4]
             [a f32[4], m bool[4]] = aten.native_dropout.default(x, 0.5, false)
             b f32[4] = aten.neg.default(a)
             [c f32[4], n bool[4]] = aten.native_dropout.default(x, 0.5, true)
             out b c",
        );
        assert_eq!(calls.len(), 2);
        assert_eq!(calls[0], "%3 = aten.neg.default(%0)");
    }

    #[test]
    fn nothing_follows_from_bounds() {
        let mut graph = text::parse(
            "in x f32[4]
             a f32[4] = aten.slice_copy.Tensor(x, 0, 1, 5, 1)
             b f32[4] = aten.neg.default(a)
             out b",
        );
        let crate::graph::Value::Tensor(tensor) = &mut graph.values[0] else { unreachable!() };
        tensor.dynamic = true;
        assert_eq!(super::run(&mut graph), 0);
    }
}
