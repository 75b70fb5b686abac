//! The fuzzer's targets and mutations without the fuzzer, over a deterministic set of files.
//! `cargo xtask fuzz` searches for others.

#![cfg(all(feature = "std", feature = "portable"))]

#[allow(dead_code, unreachable_pub, missing_docs, reason = "a crate of its own elsewhere")]
#[path = "../fuzz/src/lib.rs"]
mod torchlet_fuzz;

#[cfg(feature = "vulkan")]
#[path = "common/vulkan.rs"]
mod device;

use std::path::{Path, PathBuf};
use torchlet_fuzz::targets::{TARGETS, Target, campaign};

/// Larger files are left to the fuzzer.
const MAX_SIZE: usize = 20_000;

/// Maximum number of seed files of each kind, and minimum number of mutations of each.
const FILES: usize = 40;
const ROUNDS: usize = 160;
/// Minimum number of mutations per target: few seeds have more mutations each.
const MUTATIONS: usize = 2000;

/// Number of mutations of an XNNPACK delegate, and the approximate size of its graph in bytes.
const DAMAGES: usize = 60;
const BLOB: usize = 1200;

/// Number of mutations of each VGF file, and the part of it that is damaged, in bytes.
const VGF_DAMAGES: usize = 340;
const VGF_BYTES: usize = 12_000;

/// Folders of the fixtures.
const FOLDERS: [&str; 6] = [
    "tests/fixtures",
    "devtools/tests/dumps",
    "llm/tests/sounds",
    "llm/tests/tokenizers",
    "llm/tests/templates",
    "llm/tests/schemas",
];

/// Small fixtures of the target's kind, spread evenly over the list.
fn seeds(target: &Target) -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut folders = FOLDERS.map(|folder| root.join(folder)).to_vec();
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

/// Number of mutations per seed.
fn rounds(seeds: usize) -> usize {
    MUTATIONS.div_ceil(seeds).max(ROUNDS)
}

fn try_target(name: &str) {
    let target = TARGETS.iter().find(|target| target.name == name).unwrap();
    let seeds = seeds(target);
    assert!(!seeds.is_empty(), "no fixture for {name}");
    let rounds = rounds(seeds.len());
    for (seed, path) in (1..).zip(seeds) {
        let bytes = std::fs::read(&path).unwrap();
        let mut random = torchlet_fuzz::mutate::Random::new(seed);
        let mutable = torchlet_fuzz::mutate::mutate(&mut bytes.clone(), &mut random);
        assert!(mutable, "{} shows no structure", path.display());
        campaign(target.run, &bytes, seed, rounds);
    }
}

/// Unstructured mutations for tokenizers, archives, sounds and texts: changed, removed and repeated
/// bytes.
#[cfg(any(feature = "llm", feature = "pt2"))]
fn try_without_structure(name: &str, least: usize) {
    let target = TARGETS.iter().find(|target| target.name == name).unwrap();
    let seeds = seeds(target);
    assert!(seeds.len() >= least, "{seeds:?}");
    let rounds = rounds(seeds.len());
    for (seed, path) in (1..).zip(seeds) {
        try_bytes(target.run, &std::fs::read(&path).unwrap(), seed, rounds);
    }
}

#[cfg(any(feature = "llm", feature = "pt2"))]
fn try_bytes(run: fn(&[u8]), original: &[u8], seed: u32, rounds: usize) {
    let mut random = torchlet_fuzz::mutate::Random::new(seed);
    let mut at = |bytes: &[u8]| random.below(bytes.len());
    for round in 0..rounds {
        let mut bytes = original.to_vec();
        for _ in 0..=round % 3 {
            let (from, to) = (at(&bytes), at(&bytes));
            let byte = bytes[from];
            match round % 5 {
                0 => bytes.truncate(from.max(1)),
                1 => bytes.insert(from, byte),
                2 => bytes[to] = byte,
                _ => bytes[from] ^= 1 << (to % 8),
            }
        }
        run(&bytes);
    }
    run(original);
}

/// Moves, duplicates and replaces parts of a text; most results are still valid.
#[cfg(feature = "llm")]
fn try_parts_of_texts(name: &str) {
    let target = TARGETS.iter().find(|target| target.name == name).unwrap();
    let numbers = ["0", "-1", "99999999999", "1e308", "''", "[]", "{}"];
    let seeds = seeds(target);
    let rounds = rounds(seeds.len()) / 2;
    for (seed, path) in (1..).zip(seeds) {
        let text = std::fs::read_to_string(&path).unwrap();
        let parts: Vec<&str> = text.split_inclusive([' ', ',', '\n', '|']).collect();
        let mut random = torchlet_fuzz::mutate::Random::new(seed);
        for _ in 0..rounds {
            let mut changed = parts.clone();
            for _ in 0..=random.below(3) {
                let (from, to) = (random.below(changed.len()), random.below(changed.len()));
                match random.below(4) {
                    0 => changed.swap(from, to),
                    1 => changed.insert(to, changed[from]),
                    2 => changed[to] = numbers[random.below(numbers.len())],
                    _ => drop(changed.remove(from)),
                }
            }
            (target.run)(changed.concat().as_bytes());
        }
    }
}

/// Each target has a test here.
#[test]
fn all_targets_are_tested() {
    let tests = include_str!("fuzz.rs");
    for target in TARGETS {
        assert!(tests.contains(&format!("\nfn {}", target.name)), "{}", target.name);
    }
}

/// Compressed sounds, and uncompressed ones (WAV).
#[test]
#[cfg(feature = "llm")]
fn sounds() {
    try_without_structure("sound", 5);
    let mut wave = b"RIFF\x74\0\0\0WAVEfmt \x10\0\0\0\x01\0\x02\0\x80\x3e\0\0".to_vec();
    wave.extend(b"\0\xfa\0\0\x04\0\x10\0data\x50\0\0\0");
    wave.extend((0..80u8).map(|at| at.wrapping_mul(37)));
    assert!(torchlet::llm::AudioClip::from_bytes(&wave).is_ok());
    try_bytes(torchlet_fuzz::targets::sound, &wave, 1, ROUNDS);
}

#[test]
#[cfg(feature = "llm")]
fn tokenizers() {
    try_without_structure("tokenizer", 5);
}

#[test]
#[cfg(feature = "llm")]
fn templates() {
    try_without_structure("template", 2);
    try_parts_of_texts("template");
}

#[test]
#[cfg(feature = "grammar")]
fn schemas() {
    try_without_structure("schema", 2);
    try_parts_of_texts("schema");
}

#[test]
#[cfg(feature = "pt2")]
fn pt2() {
    try_without_structure("pt2", 4);
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

/// Number of random programs to compare. `TORCHLET_TEST_PROGRAMS` sets a range `FIRST..END` for a
/// longer search.
const PROGRAMS: u32 = 400;

#[test]
fn control_flow() {
    let (first, end) = match std::env::var("TORCHLET_TEST_PROGRAMS") {
        Ok(range) => {
            let (first, end) = range.split_once("..").expect("FIRST..END");
            (first.parse().unwrap(), end.parse().unwrap())
        }
        Err(_) => (0, PROGRAMS),
    };
    for seed in first..end {
        torchlet_fuzz::flow::check(seed, &[torchlet::RunOn::Cpu]);
    }
}

/// Fewer programs, since each needs its shaders compiled.
#[test]
#[cfg(feature = "vulkan")]
fn control_flow_matches_kernels_on_gpus() {
    if !device::device_is_there() {
        return;
    }
    for seed in 0..PROGRAMS / 16 {
        torchlet_fuzz::flow::check(
            seed,
            &[torchlet::RunOn::Device("vulkan"), torchlet::RunOn::Auto],
        );
    }
}

#[test]
fn delegates_for_xnnpack() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/xnnpack");
    let families = std::fs::read_dir(folder).unwrap().map(|family| family.unwrap().path());
    let mut paths: Vec<PathBuf> = families
        .flat_map(|family| std::fs::read_dir(family).unwrap())
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "bpte"))
        .collect();
    paths.sort();
    assert!(paths.len() > 50);
    for (seed, path) in (1..).zip(paths) {
        let bytes = std::fs::read(&path).unwrap();
        let header = bytes.windows(4).position(|window| window == b"XH00").unwrap();
        let mut random = torchlet_fuzz::mutate::Random::new(seed);
        for _ in 0..DAMAGES {
            let mut damaged = bytes.clone();
            for _ in 0..=random.below(2) {
                let end = (header + BLOB).min(bytes.len() - 4);
                let at = header + random.below(end - header);
                let number = [0, 1, 2, 3, 7, 0x7fff_ffff, u32::MAX][random.below(7)];
                match random.below(3) {
                    0 => damaged[at] = damaged[at].wrapping_add(1),
                    1 => damaged[at] ^= 1 << random.below(8),
                    _ => damaged[at..at + 4].copy_from_slice(&number.to_le_bytes()),
                }
            }
            torchlet_fuzz::targets::compile(&damaged);
        }
    }
}

/// Damages anywhere in VGF files and TOSA flatbuffers: header, tables, SPIR-V words, constants.
#[test]
fn vgf_files() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/vgf");
    let mut rounds = 0;
    for (seed, name) in (1..).zip([
        "network/attention_int8",
        "network/convolutions_fp32",
        "network/convolutions_int8",
        "operators/fp32",
        "operators/int16",
        "operators/int8",
        "tosa/fp32",
        "tosa/int8",
    ]) {
        let bytes = std::fs::read(folder.join(format!("{name}.bpte"))).unwrap();
        // The identifier of a TOSA flatbuffer follows an offset.
        let (magic, before) = if name.starts_with("tosa") { (b"TOSA", 4) } else { (b"VGF1", 0) };
        let start = bytes.windows(4).position(|four| four == magic).unwrap() - before;
        let mut random = torchlet_fuzz::mutate::Random::new(seed);
        for round in 0..VGF_DAMAGES {
            let mut damaged = bytes.clone();
            for _ in 0..=random.below(3) {
                // The first modules and tables follow the header.
                let at = start + random.below((bytes.len() - start - 8).min(VGF_BYTES));
                let number = [0, 1, 2, 3, 64, 0x7fff_ffff, u32::MAX][random.below(7)];
                match round % 4 {
                    0 => damaged[at] = damaged[at].wrapping_add(1),
                    1 => damaged[at] ^= 1 << random.below(8),
                    // Ids and lengths are whole words.
                    2 => damaged[at & !3] = (number as u8).wrapping_add(damaged[at]),
                    _ => damaged[at..at + 4].copy_from_slice(&number.to_le_bytes()),
                }
            }
            torchlet_fuzz::targets::compile(&damaged);
            if round % 4 == 3 {
                torchlet_fuzz::targets::load_and_run(&damaged[start..]);
            }
            rounds += 1;
        }
        torchlet_fuzz::targets::compile(&bytes);
    }
    assert!(rounds >= MUTATIONS);
}

#[test]
fn ptd() {
    try_target("ptd");
}

#[test]
fn bpte() {
    try_target("bpte");
}

#[test]
#[cfg(feature = "safetensors")]
fn training() {
    try_target("training");
}

#[test]
fn etdump() {
    try_target("etdump");
}
