//! The decode loop.

use super::Runner;
use super::feeding::{Feeding, Next};
use crate::encoder::Input;
use crate::error::Error;
use crate::form::Form;
use crate::generation::{Finish, Generation, GenerationConfig};
#[cfg(feature = "grammar")]
use crate::grammar::Vocabulary;
use crate::logprobs::Distribution;
use crate::lookahead::DraftResults;
use crate::output::Output;
use crate::sampler::Sampler;
use crate::stats::{Stats, timed};
use std::time::{Instant, SystemTime};

impl Runner {
    /// Maximum number of tokens to generate, and the finish reason when it is reached. The last
    /// token needs no room in the context, because it is not fed.
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

    /// Creates the grammar constraint. `None` if the generation was stopped in the meantime.
    #[cfg(feature = "grammar")]
    fn form(&self, config: &GenerationConfig) -> Result<Option<Form>, Error> {
        let Some(grammar) = &config.grammar else { return Ok(Some(Form::default())) };
        if config.ignore_eos {
            let expected = "false, because the grammar decides where a text ends";
            return Err(Error::Setting { name: "ignore_eos", value: "true".into(), expected });
        }
        let vocabulary = match self.vocabulary.get() {
            Some(vocabulary) => vocabulary,
            None => {
                let made = Vocabulary::of(&self.tokenizer)?;
                self.vocabulary.get_or_init(|| made)
            }
        };
        let constraint = vocabulary.constraint(grammar, &|| self.is_stopped())?;
        Ok(constraint.map(Form::new))
    }

    #[cfg(not(feature = "grammar"))]
    fn form(&self, _: &GenerationConfig) -> Result<Option<Form>, Error> {
        Ok(Some(Form::default()))
    }

    pub(super) fn run(
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
            // Checked before the prefill, if the program declares its number of logits.
            config.sampling.check_tokens(self.decoder.vocabulary())?;
        }
        if config.stop.iter().any(String::is_empty) {
            let expected = "a non-empty text";
            return Err(Error::Setting { name: "stop", value: "\"\"".into(), expected });
        }
        let mut stats = Stats::new(self.load_started, self.load);
        stats.started = started;
        let pending = usize::from(matches!(self.next, Next::Token(_)));
        let before = self.context.len() + pending;
        let (mut tokens, mut logprobs, mut finish) = (Vec::new(), Vec::new(), Finish::Stopped);
        let (mut form, has_form) = match self.form(config)? {
            Some(form) => (form, true),
            None => (Form::default(), false),
        };
        let mut ahead = DraftResults::new(&[], []).1;
        if config.lookahead > 0
            && (self.decoder.lookahead() < 2 || !self.state_limits.can_roll_back)
        {
            let expected =
                "0, because the program returns logits for one token only, or cannot roll back";
            let value = config.lookahead.to_string();
            return Err(Error::Setting { name: "lookahead", value, expected });
        }
        let argmax = sampler.needs_only_argmax() && form.is_free() && config.logprobs.is_none();
        // If no token is to be sampled, the next generation may use other sampling settings and
        // need logits.
        let chooses = config.max_new_tokens != Some(0) && config.seq_len.is_none();
        let mut feeding = Feeding { argmax: argmax && chooses, ..Feeding::for_logits() };
        let is_fed = has_form && self.feed_all(prompt, &mut feeding)?;
        feeding.argmax = argmax;
        stats.prompt_tokens = self.context.len().saturating_sub(before);
        stats.prefill = start.elapsed();
        stats.first_token = stats.prefill;
        let tokenizer = self.tokenizer.clone();
        let mut output = Output::new(&tokenizer, &self.context, &config.stop, on_text);
        let (most, reason) = self.room(config);
        let mut is_cut = false;
        loop {
            // A token that is already determined is still emitted.
            let is_chosen = matches!(self.next, Next::Argmax(Some(_)));
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
                    stats.accepted_tokens += 1;
                } else if config.lookahead > 0 {
                    let fed = self.feed_ahead(token, config.lookahead, &mut feeding)?;
                    let Some(fed) = fed else { break };
                    ahead = fed;
                } else if !self.feed(&[], &mut feeding)? {
                    break;
                }
            }
            let (context, ends) = (&self.context, &self.metadata.eos_ids);
            let (stop, should_stop) = (&self.stop, &self.should_stop);
            let mut given = None;
            let token = match &mut self.next {
                Next::Logits(logits) => {
                    let sampled = timed(&mut stats.sampling, || {
                        given = config.logprobs.map(|count| (Distribution::of(logits), count));
                        match form.mask(logits, ends, &|| stop.is_idle() || should_stop())? {
                            true => sampler.sample(logits, context).map(Some),
                            false => Ok(None),
                        }
                    });
                    let Some(token) = sampled? else { break };
                    token
                }
                Next::Argmax(token) => {
                    token.ok_or(Error::NoToken { logits: self.decoder.vocabulary() })?
                }
                Next::Nothing | Next::Token(_) => return Err(Error::NoPrompt),
            };
            self.next = Next::Token(token);
            tokens.push(token);
            if tokens.len() == 1 {
                stats.first_token = start.elapsed();
            }
            let told = given.map(|(given, count)| given.logprobs_of(token, count, output.len()));
            (self.on_token)(token, told.as_ref());
            logprobs.extend(told);
            let ends = !config.ignore_eos && self.metadata.eos_ids.contains(&token);
            is_cut = !ends && !output.push(token);
            if ends || is_cut || !form.accept(token)? {
                finish = Finish::Stop;
                break;
            }
        }
        let text = output.finish();
        let fits = has_form && form.fits(is_cut.then_some(text.as_str()));
        stats.execution = feeding.execution;
        stats.generated_tokens = tokens.len();
        stats.total = start.elapsed();
        Ok(Generation { text, tokens, logprobs, finish, fits, stats })
    }
}
