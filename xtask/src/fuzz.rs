//! Fuzzes the parsers with the programs of `fuzz/fuzz_targets`.

use crate::process::{self, cargo_of, root, succeeds, target_dir};
use crate::tools;
use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};

/// Fuzz targets, and the extensions of their seed files, as in `fuzz/src/targets.rs`.
const TARGETS: &[(&str, &[&str])] = &[
    ("load", &["pte", "bpte"]),
    ("load_and_run", &["pte", "bpte"]),
    ("compile", &["pte", "bpte"]),
    ("control_flow", &[]),
    ("ptd", &["ptd"]),
    ("bpte", &["bpte"]),
    ("pt2", &["pt2"]),
    ("vgf", &["vgf", "tosa"]),
    ("etdump", &["etdp"]),
    ("training", &["safetensors"]),
    ("sound", &["flac", "mp3", "wav"]),
    ("tokenizer", &["model", "bin", "tiktoken"]),
    ("template", &["jinja"]),
    ("schema", &["schema"]),
];

/// Folders with seed files.
const FOLDERS: [&str; 3] = ["tests/fixtures", "devtools/tests", "llm/tests"];

/// First bytes of a VGF file. Fixtures of Arm's ML SDK are programs with such a file in a delegate.
const VGF_MAGIC: &[u8] = b"VGF1";

/// Maximum size of a seed file; larger ones slow the search down.
const MAX_SIZE: u64 = 20_000;

#[derive(clap::Args)]
pub(crate) struct Options {
    /// The target: load, load_and_run, compile, control_flow, ptd, bpte, pt2, vgf, etdump,
    /// training, sound, tokenizer, template or schema [default: all in turn]
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
            } else if endings.contains(&"vgf") && ending == "bpte" {
                let bytes = std::fs::read(&path)?;
                let start = bytes.windows(VGF_MAGIC.len()).position(|part| part == VGF_MAGIC);
                let file = start.map(|start| &bytes[start..]);
                if let Some(file) = file.filter(|file| file.len() as u64 <= MAX_SIZE) {
                    let name = path.strip_prefix(&root)?.with_extension("vgf");
                    let name = name.to_string_lossy().replace('/', "-");
                    std::fs::write(seeds.join(name), file)?;
                }
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::{Args, Command};

    #[test]
    fn targets_equal_those_of_the_fuzz_crate() {
        let folder = root().join("fuzz");
        let source = std::fs::read_to_string(folder.join("src/targets.rs")).unwrap();
        let rows = source.lines().filter_map(|line| {
            let (name, rest) = line.trim().strip_prefix("Target { name: \"")?.split_once('"')?;
            let endings = rest.split_once("endings: &[")?.1.split_once(']')?.0;
            Some((name, endings.split('"').skip(1).step_by(2).collect::<Vec<_>>()))
        });
        let own = TARGETS.iter().map(|(name, endings)| (*name, endings.to_vec()));
        assert_eq!(own.collect::<Vec<_>>(), rows.collect::<Vec<_>>());

        let manifest = std::fs::read_to_string(folder.join("Cargo.toml")).unwrap();
        let manifest: toml::Table = manifest.parse().unwrap();
        let binaries = manifest["bin"].as_array().unwrap().iter();
        let mut binaries: Vec<_> = binaries.map(|bin| bin["name"].as_str().unwrap()).collect();
        binaries.sort_unstable();
        let mut names: Vec<_> = TARGETS.iter().map(|(name, _)| *name).collect();
        names.sort_unstable();
        assert_eq!(names, binaries);

        let help = Options::augment_args(Command::new("fuzz")).render_long_help().to_string();
        let words: Vec<_> =
            help.split(|letter: char| letter != '_' && !letter.is_alphanumeric()).collect();
        assert!(names.iter().all(|name| words.contains(name)), "{help}");
    }

    /// The fuzzer accepts an empty folder, but not a missing one.
    #[test]
    fn seeds_are_copied_and_vgf_files_cut_out() {
        let folder = std::env::temp_dir().join(format!("torchlet-seeds-{}", std::process::id()));
        for (name, endings) in TARGETS {
            let seeds = folder.join(name);
            copy_seeds(endings, &seeds).unwrap();
            let files = std::fs::read_dir(&seeds).unwrap().map(|file| file.unwrap().path());
            let files: Vec<_> = files.collect();
            assert_eq!(files.is_empty(), endings.is_empty(), "{name}");
            if *name == "vgf" {
                let starts = |path| std::fs::read(path).unwrap().starts_with(VGF_MAGIC);
                assert!(files.iter().all(starts));
            }
        }
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
