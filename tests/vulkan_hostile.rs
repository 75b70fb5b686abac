//! Damaged delegates: an error or a result, never a panic, crash, hang, unbounded memory, or a
//! message of the validation layers (which `cargo xtask test vulkan` checks).
//!
//! Every fixture's blob is damaged in two ways: in arbitrary bytes, and in meaningful fields, with
//! invalid values. `TORCHLET_HOSTILE_ROUNDS` sets the number of rounds for each file,
//! `TORCHLET_HOSTILE_SEED` the random seed.

#![cfg(feature = "vulkan")]

#[path = "vulkan/blob.rs"]
mod blob;
mod common;
#[path = "common/vulkan.rs"]
mod device;

use blob::{Blob, Site};
use common::{Fixture, check_all, fixtures, folder};
use device::{Random, device_is_there};
use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex};
use std::time::{Duration, Instant};
use torchlet::core::{Scalar, ValueMeta};
use torchlet::vulkan::VulkanBackend;
use torchlet::{Limits, Module, RunOn, Tensor, Value};

/// Maximum time for one file: a patched file can be large, and software devices are slow.
const PATIENCE: Duration = Duration::from_secs(120);

fn number(variable: &str, default: usize) -> usize {
    std::env::var(variable).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// Ends the process and prints the file's name if one file takes too long. Hangs could not be
/// reported otherwise.
struct Watchdog(Arc<Mutex<HashMap<std::thread::ThreadId, (String, Instant)>>>);

impl Watchdog {
    fn new() -> Self {
        let running: Arc<Mutex<HashMap<_, (String, Instant)>>> = Arc::default();
        let watched = running.clone();
        std::thread::spawn(move || {
            loop {
                std::thread::sleep(Duration::from_secs(1));
                for (name, begin) in watched.lock().unwrap().values() {
                    if begin.elapsed() > PATIENCE {
                        eprintln!("{name} hangs");
                        std::process::abort();
                    }
                }
            }
        });
        Watchdog(running)
    }

    fn watch(&self, name: String, work: impl FnOnce()) {
        let thread = std::thread::current().id();
        self.0.lock().unwrap().insert(thread, (name, Instant::now()));
        work();
        self.0.lock().unwrap().remove(&thread);
    }
}

/// Loads and runs every method, as far as possible. Returns whether it was loaded, and whether it
/// ran.
fn use_all(bytes: Vec<u8>) -> (bool, bool) {
    // Both memories are limited: a file that allocates a gigabyte is harmless but slow in software.
    static BACKEND: LazyLock<Arc<VulkanBackend>> = LazyLock::new(|| {
        let backend = VulkanBackend::builder().memory_limit(1 << 30);
        Arc::new(backend.timeout(PATIENCE / 2).build())
    });
    let mut limits = Limits::HOST;
    limits.backward_jumps = 100;
    let open = |on| {
        let builder = Module::builder().threads(1).memory_limit(64 << 20).limits(limits);
        let builder = builder.without_default_backends().backend(BACKEND.clone());
        builder.run_on(on).from_bytes(bytes.clone())
    };
    // A program that cannot be compiled may still load as exported.
    let module = open(RunOn::Device("vulkan")).or_else(|_| open(RunOn::AsExported));
    let Ok(mut module) = module else { return (false, false) };
    let Ok(names) = module.method_names() else { return (false, false) };
    let (mut loaded, mut ran) = (false, false);
    for name in names.iter().take(4) {
        if module.load_method(name).is_err() {
            continue;
        }
        loaded = true;
        let Ok(meta) = module.method_meta(name) else { continue };
        let mut inputs = Vec::new();
        for index in 0..meta.input_count().min(16) {
            inputs.push(match meta.input(index) {
                Ok(Some(ValueMeta::Tensor(input))) => {
                    let shape: Vec<usize> =
                        (0..input.info.rank()).map(|dim| input.info.size(dim)).collect();
                    Tensor::ones(input.info.scalar_type, &shape).map_or(Value::None, Value::from)
                }
                Ok(Some(ValueMeta::Scalar(Scalar::Int(value)))) => Value::Int(value),
                Ok(Some(ValueMeta::Scalar(other))) => other.into(),
                _ => Value::None,
            });
        }
        for _ in 0..2 {
            ran |= module.execute(name, inputs.clone()).is_ok();
        }
        let _ = module.reset(name);
    }
    (loaded, ran)
}

fn delegated() -> Vec<Fixture> {
    let needs = |fixture: &Fixture| {
        fixture.backends.iter().any(|name| name == "VulkanBackend") && fixture.data.is_empty()
    };
    fixtures().into_iter().filter(needs).collect()
}

/// Damages each fixture `rounds` times, and prints how many results were loaded and ran.
fn damage(kind: &str, rounds: usize, harm: impl Fn(&Blob, &mut [u8], &mut Random) + Sync) {
    let watchdog = Watchdog::new();
    let seed = number("TORCHLET_HOSTILE_SEED", 1);
    let counts = Mutex::new((0, 0, 0));
    let failures = check_all(&delegated(), |fixture| {
        let original = std::fs::read(folder().join(&fixture.file)).map_err(|e| e.to_string())?;
        let blobs = Blob::find(&original);
        assert!(!blobs.is_empty(), "{} has no blob", fixture.file);
        for round in 0..number("TORCHLET_HOSTILE_ROUNDS", rounds) {
            // Seeded by the file's name, so that a single case can be reproduced.
            let name = format!("{} ({kind} {round})", fixture.file);
            let hash = name.bytes().fold(seed as u64, |hash, byte| {
                (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
            });
            let mut random = Random::new(hash);
            let mut bytes = original.clone();
            let blob = &blobs[random.below(blobs.len())];
            for _ in 0..1 + random.below(2) {
                harm(blob, &mut bytes, &mut random);
            }
            let report = name.clone();
            let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                let mut used = (false, false);
                watchdog.watch(name, || used = use_all(bytes));
                used
            }));
            let (loaded, ran) = outcome.map_err(|_| format!("{report} panicked"))?;
            let mut counts = counts.lock().unwrap();
            counts.0 += 1;
            counts.1 += usize::from(loaded);
            counts.2 += usize::from(ran);
        }
        Ok(())
    });
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    let (all, loaded, ran) = counts.into_inner().unwrap();
    println!("{kind}: {all} files, {loaded} of them loaded, {ran} ran");
    assert!(loaded < all, "no damage was noticed");
}

#[test]
fn damaged_bytes() {
    if !device_is_there() {
        return;
    }
    damage("bytes", 6, |blob, bytes, random| {
        let place = blob.start + random.below(blob.graph_end - blob.start);
        match random.below(4) {
            0 => bytes[place] ^= 1 << random.below(8),
            1 => bytes[place] = random.pick(&[0, 1, 2, 3, 0x7f, 0x80, 0xff]),
            2 => {
                let end = (place + 4).min(blob.end);
                bytes[place..end].fill(random.pick(&[0, 0xff, 0x7f]));
            }
            // Copies a part of the graph over another.
            _ => {
                let count = 4 * (1 + random.below(4));
                let from = blob.start + random.below(blob.graph_end - blob.start - count);
                let place = place.min(blob.end - count);
                bytes.copy_within(from..from + count, place);
            }
        }
    });
}

#[test]
fn damaged_fields() {
    if !device_is_there() {
        return;
    }
    damage("fields", 24, |blob, bytes, random| {
        let Some(site) = random.maybe(&blob.sites) else { return };
        match site {
            Site::Kind(at) => bytes[at] = random.below(14) as u8,
            Site::ElementType(at) => bytes[at] = random.below(10) as u8,
            Site::Size(at) | Site::Count(at) => {
                let sizes = [0, 1, 2, 3, 5, 255, 65_536, i32::MAX as u32, 1 << 31, u32::MAX];
                put(bytes, at, u64::from(random.pick(&sizes)), 4);
            }
            Site::Id(at) => {
                let beyond = [-1i64 as u64, blob.values as u64, i32::MAX as u64, i32::MIN as u64];
                let id = match random.below(4) {
                    0 => random.pick(&beyond),
                    // Another value: of a wrong kind, or not yet defined.
                    _ => random.below(blob.values) as u64,
                };
                put(bytes, at, id, 4);
            }
            Site::Constant(at) => {
                put(bytes, at, random.pick(&[-1i64, 0, 1, 2, 1000, i64::MAX, i64::MIN]) as u64, 4);
            }
            Site::Offset(at) => {
                let offsets = [0, 1, 3, 1 << 20, u64::MAX, u64::MAX - 3, i64::MAX as u64];
                put(bytes, at, random.pick(&offsets), 8);
            }
            Site::Int(at) => {
                let numbers =
                    [0, 1, -1, 2, 3, -3, 7, 100, 65_536, i64::MAX, i64::MIN, i64::from(i32::MAX)];
                put(bytes, at, random.pick(&numbers) as u64, 8);
            }
            Site::Double(at) => {
                let numbers = [0.0, -1.0, 1e30, -1e-30, f64::NAN, f64::INFINITY, f64::MIN];
                put(bytes, at, random.pick(&numbers).to_bits(), 8);
            }
            Site::Short(at) => {
                put(
                    bytes,
                    at,
                    random.pick(&[0i32, 1, -1, 5, 1 << 20, i32::MAX, i32::MIN]) as u64,
                    4,
                );
            }
            // Another operator with the same arguments.
            Site::Name(at) => {
                let room = u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap()) as usize;
                let fitting: Vec<&str> = declared().filter(|name| name.len() <= room).collect();
                let Some(name) = random.maybe(&fitting) else { return };
                put(bytes, at, name.len() as u64, 4);
                bytes[at + 4..at + 4 + name.len()].copy_from_slice(name.as_bytes());
                bytes[at + 4 + name.len()] = 0;
            }
        }
    });
}

/// The names of all operators.
fn declared() -> impl Iterator<Item = &'static str> {
    let list = include_str!("../gpu/src/ops/names.txt");
    list.lines().filter(|line| !line.is_empty() && !line.starts_with('#'))
}

fn put(bytes: &mut [u8], at: usize, value: u64, width: usize) {
    bytes[at..at + width].copy_from_slice(&value.to_le_bytes()[..width]);
}

#[test]
fn truncated_blobs() {
    if !device_is_there() {
        return;
    }
    for file in ["vulkan/model/residual.bpte", "vulkan/program/cache.bpte"] {
        let original = std::fs::read(folder().join(file)).unwrap();
        let blob = &Blob::find(&original)[0];
        for cut in (blob.start..blob.end).step_by((blob.end - blob.start) / 150 + 1) {
            // The file ends there, or is filled with zeros.
            use_all(original[..cut].to_vec());
            let mut bytes = original.clone();
            bytes[cut..blob.end].fill(0);
            use_all(bytes);
        }
    }
}
