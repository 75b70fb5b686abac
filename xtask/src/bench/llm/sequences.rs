//! Throughput of several sessions that share runs.

use super::{LlmOptions, MODELS, PROMPT, Rates, TEXT, WIDE, export};
use crate::bench::{date, number, processor_count, processors, this_command};
use crate::process::{self, command};
use anyhow::{Result, anyhow};
use serde_json::Value;
use std::path::Path;

pub(super) fn run(options: &LlmOptions, torchlet: &Path) -> Result<()> {
    let threads = options.threads.unwrap_or_else(processor_count);
    let programs = match &options.program {
        Some(program) => vec![program.clone()],
        None => {
            let python = options.python()?;
            let wide = if options.wide { &WIDE[..] } else { &[] };
            let models = MODELS.iter().chain(wide);
            models.map(|(name, _)| export(&python, name)).collect::<Result<_>>()?
        }
    };
    println!("| model | one session, as exported | sessions | tokens/s in all | of each | gain |");
    println!("|---|---|---|---|---|---|");
    for program in &programs {
        let mut plain = Rates::default();
        let mut shared = vec![Rates::default(); options.sequences.len()];
        for _ in 0..options.rounds {
            for (count, rates) in options.sequences.iter().zip(&mut shared) {
                // The program as exported, then with sessions that share runs.
                let [alone, together] = measure(torchlet, program, threads, *count)?;
                plain.text.push(number(&alone, "decode_token_per_sec")?);
                rates.text.push(number(&together, "decode_token_per_sec")?);
            }
        }
        let name = program.file_stem().unwrap_or_default().to_string_lossy();
        for (count, rates) in options.sequences.iter().zip(&shared) {
            println!(
                "| {name} | {} | {count} | {} | {:.1} | {} |",
                Rates::cell(&plain.text),
                Rates::cell(&rates.text),
                Rates::best(&rates.text) / f64::from(*count),
                Rates::ratio(&rates.text, &plain.text),
            );
        }
    }
    println!(
        "\nDecoded tokens per second, fastest / median of {} rounds; prompts of {PROMPT} tokens, \
         then {TEXT} decoded; {threads} threads. {}, {}\n{}",
        options.rounds,
        processors(),
        date(),
        this_command()
    );
    Ok(())
}

/// Runs `torchlet bench-llm`, and returns its two lines.
fn measure(torchlet: &Path, program: &Path, threads: usize, sequences: u16) -> Result<[Value; 2]> {
    let mut bench = command(&torchlet.to_string_lossy(), &["bench-llm", "--json", "--rounds", "3"]);
    bench.args(["--backend", "cpu", "--compile-cache", "off"]);
    bench.args(["--prompt-tokens", &PROMPT.to_string(), "--tokens", &TEXT.to_string()]);
    bench.args(["--sequences", &sequences.to_string()]);
    bench.args(["--threads", &threads.to_string()]).arg(program);
    let written = process::output(bench)?;
    let lines = written.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    let lines: Vec<Value> = lines.map(serde_json::from_slice).collect::<Result<_, _>>()?;
    let found = lines.len();
    let lines = <[Value; 2]>::try_from(lines);
    lines.map_err(|_| anyhow!("torchlet bench-llm: expected 2 lines, found {found}"))
}
