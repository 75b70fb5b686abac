//! Fixed-point requantization factors.

use crate::error::Error;
use alloc::format;

/// A real factor, `fraction * 2^(shift - 31)`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Factor {
    pub(super) fraction: i32,
    pub(super) shift: i32,
}

/// Maximum shift that kernels support.
const MAX_SHIFT: i32 = 31;

impl Factor {
    /// Rounds a positive number to fixed point.
    ///
    /// # Errors
    /// The number is not positive and normal, or is too large.
    pub(super) fn of(number: f64) -> Result<Self, Error> {
        let bits = number.to_bits();
        let exponent = (bits >> 52) as i32;
        if !number.is_normal() || number < 0.0 {
            return Err(Error::Unsupported(format!(
                "requantization by {number}; expected a positive factor below 2^{MAX_SHIFT}"
            )));
        }
        // The mantissa has 53 bits with its leading one; 31 of them stay.
        let mantissa = bits & ((1 << 52) - 1) | 1 << 52;
        let rounded = (mantissa + (1 << 21)) >> 22;
        // 1022 is the exponent of one half, the smallest number whose leading one is the first of
        // 31 bits.
        let (fraction, shift) = match rounded {
            0x8000_0000 => (1 << 30, exponent - 1021),
            _ => (rounded as i32, exponent - 1022),
        };
        match shift {
            // The factor rounds every sum to zero.
            ..=-32 => Ok(Factor { fraction: 0, shift: 0 }),
            -31..=MAX_SHIFT => Ok(Factor { fraction, shift }),
            _ => Err(Error::Unsupported(format!(
                "requantization by {number}; expected a positive factor below 2^{MAX_SHIFT}"
            ))),
        }
    }

    pub(super) fn negated(self) -> Self {
        Factor { fraction: -self.fraction, ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn factors_are_fractions_of_31_bits() {
        for (number, fraction, shift) in [
            (0.5, 1 << 30, 0),
            (1.0, 1 << 30, 1),
            (0.75, 3 << 29, 0),
            (0.001, 1_099_511_628, -9),
            (1.0 - 1e-12, 1 << 30, 1),
            (3e-11, 0, 0),
        ] {
            assert_eq!(Factor::of(number).unwrap(), Factor { fraction, shift }, "{number}");
        }
        for number in [0.0, -1.0, f64::NAN, f64::INFINITY, 1e12] {
            assert!(Factor::of(number).is_err(), "{number}");
        }
    }
}
