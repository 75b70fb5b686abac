//! Generates flatbuffers readers from the schemas in `core/schema`, which tests compare torchlet's
//! with.

use crate::process::{self, command, root, succeeds};
use anyhow::{Result, bail};
use std::path::PathBuf;

#[derive(clap::Args)]
pub(crate) struct Options {
    /// The flatbuffers compiler, version 24 or 25; the Python package executorch has one in
    /// data/bin
    #[arg(long, env = "FLATC", default_value = "flatc")]
    flatc: PathBuf,
}

pub(crate) fn run(options: &Options) -> Result<()> {
    let flatc = options.flatc.to_string_lossy();
    if !succeeds(&flatc, &["--version"]) {
        bail!("{flatc} is missing: set its path with --flatc, or install the FlatBuffers compiler");
    }
    let mut schemas: Vec<PathBuf> = std::fs::read_dir(root().join("core/schema"))?
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<std::io::Result<_>>()?;
    schemas.retain(|path| path.extension().is_some_and(|ending| ending == "fbs"));
    schemas.sort();
    let mut generate = command(&flatc, &["--rust", "-o"]);
    generate.arg(root().join("core/tests/readers_agree/generated")).args(schemas);
    process::run(generate)
}
