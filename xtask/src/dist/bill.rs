//! Components of the command: packages, their licences and dependencies.

use anyhow::{Context, Result};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::Path;

/// A linked package.
struct Package {
    licence: String,
    /// Its source folder.
    folder: String,
    repository: Option<String>,
    /// The registry's checksum; `None` for packages of this repository.
    checksum: Option<String>,
    needs: BTreeSet<Name>,
}

/// Name and version.
type Name = (String, String);

pub(super) struct Bill {
    root: Name,
    packages: BTreeMap<Name, Package>,
}

impl Bill {
    /// Combines the output of `cargo tree` (with depths), `cargo metadata`, and the lock file.
    pub(super) fn of(tree: &str, metadata: &Value, lock: &str) -> Result<Self> {
        let checksums = checksums(lock);
        let mut packages: BTreeMap<Name, Package> = BTreeMap::new();
        let mut path: Vec<Name> = Vec::new();
        for line in tree.lines().filter(|line| !line.trim().is_empty()) {
            let (depth, name) =
                parsed(line).with_context(|| format!("unexpected line of cargo tree: {line:?}"))?;
            path.truncate(depth);
            if let Some(parent) = path.last().and_then(|parent| packages.get_mut(parent)) {
                parent.needs.insert(name.clone());
            }
            if !packages.contains_key(&name) {
                packages.insert(name.clone(), known(&name, metadata, &checksums)?);
            }
            path.push(name);
        }
        let root = path.into_iter().next().context("cargo tree lists no package")?;
        Ok(Bill { root, packages })
    }

    pub(super) fn version(&self) -> &str {
        &self.root.1
    }

    fn others(&self) -> impl Iterator<Item = (&Name, &Package)> {
        self.packages.iter().filter(|(_, package)| package.checksum.is_some())
    }

    /// Licences of all external packages, with their texts.
    pub(super) fn licences(&self, with_libc: bool) -> Result<String> {
        let mut text = String::from(
            "torchlet contains parts of these packages, under these licences, and parts of Rust's \
             standard library\n(MIT OR Apache-2.0, The Rust Project Contributors).\n",
        );
        if with_libc {
            text.push_str("It is linked with the C library musl (MIT, Rich Felker, et al.).\n");
        }
        for ((name, version), package) in self.others() {
            writeln!(text, "\n{}\n{name} {version}: {}", "=".repeat(80), package.licence)?;
            if let Some(repository) = &package.repository {
                writeln!(text, "{repository}")?;
            }
            for (file, content) in licence_files(Path::new(&package.folder))? {
                writeln!(text, "\n--- {file}\n\n{}", content.trim_end())?;
            }
        }
        Ok(text)
    }

    /// The bill of materials in CycloneDX format.
    pub(super) fn cyclone_dx(&self, time: &str, target: &str) -> Value {
        let reference = |(name, version): &Name| format!("pkg:cargo/{name}@{version}");
        let component = |name: &Name, package: &Package, kind: &str| {
            let mut component = json!({
                "type": kind,
                "bom-ref": reference(name),
                "name": name.0,
                "version": name.1,
                "purl": reference(name),
                "licenses": [{ "expression": package.licence.replace('/', " OR ") }],
            });
            if let Some(checksum) = &package.checksum {
                component["hashes"] = json!([{ "alg": "SHA-256", "content": checksum }]);
            }
            if let Some(url) = &package.repository {
                component["externalReferences"] = json!([{ "type": "vcs", "url": url }]);
            }
            component
        };
        let others = self.packages.iter().filter(|(name, _)| **name != self.root);
        let dependencies = self.packages.iter().map(|(name, package)| {
            let needs: Vec<String> = package.needs.iter().map(reference).collect();
            json!({ "ref": reference(name), "dependsOn": needs })
        });
        json!({
            "bomFormat": "CycloneDX",
            "specVersion": "1.5",
            "version": 1,
            "metadata": {
                "timestamp": date(time.parse().unwrap_or(0)),
                "component": component(&self.root, &self.packages[&self.root], "application"),
                "properties": [{ "name": "target", "value": target }],
            },
            "components": others.map(|(name, package)| component(name, package, "library")).collect::<Vec<_>>(),
            "dependencies": dependencies.collect::<Vec<_>>(),
        })
    }
}

/// Parses depth, name and version from a line of `cargo tree`: `2 half v2.7.0 (*)`.
fn parsed(line: &str) -> Option<(usize, Name)> {
    let mut words = line.split_whitespace();
    let depth = words.next()?.parse().ok()?;
    let name = words.next()?.to_owned();
    let version = words.next()?.strip_prefix('v')?.to_owned();
    Some((depth, (name, version)))
}

/// Checksums of a lock file by name and version.
fn checksums(lock: &str) -> BTreeMap<Name, String> {
    let mut checksums = BTreeMap::new();
    for package in lock.split("[[package]]") {
        let field = |key: &str| {
            let line = package.lines().find_map(|line| line.strip_prefix(key))?;
            Some(line.trim_start_matches([' ', '=']).trim_matches('"').to_owned())
        };
        if let (Some(name), Some(version), Some(sum)) =
            (field("name"), field("version"), field("checksum"))
        {
            checksums.insert((name, version), sum);
        }
    }
    checksums
}

/// Looks up a package in metadata and lock file.
fn known(name: &Name, metadata: &Value, checksums: &BTreeMap<Name, String>) -> Result<Package> {
    let found = metadata["packages"].as_array().into_iter().flatten().find(|package| {
        package["name"].as_str() == Some(&*name.0) && package["version"].as_str() == Some(&*name.1)
    });
    let found = found.with_context(|| format!("cargo metadata does not know {name:?}"))?;
    let text = |key: &str| found[key].as_str().map(str::to_owned);
    let manifest = text("manifest_path").unwrap_or_default();
    let folder = Path::new(&manifest).parent().unwrap_or(Path::new(""));
    Ok(Package {
        licence: text("license").with_context(|| format!("{name:?} has no licence"))?,
        folder: folder.to_string_lossy().into_owned(),
        repository: text("repository"),
        checksum: checksums.get(name).cloned(),
        needs: BTreeSet::new(),
    })
}

/// Licence files of a package, by name, with their contents.
fn licence_files(folder: &Path) -> Result<BTreeMap<String, String>> {
    let mut files = BTreeMap::new();
    for entry in std::fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let upper = name.to_uppercase();
        let is_licence = ["LICENSE", "LICENCE", "COPYING", "COPYRIGHT", "NOTICE", "UNLICENSE"]
            .iter()
            .any(|start| upper.starts_with(start));
        if is_licence && entry.file_type()?.is_file() {
            files.insert(name, String::from_utf8_lossy(&std::fs::read(entry.path())?).into_owned());
        }
    }
    Ok(files)
}

/// Formats Unix time as date and time in UTC.
fn date(seconds: u64) -> String {
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    // Years start in March, so that a leap day is the last day of its year.
    let days = days + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let (year, month) =
        if month < 10 { (era * 400 + year, month + 3) } else { (era * 400 + year + 1, month - 9) };
    let (hour, minute, second) = (rest / 3_600, rest / 60 % 60, rest % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_match_the_calendar() {
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_399, "2000-02-28T23:59:59Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (1_798_761_599, "2026-12-31T23:59:59Z"),
        ] {
            assert_eq!(date(seconds), text);
        }
    }

    #[test]
    fn reverse_dependencies() {
        let tree = "0 torchlet-cli v0.1.0 (/x)\n1 a v1.0.0\n2 b v2.0.0\n1 b v2.0.0 (*)\n";
        let package = |name: &str, version: &str| {
            json!({
                "name": name, "version": version, "license": "MIT/Apache-2.0",
                "manifest_path": "/none/Cargo.toml"
            })
        };
        let metadata = json!({
            "packages": [
                package("torchlet-cli", "0.1.0"), package("a", "1.0.0"), package("b", "2.0.0")
            ]
        });
        let lock = "[[package]]\nname = \"a\"\nversion = \"1.0.0\"\nchecksum = \"12\"\n\n[[package]]\nname = \"b\"\nversion = \"2.0.0\"\n";
        let bill = Bill::of(tree, &metadata, lock).unwrap();
        assert_eq!(bill.version(), "0.1.0");
        let found = bill.cyclone_dx("0", "here");
        assert_eq!(found["components"].as_array().unwrap().len(), 2);
        assert_eq!(found["components"][0]["hashes"][0]["content"], "12");
        assert_eq!(found["components"][0]["licenses"][0]["expression"], "MIT OR Apache-2.0");
        let root = found["dependencies"].as_array().unwrap();
        let needs = |name: &str| {
            root.iter().find(|it| it["ref"] == *name).map(|it| it["dependsOn"].clone())
        };
        let (a, b) = ("pkg:cargo/a@1.0.0", "pkg:cargo/b@2.0.0");
        assert_eq!(needs("pkg:cargo/torchlet-cli@0.1.0"), Some(json!([a, b])));
        assert_eq!(needs(a), Some(json!([b])));
        assert!(Bill::of("nothing", &metadata, lock).is_err());
    }
}
