//! Attention of few queries over strided vectors, as in a KV cache: scores, softmax weights, and
//! weighted sums of the values.

use super::math;
use super::simd::{LINE, Simd, Vectorized};

/// Number of partial sums of a dot product. It is independent of the processor's vector length, so
/// that results are the same on all processors.
const PARTIAL_SUMS: usize = 16;
/// Prefetch distance in vectors: hardware prefetchers do not follow their stride.
const AHEAD: usize = 12;
/// Number of SIMD vectors that a weighted sum computes at once.
const UNROLL: usize = 4;

/// Strided vectors: `count` vectors of `depth` elements, with a stride of `step` elements.
#[derive(Clone, Copy)]
pub(crate) struct Lines<'p> {
    data: &'p [f32],
    step: usize,
    depth: usize,
    count: usize,
}

impl<'p> Lines<'p> {
    /// Returns `None` if the data is too short.
    pub(crate) fn new(data: &'p [f32], step: usize, depth: usize, count: usize) -> Option<Self> {
        let last = count.saturating_sub(1).checked_mul(step)?.checked_add(depth)?;
        (count == 0 || last <= data.len()).then_some(Lines { data, step, depth, count })
    }

    #[inline(always)]
    fn each(self) -> impl Iterator<Item = &'p [f32]> {
        let Lines { data, step, depth, count } = self;
        (0..count).map_while(move |at| data.get(at * step..)?.get(..depth))
    }

    /// Addresses of the cache lines of vector `index`. They may lie outside the data, since they
    /// are only prefetched.
    #[inline(always)]
    fn cache_lines(self, index: usize) -> impl Iterator<Item = *const f32> {
        let first = self.data.as_ptr().wrapping_add(index.wrapping_mul(self.step));
        (0..self.depth).step_by(LINE).map(move |at| first.wrapping_add(at))
    }
}

/// Sum by pairwise reduction; a sequential sum would wait for each addition.
#[inline(always)]
fn pairwise_sum(mut values: [f32; PARTIAL_SUMS]) -> f32 {
    let mut half = PARTIAL_SUMS / 2;
    while half > 0 {
        for at in 0..half {
            values[at] += values[at + half];
        }
        half /= 2;
    }
    values[0]
}

/// Computes the partial sums of a dot product: partial sum `i` adds the products `i`,
/// `i + PARTIAL_SUMS`, and so on.
#[inline(always)]
fn partial_dot<S: Simd>(
    s: S,
    a: &[[f32; PARTIAL_SUMS]],
    b: &[[f32; PARTIAL_SUMS]],
) -> [f32; PARTIAL_SUMS] {
    const { assert!(PARTIAL_SUMS.is_multiple_of(S::LANES)) };
    let mut sums = [s.splat(0.0); PARTIAL_SUMS];
    for (a, b) in a.iter().zip(b) {
        for (part, sum) in sums.iter_mut().enumerate().take(PARTIAL_SUMS / S::LANES) {
            let from = part * S::LANES;
            // SAFETY: `part` covers `LANES` elements of both arrays.
            let (a, b) = unsafe { (s.load(a.as_ptr().add(from)), s.load(b.as_ptr().add(from))) };
            *sum = s.add(*sum, s.mul(a, b));
        }
    }
    let mut side = [0f32; PARTIAL_SUMS];
    for (part, sum) in sums.iter().enumerate().take(PARTIAL_SUMS / S::LANES) {
        // SAFETY: `part` covers `LANES` elements of the array.
        unsafe { s.store(side.as_mut_ptr().add(part * S::LANES), *sum) };
    }
    side
}

/// Attention scores of few queries, key by key.
pub(crate) struct Scores<'a> {
    /// `[query, depth]`
    pub(crate) a: &'a [f32],
    pub(crate) vectors: Lines<'a>,
    /// Vectors that the next call reads, prefetched into the L2 cache.
    pub(crate) next: Option<Lines<'a>>,
    pub(crate) scale: f32,
    /// `[query, key]`
    pub(crate) c: &'a mut [f32],
}

impl Vectorized for Scores<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Scores { a, vectors, mut next, scale, c } = self;
        let queries = a.chunks_exact(vectors.depth.max(1));
        for (query, scores) in queries.zip(c.chunks_exact_mut(vectors.count.max(1))) {
            let (front, rest) = query.as_chunks::<PARTIAL_SUMS>();
            for (index, (score, key)) in scores.iter_mut().zip(vectors.each()).enumerate() {
                vectors.cache_lines(index + AHEAD).for_each(|line| s.prefetch(line));
                for next in next.iter() {
                    next.cache_lines(index).for_each(|line| s.prefetch_second(line));
                }
                let (key, key_rest) = key.as_chunks::<PARTIAL_SUMS>();
                let side = partial_dot(s, front, key);
                let rest: f32 = rest.iter().zip(key_rest).map(|(a, b)| a * b).sum();
                *score = (pairwise_sum(side) + rest) * scale;
            }
            // Prefetches are only issued for the first query.
            next = None;
        }
    }
}

/// Last step of attention with few queries: adds `a * vectors` to `c`, where `a` has the attention
/// weights and `vectors` are the value vectors.
pub(crate) struct Mix<'a> {
    /// `[query, key]`
    pub(crate) a: &'a [f32],
    pub(crate) vectors: Lines<'a>,
    /// `[query, depth]`
    pub(crate) c: &'a mut [f32],
}

impl Vectorized for Mix<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Mix { a, vectors, c } = self;
        let weights = a.chunks_exact(vectors.count.max(1));
        for (weights, sums) in weights.zip(c.chunks_exact_mut(vectors.depth.max(1))) {
            let (blocks, rest) = sums.as_chunks_mut::<PARTIAL_SUMS>();
            let behind = blocks.len() * PARTIAL_SUMS;
            let mut at = 0;
            while at < behind {
                let part = &mut blocks.as_flattened_mut()[at..];
                at += match part.len() / S::LANES {
                    UNROLL.. => add_weighted::<S, UNROLL>(s, weights, vectors, at, part),
                    3 => add_weighted::<S, 3>(s, weights, vectors, at, part),
                    2 => add_weighted::<S, 2>(s, weights, vectors, at, part),
                    _ => add_weighted::<S, 1>(s, weights, vectors, at, part),
                };
            }
            if rest.is_empty() {
                continue;
            }
            for (weight, value) in weights.iter().zip(vectors.each()) {
                let value = value.get(behind..).unwrap_or_default();
                for (sum, value) in rest.iter_mut().zip(value) {
                    *sum += weight * value;
                }
            }
        }
    }
}

/// Adds `N` SIMD vectors of the weighted sum: elements `at..` of each value vector. Returns the
/// number of elements.
#[inline(always)]
fn add_weighted<S: Simd, const N: usize>(
    s: S,
    weights: &[f32],
    vectors: Lines<'_>,
    at: usize,
    sums: &mut [f32],
) -> usize {
    let elements = N * S::LANES;
    let Lines { data, step, depth, count } = vectors;
    assert!(at + elements <= depth && sums.len() >= elements && weights.len() <= count);
    // Two independent accumulators.
    let mut accumulators = [[s.splat(0.0); N]; 2];
    let add = |side: &mut [S::F; N], weight: f32, index: usize| {
        let (weight, from) = (s.splat(weight), data.as_ptr().wrapping_add(index * step + at));
        for (v, side) in side.iter_mut().enumerate() {
            // SAFETY: `count` vectors of `depth` elements exist, and `at + elements <= depth`, as
            // asserted.
            let value = unsafe { s.load(from.wrapping_add(v * S::LANES)) };
            *side = s.add(*side, s.mul(weight, value));
        }
    };
    let (pairs, odd) = weights.as_chunks::<2>();
    for (index, [first, second]) in pairs.iter().enumerate() {
        add(&mut accumulators[0], *first, 2 * index);
        add(&mut accumulators[1], *second, 2 * index + 1);
    }
    for weight in odd {
        add(&mut accumulators[0], *weight, 2 * pairs.len());
    }
    let [first, second] = accumulators;
    for (v, (first, second)) in first.into_iter().zip(second).enumerate() {
        let to = sums.as_mut_ptr().wrapping_add(v * S::LANES);
        // SAFETY: `sums` has at least `elements` elements, as asserted.
        unsafe { s.store(to, s.add(s.load(to), s.add(first, second))) };
    }
    elements
}

/// Maximum of a row, or `least` if that is larger. NaN is ignored.
pub(crate) struct RowMax<'a> {
    pub(crate) row: &'a [f32],
    pub(crate) least: f32,
}

impl Vectorized for RowMax<'_> {
    type Output = f32;

    #[inline(always)]
    fn run<S: Simd>(self, _: S) -> f32 {
        let larger = |a: f32, b: f32| if b > a { b } else { a };
        let (chunks, rest) = self.row.as_chunks::<PARTIAL_SUMS>();
        let mut side = [self.least; PARTIAL_SUMS];
        for chunk in chunks {
            for at in 0..PARTIAL_SUMS {
                side[at] = larger(side[at], chunk[at]);
            }
        }
        side.iter().chain(rest).copied().fold(self.least, larger)
    }
}

/// Replaces scores by `exp(score - max)`, and returns their sum.
pub(crate) struct ExpSum<'a> {
    pub(crate) row: &'a mut [f32],
    pub(crate) max: f32,
}

impl Vectorized for ExpSum<'_> {
    type Output = f32;

    #[inline(always)]
    fn run<S: Simd>(self, s: S) -> f32 {
        let ExpSum { row, max } = self;
        let max = s.splat(max);
        for part in row.chunks_mut(S::LANES) {
            let (at, len) = (part.as_mut_ptr(), part.len());
            // SAFETY: the part has `len` elements.
            unsafe {
                s.store_upto(at, len, math::exp(s, s.sub(s.load_upto(at, len), max)));
            }
        }
        let (chunks, rest) = row.as_chunks::<PARTIAL_SUMS>();
        let mut side = [0f32; PARTIAL_SUMS];
        for chunk in chunks {
            for at in 0..PARTIAL_SUMS {
                side[at] += chunk[at];
            }
        }
        pairwise_sum(side) + rest.iter().sum::<f32>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compute::simd::Tier;
    use crate::compute::testing::Noise;
    use std::vec;
    use std::vec::Vec;

    /// Sums terms sequentially in `sums` interleaved partial sums, the order that all tiers use.
    fn in_order(terms: impl Iterator<Item = f32> + Clone, sums: usize) -> Vec<f32> {
        (0..sums).map(|at| terms.clone().skip(at).step_by(sums).fold(0.0, |a, b| a + b)).collect()
    }

    #[test]
    fn all_tiers_sum_up_in_the_same_order() {
        let mut noise = Noise::new(5);
        for (depth, count, step) in
            [(1, 1, 1), (16, 3, 16), (48, 7, 100), (70, 2, 70), (33, 130, 40), (128, 9, 128)]
        {
            let data = noise.floats((count - 1) * step + depth);
            let (query, weights) = (noise.floats(depth), noise.floats(count));
            let vectors = Lines::new(&data, step, depth, count).unwrap();
            let whole = depth - depth % PARTIAL_SUMS;
            let vector = |at: usize| &data[at * step..][..depth];
            let scores: Vec<f32> = (0..count)
                .map(|at| {
                    let partial_dot = vector(at).iter().zip(&query).map(|(a, b)| a * b);
                    let side = in_order(partial_dot.clone().take(whole), PARTIAL_SUMS);
                    let rest: f32 = partial_dot.skip(whole).sum();
                    (pairwise_sum(side.try_into().unwrap()) + rest) * 0.3
                })
                .collect();
            let add_weighted: Vec<f32> = (0..depth)
                .map(|at| {
                    let terms =
                        weights.iter().enumerate().map(|(key, weight)| weight * vector(key)[at]);
                    match at < whole {
                        true => 1.5 + in_order(terms, 2).iter().sum::<f32>(),
                        false => terms.fold(1.5, |a, b| a + b),
                    }
                })
                .collect();
            for tier in Tier::available() {
                let what = std::format!("{depth} {count} {step} {tier:?}");
                let mut found = vec![0.0; count];
                let next = Some(vectors);
                tier.dispatch(Scores { a: &query, vectors, next, scale: 0.3, c: &mut found });
                assert_eq!(found, scores, "{what}");
                let mut found = vec![1.5; depth];
                tier.dispatch(Mix { a: &weights, vectors, c: &mut found });
                assert_eq!(found, add_weighted, "{what}");
            }
            assert!(Lines::new(&data[1..], step, depth, count).is_none());
        }
    }

    #[test]
    fn exp_weights_and_sum() {
        for tier in Tier::available() {
            for len in [1, 15, 16, 40] {
                let mut row: Vec<f32> = (0..len).map(|at| at as f32 / 7.0).collect();
                let largest = tier.dispatch(RowMax { row: &row, least: f32::NEG_INFINITY });
                assert_eq!(largest, (len - 1) as f32 / 7.0);
                let wanted: Vec<f64> =
                    row.iter().map(|score| f64::from(score - largest).exp()).collect();
                let total = tier.dispatch(ExpSum { row: &mut row, max: largest });
                let near = |a: f32, b: f64| (f64::from(a) - b).abs() < 1e-6 * b;
                assert!(row.iter().zip(&wanted).all(|(a, b)| near(*a, *b)), "{len} {tier:?}");
                assert!(near(total, wanted.iter().sum()), "{len} {tier:?}");
            }
        }
    }
}
