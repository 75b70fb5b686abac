//! Exports the programs in `tests/fixtures`.

use crate::process::{self, command, root};
use anyhow::Result;
use std::path::PathBuf;

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Python with the packages of tests/export/requirements.txt [default: a virtual environment
    /// under target/]
    #[arg(long, env = "TORCHLET_PYTHON")]
    python: Option<PathBuf>,
    /// Scripts of tests/export to run [default: all.py]
    scripts: Vec<String>,
}

pub(crate) fn run(options: &Options) -> Result<()> {
    let exports = root().join("tests/export");
    let python = python(options.python.as_ref(), "fixtures", &exports.join("requirements.txt"))?;
    let all = ["all.py".to_owned()];
    let scripts = if options.scripts.is_empty() { &all[..] } else { &options.scripts };
    for script in scripts {
        let mut export = command(&python, &[script]);
        export.current_dir(&exports);
        process::run(export)?;
    }
    Ok(())
}

/// Returns the given Python, or that of a virtual environment with these requirements, created on
/// first use.
pub(crate) fn python(
    given: Option<&PathBuf>,
    name: &str,
    requirements: &std::path::Path,
) -> Result<String> {
    if let Some(given) = given {
        return Ok(given.to_string_lossy().into_owned());
    }
    let venv = process::target_dir().join("python").join(name);
    let python = venv.join("bin/python").to_string_lossy().into_owned();
    let stamp = venv.join("requirements.txt");
    let wanted = std::fs::read(requirements)?;
    if std::fs::read(&stamp).is_ok_and(|have| have == wanted) {
        return Ok(python);
    }
    process::run(command("python3", &["-m", "venv", &venv.to_string_lossy()]))?;
    let file = requirements.to_string_lossy();
    process::run(command(&python, &["-m", "pip", "install", "--quiet", "--requirement", &file]))?;
    std::fs::write(stamp, wanted)?;
    Ok(python)
}
