//! Runs other programs.

use anyhow::{Context, Result, bail};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Package and feature selection for everything that runs on this machine. Cargo builds
/// dependencies once per combination of features; one selection for all builds avoids rebuilds.
pub(crate) const EVERYTHING: &[&str] = &["--workspace", "--all-features"];

/// Builds a program with all features, and returns its path.
pub(crate) fn built(program: &str) -> Result<PathBuf> {
    run(cargo(&[&["build", "--quiet", "--bin", program][..], EVERYTHING].concat()))?;
    Ok(target_dir().join("debug").join(format!("{program}{}", std::env::consts::EXE_SUFFIX)))
}

/// Builds the command in release mode, and returns its path.
pub(crate) fn torchlet() -> Result<PathBuf> {
    run(cargo(&["build", "--quiet", "--release", "--package", "torchlet-cli"]))?;
    Ok(target_dir().join("release/torchlet"))
}

/// Root of the repository that contains the current folder; it may differ from the one that built
/// this program.
pub(crate) fn root() -> PathBuf {
    let built = Path::new(env!("CARGO_MANIFEST_DIR"));
    let here = std::env::current_dir().unwrap_or_default();
    let is_root = |folder: &&Path| folder.join("xtask/Cargo.toml").is_file();
    let root = here.ancestors().find(is_root).or(built.parent()).unwrap_or(built);
    root.to_path_buf()
}

/// Cargo's target folder.
pub(crate) fn target_dir() -> PathBuf {
    match std::env::var_os("CARGO_TARGET_DIR") {
        Some(dir) => root().join(dir),
        None => root().join("target"),
    }
}

/// A cargo command in the root of the repository.
pub(crate) fn cargo(args: &[&str]) -> Command {
    command("cargo", args)
}

/// A cargo command of a rustup toolchain, in the root of the repository.
pub(crate) fn cargo_of(toolchain: &str, args: &[&str]) -> Command {
    let mut command = command("rustup", &[&["run", toolchain, "cargo"], args].concat());
    // These variables select the toolchain that runs xtask.
    command.env_remove("RUSTUP_TOOLCHAIN").env_remove("CARGO").env_remove("RUSTC");
    command.env_remove("RUSTDOC");
    command
}

/// A command in the root of the repository.
pub(crate) fn command(program: &str, args: &[&str]) -> Command {
    let mut command = Command::new(program);
    command.args(args).current_dir(root());
    // Package variables of xtask would make the inner cargo rebuild everything.
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if text.starts_with("CARGO_PKG_") || text.starts_with("CARGO_MANIFEST_") {
            command.env_remove(&name);
        }
    }
    command
}

/// Formats the command line.
pub(crate) fn show(command: &Command) -> String {
    let mut line = command.get_program().to_string_lossy().into_owned();
    for arg in command.get_args() {
        line.push(' ');
        line.push_str(&arg.to_string_lossy());
    }
    line
}

/// Runs a command to its end, with its output on the terminal.
pub(crate) fn run(mut command: Command) -> Result<()> {
    println!("$ {}", show(&command));
    let status = command.status().with_context(|| format!("cannot start {}", show(&command)))?;
    if !status.success() {
        bail!("{} failed: {status}", show(&command));
    }
    Ok(())
}

/// Runs a command, and shows its output only if it fails. `line` is printed instead of a long
/// command line.
pub(crate) fn run_quietly(mut command: Command, line: &str) -> Result<()> {
    println!("$ {line}");
    let output = command.output().with_context(|| format!("cannot start {line}"))?;
    if !output.status.success() {
        let texts = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text));
        bail!("{line} failed: {}\n{}", output.status, texts.concat());
    }
    Ok(())
}

/// Runs a command, prints its output, and passes each line of its standard output to `look`.
pub(crate) fn watch(mut command: Command, mut look: impl FnMut(&str)) -> Result<()> {
    println!("$ {}", show(&command));
    command.stdout(Stdio::piped());
    let mut child = command.spawn().with_context(|| format!("cannot start {}", show(&command)))?;
    if let Some(stdout) = child.stdout.take() {
        // The output may not be UTF-8.
        for line in BufReader::new(stdout).split(b'\n') {
            let line = line?;
            let line = String::from_utf8_lossy(&line);
            println!("{line}");
            look(&line);
        }
    }
    let status = child.wait()?;
    if !status.success() {
        bail!("{} failed: {status}", show(&command));
    }
    Ok(())
}

/// Runs a command and returns its standard output.
pub(crate) fn output(mut command: Command) -> Result<Vec<u8>> {
    command.stderr(Stdio::inherit());
    let output = command.output().with_context(|| format!("cannot start {}", show(&command)))?;
    if !output.status.success() {
        bail!("{} failed: {}", show(&command), output.status);
    }
    Ok(output.stdout)
}

/// Whether a program starts and succeeds; its output is hidden.
pub(crate) fn succeeds(program: &str, args: &[&str]) -> bool {
    let mut command = command(program, args);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}
