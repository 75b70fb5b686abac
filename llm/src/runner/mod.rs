//! From a prompt to text.

use crate::chat::{ChatTemplate, Message, TemplateArguments};
use crate::decoder::{Decoder, Memory, Wanted};
use crate::encoder::{Input, Kind};
use crate::error::Error;
use crate::form::Form;
use crate::generation::{Finish, Generation, GenerationConfig, Stop};
#[cfg(feature = "grammar")]
use crate::grammar::Vocabulary;
use crate::lookahead::{Ahead, draft};
use crate::mark::Mark;
use crate::metadata::{Metadata, Overrides};
use crate::model::Model;
use crate::output::Output;
use crate::sampler::{Sampler, Sampling};
use crate::stats::{Stats, timed};
use crate::tokenizer::Tokenizer;
use crate::tools::Tool;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};
use torchlet_core::{TensorInfo, TensorRef};

/// What is in the context in place of a token where something else than text is.
const NO_TOKEN: u32 = u32::MAX;

/// What the next token follows from.
#[derive(Debug, Clone, Default)]
enum Next {
    /// Nothing was fed yet.
    #[default]
    Nothing,
    /// The logits of the last token that was fed.
    Logits(Vec<f32>),
    /// The likeliest token behind the last one that was fed, if there is one, which is all that is known of its logits.
    Likeliest(Option<u32>),
    /// This token, which was chosen, and has not been fed.
    Token(u32),
}

/// What feeding tokens takes, and what is wanted of it.
struct Feeding {
    /// Whether nothing but the likeliest token is wanted: then the logits can stay where they are.
    likeliest: bool,
    execution: Duration,
}

impl Feeding {
    /// Logits are wanted.
    fn for_logits() -> Self {
        Feeding { likeliest: false, execution: Duration::ZERO }
    }

    /// Feeds tokens by `feed`, and says what follows from the last; `spare` has memory for logits, which are wanted of the end of a prompt.
    fn step(
        &mut self,
        is_end: bool,
        spare: Next,
        feed: impl FnOnce(Option<Wanted<'_>>) -> Result<(), Error>,
    ) -> Result<Next, Error> {
        if self.likeliest {
            // One number comes back, also of what is not the end: that is less than logits that nobody looks at.
            let mut found = Vec::new();
            timed(&mut self.execution, || feed(Some(Wanted::Likeliest(&mut found))))?;
            return Ok(Next::Likeliest(found.first().copied().flatten()));
        }
        if !is_end {
            timed(&mut self.execution, || feed(None))?;
            return Ok(spare);
        }
        let mut logits = match spare {
            Next::Logits(logits) => logits,
            _ => Vec::new(),
        };
        timed(&mut self.execution, || feed(Some(Wanted::Logits(&mut logits))))?;
        Ok(Next::Logits(logits))
    }
}

/// Whether a generation should end.
type IsOver = Box<dyn Fn() -> bool + Send>;

/// A language model with its tokenizer, and the tokens that it has seen.
///
/// Each generation goes on behind what the one before left in the caches; [`reset`](Self::reset) starts anew.
pub struct Runner {
    model: Box<dyn Model>,
    tokenizer: Arc<Tokenizer>,
    decoder: Arc<Decoder>,
    metadata: Metadata,
    memory: Memory,
    template: Option<Arc<ChatTemplate>>,
    arguments: TemplateArguments,
    #[cfg(feature = "grammar")]
    vocabulary: Arc<std::sync::OnceLock<Vocabulary>>,
    /// The tokens that were fed.
    context: Vec<u32>,
    next: Next,
    stop: Stop,
    is_over: IsOver,
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
        decoder.load(model.as_mut())?;
        let memory = decoder.memory(model.as_mut(), metadata.max_context_len)?;
        metadata.max_seq_len = metadata.max_seq_len.min(memory.most);
        Ok(Runner {
            model,
            tokenizer,
            decoder: Arc::new(decoder),
            metadata,
            memory,
            template: None,
            arguments: TemplateArguments::default(),
            #[cfg(feature = "grammar")]
            vocabulary: Arc::default(),
            context: Vec::new(),
            next: Next::Nothing,
            stop: Stop::default(),
            is_over: Box::new(|| false),
            load_started,
            load: start.elapsed(),
        })
    }

    /// Adds the time that it took to open the program to that of loading it, in [`Stats`].
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
            memory: self.memory,
            template: self.template.clone(),
            arguments: self.arguments.clone(),
            #[cfg(feature = "grammar")]
            vocabulary: self.vocabulary.clone(),
            context: Vec::new(),
            next: Next::Nothing,
            stop: Stop::default(),
            is_over: Box::new(|| false),
            load_started,
            load: start.elapsed(),
        })
    }

    /// Sets how [`chat`](Self::chat) makes a prompt of messages.
    pub fn set_chat_template(&mut self, template: impl Into<Arc<ChatTemplate>>) {
        self.template = Some(template.into());
    }

    /// Sets what else the chat template is given, from now on: `enable_thinking`, say.
    pub fn set_template_arguments(&mut self, arguments: TemplateArguments) {
        self.arguments = arguments;
    }

    /// What else the chat template is given.
    pub fn template_arguments(&self) -> &TemplateArguments {
        &self.arguments
    }

    /// How [`chat`](Self::chat) makes a prompt of messages: what was set, or Llama 3's or ChatML, by the special tokens that there are.
    ///
    /// # Errors
    /// There are none of these.
    pub fn chat_template(&mut self) -> Result<Arc<ChatTemplate>, Error> {
        if self.template.is_none() {
            let has = |name| self.tokenizer.special(name).is_some();
            let known = match (has("<|start_header_id|>"), has("<|im_start|>")) {
                (true, _) => ChatTemplate::llama3(),
                (_, true) => ChatTemplate::chatml(),
                _ => {
                    let message = "the tokenizer has neither <|start_header_id|> nor <|im_start|>; set a template, such as that of \
                                   tokenizer_config.json";
                    return Err(Error::Template { message: message.into() });
                }
            };
            self.template = Some(Arc::new(known));
        }
        self.template.clone().ok_or(Error::NoPrompt)
    }

    /// What the program says of itself.
    pub fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    /// The tokenizer.
    pub fn tokenizer(&self) -> &Tokenizer {
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

    /// Ends generations also once this says so, as when nobody waits for the text any more, or a time is over. It is asked before each token and
    /// each part of a prompt, from the beginning of a generation, where a [`Stop`] would come too soon. Of several, the last one is asked.
    pub fn stop_when(&mut self, is_over: impl Fn() -> bool + Send + 'static) {
        self.is_over = Box::new(is_over);
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

    /// Generates a few tokens behind a prompt and forgets them, so that what is made when it is first needed has been made.
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

    /// Generates text behind a prompt, which goes behind what was fed before. An empty prompt goes on where the last generation, or
    /// [`prefill`](Self::prefill), ended. Text is given piece by piece, each of whole characters.
    ///
    /// # Errors
    /// A setting is out of its range, the context has no room for the prompt, or the program failed.
    pub fn generate(
        &mut self,
        prompt: &str,
        config: &GenerationConfig,
        mut on_text: impl FnMut(&str),
    ) -> Result<Generation, Error> {
        let start = (SystemTime::now(), Instant::now());
        let mut tokens = Vec::new();
        if !prompt.is_empty() {
            let missing = |name| Error::Setting {
                name,
                value: "more than 0".into(),
                expected: "0, since neither the program nor the tokenizer has such a token",
            };
            let bos = self.metadata.bos_id.map(|token| (token, config.num_bos));
            if let Some((token, count)) = bos {
                tokens.extend(std::iter::repeat_n(token, count.min(self.metadata.max_context_len)));
            } else if config.num_bos > 0 {
                return Err(missing("num_bos"));
            }
            tokens.extend(self.tokenizer.encode(prompt)?);
            let count = config.num_eos.max(usize::from(self.metadata.append_eos_to_prompt));
            match self.metadata.eos_ids.first() {
                Some(eos) => tokens
                    .extend(std::iter::repeat_n(*eos, count.min(self.metadata.max_context_len))),
                None if count > 0 => return Err(missing("num_eos")),
                None => {}
            }
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

    /// Generates text behind text, pictures and sounds, in their order.
    ///
    /// # Errors
    /// As [`generate`](Self::generate), or the program has no encoder for a part, or the part does not fit it.
    pub fn generate_from(
        &mut self,
        inputs: &[Input<'_>],
        config: &GenerationConfig,
        mut on_text: impl FnMut(&str),
    ) -> Result<Generation, Error> {
        let start = (SystemTime::now(), Instant::now());
        self.run(inputs, config, start, &mut on_text)
    }

    /// What the program takes as a picture, if it takes any.
    pub fn image_input(&self) -> Option<&TensorInfo> {
        self.decoder.encoders.input(Kind::Image)
    }

    /// What the program takes as a sound, if it takes any.
    pub fn audio_input(&self) -> Option<&TensorInfo> {
        self.decoder.encoders.input(Kind::Audio)
    }

    /// Generates the assistant's next message of a conversation. What of it was fed before, here or by [`generate`](Self::generate), is not
    /// fed again.
    ///
    /// # Errors
    /// As [`generate`](Self::generate), or the template refuses the messages.
    pub fn chat(
        &mut self,
        messages: &[Message],
        config: &GenerationConfig,
        on_text: impl FnMut(&str),
    ) -> Result<Generation, Error> {
        self.chat_with_tools(messages, &[], config, on_text)
    }

    /// The same, where these functions may be called: [`ToolCalls`](crate::ToolCalls) finds the calls in what is said.
    ///
    /// # Errors
    /// As [`chat`](Self::chat), or the arguments of a call in a message are no JSON object.
    pub fn chat_with_tools(
        &mut self,
        messages: &[Message],
        tools: &[Tool],
        config: &GenerationConfig,
        mut on_text: impl FnMut(&str),
    ) -> Result<Generation, Error> {
        let start = (SystemTime::now(), Instant::now());
        let tokens = self.prompt_tokens(messages, tools)?;
        let rest = self.keep_common(&tokens)?;
        self.run(&[Input::Tokens(&tokens[rest..])], config, start, &mut on_text)
    }

    /// The same, with pictures and sounds, of one or several parts each, in the places of their marks. All of it is fed: nothing tells one picture
    /// from another among what was.
    ///
    /// # Errors
    /// As [`chat_with_tools`](Self::chat_with_tools) and [`generate_from`](Self::generate_from), or the template left out a mark.
    pub fn chat_from(
        &mut self,
        messages: &[Message],
        tools: &[Tool],
        (mark, objects): (&Mark, &[Vec<Input<'_>>]),
        config: &GenerationConfig,
        mut on_text: impl FnMut(&str),
    ) -> Result<Generation, Error> {
        let start = (SystemTime::now(), Instant::now());
        let prompt = self.chat_prompt(messages, tools)?;
        let inputs = mark.place(&prompt, objects)?;
        self.keep_common(&[])?;
        self.run(&inputs, config, start, &mut on_text)
    }

    /// The tokens of the prompt that [`chat`](Self::chat) makes.
    ///
    /// # Errors
    /// The template refuses the messages.
    pub fn chat_tokens(&mut self, messages: &[Message]) -> Result<Vec<u32>, Error> {
        self.prompt_tokens(messages, &[])
    }

    /// The prompt that [`chat_with_tools`](Self::chat_with_tools) makes, as text.
    ///
    /// # Errors
    /// The template refuses the messages.
    pub fn chat_prompt(&mut self, messages: &[Message], tools: &[Tool]) -> Result<String, Error> {
        self.chat_template()?.render_with(messages, tools, &self.arguments, true)
    }

    fn prompt_tokens(&mut self, messages: &[Message], tools: &[Tool]) -> Result<Vec<u32>, Error> {
        let prompt = self.chat_prompt(messages, tools)?;
        self.tokenizer.encode(&prompt)
    }

    /// Keeps what the context and these tokens begin with in common, and says how much that is: less than all of them, so that
    /// there is something to feed.
    ///
    /// Where what the program keeps has no place for each position (it is recurrent, or of a window that moves on), tokens cannot be taken back,
    /// and nothing is kept unless all of the context is.
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

    /// Feeds what is pending, and tokens behind it. What is wanted of the last is kept. Whether all were fed: it may be stopped.
    fn feed(&mut self, tokens: &[u32], feeding: &mut Feeding) -> Result<bool, Error> {
        let pending = match self.next {
            Next::Token(token) => Some(token),
            _ => None,
        };
        let all: Vec<u32> = pending.into_iter().chain(tokens.iter().copied()).collect();
        if all.is_empty() {
            return match self.next {
                Next::Logits(_) | Next::Likeliest(_) => Ok(true),
                _ => Err(Error::NoPrompt),
            };
        }
        let (position, limit) = (self.context.len(), self.metadata.max_context_len);
        if all.len() > limit.saturating_sub(position) {
            return Err(Error::ContextFull { position, tokens: all.len(), limit });
        }
        let mut next = std::mem::take(&mut self.next);
        if !self.decoder.has_position() || !self.keeps_tokens() {
            if self.keeps_tokens() && !self.context.is_empty() {
                // All tokens are fed once more, and none may be in the cache already.
                self.decoder.reset(self.model.as_mut())?;
            }
            self.context.extend(all);
            let (model, context) = (self.model.as_mut(), &self.context);
            let decoder = &self.decoder;
            self.next = feeding.step(true, next, |wanted| decoder.whole(model, context, wanted))?;
            return Ok(true);
        }
        let mut rest = all.as_slice();
        while !rest.is_empty() {
            if self.is_stopped() {
                if rest.len() == all.len() {
                    // What was chosen or known before still is.
                    self.next = next;
                }
                return Ok(false);
            }
            let count = self.decoder.chunk(rest.len(), self.metadata.max_seq_len).min(rest.len());
            let (chunk, behind) = rest.split_at(count);
            let (model, at) = (self.model.as_mut(), self.context.len());
            let decoder = &self.decoder;
            next = feeding
                .step(behind.is_empty(), next, |wanted| decoder.step(model, chunk, at, wanted))?;
            self.context.extend_from_slice(chunk);
            rest = behind;
        }
        self.next = next;
        Ok(true)
    }

    /// Feeds the parts of a prompt, one after the other. Whether all were fed: it may be stopped.
    fn feed_all(&mut self, parts: &[Input<'_>], feeding: &mut Feeding) -> Result<bool, Error> {
        for part in parts {
            if self.is_stopped() {
                return Ok(false);
            }
            let is_fed = match part {
                Input::Tokens(tokens) => self.feed(tokens, feeding)?,
                Input::Text(text) => {
                    let tokens = self.tokenizer.encode(text)?;
                    tokens.is_empty() || self.feed(&tokens, feeding)?
                }
                Input::Image(image) => self.feed_encoded(Kind::Image, image, feeding)?,
                Input::Audio(audio) => self.feed_encoded(Kind::Audio, audio, feeding)?,
            };
            if !is_fed {
                return Ok(false);
            }
        }
        match self.next {
            Next::Logits(_) | Next::Likeliest(_) => Ok(true),
            _ => Err(Error::NoPrompt),
        }
    }

    /// Feeds what an encoder makes of a picture or a sound.
    fn feed_encoded(
        &mut self,
        kind: Kind,
        input: &TensorRef<'_>,
        feeding: &mut Feeding,
    ) -> Result<bool, Error> {
        if !self.decoder.has_position() || !self.keeps_tokens() {
            let message = "pictures and sounds need a program with a cache";
            return Err(Error::interface("text_decoder", message));
        }
        if let Next::Token(_) = self.next
            && !self.feed(&[], feeding)?
        {
            return Ok(false);
        }
        let (decoder, model) = (self.decoder.clone(), self.model.as_mut());
        let encoded =
            timed(&mut feeding.execution, || decoder.encoders.encode(model, kind, input))?;
        let (position, limit) = (self.context.len(), self.metadata.max_context_len);
        if encoded.count > limit.saturating_sub(position) {
            return Err(Error::ContextFull { position, tokens: encoded.count, limit });
        }
        let mut next = std::mem::take(&mut self.next);
        let mut at = 0;
        while at < encoded.count {
            if self.is_stopped() {
                return Ok(false);
            }
            let rest = encoded.count - at;
            let count = decoder.rows(rest, self.metadata.max_seq_len).min(rest);
            let (model, position) = (self.model.as_mut(), self.context.len());
            next = feeding.step(count == rest, next, |wanted| {
                decoder.step_encoded(model, &encoded, at..at + count, position, wanted)
            })?;
            self.context.extend(std::iter::repeat_n(NO_TOKEN, count));
            at += count;
        }
        self.next = next;
        Ok(true)
    }

    /// Feeds the token that was chosen, and what may follow it; nothing if it was stopped.
    fn feed_ahead(
        &mut self,
        token: u32,
        most: usize,
        feeding: &mut Feeding,
    ) -> Result<Option<Ahead<Next>>, Error> {
        let room = self.metadata.max_context_len.saturating_sub(self.context.len());
        let room = room.min(self.decoder.lookahead()).min(self.metadata.max_seq_len);
        let mut draft = draft(&self.context, token, most.min(room.saturating_sub(1)));
        // A picture is not foreseen.
        let tokens = draft.iter().take_while(|token| **token != NO_TOKEN).count();
        draft.truncate(tokens);
        if draft.is_empty() {
            return Ok(self.feed(&[], feeding)?.then(|| Ahead::new(&[], []).1));
        }
        let tokens = [&[token], draft.as_slice()].concat();
        let (model, at) = (self.model.as_mut(), self.context.len());
        let (own, ahead) = if feeding.likeliest {
            let mut found = Vec::new();
            let wanted = Wanted::Likeliest(&mut found);
            timed(&mut feeding.execution, || self.decoder.step_each(model, &tokens, at, wanted))?;
            Ahead::new(&draft, found.into_iter().map(Next::Likeliest))
        } else {
            let mut logits = Vec::new();
            let wanted = Wanted::Logits(&mut logits);
            timed(&mut feeding.execution, || self.decoder.step_each(model, &tokens, at, wanted))?;
            let width = (logits.len() / tokens.len()).max(1);
            Ahead::new(&draft, logits.chunks_exact(width).map(|row| Next::Logits(row.to_vec())))
        };
        self.context.push(token);
        self.next = own.ok_or(Error::NoToken { logits: 0 })?;
        Ok(Some(ahead))
    }

    /// The most tokens to generate now, and why no more. The last one takes no room, since it is not fed.
    fn room(&self, config: &GenerationConfig) -> (usize, Finish) {
        let used = self.context.len();
        let room = self.metadata.max_context_len.saturating_sub(used).saturating_add(1);
        let wanted = config.seq_len.map(|length| length.saturating_sub(used));
        let wanted = wanted.into_iter().chain(config.max_new_tokens).min();
        match wanted {
            Some(wanted) if wanted <= room => (wanted, Finish::Length),
            _ => (room, Finish::Context),
        }
    }

    #[cfg(feature = "grammar")]
    fn form(&self, config: &GenerationConfig) -> Result<Form, Error> {
        let Some(grammar) = &config.grammar else { return Ok(Form::default()) };
        if config.ignore_eos {
            let expected = "false where there is a grammar, which says where a text ends";
            return Err(Error::Setting { name: "ignore_eos", value: "true".into(), expected });
        }
        let vocabulary = match self.vocabulary.get() {
            Some(vocabulary) => vocabulary,
            None => {
                let made = Vocabulary::of(&self.tokenizer)?;
                self.vocabulary.get_or_init(|| made)
            }
        };
        vocabulary.constraint(grammar).map(Form::new)
    }

    #[cfg(not(feature = "grammar"))]
    fn form(&self, _: &GenerationConfig) -> Result<Form, Error> {
        Ok(Form::default())
    }

    fn run(
        &mut self,
        prompt: &[Input<'_>],
        config: &GenerationConfig,
        start: (SystemTime, Instant),
        on_text: &mut dyn FnMut(&str),
    ) -> Result<Generation, Error> {
        let stop = self.stop.clone();
        stop.during(|| self.run_until_stopped(prompt, config, start, on_text))
    }

    fn run_until_stopped(
        &mut self,
        prompt: &[Input<'_>],
        config: &GenerationConfig,
        (started, start): (SystemTime, Instant),
        on_text: &mut dyn FnMut(&str),
    ) -> Result<Generation, Error> {
        let mut sampler = Sampler::new(config.sampling.clone())?;
        if self.decoder.vocabulary() > 0 {
            // Before the prompt is fed, where the program says how many logits it gives.
            config.sampling.check_tokens(self.decoder.vocabulary())?;
        }
        if config.stop.iter().any(String::is_empty) {
            let expected = "a text that is not empty";
            return Err(Error::Setting { name: "stop", value: "\"\"".into(), expected });
        }
        let mut stats = Stats::new(self.load_started, self.load);
        stats.started = started;
        let pending = usize::from(matches!(self.next, Next::Token(_)));
        let before = self.context.len() + pending;
        let (mut tokens, mut finish) = (Vec::new(), Finish::Stopped);
        let mut form = self.form(config)?;
        let mut ahead = Ahead::new(&[], []).1;
        if config.lookahead > 0 && (self.decoder.lookahead() < 2 || !self.memory.takes_back) {
            let expected = "0, since the program gives logits of one token at a time, or cannot take tokens back";
            let value = config.lookahead.to_string();
            return Err(Error::Setting { name: "lookahead", value, expected });
        }
        let likeliest = sampler.needs_likeliest_alone() && form.is_free();
        // Where no token may be chosen, the next generation may choose it in another way.
        let chooses = config.max_new_tokens != Some(0) && config.seq_len.is_none();
        let mut feeding = Feeding { likeliest: likeliest && chooses, ..Feeding::for_logits() };
        let is_fed = self.feed_all(prompt, &mut feeding)?;
        feeding.likeliest = likeliest;
        stats.prompt_tokens = self.context.len().saturating_sub(before);
        stats.prefill = start.elapsed();
        stats.first_token = stats.prefill;
        let tokenizer = self.tokenizer.clone();
        let mut output = Output::new(&tokenizer, &self.context, &config.stop, on_text);
        let (most, reason) = self.room(config);
        loop {
            // A token that is chosen already is given yet.
            let is_chosen = matches!(self.next, Next::Likeliest(Some(_)));
            if !is_fed || (!is_chosen && self.is_stopped()) {
                break;
            }
            if tokens.len() == most {
                finish = reason;
                break;
            }
            if let Next::Token(token) = self.next {
                if let Some(found) = ahead.take(token) {
                    self.context.push(token);
                    self.next = found;
                    stats.foreseen_tokens += 1;
                } else if config.lookahead > 0 {
                    let fed = self.feed_ahead(token, config.lookahead, &mut feeding)?;
                    let Some(fed) = fed else { break };
                    ahead = fed;
                } else if !self.feed(&[], &mut feeding)? {
                    break;
                }
            }
            let (context, ends) = (&self.context, &self.metadata.eos_ids);
            let token = match &mut self.next {
                Next::Logits(logits) => timed(&mut stats.sampling, || {
                    form.mask(logits, ends)?;
                    sampler.sample(logits, context)
                })?,
                Next::Likeliest(token) => {
                    token.ok_or(Error::NoToken { logits: self.decoder.vocabulary() })?
                }
                Next::Nothing | Next::Token(_) => return Err(Error::NoPrompt),
            };
            self.next = Next::Token(token);
            tokens.push(token);
            if tokens.len() == 1 {
                stats.first_token = start.elapsed();
            }
            let ends = !config.ignore_eos && self.metadata.eos_ids.contains(&token);
            if ends || !output.push(token) || !form.accept(token)? {
                finish = Finish::Stop;
                break;
            }
        }
        let text = output.finish();
        stats.execution = feeding.execution;
        stats.generated_tokens = tokens.len();
        stats.total = start.elapsed();
        Ok(Generation { text, tokens, finish, stats })
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
