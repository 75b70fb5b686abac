//! The loop that all element-wise operators share.
//!
//! An operator supplies a function of values. The loop walks over output and inputs. An input that
//! is contiguous and already has the compute type is passed to the function in place. An input that
//! has another dtype, is strided or is broadcast is converted block by block.

use crate::compute::split::{chunk_len, for_each_chunk_mut};
use crate::number::{Compute, ComputeType, elements, elements_mut, load, round_through, store};
use crate::walk::Walk;
use torchlet_core::rules::{Operand, result_type};
use torchlet_core::{Invoke, KernelError, ScalarType, TensorInfo, TensorRef};

/// Number of values per conversion block of an input. The blocks are on the stack, which is small
/// on microcontrollers.
const BLOCK: usize = if cfg!(feature = "std") { 256 } else { 64 };

/// Minimum number of elements per thread, for cheap operations.
const GRAIN: usize = 16 * 1024;

/// A function of `N` values, applied to slices of equal length.
pub(crate) trait Function<const N: usize, C>: Sync {
    /// Whether a zero-dim tensor operand is rounded to the half or bfloat16 dtype of the other
    /// operand first.
    fn rounds_operands(&self) -> bool {
        false
    }
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

/// A function of one value that is most efficient when it is called with slices.
pub(crate) struct Slices<F>(pub(crate) F);
impl<C: Compute, F: Fn(&[C], &mut [C]) + Sync> Function<1, C> for Slices<F> {
    #[inline(always)]
    fn apply(&self, [a]: [&[C]; 1], out: &mut [C]) {
        (self.0)(a, out);
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

/// A function of two values that [rounds its operands](Function::rounds_operands).
pub(crate) struct Rounded<F>(pub(crate) F);
impl<C: Compute, F: Fn(C, C) -> C + Sync> Function<2, C> for Rounded<F> {
    fn rounds_operands(&self) -> bool {
        true
    }
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

/// A function of four values.
pub(crate) struct Four<F>(pub(crate) F);
impl<C: Compute, F: Fn(C, C, C, C) -> C + Sync> Function<4, C> for Four<F> {
    #[inline(always)]
    fn apply(&self, [a, b, c, d]: [&[C]; 4], out: &mut [C]) {
        for ((((out, &a), &b), &c), &d) in out.iter_mut().zip(a).zip(b).zip(c).zip(d) {
            *out = (self.0)(a, b, c, d);
        }
    }
}

/// Computes output `out` from the tensors `inputs`, broadcast to its shape, in type `C`.
///
/// All functions share this loop: they are called once per run or block, not per element.
pub(crate) fn map<C: Compute, const N: usize>(
    ctx: &mut Invoke,
    inputs: [usize; N],
    out: usize,
    function: &dyn Function<N, C>,
) -> Result<(), KernelError> {
    crate::types::expect::<C>()?;
    let mut tensors: heapless::Vec<TensorRef, N> = heapless::Vec::new();
    for arg in inputs {
        // The capacity is N.
        let _ = tensors.push(ctx.tensor(arg)?);
    }
    let Ok(tensors) = tensors.into_array::<N>() else {
        return Err(KernelError::access(out));
    };
    let out = ctx.out(out)?;
    let info = out.info().clone();
    let walk = Walk::broadcast(&info, core::array::from_fn(|i| tensors[i].info()))?;
    map_tensors(ctx, &walk, &tensors, &info, out.into_bytes(), function);
    Ok(())
}

/// Like [`map`], for a walk and tensors that the caller already has.
pub(crate) fn map_tensors<C: Compute, const N: usize>(
    ctx: &Invoke,
    walk: &Walk<N>,
    tensors: &[TensorRef; N],
    out: &TensorInfo,
    bytes: &mut [u8],
    function: &dyn Function<N, C>,
) {
    let size = out.scalar_type.size();
    let parallel = ctx.parallel();
    let grain = chunk_len(parallel, walk.numel(), GRAIN);
    let work = Work {
        walk,
        tensors,
        out,
        narrow: narrow::<C>(tensors, out, function.rounds_operands()),
        function,
    };
    for_each_chunk_mut(parallel, bytes, grain.saturating_mul(size), &|chunk, bytes: &mut [u8]| {
        work.range(chunk * grain, bytes);
    });
}

/// Returns the dtype to which values must be rounded before the function, if that affects the
/// result.
///
/// PyTorch converts its operands to their common dtype first; integers then lose their high bits.
/// Half and bfloat16 matter only to predicates, whose result depends on the last bit. Otherwise the
/// wider value is kept, which only adds precision.
fn narrow<C: Compute>(tensors: &[TensorRef], out: &TensorInfo, rounds: bool) -> Option<ScalarType> {
    let first = tensors.first()?.scalar_type;
    if tensors.iter().all(|tensor| tensor.scalar_type == first) && out.scalar_type == first {
        return None;
    }
    let common = result_type(tensors.iter().map(|tensor| Operand::from(tensor.info())))?;
    let predicate = out.scalar_type == ScalarType::Bool;
    let integer = C::SCALAR_TYPE == ScalarType::Long;
    let lossy = common != C::SCALAR_TYPE
        && common != ScalarType::Bool
        && ComputeType::of(common) == ComputeType::of(C::SCALAR_TYPE);
    (lossy && (predicate || integer || rounds)).then_some(common)
}

/// Reads a scalar argument as the other operand of tensor `tensor`, rounded as [`map`] rounds
/// tensors.
pub(crate) fn scalar_operand<C: Compute>(
    ctx: &Invoke,
    tensor: usize,
    scalar: usize,
    out: usize,
) -> Result<C, KernelError> {
    let predicate = ctx.info(out)?.scalar_type == ScalarType::Bool;
    let number = ctx.scalar(scalar)?;
    if !predicate && C::SCALAR_TYPE != ScalarType::Long {
        return Ok(C::of_scalar(number));
    }
    let common = result_type([Operand::from(&ctx.info(tensor)?), Operand::from(number)]);
    Ok(in_type(common, C::of_scalar(number)))
}

/// Like [`scalar_operand`], for functions that [round their operands](Function::rounds_operands) to
/// half or bfloat16.
pub(crate) fn rounded_operand<C: Compute>(
    ctx: &Invoke,
    tensor: usize,
    scalar: usize,
) -> Result<C, KernelError> {
    let number = ctx.scalar(scalar)?;
    let common = result_type([Operand::from(&ctx.info(tensor)?), Operand::from(number)]);
    Ok(in_type(common, C::of_scalar(number)))
}

/// Rounds a value to a dtype whose compute type is `C`.
pub(crate) fn in_type<C: Compute>(scalar_type: Option<ScalarType>, value: C) -> C {
    let mut value = [value];
    if let Some(scalar_type) = scalar_type
        && ComputeType::of(scalar_type) == ComputeType::of(C::SCALAR_TYPE)
    {
        round_through(scalar_type, &mut value);
    }
    value[0]
}

/// State that all chunks of a map share.
struct Work<'w, 't, C, const N: usize> {
    walk: &'w Walk<N>,
    tensors: &'w [TensorRef<'t>; N],
    out: &'w TensorInfo,
    narrow: Option<ScalarType>,
    function: &'w dyn Function<N, C>,
}

impl<C: Compute, const N: usize> Work<'_, '_, C, N> {
    /// Computes the elements that `bytes` holds, starting at position `from`.
    fn range(&self, from: usize, bytes: &mut [u8]) {
        let (tensors, out) = (self.tensors, self.out);
        let size = out.scalar_type.size();
        let steps = self.walk.inner_steps();
        // Inputs that need no conversion are read in place.
        let direct: [Option<&[C]>; N] = core::array::from_fn(|i| {
            let tensor = &tensors[i];
            let same = tensor.scalar_type == C::SCALAR_TYPE && self.narrow.is_none();
            (same && steps[i] == 1).then(|| elements(tensor.bytes()))
        });
        let out_direct = out.scalar_type == C::SCALAR_TYPE;
        let narrow_out = self.narrow.filter(|narrow| *narrow != out.scalar_type);
        let all_direct = out_direct && direct.iter().all(|input| input.is_some());
        let mut blocks = [[C::default(); BLOCK]; N];
        let mut computed = [C::default(); BLOCK];
        self.walk.for_each_run(from, from + bytes.len() / size, &mut |start, inputs, len| {
            let mut done = 0;
            while done < len {
                let count = if all_direct { len } else { (len - done).min(BLOCK) };
                for (i, block) in blocks.iter_mut().enumerate() {
                    if direct[i].is_none() {
                        let at = inputs[i].wrapping_add(steps[i].wrapping_mul(done as isize));
                        let (tensor, block) = (&tensors[i], &mut block[..count]);
                        load(tensor.scalar_type, tensor.bytes(), at, steps[i], block);
                        if let Some(narrow) = self.narrow.filter(|t| *t != tensor.scalar_type) {
                            round_through(narrow, block);
                        }
                    }
                }
                let values: [&[C]; N] = core::array::from_fn(|i| match direct[i] {
                    Some(data) => {
                        let at = inputs[i] as usize + done;
                        data.get(at..at + count).unwrap_or(&[])
                    }
                    None => &blocks[i][..count],
                });
                let offset = start - from + done;
                let target = bytes.get_mut(offset * size..(offset + count) * size);
                let target = target.unwrap_or_default();
                let apply = |results: &mut [C]| {
                    self.function.apply(values, results);
                    if let Some(narrow) = narrow_out {
                        round_through(narrow, results);
                    }
                };
                if out_direct {
                    apply(elements_mut(target));
                } else {
                    apply(&mut computed[..count]);
                    store(out.scalar_type, target, &computed[..count]);
                }
                done += count;
            }
        });
    }
}
