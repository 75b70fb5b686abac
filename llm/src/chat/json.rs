//! The filter `tojson`.

use super::limits::charge_bytes;
use super::python;
use minijinja::value::{Kwargs, ValueKind};
use minijinja::{ErrorKind, Value};
use std::sync::Arc;

/// Maximum nesting depth; JSON parsers accept less.
const MAX_DEPTH: usize = 1000;

/// Writes JSON like Python's `json.dumps`, which Hugging Face's templates rely on: with a space
/// after each comma and colon, or with line breaks and indentation, and with non-ASCII characters
/// unescaped.
pub(super) fn tojson(
    value: &Value,
    indent: Option<usize>,
    options: Kwargs,
) -> Result<Value, minijinja::Error> {
    let indent = indent.or(options.get::<Option<usize>>("indent")?);
    let separators = match options.get::<Option<Vec<String>>>("separators")?.as_deref() {
        Some([comma, colon]) => [comma.clone(), colon.clone()],
        Some(_) => {
            let message = "'separators' should be a pair: item separator and key separator";
            return Err(minijinja::Error::new(ErrorKind::InvalidOperation, message));
        }
        None => [if indent.is_some() { "," } else { ", " }, ": "].map(Into::into),
    };
    // Unknown options are errors; `ensure_ascii` is accepted and ignored.
    options.get::<Option<bool>>("ensure_ascii")?;
    options.assert_all_used()?;
    let indent = indent.map(|indent| indent.min(16));
    let separators = separators.map(Into::into);
    let mut json = Json { separators, indent, text: String::new() };
    json.write(value, 0)?;
    Ok(Value::from_safe_string(json.text))
}

/// As `json.dumps`, which has names for NaN and infinities.
fn number(value: &Value) -> String {
    match python::number(value).as_str() {
        "nan" => "NaN".into(),
        "inf" => "Infinity".into(),
        "-inf" => "-Infinity".into(),
        number => number.into(),
    }
}

/// JSON writer.
struct Json {
    /// Separators between items, and between key and value.
    separators: [Arc<str>; 2],
    indent: Option<usize>,
    text: String,
}

impl Json {
    /// Charges for bytes before they are written: nested lists can be larger than memory.
    fn pay(&self, bytes: usize) -> Result<(), minijinja::Error> {
        charge_bytes(bytes)
    }

    fn push(&mut self, piece: &str) -> Result<(), minijinja::Error> {
        self.pay(piece.len())?;
        self.text.push_str(piece);
        Ok(())
    }

    fn push_text(&mut self, text: &str) -> Result<(), minijinja::Error> {
        // Charged before the copy is allocated.
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

    /// Writes the separator and line break before an item.
    fn begin(&mut self, is_first: bool, depth: usize) -> Result<(), minijinja::Error> {
        if !is_first {
            let comma = Arc::clone(&self.separators[0]);
            self.push(&comma)?;
        }
        self.end_line(depth)
    }

    /// Writes a value at nesting level `depth`.
    fn write(&mut self, value: &Value, depth: usize) -> Result<(), minijinja::Error> {
        if depth > MAX_DEPTH {
            let message = format!("lists and maps are nested more than {MAX_DEPTH} levels deep");
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
                let message = format!("{kind} cannot be written as JSON");
                return Err(minijinja::Error::new(ErrorKind::BadSerialization, message));
            }
        };
        if !self.text.ends_with(['{', '[']) {
            self.end_line(depth)?;
        }
        self.push(close)
    }
}
