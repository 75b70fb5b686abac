//! Moves permutations from before elementwise calls, concatenation and padding to after them.
//!
//! Networks with channels last permute the input and output of each convolution. An elementwise sum
//! of two such outputs separates permutations that would cancel out: `add(permute(a), permute(b))`
//! is `permute(add(a, b))`, whose permutation cancels out with the next one in
//! [`redundant`](super::redundant).
//!
//! Needs: a graph in which each value is produced once, before its uses; fixed shapes; and a target
//! on which permutations cost more than strided views, so [`PASSES`](super::PASSES) does not
//! contain this pass. Keeps: the bits of all elements. The number of permutations does not
//! increase.

use super::rewrite::{Rewriter, each_call};
use super::uses::inputs;
use super::views::permutation;
use crate::graph::{Graph, Node, Value, ValueId};
use crate::operators::Operator;
use alloc::vec;
use alloc::vec::Vec;
use torchlet_core::rules::normalize_dim;

/// Moves permutations to after the calls that use them. Returns the number of changes.
pub fn run(graph: &mut Graph<'_>) -> usize {
    each_call(graph, |rewriter, node| move_behind(rewriter, node).is_some())
}

fn move_behind(rewriter: &mut Rewriter<'_, '_>, node: &Node) -> Option<()> {
    // The permutation would move elements of four bytes instead of one.
    let widens = node.operator == Operator::QUANTIZED_DECOMPOSED_DEQUANTIZE_PER_TENSOR;
    if widens || !rewriter.has_fixed_shapes() {
        return None;
    }
    match node.operator {
        Operator::CAT => behind_cat(rewriter, node),
        Operator::CONSTANT_PAD_ND => behind_pad(rewriter, node),
        _ => behind_elementwise(rewriter, node),
    }
}

/// The operands of a call before a common permutation.
struct Unpermuted {
    order: Vec<usize>,
    sources: Vec<ValueId>,
    /// The sizes of the first source.
    sizes: Vec<usize>,
}

impl Unpermuted {
    /// Returns `None` unless at least one permutation becomes unused, to make up for the new one.
    fn of(rewriter: &Rewriter<'_, '_>, operands: &[ValueId]) -> Option<Self> {
        let mut order: Option<Vec<usize>> = None;
        let (mut sources, mut is_last) = (Vec::new(), false);
        for id in operands {
            let (source, own) =
                rewriter.producer(*id).and_then(|producer| permutation(rewriter, producer))?;
            if order.as_ref().is_some_and(|order| *order != own) {
                return None;
            }
            order = Some(own);
            let here = operands.iter().filter(|other| *other == id).count();
            is_last |= rewriter.uses(*id) as usize == here;
            sources.push(source);
        }
        let order = order.filter(|_| is_last)?;
        let sizes = rewriter.sizes(*sources.first()?)?.to_vec();
        Some(Unpermuted { order, sources, sizes })
    }

    /// Produces `out` by permuting the result of a call on the sources.
    fn permute(self, rewriter: &mut Rewriter<'_, '_>, result: ValueId, out: ValueId) -> Option<()> {
        let order = self.order.into_iter().map(|dim| dim as i64).collect();
        let order: ValueId = rewriter.value(Value::IntList(order));
        rewriter.call(Operator::PERMUTE_COPY, &[result, order], out);
        Some(())
    }
}

fn behind_elementwise(rewriter: &mut Rewriter<'_, '_>, node: &Node) -> Option<()> {
    let out = *node.args.last()?;
    let sizes = rewriter.sizes(out)?.to_vec();
    let mut args = inputs(node).to_vec();
    // Scalars stay unchanged.
    let places = node.operator.traits().elementwise.iter();
    let places: Vec<usize> = places
        .filter(|place| {
            let operand = args.get(*place).and_then(|id| rewriter.get(*id));
            matches!(operand, Some(Value::Tensor(_)))
        })
        .collect();
    let operands = places.iter().map(|place| args.get(*place).copied());
    let operands: Vec<ValueId> = operands.collect::<Option<_>>()?;
    if operands.iter().any(|id| rewriter.sizes(*id) != Some(&sizes)) {
        return None;
    }
    let found = Unpermuted::of(rewriter, &operands)?;
    for (place, source) in places.into_iter().zip(&found.sources) {
        *args.get_mut(place)? = *source;
    }
    let scalar_type = rewriter.scalar_type(out)?;
    let result = rewriter.call_new(node.operator, &args, scalar_type, found.sizes.clone());
    found.permute(rewriter, result, out)
}

fn behind_cat(rewriter: &mut Rewriter<'_, '_>, node: &Node) -> Option<()> {
    let (&[list, dim], out) = (inputs(node), *node.args.last()?) else { return None };
    let Some(Value::List(operands)) = rewriter.get(list).cloned() else { return None };
    let found = Unpermuted::of(rewriter, &operands)?;
    let dim = normalize_dim(rewriter.int(dim)?, found.order.len())?;
    let own = *found.order.get(dim)?;
    let mut sizes = found.sizes.clone();
    *sizes.get_mut(own)? = *rewriter.sizes(out)?.get(dim)?;
    let scalar_type = rewriter.scalar_type(out)?;
    let list = rewriter.value(Value::List(found.sources.clone()));
    let dim = rewriter.value(Value::Int(own as i64));
    let result = rewriter.call_new(Operator::CAT, &[list, dim], scalar_type, sizes);
    found.permute(rewriter, result, out)
}

fn behind_pad(rewriter: &mut Rewriter<'_, '_>, node: &Node) -> Option<()> {
    let (&[input, pads, value], out) = (inputs(node), *node.args.last()?) else { return None };
    let pads = rewriter.ints(pads)?.into_owned();
    let found = Unpermuted::of(rewriter, &[input])?;
    let rank = found.order.len();
    let mut sizes = found.sizes.clone();
    // Padding is listed in pairs, last dim first.
    let mut moved = vec![0i64; rank.checked_mul(2)?];
    for (at, pair) in pads.chunks_exact(2).enumerate() {
        let dim = rank.checked_sub(at + 1)?;
        let own = *found.order.get(dim)?;
        let at = 2 * rank.checked_sub(own + 1)?;
        moved.get_mut(at..at + 2)?.copy_from_slice(pair);
        *sizes.get_mut(own)? = *rewriter.sizes(out)?.get(dim)?;
    }
    let pads = rewriter.value(Value::IntList(moved));
    let scalar_type = rewriter.scalar_type(out)?;
    let inputs = [*found.sources.first()?, pads, value];
    let result = rewriter.call_new(Operator::CONSTANT_PAD_ND, &inputs, scalar_type, sizes);
    found.permute(rewriter, result, out)
}

#[cfg(test)]
mod tests {
    use crate::passes::{redundant, text};
    use alloc::string::String;
    use alloc::vec::Vec;

    fn moved(text: &str) -> Vec<String> {
        let graph = text::after(text, |graph| {
            super::run(graph);
            redundant::run(graph)
        });
        text::right_sides(&graph)
    }

    #[test]
    fn permutations_that_a_sum_keeps_apart_cancel_out() {
        let calls = moved(
            "in x f32[1,2,3,4]
             in y f32[1,2,3,4]
             a f32[1,3,4,2] = aten.permute_copy.default(x, [0, 2, 3, 1])
             b f32[1,3,4,2] = aten.permute_copy.default(y, [0, 2, 3, 1])
             c f32[1,3,4,2] = aten.add.Tensor(a, b, 1)
             d f32[1,3,4,2] = aten.relu.default(c)
             e f32[1,2,3,4] = aten.permute_copy.default(d, [0, 3, 1, 2])
             f f32[1,2,3,4] = aten.neg.default(e)
             out f",
        );
        let found: Vec<&str> = calls.iter().map(|call| call.split('(').next().unwrap()).collect();
        assert_eq!(found, ["aten.add.Tensor", "aten.relu.default", "aten.neg.default"]);
        assert_eq!(calls[0], "aten.add.Tensor(%0, %1, 1)");
    }

    #[test]
    fn permutations_pass_each_function_of_elements() {
        for function in ["aten.silu.default(a)", "aten.elu.default(a)", "aten.gelu.default(a)"] {
            let text = "in x f32[2,3]
                 a f32[3,2] = aten.permute_copy.default(x, [1, 0])
                 b f32[3,2] = FUNCTION
                 c f32[2,3] = aten.permute_copy.default(b, [1, 0])
                 d f32[2,3] = aten.neg.default(c)
                 out d";
            assert_eq!(moved(&text.replace("FUNCTION", function)).len(), 2, "{function}");
        }
    }

    #[test]
    fn others_stay() {
        // Different orders, an operand that is not permuted, and a permuted value with other uses.
        let text = "in x f32[2,2,2]
             in y f32[2,2,2]
             a f32[2,2,2] = aten.permute_copy.default(x, [0, 2, 1])
             b f32[2,2,2] = aten.permute_copy.default(y, [1, 0, 2])
             c f32[2,2,2] = aten.add.Tensor(a, b, 1)
             d f32[2,2,2] = aten.mul.Tensor(a, y)
             e f32[2,2,2] = aten.relu.default(a)
             f f32[2,2,2] = aten._softmax.default(b, 1, false)
             out c d e f";
        assert_eq!(moved(text).len(), 6);
        // Broadcast operands.
        let text = "in x f32[2,3]
             in y f32[3,1]
             a f32[3,2] = aten.permute_copy.default(x, [1, 0])
             b f32[1,3] = aten.permute_copy.default(y, [1, 0])
             c f32[3,2] = aten.add.Tensor(a, y, 1)
             d f32[2,3] = aten.add.Tensor(x, b, 1)
             out c d";
        assert_eq!(moved(text).len(), 4);
    }
}
