//! The shapes of outputs, for the operators that passes look for or make.

use super::uses::inputs;
use crate::graph::{Graph, Node, Value, ValueId};
use crate::operators::Operator;

/// Nothing if the output of a call cannot have its shape, where all shapes are fixed.
pub(super) fn check(graph: &Graph<'_>, node: &Node) -> Option<()> {
    let Some(out) = sizes(graph, node.args.last()) else { return Some(()) };
    let of = |at: usize| sizes(graph, inputs(node).get(at));
    let fits = match node.operator {
        Operator::VIEW_COPY
        | Operator::UNSQUEEZE_COPY
        | Operator::SQUEEZE_COPY_DIM
        | Operator::SQUEEZE_COPY_DIMS => numel(of(0)?) == numel(out),
        Operator::CLAMP
        | Operator::CLONE
        | Operator::DIM_ORDER_OPS_CLONE_DIM_ORDER
        | Operator::DIM_ORDER_OPS_TO_DIM_ORDER_COPY
        | Operator::DIV_SCALAR
        | Operator::EQ_SCALAR
        | Operator::ERF
        | Operator::ET_VK_RMS_NORM
        | Operator::GELU
        | Operator::HARDSIGMOID
        | Operator::HARDSWISH
        | Operator::HARDTANH
        | Operator::LOGICAL_NOT
        | Operator::MUL_SCALAR
        | Operator::POW_TENSOR_SCALAR
        | Operator::RSQRT
        | Operator::SIGMOID
        | Operator::SILU
        | Operator::SOFTMAX
        | Operator::TANH
        | Operator::TO_COPY => of(0)? == out,
        Operator::ADD_TENSOR
        | Operator::SUB_TENSOR
        | Operator::MUL_TENSOR
        | Operator::DIV_TENSOR => are_broadcast(&[of(0)?, of(1)?], out),
        Operator::ET_VK_Q8TA_ADD | Operator::Q8TA_MUL => are_broadcast(&[of(0)?, of(1)?], out),
        Operator::ET_VK_Q8TA_RELU | Operator::Q8TA_LOOKUP | Operator::Q8TA_SOFTMAX => of(0)? == out,
        Operator::Q8TA_AVG_POOL2D => of(0)?.len() == out.len() && of(0)?.get(..2) == out.get(..2),
        Operator::DYNAMIC_CONVOLUTION => {
            let ([batch, ..], [channels, _]) = (of(0)?, of(1)?) else { return None };
            of(0)?.len() == out.len() && out.get(..2) == Some(&[*batch, *channels])
        }
        Operator::ET_VK_Q8TA_LINEAR => {
            let ([outer @ .., k], [n, row]) = (of(0)?, of(3)?) else { return None };
            k <= row && out.split_last() == Some((n, outer))
        }
        Operator::ET_VK_Q8TA_CONV2D
        | Operator::ET_VK_Q8TA_CONV2D_DW
        | Operator::ET_VK_Q8TA_CONV2D_TRANSPOSED => {
            let (input, channels) =
                (of(0)?, if of(3)?.len() == 3 { of(3)?.last() } else { of(3)?.first() });
            let dim = out.len().checked_sub(3)?;
            input.len() == out.len()
                && input.get(..dim) == out.get(..dim)
                // Weights of single channels may be padded.
                && out.get(dim) <= channels
        }
        Operator::WHERE_SELF => are_broadcast(&[of(0)?, of(1)?, of(2)?], out),
        Operator::PERMUTE_COPY | Operator::TRANSPOSE_COPY_INT | Operator::T_COPY => {
            let (mut before, mut after) = (of(0)?.to_vec(), out.to_vec());
            before.sort_unstable();
            after.sort_unstable();
            before == after
        }
        Operator::MM | Operator::BMM => is_product(of(0)?, of(1)?, out)?,
        Operator::ADDMM => is_product(of(1)?, of(2)?, out)?,
        Operator::BADDBMM => is_product(of(1)?, of(2)?, out)?,
        Operator::LINEAR | Operator::DYNAMIC_LINEAR => {
            let ([outer @ .., k], [n, weight_k]) = (of(0)?, of(1)?) else { return None };
            k == weight_k && out.split_last() == Some((n, outer))
        }
        Operator::ET_VK_SDPA | Operator::ATTENTION => {
            let [batch, heads, rows, _] = of(0)? else { return None };
            let [.., width] = of(2)? else { return None };
            out == [*batch, *heads, *rows, *width]
        }
        _ => true,
    };
    fits.then_some(())
}

fn sizes<'g>(graph: &'g Graph<'_>, id: Option<&ValueId>) -> Option<&'g [usize]> {
    match graph.values.get(*id?) {
        Some(Value::Tensor(tensor)) => Some(&tensor.sizes),
        _ => None,
    }
}

fn numel(sizes: &[usize]) -> usize {
    sizes.iter().product()
}

/// Whether an output is a product of matrices, or of batches of them.
fn is_product(a: &[usize], b: &[usize], out: &[usize]) -> Option<bool> {
    let ([outer @ .., m, k], [b_outer @ .., b_k, n]) = (a, b) else { return None };
    let ([out_outer @ .., out_m, out_n], true) = (out, outer == b_outer && k == b_k) else {
        return None;
    };
    Some(out_outer == outer && (out_m, out_n) == (m, n))
}

/// Whether an output has the shape that inputs have together.
fn are_broadcast(inputs: &[&[usize]], out: &[usize]) -> bool {
    let size = |sizes: &[usize], from_last: usize| {
        sizes.len().checked_sub(from_last + 1).and_then(|at| sizes.get(at).copied())
    };
    inputs.iter().all(|input| input.len() <= out.len())
        && (0..out.len()).all(|at| {
            let own = size(out, at);
            let mut seen = inputs.iter().map(|input| size(input, at).unwrap_or(1));
            let fits = seen.all(|size| size == 1 || Some(size) == own);
            let mut seen = inputs.iter().map(|input| size(input, at).unwrap_or(1));
            fits && (own == Some(1) || seen.any(|size| Some(size) == own))
        })
}
