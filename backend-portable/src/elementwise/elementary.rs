//! Elementary functions of one tensor. Integers yield `float32`, as in PyTorch.

use super::complex::with_complex;
use super::{Real, TypeRule, by_compute, prepare, unary};
use crate::compute::functions;
use crate::map::{Two, map};
use crate::number::{Compute, rounded};
use crate::table::kernels;
use torchlet_core::Param::{Out, Tensor};
use torchlet_core::{Invoke, Kernel, KernelError};

kernels! {
    /// `aten::sqrt.out(self, out)`: square root.
    SQRT_OUT = with_complex!(
        unary!("aten::sqrt.out", Float, float Real, C::sqrt, vector functions::Sqrt), &[0], 1,
        Complex, sqrt
    );
    /// `aten::rsqrt.out(self, out)`: `1 / sqrt(self)`.
    RSQRT_OUT = unary!(
        "aten::rsqrt.out", Float, float Real, |a: C| C::real(1.0) / a.sqrt(),
        vector functions::Rsqrt
    );
    /// `aten::reciprocal.out(self, out)`: `1 / self`.
    RECIPROCAL_OUT = with_complex!(
        unary!("aten::reciprocal.out", Float, float Real, |a: C| C::real(1.0) / a), &[0], 1,
        Complex, reciprocal
    );
    /// `aten::exp.out(self, out)`: `e^self`.
    EXP_OUT = with_complex!(
        unary!("aten::exp.out", Float, float Real, C::exp, vector functions::Exp), &[0], 1, Complex,
        exp
    );
    /// `aten::exp2.out(self, out)`: `2^self`.
    EXP2_OUT = unary!("aten::exp2.out", Float, float Real, C::exp2);
    /// `aten::expm1.out(self, out)`: `e^self - 1`, precise near zero.
    EXPM1_OUT = unary!("aten::expm1.out", Float, float Real, C::exp_m1);
    /// `aten::log.out(self, out)`: natural logarithm.
    LOG_OUT =
        with_complex!(unary!("aten::log.out", Float, float Real, C::ln), &[0], 1, Complex, ln);
    /// `aten::log1p.out(self, out)`: `log(1 + self)`, precise near zero.
    LOG1P_OUT = unary!("aten::log1p.out", Float, float Real, C::ln_1p);
    /// `aten::log2.out(self, out)`: logarithm to base 2.
    LOG2_OUT = unary!("aten::log2.out", Float, float Real, C::log2);
    /// `aten::log10.out(self, out)`: logarithm to base 10.
    LOG10_OUT = unary!("aten::log10.out", Float, float Real, C::log10);
    /// `aten::sin.out(self, out)`: sine.
    SIN_OUT = unary!("aten::sin.out", Float, float Real, C::sin);
    /// `aten::cos.out(self, out)`: cosine.
    COS_OUT = unary!("aten::cos.out", Float, float Real, C::cos);
    /// `aten::tan.out(self, out)`: tangent.
    TAN_OUT = unary!("aten::tan.out", Float, float Real, C::tan);
    /// `aten::asin.out(self, out)`: arcsine.
    ASIN_OUT = unary!("aten::asin.out", Float, float Real, C::asin);
    /// `aten::acos.out(self, out)`: arccosine.
    ACOS_OUT = unary!("aten::acos.out", Float, float Real, C::acos);
    /// `aten::atan.out(self, out)`: arctangent.
    ATAN_OUT = unary!("aten::atan.out", Float, float Real, C::atan);
    /// `aten::sinh.out(self, out)`: hyperbolic sine.
    SINH_OUT = unary!("aten::sinh.out", Float, float Real, C::sinh);
    /// `aten::cosh.out(self, out)`: hyperbolic cosine.
    COSH_OUT = unary!("aten::cosh.out", Float, float Real, C::cosh);
    /// `aten::tanh.out(self, out)`: hyperbolic tangent.
    TANH_OUT = unary!("aten::tanh.out", Float, float Real, C::tanh, vector functions::Tanh);
    /// `aten::asinh.out(self, out)`: inverse hyperbolic sine.
    ASINH_OUT = unary!("aten::asinh.out", Float, float Real, C::asinh);
    /// `aten::acosh.out(self, out)`: inverse hyperbolic cosine.
    ACOSH_OUT = unary!("aten::acosh.out", Float, float Real, C::acosh);
    /// `aten::atanh.out(self, out)`: inverse hyperbolic tangent.
    ATANH_OUT = unary!("aten::atanh.out", Float, float Real, C::atanh);
    /// `aten::erf.out(self, out)`: the error function.
    ERF_OUT = unary!("aten::erf.out", Float, float Real, C::erf, vector functions::Erf);
    /// `aten::ldexp.out(self, other, out)`: `self * 2^other`, with the power in the dtype of
    /// `other` unless that is an integer.
    LDEXP_OUT = Kernel::new("aten::ldexp.out", &[Tensor, Tensor, Out], |ctx| {
        prepare(ctx, &[0, 1], &[], 2, TypeRule::Float, by_compute!(float ldexp))
    });
    /// `aten::signbit.out(self, out)`: whether the value is negative, including negative zero.
    SIGNBIT_OUT = unary!("aten::signbit.out", Bool, Compute, |a: C| C::of_bool(
        a.to_f64().is_sign_negative()
    ));
    /// `aten::isnan.out(self, out)`: whether the value is NaN.
    ISNAN_OUT = unary!("aten::isnan.out", Bool, Compute, |a: C| C::of_bool(a.is_nan()));
    /// `aten::isinf.out(self, out)`: whether the value is positive or negative infinity.
    ISINF_OUT = unary!("aten::isinf.out", Bool, Compute, |a: C| C::of_bool(
        a.to_f64().is_infinite()
    ));
}

/// `x * 2^exponent`, without overflow or underflow of intermediate powers.
fn scaled(x: f64, exponent: f64) -> f64 {
    // Beyond these bounds, results are zero or infinite.
    let whole = exponent.clamp(-3000.0, 3000.0);
    if exponent == libm::trunc(exponent) {
        libm::ldexp(x, whole as i32)
    } else {
        x * libm::exp2(exponent)
    }
}

fn ldexp<C: Real>(ctx: &mut Invoke) -> Result<(), KernelError> {
    crate::types::expect::<C>()?;
    let found = ctx.info(1)?.scalar_type;
    let is_power = found.is_floating();
    let function = move |a: C, b: C| {
        let exponent = b.to_f64();
        if is_power {
            return a * C::from_f64(rounded(found, scaled(1.0, exponent)));
        }
        C::from_f64(scaled(a.to_f64(), exponent))
    };
    map(ctx, [0, 1], 2, &Two(function))
}
