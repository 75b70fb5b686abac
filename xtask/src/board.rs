//! Firmware images of `boards/`, run in QEMU.

use crate::process::root;
use anyhow::Result;
use std::path::PathBuf;

#[derive(clap::Args, Default)]
pub(crate) struct Options {
    /// Takes what the firmware prints as the new expectation
    #[arg(long)]
    overwrite: bool,
}

/// The folders below `boards/` that are workspaces of their own.
pub(crate) fn workspaces() -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(root().join("boards"))? {
        let path = entry?.path();
        if path.join("Cargo.toml").is_file() {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

pub(crate) fn run(_: &Options) -> Result<()> {
    anyhow::bail!("not implemented yet")
}
