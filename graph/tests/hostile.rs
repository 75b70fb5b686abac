//! Damaged files are refused or lowered, whatever is wrong with them.

use std::path::PathBuf;
use torchlet_core::{BundledProgram, Program, Registry};

/// Numbers that look random and are the same each time (xorshift).
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
fn damaged_programs_do_no_harm() {
    let registry = Registry::new().with_kernels(&torchlet_portable::KERNELS).unwrap();
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let (mut lowered, mut refused) = (0, 0);
    // A file of each kind has few values; the bytes that matter are near the front and in the delegates.
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
