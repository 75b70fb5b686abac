//! Added tokens that take the white space beside them, as those of Phi 3 do: `"lstrip"` and `"rstrip"` in a `tokenizer.json`.
//!
//! `kitoken` 0.11 finds the tokens and leaves the white space. So it is taken out of the text before.

use aho_corasick::{AhoCorasick, MatchKind};
use serde_json::Value;
use std::borrow::Cow;

/// Bytes of all added tokens together: vocabularies have some thousands of them at most.
const MAX_BYTES: usize = 4 << 20;

/// The added tokens of a vocabulary in which some take what is beside them.
#[derive(Debug)]
pub(super) struct Beside {
    finder: AhoCorasick,
    tokens: Vec<Added>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Added {
    takes_before: bool,
    takes_behind: bool,
    is_special: bool,
}

impl Beside {
    /// What a `tokenizer.json` says; nothing where no token takes anything.
    pub(super) fn of_json(file: &Value) -> Result<Option<Self>, String> {
        let truth = |token: &Value, name: &str| token[name] == true;
        // Others are looked for once a text was normalised, which may leave no white space.
        let is_plain = |token: &&Value| file["normalizer"].is_null() || !truth(token, "normalized");
        let list = file["added_tokens"].as_array().into_iter().flatten().filter(is_plain);
        let (mut names, mut tokens) = (Vec::new(), Vec::new());
        for token in list {
            let Some(name) = token["content"].as_str().filter(|name| !name.is_empty()) else {
                continue;
            };
            names.push(name);
            tokens.push(Added {
                takes_before: truth(token, "lstrip"),
                takes_behind: truth(token, "rstrip"),
                is_special: truth(token, "special"),
            });
        }
        if !tokens.iter().any(|token| token.takes_before || token.takes_behind) {
            return Ok(None);
        }
        let bytes: usize = names.iter().map(|name| name.len()).sum();
        if bytes > MAX_BYTES {
            return Err(format!("its added tokens have {bytes} bytes, more than {MAX_BYTES}"));
        }
        let finder = AhoCorasick::builder().match_kind(MatchKind::LeftmostLongest).build(names);
        let finder = finder.map_err(|error| format!("its added tokens: {error}"))?;
        Ok(Some(Beside { finder, tokens }))
    }

    /// A text without the white space that tokens in it take. Where names of special tokens are text, these take none.
    pub(super) fn without<'t>(&self, text: &'t str, specials: bool) -> Cow<'t, str> {
        let mut kept = String::new();
        // Behind what was kept, and behind the last token with what it took.
        let (mut at, mut free) = (0, 0);
        for found in self.finder.find_iter(text) {
            let token = self.tokens.get(found.pattern().as_usize()).copied().unwrap_or_default();
            let (Some(before), Some(behind)) =
                (text.get(free..found.start()), text.get(found.end()..))
            else {
                continue;
            };
            if token.is_special && !specials {
                continue;
            }
            let mut start = found.start();
            if token.takes_before {
                start = free + before.trim_end().len();
            }
            let mut end = found.end();
            if token.takes_behind {
                end += behind.len() - behind.trim_start().len();
            }
            kept += text.get(at..start).unwrap_or_default();
            kept += text.get(found.range()).unwrap_or_default();
            (at, free) = (end, end);
        }
        match at {
            0 => Cow::Borrowed(text),
            _ => Cow::Owned(kept + text.get(at..).unwrap_or_default()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn beside(normalizer: &Value) -> Beside {
        let token = |content: &str, left: bool, right: bool, special: bool, normalized: bool| json!({"content": content, "lstrip": left, "rstrip": right, "special": special, "normalized": normalized});
        let tokens = [
            token("<l>", true, false, true, false),
            token("<r>", false, true, true, false),
            token("<b>", true, true, false, false),
            token("<n>", false, false, true, false),
            token("<n>x", false, true, true, false),
            token("<m>", true, true, false, true),
        ];
        Beside::of_json(&json!({"added_tokens": tokens, "normalizer": normalizer}))
            .unwrap()
            .unwrap()
    }

    #[test]
    fn tokens_take_what_is_beside_them() {
        let beside = beside(&Value::Null);
        for (text, expected) in [
            ("", ""),
            ("a  b ", "a  b "),
            ("a \n<l> b", "a<l> b"),
            ("a <r> \n\u{a0}b", "a <r>b"),
            ("  <b>  ", "<b>"),
            ("a <n> b", "a <n> b"),
            // The longest that begins first.
            ("a <n>x b", "a <n>xb"),
            // What one took, the next cannot take.
            ("<r>  <l>  <b> é", "<r><l><b>é"),
            ("<n>  <l>", "<n><l>"),
            ("a <m> b", "a<m>b"),
        ] {
            assert_eq!(beside.without(text, true), expected, "{text}");
        }
        assert_eq!(beside.without("a <l> <r> <b> c", false), "a <l> <r><b>c");
    }

    #[test]
    fn what_is_normalised_first_takes_nothing() {
        let beside = beside(&json!({"type": "NFC"}));
        assert_eq!(beside.without("a <m> b <b> c", true), "a <m> b<b>c");
        let none =
            json!({"added_tokens": [{"content": "<a>", "lstrip": false}, {"lstrip": true}, 5]});
        assert!(Beside::of_json(&none).unwrap().is_none());
        assert!(Beside::of_json(&Value::Null).unwrap().is_none());
        let long =
            json!({"added_tokens": [{"content": "x".repeat(MAX_BYTES + 1), "lstrip": true}]});
        assert!(Beside::of_json(&long).unwrap_err().contains("bytes"));
    }
}
