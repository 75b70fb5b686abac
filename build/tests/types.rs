//! Restricts the runtime to the element types, algorithm variants and features that the analysis of
//! each fixture found, and checks that the results stay the same: an image leaves out nothing that
//! its programs need.

use std::fs;
use std::path::{Path, PathBuf};
use torchlet_build::{Image, Program, Target};
use torchlet_core::{
    ArenaBlock, BundledProgram, LoadOptions, MethodMemory, Registry, RuntimeFeatures, ScalarType,
    TestCase, ValueRef, select_features,
};
use torchlet_portable::{Types, Variants, record_variants, select_dtypes, select_variants};

/// The bundled programs below a folder.
fn bundled(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => bundled(&path, found),
            false if path.extension().is_some_and(|ending| ending == "bpte") => found.push(path),
            false => {}
        }
    }
}

/// Memory aligned for methods.
fn aligned(bytes: usize) -> &'static mut [u8] {
    let memory = vec![0u8; bytes + torchlet_core::ARENA_ALIGN].leak();
    let from = memory.as_ptr().align_offset(torchlet_core::ARENA_ALIGN);
    &mut memory[from..from + bytes]
}

/// Restricts this thread like an image with these types, features and variants.
fn choose((types, uses, paths): (Types, RuntimeFeatures, Variants)) {
    select_dtypes(types);
    select_features(uses);
    select_variants(paths);
}

const ALL: (Types, RuntimeFeatures, Variants) = (Types::ALL, RuntimeFeatures::ALL, Variants::ALL);

/// Outputs of a method for a test case, as text, or the error; and the features and variants that
/// it used. (Kernels of this machine may choose other variants than those of a microcontroller.)
fn outputs(
    program: &torchlet_core::Program<'static>,
    name: &str,
    case: &TestCase<'_>,
) -> (String, RuntimeFeatures, Variants) {
    let (mut uses, mut paths) = (RuntimeFeatures::NONE, Variants::NONE);
    let mut run = || -> Result<Vec<String>, Box<dyn std::error::Error>> {
        let registry = Registry::new().with_kernels(&torchlet_portable::KERNELS)?;
        let meta = program.method_meta(name)?;
        let options = LoadOptions::default();
        let bytes = meta.table_bytes(&options.limits)?;
        let tables = ArenaBlock::from_static(aligned(bytes));
        let (prepared, taken) = record_variants(|| meta.prepare(tables, &registry, options));
        let prepared = prepared?;
        uses = prepared.uses()?;
        paths = if uses.has(RuntimeFeatures::VARIABLE) { Variants::ALL } else { taken };
        let mut planned = Vec::new();
        for index in 0..meta.planned_buffer_count() {
            planned.push(aligned(meta.planned_buffer_size(index)?));
        }
        let needs = prepared.needs();
        let mut method = prepared.finish(MethodMemory {
            arena: ArenaBlock::from_static(aligned(needs.arena)),
            planned: &mut planned,
            scratch: aligned(needs.scratch),
        })?;
        for (index, input) in case.inputs()?.enumerate() {
            let input = input?;
            if let (ValueRef::Tensor(tensor), true) = (&input, method.input_is_unbound(index)) {
                method.bind_input(index, aligned(tensor.bytes().len()))?;
            }
            method.set_input(index, &input)?;
        }
        for index in 0..method.output_count() {
            if let (true, Some(torchlet_core::ValueMeta::Tensor(tensor))) =
                (method.output_is_unbound(index), meta.output(index)?)
            {
                method.bind_output(index, aligned(tensor.info.nbytes()))?;
            }
        }
        method.execute()?;
        let output = |index| method.output(index).map(|value| format!("{value:?}"));
        Ok((0..method.output_count()).map(output).collect::<Result<_, _>>()?)
    };
    let text = match run() {
        Ok(outputs) => outputs.join("\n"),
        Err(error) => format!("error: {error}"),
    };
    (text, uses, paths)
}

#[test]
fn programs_run_with_only_their_types_and_features() {
    let mut files = Vec::new();
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures");
    for folder in ["ops", "digits", "tinyml", "programs"] {
        bundled(&fixtures.join(folder), &mut files);
    }
    files.sort();
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("types");
    fs::create_dir_all(&folder).unwrap();
    let target = Target::parse("thumbv7em-none-eabihf").unwrap();
    let (mut count, mut fewer, mut lean, mut refused) = (0, 0, 0, 0);
    let mut wrong = Vec::new();
    for path in &files {
        choose(ALL);
        let image = Image::new().program(Program::new(path).name("it"));
        let Ok(written) = image.write_for(&target, &folder) else { continue };
        let types = written.programs[0].1.types;
        let bytes = aligned(fs::read(folder.join("it.pte")).unwrap().len());
        bytes.copy_from_slice(&fs::read(folder.join("it.pte")).unwrap());
        let program = torchlet_core::Program::from_bytes(bytes).unwrap();
        let bundle = fs::read(path).unwrap();
        let bundle = BundledProgram::from_bytes(&bundle).unwrap();
        for suite in bundle.suites().unwrap().flatten() {
            let name = suite.method_name().unwrap();
            let Some(case) = suite.cases().unwrap().flatten().next() else { continue };
            choose(ALL);
            let (all, uses, paths) = outputs(&program, name, &case);
            choose((types, uses, paths));
            let (own, ..) = outputs(&program, name, &case);
            lean += usize::from(
                !uses.has(RuntimeFeatures::CONTROL) && !uses.has(RuntimeFeatures::DELEGATES),
            );
            count += 1;
            // Without any single one of the features that it uses, it is refused. A subset of the
            // programs suffices for this test.
            for bit in (0..32).map(|bit| 1u32 << bit).filter(|_| count % 4 == 0) {
                let (use_bit, path_bit) =
                    (RuntimeFeatures::from_bits(bit), Variants::from_bits(bit));
                let mut less = Vec::new();
                // These features are conservative: scalars from kernels may have fractions, and
                // views may come to overlap outputs.
                let in_case = use_bit == RuntimeFeatures::FLOAT_SCALARS
                    && uses.has(RuntimeFeatures::VARIABLE)
                    || use_bit == RuntimeFeatures::SHARING && uses.has(RuntimeFeatures::VIEWS);
                if uses.has(use_bit) && !in_case {
                    less.push((types, uses.without(use_bit), paths));
                }
                if paths != Variants::ALL && paths.has(path_bit) {
                    less.push((types, uses, Variants::from_bits(paths.bits() & !bit)));
                }
                for less in less {
                    refused += 1;
                    choose(less);
                    let (text, ..) = outputs(&program, name, &case);
                    if !text.starts_with("error: ") {
                        wrong.push(format!("{} without {less:?}: {text}", path.display()));
                    }
                }
            }
            fewer += usize::from(!types.computes(ScalarType::Double));
            if all != own {
                wrong.push(format!("{}: {own}", path.display()));
            }
        }
    }
    fs::remove_dir_all(&folder).unwrap();
    assert!(wrong.is_empty(), "{} of {count} differ:\n{}", wrong.len(), wrong.join("\n"));
    assert!(refused > 200, "{refused} refused");
    assert!(lean > count / 2, "{lean} of {count} programs without jumps and delegates");
    assert!(count > 1000 && fewer > count / 2, "{count} programs, {fewer} without doubles");
}

/// A missing type is an error that names the type, not a wrong result.
#[test]
fn missing_types_are_refused() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures/digits/digits.bpte");
    let bytes = fs::read(path).unwrap();
    let bundle = BundledProgram::from_bytes(&bytes).unwrap();
    let inner = bundle.program().unwrap();
    let program = aligned(inner.len());
    program.copy_from_slice(inner);
    let program = torchlet_core::Program::from_bytes(program).unwrap();
    let suite = bundle.suites().unwrap().next().unwrap().unwrap();
    let case = suite.cases().unwrap().next().unwrap().unwrap();
    select_dtypes(Types::NONE.with_element(ScalarType::Half).with_computed(ScalarType::Half));
    assert!(!outputs(&program, "forward", &case).0.contains("error"));
    select_dtypes(Types::NONE.with_element(ScalarType::Double).with_computed(ScalarType::Double));
    let (error, ..) = outputs(&program, "forward", &case);
    assert!(error.starts_with("error: ") && error.contains("float32"), "{error}");
}
