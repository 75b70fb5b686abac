//! Generates `torchlet.h` with cbindgen, and `torchlet_kernels.h` with a test of the crate.

use crate::process::{self, cargo, root};
use anyhow::{Context, Result, anyhow, bail};
use std::path::PathBuf;

fn path() -> PathBuf {
    root().join("capi/include/torchlet.h")
}

/// Generates the header from the sources.
fn generate() -> Result<String> {
    let folder = root().join("capi");
    let config = cbindgen::Config::from_file(folder.join("cbindgen.toml"));
    let config = config.map_err(|error| anyhow!("cbindgen.toml: {error}"))?;
    let bindings = cbindgen::Builder::new().with_crate(&folder).with_config(config).generate();
    let mut text = Vec::new();
    bindings.context("cbindgen cannot read capi/src")?.write(&mut text);
    Ok(without_rules(&String::from_utf8(text)?))
}

/// Removes the reference to the general rules, which every function repeats, from the header. Only
/// additional safety requirements of a function are left.
fn without_rules(text: &str) -> String {
    const RULES: &str = "// The rules at the head of `torchlet.h`.";
    let mut lines: Vec<String> = Vec::new();
    for line in text.lines() {
        if line == "// # Safety" {
            continue;
        }
        let own = line.strip_prefix(RULES).map(str::trim_start);
        match own {
            None => lines.push(line.to_owned()),
            Some(own) => {
                lines.pop_if(|line| line == "//");
                if !own.is_empty() {
                    lines.push(format!("// {own}"));
                }
            }
        }
    }
    lines.join("\n") + "\n"
}

pub(super) fn overwrite() -> Result<()> {
    std::fs::write(path(), generate()?)?;
    let mut kernels = cargo(&["test", "--quiet", "--package", "torchlet-capi", "every_kernel"]);
    kernels.env("TORCHLET_OVERWRITE", "1");
    process::run(kernels)
}

/// Fails if the header is out of date. (The crate's tests compare the list of kernels.)
pub(super) fn compare() -> Result<()> {
    let found = std::fs::read_to_string(path()).unwrap_or_default();
    if found != generate()? {
        bail!("capi/include/torchlet.h is out of date: run `cargo xtask capi --overwrite`");
    }
    println!("capi/include/torchlet.h is up to date");
    Ok(())
}
