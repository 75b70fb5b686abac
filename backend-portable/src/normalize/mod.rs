//! Normalization: batch, group and layer norm, and softmax.
//!
//! The norms consist of two loops. The first computes mean and variance of groups of values, with
//! the engine of [`reduce`](crate::reduce). The second computes `(x - mean) * scale + shift`
//! ([`affine`]) or the like for all values. It subtracts the mean before anything is rounded, so
//! that means far from zero do not lose precision.

pub mod backward;
pub mod batch;
pub mod group;
pub mod layer;
pub mod softmax;

use crate::compute::simd::{Simd, Tier, Vectorized};
use crate::compute::split::{chunk_len, for_each_chunk_mut};
use crate::map::{Four, map_tensors};
use crate::number::{Compute, Number, elements, elements_mut, load, unsupported, with_number};
use crate::real::Real;
use crate::reduce::engine::{Geometry, Order, reduce};
use crate::reduce::reducers::{Moments, Spread};
use crate::reduce::store_states;
use crate::types;
use crate::walk::Walk;
use torchlet_core::rules::DimSet;
use torchlet_core::{Arguments, Invoke, KernelError, ScalarType, TensorInfo, TensorRef};

/// Minimum number of elements per thread.
const GRAIN: usize = 1 << 14;

/// Checks that a tensor is floating-point; returns whether it is `f64`.
fn is_double(args: &Arguments, arg: usize) -> Result<bool, KernelError> {
    match args.info(arg)?.scalar_type {
        ScalarType::Double if types::has(ScalarType::Double) => Ok(true),
        found if found.is_floating() => Ok(false),
        found => Err(unsupported(arg, found)),
    }
}

/// Checks that an optional argument is a floating-point tensor of this shape.
fn expect_shape(args: &Arguments, arg: usize, sizes: &[i32]) -> Result<(), KernelError> {
    match args.optional_info(arg)? {
        Some(info) if !info.scalar_type.is_floating() => Err(unsupported(arg, info.scalar_type)),
        Some(info) if info.sizes != *sizes => {
            Err(KernelError::argument(arg, "expected the shape of the normalized dims"))
        }
        _ => Ok(()),
    }
}

/// Loads the values of a tensor in memory order, from `start` on; a constant if the tensor is
/// absent.
fn fill<C: Compute>(tensor: Option<&TensorRef>, start: usize, absent: C, out: &mut [C]) {
    match tensor {
        Some(tensor) => load(tensor.scalar_type, tensor.bytes(), start as isize, 1, out),
        None => out.fill(absent),
    }
}

/// Computes means over the dims `dims`, the rounding errors of the means, and variances. `layout`
/// is the shape and memory order of the results. The slice of rounding errors may be empty.
fn moments<C: Real>(
    ctx: &Invoke,
    input: &TensorRef,
    dims: DimSet,
    layout: &TensorInfo,
    found: [&mut [C]; 3],
) {
    let geometry = Geometry::new(input.info(), dims, layout, Order::Memory);
    let outs = found.map(|out| bytemuck::cast_slice_mut(out));
    let sizes = [size_of::<C>(); 3];
    let parallel = ctx.parallel();
    reduce(
        parallel,
        input,
        &geometry,
        &Moments,
        (outs, sizes),
        &|states, [mean, low, variance]| {
            store_states(C::SCALAR_TYPE, states, mean, |spread: Spread<C>| spread.mean);
            store_states(C::SCALAR_TYPE, states, low, |spread: Spread<C>| spread.low);
            store_states(C::SCALAR_TYPE, states, variance, |spread: Spread<C>| {
                spread.variance(C::default())
            });
        },
    );
}

/// Coefficients of `(x - mean) * scale + shift` per channel.
#[derive(Clone, Copy)]
struct Coefficients<'a, C> {
    mean: &'a [C],
    scale: &'a [C],
    shift: &'a [C],
}

/// The affine function on contiguous planes of elements with equal coefficients.
struct Planes<'a, T, C> {
    src: &'a [T],
    dst: &'a mut [T],
    /// Position of `src` and `dst` in the whole tensor.
    position: usize,
    /// Number of adjacent elements with equal coefficients.
    inner: usize,
    coefficients: Coefficients<'a, C>,
}

impl<T: Number, C: Real> Vectorized for Planes<'_, T, C> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        let Coefficients { mean, scale, shift } = self.coefficients;
        let period = mean.len().min(scale.len()).min(shift.len());
        let (mut src, mut dst, mut position) = (self.src, self.dst, self.position);
        if period == 0 || self.inner == 0 {
            return;
        }
        while !dst.is_empty() {
            let channel = position / self.inner % period;
            let len =
                if self.inner == 1 { period - channel } else { self.inner - position % self.inner };
            let len = len.min(dst.len()).min(src.len());
            if len == 0 {
                return;
            }
            let (x, rest_src) = src.split_at(len);
            let (out, rest_dst) = dst.split_at_mut(len);
            if self.inner == 1 {
                let coefficients = scale[channel..].iter().zip(&shift[channel..]);
                let coefficients = mean[channel..].iter().zip(coefficients);
                for ((out, x), (mean, (scale, shift))) in out.iter_mut().zip(x).zip(coefficients) {
                    *out = ((C::of(*x) - *mean) * *scale + *shift).to();
                }
            } else {
                let (mean, scale, shift) = (mean[channel], scale[channel], shift[channel]);
                for (out, x) in out.iter_mut().zip(x) {
                    *out = ((C::of(*x) - mean) * scale + shift).to();
                }
            }
            (src, dst) = (rest_src, rest_dst);
            position += len;
        }
    }
}

/// Computes `out = (input - mean) * scale + shift`. Coefficients are contiguous tensors of shape
/// `sizes` and are broadcast. If input and output have the same memory order, `inner` may give the
/// number of adjacent elements that share each coefficient, in turn.
fn affine<C: Real>(
    ctx: &Invoke,
    input: &TensorRef,
    (info, bytes): (&TensorInfo, &mut [u8]),
    (sizes, coefficients): (&[i32], Coefficients<'_, C>),
    inner: Option<usize>,
) -> Result<(), KernelError> {
    let scalar_type = info.scalar_type;
    if let Some(inner) = inner
        && input.same_layout_as(info)
        && input.scalar_type == scalar_type
    {
        let (parallel, tier) = (ctx.parallel(), Tier::detect());
        with_number!(float scalar_type, |T| {
            let (src, dst) = (elements::<T>(input.bytes()), elements_mut::<T>(bytes));
            let chunk = chunk_len(parallel, dst.len(), GRAIN);
            for_each_chunk_mut(parallel, dst, chunk, &|index, dst: &mut [T]| {
                let position = index * chunk;
                let src = src.get(position..).unwrap_or(&[]);
                tier.dispatch(Planes { src, dst, position, inner, coefficients });
            });
        }, else ());
        return Ok(());
    }
    let Coefficients { mean, scale, shift } = coefficients;
    let shape =
        KernelError::unsupported("a normalization with scales of another shape than its rows");
    let mean = TensorRef::from_slice(sizes, mean).ok_or(shape.clone())?;
    let scale = TensorRef::from_slice(sizes, scale).ok_or(shape.clone())?;
    let shift = TensorRef::from_slice(sizes, shift).ok_or(shape)?;
    let walk = Walk::broadcast(info, [input.info(), mean.info(), scale.info(), shift.info()])?;
    let tensors = [input.clone(), mean, scale, shift];
    let function = Four(|x: C, mean: C, scale: C, shift: C| (x - mean) * scale + shift);
    map_tensors(ctx, &walk, &tensors, info, bytes, &function);
    Ok(())
}

/// Converts means and variances to coefficients, with optional weights and biases of the channels
/// from `start` on. `low`, the rounding error of the mean, becomes the shift; `variance` becomes
/// the scale.
fn coefficients<C: Real>(
    weight: Option<&TensorRef>,
    bias: Option<&TensorRef>,
    start: usize,
    eps: C,
    low: &mut [C],
    variance: &mut [C],
) {
    const BLOCK: usize = 32;
    let one = C::count(1);
    for (i, (low, variance)) in low.chunks_mut(BLOCK).zip(variance.chunks_mut(BLOCK)).enumerate() {
        let (mut weights, mut biases) = ([one; BLOCK], [C::default(); BLOCK]);
        let at = start + i * BLOCK;
        fill(weight, at, one, &mut weights[..low.len()]);
        fill(bias, at, C::default(), &mut biases[..low.len()]);
        let pairs = low.iter_mut().zip(variance);
        for ((low, variance), (weight, bias)) in pairs.zip(weights.iter().zip(biases)) {
            let scale = one / (*variance + eps).sqrt() * *weight;
            *low = bias - *low * scale;
            *variance = scale;
        }
    }
}

#[cfg(test)]
mod tests;
