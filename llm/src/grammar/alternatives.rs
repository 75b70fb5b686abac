//! Rewrites `oneOf` (exactly one alternative matches) as `anyOf`.
//!
//! llguidance supports `anyOf`. If no value can match two alternatives, both keywords are
//! equivalent. This is proved for alternatives of different types, with disjoint `const` or `enum`
//! values, or for objects that differ in this way in a required property, such as a discriminator.
//! References are resolved. Other `oneOf`s are left as they are.

use super::parts;
use serde_json::{Map, Value};
use std::cell::Cell;

/// Step budget per schema. Alternatives are compared in pairs, and a schema of one megabyte could
/// have billions of pairs.
const MAX_STEPS: usize = 1 << 20;
/// Names, values or bytes that a comparison reads for one step. References can make every pair of
/// alternatives compare long lists and strings.
const ITEMS_PER_STEP: usize = 64;
/// Maximum depth of references and nested alternatives.
const MAX_DEPTH: u32 = 24;
/// Maximum number of alternatives. llguidance compares them in pairs, too.
pub(super) const MAX_ALTERNATIVES: usize = 1000;

type Fields = Map<String, Value>;

/// Rewrites `oneOf` as `anyOf` wherever they are equivalent. Returns whether anything changed, or
/// the number of alternatives if it is too large.
pub(super) fn separate(schema: &mut Value) -> Result<bool, usize> {
    let whole = schema.clone();
    // Below a nested `$id`, references are relative to it.
    let follows = !has_inner_identifier(&whole, true);
    let proof = Proof { whole: &whole, follows, steps: Cell::new(MAX_STEPS) };
    proof.visit(schema)
}

fn has_inner_identifier(value: &Value, outermost: bool) -> bool {
    match value {
        Value::Object(fields) => fields.iter().any(|(key, value)| {
            (!outermost && value.is_string() && (key == "$id" || key == "id"))
                || has_inner_identifier(value, false)
        }),
        Value::Array(items) => items.iter().any(|item| has_inner_identifier(item, false)),
        _ => false,
    }
}

struct Proof<'a> {
    whole: &'a Value,
    follows: bool,
    steps: Cell<usize>,
}

impl<'a> Proof<'a> {
    fn visit(&self, schema: &mut Value) -> Result<bool, usize> {
        let Value::Object(fields) = schema else { return Ok(false) };
        let mut changed = false;
        for (key, value) in fields.iter_mut() {
            let schemas = parts::of_mut(key, value);
            if key == "oneOf" && schemas.len() > MAX_ALTERNATIVES {
                return Err(schemas.len());
            }
            for schema in schemas {
                changed |= self.visit(schema)?;
            }
        }
        let are_apart =
            matches!(fields.get("oneOf"), Some(Value::Array(all)) if self.all_apart(all));
        if are_apart {
            changed = true;
            rewrite(fields);
        }
        Ok(changed)
    }

    fn all_apart(&self, alternatives: &[Value]) -> bool {
        let after = |at: usize| alternatives.iter().skip(at + 1);
        alternatives
            .iter()
            .enumerate()
            .all(|(at, one)| after(at).all(|other| self.apart(one, other, MAX_DEPTH)))
    }

    /// Charges steps. Once the budget is exceeded, it stays empty.
    fn charge(&self, steps: usize) -> bool {
        let left = self.steps.get().checked_sub(steps);
        self.steps.set(left.unwrap_or(0));
        left.is_some()
    }

    /// Charges steps for the size of a comparison.
    fn charge_for(&self, looked_at: usize) -> bool {
        self.charge(looked_at / ITEMS_PER_STEP)
    }

    /// Whether it is proved that no value matches both schemas.
    fn apart(&self, one: &Value, other: &Value, depth: u32) -> bool {
        let Some(depth) = depth.checked_sub(1).filter(|_| self.charge(1)) else { return false };
        let (Some(one), Some(other)) = (self.followed(one), self.followed(other)) else {
            return false;
        };
        if one == &Value::Bool(false) || other == &Value::Bool(false) {
            return true;
        }
        let (Value::Object(fields), Value::Object(others)) = (one, other) else { return false };
        self.types_apart(fields, others)
            || self.values_apart(fields, others)
            || self.properties_apart(fields, others, depth)
            || self.parts_apart(fields, other, depth)
            || self.parts_apart(others, one, depth)
    }

    /// Resolves a reference. Keywords beside `$ref` are ignored here; whether they count depends on
    /// the version of JSON Schema.
    fn followed<'v>(&self, mut schema: &'v Value) -> Option<&'v Value>
    where
        'a: 'v,
    {
        for _ in 0..MAX_DEPTH {
            let Some(reference) = schema.get("$ref") else { return Some(schema) };
            let pointer = reference.as_str()?.strip_prefix('#')?;
            // llguidance deviates from the specification for other pointers.
            let is_plain = pointer.is_empty()
                || pointer.len() > 1 && pointer.starts_with('/') && !pointer.contains(['%', '~']);
            let follows = self.follows && is_plain && self.charge_for(pointer.len());
            schema = follows.then(|| self.whole.pointer(pointer))??;
        }
        None
    }

    /// Whether `other` is disjoint from one of the `allOf` parts, or from every `anyOf` or `oneOf`
    /// alternative.
    fn parts_apart(&self, one: &Fields, other: &Value, depth: u32) -> bool {
        let is_apart = |part: &Value| self.apart(part, other, depth);
        let none_fits = |key| !list(one, key).is_empty() && list(one, key).iter().all(is_apart);
        list(one, "allOf").iter().any(is_apart) || none_fits("anyOf") || none_fits("oneOf")
    }

    /// Whether a property required by one schema is disjoint from that of the other. Only for
    /// objects: other values have no properties.
    fn properties_apart(&self, one: &Fields, other: &Fields, depth: u32) -> bool {
        if self.types(one) != Some(OBJECT) && self.types(other) != Some(OBJECT) {
            return false;
        }
        let names = list(one, "required").iter().chain(list(other, "required"));
        let mut looked_at = 0;
        for key in names.filter_map(Value::as_str) {
            looked_at += 1 + key.len();
            if looked_at >= ITEMS_PER_STEP {
                if !self.charge_for(looked_at) {
                    return false;
                }
                looked_at = 0;
            }
            if let (Some(one), Some(other)) = (property_of(one, key), property_of(other, key))
                && self.apart(one, other, depth)
            {
                return true;
            }
        }
        false
    }

    fn types_apart(&self, one: &Fields, other: &Fields) -> bool {
        matches!((self.types(one), self.types(other)), (Some(one), Some(other)) if one & other == 0)
    }

    /// Set of types that values may have. `None` if the step budget is exceeded.
    fn types(&self, fields: &Fields) -> Option<u8> {
        let names = list(fields, "type").len();
        let values = values(fields).map_or(0, <[Value]>::len);
        self.charge_for(names.saturating_add(values)).then(|| types(fields))
    }

    fn values_apart(&self, one: &Fields, other: &Fields) -> bool {
        let (Some(one), Some(other)) = (values(one), values(other)) else { return false };
        // Comparing all pairs of long lists would take too long.
        one.len().saturating_mul(other.len()) <= MAX_ALTERNATIVES
            && one.iter().all(|value| other.iter().all(|other| self.differ(value, other)))
    }

    /// Whether two values certainly differ. 1 and 1.0 are equal.
    fn differ(&self, one: &Value, other: &Value) -> bool {
        match (one, other) {
            (Value::Number(one), Value::Number(other)) => one.as_f64() != other.as_f64(),
            (Value::Array(_), Value::Array(_)) | (Value::Object(_), Value::Object(_)) => false,
            (Value::String(one), Value::String(other)) if one.len() == other.len() => {
                self.charge_for(one.len()) && one != other
            }
            (one, other) => one != other,
        }
    }
}

fn property_of<'v>(fields: &'v Fields, key: &str) -> Option<&'v Value> {
    fields.get("properties")?.get(key)
}

fn list<'v>(fields: &'v Fields, key: &str) -> &'v [Value] {
    fields.get(key).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

const OBJECT: u8 = 1;
const INTEGER: u8 = 1 << 1;
/// Numbers that are not integers.
const FRACTION: u8 = 1 << 2;
const ALL: u8 = 0x7f;

/// Set of types that values may have.
fn types(fields: &Fields) -> u8 {
    let named = |name: &Value| match name.as_str() {
        Some("object") => OBJECT,
        Some("integer") => INTEGER,
        Some("number") => INTEGER | FRACTION,
        Some("string") => 1 << 3,
        Some("boolean") => 1 << 4,
        Some("array") => 1 << 5,
        Some("null") => 1 << 6,
        _ => ALL,
    };
    let declared = match fields.get("type") {
        Some(Value::Array(names)) => names.iter().fold(0, |all, name| all | named(name)),
        Some(name) => named(name),
        None => ALL,
    };
    let of = |value: &Value| match value {
        Value::Object(_) => OBJECT,
        Value::Number(_) => INTEGER | FRACTION,
        Value::String(_) => 1 << 3,
        Value::Bool(_) => 1 << 4,
        Value::Array(_) => 1 << 5,
        Value::Null => 1 << 6,
    };
    declared
        & values(fields).map_or(ALL, |values| values.iter().fold(0, |all, value| all | of(value)))
}

/// Values that a schema lists with `const` or `enum`.
fn values(fields: &Fields) -> Option<&[Value]> {
    let one = fields.get("const").map(std::slice::from_ref);
    one.or_else(|| fields.get("enum")?.as_array().map(Vec::as_slice))
}

/// Replaces `oneOf` with `anyOf`, or adds it to `allOf` if `anyOf` exists already.
fn rewrite(fields: &mut Fields) {
    let has_any = fields.contains_key("anyOf");
    let mut beside = None;
    *fields = std::mem::take(fields)
        .into_iter()
        .filter_map(|(key, value)| match key.as_str() {
            "oneOf" if has_any => {
                beside = Some(value);
                None
            }
            "oneOf" => Some(("anyOf".into(), value)),
            _ => Some((key, value)),
        })
        .collect();
    if let Some(alternatives) = beside {
        let part = Value::Object(Map::from_iter([("anyOf".into(), alternatives)]));
        match fields.get_mut("allOf") {
            Some(Value::Array(parts)) => parts.push(part),
            // llguidance rejects other values.
            Some(_) => (),
            None => drop(fields.insert("allOf".into(), Value::Array(vec![part]))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// Comparing these took minutes to hours: each pair visited all of `big`.
    #[test]
    fn comparisons_of_long_alternatives_are_bounded() {
        let names: Vec<String> = (0..60_000).map(|at| format!("k{at}")).collect();
        let mut types = vec!["null"; 135_000];
        types.push("number");
        let big = [
            json!({"type": types}),
            json!({"enum": vec![0; 200_000]}),
            json!({"type": "object", "required": names, "properties": {}}),
            json!({"type": "object", "required": ["a".repeat(500_000)], "properties": {}}),
            json!({"enum": ["x".repeat(800_000)]}),
        ];
        let name = "a".repeat(400_000);
        let long = json!({"$ref": format!("#/{name}")});
        for big in big.into_iter().chain([long]) {
            let one = |at: usize| json!({"allOf": [{"$ref": "#/big"}, {"const": at}]});
            let all: Vec<Value> = (0..900).map(one).collect();
            let mut schema = json!({"oneOf": all, "big": big, name.as_str(): {}});
            assert_eq!(separate(&mut schema), Ok(false));
        }
        // Without long lists, all pairs are compared.
        let one = |at: usize| json!({"allOf": [{"$ref": "#/small"}, {"const": at}]});
        let all: Vec<Value> = (0..400).map(one).collect();
        let mut schema = json!({"oneOf": all, "small": {"type": ["null", "number"]}});
        assert_eq!(separate(&mut schema), Ok(true));
    }
}
