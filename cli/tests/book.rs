//! Tests of the book: its commands run, its links resolve, and its table of contents is complete.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize().unwrap()
}

/// Chapters by file name, with their texts.
fn chapters() -> Vec<(String, String)> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(root().join("docs")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|ending| ending == "md") {
            let name = path.file_name().unwrap().to_str().unwrap().to_owned();
            found.push((name, std::fs::read_to_string(&path).unwrap()));
        }
    }
    found.sort();
    assert!(found.len() > 10);
    found
}

/// Other pages whose links and developer commands are checked.
const PAGES: &[&str] = &[
    "README.md",
    "CONTRIBUTING.md",
    "DESIGN.md",
    "SECURITY.md",
    "boards/README.md",
    "boards/RECIPE.md",
    "capi/PORTING.md",
    "capi/README.md",
    "java/README.md",
    "llm/README.md",
    "python/README.md",
    "web/README.md",
];

/// The pages outside the book, with their texts.
fn pages() -> impl Iterator<Item = (String, String)> {
    PAGES
        .iter()
        .map(|page| ((*page).to_owned(), std::fs::read_to_string(root().join(page)).unwrap()))
}

/// Lines of code blocks in a language.
fn code(text: &str, language: &str) -> Vec<String> {
    let (mut inside, mut lines) = (false, Vec::new());
    for line in text.lines() {
        match line.strip_prefix("```") {
            Some(opened) => inside = !inside && opened == language,
            None if inside => lines.push(line.to_owned()),
            None => {}
        }
    }
    lines
}

/// Pages beside the book whose commands run.
const COMMANDS: &[&str] = &["README.md", "capi/README.md", "llm/README.md", "python/README.md"];

/// Prefixes of the command in examples.
const CALLS: &[&str] =
    &["torchlet ", "cargo run --release -p torchlet-cli -- ", "python -m torchlet "];

/// Commands of shell blocks; continuation lines are joined.
fn commands(text: &str) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    let mut goes_on = false;
    for line in code(text, "sh") {
        let line = line.split(" #").next().unwrap_or_default().trim();
        let (part, more) = line.strip_suffix('\\').map_or((line, false), |part| (part, true));
        match found.last_mut().filter(|_| goes_on) {
            Some(command) => command.push_str(part),
            None => found.push(part.to_owned()),
        }
        goes_on = more;
    }
    found
}

/// Splits a line into words, without quotes.
fn words(line: &str) -> Vec<String> {
    let (mut words, mut word, mut quote) = (Vec::new(), String::new(), None);
    for letter in line.chars() {
        match (letter, quote) {
            ('"' | '\'', None) => quote = Some(letter),
            (letter, Some(end)) if letter == end => quote = None,
            (' ', None) => words.push(std::mem::take(&mut word)),
            (letter, _) => word.push(letter),
        }
    }
    words.push(word);
    words.retain(|word| !word.is_empty());
    words
}

/// Placeholders for files of the reader in examples.
const READERS_OWN: &[&str] = &["model.pte"];

/// Whether a server starts. It runs until it is stopped.
fn listens(mut serve: Command) -> bool {
    let mut server = serve.args(["--port", "0"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(server.stdout.take().unwrap()).lines();
    let found = lines.any(|line| line.is_ok_and(|line| line.starts_with("listening on http://")));
    server.kill().unwrap();
    server.wait().unwrap();
    found
}

#[test]
fn commands_run() {
    let folder = std::env::temp_dir().join(format!("torchlet-book-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    // Example paths are relative to the root of the repository; output goes to a temporary folder.
    let paths = |line: &str| {
        let words = words(line).into_iter();
        let words = words.map(|word| {
            // `serve` accepts NAME=FILE.
            let (name, path) = word.rsplit_once('=').unwrap_or(("", &word));
            match path.split_once('/') {
                Some(("tests" | "docs" | "llm", _)) => {
                    let name = if name.is_empty() { String::new() } else { format!("{name}=") };
                    format!("{name}{}", root().join(path).display())
                }
                _ => word,
            }
        });
        words.collect::<Vec<_>>()
    };
    let mut count = 0;
    let pages = COMMANDS
        .iter()
        .map(|page| ((*page).to_owned(), std::fs::read_to_string(root().join(page)).unwrap()));
    for (name, text) in chapters().into_iter().chain(pages) {
        for line in commands(&text) {
            let call = CALLS.iter().find_map(|call| line.strip_prefix(call));
            let Some(arguments) = call else { continue };
            if READERS_OWN.iter().any(|file| arguments.split(' ').any(|word| word == *file)) {
                continue;
            }
            let mut command = Command::new(env!("CARGO_BIN_EXE_torchlet"));
            command.current_dir(&folder).env("TORCHLET_COMPILE_CACHE", "off");
            command.args(paths(arguments));
            if arguments.starts_with("serve ") {
                assert!(listens(command), "{name}: {line}");
                count += 1;
                continue;
            }
            let output = command.output().unwrap();
            let error = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{name}: {line}: {error}");
            count += 1;
        }
    }
    std::fs::remove_dir_all(&folder).unwrap();
    assert!(count > 25, "{count} commands");
}

#[test]
fn developer_commands_exist() {
    let known = std::fs::read_to_string(root().join("xtask/src/main.rs")).unwrap();
    for (name, text) in chapters().into_iter().chain(pages()) {
        for (_, behind) in
            text.match_indices("cargo xtask ").map(|(at, found)| text.split_at(at + found.len()))
        {
            let word: String = behind.chars().take_while(char::is_ascii_alphabetic).collect();
            if word.is_empty() && behind.starts_with("--help") {
                continue;
            }
            let mut letters = word.chars();
            let variant = letters.next().map(|first| first.to_ascii_uppercase().to_string());
            let variant = format!("Command::{}{}", variant.unwrap_or_default(), letters.as_str());
            assert!(known.contains(&variant), "{name}: cargo xtask {word}");
        }
    }
}

/// Link targets of a page, except in code blocks.
fn links(text: &str) -> Vec<String> {
    let mut inside = false;
    let lines = text.lines().filter(|line| {
        let fence = line.starts_with("```");
        inside ^= fence;
        !inside && !fence
    });
    let mut found = Vec::new();
    for line in lines {
        for (at, _) in line.match_indices("](") {
            let target = line[at + 2..].split(')').next().unwrap_or_default();
            found.push(target.to_owned());
        }
    }
    found
}

/// The anchor of a heading.
fn anchor(heading: &str) -> String {
    let letters = heading.trim_start_matches('#').trim().to_lowercase();
    let kept = letters.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
    kept.map(|c| if c == ' ' { '-' } else { c }).collect()
}

#[test]
fn links_resolve() {
    let book = chapters().into_iter().map(|(name, text)| (format!("docs/{name}"), text));
    for (page, text) in book.chain(pages()) {
        for link in links(&text) {
            if link.starts_with("http") {
                continue;
            }
            let (path, heading) = link.split_once('#').unwrap_or((&link, ""));
            let target = match path {
                "" => root().join(&page),
                path => root().join(&page).parent().unwrap().join(path),
            };
            assert!(target.exists(), "{page}: {link} leads nowhere");
            if !heading.is_empty() {
                let text = std::fs::read_to_string(&target).unwrap();
                let found =
                    text.lines().any(|line| line.starts_with('#') && anchor(line) == heading);
                assert!(found, "{page}: {link}: no such heading");
            }
        }
    }
}

#[test]
fn contents_have_all_chapters() {
    let summary = std::fs::read_to_string(root().join("docs/SUMMARY.md")).unwrap();
    let listed: BTreeSet<String> = links(&summary).into_iter().collect();
    let written: BTreeSet<String> =
        chapters().into_iter().map(|(name, _)| name).filter(|name| name != "SUMMARY.md").collect();
    assert_eq!(listed, written);
    // Examples in Rust are compiled as doc tests: each chapter with one must be included there.
    let tested = std::fs::read_to_string(root().join("src/lib.rs")).unwrap();
    for (name, text) in chapters() {
        assert!(
            code(&text, "rust").is_empty() || tested.contains(&format!("docs/{name}")),
            "{name}"
        );
    }
}
