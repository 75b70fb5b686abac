//! Nested arrays as tensors.

use super::{bf16, f16};
use torchlet_core::{Bool, Element};

/// A scalar, or nested arrays of scalars with one level per dim: `[[f32; 10]; 1]` for shape (1,
/// 10).
///
/// If a tensor is not in row-major order (channels last), the arrays are in memory order.
pub trait Nested: Sized {
    /// Element type.
    type Element: Element;

    /// Elements of several values, in order.
    fn flat(values: &[Self]) -> &[Self::Element];

    /// Splits elements into values; an incomplete value at the end is dropped.
    fn nested(elements: &[Self::Element]) -> &[Self];

    /// Casts the little-endian, aligned bytes of a file to a value. `None` if the length or the
    /// alignment does not match.
    fn from_bytes(bytes: &[u8]) -> Option<&Self> {
        let elements = bytemuck::try_cast_slice(bytes).ok()?;
        match Self::nested(elements) {
            [one] if size_of::<Self>() == bytes.len() => Some(one),
            _ => None,
        }
    }
}

macro_rules! numbers {
    ($($number:ty),*) => {$(
        impl Nested for $number {
            type Element = $number;
            fn flat(values: &[Self]) -> &[Self] {
                values
            }
            fn nested(elements: &[Self]) -> &[Self] {
                elements
            }
        }
    )*};
}
numbers!(u8, i8, i16, i32, i64, f16, f32, f64, Bool, bf16, u16, u32, u64);

impl<T: Nested, const N: usize> Nested for [T; N] {
    type Element = T::Element;
    fn flat(values: &[Self]) -> &[T::Element] {
        T::flat(values.as_flattened())
    }
    fn nested(elements: &[T::Element]) -> &[Self] {
        const { assert!(N > 0, "arrays cannot have a dimension of size 0") };
        T::nested(elements).as_chunks().0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrays_flatten_in_order() {
        let nested = [[[1i32, 2], [3, 4], [5, 6]], [[7, 8], [9, 10], [11, 12]]];
        let flat: Vec<i32> = (1..=12).collect();
        assert_eq!(Nested::flat(std::slice::from_ref(&nested)), flat);
        assert_eq!(<[[[i32; 2]; 3]; 2]>::nested(&flat), [nested]);
        assert_eq!(i32::nested(&[7]), [7]);
    }

    #[test]
    fn from_bytes_checks_the_length() {
        let bytes = torchlet_core::AlignedBytes([1, 0, 2, 0, 3, 0, 4, 0, 5]);
        assert_eq!(<[[u16; 2]; 2]>::from_bytes(&bytes.0[..8]), Some(&[[1, 2], [3, 4]]));
        assert_eq!(<[[u16; 2]; 2]>::from_bytes(&bytes.0), None);
        assert_eq!(<[[u16; 2]; 2]>::from_bytes(&bytes.0[..6]), None);
        assert_eq!(<[[u16; 2]; 2]>::from_bytes(&bytes.0[1..]), None);
    }

    #[test]
    fn incomplete_values_are_dropped() {
        assert_eq!(<[u8; 4]>::nested(&[1, 2, 3]), [[0; 4]; 0]);
        assert_eq!(<[u8; 2]>::nested(&[1, 2, 3]), [[1, 2]]);
    }
}
