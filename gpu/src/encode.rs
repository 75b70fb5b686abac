//! Encodes a graph: for each call, its operator emits steps.
//!
//! The same code runs when a graph is compiled, with the largest shapes, and again when shapes
//! change. In the second case, memory and pipelines already exist, and only sizes and parameters
//! change.

use crate::encoder::Encoder;
use crate::error::Error;
use crate::ops;
use crate::reads::Reads;
use crate::state::State;
use crate::steps::Step;
use torchlet_graph::graph::{Graph, Node};

/// Encodes all calls. If `planning` is set, memory will be planned for the current shapes. Returns
/// the steps and the read analysis, which tells the calls that read each value.
///
/// # Errors
/// A call is invalid or unsupported.
pub fn encode(
    graph: &Graph<'_>,
    state: &mut State,
    planning: bool,
) -> Result<(Vec<Step>, Reads), Error> {
    let mut encoder = Encoder::new(graph, state, planning);
    encode_calls(&mut encoder, 0..graph.nodes.len())?;
    Ok(encoder.finish())
}

/// Encodes selected calls again, in order; their shapes must be unchanged. Returns the read
/// analysis even on errors.
pub(crate) fn encode_again(
    graph: &Graph<'_>,
    state: &mut State,
    reads: Reads,
    calls: &[usize],
) -> (Result<Vec<Step>, Error>, Reads) {
    let mut encoder = Encoder::again(graph, state, reads);
    let encoded = encode_calls(&mut encoder, calls.iter().copied());
    let (steps, reads) = encoder.finish();
    (encoded.map(|()| steps), reads)
}

fn encode_calls(
    encoder: &mut Encoder<'_, '_>,
    calls: impl Iterator<Item = usize>,
) -> Result<(), Error> {
    for index in calls {
        let Some(node) = encoder.begin(index) else { continue };
        ops::encode(encoder, node).map_err(|error| in_operator(node, error))?;
    }
    Ok(())
}

fn in_operator(node: &Node, error: Error) -> Error {
    let place = format!("{} (call {})", node.operator.name(), node.id);
    match error {
        Error::Unsupported(what) => Error::Unsupported(format!("{place}: {what}")),
        Error::Invalid(what) => Error::Invalid(format!("{place}: {what}")),
        other => other,
    }
}
