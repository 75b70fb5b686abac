//! Merges chains of calls that only move elements into one `aten.as_strided_copy`.
//!
//! Attention queries are an example: a permutation of a view of a slice of a permutation of a view
//! of a linear layer's result. Each call of the chain copies. A single copy suffices, and operators
//! that read their input with strides need no copy.
//!
//! Needs: a graph in which each value is produced once, before its uses; fixed shapes; and a target
//! with `as_strided_copy`, so [`PASSES`](super::PASSES) does not contain this pass. It runs last,
//! as patterns match permutations and views. Keeps: single moves, and views, which are free. All
//! elements keep their bits.

use super::rewrite::{Rewriter, each_call};
use super::uses::inputs;
use super::views::{permutation, reshaped, view_into};
use crate::graph::{Graph, Node, Value, ValueId};
use crate::operators::Operator;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

/// Merges chains of element moves. Returns the number of changes.
pub fn run(graph: &mut Graph<'_>) -> usize {
    let mut moved: BTreeMap<ValueId, Moved> = BTreeMap::new();
    each_call(graph, |rewriter, node| {
        let (Some(out), Some(result)) = (node.args.last().copied(), follow(rewriter, &moved, node))
        else {
            return false;
        };
        // Views are free.
        let replaced = result.moves > 1
            && reshaped(rewriter, node).is_none()
            && emit(rewriter, &result, out).is_some();
        moved.insert(out, result);
        replaced
    })
}

/// A tensor as a strided view of another.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Moved {
    source: ValueId,
    /// Size and stride of each dim.
    dims: Vec<(usize, usize)>,
    offset: usize,
    /// Number of copying calls in the chain.
    moves: usize,
}

impl Moved {
    /// A tensor as a contiguous view of itself.
    fn whole(rewriter: &Rewriter<'_, '_>, source: ValueId) -> Option<Self> {
        let sizes = rewriter.sizes(source).filter(|_| rewriter.is_lasting(source))?;
        let dims = in_order(sizes, 1)?;
        Some(Moved { source, dims, offset: 0, moves: 0 })
    }
}

/// Dims of contiguous elements, with this innermost stride.
fn in_order(sizes: &[usize], mut stride: usize) -> Option<Vec<(usize, usize)>> {
    let mut dims = Vec::with_capacity(sizes.len());
    for size in sizes.iter().rev() {
        dims.push((*size, stride));
        stride = stride.checked_mul((*size).max(1))?;
    }
    dims.reverse();
    Some(dims)
}

/// The strided view that an element-moving call produces.
fn follow(
    rewriter: &Rewriter<'_, '_>,
    moved: &BTreeMap<ValueId, Moved>,
    node: &Node,
) -> Option<Moved> {
    let (out, input) = (*node.args.last()?, *inputs(node).first()?);
    let moves = matches!(node.operator, Operator::SELECT_COPY_INT | Operator::SLICE_COPY_TENSOR)
        || permutation(rewriter, node).is_some();
    let is_view = reshaped(rewriter, node).is_some();
    let sizes = rewriter.sizes(out)?;
    let right = rewriter.has_fixed_shapes() && rewriter.is_lasting(input);
    if !right || !(moves || is_view) || sizes.contains(&0) {
        return None;
    }
    let mut result = match moved.get(&input) {
        Some(moved) => moved.clone(),
        None => Moved::whole(rewriter, input)?,
    };
    let rank = result.dims.len();
    let number = |at: usize| inputs(node).get(at).and_then(|id| rewriter.int(*id));
    let dim = || {
        let dim = number(1)?;
        let dim = if dim < 0 { dim.checked_add_unsigned(rank as u64)? } else { dim };
        usize::try_from(dim).ok().filter(|dim| *dim < rank)
    };
    // Negative indices count from the end.
    let position = |at: i64, size: usize| {
        let at = if at < 0 { at.checked_add_unsigned(size as u64)? } else { at };
        usize::try_from(at).ok().filter(|at| *at < size)
    };
    if is_view {
        result.dims = regrouped(&result.dims, sizes)?;
    } else if let Some((_, order)) = permutation(rewriter, node) {
        let dims = order.iter().map(|dim| result.dims.get(*dim).copied());
        result.dims = dims.collect::<Option<_>>()?;
    } else if node.operator == Operator::SELECT_COPY_INT {
        let (size, stride) = result.dims.remove(dim()?);
        result.offset =
            result.offset.checked_add(position(number(2)?, size)?.checked_mul(stride)?)?;
    } else {
        let (start, step) = (inputs(node).get(2)?, usize::try_from(number(4)?).ok()?);
        let start = if rewriter.is_none(Some(start)) { 0 } else { number(2)? };
        let (size, stride) = result.dims.get_mut(dim()?)?;
        let start = position(start, *size)?;
        let count = *sizes.get(dim()?)?;
        // The output's size determines the end of the slice, and must be valid.
        let last = (count - 1).checked_mul(step)?.checked_add(start)?;
        if last >= *size {
            return None;
        }
        result.offset = result.offset.checked_add(start.checked_mul(*stride)?)?;
        (*size, *stride) = (count, stride.checked_mul(step)?);
    }
    result.moves += usize::from(moves);
    result.dims.iter().map(|(size, _)| size).eq(sizes).then_some(result)
}

/// Reshapes a strided view without a copy, if that is possible.
fn regrouped(dims: &[(usize, usize)], sizes: &[usize]) -> Option<Vec<(usize, usize)>> {
    // Merge adjacent dims that are contiguous.
    let mut blocks: Vec<(usize, usize)> = Vec::new();
    for (size, stride) in dims.iter().copied().filter(|(size, _)| *size != 1) {
        match blocks.last_mut() {
            Some((outer, step)) if size.checked_mul(stride) == Some(*step) => {
                *outer = outer.checked_mul(size)?;
                *step = stride;
            }
            _ => blocks.push((size, stride)),
        }
    }
    // Split blocks into dims, innermost first.
    let mut result = Vec::with_capacity(sizes.len());
    let mut block = blocks.pop().unwrap_or((1, 1));
    for size in sizes.iter().rev().copied() {
        if size != 1 && block.0 == 1 {
            block = blocks.pop()?;
        }
        if size == 0 || !block.0.is_multiple_of(size) {
            return None;
        }
        result.push((size, block.1));
        block = (block.0 / size, block.1.checked_mul(size)?);
    }
    result.reverse();
    (block.0 == 1 && blocks.is_empty()).then_some(result)
}

/// Adds the strided copy, or a view if the source is contiguous.
fn emit(rewriter: &mut Rewriter<'_, '_>, moved: &Moved, out: ValueId) -> Option<()> {
    let Moved { source, dims, offset, .. } = moved;
    let sizes: Vec<usize> = dims.iter().map(|(size, _)| *size).collect();
    let all: usize = sizes.iter().product();
    let whole: usize = rewriter.sizes(*source)?.iter().product();
    let moving = |dims: &[(usize, usize)]| -> Vec<(usize, usize)> {
        dims.iter().copied().filter(|(size, _)| *size != 1).collect()
    };
    if all == whole && moving(&in_order(&sizes, 1)?) == moving(dims) {
        return view_into(rewriter, *source, out);
    }
    let list = |numbers: &mut dyn Iterator<Item = usize>| {
        numbers.map(|number| i64::try_from(number).ok()).collect::<Option<Vec<i64>>>()
    };
    let strides = list(&mut dims.iter().map(|(_, stride)| *stride))?;
    let sizes = list(&mut sizes.into_iter())?;
    let offset = i64::try_from(*offset).ok()?;
    let args = [Value::IntList(sizes), Value::IntList(strides), Value::Int(offset)];
    let [sizes, strides, offset] = args.map(|value| rewriter.value(value));
    rewriter.call(Operator::AS_STRIDED_COPY, &[*source, sizes, strides, offset], out);
    Some(())
}

#[cfg(test)]
mod tests {
    use crate::graph::Graph;
    use crate::passes::{redundant, text};
    use alloc::string::String;
    use alloc::vec::Vec;

    fn moved(text: &str) -> Vec<String> {
        let pass = |graph: &mut Graph<'_>| super::run(graph) + redundant::run(graph);
        text::right_sides(&text::after(text, pass))
    }

    #[test]
    fn heads_of_a_projection_are_one_copy_each() {
        let calls = moved(
            "in x f32[2,17,192]
             a f32[2,17,3,4,16] = aten.view_copy.default(x, [2, 17, 3, 4, 16])
             b f32[3,2,4,17,16] = aten.permute_copy.default(a, [2, 0, 3, 1, 4])
             c f32[2,4,17,16] = aten.select_copy.int(b, 0, 0)
             d f32[1,2,4,17,16] = aten.slice_copy.Tensor(b, 0, 1, 2, 1)
             e f32[2,4,17,16] = aten.squeeze_copy.dims(d, [0])
             f f32[2,4,17,16] = aten.select_copy.int(b, 0, -1)
             g f32[2,4,16,17] = aten.permute_copy.default(f, [0, 1, 3, 2])
             out c e g",
        );
        let expected = [
            "aten.as_strided_copy.default(%0, [2, 4, 17, 16], [3264, 16, 192, 1], 0)",
            "aten.as_strided_copy.default(%0, [1, 2, 4, 17, 16], [64, 3264, 16, 192, 1], 64)",
            "aten.squeeze_copy.dims(%4, [0])",
            "aten.as_strided_copy.default(%0, [2, 4, 16, 17], [3264, 16, 1, 192], 128)",
        ];
        assert_eq!(calls, expected);
    }

    #[test]
    fn single_moves_stay() {
        let calls = moved(
            "in x f32[4,6]
             a f32[6,4] = aten.permute_copy.default(x, [1, 0])
             b f32[2,3,4] = aten.view_copy.default(a, [2, 3, 4])
             c f32[4,3] = aten.slice_copy.Tensor(x, 1, 0, none, 2)
             out b c",
        );
        assert!(!calls.iter().any(|call| call.contains("as_strided")), "{calls:#?}");
    }

    #[test]
    fn what_strides_cannot_say_is_copied_before() {
        // Flattening a transposed matrix needs a copy.
        let calls = moved(
            "in x f32[4,6]
             a f32[6,4] = aten.permute_copy.default(x, [1, 0])
             b f32[24] = aten.view_copy.default(a, [24])
             c f32[5] = aten.slice_copy.Tensor(b, 0, 3, 18, 3)
             d f32[5] = aten.slice_copy.Tensor(c, 0, 0, 5, 1)
             out d",
        );
        assert_eq!(calls[0], "aten.permute_copy.default(%0, [1, 0])");
        assert!(
            !calls.iter().any(|call| call.contains("as_strided_copy.default(%0")),
            "{calls:#?}"
        );
    }

    #[test]
    fn moves_there_and_back_are_none() {
        let calls = moved(
            "in x f32[2,3,4]
             a f32[3,2,4] = aten.permute_copy.default(x, [1, 0, 2])
             b f32[3,8] = aten.view_copy.default(a, [3, 8])
             c f32[3,2,4] = aten.view_copy.default(b, [3, 2, 4])
             d f32[2,3,4] = aten.transpose_copy.int(c, 0, 1)
             e f32[2,3,4] = aten.neg.default(d)
             out e",
        );
        assert_eq!(calls, ["aten.neg.default(%0)"]);
    }

    #[test]
    fn slices_with_steps() {
        let calls = moved(
            "in x f32[10]
             a f32[4] = aten.slice_copy.Tensor(x, 0, 1, 9, 2)
             b f32[2] = aten.slice_copy.Tensor(a, 0, -3, 9223372036854775807, 2)
             out b",
        );
        assert_eq!(calls, ["aten.as_strided_copy.default(%0, [2], [4], 3)"]);
    }
}
