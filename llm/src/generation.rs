//! What is to be generated, and what was.

#[cfg(feature = "grammar")]
use crate::grammar::Grammar;
use crate::logprobs::Logprobs;
use crate::sampler::Sampling;
use crate::stats::Stats;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// How much is generated, and how.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct GenerationConfig {
    /// Whether the prompt is given before what follows it.
    pub echo: bool,
    /// The most tokens to generate. Without this, as many as there is room for.
    pub max_new_tokens: Option<usize>,
    /// The most tokens in the context, those of the prompt and of earlier turns included.
    pub seq_len: Option<usize>,
    /// How tokens are chosen.
    pub sampling: Sampling,
    /// Whether tokens that end a text are as any other.
    pub ignore_eos: bool,
    /// How many of the token that is in front of a text go in front of the prompt.
    pub num_bos: usize,
    /// How many of the token that ends a text go behind the prompt.
    pub num_eos: usize,
    /// Texts that end the generation. They are not part of it.
    pub stop: Vec<String>,
    /// The most tokens that are fed before they are chosen, where the text had them behind the same
    /// ones before: 0 is none. The text is the same (but for what a program rounds otherwise when
    /// it takes several tokens), and takes less time where it repeats itself.
    pub lookahead: usize,
    /// Whether it is told how likely each token was, and how many of the likeliest there were in
    /// its place. Logits then come back from devices.
    pub logprobs: Option<usize>,
    /// What the text has to be. It ends where nothing may follow, or where it may end and the model
    /// ends it.
    #[cfg(feature = "grammar")]
    pub grammar: Option<Grammar>,
}

/// Why a generation ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Finish {
    /// A token that ends a text was chosen, or a text came that should end it.
    Stop,
    /// As many tokens were generated as should be.
    Length,
    /// The context is full.
    Context,
    /// [`Stop::stop`] was called.
    Stopped,
}

/// What was generated.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Generation {
    /// The text, as it was given piece by piece, without the prompt.
    pub text: String,
    /// All tokens that were chosen, that which ended the text included.
    pub tokens: Vec<u32>,
    /// How likely each of them was, where [that was asked for](GenerationConfig::logprobs).
    pub logprobs: Vec<Logprobs>,
    /// Why it ended.
    pub finish: Finish,
    /// Whether the text is whole as the grammar has it, where there is one: what was cut off need
    /// not be.
    pub fits: bool,
    /// What it took.
    pub stats: Stats,
}

/// Ends the generation of a [`Runner`](crate::Runner), or what a
/// [`Transcriber`](crate::Transcriber) writes down, from another thread.
#[derive(Debug, Clone)]
pub struct Stop(Arc<AtomicBool>);

impl Default for Stop {
    fn default() -> Self {
        Stop(Arc::new(AtomicBool::new(true)))
    }
}

impl Stop {
    /// Ends the generation in progress, if there is one, before its next token, or the next part of
    /// its prompt.
    pub fn stop(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Does what can be stopped.
    pub(crate) fn during<T>(&self, work: impl FnOnce() -> T) -> T {
        self.0.store(false, Ordering::Relaxed);
        let done = work();
        self.stop();
        done
    }

    /// Whether there is nothing to stop: nothing is generated, or what is will end.
    pub fn is_idle(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}
