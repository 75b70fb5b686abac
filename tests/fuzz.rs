//! The fuzzer's targets and mutations, without the fuzzer: the same files each time. `cargo xtask fuzz` looks for others.

#![cfg(all(feature = "std", feature = "portable"))]

#[allow(dead_code, unreachable_pub, missing_docs, reason = "a crate of its own elsewhere")]
#[path = "../fuzz/src/lib.rs"]
mod torchlet_fuzz;

use std::path::{Path, PathBuf};
use torchlet_fuzz::targets::{TARGETS, Target, campaign};

/// Files larger than this are left to the fuzzer.
const MAX_SIZE: usize = 20_000;

/// How many files of a kind are tried, and how many are made from each.
const FILES: usize = 40;
const ROUNDS: usize = 160;

/// The fixtures of the target's kind that are small, from one end of the list to the other.
fn seeds(target: &Target) -> Vec<PathBuf> {
    let mut folders = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures")];
    let mut found = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let ending = path.extension().and_then(|ending| ending.to_str()).unwrap_or_default();
            if path.is_dir() {
                folders.push(path);
            } else if target.endings.contains(&ending)
                && path.metadata().unwrap().len() <= MAX_SIZE as u64
            {
                found.push(path);
            }
        }
    }
    found.sort();
    let step = found.len().div_ceil(FILES).max(1);
    found.into_iter().step_by(step).collect()
}

fn try_target(name: &str) {
    let target = TARGETS.iter().find(|target| target.name == name).unwrap();
    let seeds = seeds(target);
    assert!(!seeds.is_empty(), "no fixture for {name}");
    for (seed, path) in (1..).zip(seeds) {
        let bytes = std::fs::read(&path).unwrap();
        let mut random = torchlet_fuzz::mutate::Random::new(seed);
        let mutable = torchlet_fuzz::mutate::mutate(&mut bytes.clone(), &mut random);
        assert!(mutable, "{} shows no structure", path.display());
        campaign(target.run, &bytes, seed, ROUNDS);
    }
}

#[test]
fn load() {
    try_target("load");
}

#[test]
fn load_and_run() {
    try_target("load_and_run");
}

#[test]
fn compile() {
    try_target("compile");
}

#[test]
fn ptd() {
    try_target("ptd");
}

#[test]
fn bpte() {
    try_target("bpte");
}
