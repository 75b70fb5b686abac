//! Quantized numbers: `value = (number - zero_point) * scale`, with PyTorch's rounding (half to even).
//!
//! The operators are those of `quantized_decomposed`, which quantize and dequantize explicitly around floating-point
//! operators, and read quantized tables of embeddings and weights; and those of
//! [`cortex_m`], which compute with the integers.

mod affine;
pub mod cortex_m;
mod parameters;
mod weights;

pub use affine::*;
pub use parameters::*;
pub use weights::*;

use crate::real::Real;

/// What quantizing needs besides arithmetic.
pub(crate) trait Rounding: Real {
    /// Rounds to nearest, half to even, with additions only, which come many at a time.
    fn nearest(self) -> Self;
}

impl Rounding for f32 {
    #[inline(always)]
    fn nearest(self) -> f32 {
        // Numbers of this size have no fraction; adding it leaves no room for one.
        let large = 8_388_608f32.copysign(self);
        if self.abs() < 8_388_608.0 { (self + large) - large } else { self }
    }
}

impl Rounding for f64 {
    #[inline(always)]
    fn nearest(self) -> f64 {
        let large = 4_503_599_627_370_496f64.copysign(self);
        if self.abs() < 4_503_599_627_370_496.0 { (self + large) - large } else { self }
    }
}

#[cfg(test)]
mod tests {
    use super::Rounding;

    #[test]
    fn rounds_half_to_even() {
        for (x, rounded) in [(0.5, 0.0), (1.5, 2.0), (-2.5, -2.0), (2.51, 3.0), (-0.49, 0.0)] {
            assert_eq!((x as f32).nearest(), rounded as f32);
            assert_eq!(x.nearest(), rounded);
        }
        assert_eq!(8_388_609f32.nearest(), 8_388_609.0);
        assert!(f32::NAN.nearest().is_nan());
        assert_eq!(f32::INFINITY.nearest(), f32::INFINITY);
    }
}
