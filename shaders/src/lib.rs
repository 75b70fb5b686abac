//! The compute shaders of the Vulkan delegate: GLSL sources in `glsl/`, the SPIR-V that was compiled from them in `spv/`, and
//! a typed catalogue.
//!
//! Each [`Pipeline`] is a shader with values for its specialisation constants; its associated types say how many buffers it
//! binds and what push constants it takes, so that a dispatch with others does not compile. Tensors are
//! arrays of 32-bit words whatever their element type: the element type is a specialisation constant, which the driver
//! folds away, so that one module serves all types and no optional device feature is needed.
//!
//! `cargo xtask shaders` compiles the sources; a test checks that every module is there and fits its declaration.

#![forbid(unsafe_code)]

mod catalogue;

pub use catalogue::*;

/// The element type of a tensor in device memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum Element {
    /// 32-bit floating point.
    F32 = 0,
    /// 16-bit floating point, two in a word.
    F16 = 1,
    /// 32-bit integer.
    I32 = 2,
    /// Unsigned byte, four in a word.
    U8 = 3,
    /// Signed byte, four in a word.
    I8 = 4,
    /// Truth value: a byte that is 0 or 1.
    Bool = 5,
}

impl Element {
    /// Bytes of one element.
    pub const fn size(self) -> usize {
        match self {
            Element::F32 | Element::I32 => 4,
            Element::F16 => 2,
            Element::U8 | Element::I8 | Element::Bool => 1,
        }
    }

    /// Whether elements are floating-point numbers.
    pub const fn is_floating(self) -> bool {
        matches!(self, Element::F32 | Element::F16)
    }
}

/// A value of a specialisation constant, or an array of them with consecutive numbers.
pub trait Constant {
    /// How many constants it is.
    const COUNT: usize = 1;
    /// Appends the 32 bits that the shader sees of each.
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

/// The identity of a shader module, and what it declares.
#[derive(Debug, Clone, Copy)]
pub struct Module {
    /// The name of its source file, without extension.
    pub name: &'static str,
    /// The SPIR-V.
    pub spirv: &'static [u8],
    /// How many storage buffers it binds, from binding 0 on.
    pub bindings: usize,
    /// Bytes of its push constants.
    pub push_bytes: usize,
    /// Number of specialisation constants besides the workgroup size, which is constants 0 to 2.
    pub constants: usize,
}

/// A shader with values for its specialisation constants.
pub trait Pipeline {
    /// The shader.
    const MODULE: Module;
    /// An array with one entry for each buffer.
    type Bindings<B>: AsRef<[B]>;
    /// The push constants.
    type Push: PushConstants;

    /// The specialisation constants, from constant 3 on.
    fn constants(&self) -> Vec<u32>;
}

/// Push constants: 32-bit fields in the order of the shader's block.
pub trait PushConstants {
    /// The bytes.
    fn bytes(&self) -> Vec<u8>;
    /// How many there are.
    const BYTES: usize;
}

/// A field of push constants.
pub trait PushField {
    /// Appends the field's bytes.
    fn append(&self, bytes: &mut Vec<u8>);
}

impl PushField for u32 {
    fn append(&self, bytes: &mut Vec<u8>) {
        bytes.extend_from_slice(&self.to_le_bytes());
    }
}
impl PushField for i32 {
    fn append(&self, bytes: &mut Vec<u8>) {
        bytes.extend_from_slice(&self.to_le_bytes());
    }
}
impl PushField for f32 {
    fn append(&self, bytes: &mut Vec<u8>) {
        bytes.extend_from_slice(&self.to_le_bytes());
    }
}
impl<T: PushField, const N: usize> PushField for [T; N] {
    fn append(&self, bytes: &mut Vec<u8>) {
        for field in self {
            field.append(bytes);
        }
    }
}
