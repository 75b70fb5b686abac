//! Checks the libraries with the oldest supported toolchain (`rust-version`).

use crate::api::LIBRARIES;
use crate::process::{self, cargo, cargo_of, output};
use crate::tools;
use anyhow::{Context, Result};
use serde_json::Value;

pub(crate) fn run() -> Result<()> {
    let metadata = output(cargo(&["metadata", "--no-deps", "--format-version", "1"]))?;
    let metadata: Value = serde_json::from_slice(&metadata)?;
    // All packages inherit the workspace's `rust-version`.
    let version = metadata["packages"][0]["rust_version"].as_str().context("no rust-version")?;
    tools::toolchain(version)?;
    let mut check = cargo_of(version, &["check", "--quiet", "--lib", "--all-features"]);
    for library in LIBRARIES {
        check.args(["--package", library]);
    }
    process::run(check)
}
