//! What some drivers get wrong, by device: what is done without on them, why, and until when.
//!
//! Not in the table, since they cost nothing elsewhere, are:
//! - One instance for the whole process (`instance.rs`): a driver of NVIDIA's refuses the
//!   thirty-first.
//! - Comparisons with what is not a number, and conversions of what does not fit, are spelled out
//!   in shaders (`shaders/glsl`): NVIDIA's compiler takes `a > b ? a : b` for a maximum that
//!   forgets what is not a number.
//! - Loaders and portability subsets of drivers that translate to another API (`portability.rs`).
//! - Software devices and devices on batteries are not polled (`completion.rs`, `power.rs`).

use super::features::DeviceFeature;
use super::instance::DeviceKind;
use ash::vk;

/// What is known of a device before it is asked for its features.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Driver {
    /// The number of its vendor, by PCI's registry or Khronos's.
    pub(crate) vendor: u32,
    pub(crate) kind: DeviceKind,
    pub(crate) on_windows: bool,
    /// Which driver of the vendor's devices it is, where it says so: as of Vulkan 1.2, or with
    /// `VK_KHR_driver_properties`.
    pub(crate) id: Option<vk::DriverId>,
    /// Its version, in a form of its own.
    pub(crate) version: u32,
}

impl Driver {
    /// Whether it may be one of these: a driver that does not say what it is may be.
    fn may_be(&self, drivers: &[vk::DriverId]) -> bool {
        self.id.is_none_or(|id| drivers.contains(&id))
    }
}

/// What is done without on some devices.
pub(crate) struct Workaround {
    pub(crate) name: &'static str,
    /// Features that count as missing: the driver is not even asked for what goes with them.
    without: &'static [DeviceFeature],
    applies: fn(&Driver) -> bool,
}

impl Workaround {
    /// Whether it takes something away from a device that has this.
    pub(crate) fn takes(&self, has: impl Fn(DeviceFeature) -> bool) -> bool {
        self.without.iter().any(|feature| has(*feature))
    }
}

const AMD: u32 = 0x1002;

/// All of them. An entry says what it was seen on and where that is written down; once drivers
/// without the fault are common, it goes.
const TABLE: &[Workaround] = &[
    // The driver of Radeon 860M (AMDVLK 2.0.388, Adrenalin 26.3.1) ends the process when it is
    // asked which matrices it multiplies: GPUOpen-Drivers/AMDVLK issue 422, ggml-org/llama.cpp pull
    // request 22750, 2026-05. AMD's own driver and the published one are of the same source; Mesa's
    // is another. No version is known in which it is mended.
    Workaround {
        name: "matrices of integrated AMD GPUs on Windows",
        without: &[DeviceFeature::CooperativeMatrix, DeviceFeature::CooperativeMatrix2],
        applies: |driver| {
            let own = [vk::DriverId::AMD_PROPRIETARY, vk::DriverId::AMD_OPEN_SOURCE];
            let is_integrated = driver.vendor == AMD && driver.kind == DeviceKind::Integrated;
            is_integrated && driver.on_windows && driver.may_be(&own)
        },
    },
    // Software multiplies matrices of a subgroup element by element, which takes longer than tiles
    // of vectors: as long as there is no processor whose driver uses matrix units of its own.
    Workaround {
        name: "matrices in software",
        without: &[DeviceFeature::CooperativeMatrix, DeviceFeature::CooperativeMatrix2],
        applies: |driver| driver.kind == DeviceKind::Cpu,
    },
];

/// Those for a device.
pub(crate) fn workarounds(driver: &Driver) -> impl Iterator<Item = &'static Workaround> {
    TABLE.iter().filter(move |workaround| (workaround.applies)(driver))
}

/// Whether a device does without a feature.
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
    fn devices_go_without_what_their_drivers_get_wrong() {
        // A driver that does not say what it is may be the one.
        for id in [Some(vk::DriverId::AMD_OPEN_SOURCE), RADEON.id, None] {
            let driver = Driver { id, ..RADEON };
            assert!(is_avoided(&driver, DeviceFeature::CooperativeMatrix), "{driver:?}");
            assert!(!is_avoided(&driver, DeviceFeature::HalfArithmetic), "{driver:?}");
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
        assert_eq!(names, ["matrices in software"]);
    }

    #[test]
    fn what_a_device_lacks_anyway_is_not_taken_from_it() {
        let workaround = workarounds(&RADEON).next().unwrap();
        assert!(workaround.takes(|feature| feature == DeviceFeature::CooperativeMatrix));
        assert!(!workaround.takes(|feature| feature == DeviceFeature::HalfArithmetic));
        assert!(!workaround.takes(|_| false));
    }
}
