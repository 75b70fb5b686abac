//! Special functions of real numbers in `f64`. They are rarely called, so accuracy matters more
//! than speed.
//!
//! Formulas: NIST Digital Library of Mathematical Functions, by section.

use core::f64::consts::{FRAC_2_SQRT_PI, PI, SQRT_2};

/// Minimum argument for which asymptotic series in `1 / x` reach `f64` precision.
const ASYMPTOTIC_FROM: f64 = 10.0;

/// Bernoulli numbers of even index, starting at 2.
const BERNOULLI: [f64; 10] = [
    1.0 / 6.0,
    -1.0 / 30.0,
    1.0 / 42.0,
    -1.0 / 30.0,
    5.0 / 66.0,
    -691.0 / 2730.0,
    7.0 / 6.0,
    -3617.0 / 510.0,
    43867.0 / 798.0,
    -174611.0 / 330.0,
];

/// The derivative of `lgamma` (5.11.2; 5.5.4 for negative arguments). As in PyTorch, infinite
/// at zero, with the opposite sign, and NaN at negative integers.
pub(crate) fn digamma(x: f64) -> f64 {
    if x == 0.0 {
        return f64::INFINITY.copysign(-x);
    }
    if x < 0.0 {
        if x == libm::trunc(x) {
            return f64::NAN;
        }
        return digamma(1.0 - x) - PI / libm::tan(PI * (x - libm::trunc(x)));
    }
    let (mut x, mut sum) = (x, 0.0);
    while x < ASYMPTOTIC_FROM {
        sum -= 1.0 / x;
        x += 1.0;
    }
    if x.is_infinite() {
        return x;
    }
    let square = 1.0 / (x * x);
    let (mut power, mut series) = (1.0, 0.0);
    for (k, bernoulli) in (1u8..).zip(BERNOULLI) {
        power *= square;
        series += bernoulli * power / f64::from(2 * k);
    }
    sum + libm::log(x) - 0.5 / x - series
}

/// Hurwitz zeta function, the sum of `(q + n)^-s` for `n >= 0` (25.11.5). As in PyTorch, infinite
/// at `s = 1` and at poles; NaN for `s < 1`, and for negative `q` if `s` is not an integer.
pub(crate) fn zeta(s: f64, q: f64) -> f64 {
    if s == 1.0 {
        return f64::INFINITY;
    }
    if s.is_nan() || q.is_nan() || s < 1.0 {
        return f64::NAN;
    }
    if q <= 0.0 {
        if q == libm::floor(q) {
            return f64::INFINITY;
        }
        if s != libm::floor(s) {
            return f64::NAN;
        }
        // The terms with a negative base are, except for the sign, a difference of two zeta values,
        // so they need not be added one by one.
        let terms = libm::ceil(-q);
        let (first, behind) = (q + terms, -q + 1.0);
        let least = -(first - 1.0);
        let sign = if libm::fmod(s, 2.0) == 0.0 { 1.0 } else { -1.0 };
        return sign * (zeta(s, least) - zeta(s, behind)) + zeta(s, first);
    }
    let (mut q, mut sum) = (q, 0.0);
    // The asymptotic series requires `q` at least as large as `s`. If `s` is large, terms soon
    // become negligible.
    while q < ASYMPTOTIC_FROM + s {
        let term = libm::pow(q, -s);
        sum += term;
        if term <= sum * f64::EPSILON / 16.0 {
            return sum;
        }
        q += 1.0;
    }
    let term = libm::pow(q, -s);
    if term == 0.0 {
        return sum;
    }
    sum += term * (q / (s - 1.0) + 0.5);
    let (mut factor, mut at) = (s, s);
    let mut power = term / q;
    let mut factorial = 2.0;
    for (k, bernoulli) in (1u8..).zip(BERNOULLI) {
        sum += bernoulli / factorial * factor * power;
        factor *= (at + 1.0) * (at + 2.0);
        at += 2.0;
        power /= q * q;
        factorial *= f64::from(2 * k + 1) * f64::from(2 * k + 2);
    }
    sum
}

/// The `n`-th derivative of [`digamma`] (5.15.1 and 5.15.3).
pub(crate) fn polygamma(n: u32, x: f64) -> f64 {
    if n == 0 {
        return digamma(x);
    }
    // The limit does not exist: every negative integer is a pole.
    if n == 1 && x == f64::NEG_INFINITY {
        return f64::NAN;
    }
    let order = f64::from(n);
    let factorial = libm::tgamma(order + 1.0);
    let sign = if n % 2 == 1 { 1.0 } else { -1.0 };
    sign * factorial * zeta(order + 1.0, x)
}

/// `e^(x²) * erfc(x)`, by 7.12.1 where that is precise.
pub(crate) fn scaled_erfc(x: f64) -> f64 {
    if x.is_nan() || x < 12.0 {
        return libm::exp(x * x) * libm::erfc(x);
    }
    let (mut term, mut sum) = (1.0, 1.0);
    let square = 2.0 * x * x;
    for k in 1..16u8 {
        term *= -f64::from(2 * k - 1) / square;
        sum += term;
    }
    sum * FRAC_2_SQRT_PI / (2.0 * x)
}

/// The inverse of the error function.
pub(crate) fn inverse_erf(x: f64) -> f64 {
    if x.abs() >= 0.5 || x.is_nan() {
        return inverse_erfc(1.0 - x.abs()).copysign(x);
    }
    let mut y = x / FRAC_2_SQRT_PI;
    for _ in 0..4 {
        let error = libm::erf(y) - x;
        y -= error / (FRAC_2_SQRT_PI * libm::exp(-y * y) + y * error);
    }
    y
}

/// The inverse of `erfc` for `p` in 0..=1, by Halley's method. The initial guess is accurate to a
/// few thousandths (Abramowitz and Stegun, 26.2.22).
fn inverse_erfc(p: f64) -> f64 {
    if p == 0.0 {
        return f64::INFINITY;
    }
    if !(0.0..=1.0).contains(&p) {
        return f64::NAN;
    }
    let t = libm::sqrt(-2.0 * libm::log(p / 2.0));
    let guess = t - (2.30753 + 0.27061 * t) / (1.0 + t * (0.99229 + 0.04481 * t));
    let mut y = guess / SQRT_2;
    for _ in 0..4 {
        let slope = FRAC_2_SQRT_PI * libm::exp(-y * y);
        let error = libm::erfc(y) - p;
        let step = error / (slope - y * error);
        if !step.is_finite() {
            break;
        }
        y += step;
    }
    y
}

/// Quantile function of the standard normal distribution.
pub(crate) fn normal_quantile(p: f64) -> f64 {
    if (0.25..=0.75).contains(&p) {
        return SQRT_2 * inverse_erf(2.0 * p - 1.0);
    }
    if p <= 0.5 { -SQRT_2 * inverse_erfc(2.0 * p) } else { SQRT_2 * inverse_erfc(2.0 * (1.0 - p)) }
}

/// Modified Bessel function of the first kind of order 0 or 1, times `e^-|x|` (10.25.2; 10.40.1 far
/// from zero).
pub(crate) fn scaled_bessel_i(order: u8, x: f64) -> f64 {
    let (size, nu) = (x.abs(), f64::from(order));
    let value = if size <= 20.0 {
        let quarter = x * x / 4.0;
        let mut term = if order == 0 { 1.0 } else { size / 2.0 };
        let mut sum = term;
        for k in 1..64u8 {
            term *= quarter / (f64::from(k) * (f64::from(k) + nu));
            sum += term;
        }
        sum * libm::exp(-size)
    } else {
        let (mut term, mut sum) = (1.0, 1.0);
        for k in 1..32u8 {
            let odd = f64::from(2 * k - 1);
            term *= -(4.0 * nu * nu - odd * odd) / (8.0 * f64::from(k) * size);
            sum += term;
        }
        sum / libm::sqrt(2.0 * PI * size)
    };
    if order == 1 { value.copysign(x) } else { value }
}

/// Modified Bessel function of the first kind of order 0 or 1.
pub(crate) fn bessel_i(order: u8, x: f64) -> f64 {
    scaled_bessel_i(order, x) * libm::exp(x.abs())
}

/// Euler's constant.
const EULER: f64 = 0.577_215_664_901_532_9;

/// Modified Bessel function of the second kind of order 0 or 1, times `e^x` (10.31.1 and 10.31.2
/// near zero; otherwise the integral 10.32.9, for which the trapezoidal rule reaches full
/// precision). Infinite at zero, NaN for negative arguments.
pub(crate) fn scaled_bessel_k(order: u8, x: f64) -> f64 {
    if x == 0.0 {
        return f64::INFINITY;
    }
    if x.is_nan() || x < 0.0 {
        return f64::NAN;
    }
    if x.is_infinite() {
        return 0.0;
    }
    if x <= 1.0 {
        let (quarter, log) = (x * x / 4.0, libm::log(x / 2.0));
        // Terms of the series of I, times factors with harmonic numbers.
        let (mut term, mut harmonic, mut sum) = (1.0, 0.0, 0.0);
        for k in 0..12u8 {
            let k = f64::from(k);
            sum += term
                * match order {
                    0 => harmonic - EULER - log,
                    _ => log + EULER - harmonic - 0.5 / (k + 1.0),
                };
            harmonic += 1.0 / (k + 1.0);
            term *= quarter / ((k + 1.0) * (k + 1.0 + f64::from(order)));
        }
        let value = if order == 0 { sum } else { 1.0 / x + x / 2.0 * sum };
        return value * libm::exp(x);
    }
    bessel_k_by_integral(f64::from(order), x)
}

/// The integral of `e^(x (1 - cosh t)) cosh(nu t)` over `t > 0`: the modified Bessel function of
/// the second kind times `e^x`, for `x` from about 1.
fn bessel_k_by_integral(nu: f64, x: f64) -> f64 {
    // Narrower steps for large arguments, whose integrand is narrower.
    let step = (0.5 / libm::sqrt(x)).min(0.125);
    let (mut sum, mut t) = (0.5, step);
    for _ in 0..256 {
        // 1 - cosh t, computed without cancellation.
        let half = libm::sinh(t / 2.0);
        let term = libm::exp(-2.0 * x * half * half) * libm::cosh(nu * t);
        sum += term;
        if term < sum * 1e-18 {
            break;
        }
        t += step;
    }
    sum * step
}

/// Modified Bessel function of the second kind of order 0 or 1.
pub(crate) fn bessel_k(order: u8, x: f64) -> f64 {
    scaled_bessel_k(order, x) * libm::exp(-x)
}

/// Airy function Ai (9.4.1 around zero, 9.6.2 for positive, 9.7.9 for negative arguments). As in
/// PyTorch, NaN at infinity.
pub(crate) fn airy(x: f64) -> f64 {
    if !x.is_finite() {
        return f64::NAN;
    }
    // The result underflows to zero.
    if x > 110.0 {
        return 0.0;
    }
    let zeta = 2.0 / 3.0 * libm::sqrt(x.abs()) * x.abs();
    if x > 2.0 {
        let scaled = bessel_k_by_integral(1.0 / 3.0, zeta);
        return libm::sqrt(x / 3.0) / PI * scaled * libm::exp(-zeta);
    }
    if x < -7.0 {
        // Terms u_k alternate between cosine and sine, and change sign every second term.
        let (mut term, mut sums) = (1.0, [1.0, 0.0]);
        for k in 1..24u8 {
            let six = 6.0 * f64::from(k);
            let next = term * (six - 5.0) * (six - 1.0) / (72.0 * f64::from(k) * zeta);
            if next.abs() >= f64::abs(term) {
                break;
            }
            term = next;
            let sign = if k % 4 < 2 { 1.0 } else { -1.0 };
            sums[usize::from(k % 2)] += sign * term;
        }
        let angle = zeta - PI / 4.0;
        let value = libm::cos(angle) * sums[0] + libm::sin(angle) * sums[1];
        return value / (libm::sqrt(PI) * libm::sqrt(libm::sqrt(-x)));
    }
    // Ai(0) and -Ai'(0), and their series.
    let (mut first, mut second) = (0.355_028_053_887_817_2, 0.258_819_403_792_806_8 * x);
    let mut sum = first - second;
    for k in 1..64u8 {
        let three = 3.0 * f64::from(k);
        first *= x * x * x / (three * (three - 1.0));
        second *= x * x * x / (three * (three + 1.0));
        sum += first - second;
    }
    sum
}

/// Spherical Bessel function of the first kind of order 0: `sin x / x`.
pub(crate) fn spherical_bessel_j0(x: f64) -> f64 {
    match x {
        _ if x.is_infinite() => 0.0,
        0.0 => 1.0,
        _ => libm::sin(x) / x,
    }
}

/// Minimum argument for the uniform expansion. It is accurate enough from there on, and sums would
/// need too many terms.
const UNIFORM_FROM: f64 = 1e5;
/// Maximum number of terms of a sum: arguments below [`UNIFORM_FROM`] need a few thousand.
const MAX_TERMS: u32 = 10_000;

/// Regularised lower and upper incomplete gamma functions of `a` at `x`; their sum is one (8.2.4).
/// As in PyTorch, NaN if an argument is negative, or if both are zero or infinite.
pub(crate) fn incomplete_gamma(a: f64, x: f64) -> [f64; 2] {
    let nan = [f64::NAN; 2];
    if a.is_nan() || x.is_nan() || a < 0.0 || x < 0.0 {
        return nan;
    }
    if a == 0.0 {
        return if x > 0.0 { [1.0, 0.0] } else { nan };
    }
    if x == 0.0 {
        return [0.0, 1.0];
    }
    match (a.is_infinite(), x.is_infinite()) {
        (true, true) => return nan,
        (true, false) => return [0.0, 1.0],
        (false, true) => return [1.0, 0.0],
        _ => {}
    }
    if a > UNIFORM_FROM {
        return uniform_gamma(a, x);
    }
    let front = gamma_front(a, x);
    if x < a + 1.0 {
        // Series 8.7.1, with each term computed from the previous one.
        let (mut term, mut sum) = (1.0, 1.0);
        for n in 1..MAX_TERMS {
            term *= x / (a + f64::from(n));
            sum += term;
            if term < sum * (f64::EPSILON / 8.0) {
                break;
            }
        }
        let lower = front * sum;
        return [lower, 1.0 - lower];
    }
    // The continued fraction 8.9.2, evaluated forwards with Lentz's algorithm, which keeps
    // denominators away from zero.
    const TINY: f64 = 1e-300;
    let mut b = x + 1.0 - a;
    let (mut c, mut d) = (1.0 / TINY, 1.0 / b);
    let mut fraction = d;
    for n in 1..MAX_TERMS {
        let n = f64::from(n);
        let numerator = -n * (n - a);
        b += 2.0;
        let away = |x: f64| if x.abs() < TINY { TINY } else { x };
        d = 1.0 / away(numerator * d + b);
        c = away(b + numerator / c);
        fraction *= c * d;
        if (c * d - 1.0).abs() < f64::EPSILON {
            break;
        }
    }
    let upper = front * a * fraction;
    [1.0 - upper, upper]
}

/// `x^a e^-x / gamma(a + 1)`
fn gamma_front(a: f64, x: f64) -> f64 {
    if a < ASYMPTOTIC_FROM {
        return libm::exp(a * libm::log(x) - x - libm::lgamma(a + 1.0));
    }
    // The remainder of Stirling's series (5.11.1) after cancelling the logarithms, which are large
    // and nearly equal.
    let square = 1.0 / (a * a);
    let (mut power, mut series) = (1.0 / a, 0.0);
    for (k, bernoulli) in (1u8..).zip(BERNOULLI) {
        let k = f64::from(2 * k);
        series += bernoulli * power / (k * (k - 1.0));
        power *= square;
    }
    let mu = (x - a) / a;
    libm::exp(-a * minus_log1p(mu) - series) / libm::sqrt(2.0 * PI * a)
}

/// `mu - ln(1 + mu)`
fn minus_log1p(mu: f64) -> f64 {
    if mu.abs() > 0.1 {
        return mu - libm::log1p(mu);
    }
    let (mut power, mut sum) = (mu * mu, 0.0);
    for k in 2..18u8 {
        sum += power / f64::from(k);
        power *= -mu;
    }
    sum
}

/// The uniform expansion 8.12.3 and 8.12.4, of which one term suffices here.
fn uniform_gamma(a: f64, x: f64) -> [f64; 2] {
    let mu = (x - a) / a;
    let half = minus_log1p(mu);
    let eta = libm::sqrt(2.0 * half).copysign(mu);
    let first = if eta.abs() > 0.03 {
        1.0 / mu - 1.0 / eta
    } else {
        -1.0 / 3.0 + eta * (1.0 / 12.0 - eta * (2.0 / 135.0 - eta * (1.0 / 864.0)))
    };
    let rest = libm::exp(-a * half) / libm::sqrt(2.0 * PI * a) * first;
    let scaled = eta * libm::sqrt(0.5 * a);
    [0.5 * libm::erfc(-scaled) - rest, 0.5 * libm::erfc(scaled) + rest]
}
