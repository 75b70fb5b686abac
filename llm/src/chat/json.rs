//! JSON in templates.

use super::limits::pay_for_bytes;
use super::python;
use minijinja::value::{Kwargs, ValueKind};
use minijinja::{ErrorKind, Value};
use std::sync::Arc;

/// Levels of lists and maps: readers take fewer.
const MAX_DEPTH: usize = 1000;

/// JSON as Python's `json.dumps` writes it, which Hugging Face's templates count on: a space behind
/// each comma and colon, or as many in front of each line as are asked for, and characters as they
/// are.
pub(super) fn tojson(
    value: &Value,
    indent: Option<usize>,
    options: Kwargs,
) -> Result<Value, minijinja::Error> {
    let indent = indent.or(options.get::<Option<usize>>("indent")?);
    let separators = match options.get::<Option<Vec<String>>>("separators")?.as_deref() {
        Some([comma, colon]) => [comma.clone(), colon.clone()],
        Some(_) => {
            let message = "separators are what stands for a comma and what for a colon";
            return Err(minijinja::Error::new(ErrorKind::InvalidOperation, message));
        }
        None => [if indent.is_some() { "," } else { ", " }, ": "].map(Into::into),
    };
    // Others change nothing about what is written here.
    options.get::<Option<bool>>("ensure_ascii")?;
    options.assert_all_used()?;
    let indent = indent.map(|indent| indent.min(16));
    let separators = separators.map(Into::into);
    let mut json = Json { separators, indent, text: String::new() };
    json.write(value, 0)?;
    Ok(Value::from_safe_string(json.text))
}

/// As `json.dumps` writes it, which has names for what JSON has no numbers for.
fn number(value: &Value) -> String {
    match python::number(value).as_str() {
        "nan" => "NaN".into(),
        "inf" => "Infinity".into(),
        "-inf" => "-Infinity".into(),
        number => number.into(),
    }
}

/// A text in JSON, as it is written.
struct Json {
    /// What stands for a comma, and for a colon.
    separators: [Arc<str>; 2],
    indent: Option<usize>,
    text: String,
}

impl Json {
    /// Takes fuel for so many bytes: lists that hold others twice are longer than all memory after
    /// a few of these.
    fn pay(&self, bytes: usize) -> Result<(), minijinja::Error> {
        pay_for_bytes(bytes)
    }

    fn push(&mut self, piece: &str) -> Result<(), minijinja::Error> {
        self.pay(piece.len())?;
        self.text.push_str(piece);
        Ok(())
    }

    fn push_text(&mut self, text: &str) -> Result<(), minijinja::Error> {
        // Before there is a copy.
        self.pay(text.len())?;
        self.push(&serde_json::Value::from(text).to_string())
    }

    fn end_line(&mut self, depth: usize) -> Result<(), minijinja::Error> {
        let Some(indent) = self.indent else { return Ok(()) };
        let spaces = indent.saturating_mul(depth);
        self.pay(spaces)?;
        self.text.push('\n');
        self.text.extend(std::iter::repeat_n(' ', spaces));
        Ok(())
    }

    /// What stands in front of a part of a list or an object.
    fn begin(&mut self, is_first: bool, depth: usize) -> Result<(), minijinja::Error> {
        if !is_first {
            let comma = Arc::clone(&self.separators[0]);
            self.push(&comma)?;
        }
        self.end_line(depth)
    }

    /// Writes a value that is `depth` levels deep within others.
    fn write(&mut self, value: &Value, depth: usize) -> Result<(), minijinja::Error> {
        if depth > MAX_DEPTH {
            let message = format!("lists and maps are more than {MAX_DEPTH} levels deep");
            return Err(minijinja::Error::new(ErrorKind::BadSerialization, message));
        }
        let close = match value.kind() {
            ValueKind::None => return self.push("null"),
            ValueKind::Bool => return self.push(if value.is_true() { "true" } else { "false" }),
            ValueKind::Number => return self.push(&number(value)),
            ValueKind::String => return self.push_text(value.as_str().unwrap_or_default()),
            ValueKind::Map => {
                self.push("{")?;
                for (number, name) in value.try_iter()?.enumerate() {
                    self.begin(number == 0, depth + 1)?;
                    self.push_text(&name.to_string())?;
                    let colon = Arc::clone(&self.separators[1]);
                    self.push(&colon)?;
                    self.write(&value.get_item(&name)?, depth + 1)?;
                }
                "}"
            }
            ValueKind::Seq | ValueKind::Iterable => {
                self.push("[")?;
                for (number, item) in value.try_iter()?.enumerate() {
                    self.begin(number == 0, depth + 1)?;
                    self.write(&item, depth + 1)?;
                }
                "]"
            }
            kind => {
                let message = format!("{kind} has no form in JSON");
                return Err(minijinja::Error::new(ErrorKind::BadSerialization, message));
            }
        };
        if !self.text.ends_with(['{', '[']) {
            self.end_line(depth)?;
        }
        self.push(close)
    }
}
