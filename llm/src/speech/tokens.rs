//! Special tokens of Whisper, and its constraints on generated tokens.

use crate::error::Error;
use crate::tokenizer::Tokenizer;
use serde_json::Value;

/// Seconds between consecutive timestamp tokens.
const STEP: f32 = 0.02;
/// `<|startoftranscript|>` in the vocabulary of Whisper's English-only models (`.en`), that of
/// GPT-2. In the multilingual vocabulary, which has one more token before it, it is the next token.
const ENGLISH_START: u32 = 50_257;
/// Maximum size of a configuration; real ones have a few kilobytes.
const MAX_CONFIG: usize = 1 << 20;

/// Special tokens of a speech vocabulary, and suppressed tokens.
///
/// The tokenizer provides the names of special tokens. Suppressed tokens come from the
/// `generation_config.json` of Hugging Face's models.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SpeechTokens {
    /// Start token (`<|startoftranscript|>`).
    pub start: Option<u32>,
    /// Language tokens by name (`en`). Empty for models of a single language.
    pub languages: Vec<(String, u32)>,
    /// Requests a transcript (`<|transcribe|>`).
    pub transcribe: Option<u32>,
    /// Requests a translation to English (`<|translate|>`).
    pub translate: Option<u32>,
    /// Disables timestamps (`<|notimestamps|>`). The timestamp tokens follow it in the vocabulary,
    /// one per 20 ms.
    pub no_timestamps: Option<u32>,
    /// Tokens that are never sampled.
    pub suppress: Vec<u32>,
    /// Tokens that are not sampled first.
    pub suppress_first: Vec<u32>,
    /// Maximum first timestamp, as an index of timestamp tokens.
    pub max_initial_timestamp: Option<u32>,
}

impl SpeechTokens {
    /// Finds special tokens by their names in a tokenizer.
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

    /// English-only models have language and task tokens in their vocabulary, but were not trained
    /// with them.
    fn leave_out_languages(&mut self) {
        self.languages.clear();
        (self.transcribe, self.translate) = (None, None);
    }

    /// Updates the tokens from a `generation_config.json`.
    ///
    /// # Errors
    /// The configuration is malformed or too long.
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

    /// First timestamp token.
    pub(super) fn first_timestamp(&self) -> Option<u32> {
        self.no_timestamps?.checked_add(1)
    }

    /// Masks the logits of tokens that may not follow `made`: suppressed tokens, and tokens that
    /// violate the order of timestamps. `end` is the first special token of the vocabulary (end of
    /// text).
    pub(super) fn mask_logits(
        &self,
        logits: &mut [f32],
        made: &[u32],
        timestamps: Option<u32>,
        end: Option<u32>,
    ) {
        let first: &[u32] = if made.is_empty() { &self.suppress_first } else { &[] };
        for token in self.suppress.iter().chain(first) {
            mask_range(logits, *token, token.saturating_add(1));
        }
        if let Some(first) = timestamps {
            self.mask_timestamps(logits, made, first, end.unwrap_or(first));
        }
    }

    /// Timestamps come in pairs (end of a segment, start of the next), do not decrease, and one
    /// starts the text. A timestamp is sampled if all timestamps together are more likely than
    /// every text token.
    fn mask_timestamps(&self, logits: &mut [f32], made: &[u32], first: u32, end: u32) {
        if let Some(token) = self.no_timestamps {
            mask_range(logits, token, first);
        }
        let is_timestamp = |token: &u32| *token >= first;
        let last = made.last().is_some_and(is_timestamp);
        let before = made.len() < 2 || made.iter().rev().nth(1).is_some_and(is_timestamp);
        match (last, before) {
            (true, true) => mask_range(logits, first, u32::MAX),
            (true, false) => mask_range(logits, 0, end),
            _ => {}
        }
        if let Some(latest) = made.iter().rev().copied().find(is_timestamp) {
            // A segment may start where the last one ended.
            let same = u32::from(!last || before);
            mask_range(logits, first, latest.saturating_add(same));
        }
        if made.is_empty() {
            mask_range(logits, 0, first);
            if let Some(most) = self.max_initial_timestamp {
                mask_range(logits, first.saturating_add(most).saturating_add(1), u32::MAX);
            }
        }
        let (text, stamps) = logits.split_at(logits.len().min(first as usize));
        let most = |logits: &[f32]| logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let (text_max, base) = (most(text), most(stamps));
        let sum: f32 = stamps.iter().map(|logit| (logit - base).exp()).sum();
        if base > f32::NEG_INFINITY && base + sum.ln() > text_max {
            mask_range(logits, 0, first);
        }
    }

    /// Splits tokens into segments at timestamps. Also returns the time at which the next chunk
    /// starts: as far as the model processed this one, or `length` seconds. In the last chunk, an
    /// unterminated segment extends to the end.
    pub(super) fn segments<'t>(
        tokens: &'t [u32],
        first: u32,
        end: &[u32],
        length: f32,
        is_last: bool,
    ) -> (Vec<SegmentTokens<'t>>, f32) {
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
                pieces.push(SegmentTokens { from, to: time, tokens: &tokens[begun..at] });
            }
            (from, begun) = (time, at + 1);
        }
        let is_open = begun < tokens.len();
        if is_open && (is_last || pieces.is_empty() || from == 0.0) {
            // An unterminated segment that is the whole chunk.
            pieces.push(SegmentTokens { from, to: length.max(from), tokens: &tokens[begun..] });
            return (pieces, length);
        }
        // An unterminated segment is repeated in the next chunk from its start, as is everything
        // after two consecutive timestamps.
        let pair = tokens.len() >= 2 && tokens[tokens.len() - 2..].iter().all(|t| *t >= first);
        let next = if (is_open || pair) && from > 0.0 { from } else { length };
        (pieces, next.min(length))
    }
}

/// Tokens of a segment with their time span in seconds.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct SegmentTokens<'t> {
    pub(super) from: f32,
    pub(super) to: f32,
    pub(super) tokens: &'t [u32],
}

/// Masks the logits of a range of tokens.
fn mask_range(logits: &mut [f32], from: u32, to: u32) {
    let to = logits.len().min(to as usize);
    if let Some(logits) = logits.get_mut(from as usize..to) {
        logits.fill(f32::NEG_INFINITY);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timestamps_split_segments() {
        let first = 50;
        let of = |tokens: &[u32]| {
            let (pieces, next) = SpeechTokens::segments(tokens, first, &[40], 10.0, false);
            let pieces = pieces.iter().map(|piece| (piece.from, piece.to, piece.tokens.to_vec()));
            (pieces.collect::<Vec<_>>(), next)
        };
        let close = |seconds: u32| seconds as f32 * STEP;
        // One segment to the end; two, of which the second is unterminated and repeated; two
        // terminated ones; two followed by a pair of timestamps.
        assert_eq!(of(&[50, 1, 2, 150, 40]), (vec![(0.0, close(100), vec![1, 2])], 10.0));
        assert_eq!(of(&[50, 1, 100, 100, 2]), (vec![(0.0, close(50), vec![1])], close(50)));
        let two = vec![(0.0, close(50), vec![1]), (close(50), close(70), vec![2])];
        assert_eq!(of(&[50, 1, 100, 100, 2, 120]), (two.clone(), 10.0));
        assert_eq!(of(&[50, 1, 100, 100, 2, 120, 120, 40]), (two, close(70)));
        // In the last chunk, an unterminated segment is kept.
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

    /// Everything after two consecutive timestamps is repeated, even in the last chunk.
    #[test]
    fn sound_after_two_timestamps_is_repeated() {
        let next = |tokens: &[u32]| SpeechTokens::segments(tokens, 50, &[40], 10.0, true).1;
        assert_eq!(next(&[50, 1, 100, 100, 40]), 50.0 * STEP);
        assert_eq!(next(&[50, 1, 100, 40]), 10.0);
        assert_eq!(next(&[50, 1, 100, 100, 2, 40]), 10.0);
    }

    #[test]
    fn english_only_models_have_no_languages() {
        let of = |start: u32| {
            let added = |(id, name): (u32, &str)| {
                serde_json::json!({
                    "id": id, "content": name, "special": true, "single_word": false, "lstrip": false,
                    "rstrip": false, "normalized": false
                })
            };
            let names = [
                "<|startoftranscript|>",
                "<|en|>",
                "<|transcribe|>",
                "<|translate|>",
                "<|notimestamps|>",
            ];
            let added: Vec<Value> = (start..).zip(names).map(added).collect();
            let json = serde_json::json!({
                "version": "1.0", "added_tokens": added,
                "model": {"type": "BPE", "vocab": {"a": 0}, "merges": []}
            });
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
