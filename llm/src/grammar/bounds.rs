//! Narrows exclusive bounds of numbers that llguidance treats as inclusive.
//!
//! llguidance accepts the bound itself if it is an integer and the other bound has the same integer
//! part: `{"exclusiveMinimum": 0, "maximum": 0.5}` would match `0`. Such a bound moves inwards by
//! [`STEP`]. Numbers closer to the bound are then never generated.

use super::parts;
use serde_json::{Map, Value};

/// Distance by which a bound moves.
const STEP: f64 = 1e-9;
/// Maximum magnitude of a bound that moves: the step is lost in larger ones.
const MAX_BOUND: f64 = (1 << 20) as f64;

/// Narrows bounds in a schema and its subschemas. Returns whether any changed.
pub(super) fn narrow(schema: &mut Value) -> bool {
    let Value::Object(fields) = schema else { return false };
    let mut changed = false;
    for (key, value) in fields.iter_mut() {
        for schema in parts::of_mut(key, value) {
            changed |= narrow(schema);
        }
    }
    for (key, sign, others) in [
        ("exclusiveMinimum", 1.0, ["maximum", "exclusiveMaximum"]),
        ("exclusiveMaximum", -1.0, ["minimum", "exclusiveMinimum"]),
    ] {
        if let Some(bound) = narrowed(fields, key, sign, others) {
            fields.insert(key.into(), bound.into());
            changed = true;
        }
    }
    changed
}

/// The new value of the bound `key`; `None` if it stays.
fn narrowed(fields: &Map<String, Value>, key: &str, sign: f64, others: [&str; 2]) -> Option<f64> {
    if fields.get("type").and_then(Value::as_str) == Some("integer") {
        return None;
    }
    let bound = fields.get(key)?.as_f64()?;
    let is_near = |other: &str| {
        let other = fields.get(other).and_then(Value::as_f64);
        other.is_some_and(|other| other != bound && other.trunc() == bound)
    };
    let moves = bound.fract() == 0.0 && bound.abs() < MAX_BOUND && others.into_iter().any(is_near);
    moves.then_some(bound + sign * STEP)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn bounds_with_the_same_integer_part_are_narrowed() {
        let mut schema = json!({"items": {"exclusiveMinimum": 0, "maximum": 0.5}});
        assert!(narrow(&mut schema));
        assert_eq!(schema, json!({"items": {"exclusiveMinimum": 1e-9, "maximum": 0.5}}));
        let mut schema = json!({"exclusiveMaximum": 0, "minimum": -0.5});
        assert!(narrow(&mut schema));
        assert_eq!(schema, json!({"exclusiveMaximum": -1e-9, "minimum": -0.5}));
    }

    #[test]
    fn other_bounds_stay() {
        for schema in [
            json!({"exclusiveMinimum": 0}),
            json!({"exclusiveMinimum": 0, "maximum": 1}),
            json!({"minimum": 0, "maximum": 0.5}),
            json!({"exclusiveMinimum": 0.25, "maximum": 0.5}),
            json!({"type": "integer", "exclusiveMinimum": 3, "maximum": 3.5}),
            json!({"exclusiveMinimum": 0, "maximum": 0}),
            json!({"properties": {"exclusiveMinimum": {"const": 0}, "maximum": {"const": 0}}}),
        ] {
            assert!(!narrow(&mut schema.clone()), "{schema}");
        }
    }
}
