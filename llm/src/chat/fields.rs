//! Fields in the texts that `str.format` and the filter `format` fill in: how many there are, and
//! how much they ask for.

use std::iter::Peekable;
use std::str::Chars;

/// How fields are written.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Style {
    /// `{}`, as `str.format` has them.
    Braces,
    /// `%s`, as the filter `format` has them.
    Percent,
}

/// What the fields of a text ask for.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Fields {
    pub(super) count: usize,
    /// The sum of all widths and precisions.
    pub(super) sum: usize,
    /// The largest of them.
    pub(super) largest: usize,
}

impl Fields {
    /// Those of a text, as its reader finds them. Behind a field that it refuses, there may be
    /// more.
    pub(super) fn of(text: &str, style: Style) -> Self {
        let (mut fields, mut rest) = (Fields::default(), text.chars().peekable());
        let begin = if style == Style::Braces { '{' } else { '%' };
        while let Some(character) = rest.next() {
            // Two are a character of the text.
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

/// Goes to the width of a field in braces; whether it may have one.
fn braces(rest: &mut Peekable<Chars<'_>>) -> bool {
    let mut in_key = false;
    loop {
        match rest.next() {
            // A key may have any character.
            Some('[') => in_key = true,
            Some(']') => in_key = false,
            Some(':') if !in_key => break,
            Some('}') if !in_key => return false,
            Some(_) => {}
            None => return false,
        }
    }
    // What fills it up may be any character, where an alignment follows it.
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

/// Goes to the width of a field behind a per cent sign.
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
