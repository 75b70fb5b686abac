//! The compute shaders of the Vulkan delegate: GLSL sources in `glsl/`, compiled SPIR-V in `spv/`,
//! and a typed catalogue.
//!
//! Each [`Pipeline`] is a shader with values for its specialisation constants. Its associated types
//! define the buffers and push constants, so that a mismatching dispatch does not compile. The
//! declarations are compared with the SPIR-V at compile time, by `const` functions. Tensors are
//! arrays of 32-bit words for all element types. The element type is a specialisation constant,
//! which the driver folds, so one module supports all types and needs no optional device features.
//!
//! `cargo xtask shaders` compiles the sources. `cargo xtask shaders --check` verifies that the
//! compiled modules match the sources.

#![cfg_attr(docsrs, feature(doc_cfg))]
#![forbid(unsafe_code)]

mod catalogue;
mod check;
mod features;
pub mod functions;
mod instructions;
mod replayed;
mod spirv;
mod webgpu;

pub use catalogue::*;
pub use features::Feature;
pub use webgpu::WebGpuShader;

/// The element type of a tensor in device memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum Element {
    /// 32-bit float.
    F32 = 0,
    /// 16-bit float, two per word.
    F16 = 1,
    /// 32-bit integer.
    I32 = 2,
    /// Unsigned byte, four per word.
    U8 = 3,
    /// Signed byte, four per word.
    I8 = 4,
    /// Boolean: a byte that is 0 or 1.
    Bool = 5,
}

impl Element {
    /// Returns the bytes of one element.
    pub const fn size(self) -> usize {
        match self {
            Element::F32 | Element::I32 => 4,
            Element::F16 => 2,
            Element::U8 | Element::I8 | Element::Bool => 1,
        }
    }

    /// Whether elements are floating point.
    pub const fn is_floating(self) -> bool {
        matches!(self, Element::F32 | Element::F16)
    }
}

/// The value of a specialisation constant, or of an array of constants with consecutive ids.
pub trait Constant {
    /// The number of specialisation constants that the value sets.
    const COUNT: usize = 1;
    /// Appends the 32 bits of each constant.
    fn append_to(&self, bits: &mut Vec<u32>);
}

impl Constant for u32 {
    fn append_to(&self, bits: &mut Vec<u32>) {
        bits.push(*self);
    }
}
impl Constant for bool {
    fn append_to(&self, bits: &mut Vec<u32>) {
        bits.push(u32::from(*self));
    }
}
impl Constant for Element {
    fn append_to(&self, bits: &mut Vec<u32>) {
        bits.push(*self as u32);
    }
}
impl<T: Constant, const N: usize> Constant for [T; N] {
    const COUNT: usize = N * T::COUNT;
    fn append_to(&self, bits: &mut Vec<u32>) {
        for constant in self {
            constant.append_to(bits);
        }
    }
}

/// A shader module: its name, its SPIR-V, and the declaration of its interface.
#[derive(Debug, Clone, Copy)]
pub struct Module {
    /// The name of the module's file, without extension.
    pub name: &'static str,
    /// The contents of the file, which are SPIR-V.
    pub spirv: &'static [u8],
    /// The number of storage buffers, from binding 0 on.
    pub bindings: usize,
    /// The parameters of the shader. The last [`in_memory`](Self::in_memory) of them are in the
    /// last buffer; the others are push constants.
    pub push: &'static [Field],
    /// The number of trailing parameters that are in the last buffer.
    pub in_memory: usize,
    /// Whether the parameters in the last buffer are still push constants in the SPIR-V. In that
    /// case, [`words`](Self::words) moves them to the buffer.
    pub moves: bool,
    /// The specialisation constants, from id 3 on. Ids 0 to 2 are the workgroup size.
    pub constants: &'static [ConstantField],
    /// The device features that the shader needs beyond Vulkan 1.1.
    pub features: &'static [Feature],
}

impl Module {
    /// Returns the declaration of another module with the same function.
    const fn instead(
        self,
        name: &'static str,
        spirv: &'static [u8],
        features: &'static [Feature],
    ) -> Self {
        Module { name, spirv, features, ..self }
    }

    /// Returns the declaration of this module with all parameters in an additional buffer.
    const fn replayed(self, name: &'static str) -> Self {
        assert!(self.in_memory == 0, "parameters are in a buffer already");
        Module {
            name,
            bindings: self.bindings + 1,
            in_memory: self.push.len(),
            moves: true,
            ..self
        }
    }

    /// Returns the SPIR-V to pass to a device.
    pub fn words(&self) -> Vec<u32> {
        let words = self.spirv.as_chunks::<4>().0.iter().map(|word| u32::from_le_bytes(*word));
        if !self.moves {
            return words.collect();
        }
        replayed::in_buffer(&words.collect::<Vec<u32>>(), self.bindings.saturating_sub(1) as u32)
    }

    /// Returns the number of push constant bytes. Parameters in the last buffer do not count.
    pub const fn push_bytes(&self) -> usize {
        let (mut bytes, mut field) = (0, 0);
        while field + self.in_memory < self.push.len() {
            bytes += 4 * self.push[field].count;
            field += 1;
        }
        bytes
    }
}

/// A specialisation constant, or an array of constants with consecutive ids.
#[derive(Debug, Clone, Copy)]
pub struct ConstantField {
    /// The name of the constant. In the shader, the name is in capitals, may be abbreviated, and
    /// has an index if it is an array.
    pub name: &'static str,
    /// The number of constants: 1, or the length of the array.
    pub count: usize,
}

/// A push constant: a scalar or an array.
#[derive(Debug, Clone, Copy)]
pub struct Field {
    /// The name of the push constant, in the shader and in Rust.
    pub name: &'static str,
    /// The type of each element.
    pub scalar: Scalar,
    /// The number of elements: 1, or the length of the array.
    pub count: usize,
}

/// The type of a push constant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scalar {
    /// Unsigned 32-bit integer.
    U32,
    /// Signed 32-bit integer.
    I32,
    /// 32-bit float.
    F32,
}

/// A shader with values for its specialisation constants, from which a device creates a compute
/// pipeline.
pub trait Pipeline {
    /// The default shader module.
    const MODULE: Module;
    /// Faster shaders with the same function, best first. Each requires more device features.
    const BETTER: &'static [Module];
    /// A shader with the same function as [`MODULE`](Self::MODULE) that reads its parameters from
    /// an additional buffer instead of push constants. It is for dispatches that are recorded once
    /// and run with changing parameters.
    const REPLAYED: Option<Module>;
    /// An array with one entry per buffer.
    type Bindings<B>: AsRef<[B]>;
    /// The type of the push constants.
    type Push: PushConstants;

    /// Returns the specialisation constants, from id 3 on.
    fn constants(&self) -> Vec<u32>;
}

/// The push constants of a shader: 32-bit fields in the order of the shader's block.
pub trait PushConstants {
    /// The fields, in the order of the shader's block.
    const FIELDS: &'static [Field];
    /// The byte offset of `base_z`, the index of the first workgroup in z, if the shader has that
    /// parameter.
    const BASE_Z: Option<usize> = offset_of(Self::FIELDS, "base_z");
    /// Returns the bytes to pass to the shader.
    fn bytes(&self) -> Vec<u8>;
}

/// Returns the byte offset of a field.
const fn offset_of(fields: &[Field], name: &str) -> Option<usize> {
    let (mut offset, mut index) = (0, 0);
    while index < fields.len() {
        if check::is_same(fields[index].name, name) {
            return Some(offset);
        }
        offset += 4 * fields[index].count;
        index += 1;
    }
    None
}

/// The value of one push constant: a scalar or an array.
pub trait PushField {
    /// The type of each element.
    const SCALAR: Scalar;
    /// The number of elements: 1, or the length of the array.
    const COUNT: usize;
    /// Appends the bytes of the value.
    fn append(&self, bytes: &mut Vec<u8>);
}

macro_rules! push_fields {
    ($($number:ty = $scalar:ident),*) => {
        $(
            impl PushField for $number {
                const SCALAR: Scalar = Scalar::$scalar;
                const COUNT: usize = 1;
                fn append(&self, bytes: &mut Vec<u8>) {
                    bytes.extend_from_slice(&self.to_le_bytes());
                }
            }
        )*
    };
}

push_fields!(u32 = U32, i32 = I32, f32 = F32);

impl<T: PushField, const N: usize> PushField for [T; N] {
    const SCALAR: Scalar = T::SCALAR;
    const COUNT: usize = N * T::COUNT;
    fn append(&self, bytes: &mut Vec<u8>) {
        for field in self {
            field.append(bytes);
        }
    }
}
