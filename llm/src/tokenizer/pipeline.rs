//! Tokenization pipeline: added tokens, normalization, pre-tokenization and the model.

use super::added::{AddedTokens, Part};
use super::bytes;
use super::charsmap::CharacterMap;
use super::merges::MergeList;
use super::rewrite::Bytes;
use super::unigram::Unigrams;
use kitoken::{
    Definition, EncodeError, Kitoken, Model, Normalization, SpecialToken, SpecialTokenKind,
};
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

/// SentencePiece's character for a space.
const SPACE: char = '▁';

/// Everything that a tokenizer file specifies.
pub(super) struct Pipeline {
    model: Kitoken,
    added: AddedTokens,
    /// Normalization steps before and after added tokens are matched the second time.
    steps: (Vec<Step>, Vec<Step>),
    /// Unigram model, if not `kitoken`'s.
    unigrams: Option<Unigrams>,
    /// BPE merge list, if not `kitoken`'s model.
    pairs: Option<MergeList>,
    /// Names of tokens, for files without a decoder. Tokens then decode to their names.
    names: BTreeMap<u32, String>,
    /// Whether the names are in the byte-level alphabet.
    is_byte_level: bool,
    /// Tokens that decode to no text.
    silent: BTreeSet<u32>,
    /// Byte tokens that duplicate a single-character token.
    bytes: BTreeMap<u32, u32>,
}

/// Normalization step.
pub(super) enum Step {
    Map(CharacterMap),
    /// Maps bytes to the byte-level alphabet.
    Bytes,
    Other(Normalization),
}

impl Step {
    fn change(&self, text: &mut Cow<'_, str>, is_start: bool, is_end: bool) {
        match self {
            Step::Map(map) => *text = map.replace(text).into(),
            Step::Bytes => *text = bytes::named(text).into(),
            Step::Other(step) => {
                step.normalize(text, usize::from(!is_start)..if is_end { usize::MAX } else { 1 });
            }
        }
    }
}

/// Applies steps. Once the text is empty, the remaining steps are skipped, because they would add
/// nothing.
fn changed<'t>(steps: &[Step], text: &'t str, is_start: bool, is_end: bool) -> Cow<'t, str> {
    let mut text = Cow::Borrowed(text);
    for step in steps {
        if text.is_empty() {
            break;
        }
        step.change(&mut text, is_start, is_end);
    }
    text
}

impl Pipeline {
    /// Builds the pipeline.
    ///
    /// - `before`: number of normalization steps before added tokens are matched again
    /// - `of_bytes`: steps before which bytes are mapped to the byte-level alphabet
    /// - `map`: character map of a SentencePiece model
    /// - `unigrams`, `byte_tokens`: unigram model and byte tokens
    /// - `file`: the `tokenizer.json`, or `Null`
    pub(super) fn new(
        mut definition: Definition,
        (before, of_bytes): (usize, Bytes),
        map: Option<CharacterMap>,
        (unigrams, byte_tokens): (Option<Unigrams>, &[(u8, u32)]),
        file: &serde_json::Value,
    ) -> Result<Self, String> {
        let mut map = map;
        let steps = std::mem::take(&mut definition.config.normalization).into_iter();
        let mut steps: Vec<Step> = steps
            .map(|step| match (&step, map.take()) {
                (Normalization::CharsMap { .. }, Some(map)) => Step::Map(map),
                (_, kept) => {
                    map = kept;
                    Step::Other(step)
                }
            })
            .collect();
        let mut before = before.min(steps.len());
        for at in of_bytes.steps.iter().rev() {
            steps.insert(*at.min(&steps.len()), Step::Bytes);
            before += 1;
        }
        let behind = steps.split_off(before);
        // Other formats match the names in normalized text as they are.
        let normalize = |name: &str| match file.is_null() {
            true => name.to_owned(),
            false => changed(&steps, name, true, true).into_owned(),
        };
        let added = AddedTokens::new(&definition, file, normalize)?;
        for token in &mut definition.specials {
            // Added tokens are matched here instead.
            token.extract = false;
        }
        // The unknown token decodes to its name, unless a `tokenizer.json` declares it special.
        definition.meta.source.clear();
        let list = file["added_tokens"].as_array().into_iter().flatten();
        let special = list.filter(|token| token["special"] == true);
        let special: BTreeSet<&str> =
            special.filter_map(|token| token["content"].as_str()).collect();
        let is_silent = |token: &SpecialToken| match token.kind {
            SpecialTokenKind::Priority => false,
            SpecialTokenKind::Unknown => {
                std::str::from_utf8(&token.bytes).is_ok_and(|name| special.contains(name))
            }
            _ => true,
        };
        let silent = definition.specials.iter().filter(|token| is_silent(token));
        let silent = silent.map(|token| token.id).collect();
        let bytes = same_bytes(&definition.model, byte_tokens);
        complete_scores(&mut definition.model, file);
        let model = Kitoken::from_definition(definition).map_err(|error| error.to_string())?;
        let mut names = names(file);
        let is_byte_level = of_bytes.are_names;
        if is_byte_level {
            // Added tokens that are matched in normalized text have normalized names.
            let list = file["added_tokens"].as_array().into_iter().flatten();
            let normalized = list.filter(|token| token["normalized"] == true);
            for id in normalized.filter_map(|token| u32::try_from(token["id"].as_u64()?).ok()) {
                let Some(name) = names.get_mut(&id) else { continue };
                *name = changed(&steps, name, true, true).into_owned();
            }
        }
        let (pairs, steps) = (MergeList::of_json(file)?, (steps, behind));
        Ok(Pipeline { model, added, steps, unigrams, pairs, names, is_byte_level, silent, bytes })
    }

    /// Splits the names of special tokens with a mark. `None` if the text contains none.
    pub(super) fn divide(&self, text: &str, mark: char) -> Option<String> {
        let (steps, behind) = (&self.steps.0, &self.added.behind);
        let has_specials =
            |is_inner: bool| behind.has_specials(&changed(steps, text, !is_inner, !is_inner));
        if has_specials(true) || has_specials(false) {
            // The positions of the names before normalization are unknown, so every character is
            // marked.
            return Some(text.chars().flat_map(|character| [mark, character]).collect());
        }
        self.added.before.divide(text, mark)
    }

    /// Names of added tokens, as they are matched.
    pub(super) fn added_names(&self) -> impl Iterator<Item = &str> {
        self.added.before.names().chain(self.added.behind.names())
    }

    /// Encodes a text. Names of special tokens are ordinary text if `specials` is false, or if the
    /// mark [splits](Self::divide) them.
    pub(super) fn encode(
        &self,
        text: &str,
        specials: bool,
        mark: Option<char>,
    ) -> Result<Vec<u32>, EncodeError> {
        let mut tokens = Vec::new();
        let ends = |range: &std::ops::Range<usize>, text: &str| {
            (range.start == 0, range.end == text.len())
        };
        for part in self.added.before.parts(text, specials, mark) {
            let (range, outer) = match part {
                Part::Token(token) => {
                    tokens.push(token);
                    continue;
                }
                Part::Text(range) => (range.clone(), ends(&range, text)),
            };
            let text = text.get(range).unwrap_or_default();
            let mark = mark.filter(|mark| text.contains(*mark));
            let whole = mark.map_or(Cow::Borrowed(text), |mark| text.replace(mark, "").into());
            let specials = specials && mark.is_none();
            let text = changed(&self.steps.0, &whole, outer.0, outer.1);
            for part in self.added.behind.parts(&text, specials, None) {
                let (range, inner) = match part {
                    Part::Token(token) => {
                        tokens.push(token);
                        continue;
                    }
                    Part::Text(range) => (range.clone(), ends(&range, &text)),
                };
                let text = text.get(range).unwrap_or_default();
                let text = changed(&self.steps.1, text, outer.0 && inner.0, outer.1 && inner.1);
                let none: &[SpecialTokenKind] = &[];
                let words = self.model.config();
                let words = |text| words.split(text).into_iter();
                match (&self.unigrams, &self.pairs) {
                    (None, None) => tokens.extend(self.model.encode(&text, none)?),
                    (Some(unigrams), _) => words(&text).for_each(|(from, to)| {
                        unigrams.encode(text.get(from..to).unwrap_or_default(), &mut tokens);
                    }),
                    (None, Some(pairs)) => words(&text).for_each(|(from, to)| {
                        pairs.encode(text.get(from..to).unwrap_or_default(), &mut tokens);
                    }),
                }
            }
        }
        Ok(tokens)
    }

    /// Decodes tokens to bytes. `None` if one of them is unknown.
    pub(super) fn decode(&self, tokens: &[u32]) -> Option<Vec<u8>> {
        let tokens = tokens.iter().filter(|token| !self.silent.contains(token));
        if !self.names.is_empty() {
            let names: Option<Vec<&str>> =
                tokens.map(|token| self.names.get(token).map(String::as_str)).collect();
            return Some(match self.is_byte_level {
                true => names?.into_iter().flat_map(bytes::of_name).collect(),
                false => names?.join(" ").into_bytes(),
            });
        }
        let tokens = tokens.map(|token| *self.bytes.get(token).unwrap_or(token));
        self.model.decode(tokens.collect::<Vec<u32>>(), false).ok()
    }
}

/// Byte tokens such as `<0x41>` that `kitoken` drops because another token is the same character.
fn same_bytes(model: &Model, byte_tokens: &[(u8, u32)]) -> BTreeMap<u32, u32> {
    let single = model.vocab().iter().filter_map(|token| match token.bytes[..] {
        [byte @ 0..0x80] => Some((byte, token.id)),
        _ => None,
    });
    let single: BTreeMap<u8, u32> = single.collect();
    let pairs = byte_tokens.iter().filter_map(|(byte, token)| Some((*token, *single.get(byte)?)));
    pairs.filter(|(token, other)| token != other).collect()
}

/// Names of all tokens of a `tokenizer.json` without a decoder. Empty for other files.
fn names(file: &serde_json::Value) -> BTreeMap<u32, String> {
    let mut names = BTreeMap::new();
    // Names in the byte-level alphabet would be unreadable.
    let is_of_bytes = file["pre_tokenizer"].to_string().contains("\"ByteLevel\"");
    if file.is_null() || !file["decoder"].is_null() || is_of_bytes {
        return names;
    }
    let mut add = |id: Option<u64>, name: Option<&str>| {
        if let (Some(id), Some(name)) = (id.and_then(|id| u32::try_from(id).ok()), name) {
            names.insert(id, name.to_owned());
        }
    };
    match &file["model"]["vocab"] {
        serde_json::Value::Object(vocab) => {
            vocab.iter().for_each(|(name, id)| add(id.as_u64(), Some(name)));
        }
        serde_json::Value::Array(vocab) => {
            (0u64..).zip(vocab).for_each(|(id, piece)| add(Some(id), piece[0].as_str()));
        }
        _ => {}
    }
    for token in file["added_tokens"].as_array().into_iter().flatten() {
        add(token["id"].as_u64(), token["content"].as_str());
    }
    names
}

/// `kitoken` 0.11 drops duplicate tokens, but keeps their scores.
fn complete_scores(model: &mut Model, file: &serde_json::Value) {
    if let Model::Unigram { vocab, scores } = model
        && vocab.len() != scores.len()
    {
        let score = |id: u32| file["model"]["vocab"][id as usize][1].as_f64().unwrap_or(0.0) as f32;
        *scores = vocab.iter().map(|token| score(token.id)).collect();
    }
}

/// Whether a SentencePiece vocabulary has pieces that contain a space inside. Texts must not be
/// split at spaces then.
pub(super) fn has_pieces_across_words(model: &Model) -> bool {
    model.vocab().iter().any(|token| {
        let text = std::str::from_utf8(&token.bytes).unwrap_or_default();
        text.trim_start_matches(SPACE).contains(SPACE)
    })
}
