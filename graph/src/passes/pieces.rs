//! Products with weights that are too large for a processor, and tables of embeddings, are cut into pieces, each of which it takes.
//!
//! Shaders see no more of a buffer at once than the device says, 128 MiB on many; the matrix behind the last layer of a language model is
//! larger. The rows of the weights of `linear` are cut, and the pieces' results joined. Of the rows of a table of embeddings, each piece gives
//! those that it has, and what is not among them is taken from the pieces before.
//!
//! Needs: each value made once, before its uses; runs where the device is known, and calls are cut only if `takes` says no of the whole
//! and yes of each piece, and of what joins them. Keeps: weights of no more bytes than `least`. Rounding: none changes. Indices that
//! PyTorch refuses, below zero or beyond the table, give some row of it, which need not be that of the whole.

use super::rewrite::{Rewriter, each_call};
use super::uses::inputs;
use crate::graph::{Graph, Node, Tensor, Value, ValueId};
use crate::operators::Operator;
use alloc::borrow::Cow;
use alloc::vec::Vec;
use torchlet_core::ScalarType;

/// There are two pieces, or four, and so on: with more, another processor would be faster.
const MOST_DOUBLINGS: usize = 6;

/// Cuts calls whose weights have more bytes than `least`, where a device takes the pieces and not the whole, and says how many.
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
    // Beginnings of rows stay aligned, whatever the type.
    let sizes = (1..=MOST_DOUBLINGS).map(|doublings| rows.div_ceil(1 << doublings));
    let mut sizes = sizes.map(|size| size.next_multiple_of(ROWS)).filter(|size| *size < rows);
    let size = sizes.find(|size| {
        let last = rows - rows.saturating_sub(1) / size * size;
        [*size, last].iter().all(|size| piece_is_taken(rewriter, node, at, *size, takes))
    })?;
    match node.operator {
        Operator::LINEAR => linear(rewriter, args, out, size, takes),
        _ => embedding(rewriter, args, out, size),
    }
}

/// Whether a processor takes a call with the first rows of the weights alone. Nothing is copied.
fn piece_is_taken(
    rewriter: &Rewriter<'_, '_>,
    node: &Node,
    at: usize,
    rows: usize,
    takes: &mut dyn FnMut(&Graph<'_>, &Node) -> bool,
) -> bool {
    let count = node.args.len();
    let mut values = Vec::with_capacity(count);
    for (place, id) in node.args.iter().enumerate() {
        let Some(mut value) = rewriter.get(*id).map(Value::borrowed) else { return false };
        // Of products, there is a bias for each row, and a result.
        let by_row = place == at || node.operator == Operator::LINEAR && place > at;
        if let Value::Tensor(tensor) = &mut value
            && by_row
        {
            let size = match place + 1 == count {
                true => tensor.sizes.last_mut(),
                false => tensor.sizes.first_mut(),
            };
            let Some(size) = size else { return false };
            let all = core::mem::replace(size, rows);
            if let Some(Cow::Borrowed(data)) = tensor.data {
                let bytes = data.len().checked_div(all).and_then(|row| row.checked_mul(rows));
                let Some(part) = bytes.and_then(|bytes| data.get(..bytes)) else { return false };
                tensor.data = Some(Cow::Borrowed(part));
            }
        }
        values.push(value);
    }
    let given = |(id, value): &(usize, &Value<'_>)| {
        id + 1 < count && matches!(value, Value::Tensor(tensor) if tensor.data.is_none())
    };
    let inputs = values.iter().enumerate().filter(given).map(|(id, _)| id).collect();
    let call = Node::new(node.operator, (0..count).collect());
    let (nodes, outputs) = ([call.clone()].to_vec(), [count - 1].to_vec());
    takes(&Graph { values, inputs, nodes, outputs, ..Graph::default() }, &call)
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
    let mut pieces = Vec::new();
    for (start, end) in ranges(rows, size) {
        pieces.push(like(rewriter, out, scalar_type, end - start)?);
    }
    let list = rewriter.value(Value::List(pieces.clone()));
    let last = rewriter.value(Value::Int(-1));
    if !rewriter.is_taken(Operator::CAT, &[list, last], out, takes) {
        return None;
    }
    for ((start, end), made) in ranges(rows, size).zip(pieces) {
        let own = rows_of(rewriter, *weights, (start, end))?;
        let bias = match bias {
            Some(bias) => rows_of(rewriter, bias, (start, end))?,
            None => rewriter.value(Value::None),
        };
        rewriter.call(Operator::LINEAR, &[*x, own, bias], made);
    }
    rewriter.call(Operator::CAT, &[list, last], out);
    Some(())
}

/// Rows of the first piece, and where an index is one of another, that piece's: `where(index >= start, piece[clamp(index) - start], before)`.
fn embedding(
    rewriter: &mut Rewriter<'_, '_>,
    args: &[ValueId],
    out: ValueId,
    size: usize,
) -> Option<()> {
    let [weights, indices, rest @ ..] = args else { return None };
    let &[rows, width] = rewriter.sizes(*weights)? else { return None };
    let (scalar_type, index_type) = (rewriter.scalar_type(out)?, rewriter.scalar_type(*indices)?);
    let last = rewriter.sizes(*indices).map_or(1, |sizes| sizes.last().copied().unwrap_or(1));
    // Of one index without dimensions, there is no other tensor like it.
    rewriter.sizes(*indices)?.last()?;
    let one = rewriter.value(Value::Int(1));
    let minus_one = rewriter.value(Value::Int(-1));
    let mut before = None;
    let last_start = rows.saturating_sub(1) / size * size;
    for (start, end) in ranges(rows, size) {
        let own = rows_of(rewriter, *weights, (start, end))?;
        let made = like(rewriter, out, scalar_type, width)?;
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::passes::{text, verify};
    use alloc::format;
    use alloc::string::String;

    fn takes(graph: &Graph<'_>, node: &Node, most: usize) -> bool {
        verify::verify(graph).unwrap();
        let at = match node.operator {
            Operator::LINEAR => 1,
            Operator::EMBEDDING => 0,
            _ => return true,
        };
        match &graph.values[node.args[at]] {
            Value::Tensor(tensor) => tensor.sizes[0] <= most,
            _ => false,
        }
    }

    /// What becomes of a graph where a processor takes weights of so many rows.
    fn cut_to(text: &str, most: usize) -> Vec<String> {
        let mut graph = text::parse(text);
        run(&mut graph, 0, &mut |graph, node| takes(graph, node, most));
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
    fn what_cannot_be_joined_is_not_cut() {
        let mut graph = text::parse(LINEAR);
        let takes = &mut |graph: &Graph<'_>, node: &Node| {
            node.operator != Operator::CAT && takes(graph, node, 64)
        };
        assert_eq!(run(&mut graph, 0, takes), 0);
        assert_eq!(text::operators(&graph), ["aten.linear.default"]);
    }

    /// All rows differ, and so does what they make.
    #[test]
    fn pieces_make_what_the_whole_made() {
        let numbers = |count: usize| {
            let all = (0..count).map(|at| format!("{}", (at * 7919 % 1009) as f32 / 64.0));
            all.collect::<Vec<_>>().join(" ")
        };
        let edges = "0 31 32 33 63 64 65 95 96 98 99 1";
        for (scalar_type, index_type) in [("f32", "i64"), ("f16", "i32"), ("f16", "i64")] {
            let text = format!(
                "const i {index_type}[3,4] = {edges}
                 const w {scalar_type}[100,4] = {}
                 const b {scalar_type}[100] = {}
                 e {scalar_type}[3,4,4] = aten.embedding.default(w, i, -1, false, false)
                 y {scalar_type}[3,4,100] = aten.linear.default(e, w, b)
                 out e y",
                numbers(400),
                numbers(100)
            );
            let computed = |most: usize| {
                let mut graph = text::parse(&text);
                let changed = run(&mut graph, 0, &mut |graph, node| takes(graph, node, most));
                crate::lower::portable::run(&mut graph).unwrap();
                (changed, crate::testing::outputs(&graph, &[]))
            };
            let (changed, whole) = computed(100);
            assert_eq!(changed, 0);
            for most in [32, 64] {
                let (changed, pieces) = computed(most);
                assert_eq!(changed, 2);
                assert!(pieces == whole, "{scalar_type}, {index_type}, {most}");
            }
        }
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
