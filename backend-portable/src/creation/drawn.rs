//! Random values in the shape of a tensor, from distributions with given parameters.

use super::random::{hash, next_key, normal};
use crate::number::{load, store, unsupported};
use crate::table::kernels;
use crate::walk::Walk;
use torchlet_core::Param::{Float, OptionalInt, Out, Tensor};
use torchlet_core::{Invoke, InvokeFn, Kernel, KernelError, Plan, Prepare};

/// A kernel `(self, parameters…, generator, out)` whose values do not depend on those of `self`.
/// `$allowed` checks the parameters of the distribution; `$draw` draws a value.
macro_rules! drawn {
    ($name:literal, [$($param:ident),*], $count:literal, $allowed:expr, $draw:expr) => {
        Kernel::new($name, &[Tensor, $($param,)* OptionalInt, Out], |ctx| {
            let given: [f64; $count] = parameters(ctx)?;
            let allowed: fn([f64; $count]) -> bool = $allowed;
            if !allowed(given) {
                return Err(KernelError::argument(1, "distribution parameters are outside their \
                                                     domain"));
            }
            prepare(ctx, $count + 2, |ctx| {
                let given: [f64; $count] = parameters(ctx)?;
                let draw: fn([f64; $count], u64) -> f64 = $draw;
                fill(ctx, $count + 2, &|_, key| draw(given, key))
            })
        })
    };
}

kernels! { DRAWN:
    /// `aten::uniform.out(self, from, to, generator, out)`: uniform values in `from..to`.
    UNIFORM_OUT = drawn!("aten::uniform.out", [Float, Float], 2,
        |[from, to]| from <= to && (to - from).is_finite(),
        |[from, to], key| from + (to - from) * open_uniform(key));
    /// `aten::exponential.out(self, lambd, generator, out)`: exponentially distributed values with
    /// rate `lambd`.
    EXPONENTIAL_OUT = drawn!(
        "aten::exponential.out", [Float], 1, |[rate]| rate > 0.0,
        |[rate], key| exponential(key) / rate
    );
    /// `aten::geometric.out(self, p, generator, out)`: the number of trials up to the first
    /// success, each with success probability `p`.
    GEOMETRIC_OUT = drawn!("aten::geometric.out", [Float], 1, |[p]| p > 0.0 && p < 1.0,
        |[p], key| libm::ceil(exponential(key) / -libm::log1p(-p)));
    /// `aten::cauchy.out(self, median, sigma, generator, out)`: Cauchy-distributed values.
    CAUCHY_OUT = drawn!("aten::cauchy.out", [Float, Float], 2, |[_, sigma]| sigma > 0.0,
        |[median, sigma], key| {
            median + sigma * libm::tan(core::f64::consts::PI * (open_uniform(key) - 0.5))
        });
    /// `aten::log_normal.out(self, mean, std, generator, out)`: values whose logarithms are
    /// normally distributed.
    LOG_NORMAL_OUT = drawn!("aten::log_normal.out", [Float, Float], 2,
        |[_, deviation]| deviation > 0.0,
        |[mean, deviation], key| libm::exp(mean + deviation * normal(key)));
    /// `aten::poisson.out(self, generator, out)`: Poisson-distributed counts with the means `self`.
    POISSON_OUT = Kernel::new("aten::poisson.out", &[Tensor, OptionalInt, Out], |ctx| {
        prepare(ctx, 2, |ctx| fill(ctx, 2, &poisson))
    });
}

fn parameters<const N: usize>(ctx: &torchlet_core::Arguments) -> Result<[f64; N], KernelError> {
    let mut parameters = [0.0; N];
    for (at, parameter) in parameters.iter_mut().enumerate() {
        *parameter = ctx.float(1 + at)?;
    }
    Ok(parameters)
}

/// Converts a key to a uniform value in the open interval (0, 1).
fn open_uniform(key: u64) -> f64 {
    ((hash(key) >> 11) as f64 + 0.5) / (1u64 << 53) as f64
}

/// Converts a key to an exponentially distributed value with mean 1.
fn exponential(key: u64) -> f64 {
    -libm::log(open_uniform(key))
}

fn prepare(ctx: &mut Prepare, out: usize, invoke: InvokeFn) -> Result<Plan, KernelError> {
    let input = ctx.info(0)?;
    ctx.resize(out, &input.sizes)?;
    for (arg, found) in [(0, input.scalar_type), (out, ctx.info(out)?.scalar_type)] {
        if !found.is_floating() {
            return Err(unsupported(arg, found));
        }
    }
    Ok(Plan::new(invoke))
}

/// Number of values that are drawn at a time.
const BLOCK: usize = 64;

/// Draws a value for each element of `self`. `draw` gets the element and a key of its own, and
/// returns NaN for an invalid element.
fn fill(ctx: &mut Invoke, out: usize, draw: &dyn Fn(f64, u64) -> f64) -> Result<(), KernelError> {
    let (input, out) = (ctx.tensor(0)?, ctx.out(out)?);
    let scalar_type = out.scalar_type;
    let walk = Walk::broadcast(out.info(), [input.info()])?;
    let (bytes, [step], size) = (out.into_bytes(), walk.inner_steps(), scalar_type.size());
    let (key, mut all) = (next_key(), true);
    walk.for_each_run(0, walk.numel(), &mut |start, [at], len| {
        for first in (0..len).step_by(BLOCK) {
            let mut values = [0.0f64; BLOCK];
            let values = &mut values[..BLOCK.min(len - first)];
            let from = at.wrapping_add(step.wrapping_mul(first as isize));
            load(input.scalar_type, input.bytes(), from, step, values);
            for (i, number) in values.iter_mut().enumerate() {
                *number = draw(*number, key.wrapping_add((start + first + i) as u64));
                all &= !number.is_nan();
            }
            let offset = (start + first) * size;
            if let Some(bytes) = bytes.get_mut(offset..offset + values.len() * size) {
                store(scalar_type, bytes, values);
            }
        }
    });
    if all {
        Ok(())
    } else {
        Err(KernelError::argument(0, "expected nonnegative means, found a negative one or NaN"))
    }
}

/// Draws from a Poisson distribution; NaN if no distribution has this mean.
fn poisson(mean: f64, key: u64) -> f64 {
    // Above this mean, the standard deviation is smaller than the spacing of floats.
    const LARGE: f64 = 1e32;
    if !(0.0..LARGE).contains(&mean) {
        return if mean >= LARGE { mean } else { f64::NAN };
    }
    let mut key = hash(key);
    let mut next = || {
        key = hash(key);
        open_uniform(key)
    };
    if mean < 10.0 {
        // Counts the exponential waiting times that fit into one unit: their sum exceeds the mean
        // once the product of the uniforms falls below `e^-mean`.
        let (end, mut product, mut count) = (libm::exp(-mean), next(), 0.0);
        while product > end {
            product *= next();
            count += 1.0;
        }
        return count;
    }
    // W. Hörmann, The transformed rejection method for generating Poisson random variables (1993),
    // algorithm PTRS.
    let (root, log) = (libm::sqrt(mean), libm::log(mean));
    let b = 0.931 + 2.53 * root;
    let a = -0.059 + 0.02483 * b;
    let inverse = 1.1239 + 1.1328 / (b - 3.4);
    let within = 0.9277 - 3.6224 / (b - 2.0);
    // The acceptance rate is above one half, so the limit is never reached in practice.
    for _ in 0..1000 {
        let (u, v) = (next() - 0.5, next());
        let distance = 0.5 - libm::fabs(u);
        let count = libm::floor((2.0 * a / distance + b) * u + mean + 0.43);
        if distance >= 0.07 && v <= within {
            return count;
        }
        if count < 0.0 || distance < 0.013 && v > distance {
            continue;
        }
        let height = libm::log(v * inverse / (a / (distance * distance) + b));
        if height <= count * log - mean - libm::lgamma(count + 1.0) {
            return count;
        }
    }
    libm::floor(mean)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn moments(draw: &dyn Fn(u64) -> f64) -> [f64; 2] {
        let count = 100_000u32;
        let values: Vec<f64> = (0..count).map(|at| draw(u64::from(at))).collect();
        let mean = values.iter().sum::<f64>() / f64::from(count);
        let variance = values.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / f64::from(count);
        [mean, variance]
    }

    #[test]
    fn distributions_have_their_moments() {
        for mean in [0.3, 4.0, 9.9, 10.0, 57.0, 1e6] {
            let [found, variance] = moments(&|key| poisson(mean, key));
            assert!((found / mean - 1.0).abs() < 0.02, "{mean}: {found}");
            assert!((variance / mean - 1.0).abs() < 0.03, "{mean}: {variance}");
        }
        let [mean, variance] = moments(&exponential);
        assert!((mean - 1.0).abs() < 0.01 && (variance - 1.0).abs() < 0.03, "{mean} {variance}");
        assert!((0..100_000).all(|key| exponential(key) > 0.0));
    }

    #[test]
    fn poisson_of_invalid_mean_is_nan() {
        assert_eq!(poisson(0.0, 7), 0.0);
        assert_eq!(poisson(f64::INFINITY, 7), f64::INFINITY);
        assert!(poisson(-1.0, 7).is_nan() && poisson(f64::NAN, 7).is_nan());
    }
}
