//! Generated tables in pages of the repository, between comments that name them.

use crate::process::root;
use anyhow::{Context, Result};
use std::ops::Range;

/// The boards' page.
pub(crate) const BOARDS: &str = "boards/README.md";

/// Finds a section of a page: between `<!-- NAME -->` and `<!-- end of NAME -->`.
fn place(text: &str, name: &str) -> Result<Range<usize>> {
    let (start, end) = (format!("<!-- {name} -->\n"), format!("<!-- end of {name} -->"));
    let lost = |what: &str| format!("the page has no `{what}`");
    let from = text.find(&start).with_context(|| lost(start.trim()))? + start.len();
    let to = from + text[from..].find(&end).with_context(|| lost(&end))?;
    Ok(from..to)
}

/// Rows of the table in a section, without its header.
pub(crate) fn rows(page: &str, name: &str) -> Result<Vec<String>> {
    let text = std::fs::read_to_string(root().join(page))?;
    let section = &text[place(&text, name)?];
    Ok(section.lines().filter(|line| line.starts_with('|')).skip(2).map(str::to_owned).collect())
}

/// Replaces a section.
pub(crate) fn replace(page: &str, name: &str, section: &str) -> Result<()> {
    let path = root().join(page);
    let text = std::fs::read_to_string(&path)?;
    let place = place(&text, name)?;
    let text = format!("{}\n{}\n{}", &text[..place.start], section.trim(), &text[place.end..]);
    Ok(std::fs::write(path, text)?)
}

/// Formats a number with thousands separators.
pub(crate) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sections_are_found_by_their_names() {
        let text = "<!-- a -->\none\n<!-- end of a -->\n<!-- b -->\n<!-- end of b -->\n";
        assert_eq!(&text[place(text, "a").unwrap()], "one\n");
        assert_eq!(&text[place(text, "b").unwrap()], "");
        assert!(place(text, "c").is_err() && place("<!-- a -->\n", "a").is_err());
    }

    #[test]
    fn thousands_are_apart() {
        assert_eq!([7, 1000, 1_234_567].map(grouped), ["7", "1,000", "1,234,567"]);
    }
}
