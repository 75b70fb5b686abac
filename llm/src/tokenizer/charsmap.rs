//! Character maps of SentencePiece models and of `tokenizer.json`, validated before `kitoken` uses
//! them: it indexes with their contents.
//!
//! A map consists of the length of a trie in bytes, the trie, and zero-terminated replacement
//! texts. The trie is a double array of 32-bit units. A unit contains its byte label, whether a
//! replacement is attached, and the offset of its children. The unit of a replacement contains its
//! start.

use super::added;
use aho_corasick::{AhoCorasick, Anchored, Input, StartKind};
use std::collections::VecDeque;

/// Maximum length of a replacement; the longest in Unicode has 33 bytes.
const MAX_REPLACEMENT: usize = 256;
/// Largest byte in UTF-8.
const LAST_BYTE: usize = 0xf4;

/// Pads the map by one unit, because `kitoken` 0.11 ignores the last one.
pub(super) fn padded(map: &[u8]) -> Vec<u8> {
    let Some((length, rest)) = map.split_at_checked(4) else { return map.to_vec() };
    let length = u32::from_le_bytes([length[0], length[1], length[2], length[3]]);
    let (trie, texts) = rest.split_at((length as usize).min(rest.len()));
    [&length.saturating_add(4).to_le_bytes(), trie, &[0; 4], texts].concat()
}

/// A [validated](check) map. Applies the longest match at each position, as SentencePiece does.
pub(super) struct CharacterMap {
    units: Vec<u32>,
    texts: Vec<u8>,
    /// Pieces that are left unchanged.
    kept: Option<AhoCorasick>,
}

impl CharacterMap {
    /// Map of a model with user-defined pieces, which are matched before the map is applied.
    pub(super) fn new(map: &[u8], pieces: &[&str]) -> Result<Self, String> {
        added::check(pieces.iter().copied())?;
        let kept = match pieces.is_empty() {
            true => None,
            false => {
                let kept = added::longest().start_kind(StartKind::Anchored).build(pieces);
                Some(kept.map_err(|error| format!("its pieces: {error}"))?)
            }
        };
        let (length, rest) = map.split_at_checked(4).unwrap_or_default();
        let length = length.try_into().map_or(0, u32::from_le_bytes) as usize;
        let (trie, texts) = rest.split_at(length.min(rest.len()));
        Ok(CharacterMap { units: units(trie), texts: texts.to_vec(), kept })
    }

    /// Applies the map to a text.
    pub(super) fn replace(&self, text: &str) -> String {
        let mut replaced = String::with_capacity(text.len());
        let mut rest = text;
        while let Some(first) = rest.chars().next() {
            if let Some(length) = self.kept(rest) {
                let (kept, behind) = rest.split_at_checked(length).unwrap_or((rest, ""));
                replaced += kept;
                rest = behind;
                continue;
            }
            match self.longest(rest) {
                Some((length, text)) => {
                    replaced += text;
                    rest = rest.get(length..).unwrap_or_default();
                }
                None => {
                    replaced.push(first);
                    rest = rest.get(first.len_utf8()..).unwrap_or_default();
                }
            }
        }
        replaced
    }

    /// Length of the user-defined piece at the start of a text.
    fn kept(&self, text: &str) -> Option<usize> {
        let found = self.kept.as_ref()?.find(Input::new(text).anchored(Anchored::Yes))?;
        (found.end() > 0).then_some(found.end())
    }

    /// Length and replacement of the longest match at the start of a text.
    fn longest(&self, text: &str) -> Option<(usize, &str)> {
        let mut place = child_offset(*self.units.first()?);
        let mut longest = None;
        for (at, byte) in text.bytes().enumerate() {
            let at_byte = place ^ usize::from(byte);
            let Some(&unit) = self.units.get(at_byte) else { break };
            if byte == 0 || unit & (1 << 31 | 0xff) != u32::from(byte) {
                break;
            }
            place = at_byte ^ child_offset(unit);
            if unit >> 8 & 1 == 1 {
                let begin = (self.units.get(place)? & !(1 << 31)) as usize;
                let found = self.texts.get(begin..).unwrap_or_default();
                let found = found.split(|byte| *byte == 0).next().unwrap_or_default();
                let found = std::str::from_utf8(found).ok();
                longest = found
                    .filter(|_| text.is_char_boundary(at + 1))
                    .map(|found| (at + 1, found))
                    .or(longest);
            }
        }
        longest
    }
}

/// Units of a trie.
fn units(trie: &[u8]) -> Vec<u32> {
    let units = trie.chunks_exact(4);
    units.map(|unit| u32::from_le_bytes([unit[0], unit[1], unit[2], unit[3]])).collect()
}

/// Offset from a unit to its children.
fn child_offset(unit: u32) -> usize {
    ((unit >> 10) as usize) << ((unit & (1 << 9)) >> 6)
}

/// Checks that no text can lead outside of the map. Returns the maximum growth factor.
pub(super) fn check(map: &[u8]) -> Result<usize, String> {
    let cut_off = || "a character map is truncated".to_owned();
    if map.is_empty() {
        return Ok(1);
    }
    let (length, rest) = map.split_at_checked(4).ok_or_else(cut_off)?;
    let length = u32::from_le_bytes([length[0], length[1], length[2], length[3]]) as usize;
    let (trie, texts) = rest.split_at_checked(length).ok_or_else(cut_off)?;
    let units = units(trie);
    let longest = texts.split(|byte| *byte == 0).map(<[u8]>::len).max().unwrap_or(0);
    let length_at = |begin: usize| {
        let text = texts.get(begin..).unwrap_or_default();
        text.iter().position(|byte| *byte == 0).unwrap_or(text.len())
    };
    if longest > MAX_REPLACEMENT {
        return Err(format!(
            "a character map has a replacement of {longest} bytes, more than {MAX_REPLACEMENT}"
        ));
    }
    let outside = || "a character map refers outside its trie".to_owned();
    let root = *units.first().ok_or_else(cut_off)?;
    // Breadth-first, so that each unit is visited with the shortest text that leads to it.
    let (mut waiting, mut was_seen) =
        (VecDeque::from([(child_offset(root), 1usize)]), vec![false; units.len()]);
    let mut growth = 1;
    while let Some((place, count)) = waiting.pop_front() {
        if std::mem::replace(was_seen.get_mut(place).ok_or_else(outside)?, true) {
            continue;
        }
        for byte in 1..=LAST_BYTE {
            let at = place ^ byte;
            let unit = *units.get(at).ok_or_else(outside)?;
            if (unit & (1 << 31 | 0xff)) as usize != byte {
                continue;
            }
            let next = at ^ child_offset(unit);
            if unit >> 8 & 1 == 1 {
                let begin = (*units.get(next).ok_or_else(outside)? & !(1 << 31)) as usize;
                if begin > texts.len() {
                    return Err("a character map refers outside its texts".into());
                }
                growth = growth.max(length_at(begin).div_ceil(count));
            }
            waiting.push_back((next, count + 1));
        }
    }
    Ok(growth)
}

/// Character maps of a SentencePiece model. Also checks that all scores are finite.
pub(super) fn of_sentencepiece(model: &[u8]) -> Result<Vec<Vec<u8>>, String> {
    let mut maps = Vec::new();
    for field in fields(model) {
        match field? {
            // A piece: text, score, type.
            (1, Field::Bytes(piece)) => {
                for field in fields(piece) {
                    if let (2, Field::Word(score)) = field?
                        && !f32::from_bits(score).is_finite()
                    {
                        return Err("the score of a piece is infinite or NaN".into());
                    }
                }
            }
            // The normalizer.
            (3, Field::Bytes(rules)) => {
                for field in fields(rules) {
                    if let (2, Field::Bytes(map)) = field? {
                        maps.push(map.to_vec());
                    }
                }
            }
            _ => {}
        }
    }
    Ok(maps)
}

/// Character maps of a `tokenizer.json`.
pub(super) fn of_json(file: &serde_json::Value) -> Result<Vec<Vec<u8>>, String> {
    let mut maps = Vec::new();
    // The JSON parser limits the nesting depth.
    let mut waiting = vec![&file["normalizer"]];
    while let Some(value) = waiting.pop() {
        match value {
            serde_json::Value::Array(values) => waiting.extend(values.iter().rev()),
            serde_json::Value::Object(entries) => {
                for (key, value) in entries.iter().rev() {
                    match (key.as_str(), value.as_str()) {
                        ("precompiled_charsmap", Some(text)) => maps.push(base64(text)?),
                        _ => waiting.push(value),
                    }
                }
            }
            _ => {}
        }
    }
    Ok(maps)
}

/// Decodes base64.
fn base64(text: &str) -> Result<Vec<u8>, String> {
    let (mut bytes, mut bits, mut count) = (Vec::with_capacity(text.len() / 4 * 3), 0u32, 0);
    for byte in text.trim_end_matches('=').bytes() {
        let six = match byte {
            b'A'..=b'Z' => byte - b'A',
            b'a'..=b'z' => byte - b'a' + 26,
            b'0'..=b'9' => byte - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => return Err("a character map is not valid base64".into()),
        };
        bits = bits << 6 | u32::from(six);
        count += 6;
        if count >= 8 {
            count -= 8;
            bytes.push((bits >> count & 0xff) as u8);
        }
    }
    Ok(bytes)
}

/// Field of a protobuf message.
pub(super) enum Field<'m> {
    Bytes(&'m [u8]),
    Word(u32),
    Varint(u64),
    Other,
}

/// Iterates over the fields of a message, with their numbers.
pub(super) fn fields(mut rest: &[u8]) -> impl Iterator<Item = Result<(u64, Field<'_>), String>> {
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let field = field(&mut rest);
        if field.is_none() {
            rest = &[];
        }
        Some(field.ok_or_else(|| "a protobuf message is truncated".to_owned()))
    })
}

fn field<'m>(rest: &mut &'m [u8]) -> Option<(u64, Field<'m>)> {
    let tag = varint(rest)?;
    let mut take = |count: usize| {
        let (taken, behind) = rest.split_at_checked(count)?;
        *rest = behind;
        Some(taken)
    };
    let field = match tag & 7 {
        1 => take(8).map(|_| Field::Other)?,
        5 => Field::Word(u32::from_le_bytes(take(4)?.try_into().ok()?)),
        0 => Field::Varint(varint(rest)?),
        2 => {
            let count = usize::try_from(varint(rest)?).ok()?;
            let (taken, behind) = rest.split_at_checked(count)?;
            *rest = behind;
            Field::Bytes(taken)
        }
        _ => return None,
    };
    Some((tag >> 3, field))
}

fn varint(rest: &mut &[u8]) -> Option<u64> {
    let mut value = 0u64;
    for at in 0..10 {
        let (byte, behind) = rest.split_first()?;
        *rest = behind;
        value |= u64::from(byte & 0x7f) << (7 * at).min(63);
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map() -> Vec<u8> {
        let model = include_bytes!("../../tests/tokenizers/mapped.model");
        of_sentencepiece(model).unwrap().concat()
    }

    #[test]
    fn real_maps_are_valid() {
        let map = map();
        // Fifteen Arabic letters and three spaces, from one character of three bytes.
        assert_eq!(check(&map), Ok("صلى الله عليه وسلم".len() / "ﷺ".len()));
        assert_eq!(check(&[]), Ok(1));
    }

    #[test]
    fn invalid_maps_are_rejected() {
        let map = map();
        assert!(check(&map[..3]).is_err());
        assert!(check(&map[..map.len() / 4]).is_err());
        // Missing replacements, an unterminated replacement, and a truncated trie.
        let length = u32::from_le_bytes(map[..4].try_into().unwrap()) as usize;
        assert!(check(&map[..4 + length]).unwrap_err().contains("texts"));
        let without_end: Vec<u8> =
            map[..4 + length].iter().copied().chain(std::iter::repeat_n(b'a', 10_000)).collect();
        assert!(check(&without_end).unwrap_err().contains("10000 bytes"));
        let mut short = ((length / 2) as u32).to_le_bytes().to_vec();
        short.extend(&map[4..4 + length / 2]);
        short.extend(&map[4 + length..]);
        assert!(check(&short).unwrap_err().contains("outside its trie"));
        // A cyclic trie terminates.
        let ring = [&8u32.to_le_bytes()[..], &1u32.to_le_bytes(), &0x101u32.to_le_bytes()].concat();
        assert!(check(&ring).is_err());
    }

    #[test]
    fn scores_must_be_finite() {
        let piece = |score: f32| {
            let inner = [&[0x0a, 1, b'a', 0x15][..], &score.to_le_bytes()].concat();
            [&[0x0a, inner.len() as u8][..], &inner].concat()
        };
        assert!(of_sentencepiece(&piece(1.0)).unwrap().is_empty());
        assert!(of_sentencepiece(&piece(f32::NAN)).is_err());
        assert!(of_sentencepiece(&piece(1.0)[..6]).is_err());
    }

    #[test]
    fn piece_lengths_are_bounded() {
        let piece = "a".repeat(1023) + "b";
        assert!(CharacterMap::new(&map(), &["a", &(piece.clone() + "b")]).is_err());
        let map = CharacterMap::new(&map(), &["a", &piece]).unwrap();
        let text = "a".repeat(4000);
        assert_eq!(map.replace(&text), text);
    }

    #[test]
    fn base64_is_decoded() {
        for (text, bytes) in [
            ("", &b""[..]),
            ("YQ==", b"a"),
            ("YWI=", b"ab"),
            ("YWJj", b"abc"),
            ("//8=", &[255, 255]),
        ] {
            assert_eq!(base64(text).unwrap(), bytes);
        }
        assert!(base64("a b").is_err());
    }
}
