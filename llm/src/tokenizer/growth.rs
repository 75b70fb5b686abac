//! How long texts can become.

use kitoken::{
    Decoding, DecodingReplacePattern, Definition, Normalization, NormalizationReplacePattern,
};

/// How many times as long what replaces parts of a text may make it, before it is cut into tokens and behind these.
pub(super) fn of(definition: &Definition, of_map: usize) -> (usize, usize) {
    // An expression may find a place between any two bytes, and a dollar sign stands for all that it found.
    let of_expression = |replacement: &str| match replacement.len() {
        0 => 1,
        length => length + 1 + replacement.matches('$').count(),
    };
    let of_text = |found: usize, replacement: &str| match found {
        0 => replacement.len() + 1,
        found => replacement.len().div_ceil(found).max(1),
    };
    let (mut before, mut behind) = (1usize, 1usize);
    for mut step in &definition.config.normalization {
        while let Normalization::Conditional { normalization, .. } = step {
            step = normalization;
        }
        before = before.saturating_mul(match step {
            Normalization::Replace { pattern, replacement } => match pattern {
                NormalizationReplacePattern::Character(found) => {
                    of_text(found.len_utf8(), replacement)
                }
                NormalizationReplacePattern::String(found) => of_text(found.len(), replacement),
                NormalizationReplacePattern::Regex(_) => of_expression(replacement),
            },
            // A part of the text may be as short as a byte.
            Normalization::Append { append } => append.len().saturating_add(1),
            Normalization::Prepend { prepend } => prepend.len().saturating_add(1),
            Normalization::Extend { character, left, right, .. } => (*left as usize)
                .saturating_add(*right as usize)
                .saturating_mul(character.len_utf8())
                .saturating_add(1),
            Normalization::CharsMap { .. } => of_map,
            // That of Unicode makes eighteen characters of one, and a character of another case has two more.
            Normalization::Unicode { .. } => 18,
            Normalization::CaseFold { .. } => 3,
            Normalization::NMT
            | Normalization::Strip { .. }
            | Normalization::Collapse { .. }
            | Normalization::Conditional { .. } => 1,
        });
    }
    for step in &definition.config.decoding {
        behind = behind.saturating_mul(match step {
            Decoding::Replace { pattern, replacement } => match pattern {
                DecodingReplacePattern::Character(found) => of_text(found.len_utf8(), replacement),
                DecodingReplacePattern::String(found) => of_text(found.len(), replacement),
                DecodingReplacePattern::Regex(_) => of_expression(replacement),
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
