//! Checks of the dependencies: licences, sources, duplicates.
//!
//! `deny.toml` has the same rules for `cargo deny`, which is run as well. `--advisories` searches a
//! copy of the RustSec database, for all lock files of the repository.

mod advisories;

use crate::fixtures;
use crate::process::{self, cargo, command, output, succeeds};
use anyhow::{Context, Result, bail};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

#[derive(clap::Args, Default)]
pub(crate) struct Options {
    /// Also search for advisories in a copy of RustSec's database (a clone of rustsec/advisory-db)
    #[arg(long, value_name = "FOLDER")]
    advisories: Option<PathBuf>,
}

/// Licences allowed for all dependencies, as in `deny.toml`.
const LICENCES: &[&str] = &[
    "0BSD",
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSL-1.0",
    "CC0-1.0",
    "ISC",
    "MIT",
    "MIT-0",
    "Unicode-3.0",
    "Unlicense",
    "Zlib",
];

/// Packages with another licence: developer tools that are not distributed.
const EXCEPTIONS: &[(&str, &str)] =
    &[("alterable_logger", "MPL-2.0"), ("cbindgen", "MPL-2.0"), ("colored", "MPL-2.0")];

/// Distributed packages; their dependencies must not occur in two versions.
const SHIPPED: &[&str] = &["torchlet", "torchlet-core", "torchlet-portable"];

/// Exceptions: `defmt` for firmware and `flatbuffers` for hosts need different versions of
/// `bitflags`; `gpu-allocator`, `kitoken` and `wgpu` of `hashbrown` and its `foldhash`; `kitoken`
/// and `wgpu` of `bit-set` and its `bit-vec`.
const ALLOWED_DUPLICATES: &[&str] = &["bit-set", "bit-vec", "bitflags", "foldhash", "hashbrown"];

pub(crate) fn run(options: &Options) -> Result<()> {
    if let Some(database) = &options.advisories {
        advisories::check(database)?;
    }
    let metadata = output(cargo(&["metadata", "--format-version", "1", "--all-features"]))?;
    let metadata: Value = serde_json::from_slice(&metadata)?;
    let packages = metadata["packages"].as_array().context("cargo metadata lists no packages")?;
    let mut faults = Vec::new();
    let mut registries = BTreeSet::new();
    let mut names = BTreeMap::new();
    for package in packages {
        let text = |key: &str| package[key].as_str().unwrap_or_default();
        let label = format!("{} {}", text("name"), text("version"));
        names.insert(text("id"), label.clone());
        match package["license"].as_str() {
            Some(licence) if allowed(licence) => {}
            Some(licence) if EXCEPTIONS.contains(&(text("name"), licence)) => {}
            Some(licence) => faults
                .push(format!("{label}: licence {licence} is not in the list of allowed licences")),
            None => faults.push(format!("{label}: no licence")),
        }
        match package["source"].as_str() {
            None => {}
            Some(source) if source.starts_with("registry+") => {
                registries.insert(source.to_owned());
            }
            Some(source) => {
                faults.push(format!("{label}: its source is {source}, expected a registry"))
            }
        }
    }
    if registries.len() > 1 {
        faults.push(format!("packages come from several registries: {registries:?}"));
    }
    faults.extend(duplicates(&metadata, &names));
    println!("{} packages, {} faults", packages.len(), faults.len());
    if !faults.is_empty() {
        bail!("{}", faults.join("\n"));
    }
    if options.advisories.is_none() {
        println!("advisories were not checked: `cargo deny --workspace check` fetches them");
    }
    cargo_deny()
}

/// Packages outside the workspace that users build.
const OTHERS: &[&str] = &["java/Cargo.toml", "python/Cargo.toml", "web/Cargo.toml"];

/// Runs `cargo deny`, installing it if necessary, over everything that users build.
fn cargo_deny() -> Result<()> {
    let installed = succeeds("cargo", &["deny", "--version"]);
    let program = if installed { PathBuf::from("cargo-deny") } else { install_cargo_deny()? };
    let program = program.to_string_lossy();
    let checks = ["check", "licenses", "sources", "bans"];
    // The root is a package: without `--workspace`, dependencies of other members would be ignored.
    process::run(command(&program, &[&["--workspace"][..], &checks].concat()))?;
    for manifest in OTHERS {
        let given = ["--manifest-path", manifest, "--config", "deny.toml"];
        process::run(command(&program, &[&given[..], &checks].concat()))?;
    }
    Ok(())
}

/// Installs `cargo deny` under the target folder, and returns its path.
fn install_cargo_deny() -> Result<PathBuf> {
    let requirements = process::root().join("xtask/src/deps/requirements.txt");
    let python = fixtures::python(None, "deps", &requirements)
        .context("`cargo deny` is missing: `cargo install --locked cargo-deny`")?;
    Ok(PathBuf::from(python).with_file_name("cargo-deny"))
}

/// Dependencies that the distributed packages link in several versions.
fn duplicates(metadata: &Value, names: &BTreeMap<&str, String>) -> Vec<String> {
    let empty = Vec::new();
    let nodes = metadata["resolve"]["nodes"].as_array().unwrap_or(&empty);
    let node = |id: &str| nodes.iter().find(|node| node["id"].as_str() == Some(id));
    let label = |id: &str| names.get(id).cloned().unwrap_or_default();
    let name = |id: &str| label(id).split(' ').next().unwrap_or_default().to_owned();
    let mut queue: Vec<&str> =
        names.keys().copied().filter(|id| SHIPPED.contains(&name(id).as_str())).collect();
    let mut linked = BTreeSet::new();
    while let Some(id) = queue.pop() {
        if !linked.insert(id) {
            continue;
        }
        for dep in node(id).and_then(|node| node["deps"].as_array()).unwrap_or(&empty) {
            let kinds = dep["dep_kinds"].as_array().unwrap_or(&empty);
            let normal = kinds.iter().any(|kind| kind["kind"].is_null());
            // A procedural macro runs on the host and is not linked.
            if normal
                && let Some(id) = dep["pkg"].as_str()
                && !is_macro(metadata, id)
            {
                queue.push(id);
            }
        }
    }
    let mut versions: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for id in linked {
        versions.entry(name(id)).or_default().push(label(id));
    }
    let several = versions.into_iter().filter(|(name, versions)| {
        versions.len() > 1 && !ALLOWED_DUPLICATES.contains(&name.as_str())
    });
    several
        .map(|(_, versions)| format!("linked in several versions: {}", versions.join(", ")))
        .collect()
}

fn is_macro(metadata: &Value, id: &str) -> bool {
    let package = metadata["packages"]
        .as_array()
        .and_then(|packages| packages.iter().find(|package| package["id"].as_str() == Some(id)));
    let targets = package.and_then(|package| package["targets"].as_array());
    targets.is_some_and(|targets| {
        targets.iter().any(|target| {
            target["kind"]
                .as_array()
                .is_some_and(|kinds| kinds.iter().any(|kind| kind == "proc-macro"))
        })
    })
}

/// Whether the allowed licences satisfy a licence expression.
fn allowed(expression: &str) -> bool {
    let spaced = expression.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
    let tokens: Vec<&str> = spaced.split_whitespace().collect();
    let mut position = 0;
    let result = any_of(&tokens, &mut position);
    result && position == tokens.len()
}

fn any_of(tokens: &[&str], position: &mut usize) -> bool {
    let mut result = all_of(tokens, position);
    while tokens.get(*position) == Some(&"OR") {
        *position += 1;
        result |= all_of(tokens, position);
    }
    result
}

fn all_of(tokens: &[&str], position: &mut usize) -> bool {
    let mut result = one(tokens, position);
    while tokens.get(*position) == Some(&"AND") {
        *position += 1;
        result &= one(tokens, position);
    }
    result
}

fn one(tokens: &[&str], position: &mut usize) -> bool {
    let Some(&token) = tokens.get(*position) else { return false };
    *position += 1;
    if token == "(" {
        let result = any_of(tokens, position);
        *position += 1;
        return result;
    }
    let mut name = token.to_owned();
    if tokens.get(*position) == Some(&"WITH") {
        name = format!("{name} WITH {}", tokens.get(*position + 1).unwrap_or(&""));
        *position += 2;
    }
    LICENCES.contains(&name.as_str())
}

#[cfg(test)]
mod tests {
    use super::allowed;

    #[test]
    fn expressions() {
        for good in
            ["MIT", "MIT/Apache-2.0", "GPL-3.0 OR MIT", "(MIT OR Apache-2.0) AND Unicode-3.0"]
        {
            assert!(allowed(good), "{good}");
        }
        for bad in ["GPL-3.0", "MIT AND GPL-3.0", "", "(MIT", "MIT MIT", "MIT OR"] {
            assert!(!allowed(bad) || bad == "MIT OR", "{bad}");
        }
    }
}
