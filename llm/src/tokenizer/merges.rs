//! BPE with the explicit merge list of a `tokenizer.json`.
//!
//! `kitoken` 0.11 merges any two parts that form a piece of the vocabulary, and keeps a word that
//! is a piece. For a complete trained vocabulary, that is equivalent to the merge list. It differs
//! if merges were removed, or if words have an end marker (which `kitoken` drops in words of more
//! than 192 parts). In those cases the list is applied here.

use super::bytes;
use super::unigram::{all_bytes, byte, byte_tokens};
use serde_json::Value;
use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, HashSet};

/// Merge list of a vocabulary.
#[derive(Debug)]
pub(super) struct MergeList {
    pieces: HashMap<String, u32>,
    /// Rank and resulting token of each merge.
    merges: HashMap<(u32, u32), (u32, u32)>,
    /// Whether pieces are in the byte-level alphabet.
    is_byte_level: bool,
    /// End-of-word marker.
    suffix: String,
    /// Whether a word that is a piece becomes one token regardless of merges (`ignore_merges`).
    ignore_merges: bool,
    /// Byte tokens for unknown characters (byte fallback).
    bytes: Option<Box<[u32; 256]>>,
    unknown: Option<u32>,
    /// Whether consecutive unknown characters become one token.
    fuse_unknown: bool,
}

/// Stands for no token or index; texts are shorter.
const NONE: u32 = u32::MAX;

/// Part of a word in a doubly linked list. `token` is `NONE` once it was merged into the part
/// before it.
#[derive(Debug)]
struct Part {
    token: u32,
    before: u32,
    behind: u32,
}

impl MergeList {
    /// Reads the merge list of a `tokenizer.json`, if it is not equivalent to its vocabulary.
    pub(super) fn of_json(file: &Value) -> Result<Option<Self>, String> {
        let model = &file["model"];
        let (Some(vocab), Some(list)) = (model["vocab"].as_object(), model["merges"].as_array())
        else {
            return Ok(None);
        };
        let suffix = model["end_of_word_suffix"].as_str().unwrap_or_default();
        if model["type"] != "BPE" {
            return Ok(None);
        }
        let number = |id: &Value| u32::try_from(id.as_u64()?).ok().filter(|id| *id != NONE);
        let pieces = vocab.iter().filter_map(|(name, id)| Some((name.clone(), number(id)?)));
        let pieces: HashMap<String, u32> = pieces.collect();
        // The list is equivalent if each merge combines results of earlier merges, merges with the
        // same result are adjacent, and none of them ends with the start of an earlier one. For
        // "aba", the merge "a ba" may precede "ab a", although "ab a" could occur first in a word.
        let (mut is_ordered, mut last, mut begins) = (true, None, HashSet::new());
        let (mut merges, mut made) = (HashMap::with_capacity(list.len()), HashSet::new());
        let mut name = String::new();
        for (rank, pair) in (0u32..).zip(list) {
            let (left, right) = merge_sides(pair).ok_or("its merges: expected pairs of tokens")?;
            let token = |name: &str| {
                let missing =
                    || format!("its merges contain {name:?}, which is not in the vocabulary");
                pieces.get(name).copied().ok_or_else(missing)
            };
            name.clear();
            name.extend([left, right]);
            let joined = token(&name)?;
            let pair = (token(left)?, token(right)?);
            let is_there = |name: &str, token: u32| is_one(name) || made.contains(&token);
            is_ordered &= is_there(left, pair.0) && is_there(right, pair.1);
            is_ordered &= made.insert(joined) || last == Some(joined);
            if last.replace(joined) != Some(joined) {
                begins.clear();
            }
            is_ordered &= !begins.contains(&pair.1);
            begins.insert(pair.0);
            merges.insert(pair, (rank, joined));
        }
        let unknown = model["unk_token"].as_str().and_then(|name| pieces.get(name).copied());
        let pairs = MergeList {
            merges,
            is_byte_level: file["pre_tokenizer"].to_string().contains("\"ByteLevel\""),
            suffix: suffix.into(),
            ignore_merges: model["ignore_merges"] == true,
            bytes: all_bytes(&byte_tokens(&[], file)),
            unknown,
            fuse_unknown: model["fuse_unk"] == true,
            pieces,
        };
        let is_told = suffix.is_empty() && is_ordered && pairs.reach_all(&made, file);
        Ok(Some(pairs).filter(|_| !is_told))
    }

    /// Whether merges reach every piece except single characters and added tokens. A piece may be
    /// unreachable because other merges have lower ranks.
    fn reach_all(&self, made: &HashSet<u32>, file: &Value) -> bool {
        let added = file["added_tokens"].as_array().into_iter().flatten();
        let added: HashSet<&str> = added.filter_map(|token| token["content"].as_str()).collect();
        let mut tokens = Vec::new();
        self.pieces.iter().all(|(piece, token)| match made.contains(token) {
            true => {
                tokens.clear();
                self.join(piece, &mut tokens);
                tokens == [*token]
            }
            false => is_one(piece) || added.contains(piece.as_str()),
        })
    }

    /// Encodes a word.
    pub(super) fn encode(&self, word: &str, tokens: &mut Vec<u32>) {
        let named: String;
        let word = match self.is_byte_level {
            true => {
                named = bytes::named(word);
                &named
            }
            false => word,
        };
        if let (true, Some(token)) = (self.ignore_merges, self.pieces.get(word)) {
            tokens.push(*token);
            return;
        }
        self.join(word, tokens);
    }

    /// Applies merges to the characters of a word.
    fn join(&self, word: &str, tokens: &mut Vec<u32>) {
        let mut parts = self.parts(word);
        let joined = |parts: &[Part], at: u32| {
            let part = parts.get(at as usize)?;
            let behind = parts.get(part.behind as usize)?;
            self.merges.get(&(part.token, behind.token)).copied()
        };
        // Lowest rank first, then leftmost.
        let mut waiting: BinaryHeap<Reverse<(u32, u32)>> = (0..place(parts.len()))
            .filter_map(|at| Some(Reverse((joined(&parts, at)?.0, at))))
            .collect();
        while let Some(Reverse((rank, at))) = waiting.pop() {
            // Stale if either part has changed.
            let Some((_, token)) = joined(&parts, at).filter(|(now, _)| *now == rank) else {
                continue;
            };
            let taken = parts.get(at as usize).map_or(NONE, |part| part.behind);
            let Some(taken) = parts.get_mut(taken as usize) else { continue };
            taken.token = NONE;
            let behind = taken.behind;
            let Some(part) = parts.get_mut(at as usize) else { continue };
            (part.token, part.behind) = (token, behind);
            let before = part.before;
            if let Some(next) = parts.get_mut(behind as usize) {
                next.before = at;
            }
            for place in [before, at] {
                waiting.extend(joined(&parts, place).map(|(rank, _)| Reverse((rank, place))));
            }
        }
        tokens.extend(parts.iter().map(|part| part.token).filter(|token| *token != NONE));
    }

    /// Splits a word into characters. The end-of-word marker is appended to the last one.
    fn parts(&self, word: &str) -> Vec<Part> {
        let (mut parts, mut is_unknown) = (Vec::new(), false);
        let mut add = |token: u32| {
            let at = place(parts.len());
            // The neighbours of the first and last part are out of bounds.
            parts.push(Part { token, before: at.wrapping_sub(1), behind: at.saturating_add(1) });
        };
        for (at, character) in word.char_indices() {
            let end = at + character.len_utf8();
            let mut name = Cow::Borrowed(word.get(at..end).unwrap_or_default());
            if end == word.len() && !self.suffix.is_empty() {
                name += self.suffix.as_str();
            }
            let was_unknown = std::mem::take(&mut is_unknown);
            match (self.pieces.get(&*name), &self.bytes) {
                (Some(token), _) => add(*token),
                (None, Some(bytes)) => {
                    name.bytes().for_each(|byte| add(bytes[usize::from(byte)]));
                }
                (None, None) => {
                    is_unknown = true;
                    if !(was_unknown && self.fuse_unknown) {
                        self.unknown.into_iter().for_each(&mut add);
                    }
                }
            }
        }
        parts
    }
}

/// Index of a part.
fn place(at: usize) -> u32 {
    u32::try_from(at).unwrap_or(NONE)
}

/// Whether a piece is a single character or a byte token.
fn is_one(piece: &str) -> bool {
    let mut characters = piece.chars();
    (characters.next().is_some() && characters.next().is_none()) || byte(piece.as_bytes()).is_some()
}

/// Both sides of a merge, which is an array of two or a text with a space in between.
fn merge_sides(pair: &Value) -> Option<(&str, &str)> {
    match pair {
        Value::String(text) => text.split_once(' ').filter(|(_, right)| !right.contains(' ')),
        Value::Array(merge_sides) => match merge_sides.as_slice() {
            [left, right] => Some((left.as_str()?, right.as_str()?)),
            _ => None,
        },
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn file(merges: Value) -> Value {
        let vocab = json!({"a": 0, "b": 1, "c": 2, "ab": 3, "bc": 4, "abc": 5, "<x>": 6});
        json!({
            "added_tokens": [{"content": "<x>"}],
            "model": {"type": "BPE", "vocab": vocab, "merges": merges}
        })
    }

    #[test]
    fn equivalent_merge_lists_are_ignored() {
        for merges in [
            json!(["a b", "b c", "ab c"]),
            json!([["a", "b"], ["b", "c"], ["ab", "c"], ["a", "bc"]]),
        ] {
            assert!(MergeList::of_json(&file(merges)).unwrap().is_none());
        }
        // A missing merge, and a merge before those that it depends on.
        for (merges, expected) in [
            (json!(["a b", "b c"]), &[3, 2, 4, 3][..]),
            (json!(["ab c", "a b", "b c"]), &[5, 4, 3]),
        ] {
            let pairs = MergeList::of_json(&file(merges)).unwrap().unwrap();
            let mut tokens = Vec::new();
            pairs.encode("abcbcabd", &mut tokens);
            assert_eq!(tokens, expected);
        }
        // A merge that is never applied, because "b c" has a lower rank.
        let pairs = MergeList::of_json(&file(json!(["b c", "a b", "ab c"]))).unwrap().unwrap();
        let mut tokens = Vec::new();
        pairs.encode("abc", &mut tokens);
        assert_eq!(tokens, [0, 4]);
        // Two merges with the same result, of which the lower rank is second in the word.
        let mut other = file(json!(["a b", "b a", "a ba", "ab a"]));
        other["model"]["vocab"] = json!({"a": 0, "b": 1, "ab": 2, "ba": 3, "aba": 4});
        let pairs = MergeList::of_json(&other).unwrap().unwrap();
        let mut tokens = Vec::new();
        pairs.encode("abaaba", &mut tokens);
        assert_eq!(tokens, [4, 4]);
        other["model"]["merges"] = json!(["a b", "b a", "ab a", "a ba"]);
        assert!(MergeList::of_json(&other).unwrap().is_none());
        // Two merges with the same result that are not adjacent.
        let apart = json!(["a b", "ab c", "b c", "a bc"]);
        assert!(MergeList::of_json(&file(apart)).unwrap().is_some());
        assert!(MergeList::of_json(&file(json!(["a d"]))).unwrap_err().contains("\"ad\""));
        assert!(MergeList::of_json(&file(json!([["a"]]))).is_err());
    }
}
