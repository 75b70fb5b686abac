//! GPU benchmarks of language models: torchlet, and PyTorch on CUDA with the same shape in
//! bfloat16, in turns.
//!
//! As with other models (`../vulkan.rs`), exported programs can be copied to another machine:
//! `xtask bench llm --gpu --programs FOLDER --torchlet FILE`, with `--python FILE` if PyTorch is
//! available there.

use super::super::kernels::rates;
use super::super::peer::{Peer, Start};
use super::super::{date, devices, json, number, processor_count, processors, this_command};
use super::{LlmOptions, Rates, export};
use crate::process::{command, root};
use anyhow::{Context, Result};
use serde_json::Value;
use std::path::Path;

/// Prompt length and number of generated tokens.
const PROMPT: usize = 512;
const TEXT: usize = 128;

/// Measurements per round; the fastest counts.
const AT_ONCE: u32 = 3;

struct Model {
    /// The script's names for the shape and the weight format.
    shape: &'static str,
    form: &'static str,
    /// Bytes of weights that a token reads: all matrices except the embedding table. (The KV cache
    /// adds at most 3 %.)
    weights: f64,
    /// Arithmetic operations per prompt token: all matrices except the last, which is computed for
    /// one position only.
    operations: f64,
}

/// Parameters of the layers of Llama 3.2 1B, and of its last matrix.
const LAYERS: f64 = 16.0 * (2048.0 * (2048.0 + 2048.0 + 2.0 * 512.0) + 3.0 * 2048.0 * 8192.0);
const LAST: f64 = 128_256.0 * 2048.0;

const MODELS: [Model; 2] = [
    // Groups of 64 weights share a 16-bit scale.
    model("vulkan_4bit", 0.5 + 2.0 / 64.0),
    model("vulkan_fp16", 2.0),
];

const fn model(form: &'static str, bytes: f64) -> Model {
    let (weights, operations) = ((LAYERS + LAST) * bytes, 2.0 * LAYERS);
    Model { shape: "llama1b", form, weights, operations }
}

/// Measurements of torchlet.
struct Measured {
    rates: Rates,
    /// Peak memory bandwidth in bytes per second, from the addition of two large tensors.
    memory: f64,
    /// Peak arithmetic rate in operations per second, from a large GEMM.
    arithmetic: f64,
    peak: Option<u64>,
}

pub(super) fn run(options: &LlmOptions, torchlet: &Path) -> Result<()> {
    let programs = options.programs.as_ref().map(std::path::absolute).transpose()?;
    let python = match (&programs, &options.python) {
        (Some(_), None) => None,
        _ => Some(options.python()?),
    };
    let mut not_here = python.is_none().then(|| "no Python with PyTorch".to_owned());
    println!(
        "| model | text, torchlet | PyTorch, CUDA graph | speedup | share of measured bandwidth \
         | prompt, torchlet | PyTorch | speedup | share of measured GEMM rate \
         | memory on the host |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|");
    for model in &MODELS {
        let name = format!("{}_{}", model.shape, model.form);
        let program = match (&programs, &python) {
            (Some(folder), _) => folder.join(format!("{name}.pte")),
            (None, python) => export(python.as_deref().context("no Python")?, &name)?,
        };
        let python = python.as_deref();
        let (measured, theirs) = compare(options, python, torchlet, &program, model, &mut not_here)
            .with_context(|| name.clone())?;
        let Measured { rates, memory, arithmetic, peak } = measured;
        let share = |of: f64, rate: f64| format!("{:.0} %", of / rate * 100.0);
        println!(
            "| {name} | {} | {} | {} | {} | {} | {} | {} | {} | {} |",
            Rates::cell(&rates.text),
            Rates::cell(&theirs.text),
            Rates::ratio(&rates.text, &theirs.text),
            share(Rates::best(&rates.text) * model.weights, memory),
            Rates::cell(&rates.prompt),
            Rates::cell(&theirs.prompt),
            Rates::ratio(&rates.prompt, &theirs.prompt),
            share(Rates::best(&rates.prompt) * model.operations, arithmetic),
            peak.map_or("–".to_owned(), |peak| format!("{:.0} MB", peak as f64 / 1e6)),
        );
    }
    println!(
        "\nTokens per second, fastest / median of {} alternating rounds, each the fastest of \
         {AT_ONCE}; a prompt of {PROMPT} tokens, then {TEXT} decoded greedily. Torchlet's weights \
         are random and repeated. PyTorch's are 16-bit in both rows; it is not compiled, and \
         decodes after a prompt of half its cache. Peak rates are those of torchlet's add and \
         matmul of large tensors in the same run.",
        options.rounds
    );
    if let Some(why) = not_here {
        println!("Not measured: PyTorch on CUDA: {why}.");
    }
    println!("{}; {}; {}\n{}", devices(torchlet), processors(), date(), this_command());
    Ok(())
}

fn compare(
    options: &LlmOptions,
    python: Option<&str>,
    torchlet: &Path,
    program: &Path,
    model: &Model,
    not_here: &mut Option<String>,
) -> Result<(Measured, Rates)> {
    let mut start = |tokens: usize| -> Result<Option<Peer>> {
        let Some(python) = python else { return Ok(None) };
        let script = root().join("tests/bench/llm_cuda.py");
        let arguments = [model.shape, &tokens.to_string()];
        match Peer::start(python, &script, &arguments, processor_count())? {
            Start::Ready(peer) => Ok(Some(peer)),
            Start::NotHere(why) => {
                *not_here = Some(why);
                Ok(None)
            }
        }
    };
    let (mut of_prompts, mut of_text) = (start(PROMPT)?, start(1)?);
    let (mut ours, mut theirs) = (Rates::default(), Rates::default());
    let mut peak: Option<u64> = None;
    for _ in 0..options.rounds {
        let found = text(torchlet, program)?;
        ours.prompt.push(number(&found, "prefill_token_per_sec")?);
        ours.text.push(number(&found, "decode_token_per_sec")?);
        peak = peak.max(found["peak_bytes"].as_u64());
        if let Some(peer) = &mut of_prompts {
            let fastest = peer.measure(AT_ONCE)?.into_iter().fold(f64::INFINITY, f64::min);
            theirs.prompt.push(PROMPT as f64 / fastest * 1e3);
        }
        if let Some(peer) = &mut of_text {
            let mut fastest = f64::INFINITY;
            for _ in 0..AT_ONCE {
                fastest = fastest.min(peer.measure(TEXT as u32)?.iter().sum());
            }
            theirs.text.push(TEXT as f64 / fastest * 1e3);
        }
    }
    let [arithmetic, memory] = device(torchlet, program)?;
    Ok((Measured { rates: ours, memory, arithmetic, peak }, theirs))
}

fn vulkan(torchlet: &Path, what: &[&str], program: &Path) -> Result<Value> {
    let mut call = command(&torchlet.to_string_lossy(), what);
    call.args(["--backend", "vulkan", "--json"]).arg(program);
    json(call)
}

/// Runs `torchlet bench-llm`.
fn text(torchlet: &Path, program: &Path) -> Result<Value> {
    let (prompt, text) = (PROMPT.to_string(), TEXT.to_string());
    let lengths = ["--prompt-tokens", &prompt, "--tokens", &text];
    let rounds = AT_ONCE.to_string();
    vulkan(torchlet, &[&["bench-llm", "--rounds", &rounds][..], &lengths].concat(), program)
}

/// Measures the device's peak rates.
fn device(torchlet: &Path, program: &Path) -> Result<[f64; 2]> {
    let what = ["profile", "--roofline", "measured", "--iterations", "1"];
    rates(&vulkan(torchlet, &what, program)?)
}
