//! Checks that every operator which exporters write for Vulkan is in an operator table or a known
//! gap.

use super::find;
use torchlet_graph::operators::Operator;

/// Operators without an implementation. The README's table lists them too. An operator that is
/// added must be removed here.
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
