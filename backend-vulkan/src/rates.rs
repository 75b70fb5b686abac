//! How fast devices are, roughly: Vulkan says of what kind one is, not how fast.

use crate::device::DeviceKind;
use torchlet_core::Rates;

/// What a call that is recorded takes beyond its work: a barrier, and the time until the device is busy.
const CALL: f64 = 4.5e-6;
/// Submitting, and waiting for the end.
const SUBMISSION: f64 = 80e-6;

/// The figures of a kind of device.
///
/// Those of discrete ones are fitted to ResNet-18, ResNet-50 and MobileNetV2 in 32-bit floating point, batch 1, on an NVIDIA H200
/// (0.55, 1.35 and 0.35 ms), rounded down, since most have less. Those of others follow by what such devices usually have of both,
/// compared with it; nobody has measured them.
pub(crate) fn of(kind: DeviceKind) -> Rates {
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
        // What goes in and out is copied within one memory.
        DeviceKind::Integrated => Rates { operations: 4e11, bytes: 4e10, ..discrete },
        DeviceKind::Cpu => {
            Rates { operations: 5e9, bytes: 2e9, call: 20e-6, emulated: true, ..discrete }
        }
    }
}
