//! Sort keys: integers that compare in PyTorch's sort order, combined with element positions.
//!
//! NaN is greater than all other values, and all NaN are equal, as are both zeros. Since entries
//! compare by position as well, an unstable sort of them is stable.

use crate::number::{Number, elements, with_number};
use core::cmp::Ordering;
use torchlet_core::{Bool, ScalarType, TensorRef};

/// An element type with sort keys.
trait Sortable: Number {
    /// An integer that compares like the value; 32 bits wide unless the value is wider.
    fn sort_key(self) -> u64;
}

macro_rules! unsigned {
    ($($t:ty),*) => {$(impl Sortable for $t {
        #[inline(always)]
        fn sort_key(self) -> u64 { u64::from(self) }
    })*};
}
unsigned!(u8, u16, u32, u64);

macro_rules! signed {
    ($($t:ty),*) => {$(impl Sortable for $t {
        #[inline(always)]
        fn sort_key(self) -> u64 { u64::from((i32::from(self) as u32) ^ (1 << 31)) }
    })*};
}
signed!(i8, i16, i32);

impl Sortable for i64 {
    #[inline(always)]
    fn sort_key(self) -> u64 {
        (self as u64) ^ (1 << 63)
    }
}

impl Sortable for Bool {
    #[inline(always)]
    fn sort_key(self) -> u64 {
        u64::from(self.get())
    }
}

impl Sortable for f32 {
    #[inline(always)]
    fn sort_key(self) -> u64 {
        if self.is_nan() {
            return u64::from(u32::MAX);
        }
        // Adding zero turns negative zero into positive zero.
        let bits = (self + 0.0).to_bits();
        let key = if bits >> 31 == 0 { bits | 1 << 31 } else { !bits };
        u64::from(key)
    }
}

impl Sortable for f64 {
    #[inline(always)]
    fn sort_key(self) -> u64 {
        if self.is_nan() {
            return u64::MAX;
        }
        let bits = (self + 0.0).to_bits();
        if bits >> 63 == 0 { bits | 1 << 63 } else { !bits }
    }
}

macro_rules! narrow {
    ($($t:ty),*) => {$(impl Sortable for $t {
        #[inline(always)]
        fn sort_key(self) -> u64 { Number::to_f32(self).sort_key() }
    })*};
}
narrow!(half::f16, half::bf16);

/// A key with the position of its value.
pub(crate) trait Entry: bytemuck::Pod + Ord {
    fn new(key: u64, position: u32) -> Self;
    fn position(self) -> u32;
    /// The greatest key, that of NaN for floats.
    const NAN: u64;
    fn key(self) -> u64;
}

/// Entries with 32-bit keys.
impl Entry for u64 {
    #[inline(always)]
    fn new(key: u64, position: u32) -> u64 {
        key << 32 | u64::from(position)
    }
    #[inline(always)]
    fn position(self) -> u32 {
        self as u32
    }
    const NAN: u64 = u32::MAX as u64;
    #[inline(always)]
    fn key(self) -> u64 {
        self >> 32
    }
}

/// Entries with 64-bit keys.
impl Entry for u128 {
    #[inline(always)]
    fn new(key: u64, position: u32) -> u128 {
        u128::from(key) << 64 | u128::from(position)
    }
    #[inline(always)]
    fn position(self) -> u32 {
        self as u32
    }
    const NAN: u64 = u64::MAX;
    #[inline(always)]
    fn key(self) -> u64 {
        (self >> 64) as u64
    }
}

/// Whether the keys of a type need 64 bits; `None` if the type cannot be sorted.
pub(crate) fn is_wide(scalar_type: ScalarType) -> Option<bool> {
    match scalar_type {
        ScalarType::Long | ScalarType::Double | ScalarType::UInt64 => Some(true),
        other => crate::number::ComputeType::of(other).map(|_| false),
    }
}

/// Writes the entries of the elements from `at` on, with stride `step`. With `descending`, the
/// order of the keys is reversed.
pub(crate) fn fill<E: Entry>(
    tensor: &TensorRef,
    at: isize,
    step: isize,
    descending: bool,
    entries: &mut [E],
) {
    let flip = if descending { E::NAN } else { 0 };
    with_number!(tensor.scalar_type, |T| {
        let data = elements::<T>(tensor.bytes());
        let mut offset = at;
        for (position, entry) in entries.iter_mut().enumerate() {
            let value = usize::try_from(offset).ok().and_then(|offset| data.get(offset));
            *entry = E::new(value.map_or(0, |value| value.sort_key()) ^ flip, position as u32);
            offset = offset.wrapping_add(step);
        }
    }, else ());
}

/// Compares two elements by their keys.
pub(crate) fn compare(tensor: &TensorRef, a: isize, b: isize) -> Ordering {
    with_number!(tensor.scalar_type, |T| {
        let data = elements::<T>(tensor.bytes());
        let key = |at: isize| Some(data.get(usize::try_from(at).ok()?)?.sort_key());
        key(a).cmp(&key(b))
    }, else Ordering::Equal)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_compare_as_values() {
        let floats = [f32::NEG_INFINITY, -1.5, -1e-40, 0.0, 1e-40, 1.0, f32::INFINITY, f32::NAN];
        assert!(floats.windows(2).all(|pair| pair[0].sort_key() < pair[1].sort_key()));
        assert!(floats.iter().all(|x| x.sort_key() <= u64::from(u32::MAX)));
        assert!(
            floats
                .windows(2)
                .all(|pair| f64::from(pair[0]).sort_key() < f64::from(pair[1]).sort_key())
        );
        assert_eq!((-0.0f32).sort_key(), 0.0f32.sort_key());
        assert_eq!((-f64::NAN).sort_key(), f64::NAN.sort_key());
        let integers = [i64::MIN, -1, 0, 1, i64::MAX];
        assert!(integers.windows(2).all(|pair| pair[0].sort_key() < pair[1].sort_key()));
        assert!(i8::MIN.sort_key() < (-1i8).sort_key() && (-1i8).sort_key() < 0i8.sort_key());
        assert_eq!(<u64 as Entry>::new(7, 9).position(), 9);
        assert_eq!(<u128 as Entry>::new(u64::MAX, 9).key(), u64::MAX);
    }
}
