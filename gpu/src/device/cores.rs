//! The number of cores of a device, if the driver reports it. It determines the number of pieces
//! into which work is divided.

use super::kind::DeviceKind;

/// The cores of a device: streaming multiprocessors, compute units, or shader cores.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Cores {
    /// The number of cores.
    pub count: u32,
    /// The maximum number of resident invocations per core.
    pub invocations: u32,
}

impl Cores {
    /// Returns the approximate number of invocations that saturate the device: a quarter of the
    /// resident invocations, rounded to a power of two. A quarter suffices because tiled kernels
    /// use many registers, and few of their invocations wait for memory.
    pub fn busy_invocations(self) -> usize {
        let quarter = (f64::from(self.count) * f64::from(self.invocations) / 4.0).max(1.0);
        let busy = 1 << quarter.log2().round() as u32;
        // Always more than a software device needs, which runs invocations in sequence.
        busy.max(2 * DeviceKind::Cpu.busy_invocations())
    }

    /// Returns the cores that a driver reports: `count` cores, each with `groups` subgroups of
    /// `lanes` invocations. Returns `None` for implausible values.
    pub fn of(count: u32, groups: u32, lanes: u32) -> Option<Self> {
        let cores = Cores { count, invocations: groups.checked_mul(lanes)? };
        let is_sane = (1..=1 << 12).contains(&count) && (16..=1 << 14).contains(&cores.invocations);
        is_sane.then_some(cores)
    }
}

/// Whether a device runs invocations in parallel, unlike software devices. `busy` is the number of
/// invocations that saturate it.
pub(crate) fn is_parallel(busy: usize) -> bool {
    busy > DeviceKind::Cpu.busy_invocations()
}

/// Estimates the number of processors, assuming four schedulers per processor that each issue for
/// 32 invocations.
pub(crate) fn processors(busy: usize) -> usize {
    (busy / 512).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn saturation_scales_with_cores() {
        let busy =
            |count, groups, lanes| Cores::of(count, groups, lanes).unwrap().busy_invocations();
        // An H200 and an H100 PCIe.
        assert_eq!(busy(132, 64, 32), DeviceKind::Discrete.busy_invocations());
        assert_eq!(busy(114, 64, 32), DeviceKind::Discrete.busy_invocations());
        // A GeForce RTX 4050 Laptop and an RTX 4090.
        assert_eq!([busy(20, 48, 32), busy(128, 48, 32)], [1 << 13, 1 << 16]);
        // A Mali G710 with ten cores, and a Radeon with twelve units integrated into a processor.
        assert_eq!([busy(10, 64, 16), busy(12, 32, 64)], [1 << 11, 1 << 13]);
        // A GPU is never mistaken for a software device, which runs invocations in sequence.
        for [count, groups, lanes] in [[1, 64, 16], [1, 1, 16], [1, 16, 32]] {
            assert!(busy(count, groups, lanes) > DeviceKind::Cpu.busy_invocations());
        }
    }

    #[test]
    fn implausible_core_counts_are_rejected() {
        for [count, groups, lanes] in [
            [0, 0, 0],
            [0, 64, 32],
            [132, 0, 32],
            [132, u32::MAX, 32],
            [u32::MAX, 64, 32],
            [132, 64, 0],
        ] {
            assert_eq!(Cores::of(count, groups, lanes), None, "{count} {groups} {lanes}");
        }
    }
}
