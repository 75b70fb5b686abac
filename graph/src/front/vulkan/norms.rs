//! Norms of rows that are multiplied with something other than a weight for each element of a row.
//!
//! The exporter finds `et_vk.rms_norm` by its form, a product with the reciprocal root of a mean of
//! squares, and takes the other factor for the weight whatever its shape is: a gate for each row, a
//! number, or what is larger than the input. Such calls become the products that they were made of.

use crate::error::Error;
use crate::graph::{Graph, Node};
use crate::lower::portable;
use crate::operators::RmsNormArgs;
use alloc::vec::Vec;

/// Takes apart what is no norm with a weight for each element of a row.
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
