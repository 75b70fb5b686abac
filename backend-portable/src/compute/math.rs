//! Elementary functions on vectors, written once for all instruction sets.
//!
//! The polynomials were fitted for this file: weighted least squares on Chebyshev nodes, reweighted
//! to minimise the maximum relative error. Their approximation error is below 2^-27, so rounding
//! dominates. Results are within 2 ulp of the exact value over the whole range, including denormal
//! results; NaN gives NaN. The scalar tier calls `libm`, which is as accurate and needs no fused
//! multiply-add.

use super::simd::Simd;

/// `e^x`
#[inline(always)]
pub fn exp<S: Simd>(s: S, x: S::F) -> S::F {
    if S::LANES == 1 {
        return s.each(x, libm::expf);
    }
    // Beyond these bounds the result is infinity, or zero even with denormals.
    let x = s.clamp(x, s.splat(-104.0), s.splat(89.0));
    let n = s.round(s.mul(x, s.splat(core::f32::consts::LOG2_E)));
    // ln 2 as the sum of two constants; the first times `n` is exact.
    let r = s.mul_add(n, s.splat(-0.693_359_4), x);
    let r = s.mul_add(n, s.splat(2.121_944_4e-4), r);
    let mut p = s.splat(0.001_381_314_3);
    for c in [0.008_369_419, 0.041_668_457, 0.166_665_15, 0.499_999_93] {
        p = s.mul_add(p, r, s.splat(c));
    }
    let p = s.add(s.mul_add(s.mul(r, r), p, r), s.splat(1.0));
    s.scale(p, n)
}

/// Hyperbolic tangent.
#[inline(always)]
pub fn tanh<S: Simd>(s: S, x: S::F) -> S::F {
    if S::LANES == 1 {
        return s.each(x, libm::tanhf);
    }
    let a = s.abs(x);
    let one = s.splat(1.0);
    let e = exp(s, s.add(a, a));
    let large = s.copysign(s.sub(one, s.div(s.splat(2.0), s.add(e, one))), x);
    let z = s.mul(x, x);
    let mut p = s.splat(-0.005_591_007);
    for c in [0.020_538_81, -0.053_709_654, 0.133_310_92, -0.333_332_7] {
        p = s.mul_add(p, z, s.splat(c));
    }
    let small = s.mul_add(s.mul(p, z), x, x);
    s.select(s.lt(a, s.splat(0.625)), small, large)
}

/// `1 / (1 + e^-x)`
#[inline(always)]
pub fn sigmoid<S: Simd>(s: S, x: S::F) -> S::F {
    // The exponential of `-|x|` cannot overflow, and small results keep their precision.
    let e = exp(s, s.neg(s.abs(x)));
    let one = s.splat(1.0);
    let numerator = s.select(s.lt(x, s.splat(0.0)), e, one);
    s.div(numerator, s.add(one, e))
}

/// The error function.
#[inline(always)]
pub fn erf<S: Simd>(s: S, x: S::F) -> S::F {
    if S::LANES == 1 {
        return s.each(x, libm::erff);
    }
    let z = s.mul(x, x);
    let mut p = s.splat(7.853_857e-5);
    for c in [
        -0.000_801_019_2,
        0.005_188_327_5,
        -0.026_853_812,
        0.112_835_85,
        -0.376_126_26,
        0.128_379_17,
    ] {
        p = s.mul_add(p, z, s.splat(c));
    }
    // `p` is the leading coefficient minus one, which reduces the effect of the polynomial's
    // rounding.
    let small = s.mul_add(p, x, x);
    // `1 - e^(ln erfc)`. From 3.95 on the result rounds to one.
    let t = s.min(s.splat(3.95), s.abs(x));
    let mut q = s.splat(2.169_791_9e-5);
    for c in [
        -0.000_441_475_87,
        0.004_205_298_6,
        -0.025_210_37,
        0.108_422_14,
        0.633_216_4,
        1.129_580_3,
        -0.000_188_468_62,
    ] {
        q = s.mul_add(q, t, s.splat(c));
    }
    let large = s.copysign(s.sub(s.splat(1.0), exp(s, s.neg(q))), x);
    s.select(s.lt(s.abs(x), s.splat(1.0)), small, large)
}

/// `x * (1 + erf(x / sqrt 2)) / 2`
#[inline(always)]
pub fn gelu<S: Simd>(s: S, x: S::F) -> S::F {
    let e = erf(s, s.mul(x, s.splat(core::f32::consts::FRAC_1_SQRT_2)));
    s.mul(s.mul(x, s.splat(0.5)), s.add(s.splat(1.0), e))
}

/// `x * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3))) / 2`
#[inline(always)]
pub fn gelu_tanh<S: Simd>(s: S, x: S::F) -> S::F {
    let cube = s.mul(s.mul(x, x), x);
    let inner = s.mul(s.splat(0.797_884_6), s.mul_add(s.splat(0.044_715), cube, x));
    s.mul(s.mul(x, s.splat(0.5)), s.add(s.splat(1.0), tanh(s, inner)))
}

/// `x / (1 + e^-x)`
#[inline(always)]
pub fn silu<S: Simd>(s: S, x: S::F) -> S::F {
    s.mul(x, sigmoid(s, x))
}

#[cfg(test)]
mod tests {
    use crate::compute::functions::{self, Map1};
    use crate::compute::gemm::Context;
    use crate::compute::simd::Tier;
    use crate::compute::split::Serial;

    /// Error function in double precision: the series, or the continued fraction where it converges
    /// faster.
    fn erf64(x: f64) -> f64 {
        let a = x.abs();
        if a < 2.5 {
            let (mut term, mut sum) = (a, a);
            for n in 1..60 {
                term *= -a * a / f64::from(n);
                sum += term / f64::from(2 * n + 1);
            }
            return (sum * 2.0 / std::f64::consts::PI.sqrt()).copysign(x);
        }
        let mut tail = a;
        for k in (1..80).rev() {
            tail = a + f64::from(k) / 2.0 / tail;
        }
        (1.0 - (-a * a).exp() / (tail * std::f64::consts::PI.sqrt())).copysign(x)
    }

    /// Error in ulp of the exact result.
    fn ulps(got: f32, want: f64) -> f64 {
        let nearest = want as f32;
        if got == nearest || (got.is_nan() && nearest.is_nan()) {
            return 0.0;
        }
        if !got.is_finite() || !nearest.is_finite() {
            return f64::INFINITY;
        }
        let exponent = (nearest.abs().max(f32::MIN_POSITIVE).to_bits() >> 23) as i32 - 127;
        (f64::from(got) - want).abs() / 2f64.powi(exponent - 23)
    }

    fn worst<M: Map1>(m: M, want: impl Fn(f64) -> f64, limit: f64) {
        // Every 20011th bit pattern, and the neighbourhoods of the branch points.
        let mut xs: Vec<f32> = (0..u32::MAX).step_by(20_011).map(f32::from_bits).collect();
        for edge in [
            0.0f32,
            0.625,
            1.0,
            3.95,
            88.7228,
            87.3365,
            103.97,
            104.0,
            f32::INFINITY,
            f32::MIN_POSITIVE,
            f32::MAX,
        ] {
            for bits in edge.to_bits().saturating_sub(500)..=edge.to_bits() + 500 {
                xs.extend([f32::from_bits(bits), -f32::from_bits(bits)]);
            }
        }
        let wanted: Vec<f64> = xs.iter().map(|&x| want(f64::from(x))).collect();
        for tier in Tier::available() {
            let mut got = vec![0.0; xs.len()];
            functions::map1(Context { tier, parallel: &Serial }, m, &xs, &mut got);
            let mut max_error = (0.0, 0.0);
            for ((&x, &g), &w) in xs.iter().zip(&got).zip(&wanted) {
                let u = ulps(g, w);
                if u > max_error.0 {
                    max_error = (u, x);
                }
            }
            println!(
                "{} {}: {:.3} ulp at {}",
                std::any::type_name::<M>(),
                tier.name(),
                max_error.0,
                max_error.1
            );
            assert!(
                max_error.0 <= limit,
                "{} {}: {} ulp at {}",
                std::any::type_name::<M>(),
                tier.name(),
                max_error.0,
                max_error.1
            );
        }
    }

    #[test]
    fn exp_is_accurate() {
        worst(functions::Exp, f64::exp, 1.2);
    }
    #[test]
    fn tanh_is_accurate() {
        worst(functions::Tanh, f64::tanh, 2.0);
    }
    #[test]
    fn sigmoid_is_accurate() {
        worst(functions::Sigmoid, |x| 1.0 / (1.0 + (-x).exp()), 2.5);
    }
    #[test]
    fn erf_is_accurate() {
        worst(functions::Erf, erf64, 2.0);
    }

    #[test]
    fn activations_follow_their_definitions() {
        let xs: Vec<f32> = (-4000..4000).map(|i| i as f32 / 250.0).collect();
        for tier in Tier::available() {
            let context = Context { tier, parallel: &Serial };
            let mut got = vec![0.0; xs.len()];
            let close = |name: &str, got: &[f32], want: &dyn Fn(f64) -> f64| {
                for (&x, &g) in xs.iter().zip(got) {
                    let w = want(f64::from(x));
                    assert!(
                        (f64::from(g) - w).abs() <= 3e-7 * w.abs().max(1.0),
                        "{name} {x}: {g}, expected {w}"
                    );
                }
            };
            functions::map1(context, functions::Gelu, &xs, &mut got);
            close("gelu", &got, &|x| 0.5 * x * (1.0 + erf64(x * std::f64::consts::FRAC_1_SQRT_2)));
            functions::map1(context, functions::GeluTanh, &xs, &mut got);
            let scale = (2.0 / std::f64::consts::PI).sqrt();
            close("gelu tanh", &got, &|x| {
                0.5 * x * (1.0 + (scale * (x + 0.044715 * x * x * x)).tanh())
            });
            functions::map1(context, functions::Silu, &xs, &mut got);
            close("silu", &got, &|x| x / (1.0 + (-x).exp()));
        }
    }
}
