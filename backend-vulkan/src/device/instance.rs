//! Opens the Vulkan loader and lists the devices.

use super::features;
use super::workarounds::{Driver, workarounds};
use super::{cores, limits, portability, queues};
use crate::error::Error;
use ash::vk;
use std::ffi::CStr;
use std::sync::{Arc, Mutex, PoisonError};
use torchlet_gpu::device::Cores;
use torchlet_gpu::device::DeviceKind;
use torchlet_gpu::device::DeviceLimits;
use torchlet_gpu::device::{CooperativeMatrix, DeviceFeatures};

/// A device that the Vulkan loader found.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeviceInfo {
    /// Its index in the loader's list.
    pub index: usize,
    /// The device name that the driver reports.
    pub name: String,
    /// The kind of processor.
    pub kind: DeviceKind,
    /// The Vulkan version that it supports: major, minor, patch.
    pub version: (u32, u32, u32),
    /// Bytes of its largest device-local heap.
    pub memory: u64,
    /// Its optional features beyond Vulkan 1.1.
    pub features: DeviceFeatures,
    /// Its cores, if the driver reports them.
    pub cores: Option<Cores>,
    /// Its limits.
    pub limits: DeviceLimits,
    /// Whether it has a dedicated transfer queue.
    pub transfer_queue: bool,
    /// Whether fp16 matrix units are used, according to an earlier load or because probing is
    /// disabled; `None` if this is not known yet or the device has none.
    pub matrix_units: Option<bool>,
    /// Why it cannot be used; `None` if it can.
    pub unusable: Option<String>,
    /// The driver's name and version, as far as the driver reports them.
    pub driver: String,
    /// Names of the workarounds that disable features which the driver implements incorrectly.
    pub workarounds: Vec<&'static str>,
}

impl DeviceInfo {
    /// Returns the approximate number of invocations that saturate it, from its cores if known.
    pub(crate) fn busy_invocations(&self) -> usize {
        self.cores.map_or(self.kind.busy_invocations(), Cores::busy_invocations)
    }
}

/// The loader and an instance.
pub(crate) struct Instance {
    pub(crate) raw: ash::Instance,
    // Keeps the loader's library open as long as the instance exists.
    pub(super) entry: ash::Entry,
}

/// The instance of this process, created only once because drivers limit how often: an NVIDIA
/// driver refuses the thirty-first instance.
static SHARED: Mutex<Option<Arc<Instance>>> = Mutex::new(None);

/// File names of the Vulkan loader on this platform, most likely first. On Apple systems, MoltenVK
/// works without a loader.
const LOADERS: &[&str] = if cfg!(windows) {
    &["vulkan-1.dll"]
} else if cfg!(target_vendor = "apple") {
    &["libvulkan.dylib", "libvulkan.1.dylib", "/usr/local/lib/libvulkan.dylib", "libMoltenVK.dylib"]
} else if cfg!(target_os = "android") {
    &["libvulkan.so"]
} else {
    &["libvulkan.so.1", "libvulkan.so"]
};

/// Opens the loader.
fn loader() -> Result<ash::Entry, Error> {
    let mut why = String::new();
    for name in LOADERS {
        // SAFETY: the loader is the system's Vulkan loader, whose initialisation has no
        // preconditions; the library stays open as long as anything made from it (`Instance` keeps
        // the entry, `Context` the instance).
        match unsafe { ash::Entry::load_from(name) } {
            Ok(entry) => return Ok(entry),
            // Keeps the first error, which concerns the standard name.
            Err(error) if why.is_empty() => why = error.to_string(),
            Err(_) => {}
        }
    }
    Err(Error::Unavailable(format!("the Vulkan loader cannot be opened: {why}")))
}

impl Instance {
    /// Returns the instance that all devices of this process share, creating it on first use.
    pub(crate) fn shared() -> Result<Arc<Self>, Error> {
        // Poisoning can be ignored: a panic cannot leave it half-initialised.
        let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(instance) = &*shared {
            return Ok(instance.clone());
        }
        let instance = Arc::new(Self::open()?);
        *shared = Some(instance.clone());
        Ok(instance)
    }

    fn open() -> Result<Self, Error> {
        let entry = loader()?;
        let application = vk::ApplicationInfo::default()
            .application_name(c"torchlet")
            // Everything beyond 1.1 is requested by feature; a loader that supports 1.1 accepts any
            // version.
            .api_version(vk::API_VERSION_1_3);
        // SAFETY: the loader is open.
        let known = unsafe { entry.enumerate_instance_extension_properties(None) };
        let known = known.unwrap_or_default();
        let (names, flags) = portability::of_instance(&known);
        let names: Vec<*const std::ffi::c_char> = names.iter().map(|name| name.as_ptr()).collect();
        let create = vk::InstanceCreateInfo::default()
            .application_info(&application)
            .enabled_extension_names(&names)
            .flags(flags);
        // SAFETY: `create` points to data that lives through the call.
        let raw = unsafe { entry.create_instance(&create, None) }
            .map_err(|error| Error::Unavailable(format!("no Vulkan driver: {error:?}")))?;
        Ok(Instance { raw, entry })
    }

    pub(crate) fn physical_devices(&self) -> Result<Vec<vk::PhysicalDevice>, Error> {
        // SAFETY: the instance is alive.
        unsafe { self.raw.enumerate_physical_devices() }
            .map_err(Error::of("vkEnumeratePhysicalDevices"))
    }

    pub(crate) fn info(&self, index: usize, device: vk::PhysicalDevice) -> DeviceInfo {
        // SAFETY: the device was enumerated from this instance.
        let properties = unsafe { self.raw.get_physical_device_properties(device) };
        // SAFETY: as above.
        let memory = unsafe { self.raw.get_physical_device_memory_properties(device) };
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
        let known = self.extensions(device);
        let told = if is_old { None } else { self.driver_properties(device, version, &known) };
        let driver = Driver {
            vendor: properties.vendor_id,
            kind,
            on_windows: cfg!(windows),
            id: told.as_ref().map(|told| told.driver_id),
            version: properties.driver_version,
        };
        let families = self.families(device);
        let features = match is_old {
            true => DeviceFeatures::default(),
            false => features::probe(self, device, &driver),
        };
        let cores = match is_old {
            true => None,
            false => cores::of(self, device, features.subgroup_size),
        };
        let largest = if is_old { 0 } else { self.largest_allocation(device) };
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
                .filter(|workaround| {
                    workaround.disables_any(|feature| features::is_listed(&known, feature))
                })
                .map(|workaround| workaround.name)
                .collect(),
        }
    }

    /// Returns the extensions that a device lists.
    pub(super) fn extensions(&self, device: vk::PhysicalDevice) -> Vec<vk::ExtensionProperties> {
        // SAFETY: the device was enumerated from this instance.
        let known = unsafe { self.raw.enumerate_device_extension_properties(device) };
        known.unwrap_or_default()
    }

    /// Returns the driver properties of a device with these extensions, if the driver supports the
    /// query. The device must support Vulkan 1.1.
    fn driver_properties(
        &self,
        device: vk::PhysicalDevice,
        version: u32,
        known: &[vk::ExtensionProperties],
    ) -> Option<vk::PhysicalDeviceDriverProperties<'static>> {
        let name = ash::khr::driver_properties::NAME;
        let lists = || known.iter().any(|it| it.extension_name_as_c_str() == Ok(name));
        if version < vk::API_VERSION_1_2 && !lists() {
            return None;
        }
        let mut told = vk::PhysicalDeviceDriverProperties::default();
        let mut properties = vk::PhysicalDeviceProperties2::default().push_next(&mut told);
        // SAFETY: the device was enumerated from this instance, and supports Vulkan 1.2 or lists
        // the extension of the structure.
        unsafe { self.raw.get_physical_device_properties2(device, &mut properties) };
        Some(told)
    }

    /// Returns the queue families of a device.
    pub(crate) fn families(&self, device: vk::PhysicalDevice) -> Vec<vk::QueueFamilyProperties> {
        // SAFETY: the device was enumerated from this instance.
        unsafe { self.raw.get_physical_device_queue_family_properties(device) }
    }

    /// Returns the matrix multiplications that a subgroup of a device supports. The device must
    /// list the extension.
    pub(crate) fn cooperative_matrices(
        &self,
        device: vk::PhysicalDevice,
    ) -> Vec<CooperativeMatrix> {
        let functions = ash::khr::cooperative_matrix::Instance::new(&self.entry, &self.raw);
        // SAFETY: the device was enumerated from this instance and lists the extension of the
        // function.
        let found = unsafe { functions.get_physical_device_cooperative_matrix_properties(device) };
        let found = found.unwrap_or_default();
        let by_subgroup = found.iter().filter(|found| found.scope == vk::ScopeKHR::SUBGROUP);
        by_subgroup
            .map(|found| {
                let elements = [found.a_type, found.b_type, found.c_type, found.result_type];
                let sizes = [found.m_size, found.n_size, found.k_size];
                CooperativeMatrix::new(sizes, elements.map(features::element_of))
            })
            .collect()
    }

    /// Returns the maximum size of one memory allocation, in bytes.
    pub(crate) fn largest_allocation(&self, device: vk::PhysicalDevice) -> u64 {
        let mut limits = vk::PhysicalDeviceMaintenance3Properties::default();
        let mut properties = vk::PhysicalDeviceProperties2::default().push_next(&mut limits);
        // SAFETY: the device was enumerated from this instance and supports Vulkan 1.1, as all that
        // are opened do.
        unsafe { self.raw.get_physical_device_properties2(device, &mut properties) };
        limits.max_memory_allocation_size
    }

    /// Returns the largest free memory budget of a device-local heap, in bytes. The device must
    /// list `VK_EXT_memory_budget`.
    pub(crate) fn free_memory(&self, device: vk::PhysicalDevice) -> u64 {
        let mut budget = vk::PhysicalDeviceMemoryBudgetPropertiesEXT::default();
        let mut memory = vk::PhysicalDeviceMemoryProperties2::default().push_next(&mut budget);
        // SAFETY: the device was enumerated from this instance and lists the extension of the
        // structure.
        unsafe { self.raw.get_physical_device_memory_properties2(device, &mut memory) };
        let heaps = memory.memory_properties;
        let heaps = heaps.memory_heaps_as_slice().iter().enumerate();
        heaps
            .filter(|(_, heap)| heap.flags.contains(vk::MemoryHeapFlags::DEVICE_LOCAL))
            .filter_map(|(index, _)| {
                let (budget, used) =
                    (budget.heap_budget.get(index)?, budget.heap_usage.get(index)?);
                Some(budget.saturating_sub(*used))
            })
            .max()
            .unwrap_or(u64::MAX)
    }

    /// Whether the host can map all of the device's memory, rather than a window of it.
    pub(crate) fn host_sees_device(&self, device: vk::PhysicalDevice) -> bool {
        // SAFETY: the device was enumerated from this instance.
        let memory = unsafe { self.raw.get_physical_device_memory_properties(device) };
        let heaps = memory.memory_heaps_as_slice();
        let size =
            |kind: &vk::MemoryType| heaps.get(kind.heap_index as usize).map(|heap| heap.size);
        let largest = |flags: vk::MemoryPropertyFlags| {
            let kinds = memory.memory_types_as_slice().iter();
            kinds.filter(|kind| kind.property_flags.contains(flags)).filter_map(size).max()
        };
        let local = vk::MemoryPropertyFlags::DEVICE_LOCAL;
        let visible =
            vk::MemoryPropertyFlags::HOST_VISIBLE | vk::MemoryPropertyFlags::HOST_COHERENT;
        // The driver may reserve some memory, so the sizes need not be equal.
        largest(local | visible).is_some_and(|seen| seen >= largest(local).unwrap_or(0) / 2)
    }
}

/// Returns the driver's own description, or its version in the usual encoding.
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

impl Drop for Instance {
    fn drop(&mut self) {
        // SAFETY: everything made from the instance holds it by reference count and is gone by now.
        unsafe { self.raw.destroy_instance(None) };
    }
}

/// Lists the devices that the Vulkan loader finds, without the features that the environment
/// disables. Equals [`VulkanBackendBuilder::devices`](crate::VulkanBackendBuilder::devices) with
/// default options.
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
