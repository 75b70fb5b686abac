//! The paths in the text of a source file.

/// A path from the root of the crate.
pub(super) type Path = Vec<String>;

/// An import: its visibility, its path as written, and the name that it binds.
struct Import {
    is_public: bool,
    path: Path,
    name: String,
}

/// What a source file declares and names.
pub(super) struct Source {
    /// Modules in files of their own.
    pub(super) children: Vec<String>,
    imports: Vec<Import>,
    /// Paths outside of imports, and names that stand alone.
    paths: Vec<Path>,
}

impl Source {
    pub(super) fn parse(text: &str) -> Self {
        let tokens = without_tests(tokens(text));
        let mut source = Source { children: Vec::new(), imports: Vec::new(), paths: Vec::new() };
        let at = |index: usize| tokens.get(index).map_or("", String::as_str);
        let mut index = 0;
        let mut is_public = false;
        while index < tokens.len() {
            match at(index) {
                "pub" => {
                    is_public = true;
                    index += 1;
                    if at(index) == "(" {
                        index += 1 + tokens[index..].iter().take_while(|it| *it != ")").count();
                    }
                    continue;
                }
                "mod" if at(index + 2) == ";" => {
                    source.children.push(tokens[index + 1].clone());
                    index += 2;
                }
                "use" => {
                    let end = index + tokens[index..].iter().take_while(|it| *it != ";").count();
                    let mut rest = &tokens[index + 1..end];
                    tree(&mut rest, &Vec::new(), is_public, &mut source.imports);
                    index = end;
                }
                name if is_name(name) && !matches!(before(&tokens, index), "." | "fn" | "::") => {
                    let mut path = vec![name.to_owned()];
                    while at(index + 1) == "::" && is_name(at(index + 2)) {
                        path.push(tokens[index + 2].clone());
                        index += 2;
                    }
                    source.paths.push(path);
                }
                _ => {}
            }
            is_public = false;
            index += 1;
        }
        source
    }

    /// What a name that this module exports stands for, as a path from the root.
    pub(super) fn exported(&self, own: &Path, name: &str) -> Option<Path> {
        let import = self.imports.iter().find(|import| import.is_public && import.name == name)?;
        self.absolute(own, &import.path)
    }

    /// All paths that the module uses, from the root. `own` is its own path.
    pub(super) fn used(&self, own: &Path) -> Vec<Path> {
        let is_named = |name: &str| self.paths.iter().any(|path| path[0] == name);
        let imported = self.imports.iter().filter(|import| {
            let is_of_child = self.children.contains(&import.path[0]) || import.path[0] == "self";
            !import.is_public || !is_of_child || is_named(&import.name)
        });
        let imported = imported.filter(|import| {
            // An imported module counts where its items are named.
            !self.paths.iter().any(|path| path.len() > 1 && path[0] == import.name)
                || import.name.starts_with(char::is_uppercase)
        });
        let imported = imported.filter_map(|import| self.absolute(own, &import.path));
        let named = self.paths.iter().filter(|path| path.len() > 1).filter_map(|path| {
            let import = self.imports.iter().find(|import| import.name == path[0]);
            match import {
                Some(import) => {
                    let mut full = self.absolute(own, &import.path)?;
                    full.extend(path.iter().skip(1).cloned());
                    Some(full)
                }
                None => self.absolute(own, path),
            }
        });
        imported.chain(named).collect()
    }

    /// A path as written, from the root; `None` if it is not of this crate.
    fn absolute(&self, own: &Path, path: &Path) -> Option<Path> {
        let mut base = own.clone();
        let mut rest = path.as_slice();
        match rest.first()?.as_str() {
            "crate" => {
                base.clear();
                rest = &rest[1..];
            }
            "self" => rest = &rest[1..],
            "super" => {
                while rest.first().is_some_and(|first| first == "super") {
                    base.pop();
                    rest = &rest[1..];
                }
            }
            first if self.children.iter().any(|child| child == first) => {}
            _ => return None,
        }
        base.extend(rest.iter().cloned());
        Some(base)
    }
}

fn before(tokens: &[String], index: usize) -> &str {
    index.checked_sub(1).and_then(|index| tokens.get(index)).map_or("", String::as_str)
}

/// Adds the imports of a use tree, consuming its tokens.
fn tree(tokens: &mut &[String], prefix: &Path, is_public: bool, imports: &mut Vec<Import>) {
    let mut path = prefix.clone();
    let mut name = None;
    while let Some((first, rest)) = tokens.split_first() {
        match first.as_str() {
            "," | "}" => break,
            "{" => {
                *tokens = rest;
                while tokens.first().is_some_and(|token| token != "}") {
                    tree(tokens, &path, is_public, imports);
                    if tokens.first().is_some_and(|token| token == ",") {
                        *tokens = &tokens[1..];
                    }
                }
                *tokens = tokens.get(1..).unwrap_or_default();
                return;
            }
            "as" => {
                name = rest.first().cloned();
                *tokens = rest.get(1..).unwrap_or_default();
                continue;
            }
            "self" if !path.is_empty() => {}
            "::" => {}
            segment => path.push(segment.to_owned()),
        }
        *tokens = rest;
    }
    if let Some(last) = path.last() {
        let name = name.unwrap_or_else(|| last.clone());
        imports.push(Import { is_public, path, name });
    }
}

fn is_name(token: &str) -> bool {
    token.starts_with(|first: char| first.is_alphabetic() || first == '_')
}

/// Removes the items that are compiled for tests alone.
fn without_tests(tokens: Vec<String>) -> Vec<String> {
    let mut kept = Vec::with_capacity(tokens.len());
    let mut rest = tokens.as_slice();
    while let Some((first, behind)) = rest.split_first() {
        let Some(mut length) = test_attribute(rest) else {
            kept.push(first.clone());
            rest = behind;
            continue;
        };
        let mut depth = 0usize;
        for token in &rest[length..] {
            length += 1;
            match token.as_str() {
                "{" | "(" | "[" => depth += 1,
                "}" if depth == 1 => break,
                "}" | ")" | "]" => depth = depth.saturating_sub(1),
                ";" if depth == 0 => break,
                _ => {}
            }
        }
        rest = &rest[length..];
        // `use x::{a, b};` ends with a semicolon behind its braces.
        rest = rest.strip_prefix(&[";".to_owned()]).unwrap_or(rest);
    }
    kept
}

/// The length of an attribute `#[cfg(test)]` or `#[cfg(all(test, ...))]` at the start.
fn test_attribute(tokens: &[String]) -> Option<usize> {
    let length = 1 + tokens.iter().position(|token| token == "]")?;
    let attribute: Vec<&str> = tokens[..length].iter().map(String::as_str).collect();
    let is_test = matches!(
        attribute[..],
        ["#", "[", "cfg", "(", "test", ..] | ["#", "[", "cfg", "(", "all", "(", "test", ..]
    );
    is_test.then_some(length)
}

/// Names, `::` and punctuation, without comments and literals.
fn tokens(text: &str) -> Vec<String> {
    let chars: Vec<char> = text.chars().collect();
    let at = |index: usize| chars.get(index).copied().unwrap_or('\0');
    let mut tokens = Vec::new();
    let mut index = 0;
    while index < chars.len() {
        let first = chars[index];
        if first == '/' && at(index + 1) == '/' {
            index += chars[index..].iter().take_while(|it| **it != '\n').count();
        } else if first == '/' && at(index + 1) == '*' {
            index += 2;
            while index < chars.len() && !(at(index) == '*' && at(index + 1) == '/') {
                index += 1;
            }
            index += 2;
        } else if first == 'r'
            && matches!((at(index + 1), at(index + 2)), ('"', _) | ('#', '"' | '#'))
        {
            let hashes = chars[index + 1..].iter().take_while(|it| **it == '#').count();
            index += 2 + hashes;
            let closes =
                |index: usize| at(index) == '"' && (1..=hashes).all(|by| at(index + by) == '#');
            while index < chars.len() && !closes(index) {
                index += 1;
            }
            index += 1 + hashes;
        } else if first == '"' {
            index += 1;
            while index < chars.len() && at(index) != '"' {
                index += if at(index) == '\\' { 2 } else { 1 };
            }
            index += 1;
        } else if first == '\'' {
            // A character, or a lifetime.
            if at(index + 1) == '\\' {
                index += 3;
                index += 1 + chars[index.min(chars.len())..]
                    .iter()
                    .take_while(|it| **it != '\'')
                    .count();
            } else if at(index + 2) == '\'' {
                index += 3;
            } else {
                index += 1;
                while at(index).is_alphanumeric() || at(index) == '_' {
                    index += 1;
                }
            }
        } else if first.is_alphanumeric() || first == '_' {
            let length =
                chars[index..].iter().take_while(|it| it.is_alphanumeric() || **it == '_').count();
            tokens.push(chars[index..index + length].iter().collect());
            index += length;
        } else if first == ':' && at(index + 1) == ':' {
            tokens.push("::".to_owned());
            index += 2;
        } else {
            if !first.is_whitespace() {
                tokens.push(first.to_string());
            }
            index += 1;
        }
    }
    tokens
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn literals_and_comments_are_skipped() {
        let text = r##"a("x // y", 'c', '\'', '\u{1f}', r#"" z"#) /* b */ &'l d :: e // f"##;
        assert_eq!(tokens(text), ["a", "(", ",", ",", ",", ",", ")", "&", "d", "::", "e"]);
    }

    #[test]
    fn test_items_are_removed() {
        let text = "use a; #[cfg(test)] use b::{c, d}; #[cfg(test)] mod t { fn f() {} } \
                    #[cfg(test)] pub(crate) fn g(x: [u8; 2]) { h() } i";
        assert_eq!(without_tests(tokens(text)).join(" "), "use a ; i");
    }

    #[test]
    fn use_trees_are_flattened() {
        let source = Source::parse("mod y; pub use crate::{a::{self, B as C}, d}; use y::E;");
        let used: Vec<String> =
            source.used(&vec!["x".into()]).iter().map(|path| path.join("::")).collect();
        assert_eq!(used, ["a", "a::B", "d", "x::y::E"]);
        let exported = |name| source.exported(&vec!["x".into()], name).map(|path| path.join("::"));
        assert_eq!(exported("C").as_deref(), Some("a::B"));
        assert_eq!(exported("E"), None);
    }
}
