//! Fuzzes the parsers with the programs of `fuzz/fuzz_targets`.

use crate::process::{self, cargo_of, root, succeeds, target_dir};
use crate::tools;
use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};

/// Fuzz targets, and the extensions of their seed files.
const TARGETS: &[(&str, &[&str])] = &[
    ("load", &["pte", "bpte"]),
    ("load_and_run", &["pte", "bpte"]),
    ("compile", &["pte", "bpte"]),
    ("ptd", &["ptd"]),
    ("bpte", &["bpte"]),
    ("etdump", &["etdp"]),
    ("training", &["safetensors"]),
    ("sound", &["flac", "mp3", "wav"]),
    ("tokenizer", &["model", "bin", "tiktoken"]),
    ("template", &["jinja"]),
    ("schema", &["schema"]),
];

/// Folders with seed files.
const FOLDERS: [&str; 3] = ["tests/fixtures", "devtools/tests", "llm/tests"];

/// Maximum size of a seed file; larger ones slow the search down.
const MAX_SIZE: u64 = 20_000;

#[derive(clap::Args)]
pub(crate) struct Options {
    /// The target: load, load_and_run, compile, ptd, bpte, etdump, training, sound, tokenizer,
    /// template or schema [default: all in turn]
    target: Option<String>,
    /// Seconds per target
    #[arg(long, default_value_t = 60)]
    seconds: u64,
}

pub(crate) fn run(options: &Options) -> Result<()> {
    let chosen = |name: &str| options.target.as_ref().is_none_or(|target| target == name);
    if !TARGETS.iter().any(|(name, _)| chosen(name)) {
        let names: Vec<&str> = TARGETS.iter().map(|(name, _)| *name).collect();
        bail!("no such target; expected one of {}", names.join(", "));
    }
    tools::cpp_compiler()?;
    tools::toolchain("nightly")?;
    if !succeeds("cargo", &["fuzz", "--version"]) {
        process::run(process::cargo(&["install", "--locked", "cargo-fuzz"]))?;
    }
    for (name, endings) in TARGETS.iter().filter(|(name, _)| chosen(name)) {
        search(name, endings, options.seconds)?;
    }
    Ok(())
}

/// Runs one fuzz target. The corpus is kept for the next run.
fn search(name: &str, endings: &[&str], seconds: u64) -> Result<()> {
    let folder = target_dir().join("fuzz");
    let (corpus, seeds) = (folder.join("corpus").join(name), folder.join("seeds").join(name));
    std::fs::create_dir_all(&corpus)?;
    copy_seeds(endings, &seeds)?;
    let mut fuzz = cargo_of("nightly", &["fuzz", "run", name, "--target-dir"]);
    fuzz.arg(&folder).arg(&corpus).arg(&seeds).args(["--", "-timeout=20", "-rss_limit_mb=2048"]);
    fuzz.arg(format!("-max_total_time={seconds}")).arg(format!("-max_len={MAX_SIZE}"));
    process::run(fuzz)
}

/// Copies the seed files to one folder, as the fuzzer requires.
fn copy_seeds(endings: &[&str], seeds: &Path) -> Result<()> {
    std::fs::create_dir_all(seeds).with_context(|| seeds.display().to_string())?;
    let root = root();
    let mut folders: Vec<PathBuf> = FOLDERS.iter().map(|folder| root.join(folder)).collect();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder)? {
            let path = entry?.path();
            let ending = path.extension().and_then(|ending| ending.to_str()).unwrap_or_default();
            if path.is_dir() {
                folders.push(path);
            } else if endings.contains(&ending) && path.metadata()?.len() <= MAX_SIZE {
                let name = path.strip_prefix(&root)?.to_string_lossy().replace('/', "-");
                std::fs::copy(&path, seeds.join(name))?;
            }
        }
    }
    Ok(())
}
