//! `torchlet bench-llm --sequences`: sessions that share runs.

use super::{BenchLlmArguments, LanguageOptions};
use crate::failure::Failure;
use crate::language::{Purpose, runner_for};
use std::sync::Barrier;
use std::time::{Duration, Instant};
use torchlet::llm::{GenerationConfig, Runner, Sampling, Tokenizer};

/// Measures each requested number of sessions. All of them feed the same prompt, and then decode.
pub(super) fn bench(
    arguments: &BenchLlmArguments,
    language: &LanguageOptions,
    prompt: &[u32],
) -> Result<(), Failure> {
    let most = arguments.sequences.iter().copied().max().unwrap_or(1);
    let purpose = Purpose { sequences: usize::from(most), profiler: None };
    let first = runner_for(language, Tokenizer::empty(), purpose)?;
    let mut runners = Vec::with_capacity(usize::from(most));
    for _ in 1..most {
        runners.push(first.session()?);
    }
    runners.push(first);
    for &count in &arguments.sequences {
        let Some(runners) = runners.get_mut(..usize::from(count)) else { continue };
        let mut fastest = Duration::MAX;
        for _ in 0..arguments.rounds {
            fastest = fastest.min(decode(runners, prompt, arguments.tokens)?);
        }
        let each = arguments.tokens as f64 / fastest.as_secs_f64().max(1e-9);
        let all = each * f64::from(count);
        match arguments.json {
            true => println!(
                "{}",
                serde_json::json!({
                    "sequences": count,
                    "prompt_tokens": prompt.len(),
                    "generated_tokens": arguments.tokens,
                    "decode_token_per_sec": all,
                    "decode_token_per_sec_each": each,
                })
            ),
            false => anstream::println!(
                "{count:>3} sessions: {all:>9.1} tokens/s in all, {each:.1} each"
            ),
        }
    }
    Ok(())
}

/// Returns the time from the first decoded token to the last one of all sessions.
fn decode(runners: &mut [Runner], prompt: &[u32], tokens: usize) -> Result<Duration, Failure> {
    let barrier = Barrier::new(runners.len());
    let times = std::thread::scope(|scope| {
        let run = |runner: &mut Runner| -> Result<(Instant, Instant), torchlet::llm::Error> {
            let config = GenerationConfig {
                sampling: Sampling::greedy(),
                ignore_eos: true,
                ..GenerationConfig::default()
            };
            let fed = runner.reset().and_then(|()| {
                // The first token comes from the prompt and needs no run of its own.
                let config = GenerationConfig { max_new_tokens: Some(1), ..config.clone() };
                runner.generate_tokens(prompt, &config, |_| ())
            });
            // All sessions come here, whether they failed or not.
            barrier.wait();
            fed?;
            let start = Instant::now();
            let config = GenerationConfig { max_new_tokens: Some(tokens), ..config };
            runner.generate_tokens(&[], &config, |_| ())?;
            Ok((start, Instant::now()))
        };
        let threads: Vec<_> =
            runners.iter_mut().map(|runner| scope.spawn(move || run(runner))).collect();
        let joined = threads.into_iter().map(|thread| {
            thread.join().map_err(|_| Failure::new("a session panicked"))?.map_err(Failure::from)
        });
        joined.collect::<Result<Vec<_>, Failure>>()
    })?;
    let start = times.iter().map(|(start, _)| *start).min();
    let end = times.iter().map(|(_, end)| *end).max();
    Ok(end.zip(start).map_or(Duration::MAX, |(end, start)| end - start))
}
