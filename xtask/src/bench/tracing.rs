//! Cost of event tracing without a tracer.
//!
//! The program `inferences` is built with and without the check for a tracer (`torchlet_untraced`).
//! Valgrind counts the instructions of many inferences and of one, so that the difference covers
//! inferences only. Counts are deterministic.

use crate::process::{self, cargo, root, target_dir};
use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Programs with descriptions: one with nine operators, and one that does little else than call
/// operators.
const PROGRAMS: [(&str, &str); 2] = [
    ("tests/fixtures/digits/digits.pte", "digits classifier, 9 operators"),
    ("tests/fixtures/programs/deep_chain.bpte", "80 operators on few elements"),
];

/// Maximum relative cost for the first program.
const LIMIT: f64 = 0.01;

/// Number of inferences in the longer run.
const MANY: u64 = 101;

pub(super) fn run() -> Result<()> {
    if !process::succeeds("valgrind", &["--version"]) {
        bail!("valgrind is missing; install it, on Debian with `apt-get install valgrind`");
    }
    let (with, without) = (build("")?, build("--cfg torchlet_untraced")?);
    println!("| program | instructions of an inference | without the question | cost |");
    println!("|---|---|---|---|");
    let mut costs = Vec::new();
    for (file, what) in PROGRAMS {
        let [with, without] = [&with, &without].map(|program| instructions(program, file));
        let (with, without) = (with?, without?);
        let cost = (with as f64 - without as f64) / without as f64;
        println!("| {what} | {with} | {without} | {:.3} % |", 100.0 * cost);
        costs.push(cost);
    }
    match costs.first() {
        Some(cost) if *cost > LIMIT => {
            bail!("tracing costs more than {} % when off", 100.0 * LIMIT)
        }
        _ => Ok(()),
    }
}

/// Builds the program; each set of flags has its own folder.
fn build(flags: &str) -> Result<PathBuf> {
    let folder = target_dir().join(if flags.is_empty() { "traced" } else { "untraced" });
    let arguments = ["build", "--release", "--package", "torchlet-portable", "--example", NAME];
    let mut build = cargo(&arguments);
    build.env("CARGO_TARGET_DIR", &folder).env("RUSTFLAGS", flags);
    process::run(build)?;
    Ok(folder.join("release/examples").join(NAME))
}

const NAME: &str = "inferences";

/// Instructions per inference.
fn instructions(program: &Path, file: &str) -> Result<u64> {
    let all = |inferences: u64| {
        let mut valgrind = Command::new("valgrind");
        valgrind.args(["--tool=callgrind", "--callgrind-out-file=/dev/null"]);
        valgrind.arg(program).arg(root().join(file)).arg(inferences.to_string());
        let output = valgrind.output().context("valgrind")?;
        let said = String::from_utf8_lossy(&output.stderr);
        let counted = said.lines().find_map(|line| line.split_once("Collected :"));
        let counted = counted.and_then(|(_, count)| count.trim().parse::<u64>().ok());
        counted.with_context(|| format!("no instruction count in valgrind's output:\n{said}"))
    };
    Ok((all(MANY)? - all(1)?) / (MANY - 1))
}
