//! Compute segments of VGF files: they run as they are, only with the caller's permission.
//! `tests/export/vgf_shaders.py` writes the files.

use crate::device::device_is_there;
use std::path::Path;
use torchlet::core::Registry;
use torchlet::graph::{self, Processors};
use torchlet::portable::KERNELS;
use torchlet::{Module, ModuleBuilder, RunOn, Tensor, Value};

fn file(name: &str) -> Vec<u8> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/vgf_shaders");
    std::fs::read(folder.join(name)).unwrap()
}

fn allowed() -> ModuleBuilder {
    Module::builder().threads(1).run_on(RunOn::Device("vulkan")).allow_foreign_shaders(true)
}

fn run(name: &str, inputs: &[Tensor]) -> Vec<f32> {
    let mut module = allowed().from_bytes(file(name)).unwrap();
    let inputs: Vec<Value> = inputs.iter().map(|it| Value::from(it.clone())).collect();
    // The second run finds memory that the first one left.
    module.forward(inputs.as_slice()).unwrap();
    let outputs = module.forward(inputs.as_slice()).unwrap();
    outputs[0].tensor().unwrap().to_vec::<f32>().unwrap()
}

fn counted(sizes: &[usize]) -> Tensor {
    let count = sizes.iter().product::<usize>();
    Tensor::from_vec(sizes, (0..count).map(|at| at as f32 - 7.0).collect::<Vec<f32>>()).unwrap()
}

#[test]
fn buffers_of_two_sets_and_push_constants() {
    if !device_is_there() {
        return;
    }
    let x = counted(&[3, 5]);
    let other: Vec<f32> = (0..15).map(|at| 100.0 * at as f32).collect();
    let outputs = run("buffers.vgf", &[x, Tensor::from_vec(&[3, 5], other).unwrap()]);
    let expected: Vec<f32> =
        (0..15).map(|at| 2.0 * (at as f32 - 7.0) + 100.0 * at as f32).collect();
    assert_eq!(outputs, expected);
}

#[test]
fn images_with_a_sampler() {
    if !device_is_there() {
        return;
    }
    let outputs = run("image.vgf", &[counted(&[1, 3, 4, 4])]);
    let mut expected = Vec::new();
    for (row, column) in (0..6).flat_map(|row| (0..8).map(move |column| (row, column))) {
        let texel = (row / 2) * 4 + column / 2;
        expected.extend((0..4).map(|channel| (texel * 4 + channel) as f32 - 7.0));
    }
    assert_eq!(outputs, expected);
}

#[test]
fn alias_groups_between_a_graph_and_shaders() {
    if !device_is_there() {
        return;
    }
    let outputs = run("alias.vgf", &[counted(&[4, 4, 4])]);
    let mut expected = Vec::new();
    for (row, column) in (0..4).flat_map(|row| (0..4).map(move |column| (row, column))) {
        let at = |channel: i32| (column * 4 + row) * 4 + channel;
        expected.extend((0..4).map(|channel| ((at(channel) - 7).abs() + at(channel)) as f32));
    }
    assert_eq!(outputs, expected);
}

#[test]
fn a_result_as_a_buffer_is_an_image_of_the_next_shader() {
    if !device_is_there() {
        return;
    }
    let outputs = run("buffer_then_image.vgf", &[counted(&[4, 4, 4])]);
    let expected: Vec<f32> = (0..64).map(|at| 2.0 * at as f32 - 7.0).collect();
    assert_eq!(outputs, expected);
}

#[test]
fn an_image_has_the_usage_of_all_shaders() {
    if !device_is_there() {
        return;
    }
    // At the centers of texels, linear filters do nothing.
    let outputs = run("image_then_sampled.vgf", &[counted(&[4, 4, 4])]);
    let expected: Vec<f32> = (0..64).map(|at| at as f32 - 7.0).collect();
    assert_eq!(outputs, expected);
    let why = why(allowed(), file("filtered_integers.vgf"));
    assert!(why.contains("\"same\"") && why.contains("linear filters"), "{why}");
}

#[test]
fn resources_that_are_read_and_written_are_refused() {
    for (name, expected) in [
        ("update.vgf", "a compute shader that updates resource 1"),
        ("aliased_inputs.vgf", "alias group 3 has 2 inputs"),
    ] {
        let why = why(allowed(), file(name));
        assert!(why.contains(expected), "{name}: {why}");
    }
}

#[test]
fn shared_memory_and_push_constants_within_limits() {
    if !device_is_there() {
        return;
    }
    let outputs = run("shared.vgf", &[counted(&[64])]);
    let value = |at: i32| (if at % 2 == 1 { 7 - at } else { at - 7 }) as f32;
    let expected: Vec<f32> = (0..64).map(|at| value(63 - at)).collect();
    assert_eq!(outputs, expected);
}

/// The only `len` words of a file that are wanted.
fn words_at(name: &str, len: usize, is_wanted: impl Fn(&[u32]) -> bool) -> Vec<u32> {
    let bytes = file(name);
    let words: Vec<u32> =
        bytes.as_chunks::<4>().0.iter().map(|it| u32::from_le_bytes(*it)).collect();
    let found: Vec<&[u32]> = words.windows(len).filter(|it| is_wanted(it)).collect();
    assert_eq!(found.len(), 1);
    found[0].to_vec()
}

#[test]
fn modules_beyond_the_limits_are_refused() {
    if !device_is_there() {
        return;
    }
    let constant =
        |value: u32| words_at("shared.vgf", 4, |it| it[0] == 4 << 16 | 43 && it[3] == value);
    let with = |mut words: Vec<u32>, at: usize, value: u32| {
        words[at] = value;
        words
    };
    // Words of `OpMemberDecorate` and `OpDecorate`.
    let member = |kind: u32, value: u32| {
        words_at("shared.vgf", 5, |it| it[0] == 5 << 16 | 72 && it[3..] == [kind, value])
    };
    let built_in = words_at("shared.vgf", 4, |it| it[0] == 4 << 16 | 71 && it[2..] == [11, 25]);
    let import = words_at("shared.vgf", 3, |it| it[..2] == [2 << 16 | 17, 1]);
    assert_eq!(import[2], 6 << 16 | 11);
    let mode = words_at("shared.vgf", 7, |it| it[0] == 6 << 16 | 16 && it[2] == 17);
    let cases = [
        // Elements of the array in shared memory: 2 GiB, and more than 32 bits.
        (constant(96), with(constant(96), 3, 1 << 26), "shared memory"),
        (constant(96), with(constant(96), 3, u32::MAX), "shared memory"),
        // The constant that replaces the execution mode's workgroup size.
        (constant(64), with(constant(64), 3, 1 << 20), "a workgroup of [1048576, 1, 1]"),
        (constant(64), with(constant(64), 0, 4 << 16 | 52), "not three integer constants"),
        (built_in.clone(), with(built_in.clone(), 0, 4 << 16 | 332), "another instruction"),
        (built_in.clone(), with(built_in.clone(), 0, 4 << 16 | 74), "groups of decorations"),
        // The range of push constants; the layout of their block.
        (vec![0x20, 60], vec![0x20, 56], "60 bytes of push constants"),
        (constant(5), with(constant(5), 3, 20_000), "80000 bytes of push constants"),
        (member(35, 32), with(member(35, 32), 4, 36), "64 bytes of push constants"),
        (member(7, 16), with(member(7, 16), 4, u32::MAX), "bytes of push constants"),
        (member(7, 16), with(member(7, 16), 3, 24), "layout is unknown"),
        // Lengths of instructions.
        (import.clone(), with(import, 0, 8 << 16 | 17), "an instruction 17 of 8 words"),
        (built_in.clone(), with(built_in, 0, 7 << 16 | 71), "decoration of another length"),
        (mode.clone(), with(mode, 0, 9 << 16 | 16), "an instruction 16 of 9 words"),
    ];
    for (from, to, expected) in cases {
        let why = why(allowed(), patched("shared.vgf", &from, &to));
        assert!(why.contains(expected) && why.contains("\"shared\""), "{expected}: {why}");
    }
}

#[test]
fn writes_to_inputs_are_lost() {
    if !device_is_there() {
        return;
    }
    // The first shader adds 1000 to its input and returns the sum; the second one computes twice
    // the input plus that sum. A second run finds the same input.
    let outputs = run("written_input.vgf", &[counted(&[64])]);
    let expected: Vec<f32> = (0..64).map(|at| 3.0 * (at as f32 - 7.0) + 1000.0).collect();
    assert_eq!(outputs, expected);
}

#[test]
fn device_memory_is_limited() {
    if !device_is_there() {
        return;
    }
    // Two tensors of 256 bytes, and one of 64 MiB.
    let outputs = run("large.vgf", &[counted(&[64])]);
    let expected: Vec<f32> = (0..64).map(|at| 3.0 * at as f32 - 7.0).collect();
    assert_eq!(outputs, expected);
    let needed = (64 << 20) + 2 * 256;
    // Host memory is limited first, but needs less.
    let why = why(allowed().memory_limit(1 << 20), file("large.vgf"));
    let expected = "VGF segment 0 (\"first\"): a tensor of 67108864 bytes beside 256 bytes exceeds \
                    `ModuleBuilder::memory_limit`, 1048576 bytes";
    assert!(why.contains(expected), "{why}");
    // The staging memory of the input and the output counts, too.
    for (limit, fits) in [(needed + 511, false), (needed + 512, true)] {
        let opened = allowed().memory_limit(limit).from_bytes(file("large.vgf"));
        let loaded = opened.and_then(|mut it| it.load_method("forward"));
        assert_eq!(loaded.is_ok(), fits, "{limit}: {loaded:?}");
    }
    // An image needs memory beside its buffer.
    let outputs = run("large_image.vgf", &[counted(&[64])]);
    assert_eq!(outputs[..4], [-7.0, -5.0, -3.0, -1.0]);
    let why = self::why(allowed().memory_limit(24 << 20), file("large_image.vgf"));
    assert!(why.contains("segment 1 (\"same\"): an image of 16777216 bytes beside"), "{why}");
}

#[test]
fn variables_of_invocations_are_limited() {
    if !device_is_there() {
        return;
    }
    let outputs = run("local.vgf", &[counted(&[64])]);
    let expected: Vec<f32> = (0..64).map(|at| 56.0 - at as f32).collect();
    assert_eq!(outputs, expected);
    // The length of the array.
    let from = words_at("local.vgf", 4, |it| it[0] == 4 << 16 | 43 && it[3] == 80);
    for (len, expected) in [(1 << 14, "private and local variables"), (u32::MAX, "variables")] {
        let mut to = from.clone();
        to[3] = len;
        let why = why(allowed(), patched("local.vgf", &from, &to));
        assert!(why.contains(expected) && why.contains("the limit is 65536"), "{why}");
    }
}

#[test]
fn image_formats_match_the_resource() {
    if !device_is_there() {
        return;
    }
    // `OpTypeImage` of the storage image in rgba32f, and of the sampled one.
    let is_image = |sampled: u32| move |it: &[u32]| it[0] == 9 << 16 | 25 && it[7] == sampled;
    let stored = words_at("image.vgf", 9, is_image(2));
    let sampled = words_at("image.vgf", 9, is_image(1));
    assert_eq!((stored[8], sampled[8]), (1, 0));
    let integer = words_at("image.vgf", 4, |it| it[0] == 4 << 16 | 21 && it[3] == 1)[1];
    let with = |words: &[u32], at: usize, value: u32| {
        let mut words = words.to_vec();
        words[at] = value;
        words
    };
    let cases = [
        (with(&stored, 8, 4), &stored, "declares image format 4, the resource has 1"),
        (with(&stored, 8, 0), &stored, "a storage image without a format"),
        (with(&stored, 2, integer), &stored, "signed 32-bit integers, the resource has 32-bit fl"),
        (with(&stored, 2, 1), &stored, "of another type, the resource has 32-bit floats"),
        (with(&sampled, 8, 2), &sampled, "declares image format 2, the resource has 1"),
        (with(&sampled, 2, integer), &sampled, "signed 32-bit integers"),
    ];
    for (to, from, expected) in cases {
        let why = why(allowed(), patched("image.vgf", from, &to));
        assert!(why.contains(expected) && why.contains("\"larger\""), "{expected}: {why}");
    }
    let right = why(allowed(), patched("image.vgf", &sampled, &with(&sampled, 8, 1)));
    assert_eq!(right, "");
}

#[test]
fn lowered_shaders_need_permission_again() {
    if !device_is_there() {
        return;
    }
    let source = Module::builder().run_on(RunOn::AsExported);
    let source = source.from_bytes(file("buffers.vgf")).unwrap();
    let api = torchlet::DEVICE_APIS.iter().find(|api| api.name() == "vulkan").unwrap();
    let target = api.shader_target(None).unwrap();
    let targets = [&*target];
    let registry = Registry::new().with_kernels(&KERNELS).unwrap();
    let processors = Processors::preferring(&targets);
    let program = source.program();
    let compiled = graph::compile(&program, source.data(), processors, &registry).unwrap();
    let lowered = compiled.program.write().unwrap().to_bytes();
    let plain = || Module::builder().threads(1).run_on(RunOn::AsExported);
    let refused = why(plain(), lowered.clone());
    assert!(refused.contains("which the caller does not allow"), "{refused}");
    let option = plain().backend_option("VulkanBackend", "foreign_shaders", false);
    let refused = why(option, lowered.clone());
    assert!(refused.contains("which the caller does not allow"), "{refused}");
    assert_eq!(why(plain().allow_foreign_shaders(true), lowered), "");
}

fn why(builder: ModuleBuilder, bytes: Vec<u8>) -> String {
    let opened = builder.from_bytes(bytes).and_then(|mut it| it.load_method("forward"));
    opened.err().map(|error| error.to_string()).unwrap_or_default()
}

#[test]
fn shaders_need_permission_and_a_device() {
    for processor in [RunOn::Auto, RunOn::Cpu, RunOn::Device("vulkan")] {
        let builder = Module::builder().run_on(processor);
        let why = why(builder, file("buffers.vgf"));
        let expected = "VGF segment 0 (\"add_twice\") is a compute shader";
        assert!(why.contains(expected) && why.contains("allow_foreign_shaders"), "{why}");
    }
    let builder = Module::builder().run_on(RunOn::Cpu).allow_foreign_shaders(true);
    let why = why(builder, file("alias.vgf"));
    assert!(why.contains("VGF segment 1 (\"count\")") && why.contains("only on Vulkan"), "{why}");
}

#[test]
fn source_code_is_refused_with_the_way_out() {
    let why = why(allowed(), file("glsl.vgf"));
    assert!(why.contains("VGF segment 0 (\"count\")") && why.contains("glslc"), "{why}");
}

/// Replaces words of a file.
fn patched(name: &str, from: &[u32], to: &[u32]) -> Vec<u8> {
    let bytes = |words: &[u32]| words.iter().flat_map(|it| it.to_le_bytes()).collect::<Vec<u8>>();
    let (mut file, from, to) = (file(name), bytes(from), bytes(to));
    let places: Vec<usize> =
        (0..file.len() - from.len()).filter(|at| file[*at..].starts_with(&from)).collect();
    assert_eq!(places.len(), 1, "{from:?}");
    file[places[0]..places[0] + to.len()].copy_from_slice(&to);
    file
}

#[test]
fn modules_that_do_not_fit_are_refused() {
    if !device_is_there() {
        return;
    }
    const MAIN: u32 = u32::from_le_bytes(*b"main");
    let cases: &[(&[u32], &[u32], &str)] = &[
        // Capabilities: 64-bit floats, tensors.
        (&[2 << 16 | 17, 1], &[2 << 16 | 17, 10], "capability 10"),
        (&[2 << 16 | 17, 1], &[2 << 16 | 17, 4174], "VK_ARM_tensors"),
        // The version, and an instruction without words.
        (&[0x0723_0203, 0x0001_0300], &[0x0723_0203, 0x0009_0000], "SPIR-V 9.0"),
        (&[2 << 16 | 17, 1], &[17, 1], "truncated instruction"),
        (&[2 << 16 | 17, 1], &[60_000 << 16 | 17, 1], "truncated instruction"),
        // The entry point's name, and its workgroup size.
        (&[0x0723_0203, 0x0001_0300], &[0x0123_0203], "does not start with a header"),
        (&[17, 8, 1, 1], &[17, 1 << 20, 1, 1], "workgroup"),
        (&[17, 8, 1, 1], &[17, 0, 1, 1], "workgroup"),
        // Workgroups of the dispatch.
        (&[3, 2, 1, 1], &[3, 0, 1, 1], "workgroups"),
        (&[3, 2, 1, 1], &[3, u32::MAX, 1, 1], "workgroups"),
    ];
    for (from, to, expected) in cases {
        let why = why(allowed(), patched("buffers.vgf", from, to));
        assert!(why.contains(expected) && why.contains("\"add_twice\""), "{expected}: {why}");
    }
    let named = why(allowed(), patched("buffers.vgf", &[5, 4, MAIN], &[5, 4, MAIN + 1]));
    assert!(named.contains("entry point"), "{named}");
    // The binding of the second buffer, as the shader declares it.
    let words: Vec<u32> =
        file("buffers.vgf").as_chunks::<4>().0.iter().map(|it| u32::from_le_bytes(*it)).collect();
    let decorated = words.windows(4).find(|it| it[0] == 4 << 16 | 71 && it[2..] == [33, 2]);
    let decorated = decorated.unwrap().to_vec();
    let mut moved = decorated.clone();
    moved[3] = 9;
    let why = why(allowed(), patched("buffers.vgf", &decorated, &moved));
    assert!(why.contains("set 1, binding 9: declared by the shader, but not bound"), "{why}");
}

/// Damages outside of the SPIR-V module, with permission: an error or a result, never more.
#[test]
fn damaged_sequences_do_not_panic() {
    if !device_is_there() {
        return;
    }
    for name in ["buffers.vgf", "image.vgf", "alias.vgf"] {
        let bytes = file(name);
        // The sequence and the resources follow the modules.
        let start = u64::from_le_bytes(bytes[32..40].try_into().unwrap()) as usize;
        for (step, value) in [(7, 0xFF), (5, 0), (11, 1), (13, 0x40)] {
            for at in (start..bytes.len()).step_by(step) {
                let mut damaged = bytes.clone();
                damaged[at] = value;
                why(allowed().memory_limit(1 << 28), damaged);
            }
        }
    }
}
