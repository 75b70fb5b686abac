//! Calls that compute element by element go before the permutations of what they take.
//!
//! Networks with channels last, say, permute what each convolution takes and gives. Between a sum of two such results and the next convolution,
//! permutations meet that the sum keeps apart: `add(permute(a), permute(b))` is `permute(add(a, b))`, and the permutation cancels out
//! with the next, which [`redundant`](super::redundant) does.
//!
//! Needs: each value made once, before its uses; fixed shapes; and targets where a permutation costs more than a view of other strides,
//! which is why this pass is not in the list of all. Keeps: every element's bits, and how many permutations there are, or fewer.

use super::rewrite::{Rewriter, each_call};
use super::uses::inputs;
use super::views::permutation;
use crate::graph::{Graph, Node, Value, ValueId};
use crate::operators::Operator;
use alloc::vec::Vec;

/// Moves permutations behind calls, and says how often.
pub fn run(graph: &mut Graph<'_>) -> usize {
    each_call(graph, |rewriter, node| move_behind(rewriter, node).is_some())
}

fn move_behind(rewriter: &mut Rewriter<'_, '_>, node: &Node) -> Option<()> {
    let count = node.operator.elementwise_tensors();
    // Numbers of codes would be permuted four times as wide.
    let widens = node.operator == Operator::QUANTIZED_DECOMPOSED_DEQUANTIZE_PER_TENSOR;
    if count == 0 || widens || !rewriter.has_fixed_shapes() {
        return None;
    }
    let out = *node.args.last()?;
    let sizes = rewriter.sizes(out)?.to_vec();
    let operands = inputs(node).get(..count)?.to_vec();
    let mut order: Option<Vec<usize>> = None;
    let mut sources = Vec::new();
    let mut is_last = false;
    for id in &operands {
        // Numbers stay what they are.
        if !matches!(rewriter.get(*id), Some(Value::Tensor(_))) {
            sources.push(*id);
            continue;
        }
        if rewriter.sizes(*id)? != sizes {
            return None;
        }
        let (source, own) = rewriter.maker(*id).and_then(|maker| permutation(rewriter, maker))?;
        if order.as_ref().is_some_and(|order| *order != own) {
            return None;
        }
        order = Some(own);
        let here = operands.iter().filter(|other| *other == id).count();
        is_last |= rewriter.uses(*id) as usize == here;
        sources.push(source);
    }
    // One permutation at least goes for the one behind.
    let order = order.filter(|_| is_last)?;
    let from = *operands.iter().zip(&sources).find(|(id, source)| id != source)?.1;
    let from_sizes = rewriter.sizes(from)?.to_vec();
    let scalar_type = rewriter.scalar_type(out)?;
    sources.extend(inputs(node).get(count..)?);
    let result = rewriter.call_new(node.operator, &sources, scalar_type, from_sizes);
    let order = order.into_iter().map(|dim| dim as i64).collect();
    let order: ValueId = rewriter.value(Value::IntList(order));
    rewriter.call(Operator::PERMUTE_COPY, &[result, order], out);
    Some(())
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
        // Another order; a factor that is not permuted; what others take permuted as well.
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
        // Sizes that broadcast.
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
