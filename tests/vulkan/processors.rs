//! Every program gives PyTorch's numbers on GPUs, whatever it was exported for. For other processors, `../processors.rs` has the same.

use crate::common::{Fixture, check_programs, open, programs};
use crate::device::device_is_there;
use torchlet::{Module, RunOn};

/// What a GPU may be off by where a program was exported for CPUs: its elementary functions are not as exact.
const TOLERANCE: f64 = 1e-3;

#[test]
fn gpus_give_pytorchs_numbers() {
    if !device_is_there() {
        return;
    }
    let mut programs = programs();
    for fixture in programs.iter_mut().filter(|fixture| fixture.backends.is_empty()) {
        fixture.rtol = fixture.rtol.max(TOLERANCE);
        fixture.atol = fixture.atol.max(TOLERANCE);
    }
    check_programs(&programs, |fixture: &Fixture, _| {
        let builder = Module::builder().threads(1).run_on(RunOn::Vulkan);
        open(fixture, builder).map_err(|error| error.to_string())
    });
}
