//! Trace events of the commands of a run.

use crate::device::Clock;
use torchlet_core::{DelegateCall, DelegateClock, DelegateEvent};
use torchlet_gpu::Label;

/// Reports the commands of a recording to the tracer. `times` has the timestamp before the first
/// command and the timestamps after each command. `first` is the time of the first timestamp, in
/// ticks since the delegate was called, if known.
pub(crate) fn report_commands(
    call: &DelegateCall<'_, '_>,
    labels: &[Label],
    device: &Clock,
    times: &[u64],
    first: Option<u64>,
) {
    let clock = if first.is_some() { DelegateClock::Device } else { DelegateClock::DeviceAlone };
    let base = first.unwrap_or(0);
    let times = device.since_first(times);
    for (label, pair) in labels.iter().zip(times.windows(2)) {
        let [start, end] = *pair else { continue };
        call.trace(&DelegateEvent {
            name: &label.name,
            id: label.id,
            start: base.saturating_add(start),
            end: base.saturating_add(end.max(start)),
            nanoseconds_per_tick: device.nanoseconds_per_tick,
            clock,
            metadata: label.detail.as_bytes(),
        });
    }
}
