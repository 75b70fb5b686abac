//! Staging memory for the inputs and outputs of a graph.

use crate::commands::{Binding, BufferId};
use crate::error::Error;
use crate::tensors::{element_of, padded_bytes};
use torchlet_graph::graph::{Graph, Value, ValueId};
use torchlet_shaders::Element;

/// The range of a staging buffer that holds one input or output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "the fields have their usual names")]
pub struct Staging {
    pub element: Element,
    pub offset: u64,
    pub bytes: u64,
}

impl Staging {
    /// Returns a binding to this range of `buffer`.
    pub(crate) fn binding(&self, buffer: BufferId, written: bool) -> Binding {
        Binding { buffer, offset: self.offset, size: self.bytes, written }
    }
}

/// Assigns a range of staging memory to each tensor among the values. Also returns the total bytes.
pub(crate) fn stage(
    graph: &Graph<'_>,
    ids: &[ValueId],
    align: u64,
) -> Result<(Vec<Option<Staging>>, u64), Error> {
    let mut end = 0u64;
    let mut staging = Vec::with_capacity(ids.len());
    for id in ids {
        staging.push(match graph.values.get(*id) {
            Some(Value::Tensor(tensor)) => {
                let element = element_of(tensor.host_type)?;
                let bytes = padded_bytes(element, tensor.sizes.iter().product());
                let offset = end;
                end = offset
                    .checked_add(bytes)
                    .and_then(|end| end.checked_next_multiple_of(align))
                    .ok_or_else(|| Error::invalid("the inputs and outputs exceed 2^64 bytes"))?;
                Some(Staging { element, offset, bytes })
            }
            _ => None,
        });
    }
    Ok((staging, end))
}
