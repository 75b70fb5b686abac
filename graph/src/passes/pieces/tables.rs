//! Splits embedding lookups: each part looks up its own rows.

use super::{Rows, args_of, like, ranges};
use crate::graph::{Node, Value};
use crate::operators::Operator;
use crate::passes::rewrite::Rewriter;
use alloc::vec::Vec;
use torchlet_core::ScalarType;

/// Argument indices of a table and its indices.
pub(super) struct Places {
    pub(super) rows: Rows,
    indices: usize,
}

pub(super) fn places(operator: Operator) -> Option<Places> {
    let (indices, others): (usize, &[usize]) = match operator {
        Operator::EMBEDDING => (1, &[]),
        // One-dimensional scales hold one scale for the table.
        Operator::ET_VK_EMBEDDING_Q4GSW => (3, &[1]),
        _ => return None,
    };
    Some(Places { rows: Rows { weights: 0, others, makes: false }, indices })
}

/// Looks up the first part, then selects the result of each further part for its indices:
/// `where(index >= start, part[clamp(index) - start], before)`.
pub(super) fn cut(
    rewriter: &mut Rewriter<'_, '_>,
    node: &Node,
    places: &Places,
    size: usize,
) -> Option<()> {
    let (weights, out) = (*node.args.get(places.rows.weights)?, *node.args.last()?);
    let indices = *node.args.get(places.indices)?;
    let rows = *rewriter.sizes(weights)?.first()?;
    let width = *rewriter.sizes(out)?.last()?;
    let (scalar_type, index_type) = (rewriter.scalar_type(out)?, rewriter.scalar_type(indices)?);
    // A scalar index has no last dim to derive new tensors from.
    let last = *rewriter.sizes(indices)?.last()?;
    let mut pieces = Vec::new();
    for range in ranges(rows, size) {
        pieces.push((range, args_of(rewriter, node, &places.rows, range)?));
    }
    let one = rewriter.value(Value::Int(1));
    let minus_one = rewriter.value(Value::Int(-1));
    let mut before = None;
    let last_start = rows.saturating_sub(1) / size * size;
    for ((start, end), mut args) in pieces {
        let number_of = |at: usize| i64::try_from(at).ok().map(Value::Int);
        let start_id = rewriter.value(number_of(start)?);
        let end_id = rewriter.value(number_of(end.checked_sub(1)?)?);
        let made = like(rewriter, out, scalar_type, width)?;
        let among = like(rewriter, indices, index_type, last)?;
        rewriter.call(Operator::CLAMP, &[indices, start_id, end_id], among);
        *args.get_mut(places.indices)? = match start {
            0 => among,
            _ => {
                let from = like(rewriter, indices, index_type, last)?;
                rewriter.call(Operator::SUB_SCALAR, &[among, start_id, one], from);
                from
            }
        };
        rewriter.call(node.operator, &args, made);
        before = Some(match before {
            None => made,
            Some(before) => {
                let is_own = like(rewriter, indices, ScalarType::Bool, last)?;
                rewriter.call(Operator::GE_SCALAR, &[indices, start_id], is_own);
                let of_rows = like(rewriter, out, ScalarType::Bool, 1)?;
                rewriter.call(Operator::UNSQUEEZE_COPY, &[is_own, minus_one], of_rows);
                let chosen = match start == last_start {
                    true => out,
                    false => like(rewriter, out, scalar_type, width)?,
                };
                rewriter.call(Operator::WHERE_SELF, &[of_rows, made, before], chosen);
                chosen
            }
        });
    }
    Some(())
}
