//! Queries and enables the optional features of a device, beyond Vulkan 1.1.

use super::extensions::is_listed;
use super::instance::Instance;
use super::portability;
use super::workarounds::{Driver, is_avoided};
use ash::vk;
use torchlet_gpu::device::{CooperativeMatrix, DeviceFeature, DeviceFeatures, MatrixElement};

/// Definitions from `VK_KHR_shader_bfloat16` that the Vulkan bindings lack: the component type, and
/// the structure type.
const BFLOAT16: vk::ComponentTypeKHR = vk::ComponentTypeKHR::from_raw(1_000_141_000);
const BFLOAT16_FEATURES: i32 = 1_000_141_000;

/// `VkPhysicalDeviceShaderBfloat16FeaturesKHR`.
#[repr(C)]
struct Bfloat16Features {
    structure_type: vk::StructureType,
    next: *mut std::ffi::c_void,
    bfloat16: vk::Bool32,
    dot_product: vk::Bool32,
    cooperative_matrix: vk::Bool32,
}

impl Default for Bfloat16Features {
    fn default() -> Self {
        Bfloat16Features {
            structure_type: vk::StructureType::from_raw(BFLOAT16_FEATURES),
            next: std::ptr::null_mut(),
            bfloat16: vk::FALSE,
            dot_product: vk::FALSE,
            cooperative_matrix: vk::FALSE,
        }
    }
}

// SAFETY: the layout is that of C, with the fields of the extension's structure in order, beginning
// with the structure type and the next pointer, as members of a chain require; the extension's
// specification lists the structure among those that extend `VkPhysicalDeviceFeatures2`.
unsafe impl vk::ExtendsPhysicalDeviceFeatures2 for Bfloat16Features {}

/// Returns the matrix element type for a Vulkan component type, if shaders use it.
fn element_of(component: vk::ComponentTypeKHR) -> MatrixElement {
    match component {
        vk::ComponentTypeKHR::FLOAT16 => MatrixElement::F16,
        BFLOAT16 => MatrixElement::Bf16,
        vk::ComponentTypeKHR::FLOAT32 => MatrixElement::F32,
        vk::ComponentTypeKHR::SINT8 => MatrixElement::I8,
        vk::ComponentTypeKHR::UINT8 => MatrixElement::U8,
        vk::ComponentTypeKHR::SINT32 => MatrixElement::I32,
        _ => MatrixElement::Other,
    }
}

/// The Vulkan structures for querying and enabling features.
#[derive(Default)]
struct Structures {
    core: vk::PhysicalDeviceFeatures,
    float16_int8: vk::PhysicalDeviceShaderFloat16Int8Features<'static>,
    storage16: vk::PhysicalDevice16BitStorageFeatures<'static>,
    storage8: vk::PhysicalDevice8BitStorageFeatures<'static>,
    subgroup_size: vk::PhysicalDeviceSubgroupSizeControlFeatures<'static>,
    dot_product: vk::PhysicalDeviceShaderIntegerDotProductFeatures<'static>,
    memory_model: vk::PhysicalDeviceVulkanMemoryModelFeatures<'static>,
    matrix: vk::PhysicalDeviceCooperativeMatrixFeaturesKHR<'static>,
    bfloat16: Bfloat16Features,
    timeline: vk::PhysicalDeviceTimelineSemaphoreFeatures<'static>,
    identifiers: vk::PhysicalDeviceShaderModuleIdentifierFeaturesEXT<'static>,
    cache_control: vk::PhysicalDevicePipelineCreationCacheControlFeatures<'static>,
}

/// Calls `with` with a chain of the feature structures whose extensions are `listed`.
fn chained<R>(
    structures: &mut Structures,
    listed: impl Fn(DeviceFeature) -> bool,
    with: impl FnOnce(&mut vk::PhysicalDeviceFeatures2<'_>) -> R,
) -> R {
    let mut chain = vk::PhysicalDeviceFeatures2::default()
        .features(structures.core)
        .push_next(&mut structures.storage16);
    if listed(DeviceFeature::Float16Arithmetic) {
        chain = chain.push_next(&mut structures.float16_int8);
    }
    if listed(DeviceFeature::Storage8Bit) {
        chain = chain.push_next(&mut structures.storage8);
    }
    if listed(DeviceFeature::FullSubgroups) {
        chain = chain.push_next(&mut structures.subgroup_size);
    }
    if listed(DeviceFeature::IntegerDotProduct) {
        chain = chain.push_next(&mut structures.dot_product);
    }
    if listed(DeviceFeature::CooperativeMatrix) {
        chain = chain.push_next(&mut structures.matrix).push_next(&mut structures.memory_model);
    }
    if listed(DeviceFeature::Bfloat16Matrix) {
        chain = chain.push_next(&mut structures.bfloat16);
    }
    if listed(DeviceFeature::TimelineSemaphore) {
        chain = chain.push_next(&mut structures.timeline);
    }
    if listed(DeviceFeature::ShaderIdentifiers) {
        let (identifiers, control) = (&mut structures.identifiers, &mut structures.cache_control);
        chain = chain.push_next(identifiers).push_next(control);
    }
    let result = with(&mut chain);
    structures.core = chain.features;
    result
}

/// Queries the features of a device. Features that the driver implements incorrectly are left out.
pub(crate) fn probe(
    instance: &Instance,
    device: vk::PhysicalDevice,
    driver: &Driver,
) -> DeviceFeatures {
    let known = instance.extensions(device);
    let listed =
        |feature: DeviceFeature| !is_avoided(driver, feature) && is_listed(&known, feature);
    let mut found = Structures::default();
    chained(&mut found, listed, |chain| {
        // SAFETY: the device supports Vulkan 1.1, and the chain has structures of extensions that
        // it lists.
        unsafe { instance.raw.get_physical_device_features2(device, chain) };
    });
    let mut subgroup = vk::PhysicalDeviceSubgroupProperties::default();
    let mut properties = vk::PhysicalDeviceProperties2::default().push_next(&mut subgroup);
    // SAFETY: as above.
    unsafe { instance.raw.get_physical_device_properties2(device, &mut properties) };

    let mut features = DeviceFeatures::default();
    features.subgroup_size = subgroup.subgroup_size;
    let computes = subgroup.supported_stages.contains(vk::ShaderStageFlags::COMPUTE);
    let subgroup = |operation| computes && subgroup.supported_operations.contains(operation);
    let matrix = found.matrix.cooperative_matrix == vk::TRUE
        && found.memory_model.vulkan_memory_model == vk::TRUE;
    let identifiers = found.identifiers.shader_module_identifier == vk::TRUE
        && found.cache_control.pipeline_creation_cache_control == vk::TRUE;
    for (feature, present) in [
        (DeviceFeature::Float16Arithmetic, found.float16_int8.shader_float16 == vk::TRUE),
        (DeviceFeature::Int8Arithmetic, found.float16_int8.shader_int8 == vk::TRUE),
        (DeviceFeature::Int16Arithmetic, found.core.shader_int16 == vk::TRUE),
        (DeviceFeature::Float16Storage, found.storage16.storage_buffer16_bit_access == vk::TRUE),
        (DeviceFeature::Storage8Bit, found.storage8.storage_buffer8_bit_access == vk::TRUE),
        (DeviceFeature::SubgroupArithmetic, subgroup(vk::SubgroupFeatureFlags::ARITHMETIC)),
        (DeviceFeature::SubgroupVote, subgroup(vk::SubgroupFeatureFlags::VOTE)),
        (DeviceFeature::SubgroupShuffle, subgroup(vk::SubgroupFeatureFlags::SHUFFLE)),
        (
            DeviceFeature::FullSubgroups,
            found.subgroup_size.compute_full_subgroups == vk::TRUE
                && computes
                && features.subgroup_size > 0,
        ),
        (
            DeviceFeature::IntegerDotProduct,
            found.dot_product.shader_integer_dot_product == vk::TRUE,
        ),
        (DeviceFeature::CooperativeMatrix, matrix),
        (DeviceFeature::CooperativeMatrix2, matrix && listed(DeviceFeature::CooperativeMatrix2)),
        (
            DeviceFeature::Bfloat16Matrix,
            matrix
                && found.bfloat16.bfloat16 == vk::TRUE
                && found.bfloat16.cooperative_matrix == vk::TRUE,
        ),
        (DeviceFeature::TimelineSemaphore, found.timeline.timeline_semaphore == vk::TRUE),
        (DeviceFeature::MemoryBudget, listed(DeviceFeature::MemoryBudget)),
        (DeviceFeature::CalibratedTimestamps, listed(DeviceFeature::CalibratedTimestamps)),
        (DeviceFeature::ShaderIdentifiers, identifiers),
    ] {
        features.set(feature, present && !is_avoided(driver, feature));
    }
    if matrix {
        features.cooperative_matrices = cooperative_matrices(instance, device);
    }
    features
}

/// Returns the matrix multiplications that a subgroup of a device supports. The device must
/// list the extension.
fn cooperative_matrices(instance: &Instance, device: vk::PhysicalDevice) -> Vec<CooperativeMatrix> {
    let functions = ash::khr::cooperative_matrix::Instance::new(&instance.entry, &instance.raw);
    // SAFETY: the device was enumerated from this instance and lists the extension of the
    // function.
    let found = unsafe { functions.get_physical_device_cooperative_matrix_properties(device) };
    let found = found.unwrap_or_default();
    let by_subgroup = found.iter().filter(|found| found.scope == vk::ScopeKHR::SUBGROUP);
    by_subgroup
        .map(|found| {
            let elements = [found.a_type, found.b_type, found.c_type, found.result_type];
            let sizes = [found.m_size, found.n_size, found.k_size];
            CooperativeMatrix::new(sizes, elements.map(element_of))
        })
        .collect()
}

/// Creates a device with one queue of each of these families and with these features, all of which
/// the device must have.
pub(crate) fn make_device(
    instance: &Instance,
    device: vk::PhysicalDevice,
    families: &[u32],
    features: &DeviceFeatures,
) -> Result<ash::Device, vk::Result> {
    let bit = |feature| vk::Bool32::from(features.has(feature));
    let mut wanted = Structures::default();
    // Every device supports it, and it has no measurable cost. An out-of-bounds
    // shader access stays within the bound buffers and cannot read other memory of the process.
    // Tensors share a buffer, so such a write may still reach another tensor.
    wanted.core.robust_buffer_access = vk::TRUE;
    wanted.core.shader_int16 = bit(DeviceFeature::Int16Arithmetic);
    wanted.float16_int8.shader_float16 = bit(DeviceFeature::Float16Arithmetic);
    wanted.float16_int8.shader_int8 = bit(DeviceFeature::Int8Arithmetic);
    wanted.storage16.storage_buffer16_bit_access = bit(DeviceFeature::Float16Storage);
    wanted.storage8.storage_buffer8_bit_access = bit(DeviceFeature::Storage8Bit);
    wanted.subgroup_size.compute_full_subgroups = bit(DeviceFeature::FullSubgroups);
    wanted.dot_product.shader_integer_dot_product = bit(DeviceFeature::IntegerDotProduct);
    wanted.memory_model.vulkan_memory_model = bit(DeviceFeature::CooperativeMatrix);
    wanted.matrix.cooperative_matrix = bit(DeviceFeature::CooperativeMatrix);
    wanted.bfloat16.bfloat16 = bit(DeviceFeature::Bfloat16Matrix);
    wanted.bfloat16.cooperative_matrix = bit(DeviceFeature::Bfloat16Matrix);
    wanted.timeline.timeline_semaphore = bit(DeviceFeature::TimelineSemaphore);
    wanted.identifiers.shader_module_identifier = bit(DeviceFeature::ShaderIdentifiers);
    wanted.cache_control.pipeline_creation_cache_control = bit(DeviceFeature::ShaderIdentifiers);
    let names = portability::of_device(&instance.extensions(device), features);
    let names: Vec<*const std::ffi::c_char> = names.iter().map(|name| name.as_ptr()).collect();
    let queue = |family: &u32| {
        vk::DeviceQueueCreateInfo::default().queue_family_index(*family).queue_priorities(&[1.0])
    };
    let queues: Vec<vk::DeviceQueueCreateInfo<'_>> = families.iter().map(queue).collect();
    let listed = |feature| match feature {
        DeviceFeature::Float16Arithmetic => {
            features.has(DeviceFeature::Float16Arithmetic)
                || features.has(DeviceFeature::Int8Arithmetic)
        }
        feature => features.has(feature),
    };
    chained(&mut wanted, listed, |chain| {
        let create = vk::DeviceCreateInfo::default()
            .queue_create_infos(&queues)
            .enabled_extension_names(&names)
            .push_next(chain);
        // SAFETY: the device is one of the instance's, the queue families exist and differ, the
        // device has the features and lists their extensions, and all that `create` points to lives
        // through the call.
        unsafe { instance.raw.create_device(device, &create, None) }
    })
}
