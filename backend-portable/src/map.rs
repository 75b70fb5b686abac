//! Element-wise computation: the loop that all element-wise operators share.
//!
//! An operator gives a function from values to a value. The loop walks over output and inputs, hands over whole runs
//! where an input already has the computing type and lies side by side, and converts block by block
//! where it has another type, is strided, or is broadcast.

use crate::compute::split::for_each_chunk_mut;
use crate::number::{Compute, elements, load, store};
use crate::walk::Walk;
use torchlet_core::{Invoke, KernelError, TensorInfo, TensorRef};

/// Values converted at a time, for each input. They live on the stack, which is small on microcontrollers.
const BLOCK: usize = 64;

/// Elements that are worth a thread of their own, for cheap operations.
const GRAIN: usize = 16 * 1024;

/// A function of `N` values, applied to slices of equal length.
pub(crate) trait Function<const N: usize, C>: Sync {
    fn apply(&self, inputs: [&[C]; N], out: &mut [C]);
}

impl<C: Compute, F: Fn(C) -> C + Sync> Function<1, C> for F {
    #[inline(always)]
    fn apply(&self, [a]: [&[C]; 1], out: &mut [C]) {
        for (out, &a) in out.iter_mut().zip(a) {
            *out = self(a);
        }
    }
}

/// A function of two values.
pub(crate) struct Two<F>(pub(crate) F);
impl<C: Compute, F: Fn(C, C) -> C + Sync> Function<2, C> for Two<F> {
    #[inline(always)]
    fn apply(&self, [a, b]: [&[C]; 2], out: &mut [C]) {
        for ((out, &a), &b) in out.iter_mut().zip(a).zip(b) {
            *out = (self.0)(a, b);
        }
    }
}

/// A function of three values.
pub(crate) struct Three<F>(pub(crate) F);
impl<C: Compute, F: Fn(C, C, C) -> C + Sync> Function<3, C> for Three<F> {
    #[inline(always)]
    fn apply(&self, [a, b, c]: [&[C]; 3], out: &mut [C]) {
        for (((out, &a), &b), &c) in out.iter_mut().zip(a).zip(b).zip(c) {
            *out = (self.0)(a, b, c);
        }
    }
}

/// Computes output `out` from the tensors `inputs`, broadcast to its shape, in type `C`.
pub(crate) fn map<C: Compute, const N: usize>(
    ctx: &mut Invoke,
    inputs: [usize; N],
    out: usize,
    function: &impl Function<N, C>,
) -> Result<(), KernelError> {
    let mut tensors: heapless::Vec<TensorRef, N> = heapless::Vec::new();
    for arg in inputs {
        // The capacity is N.
        let _ = tensors.push(ctx.tensor(arg)?);
    }
    let Ok(tensors) = tensors.into_array::<N>() else {
        return Err(KernelError::Access { arg: out });
    };
    let out = ctx.out(out)?;
    let info = out.info().clone();
    let walk = Walk::broadcast(&info, core::array::from_fn(|i| tensors[i].info()))?;
    map_tensors(ctx, &walk, &tensors, &info, out.into_bytes(), function);
    Ok(())
}

/// As [`map`], over a walk and tensors that are at hand.
pub(crate) fn map_tensors<C: Compute, const N: usize>(
    ctx: &Invoke,
    walk: &Walk<N>,
    tensors: &[TensorRef; N],
    out: &TensorInfo,
    bytes: &mut [u8],
    function: &impl Function<N, C>,
) {
    let size = out.scalar_type.size();
    let parallel = ctx.parallel();
    let grain = walk.numel().div_ceil(parallel.threads().max(1)).max(GRAIN);
    for_each_chunk_mut(parallel, bytes, grain.saturating_mul(size), &|chunk, bytes: &mut [u8]| {
        let from = chunk * grain;
        map_range(walk, tensors, out, from, bytes, function);
    });
}

fn map_range<C: Compute, const N: usize>(
    walk: &Walk<N>,
    tensors: &[TensorRef; N],
    out: &TensorInfo,
    from: usize,
    bytes: &mut [u8],
    function: &impl Function<N, C>,
) {
    let size = out.scalar_type.size();
    let steps = walk.inner_steps();
    // What needs no conversion is used where it lies.
    let direct: [Option<&[C]>; N] = core::array::from_fn(|i| {
        let tensor = &tensors[i];
        (tensor.scalar_type == C::SCALAR_TYPE && steps[i] == 1).then(|| elements(tensor.bytes()))
    });
    let out_direct = out.scalar_type == C::SCALAR_TYPE;
    let all_direct = out_direct && direct.iter().all(|input| input.is_some());
    let mut blocks = [[C::default(); BLOCK]; N];
    walk.for_each_run(from, from + bytes.len() / size, &mut |start, inputs, len| {
        let mut done = 0;
        while done < len {
            let count = if all_direct { len } else { (len - done).min(BLOCK) };
            for (i, block) in blocks.iter_mut().enumerate() {
                if direct[i].is_none() {
                    let at = inputs[i].wrapping_add(steps[i].wrapping_mul(done as isize));
                    let tensor = &tensors[i];
                    load(tensor.scalar_type, tensor.bytes(), at, steps[i], &mut block[..count]);
                }
            }
            let values: [&[C]; N] = core::array::from_fn(|i| match direct[i] {
                Some(data) => {
                    let at = inputs[i] as usize + done;
                    data.get(at..at + count).unwrap_or(&[])
                }
                None => &blocks[i][..count],
            });
            let place = start - from + done;
            let target = bytes.get_mut(place * size..(place + count) * size).unwrap_or_default();
            if out_direct {
                function.apply(values, crate::number::elements_mut(target));
            } else {
                let mut results = [C::default(); BLOCK];
                function.apply(values, &mut results[..count]);
                store(out.scalar_type, target, &results[..count]);
            }
            done += count;
        }
    });
}
