//! Memory requirements of compiled programs.

use std::path::Path;
use torchlet_core::{BundledProgram, Program, Registry};
use torchlet_graph::{Processors, cpu, method};

/// Fixtures with scratch buffers from the exporter. Scratch buffers are not live between calls, so
/// other tensors may share their memory.
const WITH_SCRATCH: &[&str] =
    &["digits", "image_classification", "keyword_spotting", "visual_wake_words"];

#[test]
fn compiled_networks_plan_no_more_memory_than_exported() {
    let registry = Registry::new().with_kernels(&torchlet_portable::KERNELS).unwrap();
    for name in WITH_SCRATCH {
        let path = Path::new(env!("CARGO_MANIFEST_DIR"));
        let path = path.join(format!("../tests/fixtures/tinyml/{name}.bpte"));
        let file = std::fs::read(path).unwrap();
        let bundle = BundledProgram::from_bytes(&file).unwrap();
        let program = Program::from_bytes(bundle.program().unwrap()).unwrap();
        let planned = |program: &method::Program<'_>| -> usize {
            program.methods.iter().flat_map(|method| method.planned.iter()).sum()
        };
        let before = planned(&method::Program::read(&program).unwrap());
        let compiled = cpu::compile(&program, &[], Processors::NONE, &registry).unwrap();
        let after = planned(&compiled.program);
        assert!(after <= before, "{name}: {after} bytes compiled, {before} bytes exported");
    }
}
