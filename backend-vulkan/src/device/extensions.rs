//! The device extensions of optional features.

use ash::{khr, vk};
use std::ffi::CStr;
use torchlet_gpu::device::DeviceFeature;

const SHADER_BFLOAT16: &CStr = c"VK_KHR_shader_bfloat16";
const COOPERATIVE_MATRIX2: &CStr = c"VK_NV_cooperative_matrix2";

/// Returns the extensions that a feature needs; empty for features of Vulkan 1.1 itself.
pub(super) fn extensions(feature: DeviceFeature) -> &'static [&'static CStr] {
    match feature {
        DeviceFeature::Float16Arithmetic | DeviceFeature::Int8Arithmetic => {
            &[khr::shader_float16_int8::NAME]
        }
        DeviceFeature::Storage8Bit => &[khr::_8bit_storage::NAME],
        DeviceFeature::FullSubgroups => &[ash::ext::subgroup_size_control::NAME],
        DeviceFeature::IntegerDotProduct => &[khr::shader_integer_dot_product::NAME],
        DeviceFeature::CooperativeMatrix => {
            &[khr::cooperative_matrix::NAME, khr::vulkan_memory_model::NAME]
        }
        DeviceFeature::CooperativeMatrix2 => &[COOPERATIVE_MATRIX2],
        DeviceFeature::Bfloat16Matrix => &[SHADER_BFLOAT16],
        DeviceFeature::TimelineSemaphore => &[khr::timeline_semaphore::NAME],
        DeviceFeature::MemoryBudget => &[ash::ext::memory_budget::NAME],
        DeviceFeature::CalibratedTimestamps => &[ash::ext::calibrated_timestamps::NAME],
        DeviceFeature::ShaderIdentifiers => &[
            ash::ext::shader_module_identifier::NAME,
            ash::ext::pipeline_creation_cache_control::NAME,
        ],
        _ => &[],
    }
}

/// Whether all extensions that a feature needs are listed.
pub(super) fn is_listed(known: &[vk::ExtensionProperties], feature: DeviceFeature) -> bool {
    extensions(feature)
        .iter()
        .all(|name| known.iter().any(|extension| extension.extension_name_as_c_str() == Ok(name)))
}
