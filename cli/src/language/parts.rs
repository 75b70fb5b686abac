//! Profiles of prefill and decode for `torchlet bench-llm --parts`.

use super::options::LanguageOptions;
use super::{Purpose, runner_for};
use crate::failure::Failure;
use crate::terminal::duration;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use torchlet::llm::{GenerationConfig, Sampling, Tokenizer};
use torchlet::{ProfileKind, Profiler};

/// Number of other lengths to run first: one more than the recordings that GPUs cache.
const OTHERS: usize = 4;

/// A model with a profiler.
pub(super) struct Parts {
    profiler: Arc<Profiler>,
    runner: torchlet::llm::Runner,
}

/// One operator's share of the time of a prompt or token.
pub(super) struct Part {
    pub(super) name: String,
    /// Calls per prompt or token.
    pub(super) calls: f64,
    pub(super) time: Duration,
}

impl Parts {
    pub(super) fn open(options: &LanguageOptions) -> Result<Self, Failure> {
        let profiler = Arc::new(Profiler::new());
        let purpose = Purpose { sequences: 1, profiler: Some(profiler.clone()) };
        let runner = runner_for(options, Tokenizer::empty(), purpose)?;
        Ok(Parts { profiler, runner })
    }

    /// Profiles a prompt whose length differs from the previous ones, so that no cached recording
    /// applies. Longest parts first.
    pub(super) fn of_prompt(&mut self, prompt: &[u32]) -> Result<Vec<Part>, Failure> {
        let others = (2..).filter(|length| *length != prompt.len()).take(OTHERS);
        for length in others {
            self.runner.reset()?;
            self.runner.prefill_tokens(&vec![1; length])?;
        }
        self.runner.reset()?;
        self.profiler.clear();
        self.runner.prefill_tokens(prompt)?;
        Ok(self.parts(1))
    }

    /// Profiles the average token after a prompt. Longest parts first.
    pub(super) fn of_token(&mut self, prompt: &[u32], tokens: usize) -> Result<Vec<Part>, Failure> {
        self.runner.reset()?;
        self.runner.prefill_tokens(prompt)?;
        self.profiler.clear();
        let config = GenerationConfig {
            max_new_tokens: Some(tokens),
            sampling: Sampling::greedy(),
            ignore_eos: true,
            ..GenerationConfig::default()
        };
        // The fed token requires a run, the last generated one does not.
        let made = self.runner.generate_tokens(&[1], &config, |_| ())?.stats.generated_tokens;
        Ok(self.parts(made.max(1)))
    }

    /// Averages the profile over `runs` runs. A delegate counts by its parts.
    fn parts(&self, runs: usize) -> Vec<Part> {
        let mut sums: BTreeMap<String, (u64, Duration)> = BTreeMap::new();
        for entry in self.profiler.entries() {
            if matches!(entry.kind, ProfileKind::Operator | ProfileKind::DelegatePart) {
                let (count, time) = sums.entry(entry.name).or_default();
                *count += entry.count;
                *time += entry.total;
            }
        }
        let each = |(name, (count, time)): (String, (u64, Duration))| Part {
            name,
            calls: count as f64 / runs as f64,
            time: time.div_f64(runs as f64),
        };
        let mut parts: Vec<Part> = sums.into_iter().map(each).collect();
        parts.sort_by_key(|part| std::cmp::Reverse(part.time));
        parts
    }
}

/// The profiled phase.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Of {
    Prompt,
    Token,
}

/// Prints parts as lines, or as one JSON object.
pub(super) fn print(of: Of, prompt_tokens: usize, parts: &[Part], json: bool) {
    let (title, key) = match of {
        Of::Prompt => ("the first prompt of a new length, ", "prompt_parts"),
        Of::Token => ("a token after a prompt of ", "parts"),
    };
    if !json {
        anstream::println!("{title}{prompt_tokens}:");
        for part in parts {
            let time = duration(part.time);
            anstream::println!("  {time:>10}  {:>6.1}×  {}", part.calls, part.name);
        }
        return;
    }
    let each = |part: &Part| {
        serde_json::json!({
            "name": part.name,
            "calls": part.calls,
            "ms": part.time.as_secs_f64() * 1e3,
        })
    };
    let parts: serde_json::Value = parts.iter().map(each).collect();
    println!("{}", serde_json::json!({ "prompt_tokens": prompt_tokens, key: parts }));
}
