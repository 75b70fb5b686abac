//! Fusion of layers on the device: recurrent layers, which exporters unroll into steps, blocks, and
//! concatenations of their results.

use crate::common::{check, fixture, open};
use crate::device::{device_is_there, on_device};
use std::sync::Arc;
use torchlet_devtools::{Location, Recorder};

/// Names of the device calls of a fixture's run, whose results are checked.
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

/// Number of dispatches of recurrent layers, and of others except copies, in a fixture's run.
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

/// The unrolled steps are gone: only a matrix multiplication of the inputs, the layer, and a
/// function of its result remain.
#[test]
fn recurrent_layers_are_one_dispatch() {
    if !device_is_there() {
        return;
    }
    for name in ["lstm", "gru", "tanh", "relu", "hidden_32", "gates_100"] {
        let [layers, others] = dispatches(&format!("vulkan/recurrent/{name}.bpte"));
        assert_eq!(layers, 1, "{name}");
        assert!(others <= 4, "{name}: {others} others");
    }
    // Two bidirectional layers.
    for name in ["both_ways", "gates_both_ways"] {
        assert_eq!(dispatches(&format!("vulkan/recurrent/{name}.bpte"))[0], 4, "{name}");
    }
}

/// If a single workgroup would read the weights too slowly, many share each of the six steps.
#[test]
fn wide_recurrent_layers_dispatch_each_step() {
    if !device_is_there() {
        return;
    }
    for (name, directions) in [("steps_fp16", 2), ("gates_steps", 1)] {
        let [layers, others] = dispatches(&format!("vulkan/recurrent/{name}.bpte"));
        assert_eq!(layers, 6 * directions, "{name}");
        assert!(others <= 5 * directions, "{name}: {others} others");
    }
}

/// Consecutive blocks pass channels-last tensors: one permutation at the start, and one at the end.
#[test]
fn blocks_stay_channels_last() {
    if !device_is_there() {
        return;
    }
    let calls = calls("vulkan/channels_last/blocks.bpte");
    let count = |part: &str| calls.iter().filter(|call| call.contains(part)).count();
    assert_eq!((count("torchlet.depthwise_last"), count("permute")), (3, 2), "{calls:#?}");
}

/// Layers write their results directly into the concatenated tensor.
#[test]
fn concatenations_need_no_copies() {
    if !device_is_there() {
        return;
    }
    for name in ["layers", "layers_fp16"] {
        let calls = calls(&format!("vulkan/dense/{name}.bpte"));
        assert!(!calls.iter().any(|call| call.contains("aten.cat")), "{calls:#?}");
    }
}
