//! Feeds tokens, images and sounds into the KV cache of a program.

use super::Runner;
use crate::decoder::RequestedOutput;
use crate::encoder::{Input, Kind};
use crate::error::Error;
use crate::lookahead::{DraftResults, draft};
use crate::stats::timed;
use std::time::Duration;
use torchlet_core::TensorRef;

/// Stands for positions of images and sounds in the context.
const NO_TOKEN: u32 = u32::MAX;

/// Source of the next token.
#[derive(Debug, Clone, Default)]
pub(super) enum Next {
    /// Nothing was fed yet.
    #[default]
    Nothing,
    /// Logits after the last token that was fed.
    Logits(Vec<f32>),
    /// Argmax of the logits after the last token that was fed, if the logits themselves are not
    /// needed. `None` if no logit is greater than minus infinity.
    Argmax(Option<u32>),
    /// A sampled token that was not fed yet.
    Token(u32),
}

/// Requested result of feeding, and execution time.
pub(super) struct Feeding {
    /// Whether the argmax suffices. The logits can then stay on the device.
    pub(super) argmax: bool,
    pub(super) execution: Duration,
}

impl Feeding {
    /// Requests logits.
    pub(super) fn for_logits() -> Self {
        Feeding { argmax: false, execution: Duration::ZERO }
    }

    /// Feeds a chunk with `feed`, and returns the requested result of its last token. `is_end`
    /// marks the last chunk of a prompt. `spare` is reused for logits.
    fn step(
        &mut self,
        is_end: bool,
        spare: Next,
        feed: impl FnOnce(Option<RequestedOutput<'_>>) -> Result<(), Error>,
    ) -> Result<Next, Error> {
        if self.argmax {
            // Request the argmax for every chunk, not only for the last: a run without a requested
            // output transfers all logits.
            let mut found = Vec::new();
            timed(&mut self.execution, || feed(Some(RequestedOutput::Argmax(&mut found))))?;
            return Ok(Next::Argmax(found.first().copied().flatten()));
        }
        if !is_end {
            timed(&mut self.execution, || feed(None))?;
            return Ok(spare);
        }
        let mut logits = match spare {
            Next::Logits(logits) => logits,
            _ => Vec::new(),
        };
        timed(&mut self.execution, || feed(Some(RequestedOutput::Logits(&mut logits))))?;
        Ok(Next::Logits(logits))
    }
}

impl Runner {
    /// Feeds the pending token and then `tokens`. Returns false if stopped before the end.
    pub(super) fn feed(&mut self, tokens: &[u32], feeding: &mut Feeding) -> Result<bool, Error> {
        let pending = match self.next {
            Next::Token(token) => Some(token),
            _ => None,
        };
        let all: Vec<u32> = pending.into_iter().chain(tokens.iter().copied()).collect();
        if all.is_empty() {
            return match self.next {
                Next::Logits(_) | Next::Argmax(_) => Ok(true),
                _ => Err(Error::NoPrompt),
            };
        }
        let (position, limit) = (self.context.len(), self.metadata.max_context_len);
        if all.len() > limit.saturating_sub(position) {
            return Err(Error::ContextFull { position, tokens: all.len(), limit });
        }
        Error::check_known(&all, self.metadata.vocab_size, self.decoder.vocabulary())?;
        let mut next = std::mem::take(&mut self.next);
        if !self.decoder.has_position() || !self.keeps_tokens() {
            if self.keeps_tokens() && !self.context.is_empty() {
                // The program has no position input: all tokens are fed again, into an empty cache.
                self.decoder.reset(self.model.as_mut())?;
            }
            self.context.extend(all);
            let (model, context) = (self.model.as_mut(), &self.context);
            let decoder = &self.decoder;
            self.next = feeding
                .step(true, next, |requested| decoder.step_uncached(model, context, requested))
                .map_err(|error| {
                    error.with_context_hint(context.len(), self.declared_context_len)
                })?;
            return Ok(true);
        }
        let mut rest = all.as_slice();
        while !rest.is_empty() {
            if self.is_stopped() {
                if rest.len() == all.len() {
                    // Nothing was fed, so the previous state is still valid.
                    self.next = next;
                }
                return Ok(false);
            }
            let count = self.decoder.chunk(rest.len(), self.metadata.max_seq_len).min(rest.len());
            let (chunk, behind) = rest.split_at(count);
            let (model, at) = (self.model.as_mut(), self.context.len());
            let decoder = &self.decoder;
            next = feeding
                .step(behind.is_empty(), next, |requested| {
                    decoder.step(model, chunk, at, requested)
                })
                .map_err(|error| error.with_context_hint(at + count, self.declared_context_len))?;
            self.context.extend_from_slice(chunk);
            rest = behind;
        }
        self.next = next;
        Ok(true)
    }

    /// Feeds the parts of a prompt in order. Returns false if stopped before the end.
    pub(super) fn feed_all(
        &mut self,
        parts: &[Input<'_>],
        feeding: &mut Feeding,
    ) -> Result<bool, Error> {
        for part in parts {
            if self.is_stopped() {
                return Ok(false);
            }
            let is_fed = match part {
                Input::Tokens(tokens) => self.feed(tokens, feeding)?,
                Input::Text(text) => {
                    let tokens = match self.divider {
                        Some(mark) => self.tokenizer.encode_divided(text, mark)?,
                        None => self.tokenizer.encode(text)?,
                    };
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
            Next::Logits(_) | Next::Argmax(_) => Ok(true),
            _ => Err(Error::NoPrompt),
        }
    }

    /// Encodes an image or a sound, and feeds the embeddings.
    fn feed_encoded(
        &mut self,
        kind: Kind,
        input: &TensorRef<'_>,
        feeding: &mut Feeding,
    ) -> Result<bool, Error> {
        if !self.decoder.has_position() || !self.keeps_tokens() {
            let message = "images and sounds require a program with a KV cache";
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
                if at == 0 {
                    self.next = next;
                }
                return Ok(false);
            }
            let rest = encoded.count - at;
            let count = decoder.rows(rest, self.metadata.max_seq_len).min(rest);
            let (model, position) = (self.model.as_mut(), self.context.len());
            next = feeding
                .step(count == rest, next, |requested| {
                    decoder.step_encoded(model, &encoded, at..at + count, position, requested)
                })
                .map_err(|error| {
                    error.with_context_hint(position + count, self.declared_context_len)
                })?;
            self.context.extend(std::iter::repeat_n(NO_TOKEN, count));
            at += count;
        }
        self.next = next;
        Ok(true)
    }

    /// Feeds the sampled token together with a draft of the following tokens. `None` if stopped.
    pub(super) fn feed_ahead(
        &mut self,
        token: u32,
        most: usize,
        feeding: &mut Feeding,
    ) -> Result<Option<DraftResults<Next>>, Error> {
        let room = self.metadata.max_context_len.saturating_sub(self.context.len());
        let room = room.min(self.decoder.lookahead()).min(self.metadata.max_seq_len);
        let mut draft = draft(&self.context, token, most.min(room.saturating_sub(1)));
        // Positions of images cannot be drafted.
        let tokens = draft.iter().take_while(|token| **token != NO_TOKEN).count();
        draft.truncate(tokens);
        if draft.is_empty() {
            return Ok(self.feed(&[], feeding)?.then(|| DraftResults::new(&[], []).1));
        }
        let tokens = [&[token], draft.as_slice()].concat();
        let (model, at) = (self.model.as_mut(), self.context.len());
        let with_context_hint =
            |error: Error| error.with_context_hint(at + tokens.len(), self.declared_context_len);
        let (own, ahead) = if feeding.argmax {
            let mut found = Vec::new();
            let requested = RequestedOutput::Argmax(&mut found);
            timed(&mut feeding.execution, || self.decoder.step_each(model, &tokens, at, requested))
                .map_err(with_context_hint)?;
            DraftResults::new(&draft, found.into_iter().map(Next::Argmax))
        } else {
            let mut logits = Vec::new();
            let requested = RequestedOutput::Logits(&mut logits);
            timed(&mut feeding.execution, || self.decoder.step_each(model, &tokens, at, requested))
                .map_err(with_context_hint)?;
            let width = (logits.len() / tokens.len()).max(1);
            DraftResults::new(
                &draft,
                logits.chunks_exact(width).map(|row| Next::Logits(row.to_vec())),
            )
        };
        self.context.push(token);
        self.next = own.ok_or(Error::NoToken { logits: 0 })?;
        Ok(Some(ahead))
    }
}
