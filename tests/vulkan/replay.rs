//! Replay of recorded command buffers for runs that differ only in a position.

use crate::common::{check_case, fixture, open};
use crate::device::{Random, device_is_there, on_device};
use std::sync::Arc;
use torchlet::core::TestCase;
use torchlet::vulkan::VulkanBackend;
use torchlet::{Module, ProfileKind, Profiler, Tensor};

/// A step of a language model with a KV cache; its test cases are positions.
pub(crate) const DECODER: &str = "vulkan/program/decoder.bpte";

/// Logits of a model in `llm/model` for `count` tokens from position `first`: of the last token, or
/// of all.
fn logits(module: &mut Module, first: usize, count: usize) -> Vec<f32> {
    let tokens = (first..first + count).map(|at| (at * at % 61) as i64).collect();
    let tokens = Tensor::from_vec(&[1, count], tokens).unwrap();
    let position = Tensor::from_vec(&[1], vec![first as i64]).unwrap();
    let outputs = module.forward([&tokens, &position]).unwrap();
    outputs[0].tensor().unwrap().as_slice::<f32>().unwrap().to_vec()
}

/// How often delegates reported an event with this name.
fn calls(profiler: &Profiler, name: &str) -> u64 {
    let entries = profiler.entries();
    let parts = entries.iter().filter(|entry| entry.kind == ProfileKind::DelegatePart);
    parts.filter(|entry| entry.name == name).map(|entry| entry.count).sum()
}

#[test]
fn new_positions_record_nothing() {
    if !device_is_there() {
        return;
    }
    let profiler = Arc::new(Profiler::new());
    let fixture = fixture(DECODER);
    let source = open(&fixture, on_device().event_tracer(profiler.clone())).unwrap();
    let mut module = source.share();
    let suite = source.bundled().unwrap().suites().unwrap().next().unwrap().unwrap();
    let cases: Vec<TestCase<'_>> = suite.cases().unwrap().map(Result::unwrap).collect();
    assert!(cases.len() > 5, "{} cases", cases.len());
    // The first run has the shapes that memory is planned for, and integers that the exporter left
    // unspecified.
    check_case(&mut module, "forward", &cases[0], &fixture).unwrap();
    profiler.clear();
    for case in &cases[1..] {
        check_case(&mut module, "forward", case, &fixture).unwrap();
    }
    assert_eq!(calls(&profiler, "update"), cases.len() as u64 - 1);
    assert_eq!(calls(&profiler, "record"), 0);
}

/// Prompts and single tokens in turn: the recording for each number of tokens is reused, also after
/// other lengths.
#[test]
fn known_shapes_record_nothing() {
    if !device_is_there() {
        return;
    }
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/llm/model/vulkan_4bit.pte");
    let mut alone = on_device().load(path).unwrap();
    let expected: Vec<Vec<f32>> = (0..80).map(|at| logits(&mut alone, at, 1)).collect();
    let profiler = Arc::new(Profiler::new());
    let mut module = on_device().event_tracer(profiler.clone()).load(path).unwrap();
    let few = [2, 1, 1, 2, 1, 3, 2, 1, 3, 1, 1, 4, 2, 1];
    let more = [8, 1, 3, 4, 2, 1, 3, 4];
    let mut first = 0;
    for count in few.into_iter().chain(more) {
        let found = logits(&mut module, first, count);
        first += count;
        let expected = &expected[first - 1];
        let max = expected.iter().fold(0.0f32, |max, it| max.max(it.abs()));
        for (found, expected) in found.iter().zip(expected) {
            let near = (found - expected).abs() <= 0.01 * max;
            assert!(near, "{count} tokens before {first}: {found}, {expected}");
        }
    }
    // Four recordings exist, including the current one: 2, 1, 3, and 4, which replaces that for the
    // maximum length. Then 8 replaces one of these, and three lengths replace each other in turn.
    assert_eq!(calls(&profiler, "record"), 4 + 1 + 3);
}

/// A long prompt in chunks of equal length: only the first one is recorded, at any position.
#[test]
fn chunks_of_a_prompt_record_once() {
    if !device_is_there() {
        return;
    }
    for (file, count) in [("vulkan_4bit", 24), ("vulkan_4bit", 5), ("fp32", 24), ("8da4w", 24)] {
        let path = format!("{}/llm/model/{file}.pte", env!("CARGO_MANIFEST_DIR"));
        // Logits of the last token.
        let last = |module: &mut Module, first: usize, count: usize| {
            let mut all = logits(module, first, count);
            all.split_off(all.len().saturating_sub(64))
        };
        let profiler = Arc::new(Profiler::new());
        let mut module = on_device().event_tracer(profiler.clone()).load(&path).unwrap();
        // Positions other than those that memory was planned for, and not in equal steps.
        let positions = [0, 1, 3, 2, 4].map(|chunk| chunk * count);
        let mut found = vec![last(&mut module, positions[0], count)];
        profiler.clear();
        found.extend(positions[1..].iter().map(|first| last(&mut module, *first, count)));
        assert_eq!(calls(&profiler, "record"), 0, "{file}, chunks of {count}");
        // Reference: each chunk is recorded anew, after other lengths at each position.
        let mut fresh = on_device().load(&path).unwrap();
        for (first, found) in positions.into_iter().zip(found) {
            for other in 1..=4 {
                // Evicts the kept recordings. The cache entries at these positions are overwritten
                // again.
                logits(&mut fresh, first, other);
            }
            assert_eq!(last(&mut fresh, first, count), found, "{file} from {first} on");
        }
    }
}

/// Partial reuse of a recording for another length must not affect results.
#[test]
fn recordings_do_not_affect_results() {
    if !device_is_there() {
        return;
    }
    let lengths = [1, 2, 3, 5, 8, 13, 37, 41, 64];
    for file in ["vulkan_4bit", "fp32"] {
        let path = format!("{}/llm/model/{file}.pte", env!("CARGO_MANIFEST_DIR"));
        // Each length at position 0, and after a prompt.
        let expected: Vec<[Vec<f32>; 2]> = lengths
            .iter()
            .map(|count| {
                let mut fresh = on_device().load(&path).unwrap();
                let alone = logits(&mut fresh, 0, *count);
                logits(&mut fresh, 0, 7);
                [alone, logits(&mut fresh, 7, *count)]
            })
            .collect();
        let backend = Arc::new(VulkanBackend::builder().build());
        let mut module = on_device().backend(backend.clone()).load(&path).unwrap();
        module.load_method("forward").unwrap();
        let made = backend.pipelines();
        let mut random = Random::new(11);
        for turn in 0..60 {
            let at = random.below(lengths.len());
            let behind = random.below(2);
            if turn % 4 == 0 {
                // Fails during encoding, after evicting a recording: nothing of it may remain.
                let count = lengths[random.below(lengths.len())];
                let tokens = Tensor::from_vec(&[1, count], vec![0i64; count]).unwrap();
                let position = Tensor::from_vec(&[1], vec![-3i64]).unwrap();
                assert!(module.forward([&tokens, &position]).is_err());
            }
            if behind == 1 {
                logits(&mut module, 0, 7);
            }
            let found = logits(&mut module, 7 * behind, lengths[at]);
            let what = format!("{file}, turn {turn}: {} tokens from {}", lengths[at], 7 * behind);
            assert!(found == expected[at][behind], "{what}");
            assert_eq!(backend.pipelines(), made, "{what}");
        }
    }
}

/// While the device works, the next run is prepared with extrapolated positions: here, the guess is
/// sometimes wrong.
#[test]
fn wrong_position_guesses_are_corrected() {
    if !device_is_there() {
        return;
    }
    let fixture = fixture(DECODER);
    let source = open(&fixture, on_device()).unwrap();
    let mut module = source.share();
    let suite = source.bundled().unwrap().suites().unwrap().next().unwrap().unwrap();
    let cases: Vec<TestCase<'_>> = suite.cases().unwrap().map(Result::unwrap).collect();
    // Positions 0, 1, 2, 70, 71, 3 and 159. The cache contents at each position stay the same,
    // since later runs write the same values there; the expected outputs of 70 and 71 were computed
    // before 3 was written.
    for place in [0, 1, 2, 1, 2, 0, 2, 3, 4, 3, 4, 1, 5, 2, 1, 0, 5, 6, 0] {
        check_case(&mut module, "forward", &cases[place], &fixture).unwrap();
    }
}

/// Several workgroups share the keys, as on GPUs; a software device would use only one.
#[test]
fn keys_are_shared_by_workgroups() {
    if !device_is_there() {
        return;
    }
    let fixture = fixture(DECODER);
    let backend = Arc::new(VulkanBackend::builder().busy_invocations(1 << 16).build());
    let source = open(&fixture, on_device().backend(backend)).unwrap();
    let mut module = source.share();
    let suite = source.bundled().unwrap().suites().unwrap().next().unwrap().unwrap();
    for case in suite.cases().unwrap() {
        check_case(&mut module, "forward", &case.unwrap(), &fixture).unwrap();
    }
}
