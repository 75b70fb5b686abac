//! The rows of GEMMs: the limit for few rows, and the calls that read a value as rows.

use torchlet_graph::graph::{Node, ValueId};
use torchlet_graph::operators::Operator;

/// The maximum number of rows for which a GEMM counts as a GEMV: it is memory-bound.
pub(super) const FEW_ROWS: usize = 4;

/// Whether rows of this many elements, of `bytes` bytes each, consist of whole groups of 16 bytes
/// and have at least one group for each invocation of a subgroup.
pub(crate) fn is_wide(elements: usize, bytes: usize) -> bool {
    let row = elements.saturating_mul(bytes);
    row.is_multiple_of(16) && row >= 16 * MIN_GROUPS
}

/// The minimum number of groups of 16 bytes per row.
pub(super) const MIN_GROUPS: usize = 32;

/// Whether a call reads a value only as the rows of GEMMs for which `does` returns true.
pub(crate) fn takes_rows(node: &Node, value: ValueId, does: impl Fn(&Node) -> bool) -> bool {
    let products = match node.operator {
        Operator::EPILOGUE => node.parts.get(..1).unwrap_or_default(),
        Operator::GATED => node.parts.as_slice(),
        _ => std::slice::from_ref(node),
    };
    let takes = |part: &&Node| part.args.contains(&value);
    let does = |part: &Node| {
        let is_other = || part.args.iter().skip(1).any(|arg| *arg == value);
        part.args.first() == Some(&value) && does(part) && !is_other()
    };
    let taken: usize = products.iter().filter(takes).count();
    let elsewhere = node.parts.iter().filter(takes).count() != taken && !node.parts.is_empty();
    taken > 0 && !elsewhere && products.iter().filter(takes).all(does)
}
