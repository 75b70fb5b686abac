//! Summary of a delegate's graph, for tools that inspect files.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;

/// Summary of a delegate's graph.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Summary {
    /// Number of calls by name, most frequent first. The names are those of the format; fused calls
    /// count as their parts.
    pub calls: Vec<(String, usize)>,
    /// Number of constants.
    pub constants: usize,
    /// Total size of the constants in bytes, as declared.
    pub constant_bytes: u64,
}

impl Summary {
    pub(crate) fn new(
        calls: impl IntoIterator<Item = impl Into<String>>,
        constants: impl IntoIterator<Item = u64>,
    ) -> Self {
        let mut counts: BTreeMap<String, usize> = BTreeMap::new();
        for name in calls {
            *counts.entry(name.into()).or_default() += 1;
        }
        let mut calls: Vec<(String, usize)> = counts.into_iter().collect();
        calls.sort_by_key(|(_, count)| core::cmp::Reverse(*count));
        let mut summary = Summary { calls, constants: 0, constant_bytes: 0 };
        for bytes in constants {
            summary.constants += 1;
            summary.constant_bytes = summary.constant_bytes.saturating_add(bytes);
        }
        summary
    }
}
