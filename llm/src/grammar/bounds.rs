//! Narrows constraints on numbers that llguidance would relax or refuse. All generated numbers
//! match the original schema.
//!
//! - **Exclusive bounds.** llguidance accepts the bound itself if it is an integer and the other
//!   bound has the same integer part: `{"exclusiveMinimum": 0, "maximum": 0.5}` would match `0`.
//!   Such a bound moves inwards by [`STEP`]. Numbers closer to the bound are then never generated.
//! - **Distant bounds**, such as the limits of `float64`. llguidance computes with the integer
//!   parts of bounds as `i64`, and negates them: it refuses numbers beyond, and would replace
//!   integers beyond by the nearest one. Such a bound moves inwards to [`MAX_MAGNITUDE`]. It must
//!   not be removed: numbers without bounds may have exponents, and `1e999` would match.
//! - **Integers beyond 2^53.** llguidance computes with `f64`, and would generate the nearest one.
//!   A bound moves inwards to the next `f64`, and then includes it. As `const` or in `enum`,
//!   numbers of this magnitude are refused.
//! - **`multipleOf`.** llguidance multiplies by 10 until no fraction is left, with rounding errors:
//!   `0.0007` would have too many digits. A neighbouring `f64` whose errors cancel replaces it; the
//!   decimal digits that llguidance derives are those of the schema. Where there is none, as for
//!   `0.0021`, the schema is refused.

use super::parts;
use serde_json::{Map, Value};

/// Distance by which a bound moves.
const STEP: f64 = 1e-9;
/// Maximum magnitude of a bound that moves: the step is lost in larger ones.
const MAX_BOUND: f64 = (1 << 20) as f64;

/// Maximum magnitude of bounds.
const MAX_MAGNITUDE: f64 = 9.2e18;
/// Integers below this magnitude are exact as `f64`.
const MAX_EXACT: f64 = (1u64 << 53) as f64;
/// Number of neighbouring floats on either side to try for `multipleOf`.
const NEIGHBOURS: u64 = 8;
/// Maximum number of decimal places of such a neighbour: llguidance computes powers as `u32`.
const MAX_EXPONENT: i32 = 8;

/// Narrows bounds in a schema and its subschemas. Returns whether any changed.
///
/// # Errors
/// Bounds exclude all numbers within [`MAX_MAGNITUDE`], or a `multipleOf` cannot be converted.
pub(super) fn narrow(schema: &mut Value) -> Result<bool, String> {
    let Value::Object(fields) = schema else { return Ok(false) };
    let mut changed = false;
    for (key, value) in fields.iter_mut() {
        for schema in parts::of_mut(key, value) {
            changed |= narrow(schema)?;
        }
    }
    for key in ["const", "enum"] {
        if let Some(number) = fields.get(key).and_then(beyond_exact) {
            return Err(format!(
                "'{key}' has the number {number}: from 2^53, integers are not exact; use a string"
            ));
        }
    }
    for (key, sign) in
        [("minimum", 1.0), ("exclusiveMinimum", 1.0), ("maximum", -1.0), ("exclusiveMaximum", -1.0)]
    {
        let Some(bound) = fields.get(key).and_then(Value::as_f64) else { continue };
        if sign * bound > MAX_MAGNITUDE {
            return Err(format!(
                "'{key}' is {bound}: only numbers from -{MAX_MAGNITUDE:e} to {MAX_MAGNITUDE:e} \
                 are generated if there are bounds"
            ));
        }
        if sign * bound < -MAX_MAGNITUDE {
            fields.insert(key.into(), (-sign * MAX_MAGNITUDE).into());
            changed = true;
        } else if bound.abs() >= MAX_EXACT {
            let is_exclusive = key.starts_with("exclusive");
            // An integer that is no `f64` was rounded.
            let excess = fields.get(key).and_then(integer).map_or(0, |it| bound as i128 - it);
            let is_outside = excess != 0 && (excess > 0) != (sign > 0.0);
            let inside = match (is_outside || is_exclusive && excess == 0, sign > 0.0) {
                (false, _) => bound,
                (true, true) => bound.next_up(),
                (true, false) => bound.next_down(),
            };
            fields.remove(key);
            let inclusive = if sign > 0.0 { "minimum" } else { "maximum" };
            let other = fields.get(inclusive).and_then(Value::as_f64);
            let inside = other.filter(|other| sign * other > sign * inside).unwrap_or(inside);
            fields.insert(inclusive.into(), inside.into());
            changed = true;
        }
    }
    let step = fields.get("multipleOf").and_then(Value::as_f64).map(f64::abs);
    if step == Some(0.0) {
        return Err("'multipleOf' is 0, expected a number greater than 0".into());
    }
    if let Some(step) = step.filter(|step| digits(*step).is_none()) {
        let Some(near) = convertible(step) else {
            return Err(format!(
                "'multipleOf' is {step}: this fraction is not supported; write one with fewer \
                 digits, or leave it out"
            ));
        };
        fields.insert("multipleOf".into(), near.into());
        changed = true;
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
    Ok(changed)
}

/// An integer that is written without fraction or exponent.
fn integer(value: &Value) -> Option<i128> {
    value.as_i64().map(i128::from).or(value.as_u64().map(i128::from))
}

/// The first number in a value that may not be exact as `f64`.
fn beyond_exact(value: &Value) -> Option<&Value> {
    match value {
        Value::Array(items) => items.iter().find_map(beyond_exact),
        Value::Object(fields) => fields.values().find_map(beyond_exact),
        value => Some(value).filter(|it| it.as_f64().is_some_and(|it| it.abs() >= MAX_EXACT)),
    }
}

/// Decimal digits and exponent of a float, as llguidance computes them; `None` if it refuses them.
fn digits(mut value: f64) -> Option<(u32, i32)> {
    let mut exponent = 0;
    while value.fract() != 0.0 {
        value *= 10.0;
        exponent += 1;
    }
    (value <= f64::from(u32::MAX)).then_some((value as u32, exponent))
}

/// The neighbour of a positive `multipleOf` that llguidance converts to the decimal digits of the
/// latter.
fn convertible(step: f64) -> Option<f64> {
    let means = |near: &f64| {
        let Some((digits, exponent @ ..=MAX_EXPONENT)) = digits(*near) else { return false };
        format!("{digits}e-{exponent}").parse() == Ok(step)
    };
    let bits = step.to_bits();
    let near = (1..=NEIGHBOURS).flat_map(|by| [bits.saturating_add(by), bits.saturating_sub(by)]);
    near.map(f64::from_bits).filter(|near| near.is_finite()).find(means)
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
        assert_eq!(narrow(&mut schema), Ok(true));
        assert_eq!(schema, json!({"items": {"exclusiveMinimum": 1e-9, "maximum": 0.5}}));
        let mut schema = json!({"exclusiveMaximum": 0, "minimum": -0.5});
        assert_eq!(narrow(&mut schema), Ok(true));
        assert_eq!(schema, json!({"exclusiveMaximum": -1e-9, "minimum": -0.5}));
    }

    #[test]
    fn bounds_beyond_exact_integers_move_inwards() {
        for (key, bound, inside) in [
            ("minimum", (1u64 << 53) + 1, (1u64 << 53) + 2),
            ("maximum", (1 << 53) + 1, 1 << 53),
            ("maximum", (1 << 53) + 4, (1 << 53) + 4),
            ("exclusiveMaximum", (1 << 53) + 3, (1 << 53) + 2),
            ("exclusiveMaximum", (1 << 53) + 2, 1 << 53),
            ("exclusiveMinimum", (1 << 53) + 1, (1 << 53) + 2),
            ("exclusiveMinimum", (1 << 53) + 4, (1 << 53) + 6),
        ] {
            let mut schema = json!({key: bound});
            assert_eq!(narrow(&mut schema), Ok(true));
            let inclusive = if key.ends_with("inimum") { "minimum" } else { "maximum" };
            assert_eq!(schema, json!({inclusive: inside as f64}), "{key} {bound}");
        }
        // The tighter one of two bounds.
        let mut schema = json!({"minimum": (1u64 << 53) + 8, "exclusiveMinimum": 1u64 << 53});
        assert_eq!(narrow(&mut schema), Ok(true));
        assert_eq!(schema, json!({"minimum": ((1u64 << 53) + 8) as f64}));
        let mut schema = json!({"minimum": -(1i64 << 53) - 1});
        assert_eq!(narrow(&mut schema), Ok(true));
        assert_eq!(schema, json!({"minimum": -((1u64 << 53) as f64)}));
    }

    #[test]
    fn values_beyond_exact_integers_are_refused() {
        for schema in [
            json!({"const": u64::MAX}),
            json!({"enum": [1, i64::MIN]}),
            json!({"properties": {"a": {"const": [{"x": (1u64 << 53) + 1}]}}}),
            json!({"const": 18446744073709551617.0}),
        ] {
            let error = narrow(&mut schema.clone()).unwrap_err();
            assert!(error.contains("from 2^53"), "{error}");
        }
        assert_eq!(narrow(&mut json!({"const": (1u64 << 53) - 1})), Ok(false));
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
            assert_eq!(narrow(&mut schema.clone()), Ok(false), "{schema}");
        }
    }

    #[test]
    fn distant_bounds_are_narrowed_or_refused() {
        let mut schema = json!({"minimum": -1e308, "exclusiveMaximum": f64::MAX});
        assert_eq!(narrow(&mut schema), Ok(true));
        assert_eq!(schema, json!({"minimum": -9.2e18, "exclusiveMaximum": 9.2e18}));
        let mut schema = json!({"properties": {"a": {"maximum": u64::MAX, "minimum": 1}}});
        assert_eq!(narrow(&mut schema), Ok(true));
        assert_eq!(schema, json!({"properties": {"a": {"maximum": 9.2e18, "minimum": 1}}}));
        for schema in [json!({"minimum": 1e19}), json!({"items": {"exclusiveMaximum": -1e300}})] {
            let error = narrow(&mut schema.clone()).unwrap_err();
            assert!(error.contains("9.2e18"), "{error}");
        }
    }

    /// A neighbour is used only if its decimal digits are exactly those of the schema.
    #[test]
    fn steps_become_convertible() {
        assert_eq!([0.25, 3.0, 0.0, 0.1].map(digits), [(25, 2), (3, 0), (0, 0), (1, 1)].map(Some));
        assert_eq!(digits(0.0007), None);
        assert_eq!(convertible(0.0007).map(digits), Some(Some((7, 4))));
        let mut found = 0;
        for step in 1..20_000 {
            let value = f64::from(step) / 1e4;
            if digits(value).is_none()
                && let Some(near) = convertible(value)
            {
                let (digits, exponent) = digits(near).unwrap();
                assert_eq!(f64::from(digits) / 10f64.powi(exponent), value);
                found += 1;
            }
        }
        assert!(found > 2000, "{found}");
        let error = narrow(&mut json!({"items": {"multipleOf": 0}})).unwrap_err();
        assert!(error.contains("greater than 0"), "{error}");
        let error = narrow(&mut json!({"multipleOf": 0.0021})).unwrap_err();
        assert!(error.contains("0.0021"), "{error}");
        assert_eq!([1e-300, f64::MIN_POSITIVE, 0.1234567890123].map(convertible), [None; 3]);
    }
}
