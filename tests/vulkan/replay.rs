//! Runs that differ in a position alone: what was recorded is run again.

use crate::common::{check_case, fixture, open};
use crate::device::{Random, device_is_there, on_device};
use std::sync::Arc;
use torchlet::core::TestCase;
use torchlet::vulkan::VulkanBackend;
use torchlet::{Module, ProfileKind, Profiler, Tensor};

/// A step of a language model with a cache, whose cases are positions.
pub(crate) const DECODER: &str = "vulkan/program/decoder.bpte";

/// What a model of `llm/model` makes of so many tokens at a place: its logits, of the last token or
/// of all.
fn logits(module: &mut Module, first: usize, count: usize) -> Vec<f32> {
    let tokens = (first..first + count).map(|at| (at * at % 61) as i64).collect();
    let tokens = Tensor::from_vec(&[1, count], tokens).unwrap();
    let position = Tensor::from_vec(&[1], vec![first as i64]).unwrap();
    let outputs = module.forward([&tokens, &position]).unwrap();
    outputs[0].tensor().unwrap().as_slice::<f32>().unwrap().to_vec()
}

/// How often delegates did what has this name.
fn calls(profiler: &Profiler, name: &str) -> u64 {
    let entries = profiler.entries();
    let parts = entries.iter().filter(|entry| entry.kind == ProfileKind::DelegatePart);
    parts.filter(|entry| entry.name == name).map(|entry| entry.count).sum()
}

#[test]
fn another_position_records_nothing() {
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
    // open.
    check_case(&mut module, "forward", &cases[0], &fixture).unwrap();
    profiler.clear();
    for case in &cases[1..] {
        check_case(&mut module, "forward", case, &fixture).unwrap();
    }
    assert_eq!(calls(&profiler, "update"), cases.len() as u64 - 1);
    assert_eq!(calls(&profiler, "record"), 0);
}

/// A prompt, tokens, another prompt: what was recorded for each number of tokens serves again, also
/// behind others than these.
#[test]
fn shapes_that_were_run_before_record_nothing() {
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
        let most = expected.iter().fold(0.0f32, |most, it| most.max(it.abs()));
        for (found, expected) in found.iter().zip(expected) {
            let near = (found - expected).abs() <= 0.01 * most;
            assert!(near, "{count} tokens before {first}: {found}, {expected}");
        }
    }
    // Four are there with the one in use: 2, 1, 3 and 4 in the place of that for the most tokens,
    // then 8, which takes the place of one of these, and those of three, in turns.
    assert_eq!(calls(&profiler, "record"), 4 + 1 + 3);
}

/// A long prompt comes in chunks as long as one another: only the first one is recorded, wherever
/// the others are.
#[test]
fn chunks_of_a_prompt_record_once() {
    if !device_is_there() {
        return;
    }
    for (file, count) in [("vulkan_4bit", 24), ("vulkan_4bit", 5), ("fp32", 24), ("8da4w", 24)] {
        let path = format!("{}/llm/model/{file}.pte", env!("CARGO_MANIFEST_DIR"));
        // Of the last token.
        let last = |module: &mut Module, first: usize, count: usize| {
            let mut all = logits(module, first, count);
            all.split_off(all.len().saturating_sub(64))
        };
        let profiler = Arc::new(Profiler::new());
        let mut module = on_device().event_tracer(profiler.clone()).load(&path).unwrap();
        // Other positions than those that memory was planned for, and not in equal steps.
        let places = [0, 1, 3, 2, 4].map(|chunk| chunk * count);
        let mut found = vec![last(&mut module, places[0], count)];
        profiler.clear();
        found.extend(places[1..].iter().map(|first| last(&mut module, *first, count)));
        assert_eq!(calls(&profiler, "record"), 0, "{file}, chunks of {count}");
        // As if each chunk were recorded anew: behind another length at each place.
        let mut fresh = on_device().load(&path).unwrap();
        for (first, found) in places.into_iter().zip(found) {
            for other in 1..=4 {
                // Gives up what is kept. What is written at these places is written again.
                logits(&mut fresh, first, other);
            }
            assert_eq!(last(&mut fresh, first, count), found, "{file} from {first} on");
        }
    }
}

/// What is kept for one length serves another one in part: it must be as if there were nothing.
#[test]
fn lengths_in_any_order_are_as_in_a_new_program() {
    if !device_is_there() {
        return;
    }
    let lengths = [1, 2, 3, 5, 8, 13, 37, 41, 64];
    for file in ["vulkan_4bit", "fp32"] {
        let path = format!("{}/llm/model/{file}.pte", env!("CARGO_MANIFEST_DIR"));
        // Each alone, and behind a prompt.
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
                // It fails when some is encoded: what was kept was given up for it, and nothing of
                // it may stay.
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

/// While the device works, the next run is prepared as if positions went on as they did: here they
/// do not always.
#[test]
fn positions_that_do_not_go_on_are_those_that_were_given() {
    if !device_is_there() {
        return;
    }
    let fixture = fixture(DECODER);
    let source = open(&fixture, on_device()).unwrap();
    let mut module = source.share();
    let suite = source.bundled().unwrap().suites().unwrap().next().unwrap().unwrap();
    let cases: Vec<TestCase<'_>> = suite.cases().unwrap().map(Result::unwrap).collect();
    // Positions 0, 1, 2, 70, 71, 3 and 159. What the cache has at each stays what it was, since
    // later runs write the same there; 70 and 71 were asked for before there was a 3.
    for place in [0, 1, 2, 1, 2, 0, 2, 3, 4, 3, 4, 1, 5, 2, 1, 0, 5, 6, 0] {
        check_case(&mut module, "forward", &cases[place], &fixture).unwrap();
    }
}

/// A software device is given one share of the keys; here it has several, as others would.
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
