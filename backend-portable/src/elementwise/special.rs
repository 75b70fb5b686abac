//! Special functions of one or two tensors. Integers yield `float32`, as in PyTorch.

use super::{Real, TypeRule, binary, by_compute, of_number, prepare, unary};
use crate::map::map;
use crate::special;
use crate::table::kernels;
use torchlet_core::Param::{Int, Out, Scalar, Tensor};
use torchlet_core::{Invoke, Kernel, KernelError};

/// A kernel like [`unary!`], for a function on `f64`.
macro_rules! function {
    ($name:literal, $function:expr) => {
        unary!($name, Float, float Real, |a: C| C::from_f64($function(a.to_f64())))
    };
}

kernels! {
    /// `aten::erfc.out(self, out)`: `1 - erf(self)`, precise if that is near zero.
    ERFC_OUT = function!("aten::erfc.out", libm::erfc);
    /// `aten::erfinv.out(self, out)`: the inverse of `erf`.
    ERFINV_OUT = function!("aten::erfinv.out", special::inverse_erf);
    /// `aten::special_erfcx.out(self, out)`: `e^(self^2) * erfc(self)`.
    SPECIAL_ERFCX_OUT = function!("aten::special_erfcx.out", special::scaled_erfc);
    /// `aten::special_ndtri.out(self, out)`: quantiles of the normal distribution.
    SPECIAL_NDTRI_OUT = function!("aten::special_ndtri.out", special::normal_quantile);
    /// `aten::lgamma.out(self, out)`: the logarithm of the absolute value of the gamma function.
    LGAMMA_OUT = function!("aten::lgamma.out", libm::lgamma);
    /// `aten::digamma.out(self, out)`: the derivative of the logarithm of the gamma function.
    DIGAMMA_OUT = function!("aten::digamma.out", special::digamma);
    /// `aten::polygamma.out(n, self, out)`: the `n`-th derivative of `digamma`.
    POLYGAMMA_OUT = Kernel::new("aten::polygamma.out", &[Int, Tensor, Out], |ctx| {
        if u32::try_from(ctx.int(0)?).is_err() {
            return Err(KernelError::argument(0, "order: expected 0 to 2^32 - 1"));
        }
        prepare(ctx, &[1], &[], 2, TypeRule::Float, by_compute!(float polygamma))
    });
    /// `aten::special_zeta.out(self, other, out)`: the Hurwitz zeta function.
    SPECIAL_ZETA_OUT = binary!("aten::special_zeta.out", Float, float Real, zeta);
    /// `aten::special_zeta.self_scalar_out(self, other, out)`: the Hurwitz zeta function of a
    /// scalar `self`.
    SPECIAL_ZETA_SELF_SCALAR_OUT = Kernel::new(
        "aten::special_zeta.self_scalar_out",
        &[Scalar, Tensor, Out],
        |ctx| prepare(ctx, &[1], &[0], 2, TypeRule::Float, by_compute!(float zeta_of_number)),
    );
    /// `aten::special_zeta.other_scalar_out(self, other, out)`: the Hurwitz zeta function with a
    /// scalar `other`.
    SPECIAL_ZETA_OTHER_SCALAR_OUT =
        binary!("aten::special_zeta.other_scalar_out" Scalar, Float, float Real, zeta);
    /// `aten::igamma.out(self, other, out)`: the regularized lower incomplete gamma function.
    IGAMMA_OUT = binary!("aten::igamma.out", Float, float Real, rounded |a: C, x: C| {
        C::from_f64(special::incomplete_gamma(a.to_f64(), x.to_f64())[0])
    });
    /// `aten::igammac.out(self, other, out)`: the regularized upper incomplete gamma function.
    IGAMMAC_OUT = binary!("aten::igammac.out", Float, float Real, rounded |a: C, x: C| {
        C::from_f64(special::incomplete_gamma(a.to_f64(), x.to_f64())[1])
    });
    /// `aten::i0.out(self, out)`: the modified Bessel function of the first kind, of order 0.
    I0_OUT = unary!("aten::i0.out", Float, float Real, |x| bessel_i(0, x));
    /// `aten::special_i0e.out(self, out)`: `i0` times `e^-|self|`.
    SPECIAL_I0E_OUT = function!("aten::special_i0e.out", |x| special::scaled_bessel_i(0, x));
    /// `aten::special_i1.out(self, out)`: the modified Bessel function of the first kind, of
    /// order 1.
    SPECIAL_I1_OUT = unary!("aten::special_i1.out", Float, float Real, |x| bessel_i(1, x));
    /// `aten::special_i1e.out(self, out)`: `special_i1` times `e^-|self|`.
    SPECIAL_I1E_OUT = function!("aten::special_i1e.out", |x| special::scaled_bessel_i(1, x));
    /// `aten::special_modified_bessel_i0.out(self, out)`: the same function as `i0`.
    SPECIAL_MODIFIED_BESSEL_I0_OUT =
        function!("aten::special_modified_bessel_i0.out", |x| special::bessel_i(0, x));
    /// `aten::special_modified_bessel_i1.out(self, out)`: the same function as `special_i1`.
    SPECIAL_MODIFIED_BESSEL_I1_OUT =
        function!("aten::special_modified_bessel_i1.out", |x| special::bessel_i(1, x));
    /// `aten::special_modified_bessel_k0.out(self, out)`: the modified Bessel function of the
    /// second kind, of order 0.
    SPECIAL_MODIFIED_BESSEL_K0_OUT =
        function!("aten::special_modified_bessel_k0.out", |x| special::bessel_k(0, x));
    /// `aten::special_modified_bessel_k1.out(self, out)`: the modified Bessel function of the
    /// second kind, of order 1.
    SPECIAL_MODIFIED_BESSEL_K1_OUT =
        function!("aten::special_modified_bessel_k1.out", |x| special::bessel_k(1, x));
    /// `aten::special_scaled_modified_bessel_k0.out(x, out)`: `special_modified_bessel_k0` times
    /// `e^x`.
    SPECIAL_SCALED_MODIFIED_BESSEL_K0_OUT = function!(
        "aten::special_scaled_modified_bessel_k0.out", |x| special::scaled_bessel_k(0, x)
    );
    /// `aten::special_scaled_modified_bessel_k1.out(x, out)`: `special_modified_bessel_k1` times
    /// `e^x`.
    SPECIAL_SCALED_MODIFIED_BESSEL_K1_OUT = function!(
        "aten::special_scaled_modified_bessel_k1.out", |x| special::scaled_bessel_k(1, x)
    );
    /// `aten::special_spherical_bessel_j0.out(x, out)`: the spherical Bessel function of the first
    /// kind, of order 0.
    SPECIAL_SPHERICAL_BESSEL_J0_OUT =
        function!("aten::special_spherical_bessel_j0.out", special::spherical_bessel_j0);
    /// `aten::special_airy_ai.out(x, out)`: the Airy function Ai.
    SPECIAL_AIRY_AI_OUT = function!("aten::special_airy_ai.out", special::airy);
    /// `aten::special_bessel_j0.out(self, out)`: the Bessel function of the first kind, of order 0.
    SPECIAL_BESSEL_J0_OUT = function!("aten::special_bessel_j0.out", |x| finite(x, libm::j0));
    /// `aten::special_bessel_j1.out(self, out)`: the Bessel function of the first kind, of order 1.
    SPECIAL_BESSEL_J1_OUT = function!("aten::special_bessel_j1.out", |x| finite(x, libm::j1));
    /// `aten::special_bessel_y0.out(self, out)`: the Bessel function of the second kind, of
    /// order 0.
    SPECIAL_BESSEL_Y0_OUT = function!("aten::special_bessel_y0.out", |x| finite(x, libm::y0));
    /// `aten::special_bessel_y1.out(self, out)`: the Bessel function of the second kind, of
    /// order 1.
    SPECIAL_BESSEL_Y1_OUT = function!("aten::special_bessel_y1.out", |x| finite(x, libm::y1));
}

/// A modified Bessel function of the first kind. As in PyTorch, it is infinite where `e^|x|`
/// overflows, and NaN at infinity.
fn bessel_i<C: Real>(order: u8, x: C) -> C {
    let infinity = C::real(f64::INFINITY);
    let length = x.abs();
    if length == infinity {
        return C::real(f64::NAN);
    }
    if length.exp() == infinity {
        return if order == 1 { infinity.copysign(x) } else { infinity };
    }
    C::from_f64(special::bessel_i(order, x.to_f64()))
}

/// A function that is NaN at the infinities, as in PyTorch.
fn finite(x: f64, function: fn(f64) -> f64) -> f64 {
    if x.is_infinite() { f64::NAN } else { function(x) }
}

fn zeta<C: Real>(s: C, q: C) -> C {
    C::from_f64(special::zeta(s.to_f64(), q.to_f64()))
}

fn zeta_of_number<C: Real>(ctx: &mut Invoke) -> Result<(), KernelError> {
    crate::types::expect::<C>()?;
    of_number::<C>(ctx, 2, zeta)
}

fn polygamma<C: Real>(ctx: &mut Invoke) -> Result<(), KernelError> {
    crate::types::expect::<C>()?;
    let n = u32::try_from(ctx.int(0)?).unwrap_or(u32::MAX);
    map(ctx, [1], 2, &move |x: C| C::from_f64(special::polygamma(n, x.to_f64())))
}
