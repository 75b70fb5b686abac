//! Reads the data of a delegate.

use crate::error::Error;
use crate::state_tensors::{StateTensor, state_tensors};
use torchlet_graph::graph::Graph;
use torchlet_graph::{Named, blob, front};

/// Parses a delegate blob, of the exporter's `VulkanPartitioner` or of the torchlet compiler, into
/// a graph and its state tensors. State tensors are listed only for blobs of the torchlet compiler,
/// because the exporter does not say which tensors are state.
///
/// # Errors
/// The blob is malformed or uses an unsupported feature.
pub fn read<'p>(
    bytes: &'p [u8],
    named: &Named<'_, 'p>,
) -> Result<(Graph<'p>, Vec<StateTensor>), Error> {
    if !blob::is_blob(bytes) {
        return Ok((front::vulkan::read(bytes, named)?, Vec::new()));
    }
    let mut graph = blob::read(bytes, named)?;
    graph.mark_changes();
    let state_tensors = state_tensors(&graph)?;
    Ok((graph, state_tensors))
}
