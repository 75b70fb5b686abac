//! Decomposes RMS norms with a factor that is not a weight over the last dim.
//!
//! The exporter recognises `et_vk.rms_norm` by a pattern: a multiplication of two factors, one of
//! which is the reciprocal root of a mean of squares. It uses the other factor as the weight,
//! whatever the shape of that factor is: a gate per row, a scalar, or a tensor larger than the
//! input. This module turns such calls back into multiplications.

use crate::error::Error;
use crate::graph::{Graph, Node};
use crate::lower::portable;
use crate::operators::RmsNormArgs;
use alloc::vec::Vec;

/// Decomposes calls whose weight is not a vector over the last dim.
pub(super) fn take_apart(graph: &mut Graph<'_>) -> Result<(), Error> {
    let others: Vec<bool> = graph.nodes.iter().map(|node| is_other(graph, node)).collect();
    portable::run_some(graph, &others).map(|_| ())
}

fn is_other(graph: &Graph<'_>, node: &Node) -> bool {
    let Some(call) = RmsNormArgs::matching(node) else { return false };
    let sizes = |id| graph.tensor(id).map(|tensor| tensor.sizes.as_slice());
    let (Some(input), Some(weight)) = (sizes(call.input), sizes(call.weight)) else {
        return false;
    };
    let is_row = weight.split_last().is_some_and(|(last, before)| {
        Some(last) == input.last()
            && before.iter().all(|size| *size == 1)
            && weight.len() <= input.len()
    });
    !is_row
}
