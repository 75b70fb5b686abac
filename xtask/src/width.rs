//! Checks the width of comments and of Markdown prose, which rustfmt does not format.

use crate::process::{command, output, root};
use anyhow::{Result, ensure};

/// Maximum number of columns.
const WIDTH: usize = 100;

/// Fails if comments or lines of prose are wider than [`WIDTH`]. Tables, code blocks, and lines
/// without spaces, such as URLs, may be wider.
pub(crate) fn check() -> Result<()> {
    let mut files = command("git", &["ls-files", "-z", "--"]);
    files.args(["*.rs", "*.comp", "*.glsl", "*.md"]);
    let files = String::from_utf8(output(files)?)?;
    let mut wide = Vec::new();
    for file in files.split_terminator('\0') {
        let text = std::fs::read_to_string(root().join(file))?;
        let lines = if file.ends_with(".md") { prose(&text) } else { comments(&text) };
        wide.extend(lines.into_iter().map(|line| format!("{file}:{line}")));
    }
    let count = wide.len();
    ensure!(wide.is_empty(), "{count} lines are wider than {WIDTH} columns:\n{}", wide.join("\n"));
    Ok(())
}

/// Numbers of the Markdown lines that are too wide.
fn prose(text: &str) -> Vec<usize> {
    wide(text, |line| Some(line))
}

/// Numbers of the comment lines that are too wide.
fn comments(text: &str) -> Vec<usize> {
    let markers = ["///", "//!", "//"];
    wide(text, |line| {
        let line = line.trim_start();
        markers.iter().find_map(|marker| line.strip_prefix(marker))
    })
}

/// Numbers of the lines that are too wide; `prose` returns the prose of a line, if any.
fn wide(text: &str, prose: impl Fn(&str) -> Option<&str>) -> Vec<usize> {
    let mut is_code = false;
    let mut found = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let Some(prose) = prose(line).map(str::trim) else {
            is_code = false;
            continue;
        };
        is_code ^= prose.starts_with("```");
        let is_table = prose.starts_with('|');
        let can_break = prose.contains(' ');
        if !is_code && !is_table && can_break && line.chars().count() > WIDTH {
            found.push(number + 1);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_prose_is_checked() {
        let long = "a word ".repeat(20);
        let text = format!("{long}\n| {long} |\n```\n{long}\n```\n{long}\n{}", "x".repeat(120));
        assert_eq!(prose(&text), [1, 6]);
        let code = format!("    /// {long}\nlet it = \"{long}\";\n// ```\n// {long}\n// ```\n");
        assert_eq!(comments(&code), [1]);
    }
}
