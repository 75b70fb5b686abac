//! The public API of the library crates: a listing of each is checked in, in `api/`, so that a
//! change of it shows in review.

use crate::process::{self, cargo_of, command, root, target_dir};
use crate::tools;
use anyhow::{Context, Result, bail};
use public_api::PublicApi;
use std::collections::BTreeSet;
use std::path::PathBuf;

/// What makes the description that the listing is made from. Its format changes from release to
/// release, and the crate `public-api` reads the format of a few: this toolchain and that crate's
/// version change together. It need not be the toolchain that builds everything else.
const TOOLCHAIN: &str = "1.95.0";

/// Some items exist only on some targets: the listing is that of one target, whatever machine makes
/// it.
const TARGET: &str = "x86_64-unknown-linux-gnu";

/// The crates that others can depend on, with all features.
pub(crate) const LIBRARIES: &[&str] = &[
    "torchlet",
    "torchlet-build",
    "torchlet-cache",
    "torchlet-core",
    "torchlet-devtools",
    "torchlet-graph",
    "torchlet-llm",
    "torchlet-page",
    "torchlet-portable",
    "torchlet-shaders",
    "torchlet-vulkan",
];

#[derive(clap::Args, Default)]
pub(crate) struct Options {
    /// Takes the listings as they are now; look at the difference before you commit it
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
        // A crate that is new has none yet.
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
        "the public API of {} is not as in api/; if that is meant, `cargo xtask api --overwrite`",
        changed.join(", ")
    )
}

/// Lets rustdoc describe the libraries as JSON, and gives the folder with the files.
fn describe() -> Result<PathBuf> {
    // The folder is its own since build scripts look at the variable below: what they decide would
    // change back and forth.
    let folder = target_dir().join("api");
    let mut doc = cargo_of(TOOLCHAIN, &["doc", "--quiet", "--no-deps", "--lib", "--all-features"]);
    doc.args(["--target", TARGET]).arg("--target-dir").arg(&folder);
    for library in LIBRARIES {
        doc.args(["--package", library]);
    }
    // JSON is not a stable output of rustdoc; this lets a stable rustdoc write it. Unlike
    // nightlies, it does not change.
    doc.env("RUSTC_BOOTSTRAP", "1");
    doc.env("RUSTDOCFLAGS", "-Zunstable-options --output-format json --cap-lints allow");
    process::run(doc)?;
    Ok(folder.join(TARGET).join("doc"))
}

/// A line for each public item. What every type implements, and what follows from its fields, is
/// left out.
fn listing(json: PathBuf) -> Result<String> {
    let api: PublicApi = public_api::Builder::from_rustdoc_json(json)
        .omit_blanket_impls(true)
        .omit_auto_trait_impls(true)
        .build()?;
    Ok(api.items().map(|item| format!("{item}\n")).collect())
}

/// The lines that are gone and those that are new, ordered so that a changed item's stand together.
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
