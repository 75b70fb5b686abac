//! Benchmarks of torchlet and its peers, in turns on one machine in one run.

mod cpu;
mod kernels;
mod layers;
mod llm;
mod peer;
mod tracing;
mod vulkan;

use crate::process::{self, command, output, target_dir};
use anyhow::{Context, Result};
use clap::Subcommand;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Without a subcommand: on the CPU.
#[derive(clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Options {
    #[command(subcommand)]
    what: Option<What>,
    #[command(flatten)]
    cpu: cpu::CpuOptions,
}

#[derive(Subcommand)]
enum What {
    /// Benchmark models lowered for Vulkan: inference, loading and GPU time, against other runtimes
    Vulkan(vulkan::VulkanOptions),
    /// Benchmark operators on a GPU with typical shapes, against the device's peak rates and
    /// PyTorch on CUDA
    Kernels(kernels::KernelOptions),
    /// Measure the cost of disabled event tracing, in instructions per inference
    Tracing,
    /// Benchmark language models on the CPU against ExecuTorch's runtime: text, prompts, memory,
    /// share of the bandwidth; with --gpu on a GPU against PyTorch on CUDA
    Llm(llm::LlmOptions),
    /// Count the instructions of 8-bit layers on emulated Cortex-M, against CMSIS-NN
    Layers(LayerOptions),
    /// Count the instructions of operators on the boards of boards/. (`cargo xtask board` compares
    /// the results.)
    Boards {
        /// The boards [default: all that run models]
        boards: Vec<String>,
        /// Write the counts into boards/README.md
        #[arg(long)]
        overwrite: bool,
    },
}

pub(crate) use layers::{LayerOptions, run as layers};

pub(crate) fn run(options: &Options) -> Result<()> {
    match &options.what {
        None => cpu::run(&options.cpu),
        Some(What::Vulkan(options)) => vulkan::run(options),
        Some(What::Kernels(options)) => kernels::run(options),
        Some(What::Tracing) => tracing::run(),
        Some(What::Llm(options)) => llm::run(options),
        Some(What::Layers(options)) => layers(options),
        Some(What::Boards { boards, overwrite }) => crate::board::bench(boards, *overwrite),
    }
}

/// Runs a torchlet command and parses its JSON output.
fn json(command: Command) -> Result<Value> {
    Ok(serde_json::from_slice(&output(command)?)?)
}

/// Returns a folder under target/ with a file of each name. The script is called with the folder
/// and the missing names.
fn exported(
    folder: &str,
    names: impl Iterator<Item = String>,
    extension: &str,
    mut script: Command,
) -> Result<PathBuf> {
    let folder = target_dir().join(folder);
    std::fs::create_dir_all(&folder)?;
    let missing: Vec<String> =
        names.filter(|name| !folder.join(format!("{name}.{extension}")).is_file()).collect();
    if !missing.is_empty() {
        script.arg(&folder).args(missing).stdout(Stdio::null()).stderr(Stdio::null());
        process::run(script)?;
    }
    Ok(folder)
}

fn median(times: &mut [f64]) -> f64 {
    times.sort_by(f64::total_cmp);
    times.get(times.len() / 2).copied().unwrap_or(f64::NAN)
}

/// Name and number of the processors.
fn processors() -> String {
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name = info.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    let name = name.map_or(std::env::consts::ARCH, |(_, name)| name);
    format!("{name}, {} processors", processor_count())
}

fn processor_count() -> usize {
    std::thread::available_parallelism().map_or(1, |count| count.get())
}

fn date() -> String {
    let date = output(command("date", &["+%Y-%m-%d"])).unwrap_or_default();
    String::from_utf8_lossy(&date).trim().to_owned()
}

/// Reads a numeric field of a torchlet command's output.
fn number(found: &Value, key: &str) -> Result<f64> {
    found[key].as_f64().with_context(|| format!("torchlet's output has no {key}: {found}"))
}

/// Returns the given torchlet, or builds one.
fn torchlet(given: Option<&PathBuf>) -> Result<PathBuf> {
    match given {
        Some(given) => Ok(std::path::absolute(given)?),
        None => process::torchlet(),
    }
}

/// The GPUs that torchlet lists.
fn devices(torchlet: &Path) -> String {
    let listed = process::output(command(&torchlet.to_string_lossy(), &["devices"]));
    let listed = String::from_utf8_lossy(&listed.unwrap_or_default()).into_owned();
    let vulkan = listed.lines().filter_map(|line| line.strip_prefix("vulkan"));
    vulkan.map(str::trim).collect::<Vec<_>>().join("; ")
}

/// The command line, for the caption of a table.
fn this_command() -> String {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    format!("cargo xtask {}", arguments.join(" "))
}
