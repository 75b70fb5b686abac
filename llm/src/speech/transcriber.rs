//! From a sound to what is said in it.

use super::mel::LogMel;
use super::sound::Sound;
use crate::encoder::{Encoded, check_size, encode};
use crate::error::Error;
use crate::generation::{Finish, Generation};
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
const DECODER: &str = "text_decoder";
/// Whisper's tokens in front of a text, where a vocabulary has them. The language comes behind the first.
const START: [&str; 3] = ["<|startoftranscript|>", "<|transcribe|>", "<|notimestamps|>"];

/// How a sound is written down.
#[derive(Debug, Clone, PartialEq)]
pub struct TranscriptionConfig {
    /// The tokens that the decoder is fed first. Without them, Whisper's, by their names.
    pub start: Option<Vec<u32>>,
    /// The language that is spoken, as Whisper calls it (`en`), where the vocabulary has languages.
    pub language: Option<String>,
    /// The most tokens for each piece of the sound. Without this, as many as there is room for.
    pub max_new_tokens: Option<usize>,
    /// How tokens are chosen.
    pub sampling: Sampling,
}

impl Default for TranscriptionConfig {
    /// Whisper's first tokens, and always the likeliest behind them.
    fn default() -> Self {
        let sampling = Sampling::greedy();
        TranscriptionConfig { start: None, language: None, max_new_tokens: None, sampling }
    }
}

/// A program that hears and writes: with the methods `encoder` (log-mel features to what was heard) and `text_decoder` (a token, what was heard, and the
/// token's position, to logits), as Optimum exports Whisper.
///
/// A sound longer than the encoder takes is cut into pieces, each for itself: a word may be cut. No tokens are suppressed and no timestamps read.
pub struct Transcriber {
    model: Box<dyn Model>,
    tokenizer: Arc<Tokenizer>,
    metadata: Metadata,
    features: TensorInfo,
    mel: LogMel,
    frames: usize,
    load_started: SystemTime,
    load: Duration,
}

impl Transcriber {
    /// A transcriber of a program, which is loaded now.
    ///
    /// # Errors
    /// The program's methods are others, or it cannot be loaded.
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
            let message = format!("it takes {:?}, not [1, bins, frames]", &features.sizes[..]);
            return Err(Error::interface(ENCODER, message));
        };
        check_size(ENCODER, &features)?;
        check_decoder(model.as_ref())?;
        let interface = Interface { tokens: 1, is_dynamic: false, has_position: true };
        let mut metadata = Metadata::read(model.as_mut(), &interface, overrides)?;
        if metadata.eos_ids.is_empty() {
            metadata.eos_ids.extend(tokenizer.eos());
        }
        for method in [ENCODER, DECODER] {
            model.load(method).map_err(Error::model(format!("load the method '{method}'")))?;
        }
        let (mel, load) = (LogMel::new(bins)?, start.elapsed());
        Ok(Transcriber { model, tokenizer, metadata, features, mel, frames, load_started, load })
    }

    /// What the program says of itself.
    pub fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    /// Writes down what is said. Text is given piece by piece, each of whole characters.
    ///
    /// # Errors
    /// A setting is out of its range, there is no token to start with, or the program failed.
    pub fn transcribe(
        &mut self,
        sound: &Sound,
        config: &TranscriptionConfig,
        mut on_text: impl FnMut(&str),
    ) -> Result<Generation, Error> {
        let start = Instant::now();
        let sound = sound.at_rate(LogMel::RATE)?;
        let first = self.start(config)?;
        let mut sampler = Sampler::new(config.sampling.clone())?;
        let mut stats = Stats::new(self.load_started, self.load);
        let (mut text, mut tokens, mut finish) = (String::new(), Vec::new(), Finish::Stop);
        let piece = LogMel::samples(self.frames).max(1);
        for samples in sound.samples().chunks(piece) {
            let features = self.mel.features(samples, self.frames);
            let bytes = elements(self.features.scalar_type, &features).ok_or_else(|| {
                let found = self.features.scalar_type;
                Error::interface(ENCODER, format!("it takes {found:?}, not floating-point numbers"))
            })?;
            let misfit = || Error::interface(ENCODER, "features do not fit it");
            let input = TensorRef::new(self.features.clone(), &bytes).ok_or_else(misfit)?;
            let model = self.model.as_mut();
            let heard = timed(&mut stats.execution, || encode(model, ENCODER, &input))?;
            stats.prompt_tokens += heard.count;
            if tokens.is_empty() {
                stats.prefill = start.elapsed();
            }
            let tokenizer = self.tokenizer.clone();
            let mut output = Output::new(&tokenizer, &[], &[], &mut on_text);
            let before = tokens.len();
            finish = self.write(&heard, &first, config, &mut sampler, &mut stats, |token| {
                tokens.push(token);
                output.push(token);
            })?;
            if before == 0 {
                stats.first_token = start.elapsed();
            }
            text += &output.finish();
        }
        stats.generated_tokens = tokens.len();
        stats.total = start.elapsed();
        Ok(Generation { text, tokens, finish, stats })
    }

    /// The tokens that the decoder is fed first.
    fn start(&self, config: &TranscriptionConfig) -> Result<Vec<u32>, Error> {
        let named = |name: &str| self.tokenizer.special(name);
        let mut start = match &config.start {
            Some(start) => start.clone(),
            None => START.iter().filter_map(|name| named(name)).collect(),
        };
        if let Some(language) = &config.language {
            let name = format!("<|{language}|>");
            let token = named(&name).ok_or_else(|| {
                Error::tokenizer(format!("it has no token {name} for this language"))
            })?;
            start.insert(start.len().min(1), token);
        }
        match start.is_empty() {
            true => Err(Error::NoPrompt),
            false => Ok(start),
        }
    }

    /// Writes down one piece.
    fn write(
        &mut self,
        heard: &Encoded,
        start: &[u32],
        config: &TranscriptionConfig,
        sampler: &mut Sampler,
        stats: &mut Stats,
        mut on_token: impl FnMut(u32),
    ) -> Result<Finish, Error> {
        let reset = Error::model(format!("reset the method '{DECODER}'"));
        self.model.reset(DECODER).map_err(reset)?;
        let limit = self.metadata.max_context_len;
        if start.len() > limit {
            return Err(Error::ContextFull { position: 0, tokens: start.len(), limit });
        }
        let (mut context, mut logits) = (start.to_vec(), Vec::new());
        let mut position = 0;
        for made in 0.. {
            if config.max_new_tokens.is_some_and(|most| made >= most) {
                return Ok(Finish::Length);
            }
            if context.len() > limit {
                return Ok(Finish::Context);
            }
            while let Some(&token) = context.get(position) {
                let model = self.model.as_mut();
                timed(&mut stats.execution, || step(model, token, heard, position, &mut logits))?;
                position += 1;
            }
            let token = timed(&mut stats.sampling, || sampler.sample(&mut logits, &context))?;
            on_token(token);
            if self.metadata.eos_ids.contains(&token) {
                return Ok(Finish::Stop);
            }
            context.push(token);
        }
        Ok(Finish::Length)
    }
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

/// What the encoder takes.
fn features_of(model: &dyn Model) -> Result<TensorInfo, Error> {
    let meta = model
        .method_meta(ENCODER)
        .map_err(Error::model(format!("read what the method '{ENCODER}' takes")))?;
    match (meta.input_count(), meta.input(0)) {
        (1, Ok(Some(ValueMeta::Tensor(tensor)))) => Ok(tensor.info),
        (count, _) => {
            Err(Error::interface(ENCODER, format!("it takes {count} inputs, not features")))
        }
    }
}

/// Whether the decoder takes a token, what was heard, and a position.
fn check_decoder(model: &dyn Model) -> Result<(), Error> {
    let meta = model
        .method_meta(DECODER)
        .map_err(Error::model(format!("read what the method '{DECODER}' takes")))?;
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
            let message =
                "it should take a token [1, 1], what was heard, and a position [1], of 64 bits";
            Err(Error::interface(DECODER, message))
        }
    }
}

/// Feeds a token.
fn step(
    model: &mut dyn Model,
    token: u32,
    heard: &Encoded,
    position: usize,
    logits: &mut Vec<f32>,
) -> Result<(), Error> {
    let misfit = || Error::interface(DECODER, "what was heard does not fit it");
    let (token, place) = ([i64::from(token)], [i64::try_from(position).unwrap_or(i64::MAX)]);
    let inputs = [
        ValueRef::Tensor(TensorRef::from_slice(&[1, 1], &token).ok_or_else(misfit)?),
        ValueRef::Tensor(heard.tensor().ok_or_else(misfit)?),
        ValueRef::Tensor(TensorRef::from_slice(&[1], &place).ok_or_else(misfit)?),
    ];
    let mut found = Err("it gives no tensor".to_owned());
    let action = format!("run '{DECODER}' at position {position}");
    model
        .run(DECODER, &inputs, &mut |index, value| {
            if let (0, ValueRef::Tensor(tensor)) = (index, value) {
                found = crate::decoder::rows(&tensor, 1, &(0..1), logits);
            }
        })
        .map_err(Error::model(action))?;
    found.map_err(|message| Error::interface(DECODER, message))
}

/// Numbers as elements of a type.
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
