//! Robustness against malformed files: loading and running either fail or succeed, without panics,
//! overflows, hangs or unbounded memory requests.

mod common;

use common::{
    Aligned, CHANGES, EVERY, FILES, MutationRng, ReadOnly, exercise, files, fixture, kernels,
    program_of,
};
use torchlet_core::{BundledProgram, DataMap, Program, ValueRef};

/// Programs that together cover every kind of value, instruction and data.
const SMALL: &[&str] = &[
    "formats/delegate_segment.pte",
    "formats/delegate_named_data.pte",
    "formats/weights_align_16.pte",
    "programs/cond.bpte",
    "programs/dynamic_two.bpte",
    "programs/many_inputs.bpte",
    "programs/masked_select.bpte",
    "programs/nested_containers.bpte",
    "programs/scan.bpte",
    "programs/state_initialized.bpte",
    "programs/state_shared.bpte",
    "programs/two_methods.pte",
    "programs/zero_dim.bpte",
];

/// Opens, loads and runs a program. Any result is acceptable, as long as the call returns.
fn try_program(bytes: &[u8]) -> Result<Vec<u8>, String> {
    let demo = common::backend::Demo::default();
    let named = common::backend::Demo::named("BackendWithNamedDataMap");
    let registry = kernels::registry().with_backend(&demo).unwrap().with_backend(&named).unwrap();
    let program = Program::from_bytes(bytes).map_err(|error| error.to_string())?;
    exercise(&program, &registry, &[])
}

/// All self-contained programs of the fixtures run with the operators of these tests, so the tests
/// below reach every part of a program.
#[test]
fn original_files_run() {
    let mut count = 0;
    for folder in ["programs", "formats"] {
        for file in files(folder, ".bpte").into_iter().take(FILES) {
            if file.contains("external") || file.contains("training") {
                continue;
            }
            let program = program_of(&file);
            match try_program(program.bytes()) {
                Ok(_) => count += 1,
                // The test operators do not compute the real results.
                Err(error) => {
                    let reasons = [
                        "shape",
                        "rank",
                        "backward jumps",
                        "as many bytes as the viewed tensor",
                        "no memory",
                    ];
                    let known = reasons.iter().any(|reason| error.contains(reason));
                    assert!(known, "{file}: {error}");
                }
            }
        }
    }
    assert!(count > 20 || cfg!(miri), "only {count} run");
}

#[test]
fn truncated_at_every_byte() {
    for file in SMALL.iter().take(FILES) {
        let program = program_of(file);
        let bytes = program.bytes();
        for len in (0..bytes.len()).step_by(EVERY) {
            let cut = Aligned::from(&bytes[..len]);
            // Some fixtures end in padding.
            if bytes[len..].iter().any(|byte| *byte != 0) {
                let _ = try_program(cut.bytes());
            }
        }
        assert!(try_program(Aligned::from(&bytes[..bytes.len() / 2]).bytes()).is_err(), "{file}");
    }
}

#[test]
fn every_byte_changed() {
    for file in SMALL.iter().take(FILES) {
        let mut program = program_of(file);
        for position in (0..program.bytes().len()).step_by(EVERY) {
            let original = program.bytes()[position];
            for changed in
                [0x00, 0xff, 0x7f, 0x80, original ^ 1, original ^ 0x80, original.wrapping_add(4)]
                    .into_iter()
                    .take(CHANGES)
            {
                if changed != original {
                    program.bytes_mut()[position] = changed;
                    let _ = try_program(program.bytes());
                }
            }
            program.bytes_mut()[position] = original;
        }
    }
}

/// Replaces words of the file: arbitrary offsets, lengths and indices.
#[test]
fn every_word_changed() {
    for file in SMALL.iter().take(FILES) {
        let mut program = program_of(file);
        for position in (0..program.bytes().len() - 3).step_by(4 * EVERY) {
            let original: [u8; 4] = program.bytes()[position..position + 4].try_into().unwrap();
            let number = u32::from_le_bytes(original);
            for changed in [
                number.wrapping_add(4),
                number.wrapping_sub(4),
                number.wrapping_mul(2),
                u32::MAX,
                i32::MAX as u32,
                i32::MIN as u32,
                0x10000,
                1,
            ]
            .into_iter()
            .take(CHANGES)
            {
                program.bytes_mut()[position..position + 4].copy_from_slice(&changed.to_le_bytes());
                let _ = try_program(program.bytes());
            }
            program.bytes_mut()[position..position + 4].copy_from_slice(&original);
        }
    }
}

/// Many random changes to every fixture.
#[test]
fn random_damage() {
    let mut random = MutationRng::new(0x5eed);
    let mut list = files("programs", ".bpte");
    list.extend(files("formats", ".bpte"));
    list.push("digits/digits_int8.bpte".to_owned());
    for file in list.into_iter().take(FILES) {
        let original = program_of(&file);
        for _ in 0..(100 / EVERY).max(3) {
            let mut program = original.clone();
            for _ in 0..=random.below(8) {
                random.damage(program.bytes_mut());
            }
            let _ = try_program(program.bytes());
        }
    }
}

#[test]
fn arbitrary_header_fields() {
    for file in ["formats/weights_align_16.pte", "formats/delegate_segment.pte"] {
        let mut program = program_of(file);
        let original = program.clone();
        for field in (8..40).step_by(if cfg!(miri) { 12 } else { 4 }) {
            for value in [u32::MAX, 1, 0, 7, 23, 24, 31, 32, 33, 63, 64, 4096, 1 << 31]
                .into_iter()
                .take(FILES)
            {
                program.bytes_mut()[field..field + 4].copy_from_slice(&value.to_le_bytes());
                let _ = try_program(program.bytes());
                program.bytes_mut().copy_from_slice(original.bytes());
            }
        }
    }
}

#[test]
fn files_of_other_formats() {
    for len in 0..100 {
        assert!(Program::from_bytes(&vec![0; len]).is_err());
        assert!(Program::from_bytes(&vec![0xff; len]).is_err());
        assert!(DataMap::from_bytes(&vec![0xff; len]).is_err());
        assert!(BundledProgram::from_bytes(&vec![0xff; len]).is_err());
    }
    let mut minimal = vec![0u8; 64];
    minimal[4..8].copy_from_slice(b"ET12");
    for root in (0..80u8).step_by(if cfg!(miri) { 13 } else { 1 }) {
        minimal[0] = root;
        let _ = try_program(&minimal);
    }
}

/// Constants at misaligned addresses are copied, with the same results.
#[test]
fn misaligned_bytes_give_the_same_results() {
    for file in ["formats/weights_align_16.pte", "programs/many_dtypes.bpte", "digits/digits.pte"]
        .into_iter()
        .take(if cfg!(miri) { 1 } else { 3 })
    {
        let program = program_of(file);
        let expected = try_program(program.bytes()).unwrap();
        for shift in (1..16).step_by(if cfg!(miri) { 8 } else { 1 }) {
            let mut memory = Aligned::new(program.bytes().len() + shift);
            memory.bytes_mut()[shift..].copy_from_slice(program.bytes());
            assert_eq!(
                try_program(&memory.bytes()[shift..]).unwrap(),
                expected,
                "{file} + {shift}"
            );
        }
    }
}

fn try_external(program: &[u8], data: &[u8]) -> Result<Vec<u8>, String> {
    let registry = kernels::registry();
    let program = Program::from_bytes(program).map_err(|error| error.to_string())?;
    let maps = [DataMap::from_bytes(data).map_err(|error| error.to_string())?];
    for name in maps[0].names().map_err(|error| error.to_string())?.take(100) {
        let name = name.map_err(|error| error.to_string())?;
        let _ = maps[0].layout(name);
        let _ = maps[0].get(name).map(|blob| blob.map(|blob| blob.read(0, &mut [0; 8])));
    }
    exercise(&program, &registry, &maps)
}

#[test]
fn damaged_external_data() {
    let program = fixture("programs/external_a.pte");
    let mut data = fixture("programs/external_a.shared.ptd");
    try_external(program.bytes(), data.bytes()).unwrap();
    for len in (0..data.bytes().len()).step_by(EVERY) {
        let _ = try_external(program.bytes(), Aligned::from(&data.bytes()[..len]).bytes());
    }
    for position in (0..data.bytes().len()).step_by(EVERY) {
        let original = data.bytes()[position];
        for changed in [0, 0xff, 0x7f, original ^ 1, original ^ 0x80, original.wrapping_add(4)]
            .into_iter()
            .take(CHANGES)
        {
            data.bytes_mut()[position] = changed;
            let _ = try_external(program.bytes(), data.bytes());
        }
        data.bytes_mut()[position] = original;
    }
}

#[test]
fn missing_external_data_is_named() {
    let program = fixture("programs/external_a.pte");
    let program = Program::from_bytes(program.bytes()).unwrap();
    let error = exercise(&program, &kernels::registry(), &[]).unwrap_err();
    assert!(error.contains("weight") && error.contains(".ptd"), "{error}");
}

fn try_bundle(bytes: &[u8]) -> Result<usize, String> {
    let text = |error: torchlet_core::ProgramError| error.to_string();
    let bundle = BundledProgram::from_bytes(bytes).map_err(text)?;
    let mut read = bundle.program().map_err(text)?.len();
    for suite in bundle.suites().map_err(text)?.take(100) {
        let suite = suite.map_err(text)?;
        read += suite.method_name().map_err(text)?.len();
        for case in suite.cases().map_err(text)?.take(100) {
            let case = case.map_err(text)?;
            let (inputs, outputs) =
                (case.inputs().map_err(text)?, case.expected_outputs().map_err(text)?);
            for value in inputs.take(100).chain(outputs.take(100)) {
                if let ValueRef::Tensor(tensor) = value.map_err(text)? {
                    read += tensor.bytes().len();
                }
            }
        }
    }
    Ok(read)
}

#[test]
fn damaged_bundles() {
    for file in ["programs/many_inputs.bpte", "programs/two_methods.bpte"].iter().take(FILES) {
        let mut bundle = fixture(file);
        try_bundle(bundle.bytes()).unwrap();
        for len in (0..bundle.bytes().len()).step_by(EVERY) {
            let _ = try_bundle(&bundle.bytes()[..len]);
        }
        for position in (0..bundle.bytes().len()).step_by(EVERY) {
            let original = bundle.bytes()[position];
            for changed in [0, 0xff, 0x7f, original ^ 1, original ^ 0x80, original.wrapping_add(4)]
                .into_iter()
                .take(CHANGES)
            {
                bundle.bytes_mut()[position] = changed;
                let _ = try_bundle(bundle.bytes());
            }
            bundle.bytes_mut()[position] = original;
        }
    }
}

/// Storage with intermittent failures.
#[test]
fn storage_that_fails() {
    use torchlet_core::{DataLoader, ReadError};
    struct Flaky<'a>(&'a [u8], std::sync::Mutex<usize>);
    impl DataLoader for Flaky<'_> {
        fn size(&self) -> u64 {
            self.0.len() as u64
        }
        fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), ReadError> {
            let error = ReadError { offset, len: into.len() };
            let mut left = self.1.lock().map_err(|_| error)?;
            *left = left.checked_sub(1).ok_or(error)?;
            ReadOnly(self.0).read(offset, into)
        }
    }
    let file = program_of("formats/weights_align_16.pte");
    let registry = kernels::registry();
    let mut succeeded = 0;
    for reads in (0..40).rev().step_by(if cfg!(miri) { 35 } else { 1 }) {
        let storage = Flaky(file.bytes(), reads.into());
        let mut buffer = Aligned::new(file.bytes().len());
        let result = Program::load_into(&storage, buffer.bytes_mut())
            .map_err(|error| error.to_string())
            .and_then(|program| exercise(&program, &registry, &[]));
        match result {
            Ok(_) => succeeded += 1,
            Err(error) => assert!(error.contains("cannot read"), "{error}"),
        }
    }
    assert!(succeeded > 0 && succeeded < 40);
}
