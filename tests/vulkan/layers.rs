//! What becomes of layers on the device: sequences, whose steps exporters write one after the
//! other, blocks, and what joins what they make.

use crate::common::{check, fixture, open};
use crate::device::{device_is_there, on_device};
use std::sync::Arc;
use torchlet_devtools::{Location, Recorder};

/// What a fixture's run does on the device, whose results are checked.
fn calls(name: &str) -> Vec<String> {
    let fixture = fixture(name);
    let recorder = Arc::new(Recorder::new());
    let source = open(&fixture, on_device().event_tracer(recorder.clone())).unwrap();
    let mut module = source.share();
    check(&mut module, &source, &fixture).unwrap();
    let recording = recorder.recording();
    let run = recording.executions().next().expect("a run");
    let on_device = run.events.iter().filter(|event| event.location == Location::Device);
    on_device.map(|event| event.name.to_string()).collect()
}

/// How many dispatches of a fixture's run are those of whole layers, and how many others there are
/// but copies.
fn dispatches(name: &str) -> [usize; 2] {
    let mut counts = [0; 2];
    for name in calls(name) {
        match (name.starts_with("torchlet.recurrent"), name.contains("copy")) {
            (true, _) => counts[0] += 1,
            (false, false) => counts[1] += 1,
            (false, true) => {}
        }
    }
    counts
}

/// Nothing is left of the steps: there are the inputs' product, the layer, and a function of what
/// it makes.
#[test]
fn steps_of_a_layer_are_one_dispatch() {
    if !device_is_there() {
        return;
    }
    for name in ["lstm", "gru", "tanh", "relu", "hidden_32", "gates_100"] {
        let [layers, others] = dispatches(&format!("vulkan/recurrent/{name}.bpte"));
        assert_eq!(layers, 1, "{name}");
        assert!(others <= 4, "{name}: {others} others");
    }
    // Two layers, in two directions.
    for name in ["both_ways", "gates_both_ways"] {
        assert_eq!(dispatches(&format!("vulkan/recurrent/{name}.bpte"))[0], 4, "{name}");
    }
}

/// Where one workgroup would read weights too slowly, many share each of the six steps.
#[test]
fn wide_states_take_a_dispatch_for_each_step() {
    if !device_is_there() {
        return;
    }
    for (name, directions) in [("steps_fp16", 2), ("gates_steps", 1)] {
        let [layers, others] = dispatches(&format!("vulkan/recurrent/{name}.bpte"));
        assert_eq!(layers, 6 * directions, "{name}");
        assert!(others <= 5 * directions, "{name}: {others} others");
    }
}

/// Blocks pass on what they make with channels last: one permutation leads there, and one back.
#[test]
fn channels_stay_last_from_block_to_block() {
    if !device_is_there() {
        return;
    }
    let calls = calls("vulkan/channels_last/blocks.bpte");
    let count = |part: &str| calls.iter().filter(|call| call.contains(part)).count();
    assert_eq!((count("torchlet.depthwise_last"), count("permute")), (3, 2), "{calls:#?}");
}

/// What layers make is written where all of it is joined in the end.
#[test]
fn joined_again_and_again_nothing_is_copied() {
    if !device_is_there() {
        return;
    }
    for name in ["layers", "layers_fp16"] {
        let calls = calls(&format!("vulkan/dense/{name}.bpte"));
        assert!(!calls.iter().any(|call| call.contains("aten.cat")), "{calls:#?}");
    }
}
