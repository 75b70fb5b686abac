//! Comparison of tensors with a tolerance.

use super::number::Number;
use super::{Tensor, number};
use crate::error::{Error, TensorError};

/// Result of [`Tensor::compare`].
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct Comparison {
    /// Maximum absolute difference. Infinite if exactly one of two elements is NaN.
    pub max_abs: f64,
    /// Maximum difference relative to an expected element that is finite and not zero.
    pub max_rel: f64,
    /// Number of elements out of tolerance.
    pub mismatches: usize,
    /// Index of the first one, in row-major order.
    pub first_mismatch: Option<usize>,
}

impl Comparison {
    /// Whether all elements are within tolerance.
    pub fn is_close(&self) -> bool {
        self.mismatches == 0
    }
}

/// Distance of two elements, and the magnitude of the expected one.
fn distance(found: Number, expected: Number) -> (f64, f64) {
    let floats = |a: f64, b: f64| {
        if a == b || (a.is_nan() && b.is_nan()) {
            0.0
        } else if a.is_nan() || b.is_nan() {
            f64::INFINITY
        } else {
            (a - b).abs()
        }
    };
    match (found, expected) {
        // Integer subtraction is exact; floats could not distinguish neighbours.
        (Number::Int(a), Number::Int(b)) => ((a - b).unsigned_abs() as f64, (b as f64).abs()),
        (Number::Complex(a_re, a_im), Number::Complex(b_re, b_im)) => {
            (floats(a_re, b_re).hypot(floats(a_im, b_im)), b_re.hypot(b_im))
        }
        (a, b) => match (a.real(), b.real()) {
            (Some(a), Some(b)) => (floats(a, b), b.abs()),
            _ => (f64::INFINITY, 0.0),
        },
    }
}

impl Tensor {
    /// Compares with an expected tensor. Elements are close if
    /// `|found - expected| <= atol + rtol * |expected|`. NaN equals NaN, and infinities of the same
    /// sign are equal. Elements of dtypes without arithmetic must be bitwise equal.
    ///
    /// # Errors
    /// The dtypes or shapes differ.
    pub fn compare(&self, expected: &Tensor, rtol: f64, atol: f64) -> Result<Comparison, Error> {
        if self.scalar_type() != expected.scalar_type() {
            let (expected, found) = (expected.scalar_type(), self.scalar_type());
            return Err(TensorError::ScalarType { expected, found }.into());
        }
        if self.shape() != expected.shape() {
            let (expected, found) = (expected.shape().to_vec(), self.shape().to_vec());
            return Err(TensorError::OtherShape { expected, found }.into());
        }
        let mut result =
            Comparison { max_abs: 0.0, max_rel: 0.0, mismatches: 0, first_mismatch: None };
        let mut mismatch = |index| {
            result.mismatches += 1;
            result.first_mismatch.get_or_insert(index);
        };
        if number::reader(self.scalar_type()).is_none() {
            let (a, b) = (self.to_contiguous()?, expected.to_contiguous()?);
            let size = self.scalar_type().size();
            let pairs = a.bytes().chunks(size).zip(b.bytes().chunks(size)).enumerate();
            pairs.filter(|(_, (a, b))| a != b).for_each(|(index, _)| mismatch(index));
            return Ok(result);
        }
        let (mut max_abs, mut max_rel) = (0.0f64, 0.0f64);
        let pairs = self.numbers("comparison")?.zip(expected.numbers("comparison")?);
        for (index, (found, expected)) in pairs.enumerate() {
            let (abs, size) = distance(found, expected);
            max_abs = max_abs.max(abs);
            if size.is_finite() && size > 0.0 {
                max_rel = max_rel.max(abs / size);
            }
            // An infinite tolerance around an infinite expected element would accept everything.
            let tolerance = if size.is_finite() { atol + rtol * size } else { 0.0 };
            if abs.is_infinite() || abs > tolerance {
                mismatch(index);
            }
        }
        (result.max_abs, result.max_rel) = (max_abs, max_rel);
        Ok(result)
    }

    /// Whether the tensor has the dtype and shape of `expected`, and all elements are close as in
    /// [`compare`](Self::compare).
    pub fn allclose(&self, expected: &Tensor, rtol: f64, atol: f64) -> bool {
        self.compare(expected, rtol, atol).is_ok_and(|comparison| comparison.is_close())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use torchlet_core::ScalarType;

    fn floats(values: &[f32]) -> Tensor {
        Tensor::from_slice(&[values.len()], values).unwrap()
    }

    #[test]
    fn tolerance_is_relative_to_expected() {
        let (a, b) = (floats(&[1.0, 100.0]), floats(&[1.05, 101.0]));
        assert!(a.allclose(&b, 0.01, 0.05));
        assert!(!a.allclose(&b, 0.0, 0.05));
        let comparison = a.compare(&b, 0.0, 0.06).unwrap();
        assert_eq!((comparison.mismatches, comparison.first_mismatch), (1, Some(1)));
        assert_eq!(comparison.max_abs, 1.0);
        assert!((comparison.max_rel - 0.0476).abs() < 1e-3);
    }

    #[test]
    fn non_finite_values_only_equal_themselves() {
        let special = floats(&[f32::NAN, f32::INFINITY, f32::NEG_INFINITY]);
        assert!(special.allclose(&special, 0.0, 0.0));
        for other in [[0.0, f32::INFINITY, f32::NEG_INFINITY], [f32::NAN, 1e30, f32::NEG_INFINITY]]
        {
            assert!(!floats(&other).allclose(&special, 1.0, 1.0));
            assert!(!special.allclose(&floats(&other), 1.0, 1.0));
        }
        assert!(!floats(&[f32::INFINITY]).allclose(&floats(&[f32::NEG_INFINITY]), 1.0, 1.0));
    }

    #[test]
    fn integers_are_exact() {
        let a = Tensor::scalar(i64::MAX).unwrap();
        let b = Tensor::scalar(i64::MAX - 1).unwrap();
        assert_eq!(a.compare(&b, 0.0, 0.0).unwrap().max_abs, 1.0);
        let low = Tensor::scalar(i64::MIN).unwrap();
        assert!(!a.allclose(&low, 0.0, 1.0));
    }

    #[test]
    fn types_shapes_and_layouts() {
        let a = Tensor::rand(ScalarType::Float, &[2, 3, 4, 5], 1).unwrap();
        assert!(a.to_channels_last().unwrap().allclose(&a, 0.0, 0.0));
        assert!(!a.allclose(&a.to_type(ScalarType::Double).unwrap(), 1.0, 1.0));
        assert!(!a.allclose(&a.reshape(&[120]).unwrap(), 1.0, 1.0));
    }
}
