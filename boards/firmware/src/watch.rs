//! Measures inference time in clock ticks, in total and per operator.

use crate::machine;
use torchlet::core::{Event, EventKind, EventTracer};

/// Ticks that a function lasts.
pub(crate) fn ticks<R>(run: impl FnOnce() -> R) -> (R, u64) {
    let start = machine::ticks();
    let result = run();
    (result, machine::ticks().saturating_sub(start))
}

/// Logs the ticks of each operator.
pub(crate) struct OperatorTimer {
    /// Name of the model.
    pub(crate) name: &'static str,
}

impl EventTracer for OperatorTimer {
    fn begin(&self, _: &Event<'_>) -> u64 {
        machine::ticks()
    }

    fn end(&self, event: &Event<'_>, start: u64) {
        let ticks = machine::ticks().saturating_sub(start);
        if event.kind == EventKind::Operator {
            let (name, index) = (self.name, event.instruction);
            defmt::println!(
                "{=str}: ticks of {=usize} {=str}: {=u64}",
                name,
                index,
                event.name,
                ticks
            );
        }
    }
}
