//! What a delegate's data holds, without compiling it.

use crate::error::Error;
use crate::ops;
use std::collections::BTreeMap;
use torchlet_core::DelegateError;
use torchlet_graph::front::vulkan::contents;
use torchlet_graph::operators::Operator;

/// What the graph in a delegate's data consists of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GraphSummary {
    /// The version that the exporter wrote.
    pub version: String,
    /// The operators, those that are called most first.
    pub operators: Vec<OperatorSummary>,
    /// How many values it takes.
    pub inputs: usize,
    /// How many values it gives.
    pub outputs: usize,
    /// How many constants it has, and their bytes, wherever they are kept.
    pub constants: usize,
    /// Bytes of the constants.
    pub constant_bytes: u64,
}

/// An operator of a graph.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OperatorSummary {
    /// Its name, as the exporter wrote it.
    pub name: String,
    /// How often it is called.
    pub calls: usize,
    /// Whether this backend has it.
    pub available: bool,
}

/// Reads what a delegate's processed bytes consist of.
///
/// # Errors
/// The bytes are not what `VulkanPartitioner` writes.
pub fn summarize(processed: &[u8]) -> Result<GraphSummary, DelegateError> {
    let contents = contents(processed).map_err(Error::from)?;
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
    fn data_of_others_is_refused() {
        for bytes in [&b""[..], b"VK00", &[0; 64]] {
            assert!(matches!(summarize(bytes), Err(DelegateError::InvalidData(_))), "{bytes:?}");
        }
    }
}
