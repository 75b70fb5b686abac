//! Checks the fault injection log of a board: each kind of fault was tried and detected, with a
//! meaningful error message.

use anyhow::{Result, bail, ensure};
use std::collections::BTreeMap;

/// Kinds of faults by the start of the line, with their minimum number.
const KINDS: &[(&str, usize)] = &[
    ("damaged", 4),
    ("truncated to", 6),
    ("arena of", 1),
    ("planned buffer short by", 1),
    ("input", 3),
    ("read", 1),
];

pub(super) fn check(lines: &[String]) -> Result<()> {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    let mut harmless = 0;
    for fault in lines.iter().filter_map(|line| line.strip_prefix("fault: ")) {
        let Some((kind, _)) = KINDS.iter().find(|(kind, _)| fault.starts_with(kind)) else {
            continue;
        };
        *counts.entry(kind).or_default() += 1;
        match fault.split_once(": ") {
            Some((_, error)) => ensure!(error.len() > 8, "an error without a message: {fault}"),
            // Undetectable damage: other weights.
            None if fault.ends_with(" runs") => harmless += 1,
            None => bail!("no error: {fault}"),
        }
    }
    for (kind, least) in KINDS {
        let found = counts.get(kind).copied().unwrap_or(0);
        ensure!(found >= *least, "tested {found} faults `{kind}`, expected at least {least}");
    }
    ensure!(harmless < counts["damaged"], "no damage of the program was detected");
    let all: usize = counts.values().sum();
    println!("  {all} faults, each an error ({harmless} damaged programs run, with other weights)");
    Ok(())
}
