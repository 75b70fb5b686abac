//! The compute shaders of the Vulkan delegate: GLSL sources in `glsl/`, the SPIR-V that was
//! compiled from them in `spv/`, and a typed catalogue.
//!
//! Each [`Pipeline`] is a shader with values for its specialisation constants; its associated types
//! say how many buffers it binds and what push constants it takes, so that a dispatch with others
//! does not compile. Nor does a declaration that differs from what the SPIR-V says: the modules are
//! read, in `const` functions, when this crate is compiled. Tensors are arrays of 32-bit words
//! whatever their element type: the element type is a specialisation constant, which the driver
//! folds away, so that one module serves all types and needs no optional device feature.
//!
//! `cargo xtask shaders` compiles the sources; `cargo xtask shaders --check` compares the modules
//! with them.

#![cfg_attr(docsrs, feature(doc_cfg))]
#![forbid(unsafe_code)]

mod catalogue;
mod check;
mod features;
pub mod functions;
mod instructions;
mod replayed;
mod spirv;

pub use catalogue::*;
pub use features::Feature;

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
    /// The name of its file, without extension.
    pub name: &'static str,
    /// The file.
    pub spirv: &'static [u8],
    /// How many storage buffers it binds, from binding 0 on.
    pub bindings: usize,
    /// Its parameters: push constants, but for the last ones.
    pub push: &'static [Field],
    /// How many of them, the last ones, are in the last buffer.
    pub in_memory: usize,
    /// Whether the SPIR-V has these as push constants nevertheless, and [`words`](Self::words)
    /// moves them.
    pub moves: bool,
    /// Its specialisation constants from constant 3 on; constants 0 to 2 are the workgroup size.
    pub constants: &'static [ConstantField],
    /// What it needs of a device beyond Vulkan 1.1.
    pub features: &'static [Feature],
}

impl Module {
    /// Another one that does the same.
    const fn instead(
        self,
        name: &'static str,
        spirv: &'static [u8],
        features: &'static [Feature],
    ) -> Self {
        Module { name, spirv, features, ..self }
    }

    /// The same with all parameters in one more buffer.
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

    /// The SPIR-V that a device is given.
    pub fn words(&self) -> Vec<u32> {
        let words = self.spirv.as_chunks::<4>().0.iter().map(|word| u32::from_le_bytes(*word));
        if !self.moves {
            return words.collect();
        }
        replayed::in_buffer(&words.collect::<Vec<u32>>(), self.bindings.saturating_sub(1) as u32)
    }

    /// Bytes of its push constants; the other parameters are in the last buffer.
    pub const fn push_bytes(&self) -> usize {
        let (mut bytes, mut field) = (0, 0);
        while field + self.in_memory < self.push.len() {
            bytes += 4 * self.push[field].count;
            field += 1;
        }
        bytes
    }
}

/// A specialisation constant, or several with consecutive numbers.
#[derive(Debug, Clone, Copy)]
pub struct ConstantField {
    /// Its name; in the shader it is in capitals and may be abbreviated, and numbers follow where
    /// there are several.
    pub name: &'static str,
    /// How many there are.
    pub count: usize,
}

/// A push constant: one number or an array of them.
#[derive(Debug, Clone, Copy)]
pub struct Field {
    /// Its name, in the shader and here.
    pub name: &'static str,
    /// What each number is.
    pub scalar: Scalar,
    /// How many there are.
    pub count: usize,
}

/// The types of push constants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scalar {
    /// Unsigned integer.
    U32,
    /// Signed integer.
    I32,
    /// Floating-point number.
    F32,
}

/// A shader with values for its specialisation constants.
pub trait Pipeline {
    /// The shader.
    const MODULE: Module;
    /// Shaders that do the same better, on devices that have the features they need: the best
    /// first.
    const BETTER: &'static [Module];
    /// A shader that does the same as [`MODULE`](Self::MODULE), and reads from one more buffer what
    /// others take as push constants: for dispatches that are recorded once and run with other
    /// parameters.
    const REPLAYED: Option<Module>;
    /// An array with one entry for each buffer.
    type Bindings<B>: AsRef<[B]>;
    /// The push constants.
    type Push: PushConstants;

    /// The specialisation constants, from constant 3 on.
    fn constants(&self) -> Vec<u32>;
}

/// Push constants: 32-bit fields in the order of the shader's block.
pub trait PushConstants {
    /// The fields.
    const FIELDS: &'static [Field];
    /// Where among the bytes `base_z` lies, if the shader has it: the number of its first workgroup
    /// along z.
    const BASE_Z: Option<usize> = place_of(Self::FIELDS, "base_z");
    /// The bytes.
    fn bytes(&self) -> Vec<u8>;
}

/// The first byte of the field of a name.
const fn place_of(fields: &[Field], name: &str) -> Option<usize> {
    let (mut place, mut index) = (0, 0);
    while index < fields.len() {
        if check::is_same(fields[index].name, name) {
            return Some(place);
        }
        place += 4 * fields[index].count;
        index += 1;
    }
    None
}

/// A field of push constants.
pub trait PushField {
    /// What its numbers are.
    const SCALAR: Scalar;
    /// How many there are.
    const COUNT: usize;
    /// Appends the field's bytes.
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
