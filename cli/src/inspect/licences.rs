//! Licences of named data. ExecuTorch's formats have no licence field, so licences are searched for
//! in the data itself.

use super::describe::malformed;
use crate::failure::Failure;
use crate::terminal::{FAINT, NAME, TITLE, bytes, paint};
use anstream::println;
use serde_json::{Value, json};
use torchlet::Module;
use torchlet::core::Blob;

/// Number of bytes to search: a licence is at the start.
const SEARCHED_BYTES: usize = 1 << 16;

/// Names of licence files.
const FILES: &[&str] = &["license", "licence", "copying", "notice", "copyright"];

/// Titles of well-known licences and their identifiers.
const TITLES: &[(&str, &str)] = &[
    ("apache license", "Apache-2.0"),
    ("mit license", "MIT"),
    ("the mit license", "MIT"),
    ("bsd 3-clause license", "BSD-3-Clause"),
    ("bsd 2-clause license", "BSD-2-Clause"),
    ("mozilla public license", "MPL-2.0"),
    ("gnu lesser general public license", "LGPL"),
    ("gnu general public license", "GPL"),
    ("creative commons", "Creative Commons"),
];

/// Named data, its location, and its licence.
struct Entry {
    location: String,
    name: String,
    bytes: usize,
    licence: Option<String>,
}

/// Lists all named data of the program and of its data files.
pub(crate) fn show(module: &Module, as_json: bool) -> Result<(), Failure> {
    let entries = entries(module)?;
    if as_json {
        let entries = entries.iter().map(|entry| {
            json!({
                "in": entry.location, "name": entry.name, "bytes": entry.bytes,
                "licence": entry.licence
            })
        });
        std::println!("{}", entries.collect::<Value>());
        return Ok(());
    }
    if entries.is_empty() {
        println!("no named data in the program or data files");
    }
    for entry in &entries {
        let licence = entry.licence.as_deref().unwrap_or("no licence found");
        let size = format!("{:>10}", bytes(entry.bytes as u64));
        let (location, licence) = (paint(FAINT, &entry.location), paint(TITLE, licence));
        println!("{size}  {location}  {}  {licence}", paint(NAME, &entry.name));
    }
    Ok(())
}

fn entries(module: &Module) -> Result<Vec<Entry>, Failure> {
    let mut entries = Vec::new();
    let mut add = |location: String, name: &str, blob: Option<Blob<'_>>| {
        let bytes = blob.as_ref().map_or(0, Blob::size);
        let licence = blob.and_then(|blob| licence(name, &blob));
        entries.push(Entry { location, name: name.into(), bytes, licence });
    };
    let program = module.program();
    for name in program.data_names().map_err(malformed)? {
        let name = name.map_err(malformed)?;
        add("program".into(), name, program.named_data(name).map_err(malformed)?);
    }
    for (number, map) in module.data().iter().enumerate() {
        for name in map.names().map_err(malformed)? {
            let name = name.map_err(malformed)?;
            add(format!("data file {number}"), name, map.get(name).map_err(malformed)?);
        }
    }
    Ok(entries)
}

/// Searches data for a licence.
fn licence(name: &str, blob: &Blob<'_>) -> Option<String> {
    let mut front = vec![0; blob.size().min(SEARCHED_BYTES)];
    blob.read(0, &mut front).ok()?;
    of_text(name, &String::from_utf8_lossy(&front))
}

fn of_text(name: &str, text: &str) -> Option<String> {
    let marked = text.split_once("SPDX-License-Identifier:").map(|(_, behind)| behind);
    if let Some(identifier) = marked.and_then(|behind| behind.lines().next()) {
        let is_part = |c: char| c.is_ascii_alphanumeric() || " .+-()".contains(c);
        let end = identifier.find(|c| !is_part(c)).unwrap_or(identifier.len());
        return Some(identifier.get(..end)?.trim().to_owned()).filter(|found| !found.is_empty());
    }
    // Binary data is not searched, to avoid false matches.
    if text.contains(['\0', '\u{FFFD}']) {
        return None;
    }
    if let Ok(Value::Object(object)) = serde_json::from_str(text) {
        let licence = object.get("license").or_else(|| object.get("licence"));
        return licence.and_then(Value::as_str).map(str::to_owned);
    }
    let first = text.lines().map(str::trim).find(|line| !line.is_empty())?;
    let lower = first.to_lowercase();
    if let Some((_, identifier)) = TITLES.iter().find(|(title, _)| lower.starts_with(title)) {
        return Some((*identifier).to_owned());
    }
    let file =
        name.rsplit(['/', '.', ':']).find(|part| !["txt", "md"].contains(part))?.to_lowercase();
    let is_licence = FILES.iter().any(|known| file.starts_with(known));
    is_licence.then(|| first.chars().take(80).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn licences_are_found_in_data() {
        let found = |name, text| of_text(name, text);
        assert_eq!(
            found("a.py", "# SPDX-License-Identifier: MIT OR Apache-2.0\nx").as_deref(),
            Some("MIT OR Apache-2.0")
        );
        assert_eq!(found("x", "\n  Apache License\n Version 2.0").as_deref(), Some("Apache-2.0"));
        assert_eq!(found("config.json", r#"{"license":"llama3.2"}"#).as_deref(), Some("llama3.2"));
        assert_eq!(found("model/LICENSE.txt", "Use it well.").as_deref(), Some("Use it well."));
        assert_eq!(found("model/weights", "Use it well."), None);
        assert_eq!(found("LICENSE", "a\0b"), None);
        assert_eq!(found("LICENSE", ""), None);
    }
}
