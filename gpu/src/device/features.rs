//! Optional device features: probed when a device is opened, and used if available.

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
    /// Extensions of cooperative matrices (`VK_NV_cooperative_matrix2`).
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
    /// All optional features.
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
    pub fn named(name: &str) -> Vec<DeviceFeature> {
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

impl CooperativeMatrix {
    /// Creates a multiplication of these sizes (m, n, k) and element types (a, b, c, result).
    pub fn new([m, n, k]: [u32; 3], [a, b, c, result]: [MatrixElement; 4]) -> Self {
        CooperativeMatrix { m, n, k, a, b, c, result }
    }
}

/// The optional features of a device.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeviceFeatures {
    bits: u32,
    /// The number of invocations per subgroup.
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
    pub fn multiply_halves(&self) -> bool {
        let needed =
            [Feature::CooperativeMatrix, Feature::Float16Arithmetic, Feature::Float16Storage];
        self.have(&needed) && self.cooperative_matrices.contains(&HALVES)
    }

    /// Whether subgroups can multiply 16×16 `bfloat16` matrices with 32-bit accumulators.
    pub(crate) fn multiply_bfloat16(&self) -> bool {
        let needed = [Feature::Bfloat16Matrix, Feature::CooperativeMatrix, Feature::Float16Storage];
        let product =
            CooperativeMatrix { a: MatrixElement::Bf16, b: MatrixElement::Bf16, ..HALVES };
        self.have(&needed) && self.cooperative_matrices.contains(&product)
    }

    /// Whether subgroups support fp16 accumulator matrices, to which 32-bit accumulators can be
    /// converted.
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
    #[doc(hidden)]
    pub fn only(all: &[DeviceFeature], subgroup_size: u32) -> Self {
        let mut features = DeviceFeatures { subgroup_size, ..Self::default() };
        all.iter().for_each(|feature| features.set(*feature, true));
        features
    }

    /// A device that multiplies fp16 matrices, with accumulators of either type.
    #[doc(hidden)]
    pub fn multiplying_halves() -> Self {
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
    #[doc(hidden)]
    pub fn multiplying_codes(k: u32) -> Self {
        let all = [DeviceFeature::CooperativeMatrix, DeviceFeature::Int8Arithmetic];
        DeviceFeatures { cooperative_matrices: vec![codes(k)], ..Self::only(&all, 32) }
    }

    /// Adds or removes a feature.
    pub fn set(&mut self, feature: DeviceFeature, present: bool) {
        let bit = 1 << feature as u8;
        self.bits = if present { self.bits | bit } else { self.bits & !bit };
    }

    /// Returns the features except the disabled ones.
    pub fn without(&self, disabled: &[DeviceFeature]) -> Self {
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
