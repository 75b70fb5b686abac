//! Functions that a model may call, and a parser for calls in its output.

mod calls;
mod parts;

pub use calls::ToolCalls;

use crate::error::Error;
use serde_json::{Map, Value, json};

/// A function that a model may call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tool {
    name: String,
    /// JSON text. Parsed values would need tens of times the memory, and many requests may be
    /// queued.
    definition: String,
}

/// A function call in a model's output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolCall {
    /// Identifier, which a result refers to.
    pub id: String,
    /// Name of the function.
    pub name: String,
    /// Arguments: a JSON object.
    pub arguments: String,
}

/// A parsed part of a model's output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OutputPart {
    /// Text.
    Text(String),
    /// A complete call. Its `id` is empty; the caller assigns one.
    Call(ToolCall),
    /// Start of a call whose arguments follow ([`ToolCalls::in_parts`]).
    Begun(ToolCall),
    /// More of the arguments of the last started call.
    Arguments(String),
}

fn fail<T>(message: impl Into<String>) -> Result<T, Error> {
    Err(Error::Tool { message: message.into() })
}

impl Tool {
    /// Parses a function definition in the format of OpenAI's API and chat templates:
    /// `{"type": "function", "function": {"name": ..., "description": ..., "parameters": ...}}`,
    /// where `parameters` is a JSON schema of an object.
    ///
    /// # Errors
    /// The text is not a function definition.
    pub fn from_json(text: &str) -> Result<Self, Error> {
        let definition: Value = match serde_json::from_str(text) {
            Ok(definition) => definition,
            Err(error) => return fail(format!("it is not JSON: {error}")),
        };
        if definition["type"] != "function" {
            return fail("its 'type' should be 'function'");
        }
        let function = &definition["function"];
        let name = match function["name"].as_str() {
            Some(name) if !name.is_empty() => name.to_owned(),
            _ => return fail("'function.name' should be a non-empty string"),
        };
        match &function["parameters"] {
            Value::Null | Value::Object(_) => Ok(Tool { name, definition: definition.to_string() }),
            _ => fail(format!("'function.parameters' of '{name}' should be a JSON schema")),
        }
    }

    /// Name of the function.
    pub fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn definition(&self) -> Value {
        // Validated by `from_json`.
        serde_json::from_str(&self.definition).unwrap_or_default()
    }

    /// JSON schema of a call, to be embedded in another schema at the JSON pointer `place`.
    fn schema(&self, place: &str) -> Value {
        let mut definition = self.definition();
        let parameters = definition.pointer_mut("/function/parameters").map(Value::take);
        let mut parameters = match parameters {
            Some(Value::Object(parameters)) => parameters,
            _ => Map::new(),
        };
        parameters.entry("type").or_insert_with(|| "object".into());
        let mut parameters = Value::Object(parameters);
        move_references(&mut parameters, &format!("#{place}/properties/arguments"));
        json!({
            "type": "object",
            "properties": {"name": {"const": self.name}, "arguments": parameters},
            "required": ["name", "arguments"],
            "additionalProperties": false,
        })
    }

    /// JSON schema of a call of any of `tools`, for
    /// [`Grammar::json_schema`](crate::Grammar::json_schema). [`ToolCalls`] parses every text that
    /// it allows as a call.
    pub fn call_schema(tools: &[Tool]) -> String {
        match tools {
            [tool] => tool.schema("").to_string(),
            tools => {
                let each = tools.iter().enumerate();
                let schemas: Vec<Value> =
                    each.map(|(at, tool)| tool.schema(&format!("/anyOf/{at}"))).collect();
                json!({"anyOf": schemas}).to_string()
            }
        }
    }
}

/// Rebases local `$ref`s of a schema that is embedded in another one at the JSON pointer `place`.
fn move_references(schema: &mut Value, place: &str) {
    match schema {
        Value::Object(fields) => {
            for (name, value) in fields {
                match value {
                    Value::String(target) if name == "$ref" => {
                        if let Some(rest) = target.strip_prefix('#') {
                            *target = format!("{place}{rest}");
                        }
                    }
                    value => move_references(value, place),
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| move_references(item, place)),
        _ => {}
    }
}

impl ToolCall {
    /// Converts to a template value, in which the arguments are an object.
    pub(crate) fn to_value(&self) -> Result<Value, Error> {
        let arguments: Value = match serde_json::from_str(&self.arguments) {
            Ok(arguments @ Value::Object(_)) => arguments,
            _ => {
                return fail(format!(
                    "the arguments of a call of '{}' are not a JSON object",
                    self.name
                ));
            }
        };
        let function = json!({"name": self.name, "arguments": arguments});
        Ok(json!({"id": self.id, "type": "function", "function": function}))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) fn tools() -> Vec<Tool> {
        let tool = |name: &str| {
            let function = json!({
                "name": name,
                "parameters": {
                    "type": "object", "properties": {"x": {"$ref": "#/$defs/n"}},
                    "$defs": {"n": {"type": "integer"}}
                }
            });
            Tool::from_json(&json!({"type": "function", "function": function}).to_string()).unwrap()
        };
        vec![tool("f"), tool("g")]
    }

    #[test]
    fn functions_are_checked() {
        for text in [
            "",
            "[]",
            r#"{"type": "function"}"#,
            r#"{"type": "code", "function": {"name": "f"}}"#,
            r#"{"type": "function", "function": {"name": ""}}"#,
            r#"{"type": "function", "function": {"name": "f", "parameters": []}}"#,
        ] {
            assert!(Tool::from_json(text).is_err(), "{text}");
        }
        let plain = Tool::from_json(r#"{"type": "function", "function": {"name": "p"}}"#).unwrap();
        assert_eq!(plain.name(), "p");
    }

    #[test]
    fn schemas_keep_their_references() {
        let both: Value = serde_json::from_str(&Tool::call_schema(&tools())).unwrap();
        let reference = &both["anyOf"][1]["properties"]["arguments"]["properties"]["x"]["$ref"];
        let target = reference.as_str().unwrap().strip_prefix('#').unwrap();
        assert_eq!(both.pointer(target).unwrap(), &json!({"type": "integer"}));
        let one: Value = serde_json::from_str(&Tool::call_schema(&tools()[..1])).unwrap();
        assert_eq!(one["properties"]["name"]["const"], "f");
        let reference = one["properties"]["arguments"]["properties"]["x"]["$ref"].as_str().unwrap();
        assert!(one.pointer(reference.strip_prefix('#').unwrap()).is_some());
    }
}
