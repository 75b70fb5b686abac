//! Where schemas have others in them.

use serde_json::Value;

/// What a keyword's value is, where it has schemas.
#[derive(PartialEq)]
enum Form {
    /// Schemas by name.
    Named,
    /// A list of them.
    Listed,
    /// A schema.
    One,
}

fn form(key: &str, value: &Value) -> Option<Form> {
    match (key, value) {
        (
            "properties" | "patternProperties" | "dependentSchemas" | "$defs" | "definitions",
            Value::Object(_),
        ) => Some(Form::Named),
        ("allOf" | "anyOf" | "oneOf" | "prefixItems" | "items", Value::Array(_)) => {
            Some(Form::Listed)
        }
        (
            "items"
            | "additionalItems"
            | "additionalProperties"
            | "contains"
            | "not"
            | "if"
            | "then"
            | "else"
            | "propertyNames",
            _,
        ) => Some(Form::One),
        _ => None,
    }
}

/// The schemas in a keyword's value, and their names: what has the name of a keyword may be a
/// property, or part of a constant.
pub(super) fn of<'v>(key: &str, value: &'v Value) -> Vec<(Option<&'v str>, &'v Value)> {
    match (form(key, value), value) {
        (Some(Form::Named), Value::Object(all)) => {
            all.iter().map(|(name, schema)| (Some(name.as_str()), schema)).collect()
        }
        (Some(Form::Listed), Value::Array(all)) => {
            all.iter().map(|schema| (None, schema)).collect()
        }
        (Some(Form::One), schema) => vec![(None, schema)],
        _ => Vec::new(),
    }
}

/// The same, to be changed.
pub(super) fn of_mut<'v>(key: &str, value: &'v mut Value) -> Vec<&'v mut Value> {
    match (form(key, value), value) {
        (Some(Form::Named), Value::Object(all)) => all.values_mut().collect(),
        (Some(Form::Listed), Value::Array(all)) => all.iter_mut().collect(),
        (Some(Form::One), schema) => vec![schema],
        _ => Vec::new(),
    }
}
