//! What a blob holds, for people who look at files.

use super::nodes::kind;
use super::parts;
use super::schema::{ConstantTable, NodeTable};
use crate::budget::Budget;
use crate::error::Error;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

/// What a delegate for XNNPACK holds.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Summary {
    /// Its calls by the names that ExecuTorch's schema has for them, with how many there are of
    /// each.
    pub calls: Vec<(String, usize)>,
    /// How many constants it refers to.
    pub constants: usize,
    /// How many bytes these have in all.
    pub constant_bytes: u64,
}

/// Summarises a delegate's processed bytes.
///
/// # Errors
/// They are malformed, or have calls that are not known.
pub fn summarize(processed: &[u8]) -> Result<Summary, Error> {
    let (root, _) = parts(processed)?;
    let mut budget = Budget::of(root.0.buffer());
    let mut calls: BTreeMap<String, usize> = BTreeMap::new();
    for node in budget.all::<NodeTable<'_>>(root.nodes()?)? {
        *calls.entry(format!("{:?}", kind(node.kind()?)?)).or_default() += 1;
    }
    let mut constant_bytes = 0u64;
    let entries: Vec<ConstantTable<'_>> = budget.all(root.constants()?)?;
    // The first stands for none.
    let constants = entries.len().saturating_sub(1);
    for entry in entries.iter().skip(1) {
        constant_bytes = constant_bytes.saturating_add(entry.size()?);
    }
    Ok(Summary { calls: calls.into_iter().collect(), constants, constant_bytes })
}
