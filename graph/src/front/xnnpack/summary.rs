//! Summary of a blob, for tools that inspect files.

use super::nodes::kind;
use super::parts;
use super::schema::{ConstantTable, NodeTable};
use crate::budget::Budget;
use crate::error::Error;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

/// Summary of an XNNPACK delegate.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Summary {
    /// Number of calls by name; names are those of ExecuTorch's schema.
    pub calls: Vec<(String, usize)>,
    /// Number of constants.
    pub constants: usize,
    /// Total size of the constants in bytes.
    pub constant_bytes: u64,
}

/// Summarizes the processed bytes of a delegate.
///
/// # Errors
/// The bytes are malformed, or contain unknown calls.
pub fn summarize(processed: &[u8]) -> Result<Summary, Error> {
    let (root, _) = parts(processed)?;
    let mut budget = Budget::of(root.0.buffer());
    let mut calls: BTreeMap<String, usize> = BTreeMap::new();
    for node in budget.all::<NodeTable<'_>>(root.nodes()?)? {
        *calls.entry(format!("{:?}", kind(node.kind()?)?)).or_default() += 1;
    }
    let mut constant_bytes = 0u64;
    let entries: Vec<ConstantTable<'_>> = budget.all(root.constants()?)?;
    // Entry 0 means "not constant".
    let constants = entries.len().saturating_sub(1);
    for entry in entries.iter().skip(1) {
        constant_bytes = constant_bytes.saturating_add(entry.size()?);
    }
    Ok(Summary { calls: calls.into_iter().collect(), constants, constant_bytes })
}
