//! Describes the devices that the Vulkan loader lists.

use super::extensions::is_listed;
use super::instance::Instance;
use super::workarounds::{Driver, workarounds};
use super::{cores, features, limits, queues};
use ash::vk;
use std::ffi::CStr;
use torchlet_gpu::device::{Cores, DeviceFeatures, DeviceKind, DeviceLimits};

/// A device that the Vulkan loader found.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeviceInfo {
    /// The index of the device in the loader's list.
    pub index: usize,
    /// The device name that the driver reports.
    pub name: String,
    /// The kind of processor of the device.
    pub kind: DeviceKind,
    /// The supported Vulkan version: major, minor, patch.
    pub version: (u32, u32, u32),
    /// The size of the largest device-local heap, in bytes.
    pub memory: u64,
    /// The optional features of the device beyond Vulkan 1.1.
    pub features: DeviceFeatures,
    /// The cores of the device, if the driver reports them.
    pub cores: Option<Cores>,
    /// The limits of the device.
    pub limits: DeviceLimits,
    /// Whether the device has a dedicated transfer queue.
    pub transfer_queue: bool,
    /// Whether programs use fp16 matrix units, according to the stored benchmark result or because
    /// the benchmark is disabled. `None` if the benchmark has not run yet or the device has no
    /// matrix units.
    pub matrix_units: Option<bool>,
    /// The reason why the device cannot be used; `None` if it can.
    pub unusable: Option<String>,
    /// The name and version of the driver, as far as the driver reports them.
    pub driver: String,
    /// Names of the workarounds that disable features which the driver implements incorrectly.
    pub workarounds: Vec<&'static str>,
}

impl DeviceInfo {
    /// Returns the approximate number of invocations that saturate the device, computed from the
    /// cores if they are known.
    pub(crate) fn busy_invocations(&self) -> usize {
        self.cores.map_or(self.kind.busy_invocations(), Cores::busy_invocations)
    }
}

/// Describes a device of an instance.
pub(super) fn info(instance: &Instance, index: usize, device: vk::PhysicalDevice) -> DeviceInfo {
    // SAFETY: the device was enumerated from this instance.
    let properties = unsafe { instance.raw.get_physical_device_properties(device) };
    // SAFETY: as above.
    let memory = unsafe { instance.raw.get_physical_device_memory_properties(device) };
    let heaps = memory.memory_heaps_as_slice().iter();
    let local = heaps.filter(|heap| heap.flags.contains(vk::MemoryHeapFlags::DEVICE_LOCAL));
    let version = properties.api_version;
    let kind = match properties.device_type {
        vk::PhysicalDeviceType::DISCRETE_GPU => DeviceKind::Discrete,
        vk::PhysicalDeviceType::INTEGRATED_GPU => DeviceKind::Integrated,
        vk::PhysicalDeviceType::VIRTUAL_GPU => DeviceKind::Virtual,
        vk::PhysicalDeviceType::CPU => DeviceKind::Cpu,
        _ => DeviceKind::Other,
    };
    let is_old = version < vk::API_VERSION_1_1;
    let known = instance.extensions(device);
    let told = if is_old { None } else { instance.driver_properties(device, version, &known) };
    let driver = Driver {
        vendor: properties.vendor_id,
        kind,
        on_windows: cfg!(windows),
        id: told.as_ref().map(|told| told.driver_id),
        version: properties.driver_version,
    };
    let families = instance.families(device);
    let features = match is_old {
        true => DeviceFeatures::default(),
        false => features::probe(instance, device, &driver),
    };
    let cores = match is_old {
        true => None,
        false => cores::of(instance, device, features.subgroup_size),
    };
    let largest = if is_old { 0 } else { instance.largest_allocation(device) };
    let unusable = if is_old {
        Some("it supports Vulkan 1.0 only; 1.1 is required".to_owned())
    } else if queues::compute_family(&families).is_none() {
        Some("it has no compute queue".to_owned())
    } else {
        limits::lacking(&properties.limits)
    };
    DeviceInfo {
        index,
        name: properties
            .device_name_as_c_str()
            .map(CStr::to_string_lossy)
            .unwrap_or_default()
            .into_owned(),
        kind,
        version: (
            vk::api_version_major(version),
            vk::api_version_minor(version),
            vk::api_version_patch(version),
        ),
        features,
        cores,
        limits: limits::reported(&properties.limits, largest),
        transfer_queue: queues::transfer_family(&families).is_some(),
        matrix_units: None,
        memory: local.map(|heap| heap.size).max().unwrap_or(0),
        unusable,
        driver: text_of(told.as_ref(), driver.version),
        workarounds: workarounds(&driver)
            .filter(|workaround| workaround.disables_any(|feature| is_listed(&known, feature)))
            .map(|workaround| workaround.name)
            .collect(),
    }
}

/// Returns the version text that the driver reports; without it, the version number in the usual
/// encoding.
fn text_of(told: Option<&vk::PhysicalDeviceDriverProperties<'_>>, version: u32) -> String {
    let message = told.and_then(|told| {
        let texts = [told.driver_name_as_c_str(), told.driver_info_as_c_str()];
        let texts = texts.map(|text| text.map(CStr::to_string_lossy).unwrap_or_default());
        let text = texts.join(" ").trim().to_owned();
        (!text.is_empty()).then_some(text)
    });
    message.unwrap_or_else(|| {
        let [major, minor] = [vk::api_version_major(version), vk::api_version_minor(version)];
        format!("{major}.{minor}.{}", vk::api_version_patch(version))
    })
}

/// Lists the devices that the Vulkan loader finds. Features that the environment disables are left
/// out. Equals [`VulkanBackendBuilder::devices`](crate::VulkanBackendBuilder::devices) with default
/// options.
///
/// # Errors
/// The loader or a driver is missing, or an environment variable is invalid.
pub fn devices() -> Result<Vec<DeviceInfo>, torchlet_core::DelegateError> {
    crate::VulkanBackendBuilder::default().devices()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn driver_text_uses_reported_names() {
        let message = |name: &CStr, info: &CStr| {
            let told = vk::PhysicalDeviceDriverProperties::default();
            let told = told.driver_name(name).unwrap().driver_info(info).unwrap();
            text_of(Some(&told), vk::make_api_version(0, 25, 2, 8))
        };
        assert_eq!(message(c"radv", c"Mesa 25.2.8"), "radv Mesa 25.2.8");
        assert_eq!(message(c"radv", c""), "radv");
        assert_eq!(message(c"", c""), "25.2.8");
        assert_eq!(text_of(None, vk::make_api_version(0, 1, 2, 3)), "1.2.3");
    }
}
