//! Sums and products of codes, element by element.

use super::{Scale, vectorized};
use crate::compute::simd::Tier;
use crate::compute::split::{chunk_len, for_each_chunk_mut};
use crate::parallel::Parallel;

/// A sum of two codes with scales and zero points of their own.
#[derive(Debug, Clone, Copy)]
pub struct Sum {
    /// The zero points of both.
    pub zeros: [i32; 2],
    /// What takes both to a common scale.
    pub scales: [Scale; 2],
    /// Bits that both are shifted to the left before.
    pub room: u32,
    /// From the common scale to the output's.
    pub scale: Scale,
    /// The output's zero point.
    pub offset: i32,
    /// The least and the greatest result.
    pub bounds: (i32, i32),
}

impl Sum {
    /// The code of two codes' sum.
    #[inline(always)]
    pub fn of(&self, codes: [i32; 2]) -> i32 {
        let [a, b] = [0, 1].map(|side| {
            let value = codes[side].wrapping_sub(self.zeros[side]).wrapping_shl(self.room);
            self.scales[side].apply_and_add(value, 0)
        });
        let code = self.scale.apply_and_add(a.wrapping_add(b), self.offset);
        code.max(self.bounds.0).min(self.bounds.1)
    }
}

/// A product of two codes.
#[derive(Debug, Clone, Copy)]
pub struct Product {
    /// The zero points of both.
    pub zeros: [i32; 2],
    /// From the product of both scales to the output's.
    pub scale: Scale,
    /// The output's zero point.
    pub offset: i32,
    /// The least and the greatest result.
    pub bounds: (i32, i32),
}

impl Product {
    /// The code of two codes' product.
    #[inline(always)]
    pub fn of(&self, codes: [i32; 2]) -> i32 {
        let [a, b] = [0, 1].map(|side| codes[side].wrapping_sub(self.zeros[side]));
        let code = self.scale.apply_and_add(a.wrapping_mul(b), self.offset);
        code.max(self.bounds.0).min(self.bounds.1)
    }
}

/// Elements that are worth a thread of their own.
const GRAIN: usize = 16 * 1024;

/// How elements are computed: instructions and threads.
#[derive(Clone, Copy)]
pub struct Means<'a> {
    /// Instructions.
    pub tier: Tier,
    /// Threads.
    pub parallel: &'a dyn Parallel,
}

/// Computes `out` of pairs of codes.
#[inline(always)]
fn map(means: Means<'_>, [a, b]: [&[i8]; 2], out: &mut [i8], of: impl Fn([i32; 2]) -> i32 + Sync) {
    let len = chunk_len(means.parallel, out.len(), GRAIN).max(1);
    for_each_chunk_mut(means.parallel, out, len, &|index, out: &mut [i8]| {
        let [a, b] = [a, b].map(|codes| codes.get(index * len..).unwrap_or(&[]));
        vectorized(
            means.tier,
            #[inline(always)]
            || {
                for ((out, &a), &b) in out.iter_mut().zip(a).zip(b) {
                    *out = of([a.into(), b.into()]) as i8;
                }
            },
        );
    });
}

/// Adds codes.
pub fn add(means: Means<'_>, sum: Sum, codes: [&[i8]; 2], out: &mut [i8]) {
    #[cfg(arm_mve)]
    if sum.room < 32 && sum.scales.iter().chain([&sum.scale]).all(|scale| scale.shift() <= 0) {
        return super::mve::add_codes(&sum, codes, out);
    }
    map(
        means,
        codes,
        out,
        #[inline(always)]
        |codes| sum.of(codes),
    );
}

/// Multiplies codes.
pub fn multiply(means: Means<'_>, product: Product, codes: [&[i8]; 2], out: &mut [i8]) {
    #[cfg(arm_mve)]
    if product.scale.shift() <= 0 {
        return super::mve::multiply_codes(&product, codes, out);
    }
    map(
        means,
        codes,
        out,
        #[inline(always)]
        |codes| product.of(codes),
    );
}
