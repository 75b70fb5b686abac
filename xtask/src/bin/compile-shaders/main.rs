//! Compiles the GLSL sources in `shaders/glsl` to the SPIR-V modules in `shaders/spv`, for
//! `cargo xtask shaders`.
//!
//! A separate program behind the feature `shaders`, because it links a C++ compiler for GLSL that
//! needs minutes to build.

mod compile;
#[path = "../../../../shaders/src/instructions.rs"]
mod instructions;
mod modules;
mod names;
mod unused;

use anyhow::{Context, Result, bail};
use clap::Parser;
use modules::Module;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Compiles the compute shaders.
#[derive(Parser)]
struct Options {
    /// Compare with the existing modules instead of writing them
    #[arg(long)]
    check: bool,
    /// The folder with `glsl` and `spv`
    #[arg(long, default_value = "shaders")]
    folder: PathBuf,
    /// Sources or modules to compile, without extension [default: all]
    names: Vec<String>,
}

fn main() -> ExitCode {
    match run(&Options::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(options: &Options) -> Result<()> {
    let (sources, built) = (options.folder.join("glsl"), options.folder.join("spv"));
    let all = modules::all(&sources)?;
    let chosen = choose(&all, &options.names)?;
    let (mut faults, mut changed) = (Vec::new(), 0);
    for module in &chosen {
        let file = built.join(format!("{}.spv", module.name));
        match compile::compile(module, &sources) {
            Err(error) => faults.push(format!("{error:#}")),
            Ok(spirv) if std::fs::read(&file).is_ok_and(|old| old == spirv) => {}
            Ok(_) if options.check => {
                faults.push(format!("{} is not up to date with its source", file.display()));
            }
            Ok(spirv) => {
                std::fs::write(&file, &spirv)
                    .with_context(|| format!("cannot write {}", file.display()))?;
                println!("{}: {} bytes", file.display(), spirv.len());
                changed += 1;
            }
        }
    }
    for orphan in orphans(&all, &built)? {
        if options.check {
            faults.push(format!("{} has no source", orphan.display()));
        } else {
            std::fs::remove_file(&orphan)?;
            println!("{}: removed, because it has no source", orphan.display());
        }
    }
    if !faults.is_empty() {
        let advice = if options.check { "\n`cargo xtask shaders` compiles them" } else { "" };
        bail!("{}{advice}", faults.join("\n"));
    }
    let result =
        if options.check { "as checked in".to_owned() } else { format!("{changed} changed") };
    println!("{} shader modules, {result}", chosen.len());
    Ok(())
}

/// Selects modules by their names or those of their sources.
fn choose<'a>(all: &'a [Module], names: &[String]) -> Result<Vec<&'a Module>> {
    let is = |module: &Module, name: &String| module.name == *name || module.source_name() == name;
    for name in names {
        if !all.iter().any(|module| is(module, name)) {
            bail!("no shader {name}");
        }
    }
    let named = |module: &&Module| names.is_empty() || names.iter().any(|name| is(module, name));
    Ok(all.iter().filter(named).collect())
}

/// Files in the output folder without a source.
fn orphans(all: &[Module], built: &Path) -> Result<Vec<PathBuf>> {
    let known: BTreeSet<String> = all.iter().map(|module| format!("{}.spv", module.name)).collect();
    let mut orphans = Vec::new();
    for entry in
        std::fs::read_dir(built).with_context(|| format!("cannot read {}", built.display()))?
    {
        let entry = entry?;
        if !entry.file_name().to_str().is_some_and(|name| known.contains(name)) {
            orphans.push(entry.path());
        }
    }
    orphans.sort();
    Ok(orphans)
}
