//! Arithmetic with complex numbers, as far as programs have them: the operators that real numbers have, too, ask [`prepare`] first.

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
    /// `aten::polar.out(abs, angle, out)`: complex numbers of these magnitudes and angles.
    POLAR_OUT = Kernel::new("aten::polar.out", &[Tensor, Tensor, Out], |ctx| {
        fn run<C: Real>(ctx: &mut Invoke) -> Result<(), KernelError> {
            map::<C, 2>(ctx, [0, 1], 2, &|[[length, _], [angle, _]]| {
                [length * angle.cos(), length * angle.sin()]
            })
        }
        for arg in [0, 1] {
            let found = ctx.info(arg)?.scalar_type;
            if ![ScalarType::Float, ScalarType::Double].contains(&found) || found != ctx.info(0)?.scalar_type {
                return Err(unsupported(arg, found));
            }
        }
        let found = ctx.info(2)?.scalar_type;
        if part(found) != Some(ctx.info(0)?.scalar_type) {
            return Err(unsupported(2, found));
        }
        prepare(ctx, &[0, 1], 2, Gives::Complex, by_part!(run))
            .unwrap_or(Err(unsupported(2, found)))
    });
    /// `aten::angle.out(self, out)`: the angle of complex numbers; of real ones, pi if they are negative, else 0.
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
        if let Some(plan) = prepare(ctx, &[0], 1, Gives::Real, by_part!(run)) {
            return plan;
        }
        if !to.scalar_type.is_floating() || from.scalar_type.is_floating() && from.scalar_type != to.scalar_type {
            return Err(unsupported(1, to.scalar_type));
        }
        crate::number::number_type(0, from.scalar_type)?;
        ctx.resize(1, &from.sizes)?;
        Ok(Plan::new(if to.scalar_type == ScalarType::Double { run::<f64> } else { run::<f32> }))
    });
}

/// A complex number: its real and its imaginary part.
pub(crate) type Complex<C> = [C; 2];

/// Values converted at a time.
const BLOCK: usize = 64;
/// Elements that are worth a thread of their own.
const GRAIN: usize = 8 * 1024;

/// Whether elements are complex numbers.
pub(crate) fn is_complex(scalar_type: ScalarType) -> bool {
    part(scalar_type).is_some()
}

/// The type of the parts of complex numbers.
pub(crate) fn part(scalar_type: ScalarType) -> Option<ScalarType> {
    match scalar_type {
        ScalarType::ComplexHalf => Some(ScalarType::Half),
        ScalarType::ComplexFloat => Some(ScalarType::Float),
        ScalarType::ComplexDouble => Some(ScalarType::Double),
        _ => None,
    }
}

/// An invoke function for parts in `f32`, and one for `f64`.
pub(crate) type ByPart = [InvokeFn; 2];

/// The instances of a generic invoke function.
macro_rules! by_part {
    ($function:ident) => {
        [$function::<f32>, $function::<f64>]
    };
}
pub(crate) use by_part;

/// What a function of complex numbers gives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Gives {
    Complex,
    Real,
    Truth,
}

/// A plan, if complex numbers are among the tensors `inputs`, or the output is of such: otherwise the operator is one of real numbers.
pub(crate) fn prepare(
    ctx: &mut Prepare,
    inputs: &[usize],
    out: usize,
    gives: Gives,
    functions: ByPart,
) -> Option<Result<Plan, KernelError>> {
    let mut infos: heapless::Vec<TensorInfo, 3> = heapless::Vec::new();
    for arg in inputs {
        infos.push(ctx.info(*arg).ok()?).ok()?;
    }
    let found = ctx.info(out).ok()?.scalar_type;
    let some = infos.iter().any(|info| is_complex(info.scalar_type));
    (some || is_complex(found)).then(|| plan(ctx, &infos, inputs, out, gives, functions))
}

fn plan(
    ctx: &mut Prepare,
    infos: &[TensorInfo],
    inputs: &[usize],
    out: usize,
    gives: Gives,
    [single, double]: ByPart,
) -> Result<Plan, KernelError> {
    let found = ctx.info(out)?.scalar_type;
    // Tensors without dimensions do not make the others' parts longer.
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
    let of_out = match gives {
        Gives::Complex => part(found),
        Gives::Real => found.is_floating().then_some(found),
        Gives::Truth => (found == ScalarType::Bool).then_some(found),
    };
    let of_out = of_out.ok_or(unsupported(out, found))?;
    if doubles && gives != Gives::Truth && of_out != ScalarType::Double {
        return Err(unsupported(out, found));
    }
    let sizes = broadcast_all(infos.iter().map(|info| info.sizes.as_slice()));
    let what = "the inputs' shapes cannot be broadcast";
    ctx.resize(out, &sizes.ok_or(KernelError::argument(out, what))?)?;
    let in_doubles = (doubles || of_out == ScalarType::Double) && types::computes::<f64>();
    Ok(Plan::new(if in_doubles { double } else { single }))
}

/// Computes `out` from complex numbers; real inputs have imaginary parts of zero, and of real outputs it is the real part.
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
                for (place, result) in results.iter_mut().take(count).enumerate() {
                    *result = function(core::array::from_fn(|i| values[i][place]));
                }
                let target = (start - from + done) * size;
                let target = bytes.get_mut(target..target + count * size).unwrap_or_default();
                write(info.scalar_type, target, &results[..count]);
            }
        });
    });
    Ok(())
}

/// Reads elements from position `at` on, `step` apart.
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

/// Writes elements; of a real type, the real parts.
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
pub(crate) fn product<C: Real>([a, b]: Complex<C>, [c, d]: Complex<C>) -> Complex<C> {
    [a * c - b * d, a * d + b * c]
}

/// The length of a vector, without overflow on the way.
#[inline(always)]
pub(crate) fn length<C: Real>(a: C, b: C) -> C {
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

/// `a / b`, scaled so that nothing overflows on the way.
#[inline(always)]
fn quotient<C: Real>([a, b]: Complex<C>, [c, d]: Complex<C>) -> Complex<C> {
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

/// Argument 1: a tensor, or with `SCALAR` a number.
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

/// `self + sign * alpha * other`, `alpha` being argument 2.
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
    with_other::<C, SCALAR>(ctx, 2, product)
}

pub(super) fn div<C: Real, const SCALAR: bool>(ctx: &mut Invoke) -> Result<(), KernelError> {
    with_other::<C, SCALAR>(ctx, 2, quotient)
}

pub(super) fn abs<C: Real>(ctx: &mut Invoke) -> Result<(), KernelError> {
    map::<C, 1>(ctx, [0], 1, &|[[a, b]]| [length(a, b), C::default()])
}

pub(super) fn neg<C: Real>(ctx: &mut Invoke) -> Result<(), KernelError> {
    map::<C, 1>(ctx, [0], 1, &|[[a, b]]| [-a, -b])
}

pub(super) fn reciprocal<C: Real>(ctx: &mut Invoke) -> Result<(), KernelError> {
    map::<C, 1>(ctx, [0], 1, &|[a]| quotient([C::real(1.0), C::default()], a))
}

pub(super) fn exp<C: Real>(ctx: &mut Invoke) -> Result<(), KernelError> {
    map::<C, 1>(ctx, [0], 1, &|[[a, b]]| {
        let length = a.exp();
        if b == C::default() { [length, b] } else { [length * b.cos(), length * b.sin()] }
    })
}

pub(super) fn sqrt<C: Real>(ctx: &mut Invoke) -> Result<(), KernelError> {
    map::<C, 1>(ctx, [0], 1, &|[[a, b]]| {
        let (zero, half) = (C::default(), C::real(0.5));
        if a == zero && b == zero {
            return [zero, b];
        }
        if b.abs() == C::real(f64::INFINITY) {
            return [b.abs(), b];
        }
        // Halved first, so that the sum does not overflow.
        let root = (length(a * half, b * half) + a.abs() * half).sqrt();
        let other = b * half / root;
        if a < zero { [other.abs(), root.copysign(b)] } else { [root, other] }
    })
}

pub(super) fn ln<C: Real>(ctx: &mut Invoke) -> Result<(), KernelError> {
    map::<C, 1>(ctx, [0], 1, &|[[a, b]]| [length(a, b).ln(), b.atan2(a)])
}

/// Argument 1 where argument 0 is true, argument 2 elsewhere.
pub(super) fn choose<C: Real>(ctx: &mut Invoke) -> Result<(), KernelError> {
    map::<C, 3>(ctx, [0, 1, 2], 3, &|[condition, a, b]| {
        if condition[0] != C::default() { a } else { b }
    })
}

/// Whether both parts are the same, or with `NOT` whether one differs.
pub(super) fn equal<C: Real, const SCALAR: bool, const NOT: bool>(
    ctx: &mut Invoke,
) -> Result<(), KernelError> {
    with_other::<C, SCALAR>(ctx, 2, |a, b| [C::of_bool((a == b) != NOT), C::default()])
}

/// A kernel that takes complex numbers as well: `with_complex!(kernel of real numbers, inputs, out, what it gives, function)`, where the
/// function has a parameter more for `Scalar`s.
macro_rules! with_complex {
    ($kernel:expr, $inputs:expr, $out:literal, $gives:ident, $function:ident $(::<$($flag:literal),+>)?) => {{
        const REAL: torchlet_core::Kernel = $kernel;
        torchlet_core::Kernel::new(REAL.name, REAL.params, |ctx| {
            use $crate::elementwise::complex;
            let functions: complex::ByPart =
                [complex::$function::<f32 $($(, $flag)+)?>, complex::$function::<f64 $($(, $flag)+)?>];
            match complex::prepare(ctx, $inputs, $out, complex::Gives::$gives, functions) {
                Some(plan) => plan,
                None => (REAL.prepare)(ctx),
            }
        })
    }};
}
pub(crate) use with_complex;
