//! Checks that the crates can be published: metadata, and packing in dependency order. Nothing is
//! uploaded.

use crate::api::LIBRARIES;
use crate::process::{self, cargo, output, root};
use anyhow::{Result, bail};
use serde_json::Value;

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Also build each crate from its package, which needs minutes
    #[arg(long)]
    verify: bool,
    /// Pack uncommitted changes
    #[arg(long)]
    allow_dirty: bool,
}

pub(crate) fn run(options: &Options) -> Result<()> {
    check()?;
    let mut arguments = vec!["publish", "--dry-run", "--workspace"];
    arguments.extend((!options.verify).then_some("--no-verify"));
    arguments.extend(options.allow_dirty.then_some("--allow-dirty"));
    process::run(cargo(&arguments))?;
    // API compatibility is checked against the last tagged version.
    let newest_first = ["tag", "--list", "--sort=-version:refname", "v*"];
    let tags = String::from_utf8(output(process::command("git", &newest_first))?)?;
    let Some(last) = tags.lines().next() else {
        println!("skipping the comparison of the API: no version is tagged yet");
        return Ok(());
    };
    if !process::succeeds("cargo", &["semver-checks", "--version"]) {
        bail!("cargo-semver-checks is missing; `cargo install cargo-semver-checks`");
    }
    let mut compare = cargo(&["semver-checks", "--baseline-rev", last]);
    for library in LIBRARIES {
        compare.args(["--package", library]);
    }
    process::run(compare)
}

/// Checks the metadata that registries require.
fn check() -> Result<()> {
    let metadata = output(cargo(&["metadata", "--no-deps", "--format-version", "1"]))?;
    let metadata: Value = serde_json::from_slice(&metadata)?;
    let mut missing = Vec::new();
    for package in metadata["packages"].as_array().into_iter().flatten() {
        if package["publish"].as_array().is_some_and(Vec::is_empty) {
            continue;
        }
        let name = package["name"].as_str().unwrap_or_default();
        missing.extend(problems(package).into_iter().map(|what| format!("{name}: {what}")));
    }
    if missing.is_empty() { Ok(()) } else { bail!("{}", missing.join("\n")) }
}

fn problems(package: &Value) -> Vec<&'static str> {
    let texts = |key: &str| -> Vec<&str> {
        package[key].as_array().into_iter().flatten().filter_map(Value::as_str).collect()
    };
    let folder = package["manifest_path"].as_str().map(std::path::Path::new);
    let folder = folder.and_then(std::path::Path::parent).map_or_else(root, Into::into);
    let has_readme = package["readme"].as_str().is_some_and(|file| folder.join(file).is_file());
    let keywords = texts("keywords");
    let are_keywords = |words: &[&str]| {
        (1..=5).contains(&words.len()) && words.iter().all(|word| word.len() <= 20)
    };
    let docs = &package["metadata"]["docs"]["rs"];
    let checks = [
        (package["description"].is_string(), "no description"),
        (package["license"].is_string(), "no licence"),
        (package["repository"].is_string(), "no repository"),
        (package["rust_version"].is_string(), "no rust-version"),
        (are_keywords(&keywords), "expected one to five keywords of at most 20 letters"),
        ((1..=5).contains(&texts("categories").len()), "expected one to five categories"),
        (has_readme, "no README.md"),
        (docs["all-features"] == true, "no [package.metadata.docs.rs] with all features"),
    ];
    checks.into_iter().filter(|(holds, _)| !holds).map(|(_, what)| what).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crates_have_metadata() {
        check().unwrap();
    }

    #[test]
    fn missing_metadata_is_named() {
        let package = serde_json::json!({ "name": "a", "description": "b", "keywords": [] });
        let found = problems(&package);
        assert!(found.contains(&"no README.md") && found.contains(&"no licence"), "{found:?}");
        assert!(!found.contains(&"no description"));
    }
}
