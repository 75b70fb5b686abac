//! Numbers that blobs share.
//!
//! A Vulkan blob has one value for 2 and 2.0, whichever came first. Portable kernels take an
//! integer wherever they take a number, but no fraction where they take an integer, so what can be
//! an integer is one. The values are the same.

use crate::graph::{Graph, Value};

/// Makes integers of all numbers without a fraction.
pub(super) fn make_whole(graph: &mut Graph<'_>) {
    for value in &mut graph.values {
        if let Value::Double(number) = value
            && let Some(whole) = whole(*number)
        {
            *value = Value::Int(whole);
        }
    }
}

/// The integer that a number is; none for minus zero, which is no integer's value.
pub(super) fn whole(number: f64) -> Option<i64> {
    const EXACT: f64 = (1u64 << 53) as f64;
    let whole = number as i64;
    let same = whole as f64 == number && number.abs() < EXACT;
    (same && !(number == 0.0 && number.is_sign_negative())).then_some(whole)
}

#[cfg(test)]
mod tests {
    use super::whole;

    #[test]
    fn only_integers_are_whole() {
        assert_eq!([2.0, -3.0, 0.0].map(whole), [Some(2), Some(-3), Some(0)]);
        assert_eq!([0.5, -0.0, f64::NAN, f64::INFINITY, 1e300].map(whole), [None; 5]);
    }
}
