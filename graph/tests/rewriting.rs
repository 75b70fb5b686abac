//! Reading and rewriting a program preserves it.

mod fixtures;

use std::path::PathBuf;
use torchlet_core::{BundledProgram, Program};
use torchlet_graph::method;

/// Returns all program files of the fixtures.
fn programs() -> Vec<PathBuf> {
    let files = fixtures::files("fixtures", &["pte", "bpte"]);
    assert!(files.len() > 50, "{}", files.len());
    files
}

#[test]
fn programs_stay_the_same() {
    for path in programs() {
        let file = std::fs::read(&path).unwrap();
        let bundle = BundledProgram::from_bytes(&file).ok();
        let bytes = bundle.as_ref().map_or(&file[..], |bundle| bundle.program().unwrap());
        let program = Program::from_bytes(bytes).unwrap();
        let before = method::Program::read(&program).unwrap();
        let package = before.clone().write().unwrap();
        // Loads the pieces, and the file.
        let copy = package.to_bytes();
        for program in [Program::load(&package), Program::from_bytes(&copy)] {
            let after = method::Program::read(&program.unwrap()).unwrap();
            // NaN differs from itself, but equals itself as text.
            if before == before.clone() {
                assert_eq!(after, before, "{}", path.display());
            } else {
                assert_eq!(format!("{after:?}"), format!("{before:?}"), "{}", path.display());
            }
        }
        // Data is borrowed; only the flatbuffer is new. In files without segments, the old
        // flatbuffer also held the data.
        let flatbuffer = program.flatbuffer_size();
        assert!(package.owned_bytes() < flatbuffer * 3 / 2 + 1024, "{}", path.display());
    }
}
