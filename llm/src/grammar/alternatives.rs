//! `oneOf`: alternatives of which exactly one has to hold.
//!
//! What may come next is known for `anyOf`. Where no value fits two of the alternatives, both mean
//! the same, so `oneOf` is written as `anyOf` there: alternatives of different types, with other
//! values of `const` and `enum`, or objects whose required properties are apart in this way, as
//! those with a discriminator are. References are followed. What cannot be shown in this way stays
//! as it is.

use super::parts;
use serde_json::{Map, Value};
use std::cell::Cell;

/// Comparisons for a schema: those of its alternatives are pairs, of which a schema of a megabyte
/// could have billions.
const STEPS: usize = 1 << 20;
/// Names, values or bytes that are looked at in one comparison without another step. Each pair of
/// alternatives may be compared with long lists and texts behind references.
const OF_STEP: usize = 64;
/// References and alternatives within one another that are followed.
const DEPTH: u32 = 24;
/// More alternatives than these are refused, as they are compared with one another again by who
/// reads the schema.
pub(super) const MAX_ALTERNATIVES: usize = 1000;

type Fields = Map<String, Value>;

/// Writes `oneOf` as `anyOf` wherever these are the same; whether anything changed. Fails where
/// there are too many alternatives.
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
            .all(|(at, one)| after(at).all(|other| self.apart(one, other, DEPTH)))
    }

    /// Takes steps. Once there are not as many, there are none for anything else either.
    fn charge(&self, steps: usize) -> bool {
        let left = self.steps.get().checked_sub(steps);
        self.steps.set(left.unwrap_or(0));
        left.is_some()
    }

    /// Takes steps for what is looked at beside the comparison itself.
    fn charge_for(&self, looked_at: usize) -> bool {
        self.charge(looked_at / OF_STEP)
    }

    /// Whether it is shown that no value fits both.
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

    /// The schema that a reference leads to. What stands beside a reference counts or not, as the
    /// version of schemas has it: here, it does not.
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
            let follows = self.follows && is_plain && self.charge_for(pointer.len());
            schema = follows.then(|| self.whole.pointer(pointer))??;
        }
        None
    }

    /// Whether one of the schemas that all have to hold is apart, or each of those of which one has
    /// to.
    fn parts_apart(&self, one: &Fields, other: &Value, depth: u32) -> bool {
        let is_apart = |part: &Value| self.apart(part, other, depth);
        let none_fits = |key| !list(one, key).is_empty() && list(one, key).iter().all(is_apart);
        list(one, "allOf").iter().any(is_apart) || none_fits("anyOf") || none_fits("oneOf")
    }

    /// Whether a property that one of them requires is something else in the other. What is no
    /// object has no properties to differ in.
    fn properties_apart(&self, one: &Fields, other: &Fields, depth: u32) -> bool {
        if self.types(one) != Some(OBJECT) && self.types(other) != Some(OBJECT) {
            return false;
        }
        let names = list(one, "required").iter().chain(list(other, "required"));
        let mut looked_at = 0;
        for key in names.filter_map(Value::as_str) {
            looked_at += 1 + key.len();
            if looked_at >= OF_STEP {
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

    /// Which types values may be of, if there are steps left to find out.
    fn types(&self, fields: &Fields) -> Option<u8> {
        let names = list(fields, "type").len();
        let values = values(fields).map_or(0, <[Value]>::len);
        self.charge_for(names.saturating_add(values)).then(|| types(fields))
    }

    fn values_apart(&self, one: &Fields, other: &Fields) -> bool {
        let (Some(one), Some(other)) = (values(one), values(other)) else { return false };
        // Each with each: of long lists, that would take long.
        one.len().saturating_mul(other.len()) <= MAX_ALTERNATIVES
            && one.iter().all(|value| other.iter().all(|other| self.differ(value, other)))
    }

    /// Whether two values are not the same, where that is easily seen: 1 and 1.0 are.
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

/// `anyOf` in the place of `oneOf`, or beside all else that has to hold, where there is one
/// already.
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

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// Comparing these took minutes to hours: each pair looked at all of `big`.
    #[test]
    fn comparing_ends_where_alternatives_refer_to_long_lists() {
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
        // With nothing long, all pairs are compared.
        let one = |at: usize| json!({"allOf": [{"$ref": "#/small"}, {"const": at}]});
        let all: Vec<Value> = (0..400).map(one).collect();
        let mut schema = json!({"oneOf": all, "small": {"type": ["null", "number"]}});
        assert_eq!(separate(&mut schema), Ok(true));
    }
}
