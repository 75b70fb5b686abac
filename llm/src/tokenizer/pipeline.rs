//! Texts through all steps of a tokenizer: added tokens, normalisation, and what `kitoken` makes of the parts.

use super::added::{AddedTokens, Part};
use super::charsmap::CharacterMap;
use super::reversed::ReversedBytes;
use kitoken::{
    Definition, EncodeError, Kitoken, Model, Normalization, SpecialToken, SpecialTokenKind,
};
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

/// The character that SentencePiece has for a space.
const SPACE: char = '▁';

/// All that a file of `kitoken`'s formats says.
pub(super) struct Pipeline {
    model: Kitoken,
    added: AddedTokens,
    /// Steps before added tokens are looked for a second time, and those behind.
    steps: (Vec<Step>, Vec<Step>),
    reversed: ReversedBytes,
    /// Tokens without text.
    silent: BTreeSet<u32>,
    /// Tokens of which another has the same byte.
    bytes: BTreeMap<u32, u32>,
}

/// A change of a text before it is cut.
pub(super) enum Step {
    Map(CharacterMap),
    Other(Normalization),
}

impl Step {
    fn change(&self, text: &mut Cow<'_, str>, is_start: bool, is_end: bool) {
        match self {
            Step::Map(map) => *text = map.replace(text).into(),
            Step::Other(step) => {
                step.normalize(text, usize::from(!is_start)..if is_end { usize::MAX } else { 1 });
            }
        }
    }
}

/// A text behind steps, of which those behind the one that leaves nothing add nothing.
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
    /// From a definition, the steps in it that come before added tokens are looked for again, the map of characters of a SentencePiece model, and the
    /// file where that is a `tokenizer.json`.
    pub(super) fn new(
        mut definition: Definition,
        before: usize,
        map: Option<CharacterMap>,
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
        let behind = steps.split_off(before.min(steps.len()));
        // Names of other formats are what is found in normalised texts.
        let normalize = |name: &str| match file.is_null() {
            true => name.to_owned(),
            false => changed(&steps, name, true, true).into_owned(),
        };
        let added = AddedTokens::new(&definition, file, normalize)?;
        for token in &mut definition.specials {
            // Texts are cut at them here.
            token.extract = false;
        }
        // What stands for the unknown is shown, unless a `tokenizer.json` says that it is special.
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
        let reversed = ReversedBytes::of(&definition.model);
        let bytes = same_bytes(&definition.model, file);
        complete_scores(&mut definition.model, file);
        let model = Kitoken::from_definition(definition).map_err(|error| error.to_string())?;
        Ok(Pipeline { model, added, steps: (steps, behind), reversed, silent, bytes })
    }

    pub(super) fn encode(&self, text: &str, specials: bool) -> Result<Vec<u32>, EncodeError> {
        let mut tokens = Vec::new();
        let ends = |range: &std::ops::Range<usize>, text: &str| {
            (range.start == 0, range.end == text.len())
        };
        for part in self.added.before.parts(text, specials) {
            let (range, outer) = match part {
                Part::Token(token) => {
                    tokens.push(token);
                    continue;
                }
                Part::Text(range) => (range.clone(), ends(&range, text)),
            };
            let text = text.get(range).unwrap_or_default();
            let text = changed(&self.steps.0, text, outer.0, outer.1);
            for part in self.added.behind.parts(&text, specials) {
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
                tokens.extend(self.reversed.repair(self.model.encode(&text, none)?));
            }
        }
        Ok(tokens)
    }

    /// The bytes of tokens; `None` where one of them is unknown.
    pub(super) fn decode(&self, tokens: &[u32]) -> Option<Vec<u8>> {
        let tokens = tokens.iter().filter(|token| !self.silent.contains(token));
        let tokens = tokens.map(|token| *self.bytes.get(token).unwrap_or(token));
        self.model.decode(tokens.collect::<Vec<u32>>(), false).ok()
    }
}

/// Tokens such as `<0x41>` of a `tokenizer.json` that are left out because another is that character.
fn same_bytes(model: &Model, file: &serde_json::Value) -> BTreeMap<u32, u32> {
    let vocab = &file["model"]["vocab"];
    let number = |name: &str| match vocab {
        serde_json::Value::Object(vocab) => vocab.get(name)?.as_u64(),
        serde_json::Value::Array(vocab) => {
            vocab.iter().position(|piece| piece[0] == name).map(|at| at as u64)
        }
        _ => None,
    };
    let mut same = BTreeMap::new();
    if file["model"]["byte_fallback"] != true {
        return same;
    }
    for token in model.vocab() {
        if let [byte @ 0..0x80] = token.bytes[..]
            && let Some(other) = number(&format!("<0x{byte:02X}>"))
            && let Ok(other) = u32::try_from(other)
            && other != token.id
        {
            same.insert(other, token.id);
        }
    }
    same
}

/// `kitoken` 0.11 leaves out such tokens, and keeps their scores.
fn complete_scores(model: &mut Model, file: &serde_json::Value) {
    if let Model::Unigram { vocab, scores } = model
        && vocab.len() != scores.len()
    {
        let score = |id: u32| file["model"]["vocab"][id as usize][1].as_f64().unwrap_or(0.0) as f32;
        *scores = vocab.iter().map(|token| score(token.id)).collect();
    }
}

/// Whether a vocabulary of SentencePiece has pieces that go on behind a space: then texts are not to be cut there.
pub(super) fn has_pieces_across_words(model: &Model) -> bool {
    model.vocab().iter().any(|token| {
        let text = std::str::from_utf8(&token.bytes).unwrap_or_default();
        text.trim_start_matches(SPACE).contains(SPACE)
    })
}
