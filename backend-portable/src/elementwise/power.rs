//! Powers, `hypot`, `atan2` and `copysign`.

use super::{Real, TypeRule, binary, by_compute, prepare};
use crate::map::{map, rounded_operand};
use crate::number::Compute;
use crate::table::kernels;
use torchlet_core::Param::{Out, Scalar, Tensor};
use torchlet_core::{Invoke, Kernel, KernelError, ScalarType};

kernels! {
    /// `aten::pow.Tensor_Tensor_out(self, exponent, out)`: `self` to the power of `exponent`.
    /// Negative powers of integers are truncated to integers.
    POW_TENSOR_TENSOR_OUT = binary!("aten::pow.Tensor_Tensor_out", Common, Power, rounded C::power);
    /// `aten::pow.Tensor_Scalar_out(self, exponent, out)`: `self` to the power of a scalar, which
    /// must not be negative for integers.
    POW_TENSOR_SCALAR_OUT =
        Kernel::new("aten::pow.Tensor_Scalar_out", &[Tensor, Scalar, Out], |ctx| {
            prepare(ctx, &[0], &[1], 2, TypeRule::Common, by_compute!(to_scalar))
        });
    /// `aten::pow.Scalar_out(self, exponent, out)`: a scalar `self` to the power of `exponent`.
    POW_SCALAR_OUT = Kernel::new("aten::pow.Scalar_out", &[Scalar, Tensor, Out], |ctx| {
        prepare(ctx, &[1], &[0], 2, TypeRule::Common, by_compute!(of_scalar))
    });
    /// `aten::hypot.out(self, other, out)`: `sqrt(self^2 + other^2)`.
    HYPOT_OUT = binary!("aten::hypot.out", Common, float Real, rounded super::complex::hypot);
    /// `aten::atan2.out(self, other, out)`: the angle of the point (x = `other`, y = `self`).
    ATAN2_OUT = binary!("aten::atan2.out", Float, float Real, rounded C::atan2);
    /// `aten::copysign.out(self, other, out)`: the magnitude of `self` with the sign of `other`.
    COPYSIGN_OUT = binary!("aten::copysign.out", Float, float Real, C::copysign);
    /// `aten::copysign.Scalar_out(self, other, out)`: the magnitude of `self` with the sign of a
    /// scalar.
    COPYSIGN_SCALAR_OUT =
        binary!("aten::copysign.Scalar_out" Scalar, Float, float Real, C::copysign);
}

/// Exponentiation.
pub(crate) trait Power: Compute {
    fn power(self, exponent: Self) -> Self;
    fn multiply(self, other: Self) -> Self;
    /// Returns a cheaper function for a special exponent, such as the square root for 0.5.
    fn special_exponent(exponent: Self) -> Option<fn(Self) -> Self>;
    /// Whether powers with this exponent are defined.
    fn is_valid_exponent(exponent: Self) -> bool;
}

macro_rules! float_power {
    ($($t:ty),*) => {$(impl Power for $t {
        #[inline(always)]
        fn power(self, exponent: Self) -> Self { Real::pow(self, exponent) }
        #[inline(always)]
        fn multiply(self, other: Self) -> Self { self * other }
        fn special_exponent(exponent: Self) -> Option<fn(Self) -> Self> {
            if exponent == 0.5 {
                Some(|a| Real::sqrt(a))
            } else if exponent == -0.5 {
                Some(|a| 1.0 / Real::sqrt(a))
            } else if exponent == -1.0 {
                Some(|a| 1.0 / a)
            } else if exponent == -2.0 {
                Some(|a| 1.0 / (a * a))
            } else {
                None
            }
        }
        fn is_valid_exponent(_: Self) -> bool { true }
    })*};
}
float_power!(f32, f64);

impl Power for i64 {
    #[inline(always)]
    fn power(self, exponent: Self) -> Self {
        match (self, exponent) {
            (1, _) => 1,
            (-1, odd) if odd & 1 != 0 => -1,
            (-1, _) => 1,
            (_, ..0) => 0,
            _ => {
                // At most 63 iterations: each halves the exponent.
                let (mut result, mut factor, mut rest) = (1i64, self, exponent);
                while rest > 0 {
                    if rest & 1 != 0 {
                        result = result.wrapping_mul(factor);
                    }
                    factor = factor.wrapping_mul(factor);
                    rest >>= 1;
                }
                result
            }
        }
    }
    #[inline(always)]
    fn multiply(self, other: Self) -> Self {
        self.wrapping_mul(other)
    }
    fn special_exponent(_: Self) -> Option<fn(Self) -> Self> {
        None
    }
    fn is_valid_exponent(exponent: Self) -> bool {
        exponent >= 0
    }
}

fn to_scalar<C: Power>(ctx: &mut Invoke) -> Result<(), KernelError> {
    crate::types::expect::<C>()?;
    let exponent = rounded_operand::<C>(ctx, 0, 1)?;
    if !C::is_valid_exponent(exponent) {
        return Err(KernelError::argument(1, "exponent: expected at least 0 for integers"));
    }
    // PyTorch has no special cases for half, where `(-inf)^0.5` is therefore infinite instead of
    // NaN.
    let is_half = ctx.info(0)?.scalar_type == ScalarType::Half;
    if let Some(function) = C::special_exponent(exponent).filter(|_| !is_half) {
        return map(ctx, [0], 2, &function);
    }
    if exponent == C::from_i64(2) {
        return map(ctx, [0], 2, &move |a: C| a.multiply(a));
    }
    if exponent == C::from_i64(3) {
        return map(ctx, [0], 2, &move |a: C| a.multiply(a).multiply(a));
    }
    map(ctx, [0], 2, &move |a: C| a.power(exponent))
}

fn of_scalar<C: Power>(ctx: &mut Invoke) -> Result<(), KernelError> {
    crate::types::expect::<C>()?;
    let base = rounded_operand::<C>(ctx, 1, 0)?;
    map(ctx, [1], 2, &move |exponent: C| base.power(exponent))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Values of `torch.pow` on int64 tensors.
    #[test]
    fn integer_powers_match_pytorch() {
        for (base, exponent, expected) in [
            (1, -1, 1),
            (-1, -1, -1),
            (-1, -2, 1),
            (2, -1, 0),
            (0, -1, 0),
            (0, 0, 1),
            (-3, 3, -27),
            (2, 64, 0),
            (3, i64::MAX, -6148914691236517205),
        ] {
            assert_eq!(Power::power(base, exponent), expected, "{base} {exponent}");
        }
    }
}
