//! Security advisories for packages in lock files, from a copy of RustSec's database: a folder per
//! package, with a Markdown file per advisory that begins with TOML data.

use crate::process::{command, output, root};
use anyhow::{Context, Result, bail};
use semver::{Version, VersionReq};
use std::collections::BTreeMap;
use std::path::Path;
use toml::Table;

/// Accepted advisories, with reasons.
const KNOWN: &[(&str, &str)] = &[(
    "RUSTSEC-2026-0110",
    "bare-metal is unmaintained, but `cortex-m` 0.7, which firmware for Cortex-M uses, depends on \
     it",
)];

/// An advisory about a package.
struct Advisory {
    id: String,
    /// Date of publication.
    date: String,
    title: String,
    /// Versions that are not affected.
    unaffected: Vec<VersionReq>,
}

/// Fails if a lock file contains an affected version.
pub(super) fn check(database: &Path) -> Result<()> {
    let advisories = read(database)?;
    let count: usize = advisories.values().map(Vec::len).sum();
    let newest = advisories.values().flatten().map(|advisory| advisory.date.as_str()).max();
    let Some(newest) = newest else {
        bail!("{} has no advisories: expected crates/NAME/ID.md in it", database.display());
    };
    let files = output(command("git", &["ls-files", "--", "*Cargo.lock"]))?;
    let files = String::from_utf8(files)?;
    let mut found = Vec::new();
    for file in files.lines() {
        let text = std::fs::read_to_string(root().join(file)).with_context(|| file.to_owned())?;
        let (about, packages) = about(&text, &advisories).with_context(|| file.to_owned())?;
        println!("{file}: {packages} packages, {} advisories", about.len());
        found.extend(about.into_iter().map(|about| format!("{file}: {about}")));
    }
    for (id, why) in KNOWN {
        let before = found.len();
        found.retain(|about| !about.ends_with(&format!("({id})")));
        match before - found.len() {
            0 => println!("{id} applies to no dependency: remove it from the list"),
            count => println!("{id} ({count} times) is ignored: {why}"),
        }
    }
    println!("{count} advisories read, the newest of {newest}");
    if found.is_empty() { Ok(()) } else { bail!("{}", found.join("\n")) }
}

/// Reads the advisories of a database by package, except withdrawn ones.
fn read(database: &Path) -> Result<BTreeMap<String, Vec<Advisory>>> {
    let mut advisories: BTreeMap<String, Vec<Advisory>> = BTreeMap::new();
    let packages = database.join("crates");
    let folders = std::fs::read_dir(&packages).with_context(|| packages.display().to_string())?;
    for folder in folders {
        for file in std::fs::read_dir(folder?.path())? {
            let path = file?.path();
            let text = std::fs::read_to_string(&path)?;
            let read = advisory(&text).with_context(|| path.display().to_string())?;
            if let Some((package, advisory)) = read {
                advisories.entry(package).or_default().push(advisory);
            }
        }
    }
    Ok(advisories)
}

/// Parses an advisory and its package; `None` if withdrawn.
fn advisory(text: &str) -> Result<Option<(String, Advisory)>> {
    let data = text.strip_prefix("```toml\n").context("expected ```toml on the first line")?;
    let (data, text) = data.split_once("\n```").context("expected ``` after the data")?;
    let data: Table = data.parse()?;
    let about = data.get("advisory").and_then(|about| about.as_table()).context("no [advisory]")?;
    if about.contains_key("withdrawn") {
        return Ok(None);
    }
    let field = |name: &str| {
        let text = about.get(name).and_then(|value| value.as_str());
        text.map(str::to_owned).with_context(|| format!("no {name}"))
    };
    let versions = data.get("versions").and_then(|versions| versions.as_table());
    let lists = ["patched", "unaffected"].into_iter();
    let lists = lists.filter_map(|name| versions?.get(name)?.as_array()).flatten();
    let unaffected = lists.map(|text| {
        let text = text.as_str().context("a version is not a string")?;
        VersionReq::parse(text).with_context(|| text.to_owned())
    });
    let title = text.lines().find_map(|line| line.strip_prefix("# ")).unwrap_or_default();
    let advisory = Advisory {
        id: field("id")?,
        date: field("date")?,
        title: title.to_owned(),
        unaffected: unaffected.collect::<Result<_>>()?,
    };
    Ok(Some((field("package")?, advisory)))
}

/// Returns the advisories for packages of a lock file, and the number of its packages from a
/// registry.
fn about(lock: &str, advisories: &BTreeMap<String, Vec<Advisory>>) -> Result<(Vec<String>, usize)> {
    let lock: Table = lock.parse()?;
    let packages = lock.get("package").and_then(|list| list.as_array()).context("no packages")?;
    let (mut found, mut count) = (Vec::new(), 0);
    for package in packages {
        let text = |name: &str| package.get(name).and_then(|value| value.as_str());
        let (Some(name), Some(version), Some(_)) = (text("name"), text("version"), text("source"))
        else {
            continue;
        };
        count += 1;
        let version = Version::parse(version).with_context(|| format!("{name} {version}"))?;
        for advisory in advisories.get(name).into_iter().flatten() {
            if !advisory.unaffected.iter().any(|versions| versions.matches(&version)) {
                found.push(format!("{name} {version}: {} ({})", advisory.title, advisory.id));
            }
        }
    }
    Ok((found, count))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ADVISORY: &str = "```toml\n[advisory]\nid = \"RUSTSEC-0000-0001\"\npackage = \"left\"\n\
        date = \"2020-01-31\"\n\n[versions]\npatched = [\">= 1.2.3\"]\nunaffected = [\"< 1.0.0\"]\n```\n\n# Breaks\n\nText.\n";

    fn lock(version: &str) -> String {
        format!(
            "version = 4\n[[package]]\nname = \"own\"\nversion = \"0.1.0\"\n\
             [[package]]\nname = \"left\"\nversion = \"{version}\"\nsource = \"registry+here\"\n"
        )
    }

    #[test]
    fn versions_are_affected_or_not() {
        let (package, advisory) = advisory(ADVISORY).unwrap().unwrap();
        let advisories = BTreeMap::from([(package, vec![advisory])]);
        for (version, is_affected) in
            [("0.9.9", false), ("1.0.0", true), ("1.2.2", true), ("1.2.3", false), ("2.0.0", false)]
        {
            let (found, count) = about(&lock(version), &advisories).unwrap();
            assert_eq!((found.len(), count), (usize::from(is_affected), 1), "{version}");
        }
        let (found, _) = about(&lock("1.1.0"), &advisories).unwrap();
        assert_eq!(found, ["left 1.1.0: Breaks (RUSTSEC-0000-0001)"]);
    }

    #[test]
    fn withdrawn_advisories_are_ignored_and_malformed_ones_fail() {
        let withdrawn = ADVISORY.replace("date =", "withdrawn = \"2021-01-01\"\ndate =");
        assert!(advisory(&withdrawn).unwrap().is_none());
        for malformed in [
            "",
            "```toml\n",
            "```toml\n\n```",
            &ADVISORY.replace(">= 1.2.3", "one"),
            &ADVISORY.replace("id =", "di ="),
        ] {
            assert!(advisory(malformed).is_err(), "{malformed}");
        }
    }
}
