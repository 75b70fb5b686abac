//! Formats of images that foreign shaders bind.

/// A Vulkan format, as shaders see its texels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Texel {
    pub(crate) bytes: usize,
    /// `Image Format` of SPIR-V.
    pub(crate) spirv: u32,
    pub(crate) sampled: Sampled,
}

/// Type of the components that a shader reads and writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sampled {
    Float,
    Signed,
    Unsigned,
}

impl Sampled {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Sampled::Float => "32-bit floats",
            Sampled::Signed => "signed 32-bit integers",
            Sampled::Unsigned => "unsigned 32-bit integers",
        }
    }
}

impl Texel {
    /// Describes a format that the VGF front end knows, by its number in Vulkan.
    pub(crate) fn of(format: i64) -> Option<Self> {
        use Sampled::{Float, Signed, Unsigned};
        let (bytes, spirv, sampled) = match format {
            // R8: UNORM, SNORM, UINT, SINT.
            9 => (1, 15, Float),
            10 => (1, 20, Float),
            13 => (1, 39, Unsigned),
            14 => (1, 29, Signed),
            // R8G8: UINT, SINT.
            20 => (2, 37, Unsigned),
            21 => (2, 27, Signed),
            // R8G8B8A8: UNORM, SNORM, UINT, SINT.
            37 => (4, 4, Float),
            38 => (4, 5, Float),
            41 => (4, 32, Unsigned),
            42 => (4, 23, Signed),
            // R16: UINT, SINT, SFLOAT.
            74 => (2, 38, Unsigned),
            75 => (2, 28, Signed),
            76 => (2, 9, Float),
            // R16G16.
            81 => (4, 36, Unsigned),
            82 => (4, 26, Signed),
            83 => (4, 7, Float),
            // R16G16B16A16.
            95 => (8, 31, Unsigned),
            96 => (8, 22, Signed),
            97 => (8, 2, Float),
            // R32.
            98 => (4, 33, Unsigned),
            99 => (4, 24, Signed),
            100 => (4, 3, Float),
            // R32G32: SFLOAT.
            103 => (8, 6, Float),
            // R32G32B32A32.
            107 => (16, 30, Unsigned),
            108 => (16, 21, Signed),
            109 => (16, 1, Float),
            _ => return None,
        };
        Some(Texel { bytes, spirv, sampled })
    }
}
