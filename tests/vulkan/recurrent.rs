//! Layers over sequences, whose steps exporters write one after the other.

use crate::common::{check, fixture, open};
use crate::device::{device_is_there, on_device};
use std::sync::Arc;
use torchlet_devtools::{Location, Recorder};

/// How many dispatches of a fixture's run are those of whole layers, and how many others there are but copies.
fn dispatches(name: &str) -> [usize; 2] {
    let fixture = fixture(name);
    let recorder = Arc::new(Recorder::new());
    let source = open(&fixture, on_device().event_tracer(recorder.clone())).unwrap();
    let mut module = source.share();
    check(&mut module, &source, &fixture).unwrap();
    let recording = recorder.recording();
    let run = recording.executions().next().expect("a run");
    let mut counts = [0; 2];
    for event in run.events.iter().filter(|event| event.location == Location::Device) {
        let name: &str = &event.name;
        match (name.starts_with("torchlet.recurrent"), name.contains("copy")) {
            (true, _) => counts[0] += 1,
            (false, false) => counts[1] += 1,
            (false, true) => {}
        }
    }
    counts
}

/// Nothing is left of the steps: there are the inputs' product, the layer, and a function of what it makes.
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
