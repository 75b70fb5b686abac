//! Placeholders for images and sounds in message texts.

use crate::encoder::Input;
use crate::error::Error;
use std::collections::HashSet;

/// Placeholder for an image or a sound in message texts, until a template has rendered them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placeholder(String);

/// Unicode's object replacement character.
const OBJECT: &str = "\u{fffc}";
/// Ends a placeholder with a number.
const END: char = '\u{fffd}';

impl Placeholder {
    /// Creates a placeholder that occurs in none of `texts`: the object replacement character, with
    /// a number and a terminator if needed.
    ///
    /// Pass every text that a template may render, including names and functions. Texts that are
    /// joined later, such as the parts of a message, must be passed as one.
    pub fn not_in<'t>(texts: impl IntoIterator<Item = &'t str>) -> Self {
        let (mut is_there, mut taken) = (false, HashSet::new());
        for text in texts {
            for (at, _) in text.match_indices(OBJECT) {
                is_there = true;
                let rest = text.get(at + OBJECT.len()..).unwrap_or_default();
                let digits = rest.bytes().take(20).take_while(u8::is_ascii_digit).count();
                let (number, rest) = rest.split_at(digits);
                if rest.starts_with(END) {
                    taken.extend(number.parse::<u64>());
                }
            }
        }
        let free = (0..).find(|number| !taken.contains(number)).unwrap_or(0);
        Placeholder(if is_there { format!("{OBJECT}{free}{END}") } else { OBJECT.to_owned() })
    }

    /// Text of the placeholder.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Splits a prompt at its placeholders, and inserts images and sounds, each of one or several
    /// parts.
    ///
    /// # Errors
    /// The number of placeholders differs from the number of objects; the template may have dropped
    /// some.
    pub fn place<'p>(
        &self,
        prompt: &'p str,
        objects: &[Vec<Input<'p>>],
    ) -> Result<Vec<Input<'p>>, Error> {
        let (marks, found) = (prompt.matches(&self.0).count(), objects.len());
        if marks != found {
            let message =
                format!("the prompt has {marks} placeholders for {found} images and sounds");
            return Err(Error::Template { message });
        }
        let mut objects = objects.iter();
        let mut inputs = Vec::new();
        for text in prompt.split(&self.0) {
            if !text.is_empty() {
                inputs.push(Input::Text(text));
            }
            inputs.extend(objects.next().into_iter().flatten().cloned());
        }
        Ok(inputs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_replace_their_placeholders() {
        let mark = Placeholder::not_in([]);
        let objects = [
            vec![Input::Tokens(&[1])],
            vec![Input::Text("("), Input::Tokens(&[2]), Input::Tokens(&[3]), Input::Text(")")],
        ];
        let described = |prompt: &str| {
            let inputs = mark.place(prompt, &objects).map_err(|error| error.to_string())?;
            let describe = |input: &Input<'_>| match input {
                Input::Text(text) => (*text).to_owned(),
                Input::Tokens(tokens) => format!("{}", tokens[0]),
                _ => unreachable!("neither text nor tokens"),
            };
            Ok::<_, String>(inputs.iter().map(describe).collect::<Vec<_>>().join("|"))
        };
        assert_eq!(described(&format!("a{OBJECT}b{OBJECT}")).unwrap(), "a|1|b|(|2|3|)");
        assert_eq!(described(&format!("{OBJECT}{OBJECT}c")).unwrap(), "1|(|2|3|)|c");
        assert!(described(OBJECT).unwrap_err().contains("1 placeholders for 2 images"));
    }

    #[test]
    fn placeholders_occur_in_no_text() {
        let numbered = |number: u64| format!("{OBJECT}{number}\u{fffd}");
        let of = |texts: &[&str]| Placeholder::not_in(texts.iter().copied()).0;
        assert_eq!(of(&["a", ""]), OBJECT);
        assert_eq!(of(&["a", OBJECT]), numbered(0));
        assert_eq!(of(&[&format!("{}{OBJECT}5", numbered(0)), &numbered(1)]), numbered(2));
        assert_eq!(of(&[&format!("{OBJECT}99999999999999999999999\u{fffd}")]), numbered(0));
    }
}
