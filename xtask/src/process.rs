//! Running other programs.

use anyhow::{Context, Result, bail};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// What cargo chooses packages and features by wherever the results run on this machine.
/// Dependencies are built once for each set of features that packages want of them together: with
/// one choice for all, everything is built once.
pub(crate) const EVERYTHING: &[&str] = &["--workspace", "--all-features"];

/// Builds a program of ours, with everything that it can do, and gives where it is.
pub(crate) fn built(program: &str) -> Result<PathBuf> {
    run(cargo(&[&["build", "--quiet", "--bin", program][..], EVERYTHING].concat()))?;
    Ok(target_dir().join("debug").join(format!("{program}{}", std::env::consts::EXE_SUFFIX)))
}

/// Builds the command as it is released, and gives where it is.
pub(crate) fn torchlet() -> Result<PathBuf> {
    run(cargo(&["build", "--quiet", "--release", "--package", "torchlet-cli"]))?;
    Ok(target_dir().join("release/torchlet"))
}

/// The root of the repository: the one that we are in, which need not be the one that this was
/// built in.
pub(crate) fn root() -> PathBuf {
    let built = Path::new(env!("CARGO_MANIFEST_DIR"));
    let here = std::env::current_dir().unwrap_or_default();
    let is_root = |folder: &&Path| folder.join("xtask/Cargo.toml").is_file();
    let root = here.ancestors().find(is_root).or(built.parent()).unwrap_or(built);
    root.to_path_buf()
}

/// Where cargo puts what it builds.
pub(crate) fn target_dir() -> PathBuf {
    match std::env::var_os("CARGO_TARGET_DIR") {
        Some(dir) => root().join(dir),
        None => root().join("target"),
    }
}

/// Cargo, in the root of the repository.
pub(crate) fn cargo(args: &[&str]) -> Command {
    command("cargo", args)
}

/// The cargo of a toolchain of rustup's, in the root of the repository.
pub(crate) fn cargo_of(toolchain: &str, args: &[&str]) -> Command {
    let mut command = command("rustup", &[&["run", toolchain, "cargo"], args].concat());
    // These name the toolchain that runs us.
    command.env_remove("RUSTUP_TOOLCHAIN").env_remove("CARGO").env_remove("RUSTC");
    command.env_remove("RUSTDOC");
    command
}

/// A program, in the root of the repository.
pub(crate) fn command(program: &str, args: &[&str]) -> Command {
    let mut command = Command::new(program);
    command.args(args).current_dir(root());
    // What the cargo that runs us says of xtask would make the cargo that we run build everything
    // again.
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if text.starts_with("CARGO_PKG_") || text.starts_with("CARGO_MANIFEST_") {
            command.env_remove(&name);
        }
    }
    command
}

/// The command line, for people.
pub(crate) fn show(command: &Command) -> String {
    let mut line = command.get_program().to_string_lossy().into_owned();
    for arg in command.get_args() {
        line.push(' ');
        line.push_str(&arg.to_string_lossy());
    }
    line
}

/// Runs to the end, with its output on ours.
pub(crate) fn run(mut command: Command) -> Result<()> {
    println!("$ {}", show(&command));
    let status = command.status().with_context(|| format!("cannot start {}", show(&command)))?;
    if !status.success() {
        bail!("{} failed: {status}", show(&command));
    }
    Ok(())
}

/// Runs to the end, and shows its output only if it fails; people read `line` in the place of a
/// long command.
pub(crate) fn run_quietly(mut command: Command, line: &str) -> Result<()> {
    println!("$ {line}");
    let output = command.output().with_context(|| format!("cannot start {line}"))?;
    if !output.status.success() {
        let texts = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text));
        bail!("{line} failed: {}\n{}", output.status, texts.concat());
    }
    Ok(())
}

/// Runs to the end, with its output on ours, and shows `look` each line of its standard output.
pub(crate) fn watch(mut command: Command, mut look: impl FnMut(&str)) -> Result<()> {
    println!("$ {}", show(&command));
    command.stdout(Stdio::piped());
    let mut child = command.spawn().with_context(|| format!("cannot start {}", show(&command)))?;
    if let Some(stdout) = child.stdout.take() {
        // What programs print need not be text.
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

/// Runs to the end and gives what it wrote to standard output.
pub(crate) fn output(mut command: Command) -> Result<Vec<u8>> {
    command.stderr(Stdio::inherit());
    let output = command.output().with_context(|| format!("cannot start {}", show(&command)))?;
    if !output.status.success() {
        bail!("{} failed: {}", show(&command), output.status);
    }
    Ok(output.stdout)
}

/// Whether a program can be started and succeeds, with its output hidden.
pub(crate) fn succeeds(program: &str, args: &[&str]) -> bool {
    let mut command = command(program, args);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}
