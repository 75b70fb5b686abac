//! `oneOf`: alternatives of which exactly one has to hold.
//!
//! What may come next is known for `anyOf`. Where no value fits two of the alternatives, both mean the same, so `oneOf` is written as `anyOf` there:
//! alternatives of different types, with other values of `const` and `enum`, or objects whose required properties are apart in this way, as those
//! with a discriminator are. References are followed. What cannot be shown in this way stays as it is.

use super::parts;
use serde_json::{Map, Value};
use std::cell::Cell;

/// Comparisons for a schema: those of its alternatives are pairs, of which a schema of a megabyte could have billions.
const STEPS: u32 = 1 << 20;
/// References and alternatives within one another that are followed.
const DEPTH: u32 = 24;
/// More alternatives than these are refused, as they are compared with one another again by who reads the schema.
pub(super) const MAX_ALTERNATIVES: usize = 1000;

type Fields = Map<String, Value>;

/// Writes `oneOf` as `anyOf` wherever these are the same; whether anything changed. Fails where there are too many alternatives.
pub(super) fn separate(schema: &mut Value) -> Result<bool, usize> {
    let whole = schema.clone();
    // Below an identifier of their own, references are relative to that.
    let follows = !has_inner_identifier(&whole, true);
    let proof = Proof { whole: &whole, follows, steps: Cell::new(STEPS) };
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
    steps: Cell<u32>,
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
            .all(|(at, one)| after(at).all(|other| self.apart(one, other, DEPTH)))
    }

    /// Whether it is shown that no value fits both.
    fn apart(&self, one: &Value, other: &Value, depth: u32) -> bool {
        let (Some(left), Some(depth)) = (self.steps.get().checked_sub(1), depth.checked_sub(1))
        else {
            return false;
        };
        self.steps.set(left);
        let (Some(one), Some(other)) = (self.followed(one), self.followed(other)) else {
            return false;
        };
        if one == &Value::Bool(false) || other == &Value::Bool(false) {
            return true;
        }
        let (Value::Object(fields), Value::Object(others)) = (one, other) else { return false };
        types(fields) & types(others) == 0
            || values_apart(fields, others)
            || self.properties_apart(fields, others, depth)
            || self.parts_apart(fields, other, depth)
            || self.parts_apart(others, one, depth)
    }

    /// The schema that a reference leads to. What stands beside a reference counts or not, as the version of schemas has it: here, it does not.
    fn followed<'v>(&self, mut schema: &'v Value) -> Option<&'v Value>
    where
        'a: 'v,
    {
        for _ in 0..DEPTH {
            let Some(reference) = schema.get("$ref") else { return Some(schema) };
            let pointer = reference.as_str()?.strip_prefix('#')?;
            // Others are read in another way by the compiler than by the specification.
            let is_plain = pointer.is_empty()
                || pointer.len() > 1 && pointer.starts_with('/') && !pointer.contains(['%', '~']);
            schema = (self.follows && is_plain).then(|| self.whole.pointer(pointer))??;
        }
        None
    }

    /// Whether one of the schemas that all have to hold is apart, or each of those of which one has to.
    fn parts_apart(&self, one: &Fields, other: &Value, depth: u32) -> bool {
        let is_apart = |part: &Value| self.apart(part, other, depth);
        let none_fits = |key| !list(one, key).is_empty() && list(one, key).iter().all(is_apart);
        list(one, "allOf").iter().any(is_apart) || none_fits("anyOf") || none_fits("oneOf")
    }

    /// Whether a property that one of them requires is something else in the other. What is no object has no properties to differ in.
    fn properties_apart(&self, one: &Fields, other: &Fields, depth: u32) -> bool {
        if types(one) != OBJECT && types(other) != OBJECT {
            return false;
        }
        list(one, "required").iter().chain(list(other, "required")).filter_map(Value::as_str).any(
            |key| match (property_of(one, key), property_of(other, key)) {
                (Some(one), Some(other)) => self.apart(one, other, depth),
                _ => false,
            },
        )
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
/// Numbers that are no integers.
const FRACTION: u8 = 1 << 2;
const ALL: u8 = 0x7f;

/// Which types values may be of.
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

/// The values that a schema lists, if it does.
fn values(fields: &Fields) -> Option<&[Value]> {
    let one = fields.get("const").map(std::slice::from_ref);
    one.or_else(|| fields.get("enum")?.as_array().map(Vec::as_slice))
}

fn values_apart(one: &Fields, other: &Fields) -> bool {
    let (Some(one), Some(other)) = (values(one), values(other)) else { return false };
    // Each with each: of long lists, that would take long.
    one.len().saturating_mul(other.len()) <= MAX_ALTERNATIVES
        && one.iter().all(|value| other.iter().all(|other| differ(value, other)))
}

/// Whether two values are not the same, where that is easily seen: 1 and 1.0 are.
fn differ(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Number(one), Value::Number(other)) => one.as_f64() != other.as_f64(),
        (Value::Array(_), Value::Array(_)) | (Value::Object(_), Value::Object(_)) => false,
        (one, other) => one != other,
    }
}

/// `anyOf` in the place of `oneOf`, or beside all else that has to hold, where there is one already.
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
            // What is no list is refused by who reads it.
            Some(_) => (),
            None => drop(fields.insert("allOf".into(), Value::Array(vec![part]))),
        }
    }
}
