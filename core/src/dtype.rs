//! Element types (dtypes): file format numbers, sizes, and the matching Rust types.

/// Element type (dtype) of a tensor, numbered as in PyTorch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[non_exhaustive]
#[repr(i8)]
#[allow(missing_docs, reason = "the names are PyTorch's")]
pub enum ScalarType {
    Byte = 0,
    Char = 1,
    Short = 2,
    Int = 3,
    Long = 4,
    Half = 5,
    Float = 6,
    Double = 7,
    ComplexHalf = 8,
    ComplexFloat = 9,
    ComplexDouble = 10,
    Bool = 11,
    QInt8 = 12,
    QUInt8 = 13,
    QInt32 = 14,
    BFloat16 = 15,
    QUInt4x2 = 16,
    QUInt2x4 = 17,
    Bits1x8 = 18,
    Bits2x4 = 19,
    Bits4x2 = 20,
    Bits8 = 21,
    Bits16 = 22,
    Float8E5M2 = 23,
    Float8E4M3FN = 24,
    Float8E5M2FNUZ = 25,
    Float8E4M3FNUZ = 26,
    UInt16 = 27,
    UInt32 = 28,
    UInt64 = 29,
}

use ScalarType as S;

/// Generates the dtype tables from rows of dtype, name, bytes per element.
macro_rules! types {
    ($($scalar_type:ident $name:literal $size:literal,)*) => {
        /// Dtype and bytes per element, indexed by the number in the file format.
        const TYPES: &[(ScalarType, u8)] = &[$((S::$scalar_type, $size),)*];
        /// Names, indexed by number. A separate table, so that firmware that never reads names does
        /// not link it.
        const NAMES: &[&str] = &[$($name,)*];
    };
}

types! {
    Byte "uint8" 1,
    Char "int8" 1,
    Short "int16" 2,
    Int "int32" 4,
    Long "int64" 8,
    Half "float16" 2,
    Float "float32" 4,
    Double "float64" 8,
    ComplexHalf "complex32" 4,
    ComplexFloat "complex64" 8,
    ComplexDouble "complex128" 16,
    Bool "bool" 1,
    QInt8 "qint8" 1,
    QUInt8 "quint8" 1,
    QInt32 "qint32" 4,
    BFloat16 "bfloat16" 2,
    QUInt4x2 "quint4x2" 1,
    QUInt2x4 "quint2x4" 1,
    Bits1x8 "bits1x8" 1,
    Bits2x4 "bits2x4" 1,
    Bits4x2 "bits4x2" 1,
    Bits8 "bits8" 1,
    Bits16 "bits16" 2,
    Float8E5M2 "float8_e5m2" 1,
    Float8E4M3FN "float8_e4m3fn" 1,
    Float8E5M2FNUZ "float8_e5m2fnuz" 1,
    Float8E4M3FNUZ "float8_e4m3fnuz" 1,
    UInt16 "uint16" 2,
    UInt32 "uint32" 4,
    UInt64 "uint64" 8,
}

impl ScalarType {
    /// Returns the dtype with this number in the file format.
    pub fn from_number(number: i64) -> Option<Self> {
        let index = usize::try_from(number).ok()?;
        TYPES.get(index).map(|(scalar_type, _)| *scalar_type)
    }

    /// PyTorch's name of the dtype, such as `float32`.
    pub fn name(self) -> &'static str {
        NAMES.get(self as usize).copied().unwrap_or("unknown")
    }

    /// Size of an element in bytes.
    pub fn size(self) -> usize {
        TYPES.get(self as usize).map_or(1, |(_, size)| usize::from(*size))
    }

    /// Whether this is half, bfloat16, float or double.
    pub fn is_floating(self) -> bool {
        matches!(self, S::Half | S::BFloat16 | S::Float | S::Double)
    }

    /// Whether this is an integer type of any width; `include_bool` includes `Bool`.
    pub fn is_integral(self, include_bool: bool) -> bool {
        match self {
            S::Bool => include_bool,
            S::Byte | S::Char | S::Short | S::Int | S::Long => true,
            S::UInt16 | S::UInt32 | S::UInt64 => true,
            _ => false,
        }
    }

    /// Dtype promotion of two tensors with at least one dim each: the wider type of the higher
    /// category (floating over integer over bool). `None` if PyTorch does not define the promotion.
    ///
    /// Source: `c10::promoteTypes`. Unsigned types wider than 8 bits promote only with floating
    /// types, bool and themselves.
    pub fn promote(self, other: Self) -> Option<Self> {
        let (a, b) = if self <= other { (self, other) } else { (other, self) };
        if a == b {
            return Some(a);
        }
        match (a, b) {
            (x, S::Bool) => Some(x).filter(|x| x.is_floating() || x.is_integral(false)),
            (S::Bool, x) => Some(x).filter(|x| x.is_floating() || x.is_integral(false)),
            (S::Half, S::BFloat16) => Some(S::Float),
            (x, y) if x.is_floating() && y.is_floating() => {
                // `BFloat16` has the highest number but the lowest rank.
                Some(if y == S::BFloat16 { x } else { y })
            }
            (x, y) if x.is_floating() && y.is_integral(false) => Some(x),
            (x, y) if y.is_floating() && x.is_integral(false) => Some(y),
            (S::Byte, S::Char) => Some(S::Short),
            (x, y) if y <= S::Long && x.is_integral(false) => Some(y),
            _ => None,
        }
    }
}

impl core::fmt::Display for ScalarType {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(self.name())
    }
}

/// A `Bool` element: one byte, 0 is false, any other byte is true.
#[derive(Debug, Clone, Copy, Default, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(transparent)]
pub struct Bool(u8);

impl Bool {
    /// Encodes a boolean.
    pub const fn new(value: bool) -> Self {
        Bool(value as u8)
    }

    /// Decodes the boolean.
    pub const fn get(self) -> bool {
        self.0 != 0
    }
}

impl PartialEq for Bool {
    fn eq(&self, other: &Self) -> bool {
        self.get() == other.get()
    }
}
impl Eq for Bool {}

impl From<bool> for Bool {
    fn from(value: bool) -> Self {
        Bool::new(value)
    }
}

impl From<Bool> for bool {
    fn from(value: Bool) -> Self {
        value.get()
    }
}

/// A Rust type of tensor elements. Every bit pattern is valid, so bytes of a file can be viewed as
/// this type.
pub trait Element: bytemuck::Pod + Send + Sync + PartialEq + core::fmt::Debug {
    /// The corresponding dtype.
    const SCALAR_TYPE: ScalarType;
}

macro_rules! elements {
    ($($rust:ty => $scalar_type:ident),* $(,)?) => {
        $(impl Element for $rust {
            const SCALAR_TYPE: ScalarType = ScalarType::$scalar_type;
        })*
    };
}
elements! {
    u8 => Byte, i8 => Char, i16 => Short, i32 => Int, i64 => Long,
    half::f16 => Half, f32 => Float, f64 => Double, Bool => Bool, half::bf16 => BFloat16,
    u16 => UInt16, u32 => UInt32, u64 => UInt64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_match_indices() {
        for number in 0..=29 {
            assert_eq!(ScalarType::from_number(number).unwrap() as i64, number);
        }
        assert_eq!(ScalarType::from_number(30), None);
        assert_eq!(ScalarType::from_number(-1), None);
    }

    /// Expected results of `torch.promote_types`.
    #[test]
    fn promotion_matches_pytorch() {
        let cases = [
            (S::Byte, S::Char, Some(S::Short)),
            (S::Byte, S::Short, Some(S::Short)),
            (S::Char, S::Long, Some(S::Long)),
            (S::Half, S::BFloat16, Some(S::Float)),
            (S::Float, S::BFloat16, Some(S::Float)),
            (S::Double, S::BFloat16, Some(S::Double)),
            (S::Half, S::Long, Some(S::Half)),
            (S::BFloat16, S::Long, Some(S::BFloat16)),
            (S::Bool, S::BFloat16, Some(S::BFloat16)),
            (S::Bool, S::Byte, Some(S::Byte)),
            (S::Long, S::Double, Some(S::Double)),
            (S::UInt16, S::Bool, Some(S::UInt16)),
            (S::UInt16, S::Float, Some(S::Float)),
            (S::UInt16, S::Int, None),
            (S::Byte, S::QInt8, None),
        ];
        for (a, b, expected) in cases {
            assert_eq!(a.promote(b), expected, "{a} {b}");
            assert_eq!(b.promote(a), expected, "{b} {a}");
        }
    }
}
