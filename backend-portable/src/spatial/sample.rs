//! Interpolation between pixels: positions and weights over each dim.

use super::feature_map::FeatureMap;
use crate::number::Number;
use crate::real::Real;

/// Maximum number of pixels over one dim that contribute to a sample.
const MAX_TAPS: usize = 4;

/// Pixel positions over one dim, and their weights.
#[derive(Debug, Clone, Copy)]
pub(super) struct Taps<C> {
    count: usize,
    positions: [usize; MAX_TAPS],
    weights: [C; MAX_TAPS],
}

impl<C: Real> Taps<C> {
    pub(super) fn none() -> Self {
        Taps { count: 0, positions: [0; MAX_TAPS], weights: [C::default(); MAX_TAPS] }
    }

    /// A single position with weight 1.
    pub(super) fn one(position: usize) -> Self {
        let mut taps = Taps::none();
        taps.push(position, C::real(1.0));
        taps
    }

    pub(super) fn push(&mut self, position: usize, weight: C) {
        if let (Some(slot), Some(own)) =
            (self.positions.get_mut(self.count), self.weights.get_mut(self.count))
        {
            *slot = position;
            *own = weight;
            self.count += 1;
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (usize, C)> + '_ {
        self.positions.iter().copied().zip(self.weights.iter().copied()).take(self.count)
    }
}

/// Weights of the four pixels around a position, by cubic convolution with a coefficient of -0.75.
/// `t` is the distance of the position from the second pixel.
pub(super) fn cubic<C: Real>(t: C) -> [C; 4] {
    let real = C::real;
    let a = real(-0.75);
    let near = |x: C| ((a + real(2.0)) * x - (a + real(3.0))) * x * x + real(1.0);
    let far = |x: C| ((a * x - real(5.0) * a) * x + real(8.0) * a) * x - real(4.0) * a;
    let s = real(1.0) - t;
    [far(t + real(1.0)), near(t), near(s), far(s + real(1.0))]
}

/// Derivatives of the [`cubic`] weights with respect to `t`.
pub(super) fn cubic_slopes<C: Real>(t: C) -> [C; 4] {
    let real = C::real;
    let a = real(-0.75);
    let near = |x: C| (real(3.0) * (a + real(2.0)) * x - real(2.0) * (a + real(3.0))) * x;
    let far = |x: C| (real(3.0) * a * x - real(10.0) * a) * x + real(8.0) * a;
    let (s, none) = (real(1.0) - t, C::default());
    [far(t + real(1.0)), near(t), none - near(s), none - far(s + real(1.0))]
}

/// Weighted sum over the pixels of one plane, in the rows `y` and columns `x`.
pub(super) fn weighted<T: Number, C: Real>(
    data: &[T],
    plane: usize,
    from: &FeatureMap,
    y: &Taps<C>,
    x: &Taps<C>,
) -> C {
    let mut sum = C::default();
    for (row, row_weight) in y.iter() {
        let start = plane + row * from.strides[3];
        let mut across = C::default();
        for (column, weight) in x.iter() {
            if let Some(&value) = data.get(start + column * from.strides[4]) {
                across = across + weight * C::of(value);
            }
        }
        sum = sum + row_weight * across;
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cubic_weights_interpolate() {
        assert_eq!(cubic(0.0f64), [0.0, 1.0, 0.0, 0.0]);
        // From `torch.nn.functional.interpolate(mode="bicubic")`.
        assert_eq!(cubic(0.5f64), [-0.09375, 0.59375, 0.59375, -0.09375]);
        assert!((cubic(0.3f64).iter().sum::<f64>() - 1.0).abs() < 1e-12);
        let (step, slopes) = (1e-6, cubic_slopes(0.3f64));
        for (at, slope) in slopes.into_iter().enumerate() {
            let [below, above] = [0.3 - step, 0.3 + step].map(|t| cubic(t)[at]);
            assert!(((above - below) / (2.0 * step) - slope).abs() < 1e-8, "{at}");
        }
    }
}
