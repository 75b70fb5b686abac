//! Row-wise reductions, softmax and normalisations. A row is `len` elements; rows are contiguous.

use super::gemm::Context;
use super::math;
use super::simd::{Simd, Vectorized};
use super::split::for_each_chunk_mut;

/// Minimum number of elements for each job.
const GRAIN: usize = 1 << 13;

/// Softmax: `dst = e^(x - max) / sum of e^(x - max)`.
pub fn softmax_rows(context: Context<'_>, src: &[f32], len: usize, dst: &mut [f32]) {
    each_row(context, src, len, dst, len, &|_, row, dst| {
        context.tier.dispatch(Softmax(row, dst));
    });
}

/// Log-softmax: `dst = x - max - ln(sum of e^(x - max))`.
pub fn log_softmax_rows(context: Context<'_>, src: &[f32], len: usize, dst: &mut [f32]) {
    each_row(context, src, len, dst, len, &|_, row, dst| {
        let (max, sum) = context.tier.dispatch(Softmax(row, dst));
        context.tier.dispatch(Rescale {
            src: row,
            dst,
            shift: max,
            low: 0.0,
            scale: 1.0,
            gamma: None,
            beta: Some(Plus(-libm::logf(sum))),
        });
    });
}

/// Layer normalisation: `dst = (x - mean) / sqrt(variance + epsilon) * gamma + beta`, with the
/// biased variance (divided by `len`). `gamma` and `beta` have `len` elements; shorter ones are
/// ignored.
pub fn layer_norm_rows(
    context: Context<'_>,
    src: &[f32],
    len: usize,
    (gamma, beta): (Option<&[f32]>, Option<&[f32]>),
    epsilon: f32,
    dst: &mut [f32],
) {
    let (gamma, beta) = (gamma.filter(|g| g.len() >= len), beta.filter(|b| b.len() >= len));
    each_row(context, src, len, dst, len, &|_, row, dst| {
        let mean = context.tier.dispatch(Sum(row)) / len as f32;
        // Compensates the rounding of the mean: far from zero, its rounding error can be as large
        // as the differences of the values.
        let [low, square] = context.tier.dispatch(Spread(row, mean)).map(|sum| sum / len as f32);
        let variance = square - low * low;
        // NaN stays NaN.
        let variance = if variance < 0.0 { 0.0 } else { variance };
        let scale = 1.0 / libm::sqrtf(variance + epsilon);
        context.tier.dispatch(Rescale {
            src: row,
            dst,
            shift: mean,
            low,
            scale,
            gamma,
            beta: beta.map(Each),
        });
    });
}

/// Function of a row index, the row, and its part of the result.
type RowTask<'a> = dyn Fn(usize, &[f32], &mut [f32]) + Sync + 'a;

/// Calls `f(row index, row, its part of dst)` for the rows that both slices contain completely. A
/// job processes several rows.
fn each_row(
    context: Context<'_>,
    src: &[f32],
    len: usize,
    dst: &mut [f32],
    dst_len: usize,
    f: &RowTask<'_>,
) {
    if dst_len == 0 {
        return;
    }
    let rows = dst.len() / dst_len;
    let rows = src.len().checked_div(len).map_or(rows, |n| n.min(rows));
    let together = (GRAIN / len.max(1)).max(1);
    let Some(dst) = dst.get_mut(..rows * dst_len) else {
        return;
    };
    for_each_chunk_mut(context.parallel, dst, together.saturating_mul(dst_len), &|job, dst| {
        for (i, dst) in dst.chunks_exact_mut(dst_len).enumerate() {
            let row = job * together + i;
            f(row, &src[row * len..][..len], dst);
        }
    });
}

/// Number of independent accumulators, to hide the latency of an addition.
const UNROLL: usize = 4;

struct Max<'a>(&'a [f32]);

impl Vectorized for Max<'_> {
    type Output = f32;
    #[inline(always)]
    fn run<S: Simd>(self, s: S) -> f32 {
        let x = self.0;
        let mut acc = s.splat(f32::NEG_INFINITY);
        // NaN accumulator: the comparison drops a NaN.
        let mut nan = s.splat(0.0);
        let full = x.len() - x.len() % S::LANES;
        let mut i = 0;
        while i < full {
            // SAFETY: `i + LANES <= len`.
            let v = unsafe { s.load(x.as_ptr().add(i)) };
            acc = s.max(v, acc);
            nan = s.select(s.is_nan(v), v, nan);
            i += S::LANES;
        }
        if full > 0 && full < x.len() {
            // The last vector overlaps the preceding one, which does not change the maximum.
            // SAFETY: `LANES <= full < len`.
            let v = unsafe { s.load(x.as_ptr().add(x.len() - S::LANES)) };
            acc = s.max(v, acc);
            nan = s.select(s.is_nan(v), v, nan);
        }
        if s.reduce_sum(nan).is_nan() {
            return f32::NAN;
        }
        let few = if full > 0 { &[] } else { x };
        let max = if full > 0 { s.reduce_max(acc) } else { f32::NEG_INFINITY };
        few.iter().fold(max, |max, &v| if v > max || v.is_nan() { v } else { max })
    }
}

struct Sum<'a>(&'a [f32]);

impl Vectorized for Sum<'_> {
    type Output = f32;
    #[inline(always)]
    fn run<S: Simd>(self, s: S) -> f32 {
        fold(s, self.0, Identity)[0]
    }
}

/// The sums of `x - .1` and of `(x - .1)^2`.
struct Spread<'a>(&'a [f32], f32);

impl Vectorized for Spread<'_> {
    type Output = [f32; 2];
    #[inline(always)]
    fn run<S: Simd>(self, s: S) -> [f32; 2] {
        fold(s, self.0, Difference(self.1))
    }
}

/// A term of a reduction with `N` sums.
trait Term<const N: usize>: Copy {
    fn of<S: Simd>(self, s: S, x: S::F, acc: [S::F; N]) -> [S::F; N];
}

#[derive(Clone, Copy)]
struct Identity;

impl Term<1> for Identity {
    #[inline(always)]
    fn of<S: Simd>(self, s: S, x: S::F, [acc]: [S::F; 1]) -> [S::F; 1] {
        [s.add(x, acc)]
    }
}

#[derive(Clone, Copy)]
struct Difference(f32);

impl Term<2> for Difference {
    #[inline(always)]
    fn of<S: Simd>(self, s: S, x: S::F, [sum, squares]: [S::F; 2]) -> [S::F; 2] {
        let d = s.sub(x, s.splat(self.0));
        [s.add(d, sum), s.mul_add(d, d, squares)]
    }
}

#[inline(always)]
fn fold<S: Simd, T: Term<N>, const N: usize>(s: S, x: &[f32], term: T) -> [f32; N] {
    let mut acc = [[s.splat(0.0); N]; UNROLL];
    let mut blocks = x.chunks_exact(UNROLL * S::LANES);
    for block in &mut blocks {
        for (v, acc) in acc.iter_mut().enumerate() {
            // SAFETY: the block holds UNROLL vectors.
            *acc = term.of(s, unsafe { s.load(block.as_ptr().add(v * S::LANES)) }, *acc);
        }
    }
    let mut vectors = blocks.remainder().chunks_exact(S::LANES);
    for vector in &mut vectors {
        // SAFETY: the chunk holds one vector.
        acc[0] = term.of(s, unsafe { s.load(vector.as_ptr()) }, acc[0]);
    }
    let sum =
        |n: usize| s.reduce_sum(s.add(s.add(acc[0][n], acc[1][n]), s.add(acc[2][n], acc[3][n])));
    let mut sums = core::array::from_fn(sum);
    for &x in vectors.remainder() {
        sums = term.of(super::simd::Scalar, x, sums);
    }
    sums
}

/// Writes the softmax of a row; returns its maximum and the sum of the exponentials.
struct Softmax<'a>(&'a [f32], &'a mut [f32]);

impl Vectorized for Softmax<'_> {
    type Output = (f32, f32);
    #[inline(always)]
    fn run<S: Simd>(self, s: S) -> (f32, f32) {
        let Softmax(x, dst) = self;
        let max = Max(x).run(s);
        let dst = &mut dst[..x.len()];
        let shift = s.splat(max);
        let mut acc = s.splat(0.0);
        let full = x.len() - x.len() % S::LANES;
        let mut i = 0;
        while i < full {
            // SAFETY: `i + LANES <= len`, of both slices.
            unsafe {
                let e = math::exp(s, s.sub(s.load(x.as_ptr().add(i)), shift));
                acc = s.add(acc, e);
                s.store(dst.as_mut_ptr().add(i), e);
            }
            i += S::LANES;
        }
        let rest = x.len() - full;
        if rest > 0 {
            // SAFETY: `rest < LANES` elements of both slices follow `full`; the stored values are
            // loaded without the lanes after them.
            unsafe {
                let to = dst.as_mut_ptr().add(full);
                let e = math::exp(s, s.sub(s.load_first(x.as_ptr().add(full), rest), shift));
                s.store_first(to, rest, e);
                acc = s.add(acc, s.load_first(to, rest));
            }
        }
        let sum = s.reduce_sum(acc);
        let (scale, ptr, len) = (s.splat(1.0 / sum), dst.as_mut_ptr(), dst.len());
        let mut i = 0;
        while i < len {
            // SAFETY: at most `len - i` elements from index `i` on are accessed.
            unsafe {
                s.store_upto(ptr.add(i), len - i, s.mul(s.load_upto(ptr.add(i), len - i), scale))
            };
            i += S::LANES;
        }
        (max, sum)
    }
}

/// Shift term of [`Rescale`]: one value per element, or the same for all.
trait Summand: Copy {
    /// # Safety
    /// `min(left, LANES)` elements follow index `i`.
    unsafe fn at<S: Simd>(self, s: S, i: usize, left: usize) -> S::F;
}

#[derive(Clone, Copy)]
struct Each<'a>(&'a [f32]);

impl Summand for Each<'_> {
    #[inline(always)]
    unsafe fn at<S: Simd>(self, s: S, i: usize, left: usize) -> S::F {
        // SAFETY: guaranteed by the caller.
        unsafe { s.load_upto(self.0.as_ptr().add(i), left) }
    }
}

#[derive(Clone, Copy)]
struct Plus(f32);

impl Summand for Plus {
    #[inline(always)]
    unsafe fn at<S: Simd>(self, s: S, _: usize, _: usize) -> S::F {
        s.splat(self.0)
    }
}

/// `dst = (src - shift - low) * scale * gamma + beta`, where `low` is a small correction of
/// `shift`.
struct Rescale<'a, B = Each<'a>> {
    src: &'a [f32],
    dst: &'a mut [f32],
    shift: f32,
    low: f32,
    scale: f32,
    gamma: Option<&'a [f32]>,
    beta: Option<B>,
}

impl<B: Summand> Vectorized for Rescale<'_, B> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let (shift, scale) = (s.splat(self.shift), s.splat(self.scale));
        // -0.0 is the neutral element of addition; it avoids NaN from an infinite scale.
        let rest = s.splat(if self.low == 0.0 { -0.0 } else { -self.low * self.scale });
        let len = self.src.len().min(self.dst.len());
        let mut i = 0;
        while i < len {
            let left = len - i;
            // SAFETY: at most `left` elements from index `i` on are accessed; gamma and beta have
            // the length of a row.
            unsafe {
                let x = s.sub(s.load_upto(self.src.as_ptr().add(i), left), shift);
                let mut x = s.mul_add(x, scale, rest);
                match (self.gamma, self.beta) {
                    (Some(gamma), beta) => {
                        let gamma = s.load_upto(gamma.as_ptr().add(i), left);
                        x = match beta {
                            Some(beta) => s.mul_add(x, gamma, beta.at(s, i, left)),
                            None => s.mul(x, gamma),
                        };
                    }
                    (None, Some(beta)) => x = s.add(x, beta.at(s, i, left)),
                    (None, None) => {}
                }
                s.store_upto(self.dst.as_mut_ptr().add(i), left, x);
            }
            i += S::LANES;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compute::simd::Tier;
    use crate::compute::split::Serial;
    use crate::compute::testing::{Noise, assert_close};
    use crate::compute::threads::ThreadPool;

    fn f64s(x: &[f32]) -> Vec<f64> {
        x.iter().map(|&x| f64::from(x)).collect()
    }

    #[test]
    fn rows_of_all_lengths() {
        let pool = ThreadPool::new(2);
        let mut noise = Noise::new(21);
        for tier in Tier::available() {
            for len in (1..40).chain([64, 100, 129, 1000, 5000]) {
                let rows = 1 + noise.below(9);
                let context = Context { tier, parallel: if len > 20 { &pool } else { &Serial } };
                let x: Vec<f32> = noise.floats(rows * len).iter().map(|x| x * 20.0).collect();
                let (gamma, beta) = (noise.floats(len), noise.floats(len));
                let mut dst = vec![0.0; rows * len];
                let expect = |f: &dyn Fn(&[f64]) -> Vec<f64>| -> Vec<f32> {
                    x.chunks(len).flat_map(|row| f(&f64s(row))).map(|x| x as f32).collect()
                };
                let max = |row: &[f64]| row.iter().copied().fold(f64::MIN, f64::max);
                let logsum = |row: &[f64]| {
                    let max = max(row);
                    max + row.iter().map(|x| (x - max).exp()).sum::<f64>().ln()
                };
                let largest: Vec<f32> = x.chunks(len).map(|row| tier.dispatch(Max(row))).collect();
                assert_eq!(largest, expect(&|row| vec![max(row)]));
                let sums: Vec<f32> = x.chunks(len).map(|row| tier.dispatch(Sum(row))).collect();
                assert_close(&sums, &expect(&|row| vec![row.iter().sum()]), 1e-4, "sum");
                softmax_rows(context, &x, len, &mut dst);
                let want = expect(&|row| {
                    let all = logsum(row);
                    row.iter().map(|x| (x - all).exp()).collect()
                });
                assert_close(&dst, &want, 1e-6, "softmax");
                log_softmax_rows(context, &x, len, &mut dst);
                let want = expect(&|row| {
                    let all = logsum(row);
                    row.iter().map(|x| x - all).collect()
                });
                assert_close(&dst, &want, 2e-6, "log softmax");
                let n = len as f64;
                layer_norm_rows(context, &x, len, (Some(&gamma), Some(&beta)), 1e-5, &mut dst);
                let want = expect(&|row| {
                    let mean = row.iter().sum::<f64>() / n;
                    let scale = 1.0
                        / (row.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / n + 1e-5).sqrt();
                    let at = |i: usize| {
                        (row[i] - mean) * scale * f64::from(gamma[i]) + f64::from(beta[i])
                    };
                    (0..len).map(at).collect()
                });
                // A row of one element has no variance: the result is magnified rounding error.
                assert_close(&dst, &want, if len < 3 { 1e-2 } else { 1e-5 }, "layer norm");
            }
        }
    }

    /// Values close to each other and far from zero keep the precision of their differences.
    #[test]
    fn layer_norm_is_accurate_far_from_zero() {
        let mut noise = Noise::new(22);
        for tier in Tier::available() {
            let context = Context { tier, parallel: &Serial };
            for (mean, len) in [1e3, 1e4, 1e5, 1e6]
                .map(|mean| [64, 100, 771, 4096].map(|len| (mean, len)))
                .concat()
            {
                let x: Vec<f32> = noise.floats(len).iter().map(|x| mean + 2.0 * x).collect();
                let mut dst = vec![0.0; len];
                layer_norm_rows(context, &x, len, (None, None), 1e-5, &mut dst);
                let n = len as f64;
                let row = f64s(&x);
                let mean = row.iter().sum::<f64>() / n;
                let variance = row.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / n;
                for (x, dst) in row.iter().zip(&dst) {
                    let want = (x - mean) / (variance + 1e-5).sqrt();
                    let off = (f64::from(*dst) - want).abs();
                    assert!(
                        off < 2e-6 * (1.0 + want.abs()),
                        "{} {mean} {len}: {dst} {want}",
                        tier.name()
                    );
                }
            }
        }
    }

    #[test]
    fn special_values() {
        for tier in Tier::available() {
            let context = Context { tier, parallel: &Serial };
            for len in [1, 5, 16, 40] {
                for at in [0, len / 2, len - 1] {
                    let mut x = vec![1.0; len];
                    x[at] = f32::NAN;
                    assert!(tier.dispatch(Max(&x)).is_nan(), "{} {len} {at}", tier.name());
                    let mut dst = vec![0.0; len];
                    softmax_rows(context, &x, len, &mut dst);
                    assert!(dst.iter().all(|x| x.is_nan()));
                    x[at] = f32::NEG_INFINITY;
                    softmax_rows(context, &x, len, &mut dst);
                    assert!(len == 1 || dst[at] == 0.0);
                }
            }
            assert_eq!(tier.dispatch(Max(&[])), f32::NEG_INFINITY);
            assert_eq!(tier.dispatch(Sum(&[])), 0.0);
        }
    }
}
