//! Pooling with channels last: reduces a window for all channels of a pixel.

use super::simd::{Simd, Vectorized};

/// Reduction over the elements of a window.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Fold {
    /// Maximum. NaN propagates; an empty window gives minus infinity.
    Max,
    /// Sum divided by this value; an empty window gives zero.
    Average(f32),
}

/// Pooling window of one output pixel: input pixels in up to three dims, each with a
/// contiguous run of channels.
#[derive(Debug)]
pub struct PoolWindow<'a> {
    /// Input image.
    pub input: &'a [f32],
    /// Offset of the first channel of the first input pixel.
    pub at: usize,
    /// Number of input pixels in each dim.
    pub counts: [usize; 3],
    /// Strides in elements.
    pub steps: [usize; 3],
    /// The reduction.
    pub fold: Fold,
    /// Channels of the output pixel.
    pub out: &'a mut [f32],
}

/// Number of vectors of channels that one iteration handles.
const UNROLL: usize = 4;

impl PoolWindow<'_> {
    /// Whether all pixels of the window lie inside the image.
    fn fits(&self) -> bool {
        let far = self.counts.iter().zip(self.steps).try_fold(self.at, |far, (&count, step)| {
            far.checked_add(count.checked_sub(1)?.checked_mul(step)?)
        });
        let end = far.and_then(|far| far.checked_add(self.out.len()));
        self.counts.contains(&0) || end.is_some_and(|end| end <= self.input.len())
    }

    /// Reduces `V` vectors of channels starting at channel `c`; with `TAIL`, one vector of the
    /// remaining channels.
    ///
    /// # Safety
    /// The window lies inside the image. `V * LANES` channels follow `c`; with `TAIL`, at least one
    /// and fewer than `LANES`.
    #[inline(always)]
    unsafe fn vectors<S: Simd, const V: usize, const TAIL: bool>(&mut self, s: S, c: usize) {
        let lanes = self.out.len() - c;
        let largest = self.fold == Fold::Max;
        let mut acc = [s.splat(if largest { f32::NEG_INFINITY } else { 0.0 }); V];
        let [depth, height, width] = self.counts;
        let first = self.input.as_ptr().wrapping_add(self.at + c);
        for d in 0..depth {
            for h in 0..height {
                let row = first.wrapping_add(d * self.steps[0] + h * self.steps[1]);
                for w in 0..width {
                    let position = row.wrapping_add(w * self.steps[2]);
                    for v in 0..V {
                        let p = position.wrapping_add(v * S::LANES);
                        // SAFETY: guaranteed by the caller.
                        let x = unsafe { if TAIL { s.load_first(p, lanes) } else { s.load(p) } };
                        acc[v] = if largest {
                            s.select(s.is_nan(x), x, s.max(x, acc[v]))
                        } else {
                            s.add(acc[v], x)
                        };
                    }
                }
            }
        }
        for v in 0..V {
            if let Fold::Average(by) = self.fold
                && !self.counts.contains(&0)
            {
                acc[v] = s.div(acc[v], s.splat(by));
            }
            let p = self.out.as_mut_ptr().wrapping_add(c + v * S::LANES);
            // SAFETY: guaranteed by the caller.
            unsafe { if TAIL { s.store_first(p, lanes, acc[v]) } else { s.store(p, acc[v]) } };
        }
    }
}

/// Computes one pixel. Leaves the output unchanged if the window does not lie inside the image.
impl Vectorized for PoolWindow<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(mut self, s: S) {
        if !self.fits() {
            return;
        }
        let (len, mut c) = (self.out.len(), 0);
        // SAFETY: the window fits, and each call accesses channels below `len`.
        unsafe {
            while c + UNROLL * S::LANES <= len {
                self.vectors::<S, UNROLL, false>(s, c);
                c += UNROLL * S::LANES;
            }
            while c + S::LANES <= len {
                self.vectors::<S, 1, false>(s, c);
                c += S::LANES;
            }
            if c < len {
                self.vectors::<S, 1, true>(s, c);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compute::simd::Tier;
    use crate::compute::testing::{Noise, assert_close};

    #[test]
    fn windows_of_all_widths() {
        let mut noise = Noise::new(3);
        for tier in Tier::available() {
            for channels in (1..40).chain([64, 65, 130]) {
                let sizes = [2, 3, 4].map(|max_size| noise.below(max_size + 1));
                let steps = [noise.below(9), noise.below(9), noise.below(9)].map(|n| n * channels);
                let at = noise.below(50);
                let far: usize =
                    (0..3).map(|i| sizes[i].saturating_sub(1) * steps[i]).sum::<usize>() + at;
                let mut input = noise.floats(far + channels);
                if noise.below(3) == 0 {
                    input[at] = f32::NAN;
                }
                let positions = || {
                    (0..sizes[0] * sizes[1] * sizes[2]).map(|i| {
                        let (w, h) = (i % sizes[2], i / sizes[2] % sizes[1]);
                        let d = i / sizes[2] / sizes[1];
                        at + d * steps[0] + h * steps[1] + w * steps[2]
                    })
                };
                for fold in [Fold::Max, Fold::Average(3.0)] {
                    let want: Vec<f32> = (0..channels)
                        .map(|c| {
                            let values = positions().map(|p| f64::from(input[p + c]));
                            let value = match fold {
                                Fold::Average(by) => values.sum::<f64>() / f64::from(by),
                                Fold::Max => values.fold(f64::NEG_INFINITY, |a, b| {
                                    if a.is_nan() || a > b { a } else { b }
                                }),
                            };
                            value as f32
                        })
                        .collect();
                    let mut out = vec![9.0; channels];
                    let (input, counts) = (&input[..], sizes);
                    tier.dispatch(PoolWindow { input, at, counts, steps, fold, out: &mut out });
                    assert_close(&out, &want, 1e-6, tier.name());
                }
            }
        }
    }

    #[test]
    fn windows_outside_the_image_do_nothing() {
        let (input, mut out) = ([1.0; 8], [9.0; 4]);
        for (at, counts, steps) in [
            (5, [1; 3], [0; 3]),
            (0, [1, 1, 3], [0, 0, 3]),
            (usize::MAX, [1; 3], [0; 3]),
            (0, [usize::MAX; 3], [usize::MAX; 3]),
        ] {
            let (input, fold) = (&input[..], Fold::Max);
            Tier::detect().dispatch(PoolWindow { input, at, counts, steps, fold, out: &mut out });
            assert_eq!(out, [9.0; 4]);
        }
    }
}
