//! Summarises a delegate blob without compiling it.

use crate::error::Error;
use crate::ops;
use std::collections::BTreeMap;
use torchlet_core::DelegateError;
use torchlet_graph::blob;
use torchlet_graph::front::vulkan::{Contents, contents};
use torchlet_graph::operators::Operator;

/// The contents of the graph in a delegate blob.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GraphSummary {
    /// The version of the exporter, or `torchlet` for a blob of the torchlet compiler.
    pub version: String,
    /// The operators, most frequently called first.
    pub operators: Vec<OperatorSummary>,
    /// The number of inputs.
    pub inputs: usize,
    /// The number of outputs.
    pub outputs: usize,
    /// The number of constants, wherever they are stored.
    pub constants: usize,
    /// The total bytes of the constants.
    pub constant_bytes: u64,
}

/// An operator of a graph.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OperatorSummary {
    /// The exporter's name of the operator.
    pub name: String,
    /// The number of calls.
    pub calls: usize,
    /// Whether this backend supports it.
    pub available: bool,
}

/// Summarises the processed bytes of a delegate.
///
/// # Errors
/// The bytes are neither from `VulkanPartitioner` nor from the torchlet compiler.
pub fn summarize(processed: &[u8]) -> Result<GraphSummary, DelegateError> {
    let contents = if blob::is_blob(processed) {
        let blob::Contents { operators, inputs, outputs, constant_bytes, .. } =
            blob::contents(processed).map_err(Error::from)?;
        Contents { version: "torchlet", operators, inputs, outputs, constant_bytes }
    } else {
        contents(processed).map_err(Error::from)?
    };
    let mut calls: BTreeMap<&str, usize> = BTreeMap::new();
    for name in &contents.operators {
        *calls.entry(name).or_default() += 1;
    }
    let mut operators: Vec<OperatorSummary> = calls
        .into_iter()
        .map(|(name, calls)| OperatorSummary {
            name: name.to_owned(),
            calls,
            available: Operator::named(name).and_then(ops::find).is_some(),
        })
        .collect();
    operators.sort_by_key(|operator| std::cmp::Reverse(operator.calls));
    Ok(GraphSummary {
        version: contents.version.to_owned(),
        operators,
        inputs: contents.inputs,
        outputs: contents.outputs,
        constants: contents.constant_bytes.len(),
        constant_bytes: contents.constant_bytes.iter().fold(0, |sum, b| sum.saturating_add(*b)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn foreign_data_is_rejected() {
        for bytes in [&b""[..], b"VK00", &[0; 64]] {
            assert!(matches!(summarize(bytes), Err(DelegateError::InvalidData(_))), "{bytes:?}");
        }
    }
}
