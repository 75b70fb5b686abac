//! Activation functions.

use super::{ByCompute, Real, TypeRule, binary, by_compute, prepare, unary, vector};
use crate::compute::functions::{Gelu, GeluTanh, Sigmoid, Silu};
use crate::map::{Function, map};
use crate::number::{Compute, round_through};
use crate::table::kernels;
use torchlet_core::Param::{OptionalFloat, OptionalString, Out, Scalar, Tensor};
use torchlet_core::{Invoke, Kernel, KernelError, ScalarType};

kernels! {
    /// `aten::relu.out(self, out)`: `max(self, 0)`; NaN propagates.
    RELU_OUT = unary!("aten::relu.out", Common, ordered Compute, |a: C| {
        if a < C::default() { C::default() } else { a }
    });
    /// `aten::sigmoid.out(self, out)`: `1 / (1 + e^-self)`.
    SIGMOID_OUT = unary!("aten::sigmoid.out", Float, float Real, C::sigmoid, vector Sigmoid);
    /// `aten::silu.out(self, out)`: `self * sigmoid(self)`.
    SILU_OUT = unary!("aten::silu.out", Float, float Real, |a: C| a * a.sigmoid(),
        vector Silu);
    /// `aten::silu_backward.grad_input(grad_output, self, grad_input)`: the gradient times the
    /// derivative of `silu` at `self`.
    SILU_BACKWARD_GRAD_INPUT =
        binary!("aten::silu_backward.grad_input", Float, float Real, |grad: C, a: C| {
            let (one, part) = (C::real(1.0), a.sigmoid());
            grad * part * (one + a * (one - part))
        });
    /// `aten::hardsigmoid.out(self, out)`: `clamp(self + 3, 0, 6) / 6`.
    HARDSIGMOID_OUT = unary!("aten::hardsigmoid.out", Common, float Real, |a: C| {
        limit(a + C::real(3.0), C::real(0.0), C::real(6.0)) / C::real(6.0)
    });
    /// `aten::hardswish.out(self, out)`: `self * clamp(self + 3, 0, 6) / 6`.
    HARDSWISH_OUT = unary!("aten::hardswish.out", Common, float Real, |a: C| {
        a * limit(a + C::real(3.0), C::real(0.0), C::real(6.0)) / C::real(6.0)
    });
    /// `aten::leaky_relu.out(self, negative_slope, out)`: `self`, multiplied by the slope if
    /// negative.
    LEAKY_RELU_OUT = Kernel::new("aten::leaky_relu.out", &[Tensor, Scalar, Out], |ctx| {
        prepare(ctx, &[0], &[], 2, TypeRule::Common, by_compute!(float leaky_relu))
    });
    /// `aten::elu.out(self, alpha, scale, input_scale, out)`: `scale * self`, or
    /// `scale * alpha * (e^(input_scale * self) - 1)` if `self` is negative.
    ELU_OUT = Kernel::new("aten::elu.out", &[Tensor, Scalar, Scalar, Scalar, Out], |ctx| {
        prepare(ctx, &[0], &[], 4, TypeRule::Common, by_compute!(float elu))
    });
    /// `aten::gelu.out(self, approximate, out)`: `self` times the cumulative normal distribution at
    /// `self`; exact, or for `approximate = "tanh"` with the tanh approximation.
    GELU_OUT = Kernel::new("aten::gelu.out", &[Tensor, OptionalString, Out], |ctx| {
        let functions = match ctx.optional_string(1)? {
            None | Some("none") => {
                ByCompute { f32: |ctx| vector(ctx, 2, Gelu), ..by_compute!(float gelu) }
            }
            Some("tanh") => {
 ByCompute { f32: |ctx| vector(ctx, 2, GeluTanh), ..by_compute!(float gelu_tanh) }
 }
            Some(_) => {
                return Err(KernelError::argument(1, "expected 'none' or 'tanh'"));
            }
        };
        prepare(ctx, &[0], &[], 2, TypeRule::Common, functions)
    });
    /// `aten::hardtanh.out(self, min_val, max_val, out)`: clamps to the range; NaN propagates.
    HARDTANH_OUT = Kernel::new("aten::hardtanh.out", &[Tensor, Scalar, Scalar, Out], |ctx| {
        prepare(ctx, &[0], &[], 3, TypeRule::Common, by_compute!(hardtanh))
    });
    /// `aten::softplus.out(self, beta, threshold, out)`: `log(1 + e^(beta * self)) / beta`, or
    /// `self` if `beta * self` exceeds the threshold.
    SOFTPLUS_OUT = Kernel::new("aten::softplus.out", &[Tensor, Scalar, Scalar, Out], |ctx| {
        prepare(ctx, &[0], &[], 3, TypeRule::Common, by_compute!(float softplus))
    });
    /// `aten::logit.out(self, eps, out)`: `log(self / (1 - self))`, with `self` clamped to
    /// `eps ..= 1 - eps` if `eps` is given.
    LOGIT_OUT = Kernel::new("aten::logit.out", &[Tensor, OptionalFloat, Out], |ctx| {
        prepare(ctx, &[0], &[], 2, TypeRule::Float, by_compute!(float logit))
    });
}

/// Clamps a value to a range; NaN propagates.
#[inline(always)]
pub(crate) fn limit<C: Compute>(a: C, low: C, high: C) -> C {
    let a = if a < low { low } else { a };
    if a > high { high } else { a }
}

fn leaky_relu<C: Real>(ctx: &mut Invoke) -> Result<(), KernelError> {
    crate::types::expect::<C>()?;
    let slope = C::of_scalar(ctx.scalar(1)?);
    map(ctx, [0], 2, &move |a: C| if a > C::default() { a } else { a * slope })
}

fn elu<C: Real>(ctx: &mut Invoke) -> Result<(), KernelError> {
    crate::types::expect::<C>()?;
    let alpha = C::of_scalar(ctx.scalar(1)?);
    let scale = C::of_scalar(ctx.scalar(2)?);
    let input_scale = C::of_scalar(ctx.scalar(3)?);
    let negative = alpha * scale;
    map(ctx, [0], 4, &move |a: C| {
        if a < C::default() { (a * input_scale).exp_m1() * negative } else { a * scale }
    })
}

fn gelu<C: Real>(ctx: &mut Invoke) -> Result<(), KernelError> {
    crate::types::expect::<C>()?;
    let (half, one) = (C::real(0.5), C::real(1.0));
    let factor = C::real(core::f64::consts::FRAC_1_SQRT_2);
    map(ctx, [0], 2, &move |a: C| a * half * (one + (a * factor).erf()))
}

fn gelu_tanh<C: Real>(ctx: &mut Invoke) -> Result<(), KernelError> {
    crate::types::expect::<C>()?;
    let (half, one) = (C::real(0.5), C::real(1.0));
    // sqrt(2 / pi)
    let factor = C::real(core::f64::consts::FRAC_2_SQRT_PI * core::f64::consts::FRAC_1_SQRT_2);
    let cubic = C::real(0.044_715);
    map(ctx, [0], 2, &move |a: C| a * half * (one + (factor * (a + cubic * a * a * a)).tanh()))
}

fn hardtanh<C: Compute>(ctx: &mut Invoke) -> Result<(), KernelError> {
    crate::types::expect::<C>()?;
    let (low, high) = (C::of_scalar(ctx.scalar(1)?), C::of_scalar(ctx.scalar(2)?));
    map(ctx, [0], 3, &move |a: C| limit(a, low, high))
}

fn softplus<C: Real>(ctx: &mut Invoke) -> Result<(), KernelError> {
    crate::types::expect::<C>()?;
    let (beta, threshold) = (C::of_scalar(ctx.scalar(1)?), C::of_scalar(ctx.scalar(2)?));
    map(ctx, [0], 3, &move |a: C| {
        let scaled = a * beta;
        if scaled > threshold { a } else { scaled.exp().ln_1p() / beta }
    })
}

fn logit<C: Real>(ctx: &mut Invoke) -> Result<(), KernelError> {
    crate::types::expect::<C>()?;
    let narrow = ctx.info(0)?.scalar_type;
    let narrow = (narrow.is_floating() && narrow != C::SCALAR_TYPE).then_some(narrow);
    let bounds = ctx.optional_float(1)?.map(|eps| (C::real(eps), C::real(1.0) - C::real(eps)));
    map(ctx, [0], 2, &Logit { bounds, narrow })
}

/// The logit function. For half and bfloat16, each step is rounded, as in PyTorch.
struct Logit<C> {
    bounds: Option<(C, C)>,
    narrow: Option<ScalarType>,
}

impl<C: Real> Function<1, C> for Logit<C> {
    fn apply(&self, [a]: [&[C]; 1], out: &mut [C]) {
        let one = C::real(1.0);
        let bounded = |a: C| self.bounds.map_or(a, |(low, high)| limit(a, low, high));
        let round = |values: &mut [C]| {
            if let Some(narrow) = self.narrow {
                round_through(narrow, values);
            }
        };
        for (out, &a) in out.iter_mut().zip(a) {
            let mut step = [bounded(a)];
            round(&mut step);
            let a = step[0];
            step = [one - a];
            round(&mut step);
            step = [a / step[0]];
            round(&mut step);
            *out = step[0].ln();
        }
    }
}
