//! Limits the number of files that name an operator: facts about an operator belong to its
//! description in `graph/src/operators`, its computation to one kernel per backend.

use std::fs;
use std::path::{Path, PathBuf};

/// Crates that know graph operators, beside this one.
const CRATES: [&str; 6] = ["graph", "backend-portable", "gpu", "backend-vulkan", "src", "cli"];

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

/// Returns the files that name an operator, without tests and operator descriptions.
fn naming(operator: &str) -> Vec<PathBuf> {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut all = Vec::new();
    CRATES.iter().for_each(|name| files(&workspace.join(name), &mut all));
    let word = format!("Operator::{operator}");
    let names = |path: &PathBuf| {
        let text = fs::read_to_string(path).unwrap();
        let code = text.split("#[cfg(test)]\nmod ").next().unwrap();
        let mut behind = code.match_indices(&word).map(|(at, _)| &code[at + word.len()..]);
        behind.any(|rest| !rest.starts_with(|c: char| c.is_alphanumeric() || c == '_'))
    };
    let descriptions = workspace.join("graph/src/operators");
    let all = all.into_iter().filter(|path| !path.starts_with(&descriptions));
    all.filter(names).collect()
}

#[test]
fn few_files_name_an_operator() {
    for (operator, most) in [("GELU", GELU), ("CONVOLUTION", CONVOLUTION)] {
        let found = naming(operator);
        assert!(found.len() <= most, "{operator} is named in more than {most} files: {found:#?}");
    }
}
