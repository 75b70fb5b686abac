//! How fast devices are, roughly: Vulkan says of what kind one is, and some drivers how many cores
//! it has, not how fast these are.

use crate::device::{DeviceInfo, DeviceKind};
use torchlet_core::Rates;

/// What a call that is recorded takes beyond its work: a barrier, and the time until the device is
/// busy.
const CALL: f64 = 4.5e-6;
/// Submitting, and waiting for the end.
const SUBMISSION: f64 = 80e-6;

/// What an NVIDIA H200 holds at a time: 132 cores of 2,048 invocations.
const MEASURED: f64 = 132.0 * 2048.0;

/// The figures of a device: of its kind and, where its cores are known, of as many of them.
pub(crate) fn of(device: &DeviceInfo) -> Rates {
    let usual = of_kind(device.kind);
    let Some(cores) = device.cores else { return usual };
    let share = f64::from(cores.count) * f64::from(cores.invocations) / MEASURED;
    let measured = of_kind(DeviceKind::Discrete);
    let operations = measured.operations * share;
    // Memory of its own comes with cores that need it; that of the system is as fast as it is.
    match device.kind {
        DeviceKind::Cpu => usual,
        DeviceKind::Integrated => Rates { operations, ..usual },
        _ => Rates { operations, bytes: measured.bytes * share, ..usual },
    }
}

/// The figures of a kind of device.
///
/// Those of discrete ones are fitted to ResNet-18, ResNet-50 and MobileNetV2 in 32-bit floating
/// point, batch 1, on an NVIDIA H200 (0.55, 1.35 and 0.35 ms), rounded down, since most have less.
/// Those of others follow by what such devices usually have of both, compared with it; nobody has
/// measured them.
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
        // What goes in and out is copied within one memory.
        DeviceKind::Integrated => Rates { operations: 4e11, bytes: 4e10, ..discrete },
        DeviceKind::Cpu => {
            Rates { operations: 5e9, bytes: 2e9, call: 20e-6, emulated: true, ..discrete }
        }
    }
}
