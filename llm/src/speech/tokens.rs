//! Whisper's special tokens, and its rules of what may come next.

use crate::error::Error;
use crate::tokenizer::Tokenizer;
use serde_json::Value;

/// Seconds from one timestamp's token to the next one's.
const STEP: f32 = 0.02;
/// The token that begins a transcript in the vocabulary of Whisper's models of English alone
/// (`.en`), which is that of GPT-2; in the other one, which has one token more in front, it is the
/// next.
const ENGLISH_START: u32 = 50_257;
/// Configurations are a few kilobytes.
const MAX_CONFIG: usize = 1 << 20;

/// The tokens of a vocabulary for speech that are no text, and those that are never chosen.
///
/// A vocabulary tells by the names of its tokens, all but what is never chosen: that is in
/// `generation_config.json` of Hugging Face's models.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SpeechTokens {
    /// In front of everything (`<|startoftranscript|>`).
    pub start: Option<u32>,
    /// Languages by their names (`en`); none where there is one alone.
    pub languages: Vec<(String, u32)>,
    /// Asks for what is said (`<|transcribe|>`).
    pub transcribe: Option<u32>,
    /// Asks for what is said in English (`<|translate|>`).
    pub translate: Option<u32>,
    /// Asks for text without timestamps (`<|notimestamps|>`). Behind it come the timestamps, every
    /// 20 ms.
    pub no_timestamps: Option<u32>,
    /// Tokens that are never chosen.
    pub suppress: Vec<u32>,
    /// Tokens that are not chosen first.
    pub suppress_first: Vec<u32>,
    /// The last timestamp that a text may begin with, counted from 0.
    pub max_initial_timestamp: Option<u32>,
}

impl SpeechTokens {
    /// What a tokenizer tells by the names of its special tokens.
    pub fn of(tokenizer: &Tokenizer) -> Self {
        let special = |name: &str| tokenizer.special(name);
        let languages = tokenizer.specials().filter_map(|(name, token)| {
            let language = name.strip_prefix("<|")?.strip_suffix("|>")?;
            let is_language = (2..=3).contains(&language.len())
                && language.bytes().all(|byte| byte.is_ascii_lowercase());
            is_language.then(|| (language.to_owned(), token))
        });
        let start = special("<|startoftranscript|>");
        let mut tokens = SpeechTokens {
            start,
            languages: languages.collect(),
            transcribe: special("<|transcribe|>"),
            translate: special("<|translate|>"),
            no_timestamps: special("<|notimestamps|>"),
            ..SpeechTokens::default()
        };
        if start == Some(ENGLISH_START) {
            tokens.leave_out_languages();
        }
        tokens
    }

    /// Models of English alone know the names of languages and tasks, and never saw their tokens.
    fn leave_out_languages(&mut self) {
        self.languages.clear();
        (self.transcribe, self.translate) = (None, None);
    }

    /// Takes over what a `generation_config.json` tells.
    ///
    /// # Errors
    /// It is malformed or too long.
    pub fn configure(&mut self, config: &str) -> Result<(), Error> {
        let fail = |message: String| Error::Tokenizer {
            message: format!("generation_config.json: {message}"),
        };
        if config.len() > MAX_CONFIG {
            return Err(fail(format!("it has {} bytes, more than {MAX_CONFIG}", config.len())));
        }
        let config: Value =
            serde_json::from_str(config).map_err(|error| fail(error.to_string()))?;
        let wrong = |name: &str| fail(format!("'{name}' should be a token, or a list of tokens"));
        let token = |value: &Value| value.as_u64().and_then(|token| u32::try_from(token).ok());
        let one = |name: &str, value: &Value| match value {
            Value::Null => Ok(None),
            value => token(value).map(Some).ok_or_else(|| wrong(name)),
        };
        let list = |name: &str| match &config[name] {
            Value::Null => Ok(None),
            Value::Array(tokens) => {
                let tokens: Option<Vec<u32>> = tokens.iter().map(token).collect();
                tokens.map(Some).ok_or_else(|| wrong(name))
            }
            _ => Err(wrong(name)),
        };
        let tasks = &config["task_to_id"];
        for (known, name, value) in [
            (&mut self.start, "decoder_start_token_id", &config["decoder_start_token_id"]),
            (&mut self.transcribe, "task_to_id", &tasks["transcribe"]),
            (&mut self.translate, "task_to_id", &tasks["translate"]),
            (&mut self.no_timestamps, "no_timestamps_token_id", &config["no_timestamps_token_id"]),
        ] {
            *known = one(name, value)?.or(*known);
        }
        let (limit, name) = (&config["max_initial_timestamp_index"], "max_initial_timestamp_index");
        self.max_initial_timestamp = one(name, limit)?.or(self.max_initial_timestamp);
        self.suppress = list("suppress_tokens")?.unwrap_or_else(|| self.suppress.clone());
        self.suppress_first =
            list("begin_suppress_tokens")?.unwrap_or_else(|| self.suppress_first.clone());
        if let Value::Object(languages) = &config["lang_to_id"] {
            let named = languages.iter().map(|(name, value)| {
                let language = name.trim_start_matches("<|").trim_end_matches("|>");
                Some((language.to_owned(), token(value)?))
            });
            let named: Option<Vec<_>> = named.collect();
            self.languages = named.ok_or_else(|| wrong("lang_to_id"))?;
        }
        if config["is_multilingual"] == false {
            self.leave_out_languages();
        }
        Ok(())
    }

    /// The token of the first timestamp.
    pub(super) fn first_timestamp(&self) -> Option<u32> {
        self.no_timestamps?.checked_add(1)
    }

    /// Makes what may not come behind these tokens impossible: what is never chosen, and, where
    /// there are timestamps, what breaks their order. `end` is the token that ends a text, in front
    /// of all others that are none.
    pub(super) fn rule(
        &self,
        logits: &mut [f32],
        made: &[u32],
        timestamps: Option<u32>,
        end: Option<u32>,
    ) {
        let first: &[u32] = if made.is_empty() { &self.suppress_first } else { &[] };
        for token in self.suppress.iter().chain(first) {
            forbid(logits, *token, token.saturating_add(1));
        }
        if let Some(first) = timestamps {
            self.rule_timestamps(logits, made, first, end.unwrap_or(first));
        }
    }

    /// Timestamps come in pairs, the end of a piece of text and the beginning of the next, and do
    /// not decrease. A text begins with one. One is chosen where all of them together are likelier
    /// than each other token.
    fn rule_timestamps(&self, logits: &mut [f32], made: &[u32], first: u32, end: u32) {
        if let Some(token) = self.no_timestamps {
            forbid(logits, token, first);
        }
        let is_timestamp = |token: &u32| *token >= first;
        let last = made.last().is_some_and(is_timestamp);
        let before = made.len() < 2 || made.iter().rev().nth(1).is_some_and(is_timestamp);
        match (last, before) {
            (true, true) => forbid(logits, first, u32::MAX),
            (true, false) => forbid(logits, 0, end),
            _ => {}
        }
        if let Some(latest) = made.iter().rev().copied().find(is_timestamp) {
            // The beginning of the next piece may be the end of the last.
            let same = u32::from(!last || before);
            forbid(logits, first, latest.saturating_add(same));
        }
        if made.is_empty() {
            forbid(logits, 0, first);
            if let Some(most) = self.max_initial_timestamp {
                forbid(logits, first.saturating_add(most).saturating_add(1), u32::MAX);
            }
        }
        let (text, stamps) = logits.split_at(logits.len().min(first as usize));
        let most = |logits: &[f32]| logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let (likeliest, base) = (most(text), most(stamps));
        let sum: f32 = stamps.iter().map(|logit| (logit - base).exp()).sum();
        if base > f32::NEG_INFINITY && base + sum.ln() > likeliest {
            forbid(logits, 0, first);
        }
    }

    /// The pieces of text between timestamps, and where the sound that was not heard to its end
    /// goes on: as far as the model came, or `length` seconds. In the last piece of the sound, what
    /// was begun and has no end goes on to the end.
    pub(super) fn segments<'t>(
        tokens: &'t [u32],
        first: u32,
        end: &[u32],
        length: f32,
        is_last: bool,
    ) -> (Vec<Piece<'t>>, f32) {
        let time = |token: u32| token.checked_sub(first).map(|steps| steps as f32 * STEP);
        let tokens = match tokens.split_last() {
            Some((last, rest)) if end.contains(last) => rest,
            _ => tokens,
        };
        let mut pieces = Vec::new();
        let (mut from, mut begun) = (0.0, 0);
        for (at, token) in tokens.iter().enumerate() {
            let Some(time) = time(*token) else { continue };
            if at > begun {
                pieces.push(Piece { from, to: time, tokens: &tokens[begun..at] });
            }
            (from, begun) = (time, at + 1);
        }
        let is_open = begun < tokens.len();
        if is_open && (is_last || pieces.is_empty() || from == 0.0) {
            // Nothing says where it ends: it is all that there is.
            pieces.push(Piece { from, to: length.max(from), tokens: &tokens[begun..] });
            return (pieces, length);
        }
        // What was begun and has no end is heard again, from where it begins; so is what comes
        // behind two timestamps.
        let pair = tokens.len() >= 2 && tokens[tokens.len() - 2..].iter().all(|t| *t >= first);
        let next = if (is_open || pair) && from > 0.0 { from } else { length };
        (pieces, next.min(length))
    }
}

/// Some tokens of a text, and when they were said, in seconds.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Piece<'t> {
    pub(super) from: f32,
    pub(super) to: f32,
    pub(super) tokens: &'t [u32],
}

/// Makes tokens impossible, from one on and in front of another.
fn forbid(logits: &mut [f32], from: u32, to: u32) {
    let to = logits.len().min(to as usize);
    if let Some(logits) = logits.get_mut(from as usize..to) {
        logits.fill(f32::NEG_INFINITY);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_between_timestamps_has_times() {
        let first = 50;
        let of = |tokens: &[u32]| {
            let (pieces, next) = SpeechTokens::segments(tokens, first, &[40], 10.0, false);
            let pieces = pieces.iter().map(|piece| (piece.from, piece.to, piece.tokens.to_vec()));
            (pieces.collect::<Vec<_>>(), next)
        };
        let close = |seconds: u32| seconds as f32 * STEP;
        // One piece, to the end; two, of which the second has no end and is heard again; two that
        // end; none.
        assert_eq!(of(&[50, 1, 2, 150, 40]), (vec![(0.0, close(100), vec![1, 2])], 10.0));
        assert_eq!(of(&[50, 1, 100, 100, 2]), (vec![(0.0, close(50), vec![1])], close(50)));
        let two = vec![(0.0, close(50), vec![1]), (close(50), close(70), vec![2])];
        assert_eq!(of(&[50, 1, 100, 100, 2, 120]), (two.clone(), 10.0));
        assert_eq!(of(&[50, 1, 100, 100, 2, 120, 120, 40]), (two, close(70)));
        // At the end of the sound there is nothing to hear again: what was begun is kept.
        let (pieces, next) =
            SpeechTokens::segments(&[50, 1, 100, 100, 2], first, &[40], 10.0, true);
        let pieces: Vec<_> =
            pieces.iter().map(|piece| (piece.from, piece.to, piece.tokens)).collect();
        assert_eq!(pieces, [(0.0, close(50), &[1][..]), (close(50), 10.0, &[2][..])]);
        assert_eq!(next, 10.0);
        assert_eq!(of(&[40]), (vec![], 10.0));
        assert_eq!(of(&[50, 1, 2]), (vec![(0.0, 10.0, vec![1, 2])], 10.0));
        assert_eq!(of(&[1, 2]), (vec![(0.0, 10.0, vec![1, 2])], 10.0));
    }

    /// In the last piece of a sound, too, what comes behind two timestamps was not heard.
    #[test]
    fn sound_behind_two_timestamps_is_heard_again() {
        let next = |tokens: &[u32]| SpeechTokens::segments(tokens, 50, &[40], 10.0, true).1;
        assert_eq!(next(&[50, 1, 100, 100, 40]), 50.0 * STEP);
        assert_eq!(next(&[50, 1, 100, 40]), 10.0);
        assert_eq!(next(&[50, 1, 100, 100, 2, 40]), 10.0);
    }

    #[test]
    fn models_of_english_alone_have_no_languages() {
        let of = |start: u32| {
            let added = |(id, name): (u32, &str)| serde_json::json!({"id": id, "content": name, "special": true, "single_word": false, "lstrip": false, "rstrip": false, "normalized": false});
            let names = [
                "<|startoftranscript|>",
                "<|en|>",
                "<|transcribe|>",
                "<|translate|>",
                "<|notimestamps|>",
            ];
            let added: Vec<Value> = (start..).zip(names).map(added).collect();
            let json = serde_json::json!({"version": "1.0", "added_tokens": added, "model": {"type": "BPE", "vocab": {"a": 0}, "merges": []}});
            let tokenizer = Tokenizer::from_bytes(json.to_string().as_bytes()).unwrap();
            SpeechTokens::of(&tokenizer)
        };
        let both = of(ENGLISH_START + 1);
        assert_eq!((both.languages.len(), both.transcribe), (1, Some(ENGLISH_START + 3)));
        let english = of(ENGLISH_START);
        assert_eq!((english.start, english.no_timestamps), (Some(50_257), Some(50_261)));
        assert!(english.languages.is_empty() && english.transcribe.is_none());
    }

    #[test]
    fn configurations_are_read() {
        let mut tokens = SpeechTokens { start: Some(1), ..SpeechTokens::default() };
        tokens
            .configure(
                r#"{"no_timestamps_token_id": 52, "suppress_tokens": [1, 2], "begin_suppress_tokens": [3], "lang_to_id": {"<|en|>": 46},
                    "task_to_id": {"transcribe": 48, "translate": 49}, "max_initial_timestamp_index": 3, "eos_token_id": 45}"#,
            )
            .unwrap();
        let expected = SpeechTokens {
            start: Some(1),
            languages: vec![("en".into(), 46)],
            transcribe: Some(48),
            translate: Some(49),
            no_timestamps: Some(52),
            suppress: vec![1, 2],
            suppress_first: vec![3],
            max_initial_timestamp: Some(3),
        };
        assert_eq!(tokens, expected);
        tokens.configure(r#"{"is_multilingual": false}"#).unwrap();
        assert!(tokens.languages.is_empty() && tokens.transcribe.is_none());
        for wrong in [r#"{"suppress_tokens": [-1]}"#, r#"{"suppress_tokens": 5}"#, "["] {
            assert!(tokens.configure(wrong).is_err(), "{wrong}");
        }
    }
}
