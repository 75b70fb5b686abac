//! [`Runner`]: text generation from prompts.

mod conversation;
mod feeding;
mod running;

use crate::chat::{ChatTemplate, TemplateArguments};
use crate::decoder::{Decoder, StateLimits};
use crate::encoder::{Input, Kind};
use crate::error::Error;
use crate::generation::{Generation, GenerationConfig, Stop};
#[cfg(feature = "grammar")]
use crate::grammar::Vocabulary;
use crate::logprobs::Logprobs;
use crate::metadata::{Metadata, Overrides};
use crate::model::Model;
use crate::sampler::Sampling;
use crate::sequences::SlotModel;
use crate::tokenizer::Tokenizer;
use feeding::{Feeding, Next};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};
use torchlet_core::TensorInfo;

/// Callback that tells whether a generation should end.
type ShouldStop = Box<dyn Fn() -> bool + Send>;
/// Callback for generated tokens.
type OnToken = Box<dyn FnMut(u32, Option<&Logprobs>) + Send>;

/// A language model with its tokenizer and its context.
///
/// Each generation continues the context that the previous one left in the KV cache.
/// [`reset`](Self::reset) clears it.
pub struct Runner {
    model: Box<dyn Model>,
    tokenizer: Arc<Tokenizer>,
    decoder: Arc<Decoder>,
    metadata: Metadata,
    /// Context length that the program declares, if `metadata` overrides it with a larger one.
    declared_context_len: Option<usize>,
    state_limits: StateLimits,
    template: Option<Arc<ChatTemplate>>,
    arguments: TemplateArguments,
    /// Whether control-token names in messages are ordinary text.
    are_messages_text: bool,
    /// Placeholder that splits control-token names in the current prompt.
    divider: Option<char>,
    #[cfg(feature = "grammar")]
    vocabulary: Arc<std::sync::OnceLock<Vocabulary>>,
    /// Tokens that were fed.
    context: Vec<u32>,
    next: Next,
    stop: Stop,
    should_stop: ShouldStop,
    on_token: OnToken,
    load_started: SystemTime,
    load: Duration,
}

impl Runner {
    /// Loads a program. If it is compiled for several [sequences](Model::sequences), its sessions
    /// share runs: each uses a slot of the state. Sessions beyond the slots get further slots, with
    /// memory of their own.
    ///
    /// # Errors
    /// The program is not a supported language model, or cannot be loaded.
    pub fn new(
        model: impl Model + 'static,
        tokenizer: impl Into<Arc<Tokenizer>>,
        overrides: &Overrides,
    ) -> Result<Self, Error> {
        let (load_started, start) = (SystemTime::now(), Instant::now());
        let mut model = SlotModel::of(Box::new(model));
        let tokenizer = tokenizer.into();
        let decoder = Decoder::of(model.as_ref())?;
        let mut metadata = Metadata::read(model.as_mut(), &decoder.interface(), overrides)?;
        metadata.bos_id = metadata.bos_id.or(tokenizer.bos());
        if metadata.eos_ids.is_empty() {
            metadata.eos_ids.extend(tokenizer.eos());
        }
        if !metadata.use_kv_cache {
            // Without a cache, the whole context is fed at once.
            let max_tokens = decoder.interface().tokens;
            metadata.max_context_len = metadata.max_context_len.min(max_tokens);
        }
        let declared_context_len = Metadata::declared_context_len(model.as_mut(), overrides)?;
        decoder.load(model.as_mut())?;
        let state_limits = decoder.state_limits(model.as_mut(), metadata.max_context_len)?;
        metadata.max_seq_len = metadata.max_seq_len.min(state_limits.max_tokens);
        Ok(Runner {
            model,
            tokenizer,
            decoder: Arc::new(decoder),
            metadata,
            declared_context_len,
            state_limits,
            template: None,
            arguments: TemplateArguments::default(),
            are_messages_text: false,
            divider: None,
            #[cfg(feature = "grammar")]
            vocabulary: Arc::default(),
            context: Vec::new(),
            next: Next::Nothing,
            stop: Stop::default(),
            should_stop: Box::new(|| false),
            on_token: Box::new(|_, _| ()),
            load_started,
            load: start.elapsed(),
        })
    }

    /// Adds the time of opening the program to the load time in [`Stats`](crate::Stats).
    #[must_use]
    pub fn with_load_time(mut self, time: Duration) -> Self {
        self.load = self.load.saturating_add(time);
        self.load_started = self.load_started.checked_sub(time).unwrap_or(self.load_started);
        self
    }

    /// Creates another runner for the same program, with a separate KV cache.
    ///
    /// # Errors
    /// The program cannot be loaded once more.
    pub fn session(&self) -> Result<Runner, Error> {
        self.with(self.model.new_instance())
    }

    /// Replaces the model after a defect, such as a panic, that left its state unknown. The context
    /// is empty afterwards, and callbacks are as in a new [`session`](Self::session).
    ///
    /// # Errors
    /// The program cannot be loaded once more.
    pub fn replace(&mut self) -> Result<(), Error> {
        let model = self.model.replaced();
        *self = self.with(model)?;
        Ok(())
    }

    /// Whether the runner has to be [replaced](Self::replace): its model ran together with those of
    /// other sessions, and a defect left the state of all of them unknown.
    pub fn is_lost(&self) -> bool {
        self.model.is_lost()
    }

    /// Returns a runner like this one with an empty context.
    fn with(&self, mut model: Box<dyn Model>) -> Result<Runner, Error> {
        let (load_started, start) = (SystemTime::now(), Instant::now());
        self.decoder.load(model.as_mut())?;
        Ok(Runner {
            model,
            tokenizer: self.tokenizer.clone(),
            decoder: self.decoder.clone(),
            metadata: self.metadata.clone(),
            declared_context_len: self.declared_context_len,
            state_limits: self.state_limits,
            template: self.template.clone(),
            arguments: self.arguments.clone(),
            are_messages_text: self.are_messages_text,
            divider: None,
            #[cfg(feature = "grammar")]
            vocabulary: self.vocabulary.clone(),
            context: Vec::new(),
            next: Next::Nothing,
            stop: Stop::default(),
            should_stop: Box::new(|| false),
            on_token: Box::new(|_, _| ()),
            load_started,
            load: start.elapsed(),
        })
    }

    /// Metadata of the program.
    pub fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    /// The tokenizer.
    pub fn tokenizer(&self) -> &Arc<Tokenizer> {
        &self.tokenizer
    }

    /// Tokens that were fed. `u32::MAX` stands for each position of an image or a sound.
    pub fn context(&self) -> &[u32] {
        &self.context
    }

    /// Logits for the next token, unless it was already sampled.
    pub fn logits(&self) -> Option<&[f32]> {
        match &self.next {
            Next::Logits(logits) => Some(logits),
            _ => None,
        }
    }

    /// Returns a handle that stops generations of this runner.
    pub fn stop_handle(&self) -> Stop {
        self.stop.clone()
    }

    /// Sets a callback that also stops generations, for example on a timeout or a closed
    /// connection. It is called before each token and each prompt chunk, from the beginning of a
    /// generation on, while [`Stop::stop`] has no effect before a generation starts. A new callback
    /// replaces the previous one.
    pub fn stop_when(&mut self, should_stop: impl Fn() -> bool + Send + 'static) {
        self.should_stop = Box::new(should_stop);
    }

    /// Sets a callback for each token. It is called when the token is sampled, before the text that
    /// it completes is emitted, with its [log-probabilities](GenerationConfig::logprobs) if
    /// requested. A new callback replaces the previous one.
    pub fn on_token(&mut self, tell: impl FnMut(u32, Option<&Logprobs>) + Send + 'static) {
        self.on_token = Box::new(tell);
    }

    /// Whether the current prefill or generation should end.
    fn is_stopped(&self) -> bool {
        self.stop.is_idle() || (self.should_stop)()
    }

    /// Clears the context and restores the initial KV cache.
    ///
    /// # Errors
    /// A delegate failed.
    pub fn reset(&mut self) -> Result<(), Error> {
        self.decoder.reset(self.model.as_mut())?;
        self.context.clear();
        self.next = Next::Nothing;
        Ok(())
    }

    /// Generates a few tokens after a prompt and discards them, so that resources created on first
    /// use exist afterwards.
    ///
    /// # Errors
    /// As [`generate`](Self::generate).
    pub fn warmup(&mut self, prompt: &str, tokens: usize) -> Result<(), Error> {
        let config = GenerationConfig {
            max_new_tokens: Some(tokens),
            sampling: Sampling::greedy(),
            ignore_eos: true,
            ..GenerationConfig::default()
        };
        self.generate(prompt, &config, |_| ())?;
        self.reset()
    }

    /// Feeds a prompt without generating.
    ///
    /// # Errors
    /// The context is too small, or the program failed.
    pub fn prefill(&mut self, prompt: &str) -> Result<(), Error> {
        let tokens = self.tokenizer.encode(prompt)?;
        self.prefill_tokens(&tokens)
    }

    /// Feeds tokens without generating.
    ///
    /// # Errors
    /// As [`prefill`](Self::prefill).
    pub fn prefill_tokens(&mut self, tokens: &[u32]) -> Result<(), Error> {
        let stop = self.stop.clone();
        stop.during(|| self.feed(tokens, &mut Feeding::for_logits()).map(|_| ()))
    }

    /// Generates text after a prompt, which is appended to the context. An empty prompt continues
    /// the last generation or [`prefill`](Self::prefill). `on_text` receives the text in pieces of
    /// whole characters.
    ///
    /// # Errors
    /// A setting is out of range, the context is too small for the prompt, or the program failed.
    pub fn generate(
        &mut self,
        prompt: &str,
        config: &GenerationConfig,
        mut on_text: impl FnMut(&str),
    ) -> Result<Generation, Error> {
        let start = (SystemTime::now(), Instant::now());
        let mut tokens = Vec::new();
        if !prompt.is_empty() {
            let (first, last) = self.ends(config)?;
            tokens = [first, self.tokenizer.encode(prompt)?, last].concat();
        }
        if config.echo && !prompt.is_empty() {
            on_text(prompt);
        }
        self.run(&[Input::Tokens(&tokens)], config, start, &mut on_text)
    }

    /// Generates text after prompt tokens.
    ///
    /// # Errors
    /// As [`generate`](Self::generate).
    pub fn generate_tokens(
        &mut self,
        prompt: &[u32],
        config: &GenerationConfig,
        mut on_text: impl FnMut(&str),
    ) -> Result<Generation, Error> {
        let start = (SystemTime::now(), Instant::now());
        self.run(&[Input::Tokens(prompt)], config, start, &mut on_text)
    }

    /// Generates text after a prompt of texts, images and sounds, in order. An empty prompt
    /// continues the context, as in [`generate`](Self::generate).
    ///
    /// # Errors
    /// As [`generate`](Self::generate), or the program has no encoder for a part, or the part does
    /// not fit the encoder.
    pub fn generate_from(
        &mut self,
        inputs: &[Input<'_>],
        config: &GenerationConfig,
        mut on_text: impl FnMut(&str),
    ) -> Result<Generation, Error> {
        let start = (SystemTime::now(), Instant::now());
        let is_some = |input: &Input<'_>| !matches!(input, Input::Tokens([]) | Input::Text(""));
        if !inputs.iter().any(is_some) {
            return self.run(&[Input::Tokens(&[])], config, start, &mut on_text);
        }
        let (first, last) = self.ends(config)?;
        let texts = inputs.iter().filter_map(|input| match input {
            Input::Text(text) => Some(*text),
            _ => None,
        });
        texts.filter(|_| config.echo).for_each(&mut on_text);
        let whole = [&[Input::Tokens(&first)], inputs, &[Input::Tokens(&last)]].concat();
        let all: Vec<Input<'_>> = whole.into_iter().filter(is_some).collect();
        self.run(&all, config, start, &mut on_text)
    }

    /// BOS tokens before the prompt, and EOS tokens after it.
    fn ends(&self, config: &GenerationConfig) -> Result<(Vec<u32>, Vec<u32>), Error> {
        let max_tokens = self.metadata.max_context_len;
        let several = |name, token: Option<u32>, count: usize| match token {
            Some(token) => Ok(vec![token; count.min(max_tokens)]),
            None if count == 0 => Ok(Vec::new()),
            None => Err(Error::Setting {
                name,
                value: "more than 0".into(),
                expected: "0, because neither the program nor the tokenizer has such a token",
            }),
        };
        let num_eos = config.num_eos.max(usize::from(self.metadata.append_eos_to_prompt));
        Ok((
            several("num_bos", self.metadata.bos_id, config.num_bos)?,
            several("num_eos", self.metadata.eos_ids.first().copied(), num_eos)?,
        ))
    }

    /// Input tensor of the image encoder, if the program has one.
    pub fn image_input(&self) -> Option<&TensorInfo> {
        self.decoder.encoders.input(Kind::Image)
    }

    /// Input tensor of the audio encoder, if the program has one.
    pub fn audio_input(&self) -> Option<&TensorInfo> {
        self.decoder.encoders.input(Kind::Audio)
    }

    /// Truncates the context to its common prefix with `tokens`, and returns the prefix length. It
    /// is less than the length of `tokens`, so that at least one token remains to be fed.
    ///
    /// State without a slot per position (recurrent state, sliding windows) cannot be rolled back.
    /// Then the context is cleared unless all of it is kept.
    ///
    /// # Errors
    /// A delegate failed.
    pub fn rewind_to_common_prefix(&mut self, tokens: &[u32]) -> Result<usize, Error> {
        let common = self.context.iter().zip(tokens).take_while(|(a, b)| a == b).count();
        let common = common.min(tokens.len().saturating_sub(1));
        if self.keeps_tokens() && !self.state_limits.can_roll_back && common < self.context.len() {
            self.reset()?;
            return Ok(0);
        }
        // Later cache entries are overwritten before they are attended to.
        self.context.truncate(common);
        self.next = Next::Nothing;
        Ok(common)
    }

    /// Whether the program has a KV cache.
    fn keeps_tokens(&self) -> bool {
        self.metadata.use_kv_cache
    }
}

impl std::fmt::Debug for Runner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Runner")
            .field("metadata", &self.metadata)
            .field("tokens", &self.context.len())
            .finish_non_exhaustive()
    }
}
