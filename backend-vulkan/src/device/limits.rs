//! Queries the limits of a device.

use ash::vk;
use torchlet_gpu::device::{DeviceLimits, Limits, MAX_INVOCATIONS, NEEDED_BUFFERS};

/// Returns the limits that a device reports; `allocation` is the maximum size of one memory
/// allocation.
pub(super) fn reported(device: &vk::PhysicalDeviceLimits, allocation: u64) -> DeviceLimits {
    let mut limits = DeviceLimits::default();
    limits.invocations = invocations_of(device);
    limits.workgroups = device.max_compute_work_group_count;
    limits.shared_memory = device.max_compute_shared_memory_size;
    limits.storage_buffers = buffers_of(device);
    limits.tensor = device.max_storage_buffer_range.into();
    limits.allocation = allocation;
    limits
}

/// Returns the limits that encoding depends on. `fold_at` and `buffers` lower the limits on
/// workgroups and storage buffers, for tests.
pub(super) fn plan_limits(
    device: &vk::PhysicalDeviceLimits,
    fold_at: Option<u32>,
    buffers: Option<u32>,
) -> Limits {
    let workgroups = device.max_compute_work_group_count;
    Limits {
        workgroups,
        fold_at: workgroups.map(|most| most.min(fold_at.unwrap_or(most)).max(1)),
        tensor: device.max_storage_buffer_range.into(),
        shared: device.max_compute_shared_memory_size,
        buffers: buffers_of(device).min(buffers.unwrap_or(u32::MAX)),
        // Shaders read four elements at a time.
        align: device.min_storage_buffer_offset_alignment.max(16),
        device_scope: true,
    }
}

/// Returns the maximum number of storage buffers per shader.
fn buffers_of(device: &vk::PhysicalDeviceLimits) -> u32 {
    device.max_per_stage_descriptor_storage_buffers.min(device.max_descriptor_set_storage_buffers)
}

/// Returns the maximum number of invocations per workgroup. A workgroup of that size must be
/// possible in each of the first two dims.
fn invocations_of(device: &vk::PhysicalDeviceLimits) -> u32 {
    let [x, y, _] = device.max_compute_work_group_size;
    device.max_compute_work_group_invocations.min(x).min(y)
}

/// If a limit of a device is too low for the shaders, describes that limit for the user.
pub(crate) fn lacking(device: &vk::PhysicalDeviceLimits) -> Option<String> {
    let needs = [
        ("invocations per workgroup", invocations_of(device), MAX_INVOCATIONS),
        ("storage buffers per shader", buffers_of(device), NEEDED_BUFFERS),
    ];
    let (what, has, needed) = needs.into_iter().find(|(_, has, needed)| has < needed)?;
    Some(format!("it supports {has} {what}; {needed} are required"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_below_the_required_limits_are_rejected() {
        let mut device = vk::PhysicalDeviceLimits {
            max_compute_work_group_invocations: 256,
            max_compute_work_group_size: [256, 256, 64],
            max_per_stage_descriptor_storage_buffers: 16,
            max_descriptor_set_storage_buffers: 96,
            ..Default::default()
        };
        assert_eq!(lacking(&device), None);
        device.max_compute_work_group_invocations = 128;
        let message = lacking(&device).unwrap();
        assert_eq!(message, "it supports 128 invocations per workgroup; 256 are required");
        device.max_compute_work_group_invocations = 1024;
        device.max_per_stage_descriptor_storage_buffers = 7;
        assert_eq!(lacking(&device), None);
        device.max_descriptor_set_storage_buffers = 6;
        let message = lacking(&device).unwrap();
        assert_eq!(message, "it supports 6 storage buffers per shader; 7 are required");
        device.max_per_stage_descriptor_storage_buffers = 4;
        assert!(lacking(&device).unwrap().starts_with("it supports 4 storage buffers per shader"));
    }

    #[test]
    fn buffer_limit_is_the_smaller_one() {
        let device = vk::PhysicalDeviceLimits {
            max_per_stage_descriptor_storage_buffers: 16,
            max_descriptor_set_storage_buffers: 8,
            ..Default::default()
        };
        assert_eq!(plan_limits(&device, None, None).buffers, 8);
        assert_eq!(plan_limits(&device, None, Some(7)).buffers, 7);
        assert_eq!(plan_limits(&device, None, Some(9)).buffers, 8);
    }
}
