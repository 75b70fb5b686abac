//! Counts the fields of format strings, and sums up their widths and precisions.

use std::iter::Peekable;
use std::str::Chars;

/// Syntax of fields.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Style {
    /// `{}`, as in `str.format`.
    Braces,
    /// `%s`, as in the filter `format`.
    Percent,
}

/// Fields of a format string.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Fields {
    pub(super) count: usize,
    /// Sum of all widths and precisions.
    pub(super) sum: usize,
    /// Maximum width or precision.
    pub(super) largest: usize,
}

impl Fields {
    /// Parses a format string like its formatter does. After an invalid field, more fields may be
    /// counted than exist.
    pub(super) fn of(text: &str, style: Style) -> Self {
        let (mut fields, mut rest) = (Fields::default(), text.chars().peekable());
        let begin = if style == Style::Braces { '{' } else { '%' };
        while let Some(character) = rest.next() {
            // A doubled character is an escape.
            if character != begin || rest.next_if_eq(&begin).is_some() {
                continue;
            }
            fields.count += 1;
            match style {
                Style::Braces if !braces(&mut rest) => continue,
                Style::Braces => {}
                Style::Percent => percent(&mut rest),
            }
            fields.add(number(&mut rest));
            if style == Style::Braces {
                rest.next_if(|next| matches!(next, ',' | '_'));
            }
            if rest.next_if_eq(&'.').is_some() {
                fields.add(number(&mut rest));
            }
        }
        fields
    }

    fn add(&mut self, number: usize) {
        self.sum = self.sum.saturating_add(number);
        self.largest = self.largest.max(number);
    }
}

/// Advances to the width of a field in braces. Returns false if it has no format specification.
fn braces(rest: &mut Peekable<Chars<'_>>) -> bool {
    let mut in_key = false;
    loop {
        match rest.next() {
            // A key may contain any character.
            Some('[') => in_key = true,
            Some(']') => in_key = false,
            Some(':') if !in_key => break,
            Some('}') if !in_key => return false,
            Some(_) => {}
            None => return false,
        }
    }
    // Any character followed by an alignment is a fill character.
    let mut ahead = rest.clone();
    let is_alignment = |next: Option<char>| matches!(next, Some('<' | '>' | '^'));
    let first = ahead.next();
    match is_alignment(ahead.next()) {
        true => *rest = ahead,
        false if is_alignment(first) => drop(rest.next()),
        false => {}
    }
    rest.next_if(|next| matches!(next, '+' | '-' | ' '));
    rest.next_if_eq(&'#');
    true
}

/// Advances to the width of a field after a percent sign.
fn percent(rest: &mut Peekable<Chars<'_>>) {
    if rest.next_if_eq(&'(').is_some() {
        let _ = rest.find(|&next| next == ')');
    }
    while rest.next_if(|next| matches!(next, '#' | '0' | '-' | ' ' | '+')).is_some() {}
}

fn number(rest: &mut Peekable<Chars<'_>>) -> usize {
    let mut number = 0usize;
    while let Some(digit) = rest.peek().and_then(|next| next.to_digit(10)) {
        number = number.saturating_mul(10).saturating_add(digit as usize);
        rest.next();
    }
    number
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn widths_and_precisions_of_fields_are_found() {
        let found = |text, style| {
            let Fields { count, sum, largest } = Fields::of(text, style);
            (count, sum, largest)
        };
        for (text, expected) in [
            ("", (0, 0, 0)),
            ("Today: 20260101. {}", (1, 0, 0)),
            ("{{:9}} 1:2 <3 .4", (0, 0, 0)),
            ("{0} {1:5} {name.part[a:9]:>7.3f} {:020}", (4, 5 + 7 + 3 + 20, 20)),
            ("{:}>5}{:{<6}{:9^7}{:^8}{:<9,.2f}", (5, 5 + 6 + 7 + 8 + 9 + 2, 9)),
            ("{:+#010_.11}{: 4}", (2, 10 + 11 + 4, 11)),
            ("{{{:5}}}", (1, 5, 5)),
            ("{:99999999999999999999999}", (1, usize::MAX, usize::MAX)),
            ("{", (1, 0, 0)),
            ("{:", (1, 0, 0)),
        ] {
            assert_eq!(found(text, Style::Braces), expected, "{text}");
        }
        for (text, expected) in [
            ("100 %% of 20 {:9}", (0, 0, 0)),
            ("%s %5d %(a9)-7.3f %+#010x", (4, 5 + 7 + 3 + 10, 10)),
            ("%(a", (1, 0, 0)),
            ("%.99999999999999999999999f", (1, usize::MAX, usize::MAX)),
        ] {
            assert_eq!(found(text, Style::Percent), expected, "{text}");
        }
    }
}
