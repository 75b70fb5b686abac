//! Damaged files are refused or lowered without a panic.

use std::path::PathBuf;
use torchlet_core::{BundledProgram, Program, Registry};

/// Deterministic pseudorandom numbers (xorshift).
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % end.max(1) as u64) as usize
    }
}

fn files() -> Vec<PathBuf> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/fixtures/vulkan");
    let mut files = Vec::new();
    for family in std::fs::read_dir(folder).unwrap() {
        let entries = std::fs::read_dir(family.unwrap().path()).unwrap();
        files.extend(entries.map(|entry| entry.unwrap().path()));
    }
    files.retain(|path| path.extension().is_some_and(|kind| kind == "bpte"));
    files.sort();
    files
}

#[test]
fn damaged_programs_are_refused_or_lowered() {
    let registry = Registry::new().with_kernels(&torchlet_portable::KERNELS).unwrap();
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let (mut lowered, mut refused) = (0, 0);
    // Files of each kind have few values; the interesting bytes are near the start and in the
    // delegates.
    for path in files().iter().step_by(3) {
        let bytes = std::fs::read(path).unwrap();
        let bundle = BundledProgram::from_bytes(&bytes).unwrap();
        let original = bundle.program().unwrap();
        for _ in 0..12 {
            let mut damaged = original.to_vec();
            for _ in 0..1 + random.below(4) {
                let at = random.below(damaged.len().min(1 << 13));
                damaged[at] = match random.below(4) {
                    0 => 0,
                    1 => 0xff,
                    2 => damaged[at].wrapping_add(1),
                    _ => random.below(256) as u8,
                };
            }
            let Ok(program) = Program::from_bytes(&damaged) else { continue };
            match torchlet_graph::cpu::to_portable(&program, &[], &registry) {
                Ok(portable) => {
                    lowered += 1;
                    portable.write().unwrap();
                }
                Err(_) => refused += 1,
            }
        }
    }
    assert!(lowered > 100 && refused > 100, "{lowered} lowered, {refused} refused");
}

#[test]
fn state_does_not_multiply_planned_buffers() {
    let registry = Registry::new().with_kernels(&torchlet_portable::KERNELS).unwrap();
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/fixtures/vulkan/state");
    let bytes = std::fs::read(PathBuf::from(folder).join("batch_norm_aliased.bpte")).unwrap();
    let bundle = BundledProgram::from_bytes(&bytes).unwrap();
    let program = Program::from_bytes(bundle.program().unwrap()).unwrap();
    let to_portable = |buffers: usize, methods: usize| {
        let mut many = torchlet_graph::method::Program::read(&program).unwrap();
        let mut method = many.methods.remove(0);
        for number in 0..methods {
            method.name = format!("method{number}");
            many.methods.push(method.clone());
        }
        // One method has many buffers, so the state of all other methods is placed after as many.
        many.methods[0].planned.resize(buffers.max(method.planned.len()), 0);
        let file = many.write().unwrap().to_bytes();
        let program = Program::from_bytes(&file).unwrap();
        let portable = torchlet_graph::cpu::to_portable(&program, &[], &registry);
        portable.map(|it| it.methods.iter().map(|method| method.planned.len()).sum::<usize>())
    };
    assert!(to_portable(0, 3).unwrap() < 20);
    let error = to_portable(100_000, 20).unwrap_err().to_string();
    assert!(error.contains("too many planned buffers"), "{error}");
}
