//! What shaders need of a device beyond what every device with Vulkan 1.1 has.

/// An optional feature of devices.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Feature {
    /// Arithmetic with 16-bit floating-point numbers (`shaderFloat16`).
    HalfArithmetic,
    /// Arithmetic with 8-bit integers (`shaderInt8`).
    ByteArithmetic,
    /// Arithmetic with 16-bit integers (`shaderInt16`).
    ShortArithmetic,
    /// Elements of 16 bits in storage buffers (`storageBuffer16BitAccess`).
    HalfStorage,
    /// Elements of 8 bits in storage buffers (`storageBuffer8BitAccess`).
    ByteStorage,
    /// Sums over a subgroup (`VK_SUBGROUP_FEATURE_ARITHMETIC_BIT`).
    SubgroupArithmetic,
    /// Whether something holds for all of a subgroup (`VK_SUBGROUP_FEATURE_VOTE_BIT`).
    SubgroupVote,
    /// Values from other invocations of a subgroup (`VK_SUBGROUP_FEATURE_SHUFFLE_BIT`).
    SubgroupShuffle,
    /// Dot products of 8-bit integers (`shaderIntegerDotProduct`).
    IntegerDotProduct,
    /// Products of matrices by a subgroup (`VK_KHR_cooperative_matrix`), which need Vulkan's memory
    /// model.
    CooperativeMatrix,
    /// The same of numbers of `bfloat16` (`VK_KHR_shader_bfloat16`).
    Bfloat16Matrix,
}

impl Feature {
    /// The SPIR-V capabilities that every device has: `Shader`, and `GroupNonUniform` for the place
    /// in a subgroup.
    pub(crate) const BASE_CAPABILITIES: &'static [u32] = &[1, 61];

    /// The SPIR-V capabilities that the feature gives.
    pub(crate) const fn capabilities(self) -> &'static [u32] {
        match self {
            Feature::HalfArithmetic => &[9],
            Feature::ByteArithmetic => &[39],
            Feature::ShortArithmetic => &[22],
            Feature::HalfStorage => &[4433],
            Feature::ByteStorage => &[4448],
            Feature::SubgroupArithmetic => &[63],
            Feature::SubgroupVote => &[62],
            Feature::SubgroupShuffle => &[65],
            Feature::IntegerDotProduct => &[6016, 6017, 6018, 6019],
            Feature::CooperativeMatrix => &[5345, 6022],
            Feature::Bfloat16Matrix => &[5116, 5118],
        }
    }
}
