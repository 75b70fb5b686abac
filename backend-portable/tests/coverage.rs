//! Compares [`KERNELS`] with the operator lists of ExecuTorch's kernel libraries and with the
//! missing operators that the README states.

use std::collections::BTreeSet;
use torchlet_portable::KERNELS;

/// Operator names of each library: the lines below `[library]` in the list file.
fn libraries() -> Vec<(&'static str, Vec<&'static str>)> {
    let mut libraries = Vec::new();
    for line in include_str!("executorch_operators.txt").lines() {
        if let Some(name) = line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
            libraries.push((name, Vec::new()));
        } else if !line.starts_with('#') {
            libraries.last_mut().expect("a library's name comes first").1.push(line);
        }
    }
    libraries
}

/// Listed operators that no exporter can emit. PyTorch 2.15 lacks two of them
/// (`torch.ops.aten.conv1d` has two overloads, both without out variants, and `unsqueeze_copy` has
/// no `dim_out`). It always replaces the third by `_native_batch_norm_legit`.
const NOT_EMITTED: [&str; 3] =
    ["aten::conv1d.out", "aten::native_batch_norm.out", "aten::unsqueeze_copy.dim_out"];

/// A name without a namespace belongs to `aten`.
fn has_kernel(name: &str) -> bool {
    let short = name.strip_prefix("aten::").unwrap_or(name);
    KERNELS.iter().any(|kernel| kernel.name == name || kernel.name == short)
}

#[test]
fn support_page_lists_missing_kernels() {
    let missing: BTreeSet<&str> = libraries()
        .into_iter()
        .flat_map(|(_, names)| names)
        .filter(|name| !has_kernel(name))
        .collect();
    let (void, missing): (Vec<&str>, Vec<&str>) =
        missing.into_iter().partition(|name| NOT_EMITTED.contains(name));
    let quoted = |names: &[&str]| {
        let names: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
        if names.is_empty() { "none".into() } else { names.join(", ") }
    };
    let row = format!(
        "| ExecuTorch library operators without a kernel | {}; no exporter writes {}, which the \
         lists also name |",
        quoted(&missing),
        quoted(&void)
    );
    let page = include_str!("../../docs/support.md");
    assert!(page.lines().any(|line| line == row), "docs/support.md lacks this row:\n{row}");
}

#[test]
fn lists_are_complete() {
    let counts: Vec<_> = libraries().iter().map(|(name, names)| (*name, names.len())).collect();
    let expected = [
        ("portable", 211),
        ("optimized", 23),
        ("quantized", 19),
        ("cortex_m", 18),
        ("llm", 11),
        ("aten", 225),
    ];
    assert_eq!(counts, expected);
}
