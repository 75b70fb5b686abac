//! CPU benchmarks of torchlet, compiled and as exported, against the ExecuTorch runtime of its
//! Python package: its CPU kernels on the same `.pte`, and XNNPACK on a `.pte` lowered for it.
//! Named models are also compared with ONNX Runtime and ncnn.

use super::peer::{Peer, Start};
use super::{date, json, median, processor_count, processors, this_command};
use crate::fixtures::python;
use crate::process::{self, command, root, target_dir};
use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};
use std::process::Stdio;

#[derive(clap::Args)]
pub(crate) struct CpuOptions {
    /// Python with the packages of tests/bench/requirements.txt [default: a virtual environment
    /// under target/]
    #[arg(long, env = "TORCHLET_PYTHON")]
    python: Option<PathBuf>,
    /// torchvision model to export with random weights (repeatable)
    #[arg(long, default_values = ["mobilenet_v2", "resnet50", "vit_b_16"])]
    model: Vec<String>,
    /// Other programs (.pte) with float32 inputs
    files: Vec<PathBuf>,
    /// Number of rounds in which the runtimes take turns
    #[arg(long, default_value_t = 5)]
    rounds: u32,
    /// Inferences per round; programs as exported and ExecuTorch's kernels get a tenth, at least
    /// one
    #[arg(long, default_value_t = 20)]
    iterations: u32,
    /// Threads per runtime [default: one per processor]
    #[arg(long)]
    threads: Option<usize>,
}

pub(crate) fn run(options: &CpuOptions) -> Result<()> {
    let bench = root().join("tests/bench");
    let python = python(options.python.as_ref(), "bench", &bench.join("requirements.txt"))?;
    let threads = options.threads.unwrap_or_else(processor_count);
    let torchlet = process::torchlet()?;
    let mut programs = options.files.clone();
    if programs.is_empty() {
        programs = export(&python, &options.model)?;
    }
    let runtimes = RUNTIMES.map(|(_, title)| title).join(" | ");
    println!(
        "\n| model | torchlet | ratio to XNNPACK | XNNPACK | {runtimes} | as exported | ExecuTorch CPU kernels | threads |"
    );
    println!("|---|---|---|---|---|---|---|---|---|");
    // Rows are printed at once: ExecuTorch's own kernels need minutes per inference of a large
    // model.
    for program in &programs {
        println!("{}", compare(options, &python, &torchlet, program, threads)?);
    }
    println!(
        "\nOne inference in ms: fastest / median. {}, {}\n{}",
        processors(),
        date(),
        this_command()
    );
    Ok(())
}

/// Exports the models on first use.
fn export(python: &str, models: &[String]) -> Result<Vec<PathBuf>> {
    let folder = target_dir().join("bench");
    std::fs::create_dir_all(&folder)?;
    let file = |name: &String| folder.join(format!("{name}.pte"));
    let is_missing = |name: &&String| !file(name).is_file() || !for_xnnpack(&file(name)).is_file();
    let missing: Vec<&String> = models.iter().filter(is_missing).collect();
    if !missing.is_empty() {
        let script = root().join("tests/bench/export.py");
        let mut export = command(python, &[&script.to_string_lossy()]);
        export.arg(&folder).args(missing).stderr(Stdio::null());
        process::run(export)?;
    }
    Ok(models.iter().map(file).collect())
}

/// The path of the program lowered for XNNPACK.
fn for_xnnpack(program: &Path) -> PathBuf {
    program.with_extension("xnnpack.pte")
}

/// Starts ExecuTorch's runtime on a program.
fn start(python: &str, program: &Path, threads: usize) -> Result<Peer> {
    let script = root().join("tests/bench/executorch_runtime.py");
    let arguments = [&*program.to_string_lossy(), &threads.to_string()];
    match Peer::start(python, &script, &arguments, threads)? {
        Start::Ready(mut peer) => {
            peer.measure(1)?;
            Ok(peer)
        }
        Start::NotHere(why) => bail!("ExecuTorch's runtime is not available: {why}"),
    }
}

/// Names of runtimes in tests/bench/cpu_peers.py, and their titles.
const RUNTIMES: [(&str, &str); 2] = [("onnxruntime", "ONNX Runtime"), ("ncnn", "ncnn")];

/// Starts the other runtimes on a named model.
fn start_others(python: &str, name: &str, threads: usize) -> Result<[Option<Peer>; 2]> {
    let script = root().join("tests/bench/cpu_peers.py");
    let mut peers = [None, None];
    for ((runtime, title), slot) in RUNTIMES.iter().zip(&mut peers) {
        match Peer::start(python, &script, &[runtime, name, &threads.to_string()], threads) {
            Ok(Start::Ready(mut peer)) => {
                peer.measure(1)?;
                *slot = Some(peer);
            }
            Ok(Start::NotHere(why)) => eprintln!("{title} is not available: {why}"),
            Err(error) => eprintln!("{title} cannot run {name}: {error}"),
        }
    }
    Ok(peers)
}

/// Runs all runtimes in turns; returns a row of the table.
fn compare(
    options: &CpuOptions,
    python: &str,
    torchlet: &Path,
    program: &Path,
    threads: usize,
) -> Result<String> {
    let mut kernels = start(python, program, threads)?;
    let lowered = for_xnnpack(program);
    let mut xnnpack = match lowered.is_file() {
        true => Some(start(python, &lowered, threads)?),
        false => None,
    };
    let name = program.file_stem().unwrap_or_default().to_string_lossy();
    let mut others = match options.files.is_empty() {
        true => start_others(python, &name, threads)?,
        false => [None, None],
    };
    let few = (options.iterations / 10).max(1);
    let mut times = [const { Vec::new() }; 6];
    let [ours, theirs, onnx, ncnn, as_exported, slow] = &mut times;
    for _ in 0..options.rounds {
        ours.push(measure(torchlet, program, options.iterations, threads, "cpu")?);
        if let Some(peer) = &mut xnnpack {
            theirs.push(of(peer.measure(options.iterations)?));
        }
        for (peer, times) in others.iter_mut().zip([&mut *onnx, &mut *ncnn]) {
            if let Some(peer) = peer {
                times.push(of(peer.measure(options.iterations)?));
            }
        }
        as_exported.push(measure(torchlet, program, few, threads, "as-exported")?);
        slow.push(of(kernels.measure(few)?));
    }
    let all = times.map(|rounds| match rounds.is_empty() {
        true => None,
        false => {
            let (fastest, mut medians): (Vec<f64>, Vec<f64>) = rounds.into_iter().unzip();
            Some((fastest.into_iter().fold(f64::INFINITY, f64::min), median(&mut medians)))
        }
    });
    let none = || "-".to_owned();
    let cells = all.map(|times| {
        times.map_or_else(none, |(fastest, median)| format!("{fastest:.1} / {median:.1}"))
    });
    let ratio = match (all[0], all[1]) {
        (Some(ours), Some(theirs)) => {
            format!("{:.2} / {:.2}", ours.0 / theirs.0, ours.1 / theirs.1)
        }
        _ => none(),
    };
    let [ours, rest @ ..] = cells;
    Ok(format!("| {name} | {ours} | {ratio} | {} | {threads} |", rest.join(" | ")))
}

/// Returns the fastest time and the median.
fn of(mut times: Vec<f64>) -> (f64, f64) {
    let fastest = times.iter().copied().fold(f64::INFINITY, f64::min);
    (fastest, median(&mut times))
}

/// Returns torchlet's fastest time and median in one run of the command.
fn measure(
    torchlet: &Path,
    program: &Path,
    iterations: u32,
    threads: usize,
    backend: &str,
) -> Result<(f64, f64)> {
    let mut bench = command(&torchlet.to_string_lossy(), &["bench", "--json", "--random", "1"]);
    bench.args(["--compile-cache", "off", "--backend", backend]);
    bench.arg("--iterations").arg(iterations.to_string()).arg("--threads").arg(threads.to_string());
    bench.arg(program);
    let result = json(bench)?;
    let time = |key: &str| {
        result[key].as_f64().with_context(|| format!("no {key} in the result of torchlet bench"))
    };
    Ok((time("min_ms")?, time("median_ms")?))
}
