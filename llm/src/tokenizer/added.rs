//! Tokens that stand for themselves wherever their names are in a text: special ones, and those that were added to a vocabulary.
//!
//! `kitoken` 0.11 finds them as well, and knows nothing of `"single_word"`, `"lstrip"` and `"rstrip"` of a `tokenizer.json`; and where special ones are
//! text, it cuts the text at them all the same. So they are found here, and what is between them is given to it.

use aho_corasick::{AhoCorasick, AhoCorasickBuilder, AhoCorasickKind, MatchKind};
use kitoken::{Configuration, Definition, Regex, SpecialTokenKind, Split, SplitBehavior};
use serde_json::Value;
use std::collections::BTreeMap;
use std::ops::Range;

/// Bytes of all added tokens together: vocabularies have some thousands of them at most.
const MAX_BYTES: usize = 4 << 20;
/// Bytes of one of them: where a text goes on as the longest does, each place in it takes as many steps.
const MAX_NAME: usize = 1024;

/// Fails where names are too many or too long to be looked for in texts.
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

/// What finds the longest of several names. For few names it would be a table of all bytes for each place in them: gigabytes, where they are long.
pub(super) fn longest() -> AhoCorasickBuilder {
    let mut builder = AhoCorasick::builder();
    builder.match_kind(MatchKind::LeftmostLongest).kind(Some(AhoCorasickKind::ContiguousNFA));
    builder
}

/// The added tokens of a tokenizer.
#[derive(Debug)]
pub(super) struct AddedTokens {
    /// Those that are looked for in a text as it is.
    pub(super) before: Finder,
    /// Those that are looked for once it was normalised.
    pub(super) behind: Finder,
}

/// A part of a text.
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
    is_word: bool,
    takes_before: bool,
    takes_behind: bool,
}

impl AddedTokens {
    /// Those of a definition, with what a `tokenizer.json` says about them (`Null` for other files). `normalize` does with a name what is done with texts
    /// before names are looked for in them.
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
        // That may have made them longer.
        check(behind.iter().map(|added| added.name.as_str()))?;
        Ok(AddedTokens { before: Finder::new(before)?, behind: Finder::new(behind)? })
    }
}

/// An entry of the list in a `tokenizer.json`; its number is the one that the definition gave it.
fn of_json(token: &Value, known: &BTreeMap<String, Added>) -> Option<Added> {
    let name = token["content"].as_str()?;
    let is = |field: &str| token[field] == true;
    let id = || u32::try_from(token["id"].as_u64()?).ok();
    Some(Added {
        token: known.get(name).map_or_else(id, |known| Some(known.token))?,
        name: name.into(),
        is_special: is("special"),
        is_normalized: is("normalized"),
        is_word: is("single_word"),
        takes_before: is("lstrip"),
        takes_behind: is("rstrip"),
    })
}

/// Finds names in texts, the longest of those that begin first.
#[derive(Debug)]
pub(super) struct Finder {
    names: Option<AhoCorasick>,
    tokens: Vec<Added>,
    /// What finds out whether a character belongs to words, if that is asked.
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
        let words = match tokens.iter().any(|added| added.is_word) {
            false => None,
            true => {
                let pattern = Regex::new(r"\w").map_err(|error| fail(&error))?.into();
                let split = vec![Split::Pattern { pattern, behavior: SplitBehavior::Match }];
                Some(Configuration { split, ..Configuration::default() })
            }
        };
        Ok(Finder { names, tokens, words })
    }

    /// The tokens in a text and what is between them. Where `specials` are text, they are a part of that.
    pub(super) fn parts(&self, text: &str, specials: bool) -> Vec<Part> {
        let mut parts = Vec::new();
        // Behind the last token with what it took.
        let mut free = 0;
        for found in self.names.iter().flat_map(|names| names.find_iter(text)) {
            let Some(added) = self.tokens.get(found.pattern().as_usize()) else { continue };
            let (Some(between), Some(before), Some(behind)) =
                (text.get(free..found.start()), text.get(..found.start()), text.get(found.end()..))
            else {
                continue;
            };
            let in_word = |next: Option<char>| next.is_some_and(|next| self.is_of_word(next));
            if (added.is_special && !specials)
                || added.is_word
                    && (in_word(before.chars().next_back()) || in_word(behind.chars().next()))
            {
                continue;
            }
            let between = if added.takes_before { between.trim_end() } else { between };
            if !between.is_empty() {
                parts.push(Part::Text(free..free + between.len()));
            }
            parts.push(Part::Token(added.token));
            free = found.end();
            if added.takes_behind {
                free += behind.len() - behind.trim_start().len();
            }
        }
        if free < text.len() {
            parts.push(Part::Text(free..text.len()));
        }
        parts
    }

    /// A text in which a mark divides the name of each special token behind its first character, so
    /// that none is found; nothing if it has none. A name of one character cannot be divided.
    pub(super) fn divide(&self, text: &str, mark: &str) -> Option<String> {
        let mut divided: Option<String> = None;
        // What was hidden by a name that overlaps it is found the next time.
        loop {
            let text = divided.as_deref().unwrap_or(text);
            let mut places = Vec::new();
            for found in self.names.iter().flat_map(|names| names.find_iter(text)) {
                let added = self.tokens.get(found.pattern().as_usize());
                let is_special = added.is_some_and(|added| added.is_special);
                let mut name = text.get(found.range()).unwrap_or_default().char_indices();
                if let (true, Some((second, _))) = (is_special, name.nth(1)) {
                    places.push(found.start() + second);
                }
            }
            if places.is_empty() {
                return divided;
            }
            let mut marked = String::with_capacity(text.len() + places.len() * mark.len());
            let mut from = 0;
            for place in places {
                marked.push_str(text.get(from..place).unwrap_or_default());
                marked.push_str(mark);
                from = place;
            }
            marked.push_str(text.get(from..).unwrap_or_default());
            divided = Some(marked);
        }
    }

    fn is_of_word(&self, character: char) -> bool {
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
            Added { takes_before: true, is_special: true, ..added("<l>", 1) },
            Added { takes_behind: true, is_special: true, ..added("<r>", 2) },
            Added { takes_before: true, takes_behind: true, ..added("<b>", 3) },
            Added { is_special: true, ..added("<n>", 4) },
            Added { takes_behind: true, is_special: true, ..added("<n>x", 5) },
            Added { is_word: true, ..added("word", 6) },
            added("", 7),
        ])
        .unwrap()
    }

    /// Texts as they are, and tokens by their numbers.
    fn shown(text: &str, specials: bool) -> String {
        let part = |part: Part| match part {
            Token(token) => format!("[{token}]"),
            Text(range) => text[range].to_owned(),
        };
        finder().parts(text, specials).into_iter().map(part).collect()
    }

    #[test]
    fn tokens_take_what_is_beside_them() {
        for (text, expected) in [
            ("", ""),
            ("a  b ", "a  b "),
            ("a \n<l> b", "a[1] b"),
            ("a <r> \n\u{a0}b", "a [2]b"),
            ("  <b>  ", "[3]"),
            ("a <n> b", "a [4] b"),
            // The longest that begins first.
            ("a <n>x b", "a [5]b"),
            // What one took, the next cannot take.
            ("<r>  <l>  <b> é", "[2][1][3]é"),
            ("<n>  <l>", "[4][1]"),
        ] {
            assert_eq!(shown(text, true), expected, "{text}");
        }
    }

    #[test]
    fn special_ones_can_be_text() {
        assert_eq!(shown("a <l> <r> <b> c", false), "a <l> <r>[3]c");
        // In one part, which is not cut at them.
        assert_eq!(finder().parts("a <n> b", false), [Text(0..7)]);
    }

    #[test]
    fn words_are_found_by_themselves_alone() {
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
    fn how_many_bytes_names_have_is_bounded() {
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
        assert_eq!(none.before.parts("<a>", true), [Text(0..3)]);
    }
}
