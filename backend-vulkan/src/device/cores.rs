//! Queries the number of cores of a device and their size.

use super::instance::Instance;
use ash::{amd, arm, nv, vk};
use std::ffi::CStr;
use torchlet_gpu::device::Cores;

/// Returns the cores that the driver reports through vendor extensions; `lanes` is the subgroup
/// size.
///
/// The extensions are `VK_NV_shader_sm_builtins`, `VK_ARM_shader_core_builtins`, and
/// `VK_AMD_shader_core_properties`. The second version of the AMD extension reports the active
/// units, the first one all units of the chip. Other vendors report nothing.
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
