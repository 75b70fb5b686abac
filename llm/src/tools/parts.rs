//! Incremental parsing of calls: the function name first, then the text of the arguments.

/// Result of parsing the start of a call.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Beginning {
    /// Not a call that can be reported incrementally.
    Other,
    /// Incomplete; it may become a call.
    Open,
    /// A call of the function `name`, whose arguments start at offset `arguments`.
    Call { name: String, arguments: usize },
}

/// Parses the start of a call: an object with the function name first, followed by the arguments.
/// Whitespace and the characters `in_front` may precede it.
pub(super) fn beginning(text: &str, names: &[String], in_front: &[char]) -> Beginning {
    let read = || -> Result<(String, usize), Beginning> {
        let rest = text.trim_start_matches(|c: char| c.is_whitespace() || in_front.contains(&c));
        let rest = behind(behind(behind(rest, &["{"])?, &["\"name\""])?, &[":"])?;
        let mut texts = serde_json::Deserializer::from_str(rest).into_iter::<String>();
        let name = match texts.next() {
            Some(Ok(name)) => name,
            Some(Err(error)) if !error.is_eof() => return Err(Beginning::Other),
            _ => return Err(Beginning::Open),
        };
        let rest = rest.get(texts.byte_offset()..).unwrap_or_default();
        if !names.contains(&name) {
            return Err(Beginning::Other);
        }
        let rest = behind(behind(rest, &[","])?, &["\"arguments\"", "\"parameters\""])?;
        let rest = behind(rest, &[":"])?.trim_start();
        behind(rest, &["{"])?;
        Ok((name, text.len() - rest.len()))
    };
    match read() {
        Ok((name, arguments)) => Beginning::Call { name, arguments },
        Err(other) => other,
    }
}

/// The text after whitespace and one of the expected tokens.
fn behind<'t>(text: &'t str, expected: &[&str]) -> Result<&'t str, Beginning> {
    let text = text.trim_start();
    match expected.iter().find_map(|one| text.strip_prefix(one)) {
        Some(rest) => Ok(rest),
        None if expected.iter().any(|one| one.starts_with(text)) => Err(Beginning::Open),
        None => Err(Beginning::Other),
    }
}

/// Nesting state of a JSON scanner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Nesting {
    depth: usize,
    is_text: bool,
    is_escaped: bool,
}

impl Nesting {
    /// Starts at a nesting depth.
    pub(super) fn within(depth: usize) -> Self {
        Nesting { depth, is_text: false, is_escaped: false }
    }

    /// Scans up to the end of the outermost value. Returns the scanned JSON without whitespace
    /// between tokens, and the rest of the text if the value ended.
    pub(super) fn pass<'t>(&mut self, text: &'t str) -> (String, Option<&'t str>) {
        let mut passed = String::with_capacity(text.len());
        for (at, character) in text.char_indices() {
            match character {
                _ if self.is_escaped => self.is_escaped = false,
                '\\' => self.is_escaped = self.is_text,
                '"' => self.is_text = !self.is_text,
                _ if self.is_text => {}
                '{' | '[' => self.depth += 1,
                '}' | ']' => self.depth = self.depth.saturating_sub(1),
                character if character.is_whitespace() => continue,
                _ => {}
            }
            passed.push(character);
            if self.depth == 0 {
                return (passed, text.get(at + character.len_utf8()..));
            }
        }
        (passed, None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_detected_by_their_start() {
        let names = ["f".to_owned(), "g".to_owned()];
        let text = "[ {\"name\" : \"g\",\n\"parameters\": {\"x\": 1}}]";
        let call = Beginning::Call { name: "g".into(), arguments: 31 };
        for end in 0..=text.len() {
            let found = beginning(&text[..end], &names, &['[']);
            assert_eq!(
                found,
                if end > 31 {
                    Beginning::Call { name: "g".into(), arguments: 31 }
                } else {
                    Beginning::Open
                }
            );
        }
        assert_eq!(beginning(text, &names, &['[']), call);
        for other in [
            text,
            "{\"type\": ",
            "{\"name\": \"h\"",
            "{\"name\": 1",
            "{\"name\": \"f\"}",
            "{\"name\": \"f\", \"arguments\": \"",
            "{\"name\": \"f\", \"id\"",
            "x",
        ] {
            assert_eq!(beginning(other, &names, &[]), Beginning::Other, "{other}");
        }
    }

    #[test]
    fn nested_objects_are_scanned() {
        let text = r#"{"a": "} \" {", "b": [{ }, 1]} , {"#;
        let mut nesting = Nesting::within(0);
        let (passed, rest) = nesting.pass(text);
        assert_eq!((passed.as_str(), rest), (r#"{"a":"} \" {","b":[{},1]}"#, Some(" , {")));
        assert_eq!(Nesting::within(1).pass(" 1 } x"), ("1}".into(), Some(" x")));
        assert_eq!(Nesting::within(1).pass("\" }").1, None);
    }
}
