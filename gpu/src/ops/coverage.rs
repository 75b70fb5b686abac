//! Checks that every operator which exporters write for Vulkan is in a table, or is a known gap.

use super::find;
use torchlet_graph::operators::Operator;

/// Operators without an implementation, which the README's table lists too. Remove them here when
/// they are added.
const GAPS: &[&str] = &[];

fn declared() -> impl Iterator<Item = &'static str> {
    include_str!("names.txt").lines().filter(|line| !line.is_empty() && !line.starts_with('#'))
}

#[test]
fn every_declared_operator_is_found() {
    assert!(declared().count() > 150);
    let missing: Vec<&str> =
        declared().filter(|name| Operator::named(name).and_then(find).is_none()).collect();
    assert_eq!(missing, GAPS, "operators without an implementation");
}
