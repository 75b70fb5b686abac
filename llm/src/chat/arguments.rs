//! Additional variables of chat templates.

use super::template_value;
use crate::error::Error;
use minijinja::Value;
use std::collections::BTreeMap;

/// Maximum total size in bytes. Documents for retrieval are the largest values in practice.
const MAX_BYTES: usize = 1 << 20;
/// Reserved names.
const RESERVED: [&str; 3] = ["messages", "tools", "add_generation_prompt"];

/// Additional variables of a chat template, such as `enable_thinking`, `documents` or
/// `custom_tools`. Unused variables have no effect.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TemplateArguments {
    /// JSON texts. Parsed values would need tens of times the memory, and many requests may be
    /// queued.
    values: BTreeMap<String, String>,
}

fn fail<T>(message: impl Into<String>) -> Result<T, Error> {
    Err(Error::Template { message: message.into() })
}

impl TemplateArguments {
    /// Parses a JSON object: `{"enable_thinking": false}`.
    ///
    /// # Errors
    /// The text is not a JSON object, is too large, or contains a reserved name (`messages`,
    /// `tools`, `add_generation_prompt`).
    pub fn from_json(text: &str) -> Result<Self, Error> {
        let fields = match serde_json::from_str(text) {
            Ok(serde_json::Value::Object(fields)) => fields,
            Ok(_) => return fail("the template arguments should be a JSON object"),
            Err(error) => return fail(format!("the template arguments are not JSON: {error}")),
        };
        let mut arguments = TemplateArguments::default();
        for (name, value) in fields {
            arguments.insert(name, value.to_string())?;
        }
        Ok(arguments)
    }

    /// Sets a variable to a JSON value.
    ///
    /// # Errors
    /// The value is not JSON, or as [`from_json`](Self::from_json).
    pub fn set(&mut self, name: &str, json: &str) -> Result<(), Error> {
        match serde_json::from_str::<serde_json::Value>(json) {
            Ok(value) => self.insert(name.into(), value.to_string()),
            Err(error) => fail(format!("the template argument '{name}' is not JSON: {error}")),
        }
    }

    fn insert(&mut self, name: String, json: String) -> Result<(), Error> {
        let mut letters = name.chars();
        let begins = letters.next().is_some_and(|letter| letter == '_' || letter.is_alphabetic());
        if !begins || !letters.all(|letter| letter == '_' || letter.is_alphanumeric()) {
            return fail(format!(
                "'{name}' cannot be a template argument: it is not a variable name"
            ));
        }
        if RESERVED.contains(&name.as_str()) {
            return fail(format!("'{name}' cannot be a template argument: the name is reserved"));
        }
        self.values.insert(name, json);
        let bytes: usize = self.values.iter().map(|(name, json)| name.len() + json.len()).sum();
        if bytes > MAX_BYTES {
            return fail(format!(
                "the template arguments have {bytes} bytes, more than {MAX_BYTES}"
            ));
        }
        Ok(())
    }

    /// Adds those variables of `others` that are missing here.
    #[must_use]
    pub fn or(mut self, others: &TemplateArguments) -> Self {
        for (name, json) in &others.values {
            self.values.entry(name.clone()).or_insert_with(|| json.clone());
        }
        self
    }

    /// Whether no variable is set.
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// Converts to a template value.
    pub(super) fn to_value(&self) -> Value {
        Value::from_pairs(self.values.iter().map(|(name, json)| {
            // Validated by `set`.
            let value: serde_json::Value = serde_json::from_str(json).unwrap_or_default();
            (name.as_str(), template_value(&value))
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chat::{ChatTemplate, Message};

    fn render(template: &str, arguments: &str) -> Result<String, Error> {
        let arguments = TemplateArguments::from_json(arguments)?;
        let template = ChatTemplate::new(template, Some("<s>"), None)?;
        template.render_with(&[Message::new("user", "x")], &[], &arguments, true)
    }

    #[test]
    fn templates_have_their_arguments() {
        let thinking = "{% if enable_thinking is defined and enable_thinking is false %}no{% else %}yes{% endif %}";
        assert_eq!(render(thinking, "{}").unwrap(), "yes");
        assert_eq!(render(thinking, r#"{"enable_thinking": true}"#).unwrap(), "yes");
        assert_eq!(render(thinking, r#"{"enable_thinking": false}"#).unwrap(), "no");
        let several = "{{ bos_token }}{% for d in documents %}{{ d.title }} {{ d.n | tojson }}{% endfor %}{{ none is none }}";
        let documents = r#"{"documents": [{"title": "a", "n": 1.5}, {"title": "é", "n": null}], "bos_token": "!"}"#;
        assert_eq!(render(several, documents).unwrap(), "!a 1.5é nullTrue");
        assert_eq!(
            render("{{ documents is defined }} {{ documents is none }}", "{}").unwrap(),
            "True True"
        );
    }

    #[test]
    fn invalid_arguments_are_rejected() {
        for (arguments, expected) in [
            ("[]", "object"),
            ("{", "not JSON"),
            (r#"{"messages": []}"#, "'messages'"),
            (r#"{"tools": []}"#, "'tools'"),
            (r#"{"add_generation_prompt": false}"#, "'add_generation_prompt'"),
            (r#"{"": 1}"#, "''"),
            (r#"{"a b": 1}"#, "'a b'"),
            (r#"{"1a": 1}"#, "'1a'"),
        ] {
            let error = TemplateArguments::from_json(arguments).unwrap_err().to_string();
            assert!(error.contains(expected), "{arguments}: {error}");
        }
        let mut arguments = TemplateArguments::default();
        assert!(arguments.set("a", "b").unwrap_err().to_string().contains("'a' is not JSON"));
        assert!(arguments.set("a", "\"b\"").is_ok() && arguments.set("tools", "1").is_err());
        let long = format!("\"{}\"", "x".repeat(MAX_BYTES));
        assert!(arguments.set("b", &long).unwrap_err().to_string().contains("bytes"));
    }

    #[test]
    fn earlier_arguments_take_precedence() {
        let of = |text: &str| TemplateArguments::from_json(text).unwrap();
        let both = of(r#"{"a": 1, "b": 2}"#).or(&of(r#"{"b": 3, "c": 4}"#));
        assert_eq!(both, of(r#"{"a": 1, "b": 2, "c": 4}"#));
        assert!(!both.is_empty() && of("{}").is_empty());
    }

    /// Nested or long values consume fuel when they are accessed.
    #[test]
    fn arguments_consume_fuel() {
        let nested = format!("{}{}", "[".repeat(100), "]".repeat(100));
        let json = format!(r#"{{"a": {nested}}}"#);
        assert_eq!(render("{{ a | tojson }}", &json).unwrap(), nested);
        assert!(
            TemplateArguments::from_json(&format!(
                r#"{{"a": {}{}}}"#,
                "[".repeat(9999),
                "]".repeat(9999)
            ))
            .is_err()
        );
        let many = format!(r#"{{"a": [{}0]}}"#, "0,".repeat(400_000));
        let loops = "{% for i in range(90) %}{% for x in a %}{% endfor %}{% endfor %}";
        assert!(render(loops, &many).is_err());
    }
}
