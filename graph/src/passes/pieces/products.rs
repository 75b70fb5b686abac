//! Splits linear layers: each part computes some columns of the result.

use super::{Rows, args_of, like, ranges};
use crate::graph::{Graph, Node, Value};
use crate::operators::Operator;
use crate::passes::rewrite::Rewriter;
use alloc::vec::Vec;

/// The weight, scale, sum and bias arguments of a linear layer.
pub(super) fn places(operator: Operator) -> Option<Rows> {
    let (weights, others): (usize, &[usize]) = match operator {
        Operator::LINEAR | Operator::WEIGHT_INT8PACK_MM | Operator::ET_VK_LINEAR_QCS4W => (1, &[2]),
        Operator::ET_VK_LINEAR_Q8CSW => (1, &[2, 3]),
        Operator::ET_VK_LINEAR_Q4GSW | Operator::ET_VK_Q4GSW_LINEAR => (1, &[2, 4]),
        Operator::ET_VK_LINEAR_DQ8CA_Q4GSW => (3, &[4, 5, 7]),
        Operator::ET_VK_LINEAR_Q8TA_Q8CSW => (3, &[4, 5, 6]),
        Operator::ET_VK_Q8TA_LINEAR | Operator::ET_VK_Q8TA_LINEAR_GEMV => (3, &[4, 5, 8]),
        _ => return None,
    };
    Some(Rows { weights, others, makes: true })
}

/// Produces `cat(x · partᵀ + bias part, ...)`.
pub(super) fn cut(
    rewriter: &mut Rewriter<'_, '_>,
    node: &Node,
    places: &Rows,
    size: usize,
    takes: &mut dyn FnMut(&Graph<'_>, &Node) -> bool,
) -> Option<()> {
    let (weights, out) = (*node.args.get(places.weights)?, *node.args.last()?);
    let rows = *rewriter.sizes(weights)?.first()?;
    // Exact scales have the rows in the second dim.
    let is_exact = |id| rewriter.sizes(id).is_some_and(|sizes| sizes == [2, rows]);
    let is_linear = node.operator == Operator::ET_VK_Q8TA_LINEAR;
    if is_linear && node.args.get(5).is_some_and(|id| is_exact(*id)) {
        return None;
    }
    let scalar_type = rewriter.scalar_type(out)?;
    let mut pieces = Vec::new();
    for (start, end) in ranges(rows, size) {
        pieces.push(like(rewriter, out, scalar_type, end - start)?);
    }
    let list = rewriter.value(Value::List(pieces.clone()));
    let last = rewriter.value(Value::Int(-1));
    if !rewriter.is_taken(Operator::CAT, &[list, last], out, takes) {
        return None;
    }
    let mut calls = Vec::new();
    for (range, made) in ranges(rows, size).zip(pieces) {
        calls.push((args_of(rewriter, node, places, range)?, made));
    }
    for (args, made) in calls {
        rewriter.call(node.operator, &args, made);
    }
    rewriter.call(Operator::CAT, &[list, last], out);
    Some(())
}
