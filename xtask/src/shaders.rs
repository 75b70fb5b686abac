//! Compiles the compute shaders, and checks the compiled modules in the repository.

use crate::process::{self, EVERYTHING, cargo, command, root, target_dir};
use crate::tools;
use anyhow::{Context, Result, bail, ensure};
use std::path::{Path, PathBuf};

#[derive(clap::Args, Default)]
pub(crate) struct Options {
    /// Compare with the modules in the repository instead of writing them, and validate all
    /// modules, including derived ones, with spirv-val
    #[arg(long)]
    check: bool,
    /// Sources in shaders/glsl or their modules, without extension [default: all]
    names: Vec<String>,
}

pub(crate) fn run(options: &Options) -> Result<()> {
    tools::cpp_compiler()?;
    compile(options)?;
    if options.check
        && let Some(why) = validate()?
    {
        println!("NOT RUN: {why}");
    }
    Ok(())
}

/// Checks all modules in the repository. Returns the reason if validation was skipped.
pub(crate) fn check() -> Result<Option<String>> {
    if let Err(error) = tools::cpp_compiler() {
        return Ok(Some(error.to_string()));
    }
    compile(&Options { check: true, names: Vec::new() })?;
    validate()
}

/// Runs the shader compiler, which is built on first use in minutes.
fn compile(options: &Options) -> Result<()> {
    let program = process::built("compile-shaders")?;
    let mut compile = command(&program.to_string_lossy(), &[]);
    if options.check {
        compile.arg("--check");
    }
    compile.args(&options.names);
    process::run(compile)
}

/// Message of `spirv-val` for a capability newer than itself.
const UNKNOWN: &str = "Invalid capability operand";

/// Validates the modules with `spirv-val`, including those derived from others at load time, each
/// for the oldest Vulkan that supports its SPIR-V version. Returns the reason if validation was
/// skipped. Modules with capabilities newer than the validator, as Linux distributions may have it,
/// are listed; those in the repository are then only compared with their source.
fn validate() -> Result<Option<String>> {
    if let Err(error) = tools::spirv_val() {
        return Ok(Some(error.to_string()));
    }
    let modules = [modules(&root().join("shaders/spv"))?, modules(&replayed()?)?].concat();
    let mut newer = Vec::new();
    for module in &modules {
        let target = vulkan_of(module)?;
        let mut validate = command("spirv-val", &["--target-env", target]);
        validate.arg(module);
        let output = validate.output().context("cannot start spirv-val")?;
        let text = [output.stdout, output.stderr].concat();
        let text = String::from_utf8_lossy(&text);
        let name = module.file_name().unwrap_or_default().to_string_lossy();
        match output.status.success() {
            true => {}
            false if text.contains(UNKNOWN) => newer.push(name.into_owned()),
            false => bail!("{name}: {}", text.trim()),
        }
    }
    println!("{} shader modules, valid", modules.len() - newer.len());
    if !newer.is_empty() {
        println!("not validated, because this spirv-val is too old for them: {}", newer.join(", "));
    }
    Ok(None)
}

/// Writes the modules that are derived from others at load time, and returns their folder. An
/// example does so, not the shader compiler, because `torchlet-shaders` does not compile while its
/// declarations and modules differ.
fn replayed() -> Result<PathBuf> {
    let folder = target_dir().join("shaders/replayed");
    // Stale modules would be validated.
    if folder.exists() {
        std::fs::remove_dir_all(&folder)?;
    }
    std::fs::create_dir_all(&folder)?;
    process::run(cargo(
        &[&["build", "--quiet", "--example", "replayed"][..], EVERYTHING].concat(),
    ))?;
    let program = format!("debug/examples/replayed{}", std::env::consts::EXE_SUFFIX);
    let mut write = command(&target_dir().join(program).to_string_lossy(), &[]);
    write.arg(&folder);
    process::run(write)?;
    Ok(folder)
}

/// The modules in a folder, at least one.
fn modules(folder: &Path) -> Result<Vec<PathBuf>> {
    let files = std::fs::read_dir(folder)
        .with_context(|| format!("cannot read {}", folder.display()))?
        .map(|entry| entry.map(|entry| entry.path()));
    let mut files: Vec<PathBuf> = files.collect::<std::io::Result<_>>()?;
    ensure!(!files.is_empty(), "no modules in {}", folder.display());
    files.sort();
    Ok(files)
}

/// The `spirv-val` name of the Vulkan version for a module, from the SPIR-V version in its second
/// word.
fn vulkan_of(module: &Path) -> Result<&'static str> {
    let bytes = std::fs::read(module)?;
    Ok(match bytes.get(4..8) {
        Some([0, 3, 1, 0]) => "vulkan1.1",
        Some([0, 5, 1, 0]) => "vulkan1.2",
        Some([0, 6, 1, 0]) => "vulkan1.3",
        version => bail!("{}: unknown SPIR-V version {version:?}", module.display()),
    })
}
