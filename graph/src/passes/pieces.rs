//! Products with weights that are too large for a processor, and tables of embeddings, are cut into pieces, each of which it takes.
//!
//! Shaders see no more of a buffer at once than the device says, 128 MiB on many; the matrix behind the last layer of a language model is
//! larger. The rows of the weights of `linear` are cut, and the pieces' results joined. Of the rows of a table of embeddings, each piece gives
//! those that it has, and what is not among them is taken from the pieces before.
//!
//! Needs: each value made once, before its uses; runs where processors are known, and calls are cut only if `takes` says no of the whole
//! and yes of each piece. Keeps: weights of which every processor takes all. Rounding: none changes.

use super::rewrite::{Rewriter, each_call};
use super::uses::inputs;
use crate::graph::{Graph, Node, Tensor, Value, ValueId};
use crate::operators::Operator;
use alloc::borrow::Cow;
use alloc::vec::Vec;
use torchlet_core::ScalarType;

/// Bytes of a tensor that every processor takes: the least that Vulkan asks of devices (`maxStorageBufferRange`).
pub const TAKEN_BY_ALL: usize = 1 << 27;

/// More pieces take longer than another processor would.
const MOST_PIECES: usize = 64;

/// Cuts calls whose weights have more bytes than `least`, where a processor takes the pieces and not the whole, and says how many.
pub fn run(
    graph: &mut Graph<'_>,
    least: usize,
    takes: &mut dyn FnMut(&Graph<'_>, &Node) -> bool,
) -> usize {
    each_call(graph, |rewriter, node| cut(rewriter, node, least, takes).is_some())
}

fn cut(
    rewriter: &mut Rewriter<'_, '_>,
    node: &Node,
    least: usize,
    takes: &mut dyn FnMut(&Graph<'_>, &Node) -> bool,
) -> Option<()> {
    let at = match node.operator {
        Operator::LINEAR => 1,
        Operator::EMBEDDING => 0,
        _ => return None,
    };
    let (args, out) = (inputs(node), *node.args.last()?);
    let weights = *args.get(at)?;
    let (tensor, data) = rewriter.constant(weights)?;
    let [rows, _] = tensor.sizes[..] else { return None };
    if data.len() <= least || rewriter.is_taken(node.operator, args, out, takes) {
        return None;
    }
    let mut pieces = 2;
    while pieces <= MOST_PIECES.min(rows) {
        // Beginnings of rows stay aligned, whatever the type.
        let size = rows.div_ceil(pieces).next_multiple_of(ROWS);
        let taken = match node.operator {
            Operator::LINEAR => linear(rewriter, args, out, size, takes),
            _ => embedding(rewriter, args, out, size, takes),
        };
        if taken.is_some() {
            return taken;
        }
        pieces *= 2;
    }
    None
}

/// Pieces have multiples of so many rows, but for the last.
const ROWS: usize = 32;

/// The first and last rows of pieces.
fn ranges(rows: usize, size: usize) -> impl Iterator<Item = (usize, usize)> {
    (0..rows).step_by(size).map(move |start| (start, rows.min(start.saturating_add(size))))
}

/// Some rows of a constant.
fn rows_of(
    rewriter: &mut Rewriter<'_, '_>,
    id: ValueId,
    (start, end): (usize, usize),
) -> Option<ValueId> {
    let (tensor, data) = rewriter.constant(id)?;
    let (rows, rest) = tensor.sizes.split_first()?;
    let bytes = data.len().checked_div(*rows)?;
    let range = start.checked_mul(bytes)?..end.checked_mul(bytes)?;
    let data = match tensor.data.as_ref()? {
        Cow::Borrowed(data) => Cow::Borrowed(data.get(range)?),
        Cow::Owned(data) => Cow::Owned(data.get(range)?.to_vec()),
    };
    let sizes = [&[end - start], rest].concat();
    let (scalar_type, host_type) = (tensor.scalar_type, tensor.host_type);
    let data = Some(data);
    let changes = tensor.changes;
    let piece = Tensor { scalar_type, host_type, sizes, dynamic: false, data, changes };
    Some(rewriter.value(Value::Tensor(piece)))
}

/// A tensor like another one but for its type and the size of its last dimension.
fn like(
    rewriter: &mut Rewriter<'_, '_>,
    id: ValueId,
    scalar_type: ScalarType,
    last: usize,
) -> Option<ValueId> {
    let tensor = rewriter.tensor(id)?;
    let (mut sizes, dynamic) = (tensor.sizes.clone(), tensor.dynamic);
    *sizes.last_mut()? = last;
    let made =
        Tensor { scalar_type, host_type: scalar_type, sizes, dynamic, data: None, changes: None };
    Some(rewriter.value(Value::Tensor(made)))
}

/// `cat(x · piecesᵀ + their biases)`
fn linear(
    rewriter: &mut Rewriter<'_, '_>,
    args: &[ValueId],
    out: ValueId,
    size: usize,
    takes: &mut dyn FnMut(&Graph<'_>, &Node) -> bool,
) -> Option<()> {
    let [x, weights, bias @ ..] = args else { return None };
    let bias = bias.first().copied().filter(|bias| !rewriter.is_none(Some(bias)));
    let rows = *rewriter.sizes(*weights)?.first()?;
    let scalar_type = rewriter.scalar_type(out)?;
    if bias.is_some_and(|bias| rewriter.sizes(bias) != Some(&[rows][..])) {
        return None;
    }
    let mut calls = Vec::new();
    for (start, end) in ranges(rows, size) {
        let own = rows_of(rewriter, *weights, (start, end))?;
        let bias = match bias {
            Some(bias) => rows_of(rewriter, bias, (start, end))?,
            None => rewriter.value(Value::None),
        };
        let made = like(rewriter, out, scalar_type, end - start)?;
        let args = [*x, own, bias];
        if !rewriter.is_taken(Operator::LINEAR, &args, made, takes) {
            return None;
        }
        calls.push((args, made));
    }
    let made = calls.iter().map(|(_, made)| *made).collect();
    for (args, made) in calls {
        rewriter.call(Operator::LINEAR, &args, made);
    }
    let (list, last) = (rewriter.value(Value::List(made)), rewriter.value(Value::Int(-1)));
    rewriter.call(Operator::CAT, &[list, last], out);
    Some(())
}

/// Rows of the first piece, and where an index is one of another, that piece's: `where(index >= start, piece[clamp(index) - start], before)`.
fn embedding(
    rewriter: &mut Rewriter<'_, '_>,
    args: &[ValueId],
    out: ValueId,
    size: usize,
    takes: &mut dyn FnMut(&Graph<'_>, &Node) -> bool,
) -> Option<()> {
    let [weights, indices, rest @ ..] = args else { return None };
    let &[rows, width] = rewriter.sizes(*weights)? else { return None };
    let (scalar_type, index_type) = (rewriter.scalar_type(out)?, rewriter.scalar_type(*indices)?);
    let last = rewriter.sizes(*indices).map_or(1, |sizes| sizes.last().copied().unwrap_or(1));
    // Of one index without dimensions, there is no other tensor like it.
    rewriter.sizes(*indices)?.last()?;
    let parts: Vec<(usize, usize)> = ranges(rows, size).collect();
    let mut found = Vec::new();
    for (start, end) in &parts {
        let own = rows_of(rewriter, *weights, (*start, *end))?;
        let made = like(rewriter, out, scalar_type, width)?;
        let args = [&[own, *indices], rest].concat();
        if !rewriter.is_taken(Operator::EMBEDDING, &args, made, takes) {
            return None;
        }
        found.push((own, made));
    }
    let one = rewriter.value(Value::Int(1));
    let minus_one = rewriter.value(Value::Int(-1));
    let mut before = None;
    let count = parts.len();
    for (number, ((start, end), (own, made))) in parts.into_iter().zip(found).enumerate() {
        let number_of = |at: usize| i64::try_from(at).ok().map(Value::Int);
        let start_id = rewriter.value(number_of(start)?);
        let end_id = rewriter.value(number_of(end.checked_sub(1)?)?);
        let among = like(rewriter, *indices, index_type, last)?;
        rewriter.call(Operator::CLAMP, &[*indices, start_id, end_id], among);
        let own_index = match start {
            0 => among,
            _ => {
                let from = like(rewriter, *indices, index_type, last)?;
                rewriter.call(Operator::SUB_SCALAR, &[among, start_id, one], from);
                from
            }
        };
        rewriter.call(Operator::EMBEDDING, &[&[own, own_index], rest].concat(), made);
        before = Some(match before {
            None => made,
            Some(before) => {
                let is_own = like(rewriter, *indices, ScalarType::Bool, last)?;
                rewriter.call(Operator::GE_SCALAR, &[*indices, start_id], is_own);
                let of_rows = like(rewriter, out, ScalarType::Bool, 1)?;
                rewriter.call(Operator::UNSQUEEZE_COPY, &[is_own, minus_one], of_rows);
                let chosen = match number + 1 == count {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::passes::{text, verify};
    use alloc::string::String;

    /// What becomes of a graph where a processor takes weights of so many rows.
    fn cut_to(text: &str, most: usize) -> Vec<String> {
        let mut graph = text::parse(text);
        run(&mut graph, 0, &mut |graph, node| {
            let at = usize::from(node.operator == Operator::LINEAR);
            match &graph.values[node.args[at]] {
                Value::Tensor(tensor) => tensor.sizes[0] <= most,
                _ => false,
            }
        });
        crate::passes::dead::run(&mut graph);
        verify::verify(&graph).unwrap();
        text::calls(&graph)
    }

    const LINEAR: &str = "in x f32[2,3,4]
        const w f32[100,4] = 0.5
        const b f32[100] = 1
        y f32[2,3,100] = aten.linear.default(x, w, b)
        out y";

    #[test]
    fn rows_of_products_are_cut() {
        let calls = cut_to(LINEAR, 64);
        assert_eq!(calls.len(), 3, "{calls:#?}");
        assert!(calls[..2].iter().all(|call| call.contains(" = aten.linear.default(%0, ")));
        assert!(calls[2].contains("%3 = aten.cat.default("), "{calls:#?}");
        // Pieces of 32 rows, of which the last has four.
        assert_eq!(cut_to(LINEAR, 32).len(), 5);
    }

    #[test]
    fn what_is_taken_whole_or_not_at_all_stays() {
        for most in [100, 31] {
            let calls = cut_to(LINEAR, most);
            assert_eq!(calls.len(), 1, "{calls:#?}");
            assert!(calls[0].contains("aten.linear.default(%0, %1, %2)"));
        }
        let mut graph = text::parse(LINEAR);
        assert_eq!(run(&mut graph, 1600, &mut |_, _| false), 0);
        let varying = LINEAR.replace("const w f32[100,4] = 0.5", "in w f32[100,4]");
        assert_eq!(cut_to(&varying, 64).len(), 1);
    }

    #[test]
    fn rows_of_tables_are_looked_up_by_piece() {
        let calls = cut_to(
            "in i i64[2,3]
             const w f32[100,4] = 0.5
             y f32[2,3,4] = aten.embedding.default(w, i, -1, false, false)
             out y",
            64,
        );
        let names: Vec<&str> = calls.iter().map(|call| call.split_once(" = ").unwrap().1).collect();
        let names: Vec<&str> = names.iter().map(|call| call.split_once('(').unwrap().0).collect();
        let expected = [
            "aten.clamp.default",
            "aten.embedding.default",
            "aten.clamp.default",
            "aten.sub.Scalar",
            "aten.embedding.default",
            "aten.ge.Scalar",
            "aten.unsqueeze_copy.default",
            "aten.where.self",
        ];
        assert_eq!(names, expected);
        assert!(
            calls[0].contains("(%0, 0, 63)") && calls[2].contains("(%0, 64, 99)"),
            "{calls:#?}"
        );
    }
}
