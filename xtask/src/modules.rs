//! Checks that the modules of a crate form layers: at most two import each other in a circle.
//!
//! A module is a file. It depends on the modules whose items its paths name: a re-exported item
//! belongs to the module that defines it, and a re-export alone is no dependency of the parent.
//! A module may use its own ancestors, whose private items it sees by design, so these uses are
//! not counted; all others are: parent on child, sibling on sibling, and across the tree. Tests do
//! not count. Paths are found in the text, without compiling it.

mod paths;

use crate::process::root;
use anyhow::{Context, Result, ensure};
use paths::{Path, Source};
use std::collections::{BTreeMap, BTreeSet};

#[derive(clap::Args, Default)]
pub(crate) struct Options {
    /// Also print the imports within each circle
    #[arg(long)]
    explain: bool,
}

/// The crates that are checked.
const CRATES: &[&str] = &["core", "graph", "gpu", "backend-vulkan", "backend-wgpu"];

/// The most modules that may import each other.
const MAX_CIRCLE: usize = 2;

pub(crate) fn run(options: &Options) -> Result<()> {
    let mut count = 0;
    for folder in CRATES {
        let modules = Modules::read(folder)?;
        for circle in &modules.circles() {
            count += 1;
            println!("{folder}: {} modules import each other: {}", circle.len(), circle.join(", "));
            if options.explain {
                modules.explain(circle);
            }
        }
    }
    ensure!(count == 0, "{count} circles of modules; --explain prints the imports");
    Ok(())
}

/// The modules of a crate by path, such as `ops::linear`; the root's path is empty.
struct Modules {
    sources: BTreeMap<Path, Source>,
    /// The modules that each one uses, with the names.
    uses: BTreeMap<Path, BTreeMap<Path, BTreeSet<String>>>,
}

impl Modules {
    fn read(folder: &str) -> Result<Self> {
        let source = root().join(folder).join("src");
        let mut sources = BTreeMap::new();
        let mut open = vec![(Path::new(), source.join("lib.rs"))];
        while let Some((path, file)) = open.pop() {
            let text =
                std::fs::read_to_string(&file).with_context(|| file.display().to_string())?;
            let parsed = Source::parse(&text);
            // `a/mod.rs` and `lib.rs` have their children beside them, `a.rs` in a folder `a`.
            let children = match file.file_stem().and_then(|stem| stem.to_str()) {
                Some("lib" | "mod") => file.with_file_name(""),
                _ => file.with_extension(""),
            };
            for child in &parsed.children {
                let flat = children.join(child).with_extension("rs");
                let nested = children.join(child).join("mod.rs");
                let mut path = path.clone();
                path.push(child.clone());
                open.push((path, if flat.is_file() { flat } else { nested }));
            }
            sources.insert(path, parsed);
        }
        Ok(Self::of(sources))
    }

    fn of(sources: BTreeMap<Path, Source>) -> Self {
        let mut modules = Modules { sources, uses: BTreeMap::new() };
        let mut all = BTreeMap::new();
        for (path, source) in &modules.sources {
            let mut uses: BTreeMap<Path, BTreeSet<String>> = BTreeMap::new();
            for used in source.used(path) {
                let Some((module, name)) = modules.definer(&used, 0) else { continue };
                if !path.starts_with(&module) {
                    uses.entry(module).or_default().insert(name);
                }
            }
            all.insert(path.clone(), uses);
        }
        modules.uses = all;
        modules
    }

    /// The module that defines what a path of this crate names, and the first name in it.
    fn definer(&self, path: &Path, depth: usize) -> Option<(Path, String)> {
        let length =
            (0..=path.len()).rev().find(|length| self.sources.contains_key(&path[..*length]))?;
        let (module, rest) = path.split_at(length);
        let name = rest.first().cloned().unwrap_or_default();
        let exported = self.sources[module].exported(&module.to_vec(), &name);
        match exported.filter(|exported| exported != path && depth < 8) {
            Some(mut exported) => {
                exported.extend(rest.iter().skip(1).cloned());
                self.definer(&exported, depth + 1)
            }
            None => Some((module.to_vec(), name)),
        }
    }

    /// The circles with more than [`MAX_CIRCLE`] modules, largest first.
    fn circles(&self) -> Vec<Vec<String>> {
        let reached: BTreeMap<&Path, BTreeSet<&Path>> =
            self.uses.keys().map(|module| (module, self.reached(module))).collect();
        let mut seen = BTreeSet::new();
        let mut circles = Vec::new();
        for (module, others) in &reached {
            if !others.contains(module) || !seen.insert(*module) {
                continue;
            }
            let together: Vec<&Path> =
                others.iter().copied().filter(|other| reached[*other].contains(module)).collect();
            seen.extend(&together);
            if together.len() > MAX_CIRCLE {
                circles.push(together.iter().map(|path| path.join("::")).collect());
            }
        }
        circles.sort_by_key(|circle: &Vec<String>| std::cmp::Reverse(circle.len()));
        circles
    }

    /// The modules that one uses, directly or through others.
    fn reached<'m>(&'m self, module: &'m Path) -> BTreeSet<&'m Path> {
        let mut open = vec![module];
        let mut found = BTreeSet::new();
        while let Some(module) = open.pop() {
            open.extend(self.uses[module].keys().filter(|used| found.insert(*used)));
        }
        found
    }

    fn explain(&self, circle: &[String]) {
        for (module, uses) in &self.uses {
            let name = module.join("::");
            for (used, names) in uses.iter().filter(|_| circle.contains(&name)) {
                let used = used.join("::");
                if circle.contains(&used) {
                    let names: Vec<&str> = names.iter().map(String::as_str).collect();
                    println!("    {name} -> {used}: {}", names.join(", "));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn circles(files: &[(&str, &str)]) -> Vec<Vec<String>> {
        let path = |name: &str| -> Path {
            name.split("::").filter(|it| !it.is_empty()).map(str::to_owned).collect()
        };
        let sources = files.iter().map(|(name, text)| (path(name), Source::parse(text)));
        Modules::of(sources.collect()).circles()
    }

    #[test]
    fn circles_of_three_are_found() {
        let found = circles(&[
            ("", "mod a; mod b; mod c; mod d;"),
            ("a", "use crate::b::{self, B};"),
            ("b", "use super::c; fn f() { c::g(); }"),
            ("c", "fn g() { crate::a::f(); crate::d::f() }"),
            ("d", "use crate::c::C;"),
        ]);
        assert_eq!(found, [["a", "b", "c", "d"]]);
    }

    #[test]
    fn tests_and_ancestors_do_not_count() {
        let found = circles(&[
            ("", "mod a; mod b; mod c;"),
            ("a", "use crate::b::B;"),
            ("b", "mod x; use crate::c; fn f() { x::f() }"),
            ("b::x", "use super::B; use crate::c::C;"),
            ("c", "#[cfg(test)] mod tests { use crate::a::A; } // use crate::a::A;"),
        ]);
        assert_eq!(found, [[""; 0]; 0]);
    }

    #[test]
    fn reexports_belong_to_their_module() {
        let found = circles(&[
            ("", "pub mod a; mod b; mod c; pub use a::A;"),
            ("a", "mod x; mod y; pub use x::X; pub(crate) use y::{Y as Z, f};"),
            ("a::x", "use crate::b::B;"),
            ("a::y", "use crate::A;"),
            ("b", "use crate::c::C;"),
            ("c", "use crate::a::Z;"),
        ]);
        assert_eq!(found, [[""; 0]; 0]);
        let found = circles(&[
            ("", "mod a; mod b; mod c;"),
            ("a", "mod x; pub use x::X;"),
            ("a::x", "use crate::b::B;"),
            ("b", "use crate::c::C;"),
            ("c", "use crate::a::X;"),
        ]);
        assert_eq!(found, [["a::x", "b", "c"]]);
    }
}
