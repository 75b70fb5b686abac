//! Programs that the build script compiled, and cases for them.

use std::fs;
use std::path::Path;
use torchlet::core::{
    ARENA_ALIGN, ArenaBlock, BundledProgram, LoadOptions, MethodMemory, Program, Registry,
    ValueMeta, ValueRef,
};

/// Calls a macro with all programs: module name, whether its results are exact, and the file of
/// its test cases below `tests/fixtures`.
macro_rules! each_program {
    ($callback:ident) => {
        $callback! {
            digits true Some("tinyml/digits.bpte"),
            keyword_spotting true Some("tinyml/keyword_spotting.bpte"),
            image_classification true Some("tinyml/image_classification.bpte"),
            visual_wake_words true Some("tinyml/visual_wake_words.bpte"),
            anomaly_detection true Some("tinyml/anomaly_detection.bpte"),
            sum_of_views true None,
            convolutions true None,
            rows true None,
            digits_float false Some("digits/digits.bpte"),
            digits_channels_last false Some("digits/digits_channels_last.bpte"),
            mlp false Some("tinyml/mlp.bpte"),
            conv1d_all false Some("ops/convolution/conv1d_all.bpte"),
            conv2d_channels_last false Some("ops/convolution/conv2d_channels_last_input.bpte"),
            conv2d_groups false Some("ops/convolution/conv2d_groups.bpte"),
            conv2d_many_channels false Some("ops/convolution/conv2d_many_channels.bpte"),
            conv3d_all false Some("ops/convolution/conv3d_all.bpte"),
            conv3d_depthwise false Some("ops/convolution/conv3d_depthwise.bpte"),
            transposed_groups false
                Some("ops/transposed_convolution/conv_transpose2d_groups.bpte"),
            transposed_many false Some("ops/transposed_of_many_channels/many_uneven.bpte"),
            transposed_volume false
                Some("ops/transposed_convolution/conv_transpose3d_dilation.bpte"),
            linear_4d false Some("ops/linear/linear_4d.bpte"),
            max_pool_ceil false Some("ops/pooling/max_pool2d_ceil_padding.bpte")
        }
    };
}

macro_rules! program {
    ($($name:ident $exact:literal $file:expr),*) => {
        torchlet::program!($($name),*);
    };
}

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
pub(crate) fn cases(name: &str, is_exact: bool, file: Option<&str>) -> Vec<(Vec<u8>, Vec<u8>)> {
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
            if is_exact {
                assert_eq!(computed, expected.bytes());
            } else {
                for (computed, expected) in words(&computed).iter().zip(words(expected.bytes())) {
                    let tolerance = 1e-4 * expected.abs().max(1.0);
                    assert!((computed - expected).abs() < tolerance, "{computed} {expected}");
                }
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

/// Words of `f32` tensors, whose comparison tells zeros and NaN apart.
pub(crate) fn words(bytes: &[u8]) -> Vec<f32> {
    bytes.as_chunks::<4>().0.iter().map(|word| f32::from_le_bytes(*word)).collect()
}

#[allow(dead_code, reason = "not all tests compare words")]
pub(crate) fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}
