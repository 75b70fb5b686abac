//! Python semantics of values, which Hugging Face's templates expect.

use super::fields::{Fields, Style};
use super::limits::{
    charge_bytes, charge_contents, charge_part, charge_read, charge_text, each_part,
};
use minijinja::value::{Kwargs, ObjectRepr, Rest, Tuple, ValueKind, ValueOrKwargs};
use minijinja::{Error, ErrorKind, State, Value};

/// `str(value)`. Fuel is charged before the text is created.
pub(super) fn text(value: &Value) -> Result<Value, Error> {
    if value.kind() == ValueKind::String {
        return Ok(value.clone());
    }
    charge_text(value)?;
    let mut text = String::new();
    if !value.is_undefined() {
        represent(value, &mut text)?;
    }
    Ok(text.into())
}

/// `repr(value)`.
fn represent(value: &Value, text: &mut String) -> Result<(), Error> {
    let (open, close) = match value.kind() {
        ValueKind::Map => ('{', '}'),
        _ if value.is_tuple() => ('(', ')'),
        ValueKind::Seq => ('[', ']'),
        kind => {
            match kind {
                ValueKind::Undefined => text.push_str("Undefined"),
                ValueKind::None => text.push_str("None"),
                ValueKind::Bool => text.push_str(if value.is_true() { "True" } else { "False" }),
                ValueKind::Number => text.push_str(&number(value)),
                ValueKind::String => quote(value.as_str().unwrap_or_default(), text),
                _ => text.push_str(&value.to_string()),
            }
            return Ok(());
        }
    };
    let mut count = 0;
    text.push(open);
    for part in value.try_iter()? {
        if count > 0 {
            text.push_str(", ");
        }
        count += 1;
        represent(&part, text)?;
        if open == '{' {
            text.push_str(": ");
            represent(&value.get_item(&part)?, text)?;
        }
    }
    if open == '(' && count == 1 {
        text.push(',');
    }
    text.push(close);
    Ok(())
}

/// Formats a number like `str` and `json.dumps`, except for NaN and infinities.
pub(super) fn number(value: &Value) -> String {
    match value.is_integer() {
        true => value.to_string(),
        false => f64::try_from(value.clone()).map_or_else(|_| value.to_string(), float),
    }
}

/// The shortest representation that round-trips, with an exponent if Python writes one.
fn float(number: f64) -> String {
    if !number.is_finite() {
        return if number.is_nan() { "nan".into() } else { format!("{number}") };
    }
    let digits = format!("{number:e}");
    let Some((mantissa, exponent)) = digits.split_once('e') else { return digits };
    match exponent.parse::<i32>() {
        Ok(power) if (-4..16).contains(&power) || number == 0.0 => format!("{number:?}"),
        Ok(power) => {
            let sign = if power < 0 { '-' } else { '+' };
            format!("{mantissa}e{sign}{:02}", power.unsigned_abs())
        }
        Err(_) => digits,
    }
}

/// Quotes a string with single quotes, unless it contains those and no double quotes.
fn quote(value: &str, text: &mut String) {
    let quote = if value.contains('\'') && !value.contains('"') { '"' } else { '\'' };
    text.push(quote);
    for character in value.chars() {
        match character {
            '\\' => text.push_str("\\\\"),
            '\n' => text.push_str("\\n"),
            '\r' => text.push_str("\\r"),
            '\t' => text.push_str("\\t"),
            character if character == quote => text.extend(['\\', quote]),
            character if character.is_control() || character == '\u{ad}' => {
                text.push_str(&format!("\\x{:02x}", u32::from(character)));
            }
            character => text.push(character),
        }
    }
    text.push(quote);
}

/// The filter `join`: joins items, or an attribute of each, converted with `str`.
pub(super) fn join(
    value: &Value,
    joiner: Option<&str>,
    attribute: Option<&Value>,
    options: Kwargs,
) -> Result<Value, Error> {
    let (d, named) =
        (options.get::<Option<&str>>("d")?, options.get::<Option<&Value>>("attribute")?);
    options.assert_all_used()?;
    join_by(value, joiner.or(d).unwrap_or_default(), attribute.or(named))
}

fn join_by(value: &Value, joiner: &str, attribute: Option<&Value>) -> Result<Value, Error> {
    let mut joined = String::new();
    if value.is_undefined() {
        return Ok(joined.into());
    }
    for (number, mut part) in value.try_iter()?.enumerate() {
        if let Some(attribute) = attribute {
            part = field(part, attribute)?;
        }
        let part = text(&part)?;
        let part = part.as_str().unwrap_or_default();
        let joiner = if number > 0 { joiner } else { "" };
        charge_bytes(joiner.len().saturating_add(part.len()))?;
        joined.push_str(joiner);
        joined.push_str(part);
    }
    Ok(joined.into())
}

/// An item by key, or a dotted path of attributes.
fn field(value: Value, path: &Value) -> Result<Value, Error> {
    let Some(path) = path.as_str() else { return value.get_item(path) };
    path.split('.').try_fold(value, |value, name| match name.parse::<usize>() {
        Ok(at) => value.get_item_by_index(at),
        Err(_) => value.get_attr(name),
    })
}

/// Methods of strings whose result is at most a few times as long as the string, or a list of its
/// parts. minijinja charges fuel for them.
const STRING_METHODS: [&str; 21] = [
    "capitalize",
    "count",
    "endswith",
    "find",
    "isalnum",
    "isalpha",
    "isascii",
    "isdigit",
    "islower",
    "isnumeric",
    "isspace",
    "isupper",
    "lower",
    "lstrip",
    "rfind",
    "rstrip",
    "split",
    "splitlines",
    "startswith",
    "strip",
    "title",
];
/// Methods of maps and lists that copy nothing.
const MAP_METHODS: [&str; 4] = ["get", "items", "keys", "values"];
const LIST_METHODS: [&str; 1] = ["count"];

/// Methods of Python's types: `join` as above, others from minijinja. Methods that are not listed
/// here are rejected, so that no method of a newer minijinja allocates without charging fuel.
pub(super) fn method(
    state: &mut State<'_, '_>,
    value: &Value,
    name: &str,
    args: &[Value],
) -> Result<Value, Error> {
    for argument in args {
        charge_text(argument)?;
    }
    match (name, value.as_str(), args) {
        ("join", Some(joiner), [parts]) => return join_by(parts, joiner, None),
        ("removeprefix", Some(text), [prefix]) => {
            let prefix = prefix.as_str().unwrap_or_default();
            return Ok(text.strip_prefix(prefix).unwrap_or(text).into());
        }
        ("removesuffix", Some(text), [suffix]) => {
            let suffix = suffix.as_str().unwrap_or_default();
            return Ok(text.strip_suffix(suffix).unwrap_or(text).into());
        }
        ("format", Some(text), _) => charge_format(text, Style::Braces, args)?,
        ("replace", Some(text), [old, new, count @ ..]) => {
            let count = count.first().and_then(|count| usize::try_from(count.clone()).ok());
            charge_replacements(text, old, new, count)?;
        }
        ("upper", Some(_), _) => {}
        _ => {
            let known: &[&str] = match value.kind() {
                ValueKind::String => &STRING_METHODS,
                ValueKind::Map => &MAP_METHODS,
                ValueKind::Seq => &LIST_METHODS,
                _ => &[],
            };
            if !known.contains(&name) {
                return Err(Error::from(ErrorKind::UnknownMethod));
            }
        }
    }
    minijinja_contrib::pycompat::unknown_method_callback(state, value, name, args)
}

/// Charges fuel for the growth of a text by `replace`.
fn charge_replacements(
    text: &str,
    old: &Value,
    new: &Value,
    count: Option<usize>,
) -> Result<(), Error> {
    let (Some(old), Some(new)) = (old.as_str(), new.as_str()) else { return Ok(()) };
    let growth = new.len().saturating_sub(old.len());
    if growth == 0 {
        return Ok(());
    }
    let found = text.matches(old).take(count.unwrap_or(usize::MAX)).count();
    charge_bytes(found.saturating_mul(growth))
}

/// Charges fuel for the maximum output of a format string before it is written: the longest
/// argument for each field, plus all widths and precisions.
fn charge_format(text: &str, style: Style, args: &[Value]) -> Result<(), Error> {
    /// Maximum length of a number: 1.8e308 with all digits and separators.
    const MAX_NUMBER_LEN: usize = 420;
    /// Maximum bytes of a fill character.
    const MAX_FILL_LEN: usize = 4;
    /// Maximum width of a field: Rust's formatter accepts no larger precision.
    const MAX_WIDTH: usize = 65_535;
    let fields = Fields::of(text, style);
    if fields.largest > MAX_WIDTH {
        let message = format!(
            "a field of '{}' is wider than {MAX_WIDTH}",
            text.chars().take(40).collect::<String>()
        );
        return Err(Error::new(ErrorKind::InvalidOperation, message));
    }
    let mut longest = MAX_NUMBER_LEN;
    for argument in args {
        charge_text(argument)?;
        let written = argument.as_str().map_or_else(|| argument.to_string().len(), str::len);
        longest = longest.max(written);
    }
    let filling = fields.sum.saturating_mul(MAX_FILL_LEN);
    charge_bytes(fields.count.saturating_mul(longest).saturating_add(filling))
}

/// The filter `batch`, which pads the last list with copies of a value.
pub(super) fn batch(
    state: &State<'_, '_>,
    value: Value,
    count: usize,
    fill_with: Option<Value>,
) -> Result<Value, Error> {
    charged(state, minijinja::filters::batch(state, value, count, fill_with)?)
}

/// The filter `slice`, which pads like `batch`.
pub(super) fn slice(
    state: &State<'_, '_>,
    value: Value,
    count: usize,
    fill_with: Option<Value>,
) -> Result<Value, Error> {
    charged(state, minijinja::filters::slice(state, value, count, fill_with)?)
}

/// The filter `map`, which may repeat one value for every item.
pub(super) fn map(
    state: &mut State<'_, '_>,
    value: Value,
    args: Rest<ValueOrKwargs>,
) -> Result<Value, Error> {
    let mapped = minijinja::filters::map(state, value, args)?;
    charged(state, mapped.into())
}

/// The filter `sum`, restricted to numbers. minijinja would also add strings, which Python rejects,
/// and lists, with a copy for each item.
pub(super) fn sum(
    state: &State<'_, '_>,
    values: Value,
    attribute: Option<&str>,
    start: Option<Value>,
    options: Kwargs,
) -> Result<Value, Error> {
    let named = options.peek::<Option<Value>>("start")?;
    let is_sum = |start: &Value| matches!(start.kind(), ValueKind::Number | ValueKind::Bool);
    if start.iter().chain(&named).any(|start| !start.is_none() && !is_sum(start)) {
        let message = "sum: 'start' should be a number";
        return Err(Error::new(ErrorKind::InvalidOperation, message));
    }
    minijinja::filters::sum(state, values, attribute, start, options)
}

/// `raise_exception`, with which templates reject messages.
pub(super) fn raise_exception(message: &Value) -> Result<Value, Error> {
    let message = text(message)?;
    let message = message.as_str().unwrap_or_default().to_owned();
    Err(Error::new(ErrorKind::InvalidOperation, message))
}

/// Jinja's `dict`.
pub(super) fn dict(
    state: &State<'_, '_>,
    value: Option<Value>,
    fields: Kwargs,
) -> Result<Value, Error> {
    charged(state, minijinja::functions::dict(value, fields)?)
}

/// Jinja's `namespace`.
pub(super) fn namespace(
    state: &State<'_, '_>,
    fields: Option<ValueOrKwargs>,
) -> Result<Value, Error> {
    if let Some(fields) = &fields {
        charge_contents(state, fields)?;
    }
    minijinja::functions::namespace(fields)
}

/// Charges fuel for everything that a value contains, and returns it.
pub(super) fn charged(state: &State<'_, '_>, value: Value) -> Result<Value, Error> {
    charge_contents(state, &value).map(|()| value)
}

/// Charges fuel for everything in a value that a namespace is to keep, and returns it.
///
/// A namespace that contained itself would nest without end, so none may be in the value, nor
/// anything through which one could get there later: functions and loops are refused, and lists
/// that are computed when they are read are copied.
pub(super) fn kept(state: &State<'_, '_>, value: Value) -> Result<Value, Error> {
    check_kept(&value)?;
    each_part(&value, &mut |part| {
        charge_part(state, part)?;
        check_kept(part)
    })?;
    Ok(copied(&value)?.unwrap_or(value))
}

/// Refuses what a namespace cannot keep.
fn check_kept(value: &Value) -> Result<(), Error> {
    let refuse = |what: &str| {
        let message = format!("a field of a namespace cannot be or contain {what}");
        Err(Error::new(ErrorKind::InvalidOperation, message))
    };
    let Some(object) = value.as_object() else { return Ok(()) };
    let types = ["Namespace", "Loop", "Macro", "Closure"];
    let name = object.type_name().rsplit("::").next().unwrap_or_default();
    match object.repr() {
        ObjectRepr::Plain => refuse("a function"),
        _ if types.contains(&name) => refuse("a namespace, loop or macro"),
        _ => Ok(()),
    }
}

/// Copies a value with a list in it that is computed when it is read; `None` for other values.
fn copied(value: &Value) -> Result<Option<Value>, Error> {
    let mut is_changed = value.kind() == ValueKind::Iterable;
    let mut copy = |part: Value| -> Result<Value, Error> {
        let copy = copied(&part)?;
        is_changed |= copy.is_some();
        Ok(copy.unwrap_or(part))
    };
    let copy = match value.kind() {
        ValueKind::Map => {
            let mut fields = Vec::new();
            for key in value.try_iter()? {
                let field = value.get_item(&key)?;
                fields.push((copy(key)?, copy(field)?));
            }
            Value::from_pairs(fields)
        }
        ValueKind::Seq | ValueKind::Iterable => {
            let parts = value.try_iter()?.map(&mut copy).collect::<Result<Vec<Value>, Error>>()?;
            match value.is_tuple() {
                true => Value::from(Tuple::from(parts)),
                false => Value::from(parts),
            }
        }
        _ => return Ok(None),
    };
    Ok(is_changed.then_some(copy))
}

/// The tests `lower` and `upper`, which read all of the text.
pub(super) fn is_lower(state: &State<'_, '_>, value: &Value) -> Result<bool, Error> {
    charge_read(state, value.as_str().unwrap_or_default())?;
    Ok(minijinja::tests::is_lower(value))
}

pub(super) fn is_upper(state: &State<'_, '_>, value: &Value) -> Result<bool, Error> {
    charge_read(state, value.as_str().unwrap_or_default())?;
    Ok(minijinja::tests::is_upper(value))
}

/// The test `sequence`: values with a length.
pub(super) fn is_sequence(value: &Value) -> bool {
    matches!(value.kind(), ValueKind::Seq | ValueKind::String | ValueKind::Map)
}

/// The filter `format`.
pub(super) fn format(
    state: &mut State<'_, '_>,
    value: &Value,
    args: Rest<ValueOrKwargs>,
) -> Result<Value, Error> {
    let values: Vec<Value> = args.iter().map(|argument| (**argument).clone()).collect();
    charge_format(value.as_str().unwrap_or_default(), Style::Percent, &values)?;
    minijinja::filters::format(state, value, args)
}
