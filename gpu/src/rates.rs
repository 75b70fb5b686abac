//! Rough performance estimates of devices. Vulkan reports the kind of a device, and some drivers
//! the number of cores, but not their speed.

use crate::device::{Cores, DeviceKind};
use torchlet_core::Rates;

/// Overhead of a recorded call, in seconds: a barrier and the ramp-up of the device.
const CALL: f64 = 4.5e-6;
/// Overhead of submitting and waiting, in seconds.
const SUBMISSION: f64 = 80e-6;

/// Resident invocations of the device that the figures were measured on, an NVIDIA H200: 132 SMs of
/// 2,048.
const MEASURED: f64 = 132.0 * 2048.0;

/// Returns the estimates for a device: those of its kind, scaled by the number of cores if known.
pub fn of(kind: DeviceKind, cores: Option<Cores>) -> Rates {
    let usual = of_kind(kind);
    let Some(cores) = cores else { return usual };
    let share = f64::from(cores.count) * f64::from(cores.invocations) / MEASURED;
    let measured = of_kind(DeviceKind::Discrete);
    let operations = measured.operations * share;
    // Dedicated memory scales with the number of cores; system memory does not.
    match kind {
        DeviceKind::Cpu => usual,
        DeviceKind::Integrated => Rates { operations, ..usual },
        _ => Rates { operations, bytes: measured.bytes * share, ..usual },
    }
}

/// Estimates by kind of device.
///
/// Those of discrete GPUs are fitted to ResNet-18, ResNet-50 and MobileNetV2 (32-bit floats, a
/// batch of one) on an NVIDIA H200 (0.55, 1.35 and 0.35 ms), rounded down because most GPUs are
/// slower. The others are extrapolated from typical specifications and are not measured.
fn of_kind(kind: DeviceKind) -> Rates {
    let discrete = Rates {
        operations: 6e12,
        bytes: 1e12,
        call: CALL,
        region: SUBMISSION,
        transfer: 1e10,
        fuses: true,
        emulated: false,
    };
    match kind {
        DeviceKind::Discrete => discrete,
        DeviceKind::Virtual | DeviceKind::Other => {
            Rates { operations: 1e12, bytes: 1e11, ..discrete }
        }
        // Inputs and outputs are copied within one memory.
        DeviceKind::Integrated => Rates { operations: 4e11, bytes: 4e10, ..discrete },
        DeviceKind::Cpu => {
            Rates { operations: 5e9, bytes: 2e9, call: 20e-6, emulated: true, ..discrete }
        }
    }
}
