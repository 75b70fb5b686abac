//! Measures models with torchlet and with ExecuTorch's own runtime, in turns, on one machine, in one run.
//!
//! ExecuTorch's runtime is the one in its Python package: its CPU kernels on the same `.pte`.

use crate::fixtures::python;
use crate::process::{self, cargo, command, output, root, target_dir};
use anyhow::{Context, Result, bail};
use serde_json::Value;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};

#[derive(clap::Args)]
pub(crate) struct Options {
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

pub(crate) fn run(options: &Options) -> Result<()> {
    let bench = root().join("tests/bench");
    let python = python(options.python.as_ref(), "bench", &bench.join("requirements.txt"))?;
    let processors = std::thread::available_parallelism().map_or(1, |count| count.get());
    let threads = options.threads.unwrap_or(processors);
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
    println!("\nMedian of one inference. {}, {processors} processors, {}", machine(), date());
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    println!("cargo xtask {}", arguments.join(" "));
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
    options: &Options,
    python: &str,
    torchlet: &Path,
    program: &Path,
    threads: usize,
) -> Result<String> {
    let mut peer = Peer::start(python, program, threads)?;
    let theirs_each = (options.iterations / 10).max(1);
    peer.measure(1)?;
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for _ in 0..options.rounds {
        ours.push(measure(torchlet, program, options.iterations, threads)?);
        theirs.extend(peer.measure(theirs_each)?);
    }
    peer.stop()?;
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
    let result: Value = serde_json::from_slice(&output(bench)?)?;
    result["median_ms"].as_f64().context("no median_ms in the result of torchlet bench")
}

/// ExecuTorch's runtime in a Python process that waits for orders.
struct Peer {
    child: Child,
    orders: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Peer {
    fn start(python: &str, program: &Path, threads: usize) -> Result<Self> {
        let script = root().join("tests/bench/executorch_runtime.py");
        let mut start = command(python, &[&script.to_string_lossy()]);
        start.arg(program).arg(threads.to_string()).env("OMP_NUM_THREADS", threads.to_string());
        let start = start.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = start.spawn()?;
        let orders = child.stdin.take().context("a pipe")?;
        let answers = BufReader::new(child.stdout.take().context("a pipe")?);
        let mut peer = Peer { child, orders, answers };
        while peer.line()?.trim() != "ready" {}
        Ok(peer)
    }

    fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        if self.answers.read_line(&mut line)? == 0 {
            bail!("ExecuTorch's runtime ended early: {}", self.child.wait()?);
        }
        Ok(line)
    }

    /// Times of so many inferences.
    fn measure(&mut self, iterations: u32) -> Result<Vec<f64>> {
        writeln!(self.orders, "{iterations}")?;
        let line = self.line()?;
        line.split_whitespace().map(|time| Ok(time.parse()?)).collect()
    }

    fn stop(self) -> Result<()> {
        let Peer { mut child, orders, .. } = self;
        drop(orders);
        child.wait()?;
        Ok(())
    }
}

fn median(times: &mut [f64]) -> f64 {
    times.sort_by(f64::total_cmp);
    times.get(times.len() / 2).copied().unwrap_or(f64::NAN)
}

/// The processor's name.
fn machine() -> String {
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name = info.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    name.map_or_else(|| std::env::consts::ARCH.to_owned(), |(_, name)| name.to_owned())
}

fn date() -> String {
    let date = output(command("date", &["+%Y-%m-%d"])).unwrap_or_default();
    String::from_utf8_lossy(&date).trim().to_owned()
}
