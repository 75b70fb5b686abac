//! Splits linear layers and embeddings whose weights are too large for a device.
//!
//! A shader can bind only a limited range of a buffer, often 128 MiB, and the output projection of
//! a language model is larger. The weight rows of linear layers are split, together with the scales
//! and biases that belong to them, and the partial results are concatenated. Embedding tables are
//! split by rows, too. Each partial lookup then selects between its own rows and the result of the
//! lookups before it.
//!
//! Needs: a graph in which each value is produced once, before its uses. Runs where the device is
//! known. A call is split only if `takes` rejects it and accepts each part, and, for linear layers,
//! the concatenation. Keeps: weights of at most `least` bytes. Rounding: unchanged. Indices that
//! PyTorch rejects, negative or beyond the table, give an arbitrary row of the table, which can be
//! another one than without the split.

mod products;
mod tables;

use super::rewrite::{Rewriter, each_call};
use super::uses::inputs;
use crate::graph::{Graph, Node, Tensor, Value, ValueId};
use alloc::borrow::Cow;
use alloc::vec::Vec;
use torchlet_core::ScalarType;

/// A call is split into up to 64 parts, a power of two. With more parts, another processor would be
/// faster.
const MAX_DOUBLINGS: usize = 6;

/// The number of rows per part is a multiple of this, except for the last part. It keeps row starts
/// aligned for all types.
const ROWS: usize = 32;

/// Splits calls whose weights have more than `least` bytes. `takes` decides whether the device
/// supports a call: a call is split if the device supports the parts but not the whole. Returns the
/// number of split calls.
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
    if let Some(places) = products::places(node.operator) {
        let size = size_of_pieces(rewriter, node, &places, least, takes)?;
        products::cut(rewriter, node, &places, size, takes)
    } else {
        let places = tables::places(node.operator)?;
        let size = size_of_pieces(rewriter, node, &places.rows, least, takes)?;
        tables::cut(rewriter, node, &places, size)
    }
}

/// The dim of a tensor that corresponds to the weight rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Along {
    First,
    Last,
}

/// Indices of the arguments that correspond to weight rows.
struct Rows {
    /// The weights, with rows as the first dim.
    weights: usize,
    /// Other constants, if they are present. The row dim is the last one if the call produces
    /// columns, else the first of two.
    others: &'static [usize],
    /// Whether the last dim of the result corresponds to the rows, too.
    makes: bool,
}

impl Rows {
    /// The row dim of an argument, or of the result, whose index follows the arguments. `None` if
    /// it has no row dim.
    fn along(&self, node: &Node, place: usize, tensor: &Tensor<'_>) -> Option<Along> {
        if place == self.weights {
            return Some(Along::First);
        }
        if place + 1 == node.args.len() {
            return self.makes.then_some(Along::Last);
        }
        let (along, least) = if self.makes { (Along::Last, 1) } else { (Along::First, 2) };
        (self.others.contains(&place) && tensor.sizes.len() >= least).then_some(along)
    }
}

/// The number of rows per part, if the call must be split and the device supports all parts.
fn size_of_pieces(
    rewriter: &Rewriter<'_, '_>,
    node: &Node,
    places: &Rows,
    least: usize,
    takes: &mut dyn FnMut(&Graph<'_>, &Node) -> bool,
) -> Option<usize> {
    let (args, out) = (inputs(node), *node.args.last()?);
    let (tensor, data) = rewriter.constant(*args.get(places.weights)?)?;
    let [rows, _] = tensor.sizes[..] else { return None };
    if data.len() <= least || rewriter.is_taken(node.operator, args, out, takes) {
        return None;
    }
    let sizes = (1..=MAX_DOUBLINGS).map(|doublings| rows.div_ceil(1 << doublings));
    let mut sizes = sizes.map(|size| size.next_multiple_of(ROWS)).filter(|size| *size < rows);
    // These queries copy no data.
    let mut piece_is_taken = |size: usize| {
        let change = &mut |place: usize, tensor: &mut Tensor<'_>| {
            places.along(node, place, tensor).map_or(Some(()), |along| shorten(tensor, along, size))
        };
        rewriter.is_taken_once(node.operator, args, out, change, takes)
    };
    sizes.find(|size| {
        let last = rows - rows.saturating_sub(1) / size * size;
        [*size, last].into_iter().all(&mut piece_is_taken)
    })
}

/// Reduces the number of rows of a tensor, and truncates its data.
fn shorten(tensor: &mut Tensor<'_>, along: Along, rows: usize) -> Option<()> {
    let size = match along {
        Along::First => tensor.sizes.first_mut(),
        Along::Last => tensor.sizes.last_mut(),
    };
    let all = core::mem::replace(size?, rows);
    if let Some(Cow::Borrowed(data)) = tensor.data {
        let bytes = data.len().checked_div(all)?.checked_mul(rows)?;
        tensor.data = Some(Cow::Borrowed(data.get(..bytes)?));
    }
    Some(())
}

/// Start and end rows of the parts.
fn ranges(rows: usize, size: usize) -> impl Iterator<Item = (usize, usize)> {
    (0..rows).step_by(size).map(move |start| (start, rows.min(start.saturating_add(size))))
}

/// The arguments of a part: constants with a row dim are sliced, other arguments stay.
fn args_of(
    rewriter: &mut Rewriter<'_, '_>,
    node: &Node,
    places: &Rows,
    range: (usize, usize),
) -> Option<Vec<ValueId>> {
    let mut args = inputs(node).to_vec();
    for (place, id) in args.iter_mut().enumerate() {
        let Some(tensor) = rewriter.tensor(*id) else { continue };
        if let Some(along) = places.along(node, place, tensor) {
            *id = part_of(rewriter, *id, along, range)?;
        }
    }
    Some(args)
}

/// Adds a row range of a constant. Contiguous ranges borrow the data.
fn part_of(
    rewriter: &mut Rewriter<'_, '_>,
    id: ValueId,
    along: Along,
    (start, end): (usize, usize),
) -> Option<ValueId> {
    let (tensor, data) = rewriter.constant(id)?;
    let mut sizes = tensor.sizes.clone();
    let is_first = along == Along::First || sizes.len() == 1;
    let size = if is_first { sizes.first_mut() } else { sizes.last_mut() }?;
    let all = core::mem::replace(size, end.checked_sub(start)?);
    if end > all {
        return None;
    }
    // Rows over the first dim are contiguous. Over the last dim, each index of the outer dims has
    // its own stretch.
    let stretch = match is_first {
        true => data.len(),
        false => all.checked_mul(tensor.scalar_type.size())?,
    };
    let unit = stretch.checked_div(all)?;
    let range = start.checked_mul(unit)?..end.checked_mul(unit)?;
    let data = match tensor.data.as_ref()? {
        Cow::Borrowed(data) if is_first => Cow::Borrowed(data.get(range)?),
        data => {
            let parts = data.chunks_exact(stretch.max(1)).map(|stretch| stretch.get(range.clone()));
            Cow::Owned(parts.collect::<Option<Vec<&[u8]>>>()?.concat())
        }
    };
    let (scalar_type, host_type) = (tensor.scalar_type, tensor.host_type);
    let (data, changes) = (Some(data), tensor.changes);
    let part = Tensor { scalar_type, host_type, sizes, dynamic: false, data, changes };
    Some(rewriter.value(Value::Tensor(part)))
}

/// Adds a tensor like another one, with this type and size of the last dim.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operators::Operator;
    use crate::passes::{text, verify};
    use alloc::format;
    use alloc::string::String;

    fn takes(graph: &Graph<'_>, node: &Node, most: usize) -> bool {
        verify::verify(graph).unwrap();
        let product = products::places(node.operator);
        let rows = product.or_else(|| tables::places(node.operator).map(|places| places.rows));
        let Some(rows) = rows else { return true };
        match &graph.values[node.args[rows.weights]] {
            Value::Tensor(tensor) => tensor.sizes[0] <= most,
            _ => false,
        }
    }

    /// Calls after the pass, for a processor that supports weights of up to `most` rows.
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
        // Parts of 32 rows, with four in the last.
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

    /// All rows and their results differ.
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
            assert_cut(&text, 2, &format!("{scalar_type}, {index_type}"));
        }
    }

    /// Linear layers with int8 and int4 weights: scales by row, and by group with more columns than
    /// weight rows; with and without a bias.
    #[test]
    fn pieces_of_quantized_weights_make_what_the_whole_made() {
        let numbers = |count: usize, over: usize| {
            let all = (0..count).map(|at| format!("{}", (at * 7919 % 251) as f32 / over as f32));
            all.collect::<Vec<_>>().join(" ")
        };
        let codes = |count: usize| {
            let all = (0..count).map(|at| format!("{}", (at * 7919 % 255) as i32 - 127));
            all.collect::<Vec<_>>().join(" ")
        };
        let x = format!("const x f32[3,64] = {}", numbers(192, 200));
        let bias = format!("const b f32[100] = {}", numbers(100, 8));
        let by_row = format!("const s f32[100] = {}", numbers(100, 300));
        let by_group = format!("const s f32[2,104] = {}", numbers(208, 300));
        let bytes = format!("const w i8[100,64] = {}", codes(6400));
        let nibbles = format!("const w i8[100,32] = {}", codes(3200));
        let sums = "const t i32[2,100] = 0";
        let a_sum = "const t i32[100] = 0";
        let products = [
            (&bytes, &by_row, "", "aten._weight_int8pack_mm.default(x, w, s)"),
            (&nibbles, &by_row, "", "et_vk.linear_qcs4w.default(x, w, s)"),
            (&bytes, &by_row, "", "et_vk.linear_q8csw.default(x, w, s, b)"),
            (&nibbles, &by_group, "", "et_vk.linear_q4gsw.default(x, w, s, 32, none)"),
            (&nibbles, &by_group, "", "et_vk.linear_q4gsw.default(x, w, s, 32, b)"),
            (&bytes, &by_row, a_sum, "et_vk.linear_q8ta_q8csw.default(x, 0.004, 5, w, t, s, b)"),
            (
                &nibbles,
                &by_group,
                &format!("const p f32[3] = 0.01\nconst z i8[3] = 3\n{sums}"),
                "et_vk.linear_dq8ca_q4gsw.default(x, p, z, w, t, s, 32, b)",
            ),
        ];
        for (weights, scales, more, call) in products {
            let y = format!("y f32[3,100] = {call}");
            let text = [&x, &bias[..], weights, scales, more, &y, "out y"].join("\n");
            assert_cut(&text, 1, call);
        }
        let table = format!("const w u8[100,32] = {}", codes(3200).replace('-', ""));
        let scales = format!("const s f32[100,2] = {}", numbers(200, 300));
        for scales in [&scales[..], "const s f32[1] = 0.25"] {
            let call = "et_vk.embedding_q4gsw.default(w, s, 32, i, true)";
            let indices = "const i i64[3,4] = 0 31 32 33 63 64 65 95 96 98 99 1";
            let y = format!("y f32[3,4,64] = {call}");
            assert_cut(&[&table, scales, indices, &y, "out y"].join("\n"), 1, call);
        }
    }

    /// Asserts that splitting into two and into four parts changes `calls` calls and no results.
    fn assert_cut(text: &str, calls: usize, what: &str) {
        let computed = |most: usize| {
            let mut graph = text::parse(text);
            let changed = run(&mut graph, 0, &mut |graph, node| takes(graph, node, most));
            crate::lower::portable::run(&mut graph).unwrap();
            (changed, crate::testing::outputs(&graph, &[]))
        };
        let (changed, whole) = computed(100);
        assert_eq!(changed, 0);
        for most in [32, 64] {
            let (changed, pieces) = computed(most);
            assert_eq!(changed, calls, "{what}, {most}");
            assert!(pieces == whole, "{what}, {most}");
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
