//! Public API listings of the library crates, checked in at `api/`, so that API changes show in
//! review.

use crate::process::{self, cargo_of, command, root, target_dir};
use crate::tools;
use anyhow::{Context, Result, bail};
use public_api::PublicApi;
use std::collections::BTreeSet;
use std::path::PathBuf;

/// The toolchain for rustdoc's JSON output. Its format changes between releases, and each version
/// of the crate `public-api` reads only a few formats, so both are updated together. It need not be
/// the toolchain of the build.
const TOOLCHAIN: &str = "1.95.0";

/// The target of the listings: some items are target-specific.
const TARGET: &str = "x86_64-unknown-linux-gnu";

/// Libraries for other crates to depend on; listed with all features.
pub(crate) const LIBRARIES: &[&str] = &[
    "torchlet",
    "torchlet-build",
    "torchlet-cache",
    "torchlet-core",
    "torchlet-devtools",
    "torchlet-gpu",
    "torchlet-graph",
    "torchlet-llm",
    "torchlet-page",
    "torchlet-portable",
    "torchlet-shaders",
    "torchlet-vulkan",
    "torchlet-wgpu",
];

#[derive(clap::Args, Default)]
pub(crate) struct Options {
    /// Write the current listings; review the difference before you commit it
    #[arg(long)]
    overwrite: bool,
}

pub(crate) fn run(options: &Options) -> Result<()> {
    tools::toolchain(TOOLCHAIN)?;
    if !cfg!(all(target_arch = "x86_64", target_os = "linux", target_env = "gnu")) {
        process::run(command("rustup", &["target", "add", "--toolchain", TOOLCHAIN, TARGET]))?;
    }
    let descriptions = describe()?;
    let mut changed = Vec::new();
    for library in LIBRARIES {
        let json = descriptions.join(format!("{}.json", library.replace('-', "_")));
        let found = listing(json).with_context(|| format!("the API of {library}"))?;
        let file = root().join("api").join(format!("{library}.txt"));
        // A new crate has no listing yet.
        let expected = std::fs::read_to_string(&file).unwrap_or_default();
        if found == expected {
            continue;
        }
        println!("{library}:\n{}", difference(&expected, &found));
        changed.push(*library);
        if options.overwrite {
            std::fs::write(&file, found).with_context(|| file.display().to_string())?;
        }
    }
    if changed.is_empty() || options.overwrite {
        println!("{} libraries, {} changed", LIBRARIES.len(), changed.len());
        return Ok(());
    }
    bail!(
        "the public API of {} differs from api/; if intended, run `cargo xtask api --overwrite`",
        changed.join(", ")
    )
}

/// Runs rustdoc with JSON output and returns the folder of the files.
fn describe() -> Result<PathBuf> {
    // A separate folder, because build scripts depend on the variable below, and would rerun on
    // every change of it.
    let folder = target_dir().join("api");
    let mut doc = cargo_of(TOOLCHAIN, &["doc", "--quiet", "--no-deps", "--lib", "--all-features"]);
    doc.args(["--target", TARGET]).arg("--target-dir").arg(&folder);
    for library in LIBRARIES {
        doc.args(["--package", library]);
    }
    // JSON output is unstable; this permits it on a stable rustdoc, whose format is fixed, unlike a
    // nightly's.
    doc.env("RUSTC_BOOTSTRAP", "1");
    doc.env("RUSTDOCFLAGS", "-Zunstable-options --output-format json --cap-lints allow");
    process::run(doc)?;
    Ok(folder.join(TARGET).join("doc"))
}

/// One line per public item. Blanket implementations and auto traits are omitted.
fn listing(json: PathBuf) -> Result<String> {
    let api: PublicApi = public_api::Builder::from_rustdoc_json(json)
        .omit_blanket_impls(true)
        .omit_auto_trait_impls(true)
        .build()?;
    Ok(api.items().map(|item| format!("{item}\n")).collect())
}

/// Removed and added lines, sorted so that those of a changed item are adjacent.
fn difference(old: &str, new: &str) -> String {
    let (old, new): (BTreeSet<&str>, BTreeSet<&str>) =
        (old.lines().collect(), new.lines().collect());
    let line = |line: &&str| {
        let sign = if new.contains(line) { '+' } else { '-' };
        format!("{sign}{line}")
    };
    old.symmetric_difference(&new).map(line).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::difference;

    #[test]
    fn differences_read_like_a_diff() {
        let old = "pub fn a()\npub fn b(u8)\npub fn c()\n";
        let new = "pub fn a()\npub fn b(u16)\npub fn c()\npub fn d()\n";
        assert_eq!(difference(old, new), "+pub fn b(u16)\n-pub fn b(u8)\n+pub fn d()");
        assert_eq!(difference(old, old), "");
    }
}
