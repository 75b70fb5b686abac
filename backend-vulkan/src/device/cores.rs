//! The number of cores of a device, if its driver reports it. It determines into how many pieces
//! work is divided.

use super::instance::{DeviceKind, Instance};
use ash::{amd, arm, nv, vk};
use std::ffi::CStr;

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
    /// resident invocations, rounded to a power of two. Tuned on an NVIDIA H200 (132 cores of 2,048
    /// invocations): tiled kernels use many registers, and few invocations wait for memory.
    pub(super) fn busy_invocations(self) -> usize {
        let quarter = (f64::from(self.count) * f64::from(self.invocations) / 4.0).max(1.0);
        let busy = 1 << quarter.log2().round() as u32;
        // Always more than a software device, which runs invocations in sequence.
        busy.max(2 * DeviceKind::Cpu.busy_invocations())
    }

    /// Computes the cores from a driver's report: `count` cores of `groups` subgroups of `lanes`
    /// invocations. Returns `None` for implausible values.
    fn of(count: u32, groups: u32, lanes: u32) -> Option<Self> {
        let cores = Cores { count, invocations: groups.checked_mul(lanes)? };
        let is_sane = (1..=1 << 12).contains(&count) && (16..=1 << 14).contains(&cores.invocations);
        is_sane.then_some(cores)
    }
}

/// Whether a device that `busy` invocations saturate runs them in parallel, unlike software
/// devices.
pub(crate) fn is_parallel(busy: usize) -> bool {
    busy > DeviceKind::Cpu.busy_invocations()
}

/// Estimates the number of processors, assuming four schedulers per processor that each issue for
/// 32 invocations.
pub(crate) fn processors(busy: usize) -> usize {
    (busy / 512).max(1)
}

/// Returns the cores that the driver reports through vendor extensions; `lanes` is the subgroup
/// size.
///
/// These are `VK_NV_shader_sm_builtins`, `VK_ARM_shader_core_builtins`, and
/// `VK_AMD_shader_core_properties` with its second version, which reports the active units where
/// the first one reports those of the chip. Other vendors report nothing.
pub(super) fn of(instance: &Instance, device: vk::PhysicalDevice, lanes: u32) -> Option<Cores> {
    let known = instance.extensions(device);
    let lists =
        |name: &CStr| known.iter().any(|extension| extension.extension_name_as_c_str() == Ok(name));
    let mut nvidia = vk::PhysicalDeviceShaderSMBuiltinsPropertiesNV::default();
    let mut arm = vk::PhysicalDeviceShaderCoreBuiltinsPropertiesARM::default();
    let mut amd = vk::PhysicalDeviceShaderCorePropertiesAMD::default();
    let mut in_use = vk::PhysicalDeviceShaderCoreProperties2AMD::default();
    let mut properties = vk::PhysicalDeviceProperties2::default();
    if lists(nv::shader_sm_builtins::NAME) {
        properties = properties.push_next(&mut nvidia);
    }
    if lists(arm::shader_core_builtins::NAME) {
        properties = properties.push_next(&mut arm);
    }
    if lists(amd::shader_core_properties::NAME) {
        properties = properties.push_next(&mut amd);
    }
    if lists(amd::shader_core_properties2::NAME) {
        properties = properties.push_next(&mut in_use);
    }
    // SAFETY: the device was enumerated from this instance and supports Vulkan 1.1, as the caller
    // checked; the chain has structures of extensions that it lists, each once.
    unsafe { instance.raw.get_physical_device_properties2(device, &mut properties) };
    let of_amd = || {
        let arrays = amd.shader_engine_count.checked_mul(amd.shader_arrays_per_engine_count)?;
        let units = arrays.checked_mul(amd.compute_units_per_shader_array)?;
        let units = if in_use.active_compute_unit_count > 0 {
            in_use.active_compute_unit_count
        } else {
            units
        };
        let waves = amd.simd_per_compute_unit.checked_mul(amd.wavefronts_per_simd)?;
        Cores::of(units, waves, amd.wavefront_size)
    };
    Cores::of(nvidia.shader_sm_count, nvidia.shader_warps_per_sm, lanes)
        .or_else(|| Cores::of(arm.shader_core_count, arm.shader_warps_per_core, lanes))
        .or_else(of_amd)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn saturation_scales_with_cores() {
        let busy =
            |count, groups, lanes| Cores::of(count, groups, lanes).unwrap().busy_invocations();
        // The H200, which kernels were tuned on, and an H100 PCIe.
        assert_eq!(busy(132, 64, 32), DeviceKind::Discrete.busy_invocations());
        assert_eq!(busy(114, 64, 32), DeviceKind::Discrete.busy_invocations());
        // A GeForce RTX 4050 Laptop and an RTX 4090.
        assert_eq!([busy(20, 48, 32), busy(128, 48, 32)], [1 << 13, 1 << 16]);
        // A Mali G710 with ten cores, and a Radeon with twelve units integrated into a processor.
        assert_eq!([busy(10, 64, 16), busy(12, 32, 64)], [1 << 11, 1 << 13]);
        // No GPU is taken for a software device, which runs invocations in sequence.
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
