//! Where the time of a token goes, for `torchlet bench-llm --parts`.

use super::options::LanguageOptions;
use super::runner_told;
use crate::failure::Failure;
use crate::terminal::duration;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use torchlet::llm::{GenerationConfig, Sampling, Tokenizer};
use torchlet::{ProfileKind, Profiler};

/// A model that tells where its time goes.
pub(super) struct Parts {
    profiler: Arc<Profiler>,
    runner: torchlet::llm::Runner,
}

/// A part of a token's time.
pub(super) struct Part {
    pub(super) name: String,
    /// How often a token takes it.
    pub(super) calls: f64,
    pub(super) time: Duration,
}

impl Parts {
    pub(super) fn open(options: &LanguageOptions) -> Result<Self, Failure> {
        let profiler = Arc::new(Profiler::new());
        let runner = runner_told(options, Tokenizer::empty(), Some(profiler.clone()))?;
        Ok(Parts { profiler, runner })
    }

    /// The parts of one of so many tokens behind a prompt, the longest first. Of a delegate, its own parts count in place of the whole.
    pub(super) fn of(&mut self, prompt: &[u32], tokens: usize) -> Result<Vec<Part>, Failure> {
        self.runner.reset()?;
        self.runner.prefill_tokens(prompt)?;
        self.profiler.clear();
        let config = GenerationConfig {
            max_new_tokens: Some(tokens),
            sampling: Sampling::greedy(),
            ignore_eos: true,
            ..GenerationConfig::default()
        };
        // The token that is fed takes a run, the last one that is chosen does not.
        let made = self.runner.generate_tokens(&[1], &config, |_| ())?.stats.generated_tokens;
        let runs = made.max(1);
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
        Ok(parts)
    }
}

/// Writes parts as lines, or as one JSON object.
pub(super) fn print(prompt_tokens: usize, parts: &[Part], json: bool) {
    if !json {
        anstream::println!("a token behind a prompt of {prompt_tokens}:");
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
    println!("{}", serde_json::json!({ "prompt_tokens": prompt_tokens, "parts": parts }));
}
