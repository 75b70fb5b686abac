//! Configuration and result of a generation.

#[cfg(feature = "grammar")]
use crate::grammar::Grammar;
use crate::logprobs::Logprobs;
use crate::sampler::Sampling;
use crate::stats::Stats;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Configuration of a generation.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct GenerationConfig {
    /// Whether to emit the prompt before the generated text.
    pub echo: bool,
    /// Maximum number of generated tokens. Default: limited by the context only.
    pub max_new_tokens: Option<usize>,
    /// Maximum number of tokens in the context, including the prompt and earlier turns.
    pub seq_len: Option<usize>,
    /// Sampling settings.
    pub sampling: Sampling,
    /// Whether to continue after end-of-text tokens.
    pub ignore_eos: bool,
    /// Number of BOS tokens before the prompt.
    pub num_bos: usize,
    /// Number of EOS tokens after the prompt.
    pub num_eos: usize,
    /// Stop strings: they end the generation, and are not part of the result.
    pub stop: Vec<String>,
    /// Lookahead decoding: maximum number of draft tokens fed at once, taken from an earlier
    /// occurrence of the last tokens. 0 disables it.
    ///
    /// The text is the same, except for rounding differences in programs that round differently for
    /// several tokens. It saves time for repetitive text.
    pub lookahead: usize,
    /// Report log-probabilities of each generated token and of this many of the most likely
    /// alternatives. Requires transferring the logits from the device.
    pub logprobs: Option<usize>,
    /// Grammar that the text must match. The generation ends if nothing may follow, or if the text
    /// may end and the model chooses to.
    #[cfg(feature = "grammar")]
    pub grammar: Option<Grammar>,
}

/// Reason for the end of a generation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Finish {
    /// An end-of-text token or a stop string.
    Stop,
    /// The requested number of tokens was generated.
    Length,
    /// The context is full.
    Context,
    /// [`Stop::stop`] was called.
    Stopped,
}

/// Result of a generation.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Generation {
    /// The generated text, as streamed, without the prompt.
    pub text: String,
    /// All generated tokens, including an end-of-text token.
    pub tokens: Vec<u32>,
    /// Log-probabilities of the tokens, if [requested](GenerationConfig::logprobs).
    pub logprobs: Vec<Logprobs>,
    /// Reason for the end.
    pub finish: Finish,
    /// Whether the text is a complete match of the grammar. A truncated text may not be. True
    /// without a grammar.
    pub fits: bool,
    /// Statistics.
    pub stats: Stats,
}

/// Stops a [`Runner`](crate::Runner) or a [`Transcriber`](crate::Transcriber) from another thread.
#[derive(Debug, Clone)]
pub struct Stop(Arc<AtomicBool>);

impl Default for Stop {
    fn default() -> Self {
        Stop(Arc::new(AtomicBool::new(true)))
    }
}

impl Stop {
    /// Stops the current generation, if any, before its next token or prompt chunk.
    pub fn stop(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Runs `work` as a stoppable activity.
    pub(crate) fn during<T>(&self, work: impl FnOnce() -> T) -> T {
        self.0.store(false, Ordering::Relaxed);
        let done = work();
        self.stop();
        done
    }

    /// Whether nothing is running, or the current generation is about to end.
    pub fn is_idle(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}
