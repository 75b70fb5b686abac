//! From a prompt to text.

mod conversation;
mod feeding;
mod running;

use crate::chat::{ChatTemplate, TemplateArguments};
use crate::decoder::{Decoder, Memory};
use crate::encoder::{Input, Kind};
use crate::error::Error;
use crate::generation::{Generation, GenerationConfig, Stop};
#[cfg(feature = "grammar")]
use crate::grammar::Vocabulary;
use crate::logprobs::Logprobs;
use crate::metadata::{Metadata, Overrides};
use crate::model::Model;
use crate::sampler::Sampling;
use crate::tokenizer::Tokenizer;
use feeding::{Feeding, Next};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};
use torchlet_core::TensorInfo;

/// Whether a generation should end.
type IsOver = Box<dyn Fn() -> bool + Send>;
/// What is told of tokens.
type OnToken = Box<dyn FnMut(u32, Option<&Logprobs>) + Send>;

/// A language model with its tokenizer, and the tokens that it has seen.
///
/// Each generation goes on behind what the one before left in the caches; [`reset`](Self::reset)
/// starts anew.
pub struct Runner {
    model: Box<dyn Model>,
    tokenizer: Arc<Tokenizer>,
    decoder: Arc<Decoder>,
    metadata: Metadata,
    /// What the program says of its context, where `metadata` has more.
    context_below: Option<usize>,
    memory: Memory,
    template: Option<Arc<ChatTemplate>>,
    arguments: TemplateArguments,
    /// Whether names of control tokens in messages are text.
    are_messages_text: bool,
    /// What divides these names in the prompt that is fed.
    divider: Option<char>,
    #[cfg(feature = "grammar")]
    vocabulary: Arc<std::sync::OnceLock<Vocabulary>>,
    /// The tokens that were fed.
    context: Vec<u32>,
    next: Next,
    stop: Stop,
    is_over: IsOver,
    on_token: OnToken,
    load_started: SystemTime,
    load: Duration,
}

impl Runner {
    /// A runner of a program, which is loaded now.
    ///
    /// # Errors
    /// The program is not a language model's, or cannot be loaded.
    pub fn new(
        model: impl Model + 'static,
        tokenizer: impl Into<Arc<Tokenizer>>,
        overrides: &Overrides,
    ) -> Result<Self, Error> {
        let (load_started, start) = (SystemTime::now(), Instant::now());
        let mut model: Box<dyn Model> = Box::new(model);
        let tokenizer = tokenizer.into();
        let decoder = Decoder::of(model.as_ref())?;
        let mut metadata = Metadata::read(model.as_mut(), &decoder.interface(), overrides)?;
        metadata.bos_id = metadata.bos_id.or(tokenizer.bos());
        if metadata.eos_ids.is_empty() {
            metadata.eos_ids.extend(tokenizer.eos());
        }
        if !metadata.use_kv_cache {
            // All of it is fed at once.
            let most = decoder.interface().tokens;
            metadata.max_context_len = metadata.max_context_len.min(most);
        }
        let context_below = Metadata::context_below(model.as_mut(), overrides)?;
        decoder.load(model.as_mut())?;
        let memory = decoder.memory(model.as_mut(), metadata.max_context_len)?;
        metadata.max_seq_len = metadata.max_seq_len.min(memory.most);
        Ok(Runner {
            model,
            tokenizer,
            decoder: Arc::new(decoder),
            metadata,
            context_below,
            memory,
            template: None,
            arguments: TemplateArguments::default(),
            are_messages_text: false,
            divider: None,
            #[cfg(feature = "grammar")]
            vocabulary: Arc::default(),
            context: Vec::new(),
            next: Next::Nothing,
            stop: Stop::default(),
            is_over: Box::new(|| false),
            on_token: Box::new(|_, _| ()),
            load_started,
            load: start.elapsed(),
        })
    }

    /// Adds the time that it took to open the program to that of loading it, in
    /// [`Stats`](crate::Stats).
    #[must_use]
    pub fn opened_in(mut self, time: Duration) -> Self {
        self.load = self.load.saturating_add(time);
        self.load_started = self.load_started.checked_sub(time).unwrap_or(self.load_started);
        self
    }

    /// Another runner over the same program, with caches of its own.
    ///
    /// # Errors
    /// The program cannot be loaded once more.
    pub fn session(&self) -> Result<Runner, Error> {
        let (load_started, start) = (SystemTime::now(), Instant::now());
        let mut model = self.model.another();
        self.decoder.load(model.as_mut())?;
        Ok(Runner {
            model,
            tokenizer: self.tokenizer.clone(),
            decoder: self.decoder.clone(),
            metadata: self.metadata.clone(),
            context_below: self.context_below,
            memory: self.memory,
            template: self.template.clone(),
            arguments: self.arguments.clone(),
            are_messages_text: self.are_messages_text,
            divider: None,
            #[cfg(feature = "grammar")]
            vocabulary: self.vocabulary.clone(),
            context: Vec::new(),
            next: Next::Nothing,
            stop: Stop::default(),
            is_over: Box::new(|| false),
            on_token: Box::new(|_, _| ()),
            load_started,
            load: start.elapsed(),
        })
    }

    /// What the program says of itself.
    pub fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    /// The tokenizer.
    pub fn tokenizer(&self) -> &Arc<Tokenizer> {
        &self.tokenizer
    }

    /// The tokens that were fed; the largest number stands for each place of a picture or a sound.
    pub fn context(&self) -> &[u32] {
        &self.context
    }

    /// The logits of the token that was fed last, unless another was chosen by them.
    pub fn logits(&self) -> Option<&[f32]> {
        match &self.next {
            Next::Logits(logits) => Some(logits),
            _ => None,
        }
    }

    /// A handle that ends generations of this runner.
    pub fn stop_handle(&self) -> Stop {
        self.stop.clone()
    }

    /// Ends generations also once this says so, as when nobody waits for the text any more, or a
    /// time is over. It is asked before each token and each part of a prompt, from the beginning of
    /// a generation, where a [`Stop`] would come too soon. Of several, the last one is asked.
    pub fn stop_when(&mut self, is_over: impl Fn() -> bool + Send + 'static) {
        self.is_over = Box::new(is_over);
    }

    /// Tells of each token as soon as it is chosen, before text that it completes is given, with
    /// [how likely](GenerationConfig::logprobs) it was, where that is asked for. Of several, the
    /// last one is told.
    pub fn on_token(&mut self, tell: impl FnMut(u32, Option<&Logprobs>) + Send + 'static) {
        self.on_token = Box::new(tell);
    }

    /// Whether what is fed or generated should end.
    fn is_stopped(&self) -> bool {
        self.stop.is_idle() || (self.is_over)()
    }

    /// Forgets everything: the caches have their first values again.
    ///
    /// # Errors
    /// A delegate failed.
    pub fn reset(&mut self) -> Result<(), Error> {
        self.decoder.reset(self.model.as_mut())?;
        self.context.clear();
        self.next = Next::Nothing;
        Ok(())
    }

    /// Generates a few tokens behind a prompt and forgets them, so that what is made when it is
    /// first needed has been made.
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

    /// Feeds a prompt, and generates nothing.
    ///
    /// # Errors
    /// The context has no room for it, or the program failed.
    pub fn prefill(&mut self, prompt: &str) -> Result<(), Error> {
        let tokens = self.tokenizer.encode(prompt)?;
        self.prefill_tokens(&tokens)
    }

    /// Feeds tokens, and generates nothing.
    ///
    /// # Errors
    /// As [`prefill`](Self::prefill).
    pub fn prefill_tokens(&mut self, tokens: &[u32]) -> Result<(), Error> {
        let stop = self.stop.clone();
        stop.during(|| self.feed(tokens, &mut Feeding::for_logits()).map(|_| ()))
    }

    /// Generates text behind a prompt, which goes behind what was fed before. An empty prompt goes
    /// on where the last generation, or [`prefill`](Self::prefill), ended. Text is given piece by
    /// piece, each of whole characters.
    ///
    /// # Errors
    /// A setting is out of its range, the context has no room for the prompt, or the program
    /// failed.
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

    /// Generates text behind tokens.
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

    /// Generates text behind text, pictures and sounds, in their order. Without any, it goes on as
    /// [`generate`](Self::generate) does.
    ///
    /// # Errors
    /// As [`generate`](Self::generate), or the program has no encoder for a part, or the part does
    /// not fit it.
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

    /// What goes in front of a prompt and behind it.
    fn ends(&self, config: &GenerationConfig) -> Result<(Vec<u32>, Vec<u32>), Error> {
        let most = self.metadata.max_context_len;
        let several = |name, token: Option<u32>, count: usize| match token {
            Some(token) => Ok(vec![token; count.min(most)]),
            None if count == 0 => Ok(Vec::new()),
            None => Err(Error::Setting {
                name,
                value: "more than 0".into(),
                expected: "0, since neither the program nor the tokenizer has such a token",
            }),
        };
        let num_eos = config.num_eos.max(usize::from(self.metadata.append_eos_to_prompt));
        Ok((
            several("num_bos", self.metadata.bos_id, config.num_bos)?,
            several("num_eos", self.metadata.eos_ids.first().copied(), num_eos)?,
        ))
    }

    /// What the program takes as a picture, if it takes any.
    pub fn image_input(&self) -> Option<&TensorInfo> {
        self.decoder.encoders.input(Kind::Image)
    }

    /// What the program takes as a sound, if it takes any.
    pub fn audio_input(&self) -> Option<&TensorInfo> {
        self.decoder.encoders.input(Kind::Audio)
    }

    /// Keeps what the context and these tokens begin with in common, and says how much that is:
    /// less than all of them, so that there is something to feed.
    ///
    /// Where what the program keeps has no place for each position (it is recurrent, or of a window
    /// that moves on), tokens cannot be taken back, and nothing is kept unless all of the context
    /// is.
    ///
    /// # Errors
    /// A delegate failed.
    pub fn keep_common(&mut self, tokens: &[u32]) -> Result<usize, Error> {
        let common = self.context.iter().zip(tokens).take_while(|(a, b)| a == b).count();
        let common = common.min(tokens.len().saturating_sub(1));
        if self.keeps_tokens() && !self.memory.takes_back && common < self.context.len() {
            self.reset()?;
            return Ok(0);
        }
        // What lies behind in the caches is written over before anything looks at it.
        self.context.truncate(common);
        self.next = Next::Nothing;
        Ok(common)
    }

    /// Whether the program keeps what it was fed.
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
