//! Device timestamps on the clock of the host.

use crate::common::{fixture, open};
use crate::device::{device_is_there, on_device};
use std::sync::Arc;
use torchlet_devtools::{Event, Kind, Location, Recorder};

/// Tolerance of calibrated clocks: reading both takes a while on a busy machine.
const NANOSECONDS: u64 = 200_000;

/// Device events of a delegate lie within its call, in order. Without calibrated clocks, they start
/// when the host begins to wait, which is also within the call.
#[test]
fn commands_lie_within_their_call() {
    if !device_is_there() {
        return;
    }
    // Several calls, as inputs and outputs are not always copied.
    let fixture = fixture("vulkan/model/residual.bpte");
    let recorder = Arc::new(Recorder::new());
    let source = open(&fixture, on_device().event_tracer(recorder.clone())).unwrap();
    let mut module = source.share();
    for _ in 0..3 {
        crate::common::check(&mut module, &source, &fixture).unwrap();
    }
    let recording = recorder.recording();
    let mut commands = 0;
    for run in recording.executions() {
        let is_call = |event: &&Event| event.kind == Kind::Delegate;
        let call = run.events.iter().find(is_call).expect("a call of the delegate");
        let device = run.events.iter().filter(|event| event.location == Location::Device);
        let mut last = 0;
        for event in device {
            let within =
                event.start + NANOSECONDS >= call.start && event.end <= call.end + NANOSECONDS;
            assert!(within, "{} to {} in {} to {}", event.start, event.end, call.start, call.end);
            assert!(event.start >= last, "commands come one after the other");
            (last, commands) = (event.start, commands + 1);
        }
    }
    assert!(commands >= 9, "{commands} commands of three runs");
}
