//! Complex arithmetic. Operators that also support real tensors call [`prepare`] first.

use super::Real;
use crate::compute::split::{chunk_len, for_each_chunk_mut};
use crate::number::{load, store, unsupported};
use crate::table::kernels;
use crate::types;
use crate::walk::Walk;
use torchlet_core::Param::{Out, Tensor};
use torchlet_core::rules::broadcast_all;
use torchlet_core::{
    Invoke, InvokeFn, Kernel, KernelError, Plan, Prepare, ScalarType, TensorInfo, TensorRef,
};

kernels! {
    /// `aten::polar.out(abs, angle, out)`: complex values of the given magnitudes and angles.
    POLAR_OUT = Kernel::new("aten::polar.out", &[Tensor, Tensor, Out], |ctx| {
        fn run<C: Real>(ctx: &mut Invoke) -> Result<(), KernelError> {
            map::<C, 2>(ctx, [0, 1], 2, &|[[abs, _], [angle, _]]| {
                [abs * angle.cos(), abs * angle.sin()]
            })
        }
        for arg in [0, 1] {
            let found = ctx.info(arg)?.scalar_type;
            let is_real = [ScalarType::Float, ScalarType::Double].contains(&found);
            if !is_real || found != ctx.info(0)?.scalar_type {
                return Err(unsupported(arg, found));
            }
        }
        let found = ctx.info(2)?.scalar_type;
        if part(found) != Some(ctx.info(0)?.scalar_type) {
            return Err(unsupported(2, found));
        }
        prepare(ctx, &[0, 1], 2, ResultKind::Complex, by_part!(run))
            .unwrap_or(Err(unsupported(2, found)))
    });
    /// `aten::angle.out(self, out)`: the angle of complex values; for real values, pi if negative,
    /// else 0.
    ANGLE_OUT = Kernel::new("aten::angle.out", &[Tensor, Out], |ctx| {
        fn run<C: Real>(ctx: &mut Invoke) -> Result<(), KernelError> {
            let real = !is_complex(ctx.info(0)?.scalar_type);
            map::<C, 1>(ctx, [0], 1, &move |[[re, im]]| {
                let angle = match real {
                    true if re.is_nan() => re,
                    true if re < C::default() => C::real(core::f64::consts::PI),
                    true => C::default(),
                    false => im.atan2(re),
                };
                [angle, C::default()]
            })
        }
        let (from, to) = (ctx.info(0)?, ctx.info(1)?);
        if let Some(plan) = prepare(ctx, &[0], 1, ResultKind::Real, by_part!(run)) {
            return plan;
        }
        let differs = from.scalar_type.is_floating() && from.scalar_type != to.scalar_type;
        if !to.scalar_type.is_floating() || differs {
            return Err(unsupported(1, to.scalar_type));
        }
        crate::number::number_type(0, from.scalar_type)?;
        ctx.resize(1, &from.sizes)?;
        Ok(Plan::new(if to.scalar_type == ScalarType::Double { run::<f64> } else { run::<f32> }))
    });
}

/// A complex value: real and imaginary part.
pub(crate) type Complex<C> = [C; 2];

/// Number of values that are converted at a time, to a buffer on the stack.
const BLOCK: usize = 64;
/// Minimum number of elements per thread.
const GRAIN: usize = 8 * 1024;

/// Whether an element type is complex.
pub(crate) fn is_complex(scalar_type: ScalarType) -> bool {
    part(scalar_type).is_some()
}

/// The dtype of the real and imaginary parts of a complex dtype.
pub(crate) fn part(scalar_type: ScalarType) -> Option<ScalarType> {
    match scalar_type {
        ScalarType::ComplexHalf => Some(ScalarType::Half),
        ScalarType::ComplexFloat => Some(ScalarType::Float),
        ScalarType::ComplexDouble => Some(ScalarType::Double),
        _ => None,
    }
}

/// Invoke functions for complex numbers with parts in `f32`, and in `f64`.
pub(crate) type ByPart = [InvokeFn; 2];

/// Instantiates a generic invoke function as [`ByPart`].
macro_rules! by_part {
    ($function:ident) => {
        [$function::<f32>, $function::<f64>]
    };
}
pub(crate) use by_part;

/// Kind of result of a complex function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ResultKind {
    Complex,
    Real,
    Bool,
}

/// Returns a plan if any of the tensors `inputs` or the output is complex. Otherwise returns
/// `None`, and the caller prepares the operator for real tensors.
pub(crate) fn prepare(
    ctx: &mut Prepare,
    inputs: &[usize],
    out: usize,
    kind: ResultKind,
    functions: ByPart,
) -> Option<Result<Plan, KernelError>> {
    let mut infos: heapless::Vec<TensorInfo, 3> = heapless::Vec::new();
    for arg in inputs {
        infos.push(ctx.info(*arg).ok()?).ok()?;
    }
    let found = ctx.info(out).ok()?.scalar_type;
    let some = infos.iter().any(|info| is_complex(info.scalar_type));
    (some || is_complex(found)).then(|| plan(ctx, &infos, inputs, out, kind, functions))
}

fn plan(
    ctx: &mut Prepare,
    infos: &[TensorInfo],
    inputs: &[usize],
    out: usize,
    kind: ResultKind,
    [single, double]: ByPart,
) -> Result<Plan, KernelError> {
    let found = ctx.info(out)?.scalar_type;
    // Zero-dim tensors do not promote the part type of the others.
    let is_double = |info: &TensorInfo| {
        (part(info.scalar_type).unwrap_or(info.scalar_type) == ScalarType::Double)
            && (info.rank() > 0 || infos.iter().all(|info| info.rank() == 0))
    };
    let doubles = infos.iter().any(is_double);
    for (arg, info) in inputs.iter().zip(infos) {
        if !is_complex(info.scalar_type) {
            crate::number::number_type(*arg, info.scalar_type)?;
        }
    }
    let of_out = match kind {
        ResultKind::Complex => part(found),
        ResultKind::Real => found.is_floating().then_some(found),
        ResultKind::Bool => (found == ScalarType::Bool).then_some(found),
    };
    let of_out = of_out.ok_or(unsupported(out, found))?;
    if doubles && kind != ResultKind::Bool && of_out != ScalarType::Double {
        return Err(unsupported(out, found));
    }
    let sizes = broadcast_all(infos.iter().map(|info| info.sizes.as_slice()));
    let what = "input shapes do not broadcast";
    ctx.resize(out, &sizes.ok_or(KernelError::argument(out, what))?)?;
    let in_doubles = (doubles || of_out == ScalarType::Double) && types::computes::<f64>();
    Ok(Plan::new(if in_doubles { double } else { single }))
}

/// Computes `out` from complex values. Real inputs get a zero imaginary part; real outputs get the
/// real part.
pub(crate) fn map<C: Real, const N: usize>(
    ctx: &mut Invoke,
    inputs: [usize; N],
    out: usize,
    function: &(dyn Fn([Complex<C>; N]) -> Complex<C> + Sync),
) -> Result<(), KernelError> {
    types::expect::<C>()?;
    let mut tensors: heapless::Vec<TensorRef, N> = heapless::Vec::new();
    for arg in inputs {
        // The capacity is N.
        let _ = tensors.push(ctx.tensor(arg)?);
    }
    let Ok(tensors) = tensors.into_array::<N>() else {
        return Err(KernelError::access(out));
    };
    let parallel = ctx.parallel();
    let out = ctx.out(out)?;
    let info = out.info().clone();
    let walk = Walk::<N>::broadcast(&info, core::array::from_fn(|i| tensors[i].info()))?;
    let size = info.scalar_type.size();
    let chunk = chunk_len(parallel, walk.numel(), GRAIN);
    let bytes = out.into_bytes();
    for_each_chunk_mut(parallel, bytes, chunk.saturating_mul(size), &|index, bytes: &mut [u8]| {
        let from = index * chunk;
        let steps = walk.inner_steps();
        walk.for_each_run(from, from + bytes.len() / size, &mut |start, inputs, len| {
            for done in (0..len).step_by(BLOCK) {
                let count = BLOCK.min(len - done);
                let mut values = [[[C::default(); 2]; BLOCK]; N];
                for (i, (values, tensor)) in values.iter_mut().zip(&tensors).enumerate() {
                    let at = inputs[i].wrapping_add(steps[i].wrapping_mul(done as isize));
                    read(tensor, at, steps[i], &mut values[..count]);
                }
                let mut results = [[C::default(); 2]; BLOCK];
                for (lane, result) in results.iter_mut().take(count).enumerate() {
                    *result = function(core::array::from_fn(|i| values[i][lane]));
                }
                let target = (start - from + done) * size;
                let target = bytes.get_mut(target..target + count * size).unwrap_or_default();
                write(info.scalar_type, target, &results[..count]);
            }
        });
    });
    Ok(())
}

/// Loads elements from position `at` on, with stride `step`.
pub(crate) fn read<C: Real>(tensor: &TensorRef, at: isize, step: isize, out: &mut [Complex<C>]) {
    let mut block = [C::default(); BLOCK];
    let mut at = at;
    for out in out.chunks_mut(BLOCK) {
        let block = &mut block[..out.len()];
        match part(tensor.scalar_type) {
            Some(part) => {
                for side in 0..2 {
                    let first = at.wrapping_mul(2).wrapping_add(side as isize);
                    load(part, tensor.bytes(), first, step.wrapping_mul(2), block);
                    out.iter_mut().zip(&*block).for_each(|(out, x)| out[side] = *x);
                }
            }
            None => {
                load(tensor.scalar_type, tensor.bytes(), at, step, block);
                out.iter_mut().zip(&*block).for_each(|(out, x)| *out = [*x, C::default()]);
            }
        }
        at = at.wrapping_add(step.wrapping_mul(block.len() as isize));
    }
}

/// Stores elements; for a real type, the real parts.
pub(crate) fn write<C: Real>(scalar_type: ScalarType, bytes: &mut [u8], values: &[Complex<C>]) {
    match part(scalar_type) {
        Some(part) => store(part, bytes, values.as_flattened()),
        None => {
            let mut block = [C::default(); BLOCK];
            let size = scalar_type.size();
            for (values, bytes) in values.chunks(BLOCK).zip(bytes.chunks_mut(BLOCK * size)) {
                let block = &mut block[..values.len()];
                block.iter_mut().zip(values).for_each(|(slot, value)| *slot = value[0]);
                store(scalar_type, bytes, block);
            }
        }
    }
}

/// `a * b`
#[inline(always)]
pub(crate) fn multiply<C: Real>([a, b]: Complex<C>, [c, d]: Complex<C>) -> Complex<C> {
    [a * c - b * d, a * d + b * c]
}

/// `sqrt(a^2 + b^2)` without intermediate overflow.
#[inline(always)]
pub(crate) fn hypot<C: Real>(a: C, b: C) -> C {
    let (a, b) = (a.abs(), b.abs());
    let infinity = C::real(f64::INFINITY);
    if a == infinity || b == infinity {
        return infinity;
    }
    let (large, small) = if a > b { (a, b) } else { (b, a) };
    if large == C::default() || large.is_nan() || small.is_nan() {
        return large + small;
    }
    let ratio = small / large;
    large * (C::real(1.0) + ratio * ratio).sqrt()
}

/// `a / b`, scaled to avoid intermediate overflow.
#[inline(always)]
fn divide<C: Real>([a, b]: Complex<C>, [c, d]: Complex<C>) -> Complex<C> {
    let zero = C::default();
    if c.abs() >= d.abs() {
        if c == zero && d == zero {
            return [a / c.abs(), b / d.abs()];
        }
        let ratio = d / c;
        let scale = C::real(1.0) / (c + d * ratio);
        return [(a + b * ratio) * scale, (b - a * ratio) * scale];
    }
    let ratio = c / d;
    let scale = C::real(1.0) / (c * ratio + d);
    [(a * ratio + b) * scale, (b * ratio - a) * scale]
}

/// Computes `out` from tensor 0 and argument 1, a tensor or, with `SCALAR`, a scalar.
fn with_other<C: Real, const SCALAR: bool>(
    ctx: &mut Invoke,
    out: usize,
    function: impl Fn(Complex<C>, Complex<C>) -> Complex<C> + Sync,
) -> Result<(), KernelError> {
    if SCALAR {
        let other = [C::of_scalar(ctx.scalar(1)?), C::default()];
        return map::<C, 1>(ctx, [0], out, &move |[a]| function(a, other));
    }
    map::<C, 2>(ctx, [0, 1], out, &move |[a, b]| function(a, b))
}

/// `self + sign * alpha * other`, with `alpha` as argument 2.
fn sum<C: Real, const SCALAR: bool>(ctx: &mut Invoke, sign: f64) -> Result<(), KernelError> {
    let alpha = C::of_scalar(ctx.scalar(2)?) * C::real(sign);
    with_other::<C, SCALAR>(ctx, 3, move |[a, b], [c, d]| [a + alpha * c, b + alpha * d])
}

pub(super) fn add<C: Real, const SCALAR: bool>(ctx: &mut Invoke) -> Result<(), KernelError> {
    sum::<C, SCALAR>(ctx, 1.0)
}

pub(super) fn sub<C: Real, const SCALAR: bool>(ctx: &mut Invoke) -> Result<(), KernelError> {
    sum::<C, SCALAR>(ctx, -1.0)
}

pub(super) fn mul<C: Real, const SCALAR: bool>(ctx: &mut Invoke) -> Result<(), KernelError> {
    with_other::<C, SCALAR>(ctx, 2, multiply)
}

pub(super) fn div<C: Real, const SCALAR: bool>(ctx: &mut Invoke) -> Result<(), KernelError> {
    with_other::<C, SCALAR>(ctx, 2, divide)
}

pub(super) fn abs<C: Real>(ctx: &mut Invoke) -> Result<(), KernelError> {
    map::<C, 1>(ctx, [0], 1, &|[[a, b]]| [hypot(a, b), C::default()])
}

pub(super) fn neg<C: Real>(ctx: &mut Invoke) -> Result<(), KernelError> {
    map::<C, 1>(ctx, [0], 1, &|[[a, b]]| [-a, -b])
}

pub(super) fn reciprocal<C: Real>(ctx: &mut Invoke) -> Result<(), KernelError> {
    map::<C, 1>(ctx, [0], 1, &|[a]| divide([C::real(1.0), C::default()], a))
}

pub(super) fn exp<C: Real>(ctx: &mut Invoke) -> Result<(), KernelError> {
    map::<C, 1>(ctx, [0], 1, &|[[a, b]]| {
        let magnitude = a.exp();
        if b == C::default() { [magnitude, b] } else { [magnitude * b.cos(), magnitude * b.sin()] }
    })
}

pub(super) fn sqrt<C: Real>(ctx: &mut Invoke) -> Result<(), KernelError> {
    map::<C, 1>(ctx, [0], 1, &|[a]| principal_sqrt(a))
}

pub(super) fn ln<C: Real>(ctx: &mut Invoke) -> Result<(), KernelError> {
    map::<C, 1>(ctx, [0], 1, &|[[a, b]]| [ln_hypot(a, b), b.atan2(a)])
}

/// The principal square root, whose real part is not negative.
fn principal_sqrt<C: Real>([a, b]: Complex<C>) -> Complex<C> {
    let zero = C::default();
    if a == zero && b == zero {
        return [zero, b];
    }
    if b.abs() == C::real(f64::INFINITY) {
        return [b.abs(), b];
    }
    // Scales the operands by a power of four, so that subnormal values become normal and the sum of
    // the largest values stays finite.
    let is_small = a.abs() < C::real(1.0) && b.abs() < C::real(1.0);
    let (scale, back) = match is_small {
        true => (C::real((1u64 << 53) as f64), C::real(1.0 / (1u64 << 27) as f64)),
        false => (C::real(0.125), C::real(2.0)),
    };
    let root = (hypot(a * scale, b * scale) + a.abs() * scale).sqrt() * back;
    let other = b / root * C::real(0.5);
    if a < zero { [other.abs(), root.copysign(b)] } else { [root, other] }
}

/// `ln(sqrt(a^2 + b^2))`, where the square root itself may overflow.
fn ln_hypot<C: Real>(a: C, b: C) -> C {
    let (one, half) = (C::real(1.0), C::real(0.5));
    let (a, b) = (a.abs(), b.abs());
    let infinity = C::real(f64::INFINITY);
    if a == infinity || b == infinity {
        return infinity;
    }
    let (large, small) = if a > b { (a, b) } else { (b, a) };
    if large.is_nan() || small.is_nan() {
        return large + small;
    }
    if large == C::default() {
        return large.ln();
    }
    if large > half && large < C::real(2.0) {
        // Near a magnitude of 1, the two logarithms would cancel.
        return half * ((large - one) * (large + one) + small * small).ln_1p();
    }
    let ratio = small / large;
    large.ln() + half * (ratio * ratio).ln_1p()
}

/// Argument 1 where argument 0 is true, else argument 2.
pub(super) fn choose<C: Real>(ctx: &mut Invoke) -> Result<(), KernelError> {
    map::<C, 3>(ctx, [0, 1, 2], 3, &|[condition, a, b]| {
        if condition[0] != C::default() { a } else { b }
    })
}

/// Whether two complex values are equal; with `NOT`, whether they differ.
pub(super) fn equal<C: Real, const SCALAR: bool, const NOT: bool>(
    ctx: &mut Invoke,
) -> Result<(), KernelError> {
    with_other::<C, SCALAR>(ctx, 2, |a, b| [C::of_bool((a == b) != NOT), C::default()])
}

/// A kernel that also supports complex tensors:
/// `with_complex!(real kernel, inputs, out, result kind, function)`. Functions with a scalar
/// operand have an additional const parameter.
macro_rules! with_complex {
    (
        $kernel:expr, $inputs:expr, $out:literal, $kind:ident,
        $function:ident $(::<$($flag:literal),+>)?
    ) => {{
        const REAL: torchlet_core::Kernel = $kernel;
        torchlet_core::Kernel::new(REAL.name, REAL.params, |ctx| {
            use $crate::elementwise::complex;
            let functions: complex::ByPart = [
                complex::$function::<f32 $($(, $flag)+)?>,
                complex::$function::<f64 $($(, $flag)+)?>,
            ];
            match complex::prepare(ctx, $inputs, $out, complex::ResultKind::$kind, functions) {
                Some(plan) => plan,
                None => (REAL.prepare)(ctx),
            }
        })
    }};
}
pub(crate) use with_complex;

#[cfg(test)]
#[allow(clippy::approx_constant, reason = "values as printed by PyTorch")]
mod tests {
    use super::*;

    /// Whether two values are equal up to their last bits. Zeros must also agree in sign.
    fn near<C: Real>(found: C, expected: f64, epsilon: f64) -> bool {
        let found = found.to_f64();
        if expected == 0.0 {
            return found == 0.0 && found.is_sign_negative() == expected.is_sign_negative();
        }
        found == expected
            || found.is_nan() && expected.is_nan()
            || (found - expected).abs() <= 4.0 * epsilon * expected.abs()
    }

    fn check<C: Real>(cases: &[[f64; 6]], epsilon: f64) {
        for [a, b, roots @ .., ln_re, ln_im] in cases {
            let [x, y] = [C::real(*a), C::real(*b)];
            let found = principal_sqrt([x, y]);
            let expected: [f64; 2] = *roots;
            assert!(
                near(found[0], expected[0], epsilon) && near(found[1], expected[1], epsilon),
                "sqrt({a}, {b}): {found:?} {expected:?}"
            );
            let found = [ln_hypot(x, y), y.atan2(x)];
            assert!(
                near(found[0], *ln_re, epsilon) && near(found[1], *ln_im, epsilon),
                "log({a}, {b}): {found:?} {ln_re} {ln_im}"
            );
        }
    }

    /// `torch.sqrt` and `torch.log` at the range limits of `complex64`, PyTorch 2.15 on x86-64.
    #[test]
    fn complex64_sqrt_and_log_cover_the_full_range() {
        #[rustfmt::skip]
        let cases = [
            [1.401298464324817e-45, 0.0, 3.743392066509216e-23, 0.0, -103.2789306640625, 0.0],
            [0.0, 1.401298464324817e-45, 2.6469779601696886e-23, 2.6469779601696886e-23,
             -103.2789306640625, 1.5707963705062866],
            [1.401298464324817e-45, 1.401298464324817e-45, 4.112805531004629e-23,
             1.7035798347046047e-23, -102.93235778808594, 0.7853981852531433],
            [-1.401298464324817e-45, 0.0, 0.0, 3.743392066509216e-23, -103.2789306640625,
             3.1415927410125732],
            [-1.401298464324817e-45, -0.0, 0.0, -3.743392066509216e-23, -103.2789306640625,
             -3.1415927410125732],
            [-1.401298464324817e-45, 1.401298464324817e-45, 1.7035798347046047e-23,
             4.112805531004629e-23, -102.93235778808594, 2.356194496154785],
            [0.0, -1.401298464324817e-45, 2.6469779601696886e-23, -2.6469779601696886e-23,
             -103.2789306640625, -1.5707963705062866],
            [1.1754943508222875e-38, 1.1754943508222875e-38, 1.1911957875207365e-19,
             4.9340939029050234e-20, -86.98997497558594, 0.7853981852531433],
            [-1.1754943508222875e-38, 3.5264830524668625e-38, 1.1273298186603708e-19,
             1.5640866104611393e-19, -86.18524932861328, 1.8925468921661377],
            [3.4028234663852886e+38, 3.4028234663852886e+38, 2.026714390316712e+19,
             8.394925759453463e+18, 89.06941223144531, 0.7853981852531433],
            [-3.4028234663852886e+38, 3.4028234663852886e+38, 8.394925759453463e+18,
             2.026714390316712e+19, 89.06941223144531, 2.356194496154785],
            [-3.4028234663852886e+38, -3.4028234663852886e+38, 8.394925759453463e+18,
             -2.026714390316712e+19, 89.06941223144531, -2.356194496154785],
            [3.4028234663852886e+38, 0.0, 1.8446742974197924e+19, 0.0, 88.72283935546875, 0.0],
            [0.0, 3.4028234663852886e+38, 1.3043817602097349e+19, 1.3043817602097349e+19,
             88.72283935546875, 1.5707963705062866],
            [3.4028234663852886e+38, 1.401298464324817e-45, 1.8446742974197924e+19, 0.0,
             88.72283935546875, 0.0],
            [1.401298464324817e-45, 3.4028234663852886e+38, 1.3043817602097349e+19,
             1.3043817602097349e+19, 88.72283935546875, 1.5707963705062866],
            [1.0, 8.407790785948902e-45, 1.0, 4.203895392974451e-45, 0.0, 8.407790785948902e-45],
            [1.0, 1.401298464324817e-45, 1.0, 0.0, 0.0, 1.401298464324817e-45],
            [-1.0, 1.401298464324817e-45, 0.0, 1.0, 0.0, 3.1415927410125732],
            [1.0, 0.0010000000474974513, 1.0000001192092896, 0.0004999999655410647,
             4.999998282073648e-07, 0.0009999996982514858],
            [3.0, 4.0, 2.0, 1.0, 1.6094379425048828, 0.9272952079772949],
            [-3.0, -4.0, 1.0, -2.0, 1.6094379425048828, -2.2142975330352783],
            [-4.0, -0.0, 0.0, -2.0, 1.3862943649291992, -3.1415927410125732],
            [0.0, -0.0, 0.0, -0.0, f64::NEG_INFINITY, -0.0],
            [-0.0, 0.0, 0.0, 0.0, f64::NEG_INFINITY, 3.1415927410125732],
            [f64::INFINITY, f64::NAN, f64::INFINITY, f64::NAN, f64::INFINITY, f64::NAN],
            [f64::NAN, f64::INFINITY, f64::INFINITY, f64::INFINITY, f64::INFINITY, f64::NAN],
            [f64::NEG_INFINITY, f64::NAN, f64::NAN, f64::INFINITY, f64::INFINITY, f64::NAN],
            [f64::NEG_INFINITY, 1.0, 0.0, f64::INFINITY, f64::INFINITY, 3.1415927410125732],
            [f64::NEG_INFINITY, f64::NEG_INFINITY, f64::INFINITY, f64::NEG_INFINITY, f64::INFINITY,
             -2.356194496154785],
            [f64::INFINITY, -1.0, f64::INFINITY, -0.0, f64::INFINITY, -0.0],
            [f64::NAN, 0.0, f64::NAN, f64::NAN, f64::NAN, f64::NAN],
            [1.0, f64::NAN, f64::NAN, f64::NAN, f64::NAN, f64::NAN],
        ];
        check::<f32>(&cases, f64::from(f32::EPSILON));
    }

    /// The same for `complex128`.
    #[test]
    fn complex128_sqrt_and_log_cover_the_full_range() {
        #[rustfmt::skip]
        let cases = [
            [5e-324, 0.0, 2.2227587494850775e-162, 0.0, -744.4400719213813, 0.0],
            [0.0, 5e-324, 1.5717277847026288e-162, 1.5717277847026288e-162, -744.4400719213813,
             1.5707963267948966],
            [5e-324, 5e-324, 2.4421097261308304e-162, 1.0115549693666347e-162, -744.0934983311014,
             0.7853981633974483],
            [-5e-324, 0.0, 0.0, 2.2227587494850775e-162, -744.4400719213813, 3.141592653589793],
            [-5e-324, -0.0, 0.0, -2.2227587494850775e-162, -744.4400719213813, -3.141592653589793],
            [-5e-324, 5e-324, 1.0115549693666347e-162, 2.4421097261308304e-162, -744.0934983311014,
             2.356194490192345],
            [0.0, -5e-324, 1.5717277847026288e-162, -1.5717277847026288e-162, -744.4400719213813,
             -1.5707963267948966],
            [2.2250738585072014e-308, 2.2250738585072014e-308, 1.6388720948399114e-154,
             6.7884304867749655e-155, -708.0498449419841, 0.7853981633974483],
            [-2.2250738585072014e-308, 6.675221575521604e-308, 1.5510041096777885e-154,
             2.151903252180402e-154, -707.2451259857671, 1.892546881191539],
            [1.7976931348623157e+308, 1.7976931348623157e+308, 1.4730945569055655e+154,
             6.101757441282702e+153, 710.1292864836639, 0.7853981633974483],
            [-1.7976931348623157e+308, 1.7976931348623157e+308, 6.101757441282702e+153,
             1.4730945569055655e+154, 710.1292864836639, 2.356194490192345],
            [-1.7976931348623157e+308, -1.7976931348623157e+308, 6.101757441282702e+153,
             -1.4730945569055655e+154, 710.1292864836639, -2.356194490192345],
            [1.7976931348623157e+308, 0.0, 1.3407807929942596e+154, 0.0, 709.782712893384, 0.0],
            [0.0, 1.7976931348623157e+308, 9.480751908109176e+153, 9.480751908109176e+153,
             709.782712893384, 1.5707963267948966],
            [1.7976931348623157e+308, 5e-324, 1.3407807929942596e+154, 0.0, 709.782712893384, 0.0],
            [5e-324, 1.7976931348623157e+308, 9.480751908109176e+153, 9.480751908109176e+153,
             709.782712893384, 1.5707963267948966],
            [1.0, 3e-323, 1.0, 1.5e-323, 0.0, 3e-323],
            [1.0, 5e-324, 1.0, 0.0, 0.0, 5e-324],
            [-1.0, 5e-324, 0.0, 1.0, 0.0, 3.141592653589793],
            [1.0, 0.001, 1.000000124999961, 0.0004999999375000273, 4.999997500001667e-07,
             0.0009999996666668668],
            [3.0, 4.0, 2.0, 1.0, 1.6094379124341003, 0.9272952180016122],
            [-3.0, -4.0, 1.0, -2.0, 1.6094379124341003, -2.214297435588181],
            [-4.0, -0.0, 0.0, -2.0, 1.3862943611198906, -3.141592653589793],
        ];
        check::<f64>(&cases, f64::EPSILON);
    }
}
