//! Element-wise addition and multiplication of int8 values.

use super::{Scale, vectorized};
use crate::compute::simd::Tier;
use crate::compute::split::{chunk_len, for_each_chunk_mut};
use crate::parallel::Parallel;

/// Addition of two quantized values with different scales and zero points.
#[derive(Debug, Clone, Copy)]
pub struct Sum {
    /// Zero points of the operands.
    pub zeros: [i32; 2],
    /// Rescaling of the operands to a common scale.
    pub scales: [Scale; 2],
    /// Left shift of both operands before rescaling, in bits, for precision.
    pub headroom: u32,
    /// Rescaling from the common scale to the output scale.
    pub scale: Scale,
    /// Zero point of the output.
    pub offset: i32,
    /// Minimum and maximum of the result.
    pub bounds: (i32, i32),
}

impl Sum {
    /// Adds two quantized values.
    #[inline(always)]
    pub fn of(&self, quantized: [i32; 2]) -> i32 {
        let [a, b] = [0, 1].map(|side| {
            let value = quantized[side].wrapping_sub(self.zeros[side]).wrapping_shl(self.headroom);
            self.scales[side].apply_and_add(value, 0)
        });
        let code = self.scale.apply_and_add(a.wrapping_add(b), self.offset);
        code.max(self.bounds.0).min(self.bounds.1)
    }
}

/// Parameters of the multiplication of two quantized values.
#[derive(Debug, Clone, Copy)]
pub struct Product {
    /// Zero points of the operands.
    pub zeros: [i32; 2],
    /// Rescaling from the product of both scales to the output scale.
    pub scale: Scale,
    /// Zero point of the output.
    pub offset: i32,
    /// Minimum and maximum of the result.
    pub bounds: (i32, i32),
}

impl Product {
    /// Multiplies two quantized values.
    #[inline(always)]
    pub fn of(&self, quantized: [i32; 2]) -> i32 {
        let [a, b] = [0, 1].map(|side| quantized[side].wrapping_sub(self.zeros[side]));
        let code = self.scale.apply_and_add(a.wrapping_mul(b), self.offset);
        code.max(self.bounds.0).min(self.bounds.1)
    }
}

/// Minimum number of elements for each thread.
const GRAIN: usize = 16 * 1024;

/// Execution resources: instruction set and threads.
#[derive(Clone, Copy)]
pub struct Context<'a> {
    /// The instruction set to use.
    pub tier: Tier,
    /// The thread pool.
    pub parallel: &'a dyn Parallel,
}

/// Computes `out` from pairs of values.
#[cfg(not(target_arch = "x86_64"))]
#[inline(always)]
fn map(
    context: Context<'_>,
    [a, b]: [&[i8]; 2],
    out: &mut [i8],
    of: impl Fn([i32; 2]) -> i32 + Sync,
) {
    let len = chunk_len(context.parallel, out.len(), GRAIN).max(1);
    for_each_chunk_mut(context.parallel, out, len, &|index, out: &mut [i8]| {
        let [a, b] = [a, b].map(|quantized| quantized.get(index * len..).unwrap_or(&[]));
        vectorized(
            context.tier,
            #[inline(always)]
            || {
                for ((out, &a), &b) in out.iter_mut().zip(a).zip(b) {
                    *out = of([a.into(), b.into()]) as i8;
                }
            },
        );
    });
}

/// Vector of values that are computed together.
#[cfg(target_arch = "x86_64")]
type Block = [i32; super::x86::LANES];

/// Like [`map`], for blocks. `of` receives the operands minus their zero points, and returns the
/// results before the output's zero point is added.
#[cfg(target_arch = "x86_64")]
fn map_blocks(
    context: Context<'_>,
    quantized: [&[i8]; 2],
    out: &mut [i8],
    (zeros, offset, bounds): ([i32; 2], i32, (i32, i32)),
    of: impl Fn([Block; 2]) -> Block + Sync,
) {
    const LANES: usize = super::x86::LANES;
    let len = chunk_len(context.parallel, out.len(), GRAIN).max(1);
    for_each_chunk_mut(context.parallel, out, len, &|index, out: &mut [i8]| {
        let [first, second] = quantized;
        let first = first.get(index * len..).unwrap_or(&[]).chunks(LANES);
        let second = second.get(index * len..).unwrap_or(&[]).chunks(LANES);
        vectorized(
            context.tier,
            #[inline(always)]
            || {
                for ((out, first), second) in out.chunks_mut(LANES).zip(first).zip(second) {
                    let made = of([widen(first, zeros[0]), widen(second, zeros[1])]);
                    let mut quantized = [0i8; LANES];
                    for (code, made) in quantized.iter_mut().zip(made) {
                        let made = made.wrapping_add(offset);
                        *code = made.max(bounds.0).min(bounds.1) as i8;
                    }
                    super::x86::write(quantized, out);
                }
            },
        );
    });
}

/// Widens values and subtracts their zero point.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn widen(quantized: &[i8], zero: i32) -> Block {
    let mut wide = [0; super::x86::LANES];
    for (wide, code) in wide.iter_mut().zip(super::x86::block(quantized)) {
        *wide = i32::from(code).wrapping_sub(zero);
    }
    wide
}

/// Applies a scale to a block.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn scaled(tier: Tier, mut block: Block, scale: Scale) -> Block {
    let (multipliers, shifts) =
        ([scale.multiplier(); super::x86::LANES], [scale.shift(); super::x86::LANES]);
    super::x86::apply(tier, &mut block, [&multipliers, &shifts]);
    block
}

/// Adds quantized tensors.
pub fn add(context: Context<'_>, sum: Sum, quantized: [&[i8]; 2], out: &mut [i8]) {
    #[cfg(arm_mve)]
    if sum.headroom < 32 && sum.scales.iter().chain([&sum.scale]).all(|scale| scale.shift() <= 0) {
        return super::mve::add_quantized(&sum, quantized, out);
    }
    #[cfg(target_arch = "x86_64")]
    return map_blocks(
        context,
        quantized,
        out,
        (sum.zeros, sum.offset, sum.bounds),
        #[inline(always)]
        |[mut a, mut b]| {
            for (block, scale) in [(&mut a, sum.scales[0]), (&mut b, sum.scales[1])] {
                block.iter_mut().for_each(|value| *value = value.wrapping_shl(sum.headroom));
                *block = scaled(context.tier, *block, scale);
            }
            a.iter_mut().zip(b).for_each(|(a, b)| *a = a.wrapping_add(b));
            scaled(context.tier, a, sum.scale)
        },
    );
    #[cfg(not(target_arch = "x86_64"))]
    map(
        context,
        quantized,
        out,
        #[inline(always)]
        |quantized| sum.of(quantized),
    );
}

/// Multiplies quantized tensors.
pub fn multiply(context: Context<'_>, product: Product, quantized: [&[i8]; 2], out: &mut [i8]) {
    #[cfg(arm_mve)]
    if product.scale.shift() <= 0 {
        return super::mve::multiply_quantized(&product, quantized, out);
    }
    #[cfg(target_arch = "x86_64")]
    return map_blocks(
        context,
        quantized,
        out,
        (product.zeros, product.offset, product.bounds),
        #[inline(always)]
        |[mut a, b]| {
            a.iter_mut().zip(b).for_each(|(a, b)| *a = a.wrapping_mul(b));
            scaled(context.tier, a, product.scale)
        },
    );
    #[cfg(not(target_arch = "x86_64"))]
    map(
        context,
        quantized,
        out,
        #[inline(always)]
        |quantized| product.of(quantized),
    );
}
