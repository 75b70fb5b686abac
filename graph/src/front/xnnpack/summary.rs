//! Summary of a blob, for tools that inspect files.

use super::nodes::kind;
use super::parts;
use super::schema::{ConstantTable, NodeTable};
use crate::budget::Budget;
use crate::error::Error;
use crate::front::Summary;
use alloc::format;
use alloc::vec::Vec;

/// Summarizes the processed bytes of a delegate. Names are those of ExecuTorch's schema.
///
/// # Errors
/// The bytes are malformed, or contain unknown calls.
pub(crate) fn summarize(processed: &[u8]) -> Result<Summary, Error> {
    let (root, _) = parts(processed)?;
    let mut budget = Budget::of(root.0.buffer());
    let mut calls = Vec::new();
    for node in budget.all::<NodeTable<'_>>(root.nodes()?)? {
        calls.push(format!("{:?}", kind(node.kind()?)?));
    }
    let entries: Vec<ConstantTable<'_>> = budget.all(root.constants()?)?;
    // Entry 0 means "not constant".
    let sizes = entries.iter().skip(1).map(|entry| entry.size());
    Ok(Summary::new(calls, sizes.collect::<Result<Vec<u64>, _>>()?))
}
