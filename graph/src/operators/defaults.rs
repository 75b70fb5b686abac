//! Default values of parameters, from PyTorch's notation.

use super::{Kind, Parameter};
use crate::graph::Value;
use alloc::vec;

impl Kind {
    /// Converts a value to this kind, as PyTorch does: an integer to a list, for instance.
    pub(crate) fn coerced(self, value: Value<'_>) -> Value<'_> {
        match (self, value) {
            (Kind::Float | Kind::OptionalFloat, Value::Int(number)) => Value::Double(number as f64),
            (Kind::Ints | Kind::OptionalInts, Value::Int(number)) => Value::IntList(vec![number]),
            (Kind::Floats | Kind::OptionalFloats, Value::Double(number)) => {
                Value::DoubleList(vec![number])
            }
            (Kind::Floats | Kind::OptionalFloats, Value::IntList(items)) => {
                Value::DoubleList(items.iter().map(|item| *item as f64).collect())
            }
            (Kind::Float | Kind::OptionalFloat, Value::Bool(truth)) => {
                Value::Double(f64::from(u8::from(truth)))
            }
            (_, value) => value,
        }
    }
}

impl Parameter {
    /// Returns the default value; `None` if the parameter is required.
    pub fn default_value(&self) -> Option<Value<'static>> {
        let text = self.default?;
        let items = text.strip_prefix('[').and_then(|text| text.strip_suffix(']'));
        let value = match (text, items) {
            ("None", _) => Value::None,
            ("true", _) => Value::Bool(true),
            ("false", _) => Value::Bool(false),
            (_, Some(items)) => {
                let items = items.split(',').map(str::trim).filter(|item| !item.is_empty());
                Value::IntList(items.map(|item| item.parse().ok()).collect::<Option<_>>()?)
            }
            _ => match (text.strip_prefix('"'), text.parse::<i64>(), text.parse::<f64>()) {
                (Some(text), ..) => Value::String(text.strip_suffix('"')?.into()),
                (None, Ok(number), _) => Value::Int(number),
                (None, Err(_), Ok(number)) => Value::Double(number),
                _ => return None,
            },
        };
        Some(self.kind.coerced(value))
    }
}

#[cfg(test)]
mod tests {
    use crate::operators::Operator;

    #[test]
    fn all_defaults_of_all_operators_are_known() {
        for operator in Operator::all() {
            for parameter in operator.parameters() {
                let value = parameter.default_value();
                assert_eq!(value.is_some(), parameter.default.is_some(), "{operator:?}");
            }
        }
    }
}
