//! Reading and rewriting a program preserves it.

use std::path::{Path, PathBuf};
use torchlet_core::{BundledProgram, Program};
use torchlet_graph::method;

/// Returns all program files of the fixtures.
fn fixtures() -> Vec<PathBuf> {
    let mut folders = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures")];
    let mut files = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            match path.extension().and_then(|ending| ending.to_str()) {
                _ if path.is_dir() => folders.push(path),
                Some("pte" | "bpte") => files.push(path),
                _ => {}
            }
        }
    }
    assert!(files.len() > 50, "{}", files.len());
    files
}

#[test]
fn programs_stay_the_same() {
    for path in fixtures() {
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
