//! Constants of a program in C; equal ones are stored once.

use std::fmt::{Display, Write};

/// Constants by type.
#[derive(Default)]
pub(super) struct Constants {
    bytes: Vec<Vec<i8>>,
    ints: Vec<Vec<i32>>,
    words: Vec<Vec<u32>>,
    /// Bits of floats, which tell all values apart.
    floats: Vec<Vec<u32>>,
}

/// Maximum length of a line.
const WIDTH: usize = 100;

/// The name of a constant; a null pointer if it is empty.
fn name<T: PartialEq>(known: &mut Vec<Vec<T>>, prefix: &str, items: Vec<T>) -> String {
    if items.is_empty() {
        return "0".into();
    }
    let index = known.iter().position(|known| *known == items).unwrap_or_else(|| {
        known.push(items);
        known.len() - 1
    });
    format!("{prefix}_{index}")
}

impl Constants {
    /// An array of int8 values.
    pub(super) fn bytes(&mut self, data: &[u8]) -> String {
        name(&mut self.bytes, "tl_bytes", data.iter().map(|&byte| byte as i8).collect())
    }

    pub(super) fn ints(&mut self, ints: &[i32]) -> String {
        name(&mut self.ints, "tl_ints", ints.to_vec())
    }

    /// An array of words, whose first byte is the lowest.
    pub(super) fn words(&mut self, data: &[u8]) -> String {
        let words = data.as_chunks::<4>().0.iter().map(|word| u32::from_le_bytes(*word));
        name(&mut self.words, "tl_words", words.collect())
    }

    pub(super) fn floats(&mut self, values: &[f32]) -> String {
        name(&mut self.floats, "tl_floats", values.iter().map(|value| value.to_bits()).collect())
    }

    /// Bytes of all constants.
    pub(super) fn size(&self) -> usize {
        fn count<T>(arrays: &[Vec<T>]) -> usize {
            arrays.iter().map(Vec::len).sum::<usize>() * size_of::<T>()
        }
        count(&self.bytes) + count(&self.ints) + count(&self.words) + count(&self.floats)
    }

    /// The definitions.
    pub(super) fn write(&self, text: &mut String) {
        let float = |bits: &u32| float(f32::from_bits(*bits));
        arrays(text, "int8_t tl_bytes", &self.bytes, i8::to_string);
        // The literal of the least number would be the negation of one that does not fit.
        arrays(text, "int32_t tl_ints", &self.ints, int);
        arrays(text, "uint32_t tl_words", &self.words, |word| format!("{word:#x}u"));
        arrays(text, "float tl_floats", &self.floats, float);
    }
}

fn arrays<T>(text: &mut String, start: &str, arrays: &[Vec<T>], print: impl Fn(&T) -> String) {
    for (index, items) in arrays.iter().enumerate() {
        // Writing to a string does not fail.
        let _ = write!(text, "static const {start}_{index}[{}] = {{", items.len());
        list(text, items.iter().map(&print));
        text.push_str("};\n\n");
    }
}

/// Items in lines.
fn list(text: &mut String, items: impl Iterator<Item = impl Display>) {
    let mut column = WIDTH;
    for item in items {
        let item = format!("{item},");
        if column + item.len() > WIDTH {
            text.push_str("\n   ");
            column = 3;
        }
        text.push(' ');
        text.push_str(&item);
        column += item.len() + 1;
    }
    text.push('\n');
}

/// A literal of an `int32_t`.
pub(super) fn int(value: &i32) -> String {
    if *value == i32::MIN { "INT32_MIN".into() } else { value.to_string() }
}

/// A literal of a float: the shortest one that has the same value.
pub(super) fn float(value: f32) -> String {
    match value {
        _ if value.is_nan() => "NAN".into(),
        f32::INFINITY => "HUGE_VALF".into(),
        f32::NEG_INFINITY => "-HUGE_VALF".into(),
        _ => format!("{value:e}f"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn literals() {
        assert_eq!(float(0.1), "1e-1f");
        assert_eq!(float(-0.0), "-0e0f");
        assert_eq!(float(f32::MAX), "3.4028235e38f");
        assert_eq!(float(f32::NEG_INFINITY), "-HUGE_VALF");
        assert_eq!([int(&i32::MIN), int(&-7)], ["INT32_MIN", "-7"]);
    }

    #[test]
    fn equal_constants_are_stored_once() {
        let mut constants = Constants::default();
        assert_eq!(constants.bytes(&[1, 255]), "tl_bytes_0");
        assert_eq!(constants.bytes(&[1, 2]), "tl_bytes_1");
        assert_eq!(constants.bytes(&[1, 255]), "tl_bytes_0");
        assert_eq!(constants.words(&[1, 2, 0, 0]), "tl_words_0");
        assert_eq!((constants.ints(&[]), constants.size()), ("0".into(), 8));
        let mut text = String::new();
        constants.write(&mut text);
        assert!(
            text.starts_with("static const int8_t tl_bytes_0[2] = {\n    1, -1,\n};"),
            "{text}"
        );
        assert!(text.contains("uint32_t tl_words_0[1] = {\n    0x201u,\n};"), "{text}");
    }
}
