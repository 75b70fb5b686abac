//! Limits the number of files that name an operator or a device: facts about an operator belong to
//! its description in `graph/src/operators`, its computation to one kernel per backend, and facts
//! about a device to its crate.

use std::fs;
use std::path::{Path, PathBuf};

/// Crates that know graph operators, beside this one.
const CRATES: [&str; 7] =
    ["graph", "backend-portable", "gpu", "backend-vulkan", "backend-wgpu", "src", "cli"];

/// Folders of crates that know no device.
const CRATES_WITHOUT_DEVICES: [&str; 13] = [
    "backend-portable",
    "build",
    "cache",
    "capi",
    "cli",
    "core",
    "devtools",
    "graph",
    "llm",
    "page",
    "python",
    "src",
    "web",
];

/// Files that name Vulkan all the same: the list of devices, and its constant in C; and texts on
/// the formats of ExecuTorch's exporters, which graph's front end also reads.
const NAMING_VULKAN: [&str; 4] =
    ["build/src/analysis.rs", "capi/src/module.rs", "cli/src/containers/mod.rs", "src/devices.rs"];

/// Maximum number of files that name an element-wise function.
const GELU: usize = 4;
/// Maximum number of files that name the operator with the most special cases.
const CONVOLUTION: usize = 8;

fn files(folder: &Path, found: &mut Vec<PathBuf>) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    for entry in entries.map(Result::unwrap) {
        let (path, name) = (entry.path(), entry.file_name());
        if path.is_dir() && name != "tests" && name != "target" {
            files(&path, found);
        } else if path.extension().is_some_and(|it| it == "rs") && name != "tests.rs" {
            found.push(path);
        }
    }
}

fn workspace() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()
}

/// Returns the files of these crates whose code satisfies a condition, without tests.
fn files_with(crates: &[&str], condition: impl Fn(&str) -> bool) -> Vec<PathBuf> {
    let mut all = Vec::new();
    crates.iter().for_each(|name| files(&workspace().join(name), &mut all));
    all.retain(|path| {
        let text = fs::read_to_string(path).unwrap();
        condition(text.split("#[cfg(test)]\nmod ").next().unwrap())
    });
    all
}

/// Returns the files that name an operator, without tests and operator descriptions.
fn naming(operator: &str) -> Vec<PathBuf> {
    let word = format!("Operator::{operator}");
    let names = |code: &str| {
        let mut behind = code.match_indices(&word).map(|(at, _)| &code[at + word.len()..]);
        behind.any(|rest| !rest.starts_with(|c: char| c.is_alphanumeric() || c == '_'))
    };
    let descriptions = workspace().join("graph/src/operators");
    let all = files_with(&CRATES, names).into_iter();
    all.filter(|path| !path.starts_with(&descriptions)).collect()
}

#[test]
fn few_files_name_an_operator() {
    for (operator, most) in [("GELU", GELU), ("CONVOLUTION", CONVOLUTION)] {
        let found = naming(operator);
        assert!(found.len() <= most, "{operator} is named in more than {most} files: {found:#?}");
    }
}

#[test]
fn few_files_name_a_device() {
    let names = |code: &str| {
        let code = code.lines().filter(|line| !line.trim_start().starts_with("//"));
        code.into_iter().any(|line| line.to_lowercase().contains("vulkan"))
    };
    let found = files_with(&CRATES_WITHOUT_DEVICES, names).into_iter();
    let found = found.map(|path| path.strip_prefix(workspace()).unwrap().to_owned());
    let mut found: Vec<PathBuf> = found.filter(|it| !it.starts_with("graph/src/front")).collect();
    found.sort();
    assert_eq!(found, NAMING_VULKAN.map(PathBuf::from));
}
