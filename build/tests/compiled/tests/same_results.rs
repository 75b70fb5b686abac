//! Compiled programs have the interpreter's results and PyTorch's: int8 programs bit by bit. The
//! interpreter adds floats in another order if its features include SIMD.

use std::fs;
use std::path::Path;
use torchlet::core::{
    ARENA_ALIGN, ArenaBlock, BundledProgram, LoadOptions, MethodMemory, Program, Registry,
    ValueMeta, ValueRef,
};
use torchlet::firmware::Nested;

torchlet::program!(
    digits,
    keyword_spotting,
    image_classification,
    visual_wake_words,
    anomaly_detection,
    digits_float,
    mlp,
    sum_of_views
);

/// Number of random inputs.
const RANDOM: u64 = 6;

/// Memory aligned for methods.
fn aligned(bytes: usize) -> &'static mut [u8] {
    let memory = vec![0u8; bytes + ARENA_ALIGN].leak();
    let from = memory.as_ptr().align_offset(ARENA_ALIGN);
    &mut memory[from..from + bytes]
}

/// Uniform values in -2..2 (a linear congruential generator).
fn random(seed: u64, count: usize) -> Vec<u8> {
    let mut state = seed;
    let mut next = || {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f32 / (1u64 << 22) as f32 - 2.0
    };
    (0..count).flat_map(|_| next().to_le_bytes()).collect()
}

/// Inputs of the test cases of a fixture, whose outputs are PyTorch's, and random inputs, each with
/// the outputs of the interpreter for the lowered program. All are in its memory order. Programs
/// without a fixture have random inputs.
fn cases(name: &str, file: Option<&str>) -> Vec<(Vec<u8>, Vec<u8>)> {
    let bundle = file.map(|file| {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../tests/fixtures").join(file);
        BundledProgram::from_bytes(fs::read(path).unwrap().leak()).unwrap()
    });
    let lowered = Path::new(env!("OUT_DIR")).join("lowered").join(name).with_extension("pte");
    let lowered = fs::read(lowered).unwrap();
    let copy = aligned(lowered.len());
    copy.copy_from_slice(&lowered);
    let program = Program::from_bytes(copy).unwrap();
    let registry = Registry::new().with_kernels(&torchlet::portable::KERNELS).unwrap();
    let meta = program.method_meta("forward").unwrap();
    let Some(ValueMeta::Tensor(input)) = meta.input(0).unwrap() else { panic!("no tensor") };
    let tables = ArenaBlock::from_static(aligned(1 << 18));
    let prepared = meta.prepare(tables, &registry, LoadOptions::default()).unwrap();
    let needs = prepared.needs();
    let arena = ArenaBlock::from_static(aligned(needs.arena));
    let mut planned: Vec<&mut [u8]> = (0..meta.planned_buffer_count())
        .map(|at| aligned(meta.planned_buffer_size(at).unwrap()))
        .collect();
    let scratch = aligned(needs.scratch);
    let memory = MethodMemory { arena, planned: &mut planned, scratch };
    let mut method = prepared.finish(memory).unwrap();
    let mut run = |bytes: &[u8]| {
        let values = words(bytes);
        let mut target = method.input_mut(0).unwrap();
        target.data_mut::<f32>().unwrap().copy_from_slice(&values);
        method.execute().unwrap();
        let ValueRef::Tensor(output) = method.output(0).unwrap() else { panic!("no tensor") };
        output.bytes().to_vec()
    };
    let mut cases = Vec::new();
    if let Some(bundle) = &bundle {
        let suites = bundle.suites().unwrap();
        for case in suites.flat_map(|suite| suite.unwrap().cases().unwrap()) {
            let case = case.unwrap();
            let found = case.inputs().unwrap().next().unwrap().unwrap();
            let expected = case.expected_outputs().unwrap().next().unwrap().unwrap();
            let (ValueRef::Tensor(found), ValueRef::Tensor(expected)) = (found, expected) else {
                panic!("no tensor")
            };
            assert!(found.same_layout_as(&input.info), "{} {}", found.info(), input.info);
            let computed = run(found.bytes());
            // Floating-point results are rounded differently; others are exact.
            if is_float(name) {
                for (computed, expected) in words(&computed).iter().zip(words(expected.bytes())) {
                    assert!((computed - expected).abs() < 1e-4, "{computed} {expected}");
                }
            } else {
                assert_eq!(computed, expected.bytes());
            }
            cases.push((found.bytes().to_vec(), computed));
        }
    }
    assert!(bundle.is_none() || !cases.is_empty());
    for seed in 0..RANDOM {
        let input = random(seed, input.info.numel());
        let expected = run(&input);
        cases.push((input, expected));
    }
    cases
}

/// Whether a program computes in `f32`.
fn is_float(name: &str) -> bool {
    matches!(name, "digits_float" | "mlp")
}

/// Words of `f32` tensors, whose comparison tells zeros and NaN apart.
fn words(bytes: &[u8]) -> Vec<f32> {
    bytes.as_chunks::<4>().0.iter().map(|word| f32::from_le_bytes(*word)).collect()
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}

macro_rules! check {
    ($($name:ident $file:expr),*) => {$(
        #[test]
        fn $name() {
            let mut model = $name::load().unwrap();
            assert!($name::load().is_err(), "the memory is taken once");
            for (input, expected) in cases(stringify!($name), $file) {
                let input = words(&input);
                let [input] = $name::forward::Input0::nested(&input) else {
                    panic!("{} values", input.len())
                };
                let output = model.forward(input).unwrap();
                let output = <$name::forward::Output0>::flat(std::slice::from_ref(output));
                let expected = words(&expected);
                if !is_float(stringify!($name)) {
                    assert_eq!(bits(output), bits(&expected));
                }
                for (computed, expected) in output.iter().zip(&expected) {
                    assert!((computed - expected).abs() <= 1e-5 * expected.abs().max(1.0));
                }
            }
        }
    )*};
}

mod same {
    use super::*;

    check!(
        digits Some("tinyml/digits.bpte"),
        keyword_spotting Some("tinyml/keyword_spotting.bpte"),
        image_classification Some("tinyml/image_classification.bpte"),
        visual_wake_words Some("tinyml/visual_wake_words.bpte"),
        anomaly_detection Some("tinyml/anomaly_detection.bpte"),
        digits_float Some("digits/digits.bpte"),
        mlp Some("tinyml/mlp.bpte"),
        sum_of_views None
    );
}
