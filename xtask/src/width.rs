//! The width of comments and of Markdown prose, which rustfmt leaves alone.

use crate::process::{command, output, root};
use anyhow::{Result, ensure};

/// Columns of a line.
const WIDTH: usize = 100;

/// Fails with the comments and the lines of prose that are wider than [`WIDTH`]. Tables, code
/// blocks and lines that cannot be broken, such as addresses, may be wider.
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

/// The numbers of the lines of prose that are too wide.
fn prose(text: &str) -> Vec<usize> {
    wide(text, |line| Some(line))
}

/// The numbers of the comment lines that are too wide.
fn comments(text: &str) -> Vec<usize> {
    let markers = ["///", "//!", "//"];
    wide(text, |line| {
        let line = line.trim_start();
        markers.iter().find_map(|marker| line.strip_prefix(marker))
    })
}

/// The numbers of the lines that are too wide; `prose` returns the prose of a line, if it has any.
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
    fn only_prose_has_to_be_broken() {
        let long = "a word ".repeat(20);
        let text = format!("{long}\n| {long} |\n```\n{long}\n```\n{long}\n{}", "x".repeat(120));
        assert_eq!(prose(&text), [1, 6]);
        let code = format!("    /// {long}\nlet it = \"{long}\";\n// ```\n// {long}\n// ```\n");
        assert_eq!(comments(&code), [1]);
    }
}
