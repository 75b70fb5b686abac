//! Unigram, word and character models.
//!
//! `kitoken` 0.11 supports unigrams, but uses one floating-point precision for all files. If
//! several segmentations differ only by rounding, as for a long run of one character, SentencePiece
//! and `tokenizers` choose according to their own precision. This implementation follows each of
//! them. It also implements SentencePiece's word and character models, which `kitoken` lacks.

use super::charsmap::{Field, fields};
use serde_json::Value;

/// Score of unknown characters relative to the lowest score.
const UNKNOWN_PENALTY: f64 = 10.0;
/// SentencePiece's character for a space.
const SPACE: char = '▁';

/// Piece types of a SentencePiece model.
const NORMAL: u64 = 1;
const BYTE: u64 = 6;

/// Type of a SentencePiece model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Unigrams,
    Pairs,
    Words,
    Characters,
}

/// Vocabulary for segmentation.
#[derive(Debug)]
pub(super) struct Unigrams {
    /// Sorted by bytes.
    pieces: Vec<Piece>,
    is_words: bool,
    /// Whether sums are rounded to `f32`.
    rounds_to_f32: bool,
    unknown: Option<u32>,
    unknown_score: f64,
    /// Byte tokens for unknown characters (byte fallback).
    bytes: Option<Box<[u32; 256]>>,
}

#[derive(Debug)]
struct Piece {
    bytes: Box<[u8]>,
    token: u32,
    score: f64,
}

/// Viterbi node: best segmentation up to an offset.
#[derive(Debug, Clone, Copy)]
struct Node {
    score: f64,
    /// Length of the last piece. 0 if unreachable.
    length: u32,
    /// `None` for an unknown character.
    token: Option<u32>,
}

impl Kind {
    /// Type of a model; default: unigrams.
    pub(super) fn of(model: &[u8]) -> Result<Self, String> {
        let mut kind = Kind::Unigrams;
        for field in fields(model) {
            let (2, Field::Bytes(settings)) = field? else { continue };
            for field in fields(settings) {
                kind = match field? {
                    (3, Field::Varint(1)) => Kind::Unigrams,
                    (3, Field::Varint(2)) => Kind::Pairs,
                    (3, Field::Varint(3)) => Kind::Words,
                    (3, Field::Varint(4)) => Kind::Characters,
                    (3, _) => {
                        return Err(
                            "unknown model type; expected unigram, BPE, word or char".into()
                        );
                    }
                    _ => kind,
                };
            }
        }
        Ok(kind)
    }
}

/// Marks a model as unigrams, so that `kitoken` reads the rest of it. The last value of a protobuf
/// field wins.
pub(super) fn as_unigrams(model: &[u8]) -> Vec<u8> {
    const SETTINGS: [u8; 4] = [2 << 3 | 2, 2, 3 << 3, 1];
    [model, &SETTINGS].concat()
}

impl Unigrams {
    /// Reads a SentencePiece model of any type except BPE.
    pub(super) fn of_sentencepiece(
        model: &[u8],
        kind: Kind,
        unknown: Option<u32>,
    ) -> Result<Self, String> {
        let (mut known, mut bytes, mut least) = (Vec::new(), Vec::new(), f32::INFINITY);
        for entry in pieces(model) {
            let Entry { text, token, score, kind } = entry?;
            match kind {
                NORMAL => {
                    least = least.min(score);
                    known.push(Piece { bytes: text.into(), token, score: score.into() });
                }
                BYTE => bytes.extend(byte(text).map(|byte| (byte, token))),
                _ => {}
            }
        }
        let mut does_fall_back = false;
        for field in fields(model) {
            let (2, Field::Bytes(settings)) = field? else { continue };
            for field in fields(settings) {
                if let (35, Field::Varint(found)) = field? {
                    does_fall_back = found != 0;
                }
            }
        }
        let bytes = if does_fall_back { all_bytes(&bytes) } else { None };
        Ok(Unigrams {
            pieces: sorted(known),
            is_words: kind == Kind::Words,
            rounds_to_f32: true,
            unknown,
            unknown_score: f64::from(least - UNKNOWN_PENALTY as f32),
            bytes,
        })
    }

    /// Reads the unigram model of a `tokenizer.json`, if it has one. Special tokens are excluded.
    pub(super) fn of_json(file: &Value) -> Option<Self> {
        let model = &file["model"];
        let list = model["vocab"].as_array().filter(|_| model["type"] == "Unigram")?;
        let added = file["added_tokens"].as_array().into_iter().flatten();
        let special = added.filter(|token| token["special"] == true);
        let special: std::collections::BTreeSet<&str> =
            special.filter_map(|token| token["content"].as_str()).collect();
        let (mut pieces, mut bytes, mut least) = (Vec::new(), Vec::new(), f64::INFINITY);
        let unknown = model["unk_id"].as_u64().and_then(|id| u32::try_from(id).ok());
        for (token, entry) in (0u32..).zip(list) {
            let (text, score) = (entry[0].as_str()?, entry[1].as_f64()?);
            least = least.min(score);
            bytes.extend(byte(text.as_bytes()).map(|byte| (byte, token)));
            if !special.contains(text) {
                pieces.push(Piece { bytes: text.as_bytes().into(), token, score });
            }
        }
        let does_fall_back = model["byte_fallback"] == true;
        Some(Unigrams {
            pieces: sorted(pieces),
            is_words: false,
            rounds_to_f32: false,
            unknown,
            unknown_score: least - UNKNOWN_PENALTY,
            bytes: if does_fall_back { all_bytes(&bytes) } else { None },
        })
    }

    /// Encodes a text without further pre-tokenization.
    pub(super) fn encode(&self, text: &str, tokens: &mut Vec<u32>) {
        let found = if self.is_words { self.words(text) } else { self.best_segmentation(text) };
        let mut unknown: Option<&str> = None;
        let mut at = 0;
        for (length, token) in found {
            let part = text.get(at..at + length).unwrap_or_default();
            match (token, &self.bytes) {
                (Some(token), _) => tokens.push(token),
                (None, Some(bytes)) => {
                    tokens.extend(part.bytes().map(|byte| bytes[usize::from(byte)]));
                }
                // Consecutive unknown characters become one token.
                (None, None) if unknown.is_none() => tokens.extend(self.unknown),
                (None, None) => {}
            }
            unknown = token.is_none().then_some(part);
            at += length;
        }
    }

    /// Viterbi segmentation: lengths and tokens of the parts.
    fn best_segmentation(&self, text: &str) -> Vec<(usize, Option<u32>)> {
        let none = Node { score: 0.0, length: 0, token: None };
        let mut nodes = vec![none; text.len() + 1];
        for (at, character) in text.char_indices() {
            let before = nodes.get(at).map_or(0.0, |node| node.score);
            let rest = text.as_bytes().get(at..).unwrap_or_default();
            let mut reach = |length: usize, score: f64, token: Option<u32>| {
                let score = score + before;
                let score = if self.rounds_to_f32 { f64::from(score as f32) } else { score };
                if let Some(node) = nodes.get_mut(at + length)
                    && (node.length == 0 || score > node.score)
                {
                    // Pieces are shorter than a file.
                    let length = u32::try_from(length).unwrap_or(u32::MAX);
                    *node = Node { score, length, token };
                }
            };
            let mut is_known = false;
            for piece in self.beginning(rest) {
                reach(piece.bytes.len(), piece.score, Some(piece.token));
                is_known |= piece.bytes.len() == character.len_utf8();
            }
            if !is_known {
                reach(character.len_utf8(), self.unknown_score, None);
            }
        }
        let (mut parts, mut at) = (Vec::new(), text.len());
        while let Some(node) = nodes.get(at).filter(|node| node.length > 0) {
            let length = node.length as usize;
            parts.push((length, node.token));
            at = at.saturating_sub(length);
        }
        parts.reverse();
        parts
    }

    /// Splits into whole words, each with its leading space.
    fn words(&self, text: &str) -> Vec<(usize, Option<u32>)> {
        let spaces = text.match_indices(SPACE).map(|(at, _)| at).filter(|at| *at > 0);
        let mut words = Vec::new();
        let mut from = 0;
        for to in spaces.chain([text.len()]) {
            let word = text.get(from..to).unwrap_or_default().as_bytes();
            let known = self.beginning(word).find(|piece| piece.bytes.len() == word.len());
            if !word.is_empty() {
                words.push((word.len(), known.map(|piece| piece.token)));
            }
            from = to;
        }
        words
    }

    /// Pieces that are a prefix of a text, shortest first.
    fn beginning<'s>(&'s self, text: &'s [u8]) -> impl Iterator<Item = &'s Piece> {
        // Pieces that share the examined prefix.
        let mut pieces = self.pieces.as_slice();
        let mut rest = text.iter().enumerate();
        std::iter::from_fn(move || {
            loop {
                let (at, byte) = rest.next()?;
                let from = pieces.partition_point(|piece| piece.bytes.get(at) < Some(byte));
                let to = pieces.partition_point(|piece| piece.bytes.get(at) <= Some(byte));
                pieces = pieces.get(from..to)?;
                let first = pieces.first()?;
                if first.bytes.len() == at + 1 {
                    return Some(first);
                }
            }
        })
    }
}

/// Sorts by bytes. Of duplicates, the last one is kept.
fn sorted(mut pieces: Vec<Piece>) -> Vec<Piece> {
    pieces.retain(|piece| !piece.bytes.is_empty());
    pieces.sort_by(|a, b| a.bytes.cmp(&b.bytes).then(b.token.cmp(&a.token)));
    pieces.dedup_by(|later, earlier| later.bytes == earlier.bytes);
    pieces
}

/// Byte tokens of a SentencePiece model or a `tokenizer.json`. Other tokens may have the same
/// bytes.
pub(super) fn byte_tokens(model: &[u8], file: &Value) -> Vec<(u8, u32)> {
    let numbered = |(name, token): (&str, Option<u32>)| Some((byte(name.as_bytes())?, token?));
    if file["model"]["byte_fallback"] == true {
        return match &file["model"]["vocab"] {
            Value::Object(vocab) => {
                let number = |id: &Value| id.as_u64().and_then(|id| u32::try_from(id).ok());
                vocab
                    .iter()
                    .map(|(name, id)| (name.as_str(), number(id)))
                    .filter_map(numbered)
                    .collect()
            }
            Value::Array(vocab) => {
                let names = (0u32..)
                    .zip(vocab)
                    .filter_map(|(token, piece)| Some((piece[0].as_str()?, Some(token))));
                names.filter_map(numbered).collect()
            }
            _ => Vec::new(),
        };
    }
    if !file.is_null() {
        return Vec::new();
    }
    pieces(model)
        .filter_map(|piece| piece.ok().filter(|piece| piece.kind == BYTE))
        .filter_map(|piece| Some((byte(piece.text)?, piece.token)))
        .collect()
}

/// Piece of a SentencePiece model.
struct Entry<'m> {
    text: &'m [u8],
    token: u32,
    score: f32,
    kind: u64,
}

fn pieces(model: &[u8]) -> impl Iterator<Item = Result<Entry<'_>, String>> {
    let messages = fields(model).filter_map(|field| match field {
        Ok((1, Field::Bytes(piece))) => Some(piece),
        _ => None,
    });
    (0u32..).zip(messages).map(|(token, piece)| {
        let mut entry = Entry { text: &[], token, score: 0.0, kind: NORMAL };
        for field in fields(piece) {
            match field? {
                (1, Field::Bytes(text)) => entry.text = text,
                (2, Field::Word(score)) => entry.score = f32::from_bits(score),
                (3, Field::Varint(kind)) => entry.kind = kind,
                _ => {}
            }
        }
        Ok(entry)
    })
}

/// Byte of a piece such as `<0x0A>`.
pub(super) fn byte(piece: &[u8]) -> Option<u8> {
    let digits = std::str::from_utf8(piece.strip_prefix(b"<0x")?.strip_suffix(b">")?).ok()?;
    let is_one = digits.len() == 2 && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    u8::from_str_radix(digits, 16).ok().filter(|_| is_one)
}

/// Tokens of all 256 bytes, if complete.
pub(super) fn all_bytes(found: &[(u8, u32)]) -> Option<Box<[u32; 256]>> {
    let mut tokens = [None; 256];
    for (byte, token) in found {
        tokens[usize::from(*byte)] = Some(*token);
    }
    let all: Option<Vec<u32>> = tokens.into_iter().collect();
    all?.into_boxed_slice().try_into().ok()
}
