//! Source check of the libraries that parse JSON: assigning to an index of parsed JSON panics if
//! the value has an unexpected type. No lint detects it, so this searches for string literals as
//! indices. The command is not searched: it assigns to objects that it has just created.

use std::path::{Path, PathBuf};

/// Folders with such code, relative to this crate.
const FOLDERS: [&str; 6] =
    ["src", "../graph/src", "../devtools/src", "../src", "../python/src", "../web/src"];

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

/// Whether a line assigns through a string index, or borrows it mutably.
fn changes_by_name(line: &str) -> bool {
    let Some((before, behind)) = line.split_once("[\"") else { return false };
    let Some((_, behind)) = behind.rsplit_once(']') else { return false };
    let behind = behind.trim_start();
    let is_set = behind.starts_with("= ") || behind.starts_with("+= ");
    let is_changed = [".take()", ".as_array_mut()", ".as_object_mut()", ".get_mut("];
    let is_lent = before.rsplit_once("&mut ").is_some_and(|(_, name)| {
        name.chars().all(|letter| letter.is_alphanumeric() || "_.".contains(letter))
    });
    is_set || is_lent || is_changed.iter().any(|change| behind.starts_with(change))
}

#[test]
fn parsed_json_is_not_changed_by_index() {
    for line in [
        "    step[\"type\"] = 1.into();",
        "    rank(&mut file[\"model\"]);",
        "    if let Some(x) = file[\"model\"][\"vocab\"].as_array_mut() {",
        "    match self.definition()[\"function\"][\"parameters\"].take() {",
    ] {
        assert!(changes_by_name(line), "{line}");
    }
    assert!(!changes_by_name("if step[\"type\"] == \"Nmt\" {"));
    let mut found = Vec::new();
    for folder in FOLDERS {
        let before = found.len();
        sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join(folder), &mut found);
        assert!(found.len() > before, "{folder}");
    }
    assert!(found.len() > 200);
    for path in found {
        let text = std::fs::read_to_string(&path).unwrap();
        // Test modules, at the end of files, may do so.
        let text = text.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
        for (number, line) in (1..).zip(text.lines()) {
            assert!(!changes_by_name(line), "{}:{number}: {line}", path.display());
        }
    }
}
