//! On the CPU: torchlet and ExecuTorch's own runtime, which is the one in its Python package: its CPU kernels on
//! the same `.pte`.

use super::peer::{Peer, Start};
use super::{date, json, median, processor_count, processors, this_command};
use crate::fixtures::python;
use crate::process::{self, cargo, command, root, target_dir};
use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};
use std::process::Stdio;

#[derive(clap::Args)]
pub(crate) struct CpuOptions {
    /// A Python that has the packages of tests/bench/requirements.txt; else one is set up under target/
    #[arg(long, env = "TORCHLET_PYTHON")]
    python: Option<PathBuf>,
    /// torchvision's name of a model, exported with random weights; may be given several times
    #[arg(long, default_value = "mobilenet_v2")]
    model: Vec<String>,
    /// Programs of your own (.pte), with inputs that are float32
    files: Vec<PathBuf>,
    /// How often the two take turns
    #[arg(long, default_value_t = 5)]
    rounds: u32,
    /// Inferences of torchlet in a turn; ExecuTorch gets a tenth, at least one
    #[arg(long, default_value_t = 20)]
    iterations: u32,
    /// Threads that both may use [default: one per processor]
    #[arg(long)]
    threads: Option<usize>,
}

pub(crate) fn run(options: &CpuOptions) -> Result<()> {
    let bench = root().join("tests/bench");
    let python = python(options.python.as_ref(), "bench", &bench.join("requirements.txt"))?;
    let threads = options.threads.unwrap_or_else(processor_count);
    process::run(cargo(&["build", "--quiet", "--release", "--package", "torchlet-cli"]))?;
    let torchlet = target_dir().join("release/torchlet");
    let mut programs = options.files.clone();
    if programs.is_empty() {
        programs = export(&python, &options.model)?;
    }
    let mut rows = Vec::new();
    for program in &programs {
        rows.push(compare(options, &python, &torchlet, program, threads)?);
    }
    println!("\n| model | torchlet | ExecuTorch CPU kernels | ratio | threads |");
    println!("|---|---|---|---|---|");
    for row in &rows {
        println!("{row}");
    }
    println!("\nMedian of one inference. {}, {}\n{}", processors(), date(), this_command());
    Ok(())
}

/// The models as programs, exported on first use.
fn export(python: &str, models: &[String]) -> Result<Vec<PathBuf>> {
    let folder = target_dir().join("bench");
    std::fs::create_dir_all(&folder)?;
    let file = |name: &String| folder.join(format!("{name}.pte"));
    let missing: Vec<&String> = models.iter().filter(|name| !file(name).is_file()).collect();
    if !missing.is_empty() {
        let script = root().join("tests/bench/export.py");
        let mut export = command(python, &[&script.to_string_lossy()]);
        export.arg(&folder).args(missing).stderr(Stdio::null());
        process::run(export)?;
    }
    Ok(models.iter().map(file).collect())
}

/// Lets both run in turns; gives a row of the table.
fn compare(
    options: &CpuOptions,
    python: &str,
    torchlet: &Path,
    program: &Path,
    threads: usize,
) -> Result<String> {
    let script = root().join("tests/bench/executorch_runtime.py");
    let arguments = [&*program.to_string_lossy(), &threads.to_string()];
    let mut peer = match Peer::start(python, &script, &arguments, threads)? {
        Start::Ready(peer) => peer,
        Start::NotHere(why) => bail!("ExecuTorch's runtime is not here: {why}"),
    };
    let theirs_each = (options.iterations / 10).max(1);
    peer.measure(1)?;
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for _ in 0..options.rounds {
        ours.push(measure(torchlet, program, options.iterations, threads)?);
        theirs.extend(peer.measure(theirs_each)?);
    }
    drop(peer);
    let (ours, theirs) = (median(&mut ours), median(&mut theirs));
    let name = program.file_stem().unwrap_or_default().to_string_lossy();
    let ratio = theirs / ours;
    Ok(format!("| {name} | {ours:.2} ms | {theirs:.2} ms | {ratio:.1} times as fast | {threads} |"))
}

/// The median of torchlet's times in one run of the command.
fn measure(torchlet: &Path, program: &Path, iterations: u32, threads: usize) -> Result<f64> {
    let mut bench = command(&torchlet.to_string_lossy(), &["bench", "--json", "--random", "1"]);
    bench.arg("--iterations").arg(iterations.to_string()).arg("--threads").arg(threads.to_string());
    bench.arg(program);
    json(bench)?["median_ms"].as_f64().context("no median_ms in the result of torchlet bench")
}
