//! Where the time of a token goes, for `torchlet bench-llm --parts`.

use super::options::LanguageOptions;
use super::runner_told;
use crate::failure::Failure;
use crate::terminal::duration;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use torchlet::llm::{GenerationConfig, Tokenizer};
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

    /// The parts of one token behind a prompt, the longest first. Of a delegate, its own parts count in place of the whole.
    pub(super) fn of(
        &mut self,
        prompt: &[u32],
        config: &GenerationConfig,
    ) -> Result<Vec<Part>, Failure> {
        self.runner.reset()?;
        self.runner.prefill_tokens(prompt)?;
        self.profiler.clear();
        let tokens = self.runner.generate_tokens(&[1], config, |_| ())?.stats.generated_tokens;
        let runs = tokens.max(1);
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

/// Writes parts as lines.
pub(super) fn print(parts: &[Part]) {
    for part in parts {
        anstream::println!("  {:>10}  {:>6.1}×  {}", duration(part.time), part.calls, part.name);
    }
}

/// The same as JSON.
pub(super) fn json(parts: &[Part]) -> serde_json::Value {
    let each = |part: &Part| {
        serde_json::json!({
            "name": part.name,
            "calls": part.calls,
            "microseconds": part.time.as_secs_f64() * 1e6,
        })
    };
    parts.iter().map(each).collect()
}
