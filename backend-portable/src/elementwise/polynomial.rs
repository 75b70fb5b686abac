//! Orthogonal polynomials of `x` and an order `n`, which is truncated to an integer. As in PyTorch,
//! negative orders yield zero.
//!
//! Evaluated by their recurrences (Digital Library of Mathematical Functions, 18.9) in the dtype of
//! the values, as in PyTorch. Between -1 and 1, Chebyshev polynomials are evaluated by their
//! trigonometric forms (18.5.1 to 18.5.4).

use super::{Real, TypeRule, by_compute, prepare};
use crate::map::{Two, map};
use crate::number::load;
use crate::table::kernels;
use torchlet_core::Param::{Out, Scalar, Tensor};
use torchlet_core::{Invoke, Kernel, KernelError, Sizes};

/// Maximum number of recurrence steps per call, about ten seconds.
const MAX_STEPS: f64 = (1u64 << 32) as f64;

/// Which elements are evaluated by recurrence, at a cost of one step per order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Steps {
    /// All elements.
    All,
    /// Elements with `x` outside -1..1; inside, the trigonometric form applies.
    Outside,
    /// Elements with `x` outside 0..1.
    ShiftedOutside,
    /// No elements, since high orders yield NaN without recurrence.
    Limited,
}

/// A kernel of a polynomial of tensors `x` and `n`. With `of number`, `x` is a scalar; with
/// `of order`, `n` is.
macro_rules! polynomial {
    ($name:literal, $steps:ident, $function:expr) => {
        polynomial!(@ $name, Tensor, Tensor, &[0, 1], &[], $steps, $function)
    };
    ($name:literal of number, $steps:ident, $function:expr) => {
        polynomial!(@ $name, Scalar, Tensor, &[1], &[0], $steps, $function)
    };
    ($name:literal of order, $steps:ident, $function:expr) => {
        polynomial!(@ $name, Tensor, Scalar, &[0], &[1], $steps, $function)
    };
    (
        @ $name:literal, $x:ident, $n:ident, $tensors:expr, $scalars:expr, $steps:ident,
        $function:expr
    ) => {
        Kernel::new($name, &[$x, $n, Out], |ctx| {
            fn invoke<C: Real>(ctx: &mut Invoke) -> Result<(), KernelError> {
                run::<C>(ctx, Steps::$steps, $function)
            }
            prepare(ctx, $tensors, $scalars, 2, TypeRule::Float, by_compute!(float invoke))
        })
    };
}

kernels! {
    /// `aten::special_chebyshev_polynomial_t.out(x, n, out)`: the Chebyshev polynomial of the first
    /// kind.
    SPECIAL_CHEBYSHEV_T_OUT =
        polynomial!("aten::special_chebyshev_polynomial_t.out", Outside, chebyshev_t);
    /// `aten::special_chebyshev_polynomial_t.x_scalar_out`: like [`SPECIAL_CHEBYSHEV_T_OUT`], with
    /// a scalar `x`.
    SPECIAL_CHEBYSHEV_T_X_SCALAR_OUT = polynomial!(
        "aten::special_chebyshev_polynomial_t.x_scalar_out" of number, Outside, chebyshev_t
    );
    /// `aten::special_chebyshev_polynomial_t.n_scalar_out`: like [`SPECIAL_CHEBYSHEV_T_OUT`], with
    /// a scalar `n`.
    SPECIAL_CHEBYSHEV_T_N_SCALAR_OUT = polynomial!(
        "aten::special_chebyshev_polynomial_t.n_scalar_out" of order, Outside, chebyshev_t
    );
    /// `aten::special_chebyshev_polynomial_u.out(x, n, out)`: the Chebyshev polynomial of the
    /// second kind.
    SPECIAL_CHEBYSHEV_U_OUT =
        polynomial!("aten::special_chebyshev_polynomial_u.out", Outside, chebyshev_u);
    /// `aten::special_chebyshev_polynomial_u.x_scalar_out`: like [`SPECIAL_CHEBYSHEV_U_OUT`], with
    /// a scalar `x`.
    SPECIAL_CHEBYSHEV_U_X_SCALAR_OUT = polynomial!(
        "aten::special_chebyshev_polynomial_u.x_scalar_out" of number, Outside, chebyshev_u
    );
    /// `aten::special_chebyshev_polynomial_u.n_scalar_out`: like [`SPECIAL_CHEBYSHEV_U_OUT`], with
    /// a scalar `n`.
    SPECIAL_CHEBYSHEV_U_N_SCALAR_OUT = polynomial!(
        "aten::special_chebyshev_polynomial_u.n_scalar_out" of order, Outside, chebyshev_u
    );
    /// `aten::special_chebyshev_polynomial_v.out(x, n, out)`: the Chebyshev polynomial of the third
    /// kind.
    SPECIAL_CHEBYSHEV_V_OUT =
        polynomial!("aten::special_chebyshev_polynomial_v.out", Outside, chebyshev_v);
    /// `aten::special_chebyshev_polynomial_v.x_scalar_out`: like [`SPECIAL_CHEBYSHEV_V_OUT`], with
    /// a scalar `x`.
    SPECIAL_CHEBYSHEV_V_X_SCALAR_OUT = polynomial!(
        "aten::special_chebyshev_polynomial_v.x_scalar_out" of number, Outside, chebyshev_v
    );
    /// `aten::special_chebyshev_polynomial_v.n_scalar_out`: like [`SPECIAL_CHEBYSHEV_V_OUT`], with
    /// a scalar `n`.
    SPECIAL_CHEBYSHEV_V_N_SCALAR_OUT = polynomial!(
        "aten::special_chebyshev_polynomial_v.n_scalar_out" of order, Outside, chebyshev_v
    );
    /// `aten::special_chebyshev_polynomial_w.out(x, n, out)`: the Chebyshev polynomial of the
    /// fourth kind.
    SPECIAL_CHEBYSHEV_W_OUT =
        polynomial!("aten::special_chebyshev_polynomial_w.out", Outside, chebyshev_w);
    /// `aten::special_chebyshev_polynomial_w.x_scalar_out`: like [`SPECIAL_CHEBYSHEV_W_OUT`], with
    /// a scalar `x`.
    SPECIAL_CHEBYSHEV_W_X_SCALAR_OUT = polynomial!(
        "aten::special_chebyshev_polynomial_w.x_scalar_out" of number, Outside, chebyshev_w
    );
    /// `aten::special_chebyshev_polynomial_w.n_scalar_out`: like [`SPECIAL_CHEBYSHEV_W_OUT`], with
    /// a scalar `n`.
    SPECIAL_CHEBYSHEV_W_N_SCALAR_OUT = polynomial!(
        "aten::special_chebyshev_polynomial_w.n_scalar_out" of order, Outside, chebyshev_w
    );
    /// `aten::special_shifted_chebyshev_polynomial_t.out(x, n, out)`: the first kind at `2x - 1`.
    SPECIAL_SHIFTED_CHEBYSHEV_T_OUT = polynomial!(
        "aten::special_shifted_chebyshev_polynomial_t.out", ShiftedOutside,
        |x, n| chebyshev_t(shifted(x), n)
    );
    /// `aten::special_shifted_chebyshev_polynomial_t.x_scalar_out`: like
    /// [`SPECIAL_SHIFTED_CHEBYSHEV_T_OUT`], with a scalar `x`.
    SPECIAL_SHIFTED_CHEBYSHEV_T_X_SCALAR_OUT = polynomial!(
        "aten::special_shifted_chebyshev_polynomial_t.x_scalar_out" of number, ShiftedOutside,
        |x, n| chebyshev_t(shifted(x), n)
    );
    /// `aten::special_shifted_chebyshev_polynomial_t.n_scalar_out`: like
    /// [`SPECIAL_SHIFTED_CHEBYSHEV_T_OUT`], with a scalar `n`.
    SPECIAL_SHIFTED_CHEBYSHEV_T_N_SCALAR_OUT = polynomial!(
        "aten::special_shifted_chebyshev_polynomial_t.n_scalar_out" of order, ShiftedOutside,
        |x, n| chebyshev_t(shifted(x), n)
    );
    /// `aten::special_shifted_chebyshev_polynomial_u.out(x, n, out)`: the second kind at `2x - 1`.
    SPECIAL_SHIFTED_CHEBYSHEV_U_OUT = polynomial!(
        "aten::special_shifted_chebyshev_polynomial_u.out", ShiftedOutside,
        |x, n| chebyshev_u(shifted(x), n)
    );
    /// `aten::special_shifted_chebyshev_polynomial_u.x_scalar_out`: like
    /// [`SPECIAL_SHIFTED_CHEBYSHEV_U_OUT`], with a scalar `x`.
    SPECIAL_SHIFTED_CHEBYSHEV_U_X_SCALAR_OUT = polynomial!(
        "aten::special_shifted_chebyshev_polynomial_u.x_scalar_out" of number, ShiftedOutside,
        |x, n| chebyshev_u(shifted(x), n)
    );
    /// `aten::special_shifted_chebyshev_polynomial_u.n_scalar_out`: like
    /// [`SPECIAL_SHIFTED_CHEBYSHEV_U_OUT`], with a scalar `n`.
    SPECIAL_SHIFTED_CHEBYSHEV_U_N_SCALAR_OUT = polynomial!(
        "aten::special_shifted_chebyshev_polynomial_u.n_scalar_out" of order, ShiftedOutside,
        |x, n| chebyshev_u(shifted(x), n)
    );
    /// `aten::special_shifted_chebyshev_polynomial_v.out(x, n, out)`: the third kind at `2x - 1`.
    SPECIAL_SHIFTED_CHEBYSHEV_V_OUT = polynomial!(
        "aten::special_shifted_chebyshev_polynomial_v.out", ShiftedOutside,
        |x, n| chebyshev_v(shifted(x), n)
    );
    /// `aten::special_shifted_chebyshev_polynomial_v.x_scalar_out`: like
    /// [`SPECIAL_SHIFTED_CHEBYSHEV_V_OUT`], with a scalar `x`.
    SPECIAL_SHIFTED_CHEBYSHEV_V_X_SCALAR_OUT = polynomial!(
        "aten::special_shifted_chebyshev_polynomial_v.x_scalar_out" of number, ShiftedOutside,
        |x, n| chebyshev_v(shifted(x), n)
    );
    /// `aten::special_shifted_chebyshev_polynomial_v.n_scalar_out`: like
    /// [`SPECIAL_SHIFTED_CHEBYSHEV_V_OUT`], with a scalar `n`.
    SPECIAL_SHIFTED_CHEBYSHEV_V_N_SCALAR_OUT = polynomial!(
        "aten::special_shifted_chebyshev_polynomial_v.n_scalar_out" of order, ShiftedOutside,
        |x, n| chebyshev_v(shifted(x), n)
    );
    /// `aten::special_shifted_chebyshev_polynomial_w.out(x, n, out)`: the fourth kind at `2x - 1`.
    SPECIAL_SHIFTED_CHEBYSHEV_W_OUT = polynomial!(
        "aten::special_shifted_chebyshev_polynomial_w.out", ShiftedOutside,
        |x, n| chebyshev_w(shifted(x), n)
    );
    /// `aten::special_shifted_chebyshev_polynomial_w.x_scalar_out`: like
    /// [`SPECIAL_SHIFTED_CHEBYSHEV_W_OUT`], with a scalar `x`.
    SPECIAL_SHIFTED_CHEBYSHEV_W_X_SCALAR_OUT = polynomial!(
        "aten::special_shifted_chebyshev_polynomial_w.x_scalar_out" of number, ShiftedOutside,
        |x, n| chebyshev_w(shifted(x), n)
    );
    /// `aten::special_shifted_chebyshev_polynomial_w.n_scalar_out`: like
    /// [`SPECIAL_SHIFTED_CHEBYSHEV_W_OUT`], with a scalar `n`.
    SPECIAL_SHIFTED_CHEBYSHEV_W_N_SCALAR_OUT = polynomial!(
        "aten::special_shifted_chebyshev_polynomial_w.n_scalar_out" of order, ShiftedOutside,
        |x, n| chebyshev_w(shifted(x), n)
    );
    /// `aten::special_hermite_polynomial_h.out(x, n, out)`: the physicists' Hermite polynomial.
    SPECIAL_HERMITE_H_OUT =
        polynomial!("aten::special_hermite_polynomial_h.out", Limited, hermite_h);
    /// `aten::special_hermite_polynomial_h.x_scalar_out`: like [`SPECIAL_HERMITE_H_OUT`], with a
    /// scalar `x`.
    SPECIAL_HERMITE_H_X_SCALAR_OUT = polynomial!(
        "aten::special_hermite_polynomial_h.x_scalar_out" of number, Limited,
        hermite_h
    );
    /// `aten::special_hermite_polynomial_h.n_scalar_out`: like [`SPECIAL_HERMITE_H_OUT`], with a
    /// scalar `n`.
    SPECIAL_HERMITE_H_N_SCALAR_OUT = polynomial!(
        "aten::special_hermite_polynomial_h.n_scalar_out" of order, Limited,
        hermite_h
    );
    /// `aten::special_hermite_polynomial_he.out(x, n, out)`: the probabilists' Hermite polynomial.
    SPECIAL_HERMITE_HE_OUT =
        polynomial!("aten::special_hermite_polynomial_he.out", Limited, hermite_he);
    /// `aten::special_hermite_polynomial_he.x_scalar_out`: like [`SPECIAL_HERMITE_HE_OUT`], with a
    /// scalar `x`.
    SPECIAL_HERMITE_HE_X_SCALAR_OUT = polynomial!(
        "aten::special_hermite_polynomial_he.x_scalar_out" of number, Limited,
        hermite_he
    );
    /// `aten::special_hermite_polynomial_he.n_scalar_out`: like [`SPECIAL_HERMITE_HE_OUT`], with a
    /// scalar `n`.
    SPECIAL_HERMITE_HE_N_SCALAR_OUT = polynomial!(
        "aten::special_hermite_polynomial_he.n_scalar_out" of order, Limited,
        hermite_he
    );
    /// `aten::special_laguerre_polynomial_l.out(x, n, out)`: the Laguerre polynomial.
    SPECIAL_LAGUERRE_OUT = polynomial!("aten::special_laguerre_polynomial_l.out", All, laguerre);
    /// `aten::special_laguerre_polynomial_l.x_scalar_out`: like [`SPECIAL_LAGUERRE_OUT`], with a
    /// scalar `x`.
    SPECIAL_LAGUERRE_X_SCALAR_OUT =
        polynomial!("aten::special_laguerre_polynomial_l.x_scalar_out" of number, All, laguerre);
    /// `aten::special_laguerre_polynomial_l.n_scalar_out`: like [`SPECIAL_LAGUERRE_OUT`], with a
    /// scalar `n`.
    SPECIAL_LAGUERRE_N_SCALAR_OUT =
        polynomial!("aten::special_laguerre_polynomial_l.n_scalar_out" of order, All, laguerre);
    /// `aten::special_legendre_polynomial_p.out(x, n, out)`: the Legendre polynomial.
    SPECIAL_LEGENDRE_OUT = polynomial!("aten::special_legendre_polynomial_p.out", All, legendre);
    /// `aten::special_legendre_polynomial_p.x_scalar_out`: like [`SPECIAL_LEGENDRE_OUT`], with a
    /// scalar `x`.
    SPECIAL_LEGENDRE_X_SCALAR_OUT =
        polynomial!("aten::special_legendre_polynomial_p.x_scalar_out" of number, All, legendre);
    /// `aten::special_legendre_polynomial_p.n_scalar_out`: like [`SPECIAL_LEGENDRE_OUT`], with a
    /// scalar `n`.
    SPECIAL_LEGENDRE_N_SCALAR_OUT =
        polynomial!("aten::special_legendre_polynomial_p.n_scalar_out" of order, All, legendre);
}

/// Computes argument 2 from arguments 0 and 1; either may be a scalar.
fn run<C: Real>(
    ctx: &mut Invoke,
    steps: Steps,
    function: fn(C, i64) -> C,
) -> Result<(), KernelError> {
    crate::types::expect::<C>()?;
    check_steps(ctx, steps)?;
    let of = move |x: C, n: C| function(x, n.to::<i64>());
    if let Ok(x) = ctx.scalar(0) {
        let x = C::of_scalar(x);
        return map(ctx, [1], 2, &move |n: C| of(x, n));
    }
    if let Ok(n) = ctx.scalar(1) {
        let n = C::of_scalar(n);
        return map(ctx, [0], 2, &move |x: C| of(x, n));
    }
    map(ctx, [0, 1], 2, &Two(of))
}

/// Rejects orders that would run for minutes, since files are untrusted.
fn check_steps(ctx: &Invoke, steps: Steps) -> Result<(), KernelError> {
    // Orders that do not fit in `i64` become `i64::MIN`, as in PyTorch on x86.
    let counts = |n: f64| n < -(i64::MIN as f64);
    let higher = |highest: f64, n: f64| if n > highest && counts(n) { n } else { highest };
    if fold(ctx, 1, 0.0, higher)? * outputs(ctx)? <= MAX_STEPS {
        return Ok(());
    }
    let lowest = match steps {
        Steps::Limited => return Ok(()),
        Steps::All => f64::INFINITY,
        Steps::Outside => -1.0,
        Steps::ShiftedOutside => 0.0,
    };
    let is_quick = |x: f64| x.is_nan() || (lowest..=1.0).contains(&x);
    if fold(ctx, 0, true, |quick, x| quick && is_quick(x))? {
        return Ok(());
    }
    Err(KernelError::argument(
        1,
        "polynomial orders: the elements require more than 2^32 recurrence steps in all",
    ))
}

/// Number of elements that `x` and `n` broadcast to.
fn outputs(ctx: &Invoke) -> Result<f64, KernelError> {
    let (mut longest, mut all) = (0, 1.0);
    let mut sizes: [Sizes; 2] = Default::default();
    for (arg, sizes) in sizes.iter_mut().enumerate() {
        if ctx.scalar(arg).is_err() {
            *sizes = ctx.tensor(arg)?.info().sizes.clone();
        }
        longest = longest.max(sizes.len());
    }
    for dim in 0..longest {
        let size = |sizes: &Sizes| sizes.iter().rev().nth(dim).copied().unwrap_or(1);
        all *= f64::from(sizes.iter().map(size).max().unwrap_or(1));
    }
    Ok(all)
}

/// Folds over the elements of a tensor argument, or over a scalar argument.
fn fold<A>(
    ctx: &Invoke,
    arg: usize,
    first: A,
    mut next: impl FnMut(A, f64) -> A,
) -> Result<A, KernelError> {
    if let Ok(number) = ctx.scalar(arg) {
        return Ok(next(first, number.to_f64()));
    }
    let tensor = ctx.tensor(arg)?;
    let (mut folded, mut block) = (first, [0.0f64; 64]);
    for from in (0..tensor.numel()).step_by(block.len()) {
        let block = &mut block[..(tensor.numel() - from).min(64)];
        load(tensor.scalar_type, tensor.bytes(), from as isize, 1, block);
        folded = block.iter().fold(folded, |folded, value| next(folded, *value));
    }
    Ok(folded)
}

/// Evaluates a polynomial of order `n` by recurrence, from the polynomials of order 0 and 1. `next`
/// computes order `k + 1` from `k`, order `k` and order `k - 1`.
fn recurrence<C: Real>(n: i64, first: C, second: C, next: impl Fn(C, C, C) -> C) -> C {
    if n < 0 {
        return C::default();
    }
    if n == 0 {
        return first;
    }
    let (mut before, mut at) = (first, second);
    let mut k = 1;
    while k < n && !at.is_nan() {
        (before, at) = (at, next(C::from_i64(k), at, before));
        k += 1;
    }
    at
}

/// `(-1)^n`
fn sign<C: Real>(n: i64) -> C {
    C::real(if n % 2 == 0 { 1.0 } else { -1.0 })
}

/// `2x - 1`
fn shifted<C: Real>(x: C) -> C {
    x + x - C::real(1.0)
}

/// Evaluates a Chebyshev polynomial: at 1 and -1 by its known values, for high orders between them
/// by its trigonometric form, otherwise by recurrence, with `second` as the polynomial of order 1.
fn chebyshev<C: Real>(
    (x, n): (C, i64),
    [right, left]: [C; 2],
    second: C,
    by_angle: impl Fn(C, C) -> C,
) -> C {
    let one = C::real(1.0);
    if n < 0 {
        return C::default();
    }
    if x.abs() == one {
        return if x > C::default() { right } else { left };
    }
    // For higher orders, the trigonometric form is faster and more accurate.
    if n > 8 && x.abs() < one {
        return by_angle(x.acos(), C::from_i64(n));
    }
    recurrence(n, one, second, |_, at, before| (x + x) * at - before)
}

fn chebyshev_t<C: Real>(x: C, n: i64) -> C {
    let ends = [C::real(1.0), sign(n)];
    chebyshev((x, n), ends, x, |angle, n| (n * angle).cos())
}

fn chebyshev_u<C: Real>(x: C, n: i64) -> C {
    let one = C::real(1.0);
    let end = C::from_i64(n.saturating_add(1));
    chebyshev((x, n), [end, end * sign(n)], x + x, |angle, n| {
        ((n + one) * angle).sin() / angle.sin()
    })
}

fn chebyshev_v<C: Real>(x: C, n: i64) -> C {
    let (one, half) = (C::real(1.0), C::real(0.5));
    let end = C::from_i64(n.saturating_mul(2).saturating_add(1));
    chebyshev((x, n), [one, end * sign(n)], x + x - one, |angle, n| {
        ((n + half) * angle).cos() / (angle * half).cos()
    })
}

fn chebyshev_w<C: Real>(x: C, n: i64) -> C {
    let (one, half) = (C::real(1.0), C::real(0.5));
    let end = C::from_i64(n.saturating_mul(2).saturating_add(1));
    chebyshev((x, n), [end, sign(n)], x + x + one, |angle, n| {
        ((n + half) * angle).sin() / (angle * half).sin()
    })
}

/// Maximum order of Hermite polynomials. Higher orders yield NaN, as in PyTorch, since their
/// coefficients overflow the type.
fn max_hermite_order<C: Real>() -> i64 {
    if C::SCALAR_TYPE == torchlet_core::ScalarType::Double { 512 } else { 128 }
}

fn hermite_h<C: Real>(x: C, n: i64) -> C {
    if n > max_hermite_order::<C>() {
        return C::real(f64::NAN);
    }
    recurrence(n, C::real(1.0), x + x, |k, at, before| (x + x) * at - (k + k) * before)
}

fn hermite_he<C: Real>(x: C, n: i64) -> C {
    if n > max_hermite_order::<C>() {
        return C::real(f64::NAN);
    }
    recurrence(n, C::real(1.0), x, |k, at, before| x * at - k * before)
}

fn laguerre<C: Real>(x: C, n: i64) -> C {
    let one = C::real(1.0);
    recurrence(n, one, one - x, |k, at, before| ((k + k + (one - x)) * at - k * before) / (k + one))
}

fn legendre<C: Real>(x: C, n: i64) -> C {
    let one = C::real(1.0);
    recurrence(n, one, x, |k, at, before| ((k + k + one) * x * at - k * before) / (k + one))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compares with the explicit forms.
    #[test]
    fn low_orders_match_explicit_forms() {
        let x = 0.3f64;
        let close = |found: f64, want: f64| assert!((found - want).abs() < 1e-12, "{found} {want}");
        close(chebyshev_t(x, 3), 4.0 * x.powi(3) - 3.0 * x);
        close(chebyshev_u(x, 3), 8.0 * x.powi(3) - 4.0 * x);
        close(chebyshev_v(x, 2), 4.0 * x * x - 2.0 * x - 1.0);
        close(chebyshev_w(x, 2), 4.0 * x * x + 2.0 * x - 1.0);
        close(hermite_h(x, 3), 8.0 * x.powi(3) - 12.0 * x);
        close(hermite_he(x, 3), x.powi(3) - 3.0 * x);
        close(laguerre(x, 2), (x * x - 4.0 * x + 2.0) / 2.0);
        close(legendre(x, 3), (5.0 * x.powi(3) - 3.0 * x) / 2.0);
        assert!(hermite_h(x, 513).is_nan());
        assert_eq!(legendre(x, -1), 0.0);
    }

    #[test]
    fn trigonometric_forms_match_recurrences() {
        for x in [-0.95f64, -0.4, 0.1, 0.77] {
            for n in 9..30 {
                let two = x + x;
                let by =
                    |second: f64| recurrence(n, 1.0, second, |_, at, before| two * at - before);
                for (found, want) in [
                    (chebyshev_t(x, n), by(x)),
                    (chebyshev_u(x, n), by(two)),
                    (chebyshev_v(x, n), by(two - 1.0)),
                    (chebyshev_w(x, n), by(two + 1.0)),
                ] {
                    assert!((found - want).abs() < 1e-9, "{x} {n}: {found} {want}");
                }
            }
        }
    }
}
