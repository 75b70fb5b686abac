//! Optional device features beyond Vulkan 1.1: probed when a device is opened, and used if
//! available.

use super::instance::Instance;
use super::portability;
use super::workarounds::{Driver, is_avoided};
use ash::{khr, vk};
use std::ffi::CStr;
use torchlet_shaders::Feature;

/// An optional feature of a device. Devices without it use another code path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[repr(u8)]
pub enum DeviceFeature {
    /// Arithmetic with 16-bit floats.
    Float16Arithmetic,
    /// Arithmetic with 8-bit integers.
    Int8Arithmetic,
    /// Arithmetic with 16-bit integers.
    Int16Arithmetic,
    /// 16-bit elements in storage buffers.
    Float16Storage,
    /// 8-bit elements in storage buffers.
    Storage8Bit,
    /// Subgroup reductions.
    SubgroupArithmetic,
    /// Subgroup votes.
    SubgroupVote,
    /// Subgroup shuffles.
    SubgroupShuffle,
    /// Full subgroups, without inactive invocations.
    FullSubgroups,
    /// Dot products of 8-bit integers.
    IntegerDotProduct,
    /// Matrix multiplication by a subgroup (`VK_KHR_cooperative_matrix`).
    CooperativeMatrix,
    /// Extensions of it (`VK_NV_cooperative_matrix2`).
    CooperativeMatrix2,
    /// Matrix multiplication with `bfloat16` operands (`VK_KHR_shader_bfloat16`).
    Bfloat16Matrix,
    /// Timeline semaphores.
    TimelineSemaphore,
    /// Memory budget reports.
    MemoryBudget,
    /// Calibrated device and host timestamps.
    CalibratedTimestamps,
    /// Pipeline creation from the driver's cache by shader identifier, without the shader module
    /// (`VK_EXT_shader_module_identifier`).
    ShaderIdentifiers,
}

impl DeviceFeature {
    /// All features.
    pub const ALL: &'static [DeviceFeature] = &[
        DeviceFeature::Float16Arithmetic,
        DeviceFeature::Int8Arithmetic,
        DeviceFeature::Int16Arithmetic,
        DeviceFeature::Float16Storage,
        DeviceFeature::Storage8Bit,
        DeviceFeature::SubgroupArithmetic,
        DeviceFeature::SubgroupVote,
        DeviceFeature::SubgroupShuffle,
        DeviceFeature::FullSubgroups,
        DeviceFeature::IntegerDotProduct,
        DeviceFeature::CooperativeMatrix,
        DeviceFeature::CooperativeMatrix2,
        DeviceFeature::Bfloat16Matrix,
        DeviceFeature::TimelineSemaphore,
        DeviceFeature::MemoryBudget,
        DeviceFeature::CalibratedTimestamps,
        DeviceFeature::ShaderIdentifiers,
    ];

    /// Returns the name that `TORCHLET_VULKAN_DISABLE` accepts.
    pub const fn name(self) -> &'static str {
        match self {
            DeviceFeature::Float16Arithmetic => "fp16",
            DeviceFeature::Int8Arithmetic => "int8",
            DeviceFeature::Int16Arithmetic => "int16",
            DeviceFeature::Float16Storage => "storage16",
            DeviceFeature::Storage8Bit => "storage8",
            DeviceFeature::SubgroupArithmetic => "subgroup-arithmetic",
            DeviceFeature::SubgroupVote => "subgroup-vote",
            DeviceFeature::SubgroupShuffle => "subgroup-shuffle",
            DeviceFeature::FullSubgroups => "subgroup-full",
            DeviceFeature::IntegerDotProduct => "dot-product",
            DeviceFeature::CooperativeMatrix => "cooperative-matrix",
            DeviceFeature::CooperativeMatrix2 => "cooperative-matrix2",
            DeviceFeature::Bfloat16Matrix => "bfloat16-matrix",
            DeviceFeature::TimelineSemaphore => "timeline-semaphore",
            DeviceFeature::MemoryBudget => "memory-budget",
            DeviceFeature::CalibratedTimestamps => "calibrated-timestamps",
            DeviceFeature::ShaderIdentifiers => "shader-identifiers",
        }
    }

    /// Returns the features that a name selects: a single one, `subgroup` for all subgroup
    /// features, or `all`.
    pub(crate) fn named(name: &str) -> Vec<DeviceFeature> {
        let named = |feature: &&DeviceFeature| {
            let own = feature.name();
            own == name || name == "all" || (name == "subgroup" && own.starts_with("subgroup-"))
        };
        DeviceFeature::ALL.iter().filter(named).copied().collect()
    }
}

impl From<Feature> for DeviceFeature {
    fn from(feature: Feature) -> Self {
        match feature {
            Feature::Float16Arithmetic => DeviceFeature::Float16Arithmetic,
            Feature::Int8Arithmetic => DeviceFeature::Int8Arithmetic,
            Feature::Int16Arithmetic => DeviceFeature::Int16Arithmetic,
            Feature::Float16Storage => DeviceFeature::Float16Storage,
            Feature::Storage8Bit => DeviceFeature::Storage8Bit,
            Feature::SubgroupArithmetic => DeviceFeature::SubgroupArithmetic,
            Feature::SubgroupVote => DeviceFeature::SubgroupVote,
            Feature::SubgroupShuffle => DeviceFeature::SubgroupShuffle,
            Feature::IntegerDotProduct => DeviceFeature::IntegerDotProduct,
            Feature::CooperativeMatrix => DeviceFeature::CooperativeMatrix,
            Feature::Bfloat16Matrix => DeviceFeature::Bfloat16Matrix,
        }
    }
}

/// The element type of a cooperative matrix.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the names are those of the types")]
pub enum MatrixElement {
    F16,
    Bf16,
    F32,
    I8,
    U8,
    I32,
    Other,
}

/// Definitions from `VK_KHR_shader_bfloat16` that the Vulkan bindings lack: its name, the component
/// type, and the structure type.
const SHADER_BFLOAT16: &CStr = c"VK_KHR_shader_bfloat16";
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

impl From<vk::ComponentTypeKHR> for MatrixElement {
    fn from(component: vk::ComponentTypeKHR) -> Self {
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
}

/// A matrix multiplication that a subgroup can compute: `[m, k] x [k, n] + [m, n]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
#[allow(missing_docs, reason = "sizes and types have their usual names")]
pub struct CooperativeMatrix {
    pub m: u32,
    pub n: u32,
    pub k: u32,
    pub a: MatrixElement,
    pub b: MatrixElement,
    pub c: MatrixElement,
    pub result: MatrixElement,
}

/// The optional features of a device.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeviceFeatures {
    bits: u32,
    /// Invocations per subgroup.
    pub subgroup_size: u32,
    /// The matrix multiplications that a subgroup can compute.
    pub cooperative_matrices: Vec<CooperativeMatrix>,
}

/// 16×16 fp16 matrices with 32-bit accumulators.
const HALVES: CooperativeMatrix = CooperativeMatrix {
    m: 16,
    n: 16,
    k: 16,
    a: MatrixElement::F16,
    b: MatrixElement::F16,
    c: MatrixElement::F32,
    result: MatrixElement::F32,
};

/// int8 matrices of 16 rows or columns and `k` terms, with 32-bit accumulators.
const fn codes(k: u32) -> CooperativeMatrix {
    let (byte, sum) = (MatrixElement::I8, MatrixElement::I32);
    CooperativeMatrix { m: 16, n: 16, k, a: byte, b: byte, c: sum, result: sum }
}

impl DeviceFeatures {
    /// Whether the device has a feature.
    pub fn has(&self, feature: DeviceFeature) -> bool {
        self.bits & 1 << feature as u8 != 0
    }

    /// Returns the features of the device.
    pub fn iter(&self) -> impl Iterator<Item = DeviceFeature> + '_ {
        DeviceFeature::ALL.iter().copied().filter(|feature| self.has(*feature))
    }

    /// Whether the device has all features that a shader needs.
    pub(crate) fn have(&self, needed: &[Feature]) -> bool {
        needed.iter().all(|feature| self.has(DeviceFeature::from(*feature)))
    }

    /// Whether workgroups with a multiple of 32 invocations consist of full subgroups of 32.
    pub(crate) fn fill_subgroups_of_32(&self) -> bool {
        self.subgroup_size == 32 && self.has(DeviceFeature::FullSubgroups)
    }

    /// Whether subgroups can multiply 16×16 fp16 matrices with 32-bit accumulators.
    pub(crate) fn multiply_halves(&self) -> bool {
        let needed =
            [Feature::CooperativeMatrix, Feature::Float16Arithmetic, Feature::Float16Storage];
        self.have(&needed) && self.cooperative_matrices.contains(&HALVES)
    }

    /// The same for `bfloat16` matrices.
    pub(crate) fn multiply_bfloat16(&self) -> bool {
        let needed = [Feature::Bfloat16Matrix, Feature::CooperativeMatrix, Feature::Float16Storage];
        let product =
            CooperativeMatrix { a: MatrixElement::Bf16, b: MatrixElement::Bf16, ..HALVES };
        self.have(&needed) && self.cooperative_matrices.contains(&product)
    }

    /// Whether subgroups support fp16 accumulator matrices, to which 32-bit ones can be converted.
    pub(crate) fn keep_sums_as_halves(&self) -> bool {
        self.cooperative_matrices
            .iter()
            .any(|it| (it.m, it.n) == (16, 16) && [it.c, it.result].contains(&MatrixElement::F16))
    }

    /// Returns the number of terms that subgroups multiply at a time in int8 matrices of 16 rows
    /// and columns with 32-bit accumulators; `None` if unsupported.
    pub(crate) fn multiply_codes(&self) -> Option<u32> {
        let needed = [Feature::CooperativeMatrix, Feature::Int8Arithmetic];
        let does = |k: &u32| self.cooperative_matrices.contains(&codes(*k));
        [32, 16].into_iter().find(|k| self.have(&needed) && does(k))
    }

    /// A device with only these features.
    #[cfg(test)]
    pub(crate) fn only(all: &[DeviceFeature], subgroup_size: u32) -> Self {
        let mut features = DeviceFeatures { subgroup_size, ..Self::default() };
        all.iter().for_each(|feature| features.set(*feature, true));
        features
    }

    /// A device that multiplies fp16 matrices, with accumulators of either type.
    #[cfg(test)]
    pub(crate) fn multiplying_halves() -> Self {
        let half = MatrixElement::F16;
        let cooperative_matrices =
            vec![HALVES, CooperativeMatrix { c: half, result: half, ..HALVES }];
        let mut features = DeviceFeatures { cooperative_matrices, ..Self::default() };
        features.set(DeviceFeature::CooperativeMatrix, true);
        features.set(DeviceFeature::Float16Arithmetic, true);
        features.set(DeviceFeature::Float16Storage, true);
        features.set(DeviceFeature::SubgroupVote, true);
        features.set(DeviceFeature::FullSubgroups, true);
        features
    }

    /// A device that multiplies int8 matrices.
    #[cfg(test)]
    pub(crate) fn multiplying_codes(k: u32) -> Self {
        let all = [DeviceFeature::CooperativeMatrix, DeviceFeature::Int8Arithmetic];
        DeviceFeatures { cooperative_matrices: vec![codes(k)], ..Self::only(&all, 32) }
    }

    fn set(&mut self, feature: DeviceFeature, present: bool) {
        let bit = 1 << feature as u8;
        self.bits = if present { self.bits | bit } else { self.bits & !bit };
    }

    /// Returns the features except the disabled ones.
    pub(crate) fn without(&self, disabled: &[DeviceFeature]) -> Self {
        let mut features = self.clone();
        for feature in disabled {
            features.set(*feature, false);
        }
        if !features.has(DeviceFeature::CooperativeMatrix) {
            features.set(DeviceFeature::CooperativeMatrix2, false);
            features.set(DeviceFeature::Bfloat16Matrix, false);
            features.cooperative_matrices.clear();
        }
        features
    }
}

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
        DeviceFeature::Int16Arithmetic
        | DeviceFeature::Float16Storage
        | DeviceFeature::SubgroupArithmetic
        | DeviceFeature::SubgroupVote
        | DeviceFeature::SubgroupShuffle => &[],
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

/// Whether all extensions that a feature needs are listed.
pub(super) fn is_listed(known: &[vk::ExtensionProperties], feature: DeviceFeature) -> bool {
    extensions(feature)
        .iter()
        .all(|name| known.iter().any(|extension| extension.extension_name_as_c_str() == Ok(name)))
}

/// Queries the features of a device, except those that its driver implements incorrectly.
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

    let mut features =
        DeviceFeatures { subgroup_size: subgroup.subgroup_size, ..Default::default() };
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
        features.cooperative_matrices = instance.cooperative_matrices(device);
    }
    features
}

/// Creates a device with one queue of each of these families, and with these features, which it
/// must have.
pub(crate) fn make_device(
    instance: &Instance,
    device: vk::PhysicalDevice,
    families: &[u32],
    features: &DeviceFeatures,
) -> Result<ash::Device, vk::Result> {
    let bit = |feature| vk::Bool32::from(features.has(feature));
    let mut wanted = Structures::default();
    // Every device supports it, and it has no measurable cost on an NVIDIA H200. An out-of-bounds
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn feature_bits_are_distinct() {
        let mut features = DeviceFeatures::default();
        for (count, feature) in DeviceFeature::ALL.iter().enumerate() {
            assert!(!features.has(*feature));
            features.set(*feature, true);
            assert_eq!(features.iter().count(), count + 1);
        }
        assert!(features.have(&[Feature::Float16Arithmetic, Feature::CooperativeMatrix]));
        let without = features.without(&[DeviceFeature::CooperativeMatrix]);
        assert!(!without.have(&[Feature::CooperativeMatrix]));
        assert!(!without.has(DeviceFeature::CooperativeMatrix2));
        assert!(!without.has(DeviceFeature::Bfloat16Matrix));
        assert_eq!(without.iter().count(), DeviceFeature::ALL.len() - 3);
        assert_eq!(features.without(DeviceFeature::ALL).iter().count(), 0);
    }

    #[test]
    fn names_select_features() {
        for feature in DeviceFeature::ALL {
            assert_eq!(DeviceFeature::named(feature.name()), [*feature]);
        }
        assert_eq!(DeviceFeature::named("all"), DeviceFeature::ALL);
        assert_eq!(DeviceFeature::named("subgroup").len(), 4);
        assert!(DeviceFeature::named("magic").is_empty());
    }
}
