//! The element types that kernels support: all of them, or, with the feature `selected-dtypes`,
//! those that the programs of a firmware image use.
//!
//! Kernels dispatch on tensor dtypes at run time. Each kernel thus contains loops for `f32`, `f64`
//! and `i64`, and conversions from and to thirteen types. An image whose programs use two dtypes
//! does not need the rest. For such an image, the code that `torchlet-build` generates defines a
//! symbol with the set of used types, and every dtype dispatch checks it first. The symbol is a
//! constant, so the optimiser, which sees the whole image (`lto = "fat"`), removes the code of
//! unused types. Without LTO the results are the same, and an unused type is an error at run time.

use crate::elementwise::complex;
use crate::number::{Compute, ComputeType};
use torchlet_core::{KernelError, ScalarType};

/// A set of element types and of compute types.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(transparent)]
pub struct Types(u64);

/// Bit offset of the three compute types, which follow the element types.
const COMPUTED: u32 = 32;

impl Types {
    /// The empty set.
    pub const NONE: Self = Types(0);
    /// The set of all types.
    pub const ALL: Self = Types(u64::MAX);

    /// Converts the set to bits, for [`from_bits`](Self::from_bits).
    pub const fn bits(self) -> u64 {
        self.0
    }

    /// Restores a set from its [`bits`](Self::bits).
    pub const fn from_bits(bits: u64) -> Self {
        Types(bits)
    }

    /// Adds an element type, for tensors that are moved and converted.
    #[must_use]
    pub const fn with_element(self, scalar_type: ScalarType) -> Self {
        Types(self.0 | 1 << scalar_type as u32)
    }

    /// Adds the compute type of `scalar_type` (for complex types, that of their parts), and the
    /// element type of that compute type, which kernels may use for temporary tensors.
    #[must_use]
    pub fn with_computed(self, scalar_type: ScalarType) -> Self {
        let parts = complex::part(scalar_type).unwrap_or(scalar_type);
        let Some(compute) = ComputeType::of_any(parts) else { return self };
        let own = match compute {
            ComputeType::F32 => ScalarType::Float,
            ComputeType::F64 => ScalarType::Double,
            ComputeType::I64 => ScalarType::Long,
        };
        Types(self.0 | 1 << (COMPUTED + compute as u32)).with_element(own)
    }

    /// The union of both sets.
    #[must_use]
    pub const fn union(self, other: Self) -> Self {
        Types(self.0 | other.0)
    }

    /// Whether the set contains this element type.
    #[inline(always)]
    pub const fn has_element(self, scalar_type: ScalarType) -> bool {
        self.0 >> scalar_type as u32 & 1 != 0
    }

    /// The element types of the set.
    pub fn elements(self) -> impl Iterator<Item = ScalarType> {
        (0..).map_while(ScalarType::from_number).filter(move |found| self.has_element(*found))
    }

    /// Whether the set contains an element type of `BYTES` bytes.
    #[inline(always)]
    pub const fn has_size<const BYTES: usize>(self) -> bool {
        // Must be evaluated at compile time, or the optimiser could not remove the code of unused
        // sizes.
        self.0 & const { of_size(BYTES) } != 0
    }

    /// Whether the set contains this compute type: `Float`, `Double` or `Long`.
    #[inline(always)]
    pub const fn computes(self, scalar_type: ScalarType) -> bool {
        let bit = match scalar_type {
            ScalarType::Float => 0,
            ScalarType::Double => 1,
            _ => 2,
        };
        self.0 >> (COMPUTED + bit) & 1 != 0
    }
}

/// Bits of all types whose elements have this many bytes.
const fn of_size(bytes: usize) -> u64 {
    use ScalarType as S;
    match bytes {
        1 => {
            let data =
                bits(&[S::QInt8, S::QUInt8, S::QUInt4x2, S::QUInt2x4, S::Bits1x8, S::Bits2x4]);
            let more = bits(&[S::Bits4x2, S::Bits8, S::Float8E5M2, S::Float8E4M3FN]);
            let rest = bits(&[S::Float8E5M2FNUZ, S::Float8E4M3FNUZ]);
            bits(&[S::Byte, S::Char, S::Bool]) | data | more | rest
        }
        2 => bits(&[S::Short, S::UInt16, S::Half, S::BFloat16, S::Bits16]),
        4 => bits(&[S::Int, S::UInt32, S::Float, S::ComplexHalf, S::QInt32]),
        8 => bits(&[S::Long, S::UInt64, S::Double, S::ComplexFloat]),
        16 => bits(&[S::ComplexDouble]),
        _ => 0,
    }
}

const fn bits(types: &[ScalarType]) -> u64 {
    let (mut all, mut i) = (0, 0);
    while i < types.len() {
        all |= 1 << types[i] as u32;
        i += 1;
    }
    all
}

#[cfg(not(feature = "selected-dtypes"))]
#[inline(always)]
fn chosen() -> Types {
    Types::ALL
}

#[cfg(all(feature = "selected-dtypes", not(feature = "std")))]
#[allow(unsafe_code)]
mod image {
    unsafe extern "C" {
        // SAFETY: `torchlet-build` defines this symbol as a static of this type that is never
        // written. Without the definition, the image does not link.
        pub(super) safe static torchlet_types: super::Types;
    }
}

#[cfg(all(feature = "selected-dtypes", not(feature = "std")))]
#[inline(always)]
fn chosen() -> Types {
    image::torchlet_types
}

#[cfg(all(feature = "selected-dtypes", feature = "std"))]
mod trial {
    use super::Types;
    use core::cell::Cell;

    std::thread_local! {
        static TYPES: Cell<Types> = const { Cell::new(Types::ALL) };
    }

    pub(super) fn chosen() -> Types {
        TYPES.get()
    }

    /// Restricts the kernels that this thread runs to these types, as in an image; for tests on
    /// hosts.
    pub fn choose(types: Types) {
        TYPES.set(types);
    }
}

#[cfg(all(feature = "selected-dtypes", feature = "std"))]
pub use trial::choose;
#[cfg(all(feature = "selected-dtypes", feature = "std"))]
use trial::chosen;

/// Whether this element type is supported.
#[inline(always)]
pub(crate) fn has(scalar_type: ScalarType) -> bool {
    chosen().has_element(scalar_type)
}

/// Whether an element type of `BYTES` bytes is supported.
#[inline(always)]
pub(crate) fn has_size<const BYTES: usize>() -> bool {
    chosen().has_size::<BYTES>()
}

/// Whether kernels support the compute type `C`.
#[inline(always)]
pub(crate) fn computes<C: Compute>() -> bool {
    chosen().computes(C::SCALAR_TYPE)
}

/// Fails unless kernels support the compute type `C`. Otherwise the optimiser removes the rest of
/// the calling function, an instance for `C`.
#[inline(always)]
pub(crate) fn expect<C: Compute>() -> Result<(), KernelError> {
    if computes::<C>() {
        return Ok(());
    }
    Err(KernelError::scalar_type(0, C::SCALAR_TYPE))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn size_bits_match_types() {
        for scalar_type in (0..).map_while(ScalarType::from_number) {
            let types = Types::NONE.with_element(scalar_type);
            let found = [
                types.has_size::<1>(),
                types.has_size::<2>(),
                types.has_size::<4>(),
                types.has_size::<8>(),
                types.has_size::<16>(),
            ];
            let expected = [1, 2, 4, 8, 16].map(|bytes| scalar_type.size() == bytes);
            assert_eq!(found, expected, "{scalar_type}");
            assert!(types.has_element(scalar_type));
        }
        assert!(!Types::ALL.has_size::<3>());
    }

    #[test]
    fn values_compute_in_one_of_three_types() {
        let half = Types::NONE.with_computed(ScalarType::Half);
        assert!(half.computes(ScalarType::Float) && half.has_element(ScalarType::Float));
        assert!(!half.has_element(ScalarType::Half));
        assert!(!half.computes(ScalarType::Double) && !half.computes(ScalarType::Long));
        assert!(Types::NONE.with_computed(ScalarType::Bool).computes(ScalarType::Long));
        assert_eq!(Types::NONE.with_computed(ScalarType::QInt8), Types::NONE);
        assert!(Types::NONE.with_computed(ScalarType::ComplexFloat).computes(ScalarType::Float));
        assert!(Types::NONE.with_computed(ScalarType::ComplexDouble).computes(ScalarType::Double));
        assert_eq!(Types::from_bits(half.bits()), half);
        assert!(half.elements().eq([ScalarType::Float]));
    }
}
