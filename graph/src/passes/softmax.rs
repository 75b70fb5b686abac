//! Fuses softmax into `aten._softmax.default(x, dim, False)`.
//!
//! Matches `e / sum(e, dim, keepdim)` and `e · reciprocal(sum(e, dim, keepdim))` with
//! `e = exp(x - amax(x, dim, keepdim))`, as TOSA and decomposed programs spell it.
//!
//! Needs: a graph in which each value is produced once, before its uses. Keeps: other dtypes of the
//! sum, and several dims. Rounding: the fused call may sum in another order.

use super::rewrite::{Rewriter, each_call};
use super::uses::inputs;
use crate::graph::{Graph, Node, Value, ValueId};
use crate::operators::Operator;

/// Fuses the calls of softmax. Returns the number of changes.
pub fn run(graph: &mut Graph<'_>) -> usize {
    each_call(graph, |rewriter, node| {
        let (Some(out), Some((input, dim))) = (node.args.last().copied(), find(rewriter, node))
        else {
            return false;
        };
        let args = [input, rewriter.value(Value::Int(dim)), rewriter.value(Value::Bool(false))];
        rewriter.call(Operator::SOFTMAX, &args, out);
        true
    })
}

/// The input and the dim, not negative.
fn find(rewriter: &Rewriter<'_, '_>, node: &Node) -> Option<(ValueId, i64)> {
    let (exponentials, sum) = match (node.operator, inputs(node)) {
        (Operator::DIV_TENSOR, [a, b]) => (*a, *b),
        (Operator::MUL_TENSOR, [a, b]) => [(*a, *b), (*b, *a)].into_iter().find_map(|(e, r)| {
            let [sum] = rewriter.call_of(r, Operator::RECIPROCAL)? else { return None };
            Some((e, *sum))
        })?,
        _ => return None,
    };
    let [difference] = rewriter.call_of(exponentials, Operator::EXP)? else { return None };
    let [input, largest, rest @ ..] = rewriter.call_of(*difference, Operator::SUB_TENSOR)? else {
        return None;
    };
    let dim = reduced(rewriter, sum, Operator::SUM_DIM_INT_LIST, exponentials)?;
    let same_dim = reduced(rewriter, *largest, Operator::AMAX, *input)? == dim;
    let is_plain = rest.iter().all(|alpha| rewriter.number(*alpha) == Some(1.0));
    let (from, to) = (rewriter.tensor(*input)?, rewriter.tensor(*node.args.last()?)?);
    let fits = same_dim
        && is_plain
        && from.scalar_type.is_floating()
        && from.scalar_type == to.scalar_type
        && from.sizes == to.sizes
        && rewriter.is_lasting(*input);
    fits.then_some((*input, dim))
}

/// The only dim of a reduction of `of` that keeps its dims and its dtype.
fn reduced(
    rewriter: &Rewriter<'_, '_>,
    id: ValueId,
    operator: Operator,
    of: ValueId,
) -> Option<i64> {
    let [input, dims, keep, ..] = rewriter.call_of(id, operator)? else { return None };
    let same_type = rewriter.scalar_type(id)? == rewriter.scalar_type(of)?;
    if *input != of || !same_type || !rewriter.flag(Some(keep), false)? {
        return None;
    }
    let rank = i64::try_from(rewriter.sizes(of)?.len()).ok()?;
    match rewriter.ints(*dims)?[..] {
        [dim] if dim < 0 => dim.checked_add(rank).filter(|dim| *dim >= 0),
        [dim] => Some(dim).filter(|dim| *dim < rank),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::passes::{dead, text, verify::verify};

    const TEXT: &str = "in x f32[2,3,5]
        m f32[2,3,1] = aten.amax.default(x, [2], true)
        d f32[2,3,5] = aten.sub.Tensor(x, m, 1)
        e f32[2,3,5] = aten.exp.default(d)
        s f32[2,3,1] = aten.sum.dim_IntList(e, [-1], true)
        r f32[2,3,1] = aten.reciprocal.default(s)
        y f32[2,3,5] = aten.mul.Tensor(r, e)
        out y";

    fn fused(text: &str) -> alloc::vec::Vec<&'static str> {
        let mut graph = text::parse(text);
        run(&mut graph);
        dead::run(&mut graph);
        verify(&graph).unwrap();
        text::operators(&graph)
    }

    #[test]
    fn quotients_of_exponentials_become_softmax() {
        assert_eq!(fused(TEXT), ["aten._softmax.default"]);
        let divided = TEXT.replace("aten.mul.Tensor(r, e)", "aten.div.Tensor(e, s)");
        assert_eq!(fused(&divided), ["aten._softmax.default"]);
    }

    #[test]
    fn similar_quotients_stay() {
        for (from, to) in [
            // The largest element of another dim, and of another tensor.
            ("amax.default(x, [2], true)", "amax.default(x, [1], true)"),
            ("sum.dim_IntList(e,", "sum.dim_IntList(x,"),
            ("sub.Tensor(x, m, 1)", "sub.Tensor(x, m, 2)"),
            ("mul.Tensor(r, e)", "mul.Tensor(r, d)"),
        ] {
            let text = TEXT.replace(from, to);
            let text = match to.contains("[1]") {
                true => text.replace("m f32[2,3,1]", "m f32[2,1,5]"),
                false => text,
            };
            assert!(!fused(&text).contains(&"aten._softmax.default"), "{to}");
        }
    }
}
