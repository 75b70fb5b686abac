//! A method needs exactly the memory that it reports, with every kind of storage.

mod common;

use common::{
    Aligned, Arena, CHANGES, EVERY, FILES, Lending, Memory, ReadOnly, exercise, files, kernels,
    program_of,
};
use torchlet_core::error::MemoryKind;
use torchlet_core::{InitError, LoadOptions, MethodMemory, Program};

/// Programs that load with the operators of these tests.
fn programs() -> Vec<String> {
    let mut list = files("programs", ".bpte");
    list.extend(files("digits", ".bpte"));
    list.extend(files("formats", ".bpte"));
    list.retain(|file| !file.contains("external") && !file.contains("training"));
    list.truncate(FILES);
    list
}

/// Loads with one memory `short` bytes too short. Returns the error.
fn load_short<'m>(
    program: &Program<'m>,
    name: &str,
    memory: &'m mut Memory,
    registry: &torchlet_core::Registry<'m>,
    place: MemoryKind,
    short: usize,
) -> Result<(), InitError> {
    let cut = |bytes: &'m mut [u8], here: bool| {
        let len = bytes.len() - if here { short } else { 0 };
        &mut bytes[..len]
    };
    let arena = memory.arena.len() - if place == MemoryKind::Arena { short } else { 0 };
    let planned = memory.planned.iter_mut().enumerate();
    let mut planned: Vec<&'m mut [u8]> = planned
        .map(|(index, buffer)| cut(buffer.bytes_mut(), place == MemoryKind::Planned(index)))
        .collect();
    let memory = MethodMemory {
        arena: &mut memory.arena.bytes_mut()[..arena],
        planned: &mut planned,
        scratch: cut(memory.scratch.bytes_mut(), place == MemoryKind::Scratch),
    };
    program.load_method(name, registry, memory, LoadOptions::default()).map(drop)
}

#[test]
fn one_byte_less_is_an_error_with_the_required_size() {
    let demo = common::backend::Demo::default();
    let named = common::backend::Demo::named("BackendWithNamedDataMap");
    let registry = kernels::registry().with_backend(&demo).unwrap().with_backend(&named).unwrap();
    let mut checked = 0;
    for file in programs() {
        let bytes = program_of(&file);
        let program = Program::from_bytes(bytes.bytes()).unwrap();
        for name in program.method_names().unwrap().map(Result::unwrap) {
            let sizes = Memory::of(&program, name, &registry, &[]).unwrap();
            let mut places = vec![
                (MemoryKind::Arena, sizes.arena.len()),
                (MemoryKind::Scratch, sizes.scratch.bytes().len()),
            ];
            for (index, buffer) in sizes.planned.iter().enumerate() {
                places.push((MemoryKind::Planned(index), buffer.bytes().len()));
            }
            for (place, size) in places {
                let mut memory = sizes.again();
                load_short(&program, name, &mut memory, &registry, place, 0)
                    .unwrap_or_else(|error| panic!("{file} {name}: {error}"));
                for short in [1, size / 2, size].into_iter().take(if cfg!(miri) { 1 } else { 3 }) {
                    if short == 0 || short > size {
                        continue;
                    }
                    let mut memory = sizes.again();
                    let result = load_short(&program, name, &mut memory, &registry, place, short);
                    match result.unwrap_err() {
                        // Memory that is too short for the tables is reported as such.
                        InitError::MemoryTooSmall {
                            memory: MemoryKind::Tables, needed, ..
                        } => {
                            assert_eq!((place, needed), (MemoryKind::Arena, sizes.needs.tables));
                            assert!(size - short < needed);
                        }
                        InitError::MemoryTooSmall { memory, needed, available } => {
                            assert_eq!((memory, needed, available), (place, size, size - short));
                        }
                        // Delegates are created before kernels request scratch memory.
                        other => panic!("{file} {name} {place}: {other}"),
                    }
                    checked += 1;
                }
            }
        }
    }
    assert!(checked > 100 || cfg!(miri), "only {checked}");
}

#[test]
fn misaligned_memory_is_rejected() {
    let bytes = program_of("formats/weights_align_16.pte");
    let program = Program::from_bytes(bytes.bytes()).unwrap();
    let registry = kernels::registry();
    let needs = Memory::of(&program, "forward", &registry, &[]).unwrap();
    for place in 0..3 {
        let enlarge = |memory: &Aligned| Aligned::new(memory.bytes().len() + 8);
        let mut arena = Arena::new(needs.arena.len() + 8);
        let mut scratch = enlarge(&needs.scratch);
        let mut planned: Vec<Aligned> = needs.planned.iter().map(enlarge).collect();
        let shift = |bytes: usize| if place == bytes { 8 } else { 0 };
        let mut planned: Vec<&mut [u8]> =
            planned.iter_mut().map(|buffer| &mut buffer.bytes_mut()[shift(2)..]).collect();
        let memory = MethodMemory {
            arena: &mut arena.bytes_mut()[shift(0)..],
            planned: &mut planned,
            scratch: &mut scratch.bytes_mut()[shift(1)..],
        };
        let error =
            program.load_method("forward", &registry, memory, LoadOptions::default()).unwrap_err();
        assert!(matches!(error, InitError::MemoryMisaligned { .. }), "{error}");
    }
}

#[test]
fn the_number_of_planned_buffers_is_checked() {
    let bytes = program_of("formats/weights_align_16.pte");
    let program = Program::from_bytes(bytes.bytes()).unwrap();
    let registry = kernels::registry();
    let mut memory = Memory::of(&program, "forward", &registry, &[]).unwrap();
    memory.planned.push(Aligned::new(16));
    let error = memory.load(&program, "forward", &registry, LoadOptions::default()).unwrap_err();
    assert!(error.contains("expected 1 planned buffers, found 2"), "{error}");
}

/// Read-only storage, whose constants are copied to the arena, yields the same results as storage
/// that lends.
#[test]
fn results_are_independent_of_storage() {
    let demo = common::backend::Demo::default();
    let named = common::backend::Demo::named("BackendWithNamedDataMap");
    let registry = kernels::registry().with_backend(&demo).unwrap().with_backend(&named).unwrap();
    let mut compared = 0;
    for file in programs() {
        let bytes = program_of(&file);
        let direct = Program::from_bytes(bytes.bytes()).unwrap();
        let expected = exercise(&direct, &registry, &[]);
        let lending = Lending(bytes.bytes());
        let lent = Program::load(&lending).unwrap();
        assert_eq!(exercise(&lent, &registry, &[]), expected, "{file}");
        let reading = ReadOnly(bytes.bytes());
        let error = Program::load(&reading).unwrap_err().to_string();
        assert!(error.contains(&direct.flatbuffer_size().to_string()), "{file}: {error}");
        let mut buffer = Aligned::new(direct.flatbuffer_size());
        let read = Program::load_into(&reading, buffer.bytes_mut()).unwrap();
        assert_eq!(exercise(&read, &registry, &[]), expected, "{file}");
        let mut short = Aligned::new(direct.flatbuffer_size() - 1);
        let error = Program::load_into(&reading, short.bytes_mut()).unwrap_err().to_string();
        assert!(error.contains("too small"), "{file}: {error}");
        compared += usize::from(expected.is_ok());
    }
    assert!(compared > 30 || cfg!(miri), "only {compared}");
}

/// The limit on backward jumps ends non-terminating loops, whatever their target.
#[test]
fn jump_limit_ends_endless_loops() {
    let mut ended = 0;
    for file in ["programs/cond.bpte", "programs/map.bpte", "programs/scan.bpte"].iter().take(FILES)
    {
        let mut bytes = program_of(file);
        let registry = kernels::registry();
        for position in (0..bytes.bytes().len() - 3).step_by(4 * EVERY) {
            let original: [u8; 4] = bytes.bytes()[position..position + 4].try_into().unwrap();
            // Only change small integers, which include jump targets.
            if u32::from_le_bytes(original) > 40 {
                continue;
            }
            for destination in [0u8, 1, 2].into_iter().take(CHANGES) {
                bytes.bytes_mut()[position..position + 4].copy_from_slice(&[destination, 0, 0, 0]);
                let result = Program::from_bytes(bytes.bytes())
                    .map_err(|error| error.to_string())
                    .and_then(|program| exercise(&program, &registry, &[]));
                ended += usize::from(result.is_err_and(|error| error.contains("backward jumps")));
            }
            bytes.bytes_mut()[position..position + 4].copy_from_slice(&original);
        }
    }
    assert!(ended > 0 || cfg!(miri), "no loop was made");
}
