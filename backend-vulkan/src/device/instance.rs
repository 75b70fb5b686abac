//! Opens the Vulkan loader and queries physical devices.

use super::portability;
use crate::error::Error;
use ash::vk;
use std::sync::{Arc, Mutex, PoisonError};

/// The Vulkan loader, and an instance created with it.
pub(crate) struct Instance {
    pub(crate) raw: ash::Instance,
    // Keeps the loader's library open as long as the instance exists.
    pub(super) entry: ash::Entry,
}

/// The instance that this process shares. It is created only once, because drivers limit the number
/// of instances: an NVIDIA driver refuses the thirty-first.
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

/// Opens the Vulkan loader.
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

    /// Returns the extensions that a device lists.
    pub(super) fn extensions(&self, device: vk::PhysicalDevice) -> Vec<vk::ExtensionProperties> {
        // SAFETY: the device was enumerated from this instance.
        let known = unsafe { self.raw.enumerate_device_extension_properties(device) };
        known.unwrap_or_default()
    }

    /// Returns the driver properties of a device with these extensions, if the driver supports the
    /// query. The device must support Vulkan 1.1.
    pub(super) fn driver_properties(
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

    /// Whether the host can map all of the device's memory, rather than only a window of it.
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

impl Drop for Instance {
    fn drop(&mut self) {
        // SAFETY: everything made from the instance holds it by reference count and is gone by now.
        unsafe { self.raw.destroy_instance(None) };
    }
}
