//! CPU benchmarks of language models: torchlet and ExecuTorch's runtime on the same files, in
//! turns. For GPUs, see `gpu.rs`.

mod gpu;
mod sequences;

use super::peer::{Peer, Start};
use super::{date, json, median, number, processor_count, processors, this_command, torchlet};
use crate::fixtures::python;
use crate::process::{self, command, root, target_dir};
use anyhow::{Context, Result, bail};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Stdio;

/// Prompt length and number of generated tokens.
const PROMPT: usize = 64;
const TEXT: usize = 64;

#[derive(clap::Args)]
pub(crate) struct LlmOptions {
    /// Python with the packages of tests/bench/requirements.txt [default: a virtual environment
    /// under target/]
    #[arg(long, env = "TORCHLET_PYTHON")]
    python: Option<PathBuf>,
    /// Number of rounds in which the runtimes take turns
    #[arg(long, default_value_t = 5)]
    rounds: u32,
    /// Threads per runtime [default: one per processor]
    #[arg(long)]
    threads: Option<usize>,
    /// Also measure a model that exceeds the caches: 150 million parameters, exported on first use
    #[arg(long)]
    wide: bool,
    /// Measure a model of Llama 3.2 1B's shape on a GPU instead, against PyTorch on CUDA
    #[arg(long, conflicts_with_all = ["wide", "threads"])]
    gpu: bool,
    /// Measure these numbers of sessions that share runs instead, without a peer
    #[arg(long, value_name = "N", value_delimiter = ',', conflicts_with = "gpu")]
    sequences: Vec<u16>,
    /// A program for --sequences [default: the models above]
    #[arg(long, value_name = "FILE", requires = "sequences")]
    program: Option<PathBuf>,
    /// Programs for GPUs from tests/bench/llm.py [default: export them first]
    #[arg(long, value_name = "FOLDER", requires = "gpu")]
    programs: Option<PathBuf>,
    /// A built torchlet [default: build one]
    #[arg(long, value_name = "FILE")]
    torchlet: Option<PathBuf>,
}

impl LlmOptions {
    /// The Python that exports, and that runs the peer.
    fn python(&self) -> Result<String> {
        let requirements = root().join("tests/bench/requirements.txt");
        python(self.python.as_ref(), "bench", &requirements)
    }
}

/// A model, and the size of its embedding table in bytes, of which a token reads one row.
const MODELS: [(&str, u64); 2] =
    [("stories15m_fp32", 32_000 * 288 * 4), ("stories15m_8da4w", 32_000 * 288 * 4)];
const WIDE: [(&str, u64); 2] = [("wide_fp32", 4096 * 1536 * 4), ("wide_8da4w", 4096 * 1536 * 4)];

/// Tokens per second, by round.
#[derive(Clone, Default)]
struct Rates {
    prompt: Vec<f64>,
    text: Vec<f64>,
}

impl Rates {
    fn cell(rates: &[f64]) -> String {
        if rates.is_empty() {
            return "–".to_owned();
        }
        format!("{:.0} / {:.0}", Self::best(rates), median(&mut rates.to_vec()))
    }

    fn best(rates: &[f64]) -> f64 {
        rates.iter().copied().fold(0.0, f64::max)
    }

    fn ratio(ours: &[f64], theirs: &[f64]) -> String {
        if theirs.is_empty() {
            return "–".to_owned();
        }
        format!("{:.2}", Self::best(ours) / Self::best(theirs))
    }
}

pub(crate) fn run(options: &LlmOptions) -> Result<()> {
    let torchlet = torchlet(options.torchlet.as_ref())?;
    if options.gpu {
        return gpu::run(options, &torchlet);
    }
    if !options.sequences.is_empty() {
        return sequences::run(options, &torchlet);
    }
    let python = options.python()?;
    let threads = options.threads.unwrap_or_else(processor_count);
    let mut rows = Vec::new();
    let mut bandwidth = 0.0;
    let wide = if options.wide { &WIDE[..] } else { &[] };
    for (name, embeddings) in MODELS.iter().chain(wide) {
        let program = export(&python, name)?;
        rows.push(compare(
            options,
            &python,
            &torchlet,
            &program,
            threads,
            *embeddings,
            &mut bandwidth,
        )?);
    }
    println!(
        "\n| model | text, torchlet | ExecuTorch | speedup | share of bandwidth \
         | prompt, torchlet | ExecuTorch | speedup | peak memory, torchlet |"
    );
    println!("|---|---|---|---|---|---|---|---|---|");
    for row in &rows {
        println!("{row}");
    }
    println!(
        "\nTokens per second, fastest / median of {} alternating rounds; a prompt of {PROMPT} \
         tokens, then {TEXT} decoded; {threads} threads, {:.1} GB/s memory bandwidth, which \
         weights in caches can exceed. {}, {}\n{}",
        options.rounds,
        bandwidth / 1e9,
        processors(),
        date(),
        this_command()
    );
    Ok(())
}

/// Exports the program of a model on first use.
fn export(python: &str, name: &str) -> Result<PathBuf> {
    let folder = target_dir().join("bench");
    std::fs::create_dir_all(&folder)?;
    let file = folder.join(format!("{name}.pte"));
    if !file.is_file() {
        println!("exporting {name}");
        let script = root().join("tests/bench/llm.py");
        let mut export = command(python, &[&script.to_string_lossy(), "export"]);
        export.arg(&folder).arg(name).stdout(Stdio::null()).stderr(Stdio::null());
        process::run(export).with_context(|| format!("cannot export {name}"))?;
    }
    Ok(file)
}

/// Runs both in turns; returns a row of the table.
fn compare(
    options: &LlmOptions,
    python: &str,
    torchlet: &Path,
    program: &Path,
    threads: usize,
    embeddings: u64,
    bandwidth: &mut f64,
) -> Result<String> {
    let start = |tokens: usize| -> Result<Peer> {
        let script = root().join("tests/bench/llm.py");
        let (threads_text, tokens) = (threads.to_string(), tokens.to_string());
        let arguments = ["serve", &program.to_string_lossy(), &threads_text, &tokens];
        match Peer::start(python, &script, &arguments, threads)? {
            Start::Ready(peer) => Ok(peer),
            Start::NotHere(why) => bail!("ExecuTorch's runtime is not available: {why}"),
        }
    };
    let (mut of_prompts, mut of_text) = (start(PROMPT)?, start(1)?);
    let (mut ours, mut theirs, mut peak) = (Rates::default(), Rates::default(), 0u64);
    for _ in 0..options.rounds {
        let found = measure(torchlet, program, threads)?;
        ours.prompt.push(number(&found, "prefill_token_per_sec")?);
        ours.text.push(number(&found, "decode_token_per_sec")?);
        *bandwidth = bandwidth.max(number(&found, "memory_bytes_per_sec")?);
        peak = peak.max(found["peak_bytes"].as_u64().unwrap_or(0));
        let fastest = of_prompts.measure(3)?.into_iter().fold(f64::INFINITY, f64::min);
        theirs.prompt.push(PROMPT as f64 / fastest * 1e3);
        let times = of_text.measure(TEXT as u32)?;
        theirs.text.push(times.len() as f64 / times.iter().sum::<f64>() * 1e3);
    }
    let weights = std::fs::metadata(program)?.len().saturating_sub(embeddings);
    let share = Rates::best(&ours.text) * weights as f64 / *bandwidth;
    let name = program.file_stem().unwrap_or_default().to_string_lossy();
    Ok(format!(
        "| {name} | {} | {} | {} | {:.0} % of {:.0} MB | {} | {} | {} | {:.0} MB |",
        Rates::cell(&ours.text),
        Rates::cell(&theirs.text),
        Rates::ratio(&ours.text, &theirs.text),
        share * 100.0,
        weights as f64 / 1e6,
        Rates::cell(&ours.prompt),
        Rates::cell(&theirs.prompt),
        Rates::ratio(&ours.prompt, &theirs.prompt),
        peak as f64 / 1e6,
    ))
}

/// Runs `torchlet bench-llm`.
fn measure(torchlet: &Path, program: &Path, threads: usize) -> Result<Value> {
    let mut bench = command(
        &torchlet.to_string_lossy(),
        &["bench-llm", "--json", "--bandwidth", "--rounds", "3"],
    );
    bench.args(["--backend", "cpu", "--compile-cache", "off"]);
    bench.args(["--prompt-tokens", &PROMPT.to_string(), "--tokens", &TEXT.to_string()]);
    bench.args(["--threads", &threads.to_string()]).arg(program);
    json(bench)
}
