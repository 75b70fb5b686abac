//! Instance and device extensions for portability drivers, which translate Vulkan to another API
//! (MoltenVK).

use super::extensions::extensions;
use ash::{khr, vk};
use std::ffi::CStr;
use torchlet_gpu::device::{DeviceFeature, DeviceFeatures};

fn lists(known: &[vk::ExtensionProperties], name: &CStr) -> bool {
    known.iter().any(|extension| extension.extension_name_as_c_str() == Ok(name))
}

/// Returns the extensions and flags of an instance, given the extensions that the loader lists.
/// Without them, loaders hide portability drivers.
pub(super) fn of_instance(
    known: &[vk::ExtensionProperties],
) -> (Vec<&'static CStr>, vk::InstanceCreateFlags) {
    let name = khr::portability_enumeration::NAME;
    match lists(known, name) {
        true => (vec![name], vk::InstanceCreateFlags::ENUMERATE_PORTABILITY_KHR),
        false => (Vec::new(), vk::InstanceCreateFlags::empty()),
    }
}

/// Returns the extensions to enable on a device, each once, given those that it lists and the
/// features to use. Portability drivers require `VK_KHR_portability_subset`.
pub(super) fn of_device(
    known: &[vk::ExtensionProperties],
    features: &DeviceFeatures,
) -> Vec<&'static CStr> {
    // `VK_NV_cooperative_matrix2` is only reported, not used.
    let used = features.iter().filter(|feature| *feature != DeviceFeature::CooperativeMatrix2);
    let mut names: Vec<&CStr> = used.flat_map(extensions).copied().collect();
    let subset = khr::portability_subset::NAME;
    names.extend(lists(known, subset).then_some(subset));
    names.sort_unstable();
    names.dedup();
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listed(names: &[&CStr]) -> Vec<vk::ExtensionProperties> {
        let named = |name: &&CStr| vk::ExtensionProperties::default().extension_name(name);
        names.iter().map(|name| named(name).unwrap()).collect()
    }

    const ENUMERATION: &CStr = c"VK_KHR_portability_enumeration";
    const SUBSET: &CStr = c"VK_KHR_portability_subset";

    #[test]
    fn portability_enumeration_is_enabled_if_listed() {
        let with = listed(&[c"VK_KHR_surface", ENUMERATION, c"VK_EXT_debug_utils"]);
        let flags = vk::InstanceCreateFlags::ENUMERATE_PORTABILITY_KHR;
        assert_eq!(of_instance(&with), (vec![ENUMERATION], flags));
        // The flag without the extension is an error, and so is an extension that the loader does
        // not list.
        let nothing = (Vec::new(), vk::InstanceCreateFlags::empty());
        assert_eq!(of_instance(&listed(&[c"VK_KHR_surface"])), nothing);
        assert_eq!(of_instance(&[]), nothing);
        // This is a device extension, not an instance extension.
        assert_eq!(of_instance(&listed(&[SUBSET])), nothing);
    }

    #[test]
    fn portability_subset_is_enabled_if_listed() {
        let features = DeviceFeatures::default();
        assert_eq!(of_device(&listed(&[SUBSET]), &features), [SUBSET]);
        assert!(of_device(&listed(&[ENUMERATION]), &features).is_empty());
        assert!(of_device(&[], &features).is_empty());
    }

    #[test]
    fn feature_extensions_are_listed_once() {
        let [half, byte] = [DeviceFeature::Float16Arithmetic, DeviceFeature::Int8Arithmetic];
        let both = DeviceFeatures::only(&[half, byte, DeviceFeature::CooperativeMatrix2], 32);
        let known = listed(&[SUBSET, c"VK_KHR_shader_float16_int8", c"VK_KHR_8bit_storage"]);
        assert_eq!(of_device(&known, &both), [SUBSET, c"VK_KHR_shader_float16_int8"]);
        let all = DeviceFeatures::only(DeviceFeature::ALL, 32);
        let names = of_device(&[], &all);
        assert!(names.windows(2).all(|pair| pair[0] < pair[1]), "{names:?}");
        assert!(!names.contains(&c"VK_NV_cooperative_matrix2"));
        assert!(names.contains(&c"VK_KHR_timeline_semaphore"));
    }
}
