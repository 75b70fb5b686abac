//! Output shape checks of the operators that passes match or produce.

use super::uses::inputs;
use crate::graph::{Graph, Node, Value, ValueId};
use crate::operators::Shape;
use alloc::vec::Vec;

/// Checks the output shape of a call with fixed shapes. `None` if it is invalid.
pub(super) fn check(graph: &Graph<'_>, node: &Node) -> Option<()> {
    let Some(out) = sizes(graph, node.args.last()) else { return Some(()) };
    let of = |at: u8| sizes(graph, inputs(node).get(usize::from(at)));
    let fits = match node.operator.traits().shape {
        Shape::Unchecked => true,
        Shape::Same => of(0)? == out,
        Shape::SameNumel => numel(of(0)?) == numel(out),
        Shape::Broadcast(count) => {
            let inputs: Option<Vec<&[usize]>> = (0..count).map(of).collect();
            are_broadcast(&inputs?, out)
        }
        Shape::Permuted => {
            let (mut before, mut after) = (of(0)?.to_vec(), out.to_vec());
            before.sort_unstable();
            after.sort_unstable();
            before == after
        }
        Shape::Gemm(lhs) => is_gemm(of(lhs)?, of(lhs + 1)?, out)?,
        Shape::Linear => {
            let ([outer @ .., k], [n, weight_k]) = (of(0)?, of(1)?) else { return None };
            k == weight_k && out.split_last() == Some((n, outer))
        }
        Shape::QuantizedLinear => {
            let ([outer @ .., k], [n, row]) = (of(0)?, of(3)?) else { return None };
            k <= row && out.split_last() == Some((n, outer))
        }
        Shape::QuantizedConvolution => {
            let (input, channels) =
                (of(0)?, if of(3)?.len() == 3 { of(3)?.last() } else { of(3)?.first() });
            let dim = out.len().checked_sub(3)?;
            input.len() == out.len()
                && input.get(..dim) == out.get(..dim)
                // Depthwise weights may be padded.
                && out.get(dim) <= channels
        }
        Shape::DynamicConvolution => {
            let ([batch, ..], [channels, _]) = (of(0)?, of(1)?) else { return None };
            of(0)?.len() == out.len() && out.get(..2) == Some(&[*batch, *channels])
        }
        Shape::Pool => of(0)?.len() == out.len() && of(0)?.get(..2) == out.get(..2),
        Shape::Attention => {
            let [batch, heads, rows, _] = of(0)? else { return None };
            let [.., width] = of(2)? else { return None };
            out == [*batch, *heads, *rows, *width]
        }
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

/// Whether an output shape is that of a matrix multiplication, batched or not.
fn is_gemm(a: &[usize], b: &[usize], out: &[usize]) -> Option<bool> {
    let ([outer @ .., m, k], [b_outer @ .., b_k, n]) = (a, b) else { return None };
    let ([out_outer @ .., out_m, out_n], true) = (out, outer == b_outer && k == b_k) else {
        return None;
    };
    Some(out_outer == outer && (out_m, out_n) == (m, n))
}

/// Whether an output has the broadcast shape of its inputs.
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
