//! Random tensors, and dropout.
//!
//! The generator hashes a seed, a call counter and the element index. Elements can therefore be
//! generated in any order, on any number of threads. It differs from PyTorch's generator: the
//! distributions are the same, the streams are not. Every process starts with the same seed;
//! [`set_seed`] changes it.

use crate::map::{Two, map, map_tensors};
use crate::number::{ComputeType, Number, elements_mut, number_type, unsupported, with_number};
use crate::real::Real;
use crate::table::kernels;
use crate::walk::Walk;
use core::sync::atomic::{AtomicUsize, Ordering};
use torchlet_core::Param::{Float, Int, IntList, OptionalBool, OptionalInt, Out, Tensor};
use torchlet_core::{Bool, Invoke, InvokeFn, Kernel, KernelError, Plan, Prepare, TensorRef};

kernels! {
    /// `aten::rand.out(size, out)`: uniform values from 0 to below 1.
    RAND_OUT = Kernel::new("aten::rand.out", &[IntList, Out], |ctx| {
        prepare_random(ctx, |ctx| fill(ctx, 1, |key| uniform(hash(key))))
    });
    /// `aten::randn.out(size, out)`: normally distributed values with mean 0 and standard
    /// deviation 1.
    RANDN_OUT = Kernel::new("aten::randn.out", &[IntList, Out], |ctx| {
        prepare_random(ctx, |ctx| fill(ctx, 1, normal))
    });
    /// `aten::rand_like.out(self, memory_format, out)`: like `rand`, in the shape of `self`.
    RAND_LIKE_OUT = Kernel::new("aten::rand_like.out", &[Tensor, OptionalInt, Out], |ctx| {
        prepare_like(ctx, |ctx| fill(ctx, 2, |key| uniform(hash(key))))
    });
    /// `aten::randn_like.out(self, memory_format, out)`: like `randn`, in the shape of `self`.
    RANDN_LIKE_OUT = Kernel::new("aten::randn_like.out", &[Tensor, OptionalInt, Out], |ctx| {
        prepare_like(ctx, |ctx| fill(ctx, 2, normal))
    });
    /// `aten::randint.out(high, size, out)`: uniform integers from 0 to below `high`.
    RANDINT_OUT = Kernel::new("aten::randint.out", &[Int, IntList, Out], |ctx| {
        super::prepare_sizes(ctx, 1, 2)?;
        prepare_below(ctx, 0, 2, |ctx| integers_below(ctx, 0, 2))
    });
    /// `aten::randint.low_out(low, high, size, out)`: uniform integers from `low` to below `high`.
    RANDINT_LOW_OUT = Kernel::new("aten::randint.low_out", &[Int, Int, IntList, Out], |ctx| {
        super::prepare_sizes(ctx, 2, 3)?;
        number_type(3, ctx.info(3)?.scalar_type)?;
        if ctx.int(0)? >= ctx.int(1)? {
            return Err(KernelError::argument(1, "high: expected more than low"));
        }
        Ok(Plan::new(|ctx| {
            let (low, high) = (ctx.int(0)?, ctx.int(1)?);
            integers(ctx, 3, low, high)
        }))
    });
    /// `aten::randint_like.out(self, high, memory_format, out)`: uniform integers from 0 to below
    /// `high`, in the shape of `self`.
    RANDINT_LIKE_OUT =
        Kernel::new("aten::randint_like.out", &[Tensor, Int, OptionalInt, Out], |ctx| {
            let sizes = ctx.info(0)?.sizes;
            ctx.resize(3, &sizes)?;
            prepare_below(ctx, 1, 3, |ctx| integers_below(ctx, 1, 3))
        });
    /// `aten::randperm.out(n, out)`: a random permutation of the integers from 0 to below `n`.
    RANDPERM_OUT = Kernel::new("aten::randperm.out", &[Int, Out], |ctx| {
        let size = i32::try_from(ctx.int(0)?).ok().filter(|size| *size >= 0);
        let what = "size: expected 0 to 2^31 - 1";
        ctx.resize(1, &[size.ok_or(KernelError::argument(0, what))?])?;
        let found = ctx.info(1)?.scalar_type;
        number_type(1, found)?;
        Ok(Plan::new(permutation))
    });
    /// `aten::native_dropout.out(input, p, train, out0, out1)`: in training, zeroes each element
    /// with probability `p` and scales the others by `1 / (1 - p)`; otherwise copies the input.
    /// `out1` is the mask of kept elements.
    NATIVE_DROPOUT_OUT =
        Kernel::new("aten::native_dropout.out", &[Tensor, Float, OptionalBool, Out, Out], |ctx| {
            let input = ctx.info(0)?;
            ctx.resize(3, &input.sizes)?;
            ctx.resize(4, &input.sizes)?;
            let (out, mask) = (ctx.info(3)?, ctx.info(4)?);
            if mask.scalar_type != torchlet_core::ScalarType::Bool {
                return Err(unsupported(4, mask.scalar_type));
            }
            if !out.same_layout_as(&mask) {
                return Err(KernelError::layout(4));
            }
            if out.scalar_type != input.scalar_type {
                return Err(unsupported(3, out.scalar_type));
            }
            match ComputeType::of(input.scalar_type) {
                Some(ComputeType::F32) => Ok(Plan::new(dropout::<f32>)),
                Some(ComputeType::F64) => Ok(Plan::new(dropout::<f64>)),
                _ => Err(unsupported(0, input.scalar_type)),
            }
        });
}

static SEED: AtomicUsize = AtomicUsize::new(0);
static CALLS: AtomicUsize = AtomicUsize::new(0);

/// Resets the random number generator of this process to a seed.
pub fn set_seed(seed: usize) {
    SEED.store(seed, Ordering::Relaxed);
    CALLS.store(0, Ordering::Relaxed);
}

fn permutation(ctx: &mut Invoke) -> Result<(), KernelError> {
    let mut out = ctx.out(1)?;
    let key = next_key();
    with_number!(out.scalar_type, |T| {
        let elements = elements_mut::<T>(out.bytes_mut());
        for (number, element) in elements.iter_mut().enumerate() {
            *element = T::from_i64(number as i64);
        }
        // Fisher–Yates shuffle.
        for last in (1..elements.len()).rev() {
            let choice = below(hash(key ^ last as u64), last as u64 + 1);
            elements.swap(last, choice as usize);
        }
    }, else ());
    Ok(())
}

/// Returns a key for all elements of a call.
pub(super) fn next_key() -> u64 {
    // Not an atomic addition, which small processors lack: two threads may draw the same values.
    let call = CALLS.load(Ordering::Relaxed);
    CALLS.store(call.wrapping_add(1), Ordering::Relaxed);
    hash(hash(SEED.load(Ordering::Relaxed) as u64) ^ call as u64)
}

/// Mixes the bits of a key: the finalizer of SplitMix64.
pub(super) fn hash(key: u64) -> u64 {
    let mut x = key.wrapping_add(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// A 24-bit fraction in 0..1. `f32` represents it exactly; half-precision types may round it up
/// to 1.
fn uniform(bits: u64) -> f64 {
    (bits >> 40) as f64 / (1u64 << 24) as f64
}

/// The Box–Muller transform of two uniform values.
pub(super) fn normal(key: u64) -> f64 {
    let bits = hash(key);
    // In (0, 1], so that the logarithm is finite.
    let radius = Real::sqrt(-2.0 * Real::ln(1.0 - uniform(bits)));
    let angle = 2.0 * core::f64::consts::PI * uniform(hash(bits));
    radius * Real::cos(angle)
}

/// A uniform integer from 0 to below `count`.
fn below(bits: u64, count: u64) -> u64 {
    ((u128::from(bits) * u128::from(count)) >> 64) as u64
}

fn integers(ctx: &mut Invoke, out: usize, low: i64, high: i64) -> Result<(), KernelError> {
    let out = ctx.out(out)?;
    let (key, count) = (next_key(), high.wrapping_sub(low) as u64);
    with_number!(out.scalar_type, |T| {
        for (i, value) in out.into_data::<T>()?.iter_mut().enumerate() {
            let number = below(hash(key.wrapping_add(i as u64)), count);
            *value = T::from_i64(low.wrapping_add(number as i64));
        }
    }, else ());
    Ok(())
}

/// Prepares uniform integers from 0 to below argument `high`.
fn prepare_below(
    ctx: &Prepare,
    high: usize,
    out: usize,
    invoke: InvokeFn,
) -> Result<Plan, KernelError> {
    number_type(out, ctx.info(out)?.scalar_type)?;
    if ctx.int(high)? <= 0 {
        return Err(KernelError::argument(high, "high: expected at least 1"));
    }
    Ok(Plan::new(invoke))
}

fn integers_below(ctx: &mut Invoke, high: usize, out: usize) -> Result<(), KernelError> {
    let high = ctx.int(high)?;
    integers(ctx, out, 0, high)
}

fn prepare_like(ctx: &mut Prepare, invoke: InvokeFn) -> Result<Plan, KernelError> {
    let sizes = ctx.info(0)?.sizes;
    ctx.resize(2, &sizes)?;
    let found = ctx.info(2)?.scalar_type;
    if !found.is_floating() {
        return Err(unsupported(2, found));
    }
    Ok(Plan::new(invoke))
}

fn prepare_random(ctx: &mut Prepare, invoke: InvokeFn) -> Result<Plan, KernelError> {
    super::prepare_sizes(ctx, 0, 1)?;
    let found = ctx.info(1)?.scalar_type;
    if !found.is_floating() {
        return Err(unsupported(1, found));
    }
    Ok(Plan::new(invoke))
}

fn fill(ctx: &mut Invoke, out: usize, draw: impl Fn(u64) -> f64) -> Result<(), KernelError> {
    let out = ctx.out(out)?;
    let key = next_key();
    with_number!(out.scalar_type, |T| {
        for (i, value) in out.into_data::<T>()?.iter_mut().enumerate() {
            *value = T::from_f64(draw(key.wrapping_add(i as u64)));
        }
    }, else ());
    Ok(())
}

fn dropout<C: Real>(ctx: &mut Invoke) -> Result<(), KernelError> {
    crate::types::expect::<C>()?;
    let p = ctx.float(1)?;
    // As in PyTorch, `train` defaults to true.
    let train = ctx.is_none(2) || ctx.bool(2)?;
    if !train {
        map(ctx, [0], 3, &move |a: C| a)?;
        ctx.out(4)?.into_data::<Bool>()?.fill(Bool::new(true));
        return Ok(());
    }
    if !(0.0..=1.0).contains(&p) {
        return Err(KernelError::argument(1, "probability: expected 0 to 1"));
    }
    let key = next_key();
    let scale = if p < 1.0 { C::real(1.0 / (1.0 - p)) } else { C::default() };
    let (input, out, mask) = (ctx.tensor(0)?, ctx.out(3)?, ctx.out(4)?);
    let (info, mask_info) = (out.info().clone(), mask.info().clone());
    let mask = mask.into_data::<Bool>()?;
    for (i, kept) in mask.iter_mut().enumerate() {
        *kept = Bool::new(uniform(hash(key.wrapping_add(i as u64))) >= p);
    }
    let mask = TensorRef::new(mask_info, bytemuck::cast_slice(mask));
    let inputs = [input, mask.ok_or(KernelError::access(4))?];
    let walk = Walk::broadcast(&info, [inputs[0].info(), inputs[1].info()])?;
    let scaled = Two(|a: C, kept: C| if kept.truth() { a * scale } else { C::default() });
    map_tensors(ctx, &walk, &inputs, &info, out.into_bytes(), &scaled);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distributions_have_their_moments() {
        let count = 100_000;
        let moments = |draw: &dyn Fn(u64) -> f64| {
            let values: Vec<f64> = (0..count).map(draw).collect();
            let mean = values.iter().sum::<f64>() / count as f64;
            let variance = values.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / count as f64;
            (mean, variance)
        };
        let (mean, variance) = moments(&|key| uniform(hash(key)));
        assert!((mean - 0.5).abs() < 0.005 && (variance - 1.0 / 12.0).abs() < 0.002);
        let (mean, variance) = moments(&normal);
        assert!(mean.abs() < 0.02 && (variance - 1.0).abs() < 0.02, "{mean} {variance}");
    }
}
