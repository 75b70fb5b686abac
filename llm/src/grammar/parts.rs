//! Subschemas of JSON schemas.

use serde_json::Value;

/// Structure of a keyword's value that contains subschemas.
#[derive(PartialEq)]
enum Form {
    /// Schemas by name.
    Named,
    /// A list of schemas.
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

/// Subschemas in a keyword's value, with their names. Other occurrences of keyword names are
/// property names or parts of constants.
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

/// As [`of`], mutably.
pub(super) fn of_mut<'v>(key: &str, value: &'v mut Value) -> Vec<&'v mut Value> {
    match (form(key, value), value) {
        (Some(Form::Named), Value::Object(all)) => all.values_mut().collect(),
        (Some(Form::Listed), Value::Array(all)) => all.iter_mut().collect(),
        (Some(Form::One), schema) => vec![schema],
        _ => Vec::new(),
    }
}
