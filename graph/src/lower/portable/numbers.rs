//! Converts floats with whole values to integers.
//!
//! A Vulkan blob stores the integer 2 and the float 2.0 as one value, with the type of its first
//! use. Portable kernels accept an integer for every float argument, but not a float for an integer
//! argument.

use crate::graph::{Graph, Value};

/// Converts floats with whole values to integers.
pub(super) fn make_whole(graph: &mut Graph<'_>) {
    for value in &mut graph.values {
        if let Value::Double(number) = value
            && let Some(whole) = whole(*number)
        {
            *value = Value::Int(whole);
        }
    }
}

/// The integer equal to a number. `None` for minus zero, which no integer represents.
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
