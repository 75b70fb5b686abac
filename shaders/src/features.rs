//! Optional device features that shaders need, beyond Vulkan 1.1.

/// An optional device feature that a shader can require.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Feature {
    /// Arithmetic with 16-bit floats (`shaderFloat16`).
    Float16Arithmetic,
    /// Arithmetic with 8-bit integers (`shaderInt8`).
    Int8Arithmetic,
    /// Arithmetic with 16-bit integers (`shaderInt16`).
    Int16Arithmetic,
    /// 16-bit elements in storage buffers (`storageBuffer16BitAccess`).
    Float16Storage,
    /// 8-bit elements in storage buffers (`storageBuffer8BitAccess`).
    Storage8Bit,
    /// Subgroup reductions (`VK_SUBGROUP_FEATURE_ARITHMETIC_BIT`).
    SubgroupArithmetic,
    /// Subgroup votes (`VK_SUBGROUP_FEATURE_VOTE_BIT`).
    SubgroupVote,
    /// Subgroup shuffles (`VK_SUBGROUP_FEATURE_SHUFFLE_BIT`).
    SubgroupShuffle,
    /// Dot products of 8-bit integers (`shaderIntegerDotProduct`).
    IntegerDotProduct,
    /// Matrix multiplication by a subgroup (`VK_KHR_cooperative_matrix`), which requires the Vulkan
    /// memory model.
    CooperativeMatrix,
    /// Matrix multiplication by a subgroup with `bfloat16` operands (`VK_KHR_shader_bfloat16`).
    Bfloat16Matrix,
}

impl Feature {
    /// SPIR-V capabilities that every device has: `Shader`, and `GroupNonUniform` for the
    /// invocation index in a subgroup.
    pub(crate) const BASE_CAPABILITIES: &'static [u32] = &[1, 61];

    /// Returns the SPIR-V capabilities that the feature enables.
    pub(crate) const fn capabilities(self) -> &'static [u32] {
        match self {
            Feature::Float16Arithmetic => &[9],
            Feature::Int8Arithmetic => &[39],
            Feature::Int16Arithmetic => &[22],
            Feature::Float16Storage => &[4433],
            Feature::Storage8Bit => &[4448],
            Feature::SubgroupArithmetic => &[63],
            Feature::SubgroupVote => &[62],
            Feature::SubgroupShuffle => &[65],
            Feature::IntegerDotProduct => &[6016, 6017, 6018, 6019],
            Feature::CooperativeMatrix => &[5345, 6022],
            Feature::Bfloat16Matrix => &[5116, 5118],
        }
    }
}
