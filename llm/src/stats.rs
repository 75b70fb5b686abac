//! Timing statistics of a generation.

use std::fmt;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Token counts and times of one generation. [`json`](Self::json) uses the names of ExecuTorch's
/// `PyTorchObserver` line.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Stats {
    /// Prompt tokens that were fed.
    pub prompt_tokens: usize,
    /// Generated tokens.
    pub generated_tokens: usize,
    /// Generated tokens that lookahead decoding had fed ahead of time.
    pub accepted_tokens: usize,
    /// Time to open and load the program.
    pub load: Duration,
    /// Time from the start to the end of the prefill, including tokenization.
    pub prefill: Duration,
    /// Time from the start to the first token.
    pub first_token: Duration,
    /// Total time.
    pub total: Duration,
    /// Time spent sampling.
    pub sampling: Duration,
    /// Time spent running the program.
    pub execution: Duration,
    /// Start time.
    pub started: SystemTime,
    pub(crate) load_started: SystemTime,
}

impl Stats {
    pub(crate) fn new(load_started: SystemTime, load: Duration) -> Self {
        let none = Duration::ZERO;
        Stats {
            prompt_tokens: 0,
            generated_tokens: 0,
            accepted_tokens: 0,
            load,
            prefill: none,
            first_token: none,
            total: none,
            sampling: none,
            execution: none,
            started: SystemTime::now(),
            load_started,
        }
    }

    /// Prefill throughput in tokens per second.
    pub fn prefill_rate(&self) -> f64 {
        rate(self.prompt_tokens, self.prefill)
    }

    /// Decode throughput in tokens per second, after the prefill.
    pub fn decode_rate(&self) -> f64 {
        rate(self.generated_tokens, self.total.saturating_sub(self.prefill))
    }

    /// JSON object of ExecuTorch's `PyTorchObserver` line. Durations are in milliseconds, and times
    /// in milliseconds since 1970.
    pub fn json(&self) -> String {
        let at = |start: SystemTime, later: Duration| {
            start.duration_since(UNIX_EPOCH).unwrap_or_default().saturating_add(later).as_millis()
        };
        let after = |later| at(self.started, later);
        let mut text = String::from("{");
        let rates = [("prefill", self.prefill_rate()), ("decode", self.decode_rate())];
        for (name, rate) in rates.into_iter().filter(|(_, rate)| rate.is_finite() && *rate > 0.0) {
            text += &format!("\"{name}_token_per_sec\":{rate:.3},");
        }
        let fields: [(&str, u128); 12] = [
            ("prompt_tokens", self.prompt_tokens as u128),
            ("generated_tokens", self.generated_tokens as u128),
            ("model_load_start_ms", at(self.load_started, Duration::ZERO)),
            ("model_load_end_ms", at(self.load_started, self.load)),
            ("inference_start_ms", after(Duration::ZERO)),
            ("inference_end_ms", after(self.total)),
            // Tokenization is part of the execution here; it lasts less than a millisecond.
            ("model_execution_start_ms", after(Duration::ZERO)),
            ("model_execution_end_ms", after(self.total)),
            ("prompt_eval_end_ms", after(self.prefill)),
            ("first_token_ms", after(self.first_token)),
            ("aggregate_sampling_time_ms", self.sampling.as_millis()),
            ("aggregate_model_execution_time_ms", self.execution.as_millis()),
        ];
        for (name, value) in fields {
            text += &format!("\"{name}\":{value},");
        }
        text + "\"SCALING_FACTOR_UNITS_PER_SECOND\":1000}"
    }
}

fn rate(count: usize, time: Duration) -> f64 {
    if time.is_zero() { 0.0 } else { count as f64 / time.as_secs_f64() }
}

impl fmt::Display for Stats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = |time: Duration| time.as_secs_f64() * 1e3;
        writeln!(f, "load         {:>9.1} ms", ms(self.load))?;
        let (prompt, rate) = (self.prompt_tokens, self.prefill_rate());
        writeln!(
            f,
            "prompt       {:>9.1} ms  {prompt} tokens, {rate:.1} tokens/s",
            ms(self.prefill)
        )?;
        writeln!(f, "first token  {:>9.1} ms", ms(self.first_token))?;
        let (count, rate) = (self.generated_tokens, self.decode_rate());
        let rest = self.total.saturating_sub(self.prefill);
        let foreseen = match self.accepted_tokens {
            0 => String::new(),
            count => format!(", {count} of them drafted"),
        };
        writeln!(
            f,
            "generation   {:>9.1} ms  {count} tokens, {rate:.1} tokens/s{foreseen}",
            ms(rest)
        )?;
        write!(
            f,
            "  of this, sampling {:.1} ms, the program {:.1} ms",
            ms(self.sampling),
            ms(self.execution)
        )
    }
}

/// Runs a closure, and adds its time to `sum`.
pub(crate) fn timed<T>(sum: &mut Duration, run: impl FnOnce() -> T) -> T {
    let start = Instant::now();
    let result = run();
    *sum += start.elapsed();
    result
}
