//! Workarounds for driver bugs, by device. Each states the disabled features, the bug, and the
//! drivers that lack the bug, if known.
//!
//! The following workarounds apply to all devices, because they cost nothing on devices without the
//! bug:
//! - One instance for the whole process (`instance.rs`): an NVIDIA driver refuses the thirty-first.
//! - Comparisons with NaN and conversions of out-of-range values are written out in shaders
//!   (`shaders/glsl`): NVIDIA's compiler turns `a > b ? a : b` into a maximum that drops NaN.
//! - Extensions for portability drivers, which translate to another API (`portability.rs`).
//! - No polling on software devices and on battery power (`completion.rs`, `power.rs`).

use ash::vk;
use torchlet_gpu::device::{DeviceFeature, DeviceKind};

/// Properties of a device that are known before its features are queried.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Driver {
    /// The vendor id, from PCI's registry or Khronos's.
    pub(crate) vendor: u32,
    pub(crate) kind: DeviceKind,
    pub(crate) on_windows: bool,
    /// The driver id, if reported: since Vulkan 1.2, or with `VK_KHR_driver_properties`.
    pub(crate) id: Option<vk::DriverId>,
    /// The driver version, in the vendor's encoding.
    pub(crate) version: u32,
}

impl Driver {
    /// Whether the driver may be one of these drivers. An unknown driver may be any of them.
    fn may_be(&self, drivers: &[vk::DriverId]) -> bool {
        self.id.is_none_or(|id| drivers.contains(&id))
    }
}

/// A workaround: the affected devices, and the features that are disabled on them.
pub(crate) struct Workaround {
    pub(crate) name: &'static str,
    /// Features that count as missing. The driver is not even queried for the properties of these.
    without: &'static [DeviceFeature],
    applies: fn(&Driver) -> bool,
}

impl Workaround {
    /// Whether the workaround disables a feature that a device has.
    pub(crate) fn disables_any(&self, has: impl Fn(DeviceFeature) -> bool) -> bool {
        self.without.iter().any(|feature| has(*feature))
    }
}

const AMD: u32 = 0x1002;

/// All workarounds. An entry names the affected hardware and a reference. It is removed once
/// drivers without the bug are common.
const TABLE: &[Workaround] = &[
    // The driver of the Radeon 860M (AMDVLK 2.0.388, Adrenalin 26.3.1) terminates the process when
    // it is queried for cooperative matrix properties: GPUOpen-Drivers/AMDVLK issue 422,
    // ggml-org/llama.cpp pull request 22750, 2026-05. AMD's proprietary and open-source drivers
    // share the code; Mesa does not. No fixed version is known.
    Workaround {
        name: "cooperative matrices of integrated AMD GPUs on Windows",
        without: &[DeviceFeature::CooperativeMatrix, DeviceFeature::CooperativeMatrix2],
        applies: |driver| {
            let own = [vk::DriverId::AMD_PROPRIETARY, vk::DriverId::AMD_OPEN_SOURCE];
            let is_integrated = driver.vendor == AMD && driver.kind == DeviceKind::Integrated;
            is_integrated && driver.on_windows && driver.may_be(&own)
        },
    },
    // Software devices compute cooperative matrices element by element, which is slower than
    // vectorised tiles. This holds as long as no CPU driver uses matrix units of the CPU.
    Workaround {
        name: "cooperative matrices in software",
        without: &[DeviceFeature::CooperativeMatrix, DeviceFeature::CooperativeMatrix2],
        applies: |driver| driver.kind == DeviceKind::Cpu,
    },
];

/// Returns the workarounds for a device.
pub(crate) fn workarounds(driver: &Driver) -> impl Iterator<Item = &'static Workaround> {
    TABLE.iter().filter(move |workaround| (workaround.applies)(driver))
}

/// Whether a feature is disabled on a device.
pub(crate) fn is_avoided(driver: &Driver, feature: DeviceFeature) -> bool {
    workarounds(driver).any(|workaround| workaround.without.contains(&feature))
}

#[cfg(test)]
mod tests {
    use super::*;

    const RADEON: Driver = Driver {
        vendor: AMD,
        kind: DeviceKind::Integrated,
        on_windows: true,
        id: Some(vk::DriverId::AMD_PROPRIETARY),
        version: 0,
    };

    #[test]
    fn workarounds_disable_features() {
        // An unknown driver may be the affected one.
        for id in [Some(vk::DriverId::AMD_OPEN_SOURCE), RADEON.id, None] {
            let driver = Driver { id, ..RADEON };
            assert!(is_avoided(&driver, DeviceFeature::CooperativeMatrix), "{driver:?}");
            assert!(!is_avoided(&driver, DeviceFeature::Float16Arithmetic), "{driver:?}");
        }
        for other in [
            Driver { on_windows: false, ..RADEON },
            Driver { kind: DeviceKind::Discrete, ..RADEON },
            Driver { vendor: 0x10de, ..RADEON },
            Driver { id: Some(vk::DriverId::MESA_RADV), ..RADEON },
        ] {
            assert_eq!(workarounds(&other).count(), 0, "{other:?}");
        }
        let id = Some(vk::DriverId::MESA_LLVMPIPE);
        let kind = DeviceKind::Cpu;
        let software = Driver { vendor: 0x1_0005, kind, on_windows: false, id, version: 1 };
        let names: Vec<&str> = workarounds(&software).map(|it| it.name).collect();
        assert_eq!(names, ["cooperative matrices in software"]);
    }

    #[test]
    fn workarounds_ignore_missing_features() {
        let workaround = workarounds(&RADEON).next().unwrap();
        assert!(workaround.disables_any(|feature| feature == DeviceFeature::CooperativeMatrix));
        assert!(!workaround.disables_any(|feature| feature == DeviceFeature::Float16Arithmetic));
        assert!(!workaround.disables_any(|_| false));
    }
}
