//! Table of operators and types, tested with PyTorch's own samples.

use crate::process::{self, command, root, target_dir};
use anyhow::Result;
use std::path::PathBuf;

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Python with the packages of tests/export/requirements.txt [default: a virtual environment
    /// under target/]
    #[arg(long, env = "TORCHLET_PYTHON")]
    python: Option<PathBuf>,
    /// Sweep whole models as PyTorch exports them (`.pt2`), and print a table: torchvision, timm
    /// and transformers, with random weights. Needs the package timm
    #[arg(long, conflicts_with_all = ["resume", "types"])]
    pt2: bool,
    /// Only operators, or models, whose names match; the other rows are kept
    #[arg(long, value_name = "REGEX")]
    only: Option<String>,
    /// Continue the table: only cells that were not tried yet
    #[arg(long)]
    resume: bool,
    /// Types, such as f32 and i64 [default: all ten real types]
    #[arg(long, num_args = 1.., value_name = "TYPE")]
    types: Vec<String>,
    /// Maximum samples per operator and type
    #[arg(long, default_value_t = 3)]
    samples: u32,
    /// Operators to export concurrently
    #[arg(long, default_value_t = 2)]
    jobs: u32,
    /// Time limit per operator in seconds
    #[arg(long, default_value_t = 600)]
    seconds: u32,
}

/// Exports the samples (an hour or two on two processors), runs them, and writes
/// `docs/operators.md` repeatedly with the results so far. Fails if a cell without explanation is
/// left.
pub(crate) fn run(options: &Options) -> Result<()> {
    let exports = root().join("tests/export");
    let python = crate::fixtures::python(
        options.python.as_ref(),
        "fixtures",
        &exports.join("requirements.txt"),
    )?;
    let torchlet = process::torchlet()?;
    if options.pt2 {
        let mut sweep = command(&python, &["sweep_pt2.py", "--torchlet"]);
        sweep.current_dir(&exports).arg(torchlet);
        if let Some(only) = &options.only {
            sweep.args(["--only", only]);
        }
        return process::run(sweep);
    }
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
