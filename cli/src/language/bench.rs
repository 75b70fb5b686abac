//! `torchlet bench-llm`.

mod sequences;

use super::bandwidth::bandwidth;
use super::generate::peak_memory;
use super::options::{BenchLlmArguments, LanguageOptions, TokenOptions};
use super::parts::{self, Of, Parts};
use super::runner;
use crate::failure::Failure;
use crate::terminal::{bytes, duration, progress};
use std::time::Duration;
use torchlet::llm::{GenerationConfig, Sampling, Tokenizer};

/// Measures prefill and decode speed at several prompt lengths. Needs no tokenizer; decoding is
/// greedy.
pub(crate) fn bench(arguments: &BenchLlmArguments) -> Result<(), Failure> {
    // Without a tokenizer: any tokens serve, and none ends the text.
    let language = LanguageOptions {
        program: arguments.program.clone(),
        pieces: arguments.pieces.clone(),
        tokens: TokenOptions::default(),
    };
    let mut runner = runner(&language, Tokenizer::empty())?;
    let threads = arguments.program.model_options.threads.map_or_else(
        || std::thread::available_parallelism().map_or(1, |count| count.get()),
        Into::into,
    );
    let vocabulary = runner.metadata().vocab_size.unwrap_or(256).max(2);
    let limit = runner.metadata().max_context_len;
    let config = GenerationConfig {
        max_new_tokens: Some(arguments.tokens.saturating_add(1)),
        sampling: Sampling::greedy(),
        ignore_eos: true,
        ..GenerationConfig::default()
    };
    let mut memory_rate = None;
    let mut prompts = Vec::new();
    for &length in &arguments.prompt_tokens {
        if length == 0 {
            anstream::eprintln!("skipping the empty prompt");
            continue;
        }
        if length.saturating_add(arguments.tokens) > limit {
            anstream::eprintln!(
                "skipping the prompt of {length}: {length} and {} more tokens exceed the context \
                 of {limit}",
                arguments.tokens
            );
            continue;
        }
        // Arbitrary but reproducible tokens.
        let prompt: Vec<u32> = (0..length)
            .map(|at| u32::try_from(at.wrapping_mul(7919) % vocabulary).unwrap_or(0))
            .collect();
        let bar = progress(arguments.rounds.into(), "measuring");
        let (mut prefill, mut decode) = (Duration::MAX, Duration::MAX);
        let mut generated = 0;
        for _ in 0..arguments.rounds {
            runner.reset()?;
            let stats = runner.generate_tokens(&prompt, &config, |_| ())?.stats;
            prefill = prefill.min(stats.prefill);
            decode = decode.min(stats.total.saturating_sub(stats.prefill));
            // The first token comes from the prefill and needs no run of its own.
            generated = stats.generated_tokens.saturating_sub(1);
            bar.inc(1);
        }
        bar.finish_and_clear();
        // Before the bandwidth test allocates its buffer.
        let peak = peak_memory();
        if arguments.bandwidth && memory_rate.is_none() {
            memory_rate = Some(bandwidth(threads));
        }
        let rate = |count: usize, time: Duration| count as f64 / time.as_secs_f64().max(1e-9);
        let (prompt_rate, rate) = (rate(length, prefill), rate(generated, decode));
        match arguments.json {
            true => println!(
                "{}",
                serde_json::json!({
                    "prompt_tokens": length,
                    "generated_tokens": generated,
                    "prefill_token_per_sec": prompt_rate,
                    "decode_token_per_sec": rate,
                    "prefill_ms": prefill.as_secs_f64() * 1e3,
                    "peak_bytes": peak,
                    "memory_bytes_per_sec": memory_rate,
                })
            ),
            false => anstream::println!(
                "prompt of {length:>5}: {:>10}, {prompt_rate:>9.1} tokens/s; then {generated} \
                 tokens at {rate:.1} tokens/s",
                duration(prefill)
            ),
        }
        prompts.push(prompt);
    }
    if prompts.is_empty() {
        return Err(Failure::new("nothing to measure: all prompts were skipped"));
    }
    if let (Some(prompt), false) = (prompts.first(), arguments.sequences.is_empty()) {
        // The memory of the model above is not needed any more.
        drop(runner);
        sequences::bench(arguments, &language, prompt)?;
        return Ok(());
    }
    if let Some(rate) = memory_rate.filter(|_| !arguments.json) {
        anstream::println!("{threads} threads read {:.1} GB/s from memory", rate / 1e9);
    }
    if let Some(peak) = peak_memory().filter(|_| !arguments.json) {
        anstream::println!("peak memory {}", bytes(peak));
    }
    // A separate model with a profiler, so that profiling does not affect the other measurements.
    drop(runner);
    let mut parts_of = arguments.parts.then(|| Parts::open(&language)).transpose()?;
    for prompt in &prompts {
        let Some(parts_of) = &mut parts_of else { break };
        let json = arguments.json;
        parts::print(Of::Prompt, prompt.len(), &parts_of.of_prompt(prompt)?, json);
        let of_token = parts_of.of_token(prompt, arguments.tokens)?;
        parts::print(Of::Token, prompt.len(), &of_token, json);
    }
    Ok(())
}
