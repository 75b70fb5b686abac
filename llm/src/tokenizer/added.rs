//! Added tokens, including special tokens, which are matched by name in a text.
//!
//! `kitoken` 0.11 does not support `"single_word"`, `"lstrip"` and `"rstrip"` of a
//! `tokenizer.json`, and splits texts at special tokens even if these are ordinary text. Added
//! tokens are therefore matched here, and `kitoken` receives the text in between.

use aho_corasick::{AhoCorasick, AhoCorasickBuilder, AhoCorasickKind, Input, MatchKind};
use kitoken::{Configuration, Definition, Regex, SpecialTokenKind, Split, SplitBehavior};
use serde_json::Value;
use std::collections::BTreeMap;
use std::ops::Range;

/// Maximum total length of all added tokens in bytes; real vocabularies have some thousands of
/// tokens.
const MAX_BYTES: usize = 4 << 20;
/// Maximum length of an added token in bytes. Matching may need this many steps per position.
const MAX_NAME: usize = 1024;

/// Returns an error if names are too many or too long for matching.
pub(super) fn check<'n>(names: impl Iterator<Item = &'n str>) -> Result<(), String> {
    let (mut bytes, mut longest) = (0usize, 0);
    for name in names {
        bytes = bytes.saturating_add(name.len());
        longest = longest.max(name.len());
    }
    if bytes > MAX_BYTES {
        return Err(format!("its added tokens have {bytes} bytes, more than {MAX_BYTES}"));
    }
    match longest > MAX_NAME {
        true => Err(format!("an added token has {longest} bytes, more than {MAX_NAME}")),
        false => Ok(()),
    }
}

/// Builder of a leftmost-longest automaton. The default DFA for few names would need gigabytes for
/// long ones.
pub(super) fn longest() -> AhoCorasickBuilder {
    let mut builder = AhoCorasick::builder();
    builder.match_kind(MatchKind::LeftmostLongest).kind(Some(AhoCorasickKind::ContiguousNFA));
    builder
}

/// Added tokens of a tokenizer.
#[derive(Debug)]
pub(super) struct AddedTokens {
    /// Tokens matched in the original text.
    pub(super) before: Finder,
    /// Tokens matched in the normalized text.
    pub(super) behind: Finder,
}

/// Part of a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Part {
    Token(u32),
    Text(Range<usize>),
}

#[derive(Debug, Clone, Default)]
struct Added {
    name: String,
    token: u32,
    is_special: bool,
    is_normalized: bool,
    is_single_word: bool,
    strips_left: bool,
    strips_right: bool,
}

impl AddedTokens {
    /// Added tokens of a definition, with their properties from a `tokenizer.json` (`Null` for
    /// other files). `normalize` applies the normalization steps that precede matching.
    pub(super) fn new(
        definition: &Definition,
        file: &Value,
        normalize: impl Fn(&str) -> String,
    ) -> Result<Self, String> {
        let known = definition.specials.iter().filter_map(|token| {
            let name = String::from_utf8(token.bytes.clone()).ok()?;
            let added = Added {
                token: token.id,
                is_special: token.kind != SpecialTokenKind::Priority,
                is_normalized: !token.extract,
                name: name.clone(),
                ..Added::default()
            };
            Some((name, added))
        });
        let known: BTreeMap<String, Added> = known.collect();
        let added: Vec<Added> = match file["added_tokens"].as_array() {
            None if file.is_null() => known.into_values().collect(),
            list => list.into_iter().flatten().filter_map(|token| of_json(token, &known)).collect(),
        };
        check(added.iter().map(|added| added.name.as_str()))?;
        let (mut behind, before): (Vec<_>, Vec<_>) =
            added.into_iter().partition(|added| added.is_normalized);
        for added in &mut behind {
            added.name = normalize(&added.name);
        }
        // Normalization may have lengthened them.
        check(behind.iter().map(|added| added.name.as_str()))?;
        Ok(AddedTokens { before: Finder::new(before)?, behind: Finder::new(behind)? })
    }
}

/// Parses an entry of `added_tokens`. Its token is that of the definition, if present.
fn of_json(token: &Value, known: &BTreeMap<String, Added>) -> Option<Added> {
    let name = token["content"].as_str()?;
    let is = |field: &str| token[field] == true;
    let id = || u32::try_from(token["id"].as_u64()?).ok();
    Some(Added {
        token: known.get(name).map_or_else(id, |known| Some(known.token))?,
        name: name.into(),
        is_special: is("special"),
        is_normalized: is("normalized"),
        is_single_word: is("single_word"),
        strips_left: is("lstrip"),
        strips_right: is("rstrip"),
    })
}

/// Matcher of added tokens: leftmost, then longest.
#[derive(Debug)]
pub(super) struct Finder {
    names: Option<AhoCorasick>,
    /// Matches the special token that ends first.
    specials: Option<AhoCorasick>,
    tokens: Vec<Added>,
    /// Classifies word characters, if any token has `single_word`.
    words: Option<Configuration>,
}

impl Finder {
    fn new(mut tokens: Vec<Added>) -> Result<Self, String> {
        tokens.retain(|added| !added.name.is_empty());
        let fail = |error: &dyn std::fmt::Display| format!("its added tokens: {error}");
        let names = tokens.iter().map(|added| added.name.as_str());
        let names = match tokens.is_empty() {
            true => None,
            false => Some(longest().build(names).map_err(|error| fail(&error))?),
        };
        let specials = tokens.iter().filter(|added| added.is_special);
        let specials: Vec<&str> = specials.map(|added| added.name.as_str()).collect();
        let specials = match specials.is_empty() {
            true => None,
            false => {
                let mut builder = longest();
                builder.match_kind(MatchKind::Standard);
                Some(builder.build(specials).map_err(|error| fail(&error))?)
            }
        };
        let words = match tokens.iter().any(|added| added.is_single_word) {
            false => None,
            true => {
                let pattern = Regex::new(r"\w").map_err(|error| fail(&error))?.into();
                let split = vec![Split::Pattern { pattern, behavior: SplitBehavior::Match }];
                Some(Configuration { split, ..Configuration::default() })
            }
        };
        Ok(Finder { names, specials, tokens, words })
    }

    /// Splits a text into tokens and the parts in between. Special tokens are ordinary text if
    /// `specials` is false, or if the mark precedes their name.
    pub(super) fn parts(&self, text: &str, specials: bool, mark: Option<char>) -> Vec<Part> {
        let mut parts = Vec::new();
        // End of the last token, including whitespace that it strips.
        let mut free = 0;
        for found in self.names.iter().flat_map(|names| names.find_iter(text)) {
            let Some(added) = self.tokens.get(found.pattern().as_usize()) else { continue };
            let (Some(between), Some(before), Some(behind)) =
                (text.get(free..found.start()), text.get(..found.start()), text.get(found.end()..))
            else {
                continue;
            };
            let in_word = |next: Option<char>| next.is_some_and(|next| self.is_word_char(next));
            let is_marked = mark.is_some_and(|mark| before.ends_with(mark));
            if (added.is_special && (!specials || is_marked))
                || added.is_single_word
                    && (in_word(before.chars().next_back()) || in_word(behind.chars().next()))
            {
                continue;
            }
            let between = if added.strips_left { between.trim_end() } else { between };
            if !between.is_empty() {
                parts.push(Part::Text(free..free + between.len()));
            }
            parts.push(Part::Token(added.token));
            free = found.end();
            if added.strips_right {
                free += behind.len() - behind.trim_start().len();
            }
        }
        if free < text.len() {
            parts.push(Part::Text(free..text.len()));
        }
        parts
    }

    /// Breaks up the names of special tokens in a text, so that they are tokenized as ordinary
    /// text: inserts `mark` before the last character of each. `None` if the text contains none.
    ///
    /// A single-character name stays whole behind its mark; [`parts`](Self::parts) ignores names
    /// that follow a mark.
    pub(super) fn divide(&self, text: &str, mark: char) -> Option<String> {
        let specials = self.specials.as_ref()?;
        let (mut divided, mut written, mut from) = (String::new(), 0, 0);
        // The name that ends first is found first. Its mark also splits all names that end later
        // and begin before its last character.
        while let Some(found) = specials.find(Input::new(text).span(from..text.len())) {
            let name = text.get(found.range())?;
            let place = found.end() - name.chars().next_back()?.len_utf8();
            if place > written || divided.is_empty() {
                divided.push_str(text.get(written..place)?);
                divided.push(mark);
                written = place;
            }
            from = if place > found.start() { place } else { found.end() };
        }
        if divided.is_empty() {
            return None;
        }
        divided.push_str(text.get(written..)?);
        Some(divided)
    }

    /// Whether the text contains the name of a special token.
    pub(super) fn has_specials(&self, text: &str) -> bool {
        self.specials.as_ref().is_some_and(|specials| specials.is_match(text))
    }

    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.tokens.iter().map(|added| added.name.as_str())
    }

    fn is_word_char(&self, character: char) -> bool {
        let text = character.to_string();
        self.words.as_ref().is_some_and(|words| !words.split(&text).is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Part::{Text, Token};

    fn added(name: &str, token: u32) -> Added {
        Added { name: name.into(), token, ..Added::default() }
    }

    fn finder() -> Finder {
        Finder::new(vec![
            Added { strips_left: true, is_special: true, ..added("<l>", 1) },
            Added { strips_right: true, is_special: true, ..added("<r>", 2) },
            Added { strips_left: true, strips_right: true, ..added("<b>", 3) },
            Added { is_special: true, ..added("<n>", 4) },
            Added { strips_right: true, is_special: true, ..added("<n>x", 5) },
            Added { is_single_word: true, ..added("word", 6) },
            added("", 7),
        ])
        .unwrap()
    }

    /// Texts verbatim, and tokens as numbers.
    fn shown(text: &str, specials: bool) -> String {
        let part = |part: Part| match part {
            Token(token) => format!("[{token}]"),
            Text(range) => text[range].to_owned(),
        };
        finder().parts(text, specials, None).into_iter().map(part).collect()
    }

    #[test]
    fn tokens_strip_adjacent_whitespace() {
        for (text, expected) in [
            ("", ""),
            ("a  b ", "a  b "),
            ("a \n<l> b", "a[1] b"),
            ("a <r> \n\u{a0}b", "a [2]b"),
            ("  <b>  ", "[3]"),
            ("a <n> b", "a [4] b"),
            // Leftmost, then longest.
            ("a <n>x b", "a [5]b"),
            // Stripped whitespace is not stripped twice.
            ("<r>  <l>  <b> é", "[2][1][3]é"),
            ("<n>  <l>", "[4][1]"),
        ] {
            assert_eq!(shown(text, true), expected, "{text}");
        }
    }

    #[test]
    fn special_tokens_can_be_text() {
        assert_eq!(shown("a <l> <r> <b> c", false), "a <l> <r>[3]c");
        // The text is one part, without splits.
        assert_eq!(finder().parts("a <n> b", false, None), [Text(0..7)]);
    }

    #[test]
    fn marks_split_all_special_token_names() {
        const MARK: char = '\u{fdd0}';
        let tokens_of = |names: &[&str], text: &str| {
            let special = |name: &&str| Added { is_special: true, ..added(name, 1) };
            let finder = Finder::new(names.iter().map(special).collect()).unwrap();
            let whole = [Text(0..text.len())];
            let divided = finder.divide(text, MARK);
            assert_eq!(divided.is_none(), finder.parts(text, true, None) == whole, "{text}");
            let divided = divided.unwrap_or_else(|| text.into());
            assert_eq!(divided.replace(MARK, ""), text);
            assert_eq!(finder.parts(&divided, true, Some(MARK)), [Text(0..divided.len())]);
            divided.matches(MARK).count()
        };
        assert_eq!(tokens_of(&["<s>"], "no <s name"), 0);
        assert_eq!(tokens_of(&["<s>"], "<s> <s><s>"), 3);
        // Marks of an earlier version.
        let marks = ["\u{fffc}0", "0\u{fffd}", "<\u{fffc}", "<s>", "\u{fffc}0\u{fffd}"];
        tokens_of(&marks, "<s> \u{fffc} <\u{fffc}s> \u{fffc}0\u{fffd} <\u{fffc}0\u{fffd}");
        tokens_of(&["\u{fffc}"], "\u{fffc}\u{fffc}a\u{fffc}");
        // Overlapping, single-character and nested names.
        tokens_of(&["ab", "bc", "cd"], "abcd abc bcd abab");
        tokens_of(&["a", "ab", "ba", "é"], "ababab é éa aé");
        tokens_of(&["abc", "b", "cd"], "abcd abcbcd");
        tokens_of(&["Xyz", "X", "aX", "zq"], "aXyzq Xyzq aX");
        let nested: Vec<String> = (1..100).map(|count| "a".repeat(count)).collect();
        let nested: Vec<&str> = nested.iter().map(String::as_str).collect();
        assert_eq!(tokens_of(&nested, &"a".repeat(1000)), 1000);
        assert_eq!(tokens_of(&nested[49..], &"a".repeat(1000)), 20);
    }

    /// A longer name of an ordinary added token does not hide a special one.
    #[test]
    fn hidden_names_are_split() {
        let special = Added { is_special: true, ..added("<s>", 1) };
        let finder = Finder::new(vec![special, added("a<s>b", 2)]).unwrap();
        assert_eq!(finder.divide("a<s>b", '|').unwrap(), "a<s|>b");
    }

    #[test]
    fn single_words_are_matched() {
        for (text, expected) in [
            ("word", "[6]"),
            ("a word, words sword word", "a [6], words sword [6]"),
            ("word\u{301} é word2 _word -word-", "word\u{301} é word2 _word -[6]-"),
            ("wordword 中word word中", "wordword 中word word中"),
            ("word<n>word", "[6][4][6]"),
        ] {
            assert_eq!(shown(text, true), expected, "{text}");
        }
    }

    #[test]
    fn name_lengths_are_bounded() {
        let definition = crate::tokenizer::rewrite::small(&Value::Null).unwrap();
        let new = |length: usize, count: usize, times: usize| {
            let name = "x".repeat(length);
            let token = serde_json::json!({"id": 1, "content": name, "normalized": true});
            let file = serde_json::json!({"added_tokens": vec![token; count]});
            AddedTokens::new(&definition, &file, |name| name.repeat(times)).map(|_| ())
        };
        assert_eq!(new(MAX_NAME, 2, 1), Ok(()));
        assert!(new(MAX_NAME + 1, 1, 1).unwrap_err().contains("1025 bytes"));
        assert!(new(MAX_NAME, 1, 2).unwrap_err().contains("2048 bytes"));
        assert!(new(MAX_NAME, MAX_BYTES / MAX_NAME + 1, 1).unwrap_err().contains("4195328 bytes"));
        let odd = serde_json::json!({"added_tokens": [{"content": "<a>"}, {"id": 1}, 5]});
        let none = AddedTokens::new(&definition, &odd, str::to_owned).unwrap();
        assert_eq!(none.before.parts("<a>", true, None), [Text(0..3)]);
    }
}
