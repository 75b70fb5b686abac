//! Operators times types, with PyTorch's own samples of each: a table.

use crate::process::{self, command, root, target_dir};
use anyhow::Result;
use std::path::PathBuf;

#[derive(clap::Args)]
pub(crate) struct Options {
    /// A Python that has the packages of tests/export/requirements.txt; else one is set up under
    /// target/
    #[arg(long, env = "TORCHLET_PYTHON")]
    python: Option<PathBuf>,
    /// Operators whose names match this alone: the other rows stay as they are
    #[arg(long, value_name = "REGEX")]
    only: Option<String>,
    /// Go on from the table: what it says was not tried, alone
    #[arg(long)]
    resume: bool,
    /// The types, as f32 and i64; all ten of real numbers if none is named
    #[arg(long, num_args = 1.., value_name = "TYPE")]
    types: Vec<String>,
    /// Most samples of an operator in a type
    #[arg(long, default_value_t = 3)]
    samples: u32,
    /// Operators that are exported at a time
    #[arg(long, default_value_t = 2)]
    jobs: u32,
    /// Most seconds of an operator
    #[arg(long, default_value_t = 600)]
    seconds: u32,
}

/// Exports the samples (an hour or two on two processors), runs them, and writes
/// `docs/operators.md`, as far as it came, again and again. Fails if a cell is left that nobody has
/// explained.
pub(crate) fn run(options: &Options) -> Result<()> {
    let exports = root().join("tests/export");
    let python = crate::fixtures::python(
        options.python.as_ref(),
        "fixtures",
        &exports.join("requirements.txt"),
    )?;
    let torchlet = process::torchlet()?;
    let mut sweep = command(&python, &["sweep.py", "--torchlet"]);
    sweep.current_dir(&exports).arg(torchlet).arg("--folder").arg(target_dir().join("sweep"));
    for (name, value) in
        [("--samples", options.samples), ("--jobs", options.jobs), ("--seconds", options.seconds)]
    {
        sweep.arg(name).arg(value.to_string());
    }
    if options.resume {
        sweep.arg("--resume");
    }
    if !options.types.is_empty() {
        sweep.arg("--types").args(&options.types);
    }
    sweep.arg("--table").arg(root().join("docs/operators.md"));
    if let Some(only) = &options.only {
        sweep.args(["--only", only]);
    }
    process::run(sweep)
}
