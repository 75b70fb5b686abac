//! Conversion between the dtypes of programs and `f32`, in which the engine computes.
//!
//! 16-bit floats convert to `f32` exactly. They are rounded to nearest where they leave a region
//! and where the program converts to them. Intermediate values keep the precision and range of
//! `f32`, so they do not overflow where 16-bit values would.

use crate::compute::storage::Stored;
use half::{bf16, f16};
use std::borrow::Cow;
use std::vec::Vec;
use torchlet_core::ScalarType;

/// Float format of a tensor outside the engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Precision {
    Single,
    Half,
    BFloat,
}

/// Number of values that are rounded at a time.
const BLOCK: usize = 256;

impl Precision {
    pub(super) fn of(scalar_type: ScalarType) -> Option<Self> {
        match scalar_type {
            ScalarType::Float => Some(Precision::Single),
            ScalarType::Half => Some(Precision::Half),
            ScalarType::BFloat16 => Some(Precision::BFloat),
            _ => None,
        }
    }

    /// Number of 32-bit words that `count` values occupy.
    pub(super) fn words(self, count: usize) -> usize {
        match self {
            Precision::Single => count,
            Precision::Half | Precision::BFloat => count.div_ceil(2),
        }
    }

    /// Widens data of a program to `f32`; borrowed if it is `f32` and aligned.
    pub(super) fn elements(self, data: &[u8]) -> Cow<'_, [f32]> {
        match self {
            Precision::Single => typed(data, f32::from_le_bytes),
            Precision::Half => Cow::Owned(widened(&typed(data, f16::from_le_bytes))),
            Precision::BFloat => Cow::Owned(widened(&typed(data, bf16::from_le_bytes))),
        }
    }

    /// Rounds values to this precision.
    pub(super) fn round(self, values: &mut [f32]) {
        match self {
            Precision::Single => {}
            Precision::Half => round(values, f16::ZERO),
            Precision::BFloat => round(values, bf16::ZERO),
        }
    }
}

/// Casts data of a program to values: borrowed on little-endian targets if aligned, otherwise
/// decoded from bytes.
pub(super) fn typed<const N: usize, T: bytemuck::Pod>(
    data: &[u8],
    read: impl Fn([u8; N]) -> T,
) -> Cow<'_, [T]> {
    match bytemuck::try_cast_slice(data) {
        Ok(elements) if cfg!(target_endian = "little") => Cow::Borrowed(elements),
        _ => data.as_chunks::<N>().0.iter().map(|bytes| read(*bytes)).collect(),
    }
}

fn round<T: Stored>(values: &mut [f32], zero: T) {
    let mut block = [zero; BLOCK];
    for values in values.chunks_mut(BLOCK) {
        T::narrow(values, &mut block);
        T::widen(&block, values);
    }
}

/// Converts values to `f32`.
pub(super) fn widened<T: Stored>(values: &[T]) -> Vec<f32> {
    let mut wide = std::vec![0.0; values.len()];
    T::widen(values, &mut wide);
    wide
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unaligned_data_is_widened() {
        let values = [1.5f32, -0.0, 65504.0, f32::INFINITY, 6e-8];
        let halves: Vec<u8> =
            values.iter().flat_map(|it| f16::from_f32(*it).to_le_bytes()).collect();
        let exact = values.map(|it| f16::from_f32(it).to_f32());
        for skip in [0, 1] {
            let mut data = std::vec![0; skip];
            data.extend_from_slice(&halves);
            assert_eq!(*Precision::Half.elements(&data[skip..]), exact);
        }
        let data = bf16::from_f32(2.6).to_le_bytes();
        assert_eq!(*Precision::BFloat.elements(&data), [2.59375]);
    }

    #[test]
    fn values_are_rounded_to_nearest() {
        let mut values = std::vec![1.0 + 1.0 / 4096.0; BLOCK + 3];
        values[0] = 65520.0;
        values[1] = -65519.0;
        values[2] = f32::NAN;
        values[BLOCK] = 2049.0;
        Precision::Half.round(&mut values);
        assert_eq!(values[..2], [f32::INFINITY, -65504.0]);
        assert!(values[2].is_nan() && values[BLOCK] == 2048.0);
        assert!(values[3..BLOCK].iter().all(|it| *it == 1.0));
        let mut values = [1.0 + 1.0 / 128.0, 1.0 + 3.0 / 256.0, 70_000.0];
        Precision::BFloat.round(&mut values);
        assert_eq!(values, [1.0 + 1.0 / 128.0, 1.0 + 2.0 / 128.0, 70_144.0]);
    }
}
