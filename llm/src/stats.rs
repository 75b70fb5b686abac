//! How long things took.

use std::fmt;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// What one generation took, with the names of ExecuTorch's `PyTorchObserver` line in
/// [`json`](Self::json).
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Stats {
    /// Tokens of the prompt that were fed.
    pub prompt_tokens: usize,
    /// Tokens that were generated.
    pub generated_tokens: usize,
    /// Those of them that had been fed before they were chosen.
    pub foreseen_tokens: usize,
    /// Opening the program and getting it ready.
    pub load: Duration,
    /// From the start to the end of the prompt: encoding it, and feeding it.
    pub prefill: Duration,
    /// From the start to the first token.
    pub first_token: Duration,
    /// From the start to the end.
    pub total: Duration,
    /// Choosing tokens.
    pub sampling: Duration,
    /// Running the program.
    pub execution: Duration,
    /// When it started.
    pub started: SystemTime,
    pub(crate) load_started: SystemTime,
}

impl Stats {
    pub(crate) fn new(load_started: SystemTime, load: Duration) -> Self {
        let none = Duration::ZERO;
        Stats {
            prompt_tokens: 0,
            generated_tokens: 0,
            foreseen_tokens: 0,
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

    /// Tokens of the prompt in a second.
    pub fn prefill_rate(&self) -> f64 {
        rate(self.prompt_tokens, self.prefill)
    }

    /// Tokens in a second that were generated, once the prompt had been fed.
    pub fn decode_rate(&self) -> f64 {
        rate(self.generated_tokens, self.total.saturating_sub(self.prefill))
    }

    /// The object of ExecuTorch's `PyTorchObserver` line: milliseconds, the points in time
    /// since 1970.
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
            // Encoding a prompt before takes less than a millisecond.
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
        let foreseen = match self.foreseen_tokens {
            0 => String::new(),
            count => format!(", {count} of them foreseen"),
        };
        writeln!(
            f,
            "generation   {:>9.1} ms  {count} tokens, {rate:.1} tokens/s{foreseen}",
            ms(rest)
        )?;
        write!(
            f,
            "  of both, sampling {:.1} ms, the program {:.1} ms",
            ms(self.sampling),
            ms(self.execution)
        )
    }
}

/// Adds the time of a closure to a sum.
pub(crate) fn timed<T>(sum: &mut Duration, run: impl FnOnce() -> T) -> T {
    let start = Instant::now();
    let result = run();
    *sum += start.elapsed();
    result
}
