//! What plans may use of a device, from the limits of WebGPU.

use torchlet_gpu::device::{DeviceFeatures, DeviceLimits, Limits, MAX_INVOCATIONS, NEEDED_BUFFERS};

/// The number of storage buffers that a shader binds for its parameters.
const PARAMETER_BUFFERS: u32 = 1;

/// Returns the optional features that plans use: none.
pub(crate) fn features() -> DeviceFeatures {
    DeviceFeatures::default()
}

/// Returns the limits that an adapter reports.
pub(crate) fn reported(limits: &wgpu::Limits) -> DeviceLimits {
    let mut reported = DeviceLimits::default();
    reported.invocations = invocations_of(limits);
    reported.workgroups = [limits.max_compute_workgroups_per_dimension; 3];
    reported.shared_memory = limits.max_compute_workgroup_storage_size;
    reported.storage_buffers = limits.max_storage_buffers_per_shader_stage;
    reported.tensor = limits.max_storage_buffer_binding_size;
    reported.allocation = limits.max_buffer_size;
    reported
}

/// Returns the limits that encoding depends on.
pub(crate) fn plan_limits(limits: &wgpu::Limits) -> Limits {
    let workgroups = [limits.max_compute_workgroups_per_dimension; 3];
    Limits {
        workgroups,
        fold_at: workgroups.map(|most| most.max(1)),
        tensor: limits.max_storage_buffer_binding_size.min(limits.max_buffer_size),
        shared: limits.max_compute_workgroup_storage_size,
        buffers: limits.max_storage_buffers_per_shader_stage.saturating_sub(PARAMETER_BUFFERS),
        // Shaders read four elements at a time.
        align: u64::from(limits.min_storage_buffer_offset_alignment).max(16),
        // The barriers of WGSL are of workgroup scope.
        device_scope: false,
    }
}

/// Returns the maximum number of invocations per workgroup, in each of the first two dims.
fn invocations_of(limits: &wgpu::Limits) -> u32 {
    let (x, y) = (limits.max_compute_workgroup_size_x, limits.max_compute_workgroup_size_y);
    limits.max_compute_invocations_per_workgroup.min(x).min(y)
}

/// If a limit of a device is too low for the shaders, describes that limit for the user.
pub(crate) fn lacking(limits: &wgpu::Limits) -> Option<String> {
    let needs = [
        ("invocations per workgroup", invocations_of(limits), MAX_INVOCATIONS),
        (
            "storage buffers per shader",
            limits.max_storage_buffers_per_shader_stage,
            NEEDED_BUFFERS + PARAMETER_BUFFERS,
        ),
    ];
    let (what, has, needed) = needs.into_iter().find(|(_, has, needed)| has < needed)?;
    Some(format!("it supports {has} {what}; {needed} are required"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limits_of_every_webgpu_device_suffice() {
        let limits = wgpu::Limits::default();
        assert_eq!(lacking(&limits), None);
        let planned = plan_limits(&limits);
        assert_eq!((planned.buffers, planned.align, planned.tensor), (7, 256, 128 << 20));
        assert_eq!((planned.shared, planned.workgroups), (16384, [65535; 3]));
    }

    #[test]
    fn devices_below_the_required_limits_are_rejected() {
        let few = wgpu::Limits { max_storage_buffers_per_shader_stage: 4, ..Default::default() };
        let expected = "it supports 4 storage buffers per shader; 8 are required";
        assert_eq!(lacking(&few).unwrap(), expected);
        let small = wgpu::Limits { max_compute_workgroup_size_y: 128, ..Default::default() };
        let expected = "it supports 128 invocations per workgroup; 256 are required";
        assert_eq!(lacking(&small).unwrap(), expected);
    }
}
