//! Upper bound on the growth of texts.

use kitoken::{
    Decoding, DecodingReplacePattern, Definition, Normalization, NormalizationReplacePattern,
    UnicodeNormalization,
};

/// Maximum factors by which normalization lengthens a text, and decoding lengthens tokens.
pub(super) fn of(definition: &Definition, of_map: usize) -> (usize, usize) {
    // A regular expression may match between any two bytes, and `$` inserts the whole match.
    let of_text = |found: usize, replacement: &str| match found {
        0 => replacement.len() + 1,
        found => replacement.len().div_ceil(found).max(1),
    };
    let of_expression = |pattern: &str, replacement: &str| match replacement.matches('$').count() {
        0 if replacement.is_empty() => 1,
        0 => of_text(literal(pattern).unwrap_or(0), replacement),
        groups => replacement.len() + 1 + groups,
    };
    // Text appended at an end is added to the length so far. A part of a text, which has its own
    // ends, may be as short as a byte.
    let (mut before, mut ends, mut behind) = (1usize, 0usize, 1usize);
    for mut step in &definition.config.normalization {
        while let Normalization::Conditional { normalization, .. } = step {
            step = normalization;
        }
        let (factor, added) = match step {
            Normalization::Replace { pattern, replacement } => match pattern {
                NormalizationReplacePattern::Character(found) => {
                    (of_text(found.len_utf8(), replacement), 0)
                }
                NormalizationReplacePattern::String(found) => {
                    (of_text(found.len(), replacement), 0)
                }
                NormalizationReplacePattern::Regex(found) => {
                    (of_expression(found.as_ref(), replacement), 0)
                }
            },
            Normalization::Append { append } => (1, append.len()),
            Normalization::Prepend { prepend } => (1, prepend.len()),
            Normalization::Extend { character, left, right, .. } => {
                let count = (*left as usize).saturating_add(*right as usize);
                (1, count.saturating_mul(character.len_utf8()))
            }
            Normalization::CharsMap { .. } => (of_map, 0),
            // Expansion factors of Unicode normalization in UTF-8 (Unicode's normalization FAQ).
            Normalization::Unicode { scheme } => match scheme {
                UnicodeNormalization::NFC | UnicodeNormalization::NFD => (3, 0),
                UnicodeNormalization::NFKC | UnicodeNormalization::NFKD => (11, 0),
            },
            // "ΐ" with two bytes becomes three characters, "İ" with two grows by one byte.
            Normalization::CaseFold { upper } => (if *upper { 3 } else { 2 }, 0),
            Normalization::NMT
            | Normalization::Strip { .. }
            | Normalization::Collapse { .. }
            | Normalization::Conditional { .. } => (1, 0),
        };
        before = before.saturating_mul(factor);
        ends = ends.saturating_mul(factor).saturating_add(added);
    }
    let before = before.saturating_add(ends);
    for step in &definition.config.decoding {
        behind = behind.saturating_mul(match step {
            Decoding::Replace { pattern, replacement } => match pattern {
                DecodingReplacePattern::Character(found) => of_text(found.len_utf8(), replacement),
                DecodingReplacePattern::String(found) => of_text(found.len(), replacement),
                DecodingReplacePattern::Regex(found) => of_expression(found.as_ref(), replacement),
            },
            Decoding::Extend { character, left, right, .. } => (*left as usize)
                .saturating_add(*right as usize)
                .saturating_mul(character.len_utf8())
                .saturating_add(1),
            _ => 1,
        });
    }
    (before, behind)
}

/// Length of the literal text that a regular expression matches, if it is literal.
fn literal(pattern: &str) -> Option<usize> {
    let (mut length, mut rest) = (0, pattern.chars());
    while let Some(character) = rest.next() {
        let character = match character {
            // `\<` and `\>` are word boundaries, not characters.
            '\\' => {
                rest.next().filter(|next| next.is_ascii_punctuation() && !"<>".contains(*next))?
            }
            _ if ".^$*+?()[]{}|".contains(character) => return None,
            _ => character,
        };
        length += character.len_utf8();
    }
    Some(length)
}

#[cfg(test)]
mod tests {
    use super::literal;

    #[test]
    fn literal_patterns_are_detected() {
        assert_eq!(literal("``"), Some(2));
        assert_eq!(literal(r"Σ\.\-"), Some(4));
        assert_eq!(literal(""), Some(0));
        for pattern in [" {2,}", r"\s", "a|b", "^a", "[a]", "\\", r"\<", r"a\>"] {
            assert_eq!(literal(pattern), None, "{pattern}");
        }
    }
}
