//! Builds the Python package, installs it into a separate environment, and tests it there.

use crate::process::{self, command, root, target_dir};
use crate::{fixtures, tools};
use anyhow::{Context, Result, bail};
use std::path::PathBuf;

/// Checks that the package can be tested on this machine.
pub(crate) fn check() -> Result<()> {
    tools::python()
}

/// Builds and tests the package.
pub(crate) fn run() -> Result<()> {
    let package = root().join("python");
    let python = fixtures::python(None, "package", &package.join("tests/requirements.txt"))?;
    let mut clippy = command("cargo", &["clippy", "--quiet", "--", "--deny", "warnings"]);
    clippy.current_dir(&package).env("CARGO_TARGET_DIR", target_dir()).env("PYO3_PYTHON", &python);
    process::run(clippy)?;
    let wheel = wheel(&python)?.to_string_lossy().into_owned();
    let install = ["-m", "pip", "install", "--quiet", "--no-index", "--no-deps"];
    process::run(command(&python, &[&install[..], &["--force-reinstall", &wheel]].concat()))?;
    let mut test = command(&python, &["-m", "pytest", "-q", "-p", "no:cacheprovider"]);
    // Python searches the working folder for packages; this one has none to confuse with the
    // installed one.
    test.current_dir(package.join("tests")).env("PYTHONDONTWRITEBYTECODE", "1");
    process::run(test)
}

/// Builds a development wheel for tests.
fn wheel(python: &str) -> Result<PathBuf> {
    let wheels = target_dir().join("python/wheels");
    if wheels.exists() {
        std::fs::remove_dir_all(&wheels)?;
    }
    let out = wheels.to_string_lossy();
    let build = ["-m", "maturin", "build", "--quiet", "--profile", "dev", "--locked"];
    let here = ["--interpreter", python, "--out", &out];
    let mut build = command(python, &[&build[..], &here].concat());
    build.current_dir(root().join("python")).env("CARGO_TARGET_DIR", target_dir());
    process::run(build)?;
    let built = std::fs::read_dir(&wheels).with_context(|| wheels.display().to_string())?;
    let built: Vec<PathBuf> =
        built.map(|file| Ok(file?.path())).collect::<Result<_, std::io::Error>>()?;
    match &built[..] {
        [wheel] => Ok(wheel.clone()),
        _ => bail!("maturin built {} wheels, expected 1", built.len()),
    }
}
