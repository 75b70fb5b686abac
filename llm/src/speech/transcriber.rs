//! [`Transcriber`]: speech to text.

use super::mel::LogMel;
use super::sound::AudioClip;
use super::tokens::SpeechTokens;
use crate::encoder::{Encoded, check_size, encode};
use crate::error::Error;
use crate::generation::{Finish, Generation, Stop};
use crate::metadata::{Interface, Metadata, Overrides};
use crate::model::Model;
use crate::output::Output;
use crate::sampler::{Sampler, Sampling};
use crate::stats::{Stats, timed};
use crate::tokenizer::Tokenizer;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};
use torchlet_core::{ScalarType, TensorInfo, TensorRef, ValueMeta, ValueRef};

const ENCODER: &str = "encoder";
/// Names of the decoder method in current and in early versions of Optimum.
const DECODERS: [&str; 2] = ["text_decoder", "decoder"];

/// Output of a transcription.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Task {
    /// Text in the spoken language.
    #[default]
    Transcribe,
    /// Text translated to English.
    Translate,
}

/// Settings of a transcription.
#[derive(Debug, Clone, PartialEq)]
pub struct TranscriptionConfig {
    /// Initial decoder tokens. Default: those of Whisper ([`SpeechTokens`]) for the language, task
    /// and timestamps.
    pub start: Option<Vec<u32>>,
    /// Spoken language as Whisper names it (`en`). Default: detected, if the vocabulary has
    /// languages.
    pub language: Option<String>,
    /// Transcribe or translate.
    pub task: Task,
    /// Whether to predict timestamps, which divide the text into [segments](Segment). Each chunk of
    /// a long sound then starts at the end of the last segment, so that no word is cut.
    pub timestamps: bool,
    /// Maximum number of tokens per chunk. Default: limited by the context only.
    pub max_new_tokens: Option<usize>,
    /// Sampling settings.
    pub sampling: Sampling,
}

impl Default for TranscriptionConfig {
    /// Transcribe without timestamps, with greedy decoding.
    fn default() -> Self {
        TranscriptionConfig {
            start: None,
            language: None,
            task: Task::Transcribe,
            timestamps: false,
            max_new_tokens: None,
            sampling: Sampling::greedy(),
        }
    }
}

/// A piece of text with its time span.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Segment {
    /// Start time in seconds.
    pub from: f32,
    /// End time in seconds.
    pub to: f32,
    /// What was said.
    pub text: String,
}

/// Result of a transcription.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Transcription {
    /// Text, tokens and statistics, without the initial tokens. The tokens include timestamps, and
    /// segments cut off at the end of a chunk, which the next chunk repeats; the text does not.
    pub generation: Generation,
    /// Segments of the text, if timestamps were requested.
    pub segments: Vec<Segment>,
    /// Given or detected language.
    pub language: Option<String>,
}

/// A speech-to-text program with the methods `encoder` (log-mel features → encoder output) and
/// `text_decoder` or `decoder` (token, encoder output, position → logits), as Optimum exports
/// Whisper.
///
/// A sound longer than the encoder's input is processed in independent chunks. Without timestamps,
/// a word may be cut at a chunk boundary.
pub struct Transcriber {
    model: Box<dyn Model>,
    /// Name of the decoder method.
    decoder: &'static str,
    tokenizer: Arc<Tokenizer>,
    metadata: Metadata,
    tokens: SpeechTokens,
    features: TensorInfo,
    mel: LogMel,
    frames: usize,
    stop: Stop,
    load_started: SystemTime,
    load: Duration,
}

impl Transcriber {
    /// Loads a program.
    ///
    /// # Errors
    /// The program's methods do not match, or it cannot be loaded.
    pub fn new(
        model: impl Model + 'static,
        tokenizer: impl Into<Arc<Tokenizer>>,
        overrides: &Overrides,
    ) -> Result<Self, Error> {
        let (load_started, start) = (SystemTime::now(), Instant::now());
        let mut model: Box<dyn Model> = Box::new(model);
        let tokenizer = tokenizer.into();
        let features = features_of(model.as_ref())?;
        let (bins, frames) = match features.sizes[..] {
            [1, bins, frames] => (usize::try_from(bins).ok(), usize::try_from(frames).ok()),
            _ => (None, None),
        };
        let (Some(bins), Some(frames @ 1..)) = (bins, frames) else {
            let message = format!(
                "input 0: expected the shape [1, bins, frames], found {:?}",
                &features.sizes[..]
            );
            return Err(Error::interface(ENCODER, message));
        };
        check_size(ENCODER, &features)?;
        let names = model.method_names().map_err(Error::model("list the program's methods"))?;
        let is_there = |name: &&str| names.iter().any(|other| other == name);
        let decoder = DECODERS.into_iter().find(is_there).unwrap_or(DECODERS[0]);
        check_decoder(model.as_ref(), decoder)?;
        let interface = Interface { tokens: 1, is_dynamic: false, has_position: true };
        let mut metadata = Metadata::read(model.as_mut(), &interface, overrides)?;
        if metadata.eos_ids.is_empty() {
            metadata.eos_ids.extend(tokenizer.eos());
        }
        for method in [ENCODER, decoder] {
            model.load(method).map_err(Error::model(format!("load the method '{method}'")))?;
        }
        let mut tokens = SpeechTokens::of(&tokenizer);
        if tokens.start.is_none() {
            tokens.start = Metadata::decoder_start(model.as_mut())?;
        }
        let (mel, load) = (LogMel::new(bins)?, start.elapsed());
        Ok(Transcriber {
            model,
            decoder,
            tokenizer,
            metadata,
            tokens,
            features,
            mel,
            frames,
            stop: Stop::default(),
            load_started,
            load,
        })
    }

    /// Special tokens, from the tokenizer, the program and [`set_tokens`](Self::set_tokens).
    pub fn tokens(&self) -> &SpeechTokens {
        &self.tokens
    }

    /// Sets the special tokens, such as those of a `generation_config.json`.
    pub fn set_tokens(&mut self, tokens: SpeechTokens) {
        self.tokens = tokens;
    }

    /// Metadata of the program.
    pub fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    /// Returns a handle that stops transcriptions; they return the text so far.
    pub fn stop_handle(&self) -> Stop {
        self.stop.clone()
    }

    /// Transcribes a sound. `on_text` receives the text in pieces of whole characters.
    ///
    /// # Errors
    /// A setting is out of range, no start token is known, or the program failed.
    pub fn transcribe(
        &mut self,
        sound: &AudioClip,
        config: &TranscriptionConfig,
        mut on_text: impl FnMut(&str),
    ) -> Result<Transcription, Error> {
        let stop = self.stop.clone();
        stop.during(|| self.transcribe_until_stopped(sound, config, &mut on_text))
    }

    fn transcribe_until_stopped(
        &mut self,
        sound: &AudioClip,
        config: &TranscriptionConfig,
        on_text: &mut dyn FnMut(&str),
    ) -> Result<Transcription, Error> {
        let start = Instant::now();
        let sound = sound.at_rate(LogMel::RATE)?;
        let timestamps = self.first_timestamp(config)?;
        let mut sampler = Sampler::new(config.sampling.clone())?;
        let mut stats = Stats::new(self.load_started, self.load);
        let (mut text, mut tokens, mut finish) = (String::new(), Vec::new(), Finish::Stop);
        let (mut segments, mut language) = (Vec::new(), config.language.clone());
        let (most, rate) = (LogMel::samples(self.frames).max(1), LogMel::RATE as f32);
        let mut rest = sound.samples();
        while !rest.is_empty() {
            let piece = &rest[..rest.len().min(most)];
            let encoded = self.encode_chunk(piece, &mut stats)?;
            let first = self.start(config, &encoded, &mut language, &mut stats)?;
            Error::check_known(&first, self.metadata.vocab_size, 0)?;
            if tokens.is_empty() {
                stats.prefill = start.elapsed();
            }
            let (tokenizer, before) = (self.tokenizer.clone(), tokens.len());
            let mut first_token = stats.first_token;
            let mut output = Output::new(&tokenizer, &[], &[], on_text);
            let rules = Rules { config, timestamps };
            finish =
                self.decode_chunk(&encoded, &first, &rules, &mut sampler, &mut stats, |token| {
                    if tokens.is_empty() {
                        first_token = start.elapsed();
                    }
                    tokens.push(token);
                    if timestamps.is_none_or(|first| token < first) {
                        output.push(token);
                    }
                })?;
            stats.first_token = first_token;
            text += &output.finish();
            let is_last = rest.len() <= most || finish == Finish::Stopped;
            let mut processed = piece.len();
            if let (Some(stamp), Some(new)) = (timestamps, tokens.get(before..)) {
                let length = piece.len() as f32 / rate;
                let at = (sound.samples().len() - rest.len()) as f32 / rate;
                let ends = &self.metadata.eos_ids;
                let (pieces, next) = SpeechTokens::segments(new, stamp, ends, length, is_last);
                segments.extend(pieces.iter().map(|piece| Segment {
                    from: at + piece.from,
                    to: at + piece.to,
                    text: tokenizer.decode(piece.tokens),
                }));
                // Two timestamps at the end mean that the model did not process the rest of the
                // chunk, even in the last one.
                if finish != Finish::Stopped {
                    processed = ((next * rate) as usize).clamp(1, piece.len());
                }
            }
            if finish == Finish::Stopped {
                break;
            }
            rest = rest.get(processed..).unwrap_or_default();
        }
        if timestamps.is_some() {
            text = segments.iter().map(|segment: &Segment| segment.text.as_str()).collect();
        }
        stats.generated_tokens = tokens.len();
        stats.total = start.elapsed();
        let (logprobs, fits) = (Vec::new(), true);
        let generation = Generation { text, tokens, logprobs, finish, fits, stats };
        Ok(Transcription { generation, segments, language })
    }

    /// Runs the encoder on a chunk.
    fn encode_chunk(&mut self, samples: &[f32], stats: &mut Stats) -> Result<Encoded, Error> {
        let features = self.mel.features(samples, self.frames)?;
        let bytes = elements(self.features.scalar_type, &features).ok_or_else(|| {
            let found = self.features.scalar_type;
            Error::interface(
                ENCODER,
                format!("input 0: expected a floating-point dtype, found {found:?}"),
            )
        })?;
        let misfit =
            || Error::interface(ENCODER, "internal error: the features do not fit input 0");
        let input = TensorRef::new(self.features.clone(), &bytes).ok_or_else(misfit)?;
        let model = self.model.as_mut();
        let encoded = timed(&mut stats.execution, || encode(model, ENCODER, &input))?;
        stats.prompt_tokens += encoded.count;
        Ok(encoded)
    }

    /// First timestamp token, if timestamps are requested.
    fn first_timestamp(&self, config: &TranscriptionConfig) -> Result<Option<u32>, Error> {
        if !config.timestamps {
            return Ok(None);
        }
        let missing = || Error::Setting {
            name: "timestamps",
            value: "true".into(),
            expected: "false, because the vocabulary has no <|notimestamps|>",
        };
        self.tokens.first_timestamp().map(Some).ok_or_else(missing)
    }

    /// Initial decoder tokens. Detects the language if it is unknown.
    fn start(
        &mut self,
        config: &TranscriptionConfig,
        encoded: &Encoded,
        language: &mut Option<String>,
        stats: &mut Stats,
    ) -> Result<Vec<u32>, Error> {
        if let Some(start) = &config.start {
            let is_other = config.language.is_some() || config.task != Task::Transcribe;
            return match (start.is_empty(), is_other) {
                (true, _) => Err(Error::NoPrompt),
                (_, false) => Ok(start.clone()),
                _ => Err(Error::Setting {
                    name: "start",
                    value: format!("{start:?}"),
                    expected: "unset if a language or a task is set, because they determine the \
                        first tokens",
                }),
            };
        }
        let missing = || {
            Error::tokenizer(
                "it has no <|startoftranscript|>, and the program declares no start token; set the \
                 initial decoder tokens (`TranscriptionConfig::start`, or --start-id)",
            )
        };
        let first = self.tokens.start.ok_or_else(missing)?;
        // Checked here because language detection feeds it.
        Error::check_known(&[first], self.metadata.vocab_size, 0)?;
        if language.is_none() && !self.tokens.languages.is_empty() {
            *language = self.detect(first, encoded, stats)?;
        }
        let mut start = vec![first];
        if let Some(language) = language {
            let known = self.tokens.languages.iter().find(|(name, _)| name == language);
            let missing = || {
                let name = format!("<|{language}|>");
                Error::tokenizer(format!("it has no token {name} for this language"))
            };
            start.push(known.ok_or_else(missing)?.1);
        }
        start.extend(match config.task {
            Task::Transcribe => self.tokens.transcribe,
            Task::Translate => {
                let missing = || Error::tokenizer("it has no token <|translate|>");
                Some(self.tokens.translate.ok_or_else(missing)?)
            }
        });
        start.extend(self.tokens.no_timestamps.filter(|_| !config.timestamps));
        Ok(start)
    }

    /// Most likely language token after the start token.
    fn detect(
        &mut self,
        first: u32,
        encoded: &Encoded,
        stats: &mut Stats,
    ) -> Result<Option<String>, Error> {
        self.reset_decoder()?;
        let (model, decoder, mut logits) = (self.model.as_mut(), self.decoder, Vec::new());
        timed(&mut stats.execution, || step(model, decoder, first, encoded, 0, &mut logits))?;
        let of = |token: u32| logits.get(token as usize).copied().unwrap_or(f32::NEG_INFINITY);
        let languages = self.tokens.languages.iter();
        let best = languages.max_by(|(_, a), (_, b)| of(*a).total_cmp(&of(*b)));
        Ok(best.map(|(name, _)| name.clone()))
    }

    /// Resets the decoder's KV cache.
    fn reset_decoder(&mut self) -> Result<(), Error> {
        let reset = Error::model(format!("reset the method '{}'", self.decoder));
        self.model.reset(self.decoder).map_err(reset)
    }

    /// Decodes a chunk.
    fn decode_chunk(
        &mut self,
        encoded: &Encoded,
        start: &[u32],
        rules: &Rules<'_>,
        sampler: &mut Sampler,
        stats: &mut Stats,
        mut on_token: impl FnMut(u32),
    ) -> Result<Finish, Error> {
        self.reset_decoder()?;
        let limit = self.metadata.max_context_len;
        if start.len() > limit {
            return Err(Error::ContextFull { position: 0, tokens: start.len(), limit });
        }
        let (mut context, mut logits) = (start.to_vec(), Vec::new());
        let end = self.metadata.eos_ids.iter().min().copied();
        let mut position = 0;
        for made in 0.. {
            if self.stop.is_idle() {
                return Ok(Finish::Stopped);
            }
            if rules.config.max_new_tokens.is_some_and(|most| made >= most) {
                return Ok(Finish::Length);
            }
            if context.len() > limit {
                return Ok(Finish::Context);
            }
            while let Some(&token) = context.get(position) {
                let (model, decoder) = (self.model.as_mut(), self.decoder);
                timed(&mut stats.execution, || {
                    step(model, decoder, token, encoded, position, &mut logits)
                })?;
                position += 1;
            }
            let behind = context.get(start.len()..).unwrap_or_default();
            let token = timed(&mut stats.sampling, || {
                self.tokens.mask_logits(&mut logits, behind, rules.timestamps, end);
                sampler.sample(&mut logits, &context)
            })?;
            on_token(token);
            if self.metadata.eos_ids.contains(&token) {
                return Ok(Finish::Stop);
            }
            context.push(token);
        }
        Ok(Finish::Length)
    }
}

/// Constraints on sampled tokens.
struct Rules<'c> {
    config: &'c TranscriptionConfig,
    /// First timestamp token, if timestamps are requested.
    timestamps: Option<u32>,
}

impl std::fmt::Debug for Transcriber {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (metadata, features) = (&self.metadata, &self.features);
        f.debug_struct("Transcriber")
            .field("metadata", metadata)
            .field("features", features)
            .finish_non_exhaustive()
    }
}

/// Input tensor of the encoder.
fn features_of(model: &dyn Model) -> Result<TensorInfo, Error> {
    let meta = model
        .method_meta(ENCODER)
        .map_err(Error::model(format!("read the inputs of the method '{ENCODER}'")))?;
    match (meta.input_count(), meta.input(0)) {
        (1, Ok(Some(ValueMeta::Tensor(tensor)))) => Ok(tensor.info),
        (count, _) => Err(Error::interface(
            ENCODER,
            format!("expected one tensor input (features), found {count} inputs"),
        )),
    }
}

/// Checks that the decoder accepts a token, the encoder output and a position.
fn check_decoder(model: &dyn Model, decoder: &str) -> Result<(), Error> {
    let meta = model
        .method_meta(decoder)
        .map_err(Error::model(format!("read the inputs of the method '{decoder}'")))?;
    let is_whole = |index, rank: std::ops::RangeInclusive<usize>| match meta.input(index) {
        Ok(Some(ValueMeta::Tensor(tensor))) => {
            let is_one = tensor.info.sizes.iter().all(|size| *size == 1);
            is_one
                && tensor.info.scalar_type == ScalarType::Long
                && rank.contains(&tensor.info.sizes.len())
        }
        _ => false,
    };
    match meta.input_count() == 3 && is_whole(0, 2..=2) && is_whole(2, 1..=1) {
        true => Ok(()),
        false => {
            let message = "expected three inputs: an int64 token [1, 1], the encoder output, and \
                an int64 position [1]";
            Err(Error::interface(decoder, message))
        }
    }
}

/// Feeds a token to the decoder.
fn step(
    model: &mut dyn Model,
    decoder: &str,
    token: u32,
    encoded: &Encoded,
    position: usize,
    logits: &mut Vec<f32>,
) -> Result<(), Error> {
    let misfit =
        || Error::interface(decoder, "internal error: the encoder output does not match its shape");
    let (token, place) = ([i64::from(token)], [i64::try_from(position).unwrap_or(i64::MAX)]);
    let inputs = [
        ValueRef::Tensor(TensorRef::from_slice(&[1, 1], &token).ok_or_else(misfit)?),
        ValueRef::Tensor(encoded.tensor().ok_or_else(misfit)?),
        ValueRef::Tensor(TensorRef::from_slice(&[1], &place).ok_or_else(misfit)?),
    ];
    let mut found = Err("output 0: expected a tensor".to_owned());
    let action = format!("run '{decoder}' at position {position}");
    model
        .run(decoder, &inputs, &mut |index, value| {
            if let (0, ValueRef::Tensor(tensor)) = (index, value) {
                found = crate::decoder::rows(&tensor, 1, &(0..1), logits);
            }
        })
        .map_err(Error::model(action))?;
    found.map_err(|message| Error::interface(decoder, message))
}

/// Converts floats to the bytes of a floating-point dtype.
fn elements(scalar_type: ScalarType, numbers: &[f32]) -> Option<Vec<u8>> {
    let numbers = numbers.iter();
    Some(match scalar_type {
        ScalarType::Float => numbers.flat_map(|number| number.to_ne_bytes()).collect(),
        ScalarType::Half => {
            numbers.flat_map(|&number| half::f16::from_f32(number).to_ne_bytes()).collect()
        }
        ScalarType::BFloat16 => {
            numbers.flat_map(|&number| half::bf16::from_f32(number).to_ne_bytes()).collect()
        }
        _ => return None,
    })
}
