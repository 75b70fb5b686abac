//! [`Difference`]: numerical comparison of two values.

/// Elementwise difference of a value from its expected value.
#[derive(Debug, Clone, Default, PartialEq)]
#[non_exhaustive]
pub struct Difference {
    /// Number of compared elements.
    pub count: usize,
    /// Maximum absolute difference. Infinite if only one of two elements is finite.
    pub max: f64,
    /// Mean absolute difference over elements that are finite in both.
    pub mean: f64,
    /// Signal-to-noise ratio in decibels. Infinite without any difference.
    pub snr: f64,
    /// Cosine similarity. 1 if both are zero.
    pub cosine: f64,
    /// Root mean square of the expected elements.
    pub scale: f64,
    /// Numbers of NaN elements, found and expected.
    pub nans: [usize; 2],
    /// Number of elements out of tolerance.
    pub mismatches: usize,
    /// First element out of tolerance: index, found value, expected value.
    pub first: Option<(usize, f64, f64)>,
}

impl Difference {
    /// Compares values of the same shape. An element is in tolerance if the absolute difference is
    /// at most `atol + rtol * |expected|`. NaN only matches NaN, and an infinity only itself.
    pub fn of(
        found: impl IntoIterator<Item = f64>,
        expected: impl IntoIterator<Item = f64>,
        rtol: f64,
        atol: f64,
    ) -> Self {
        let mut difference = Difference::default();
        let (mut distances, mut finite) = (0.0, 0usize);
        let (mut signal, mut noise, mut energy, mut dot) = (0.0f64, 0.0f64, 0.0f64, 0.0f64);
        for (index, (found, expected)) in found.into_iter().zip(expected).enumerate() {
            difference.count += 1;
            difference.nans[0] += usize::from(found.is_nan());
            difference.nans[1] += usize::from(expected.is_nan());
            let same = found == expected || (found.is_nan() && expected.is_nan());
            let distance = if same { 0.0 } else { (found - expected).abs() };
            let is_close = same || distance <= atol + rtol * expected.abs();
            // NaN or infinity on one side exceeds any tolerance.
            let is_close = is_close && distance.is_finite();
            if !is_close {
                difference.mismatches += 1;
                difference.first.get_or_insert((index, found, expected));
            }
            difference.max =
                difference.max.max(if distance.is_nan() { f64::INFINITY } else { distance });
            if found.is_finite() && expected.is_finite() {
                finite += 1;
                distances += distance;
                signal += expected * expected;
                noise += distance * distance;
                energy += found * found;
                dot += found * expected;
            }
        }
        difference.mean = if finite == 0 { 0.0 } else { distances / finite as f64 };
        difference.scale = if finite == 0 { 0.0 } else { (signal / finite as f64).sqrt() };
        difference.snr = match (signal, noise) {
            (_, 0.0) => f64::INFINITY,
            (signal, noise) => 10.0 * (signal / noise).log10(),
        };
        difference.cosine = match signal.sqrt() * energy.sqrt() {
            0.0 if signal == energy => 1.0,
            0.0 => 0.0,
            both => dot / both,
        };
        difference
    }

    /// Whether all elements are in tolerance.
    pub fn is_close(&self) -> bool {
        self.mismatches == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(found: &[f64], expected: &[f64]) -> Difference {
        Difference::of(found.iter().copied(), expected.iter().copied(), 0.1, 0.01)
    }

    #[test]
    fn metrics_match_their_definitions() {
        let found = of(&[1.0, 2.0, 3.5], &[1.0, 2.0, 3.0]);
        assert_eq!((found.count, found.max, found.mismatches), (3, 0.5, 1));
        assert!((found.mean - 0.5 / 3.0).abs() < 1e-12);
        // 10 log10(14 / 0.25), and 15.5 / (|(1, 2, 3.5)| |(1, 2, 3)|).
        assert!((found.snr - 17.481_880_270_062).abs() < 1e-9, "{}", found.snr);
        assert!((found.cosine - 15.5 / (17.25f64 * 14.0).sqrt()).abs() < 1e-12);
        assert_eq!(found.first, Some((2, 3.5, 3.0)));
        assert!(of(&[1.05], &[1.0]).is_close() && !of(&[1.2], &[1.0]).is_close());
    }

    #[test]
    fn nan_only_matches_nan() {
        let nan = f64::NAN;
        assert!(of(&[nan, f64::INFINITY], &[nan, f64::INFINITY]).is_close());
        for (found, expected) in [(nan, 1.0), (1.0, nan), (f64::INFINITY, 1.0)] {
            let found = of(&[found], &[expected]);
            assert_eq!((found.mismatches, found.max), (1, f64::INFINITY));
        }
        assert!(!of(&[f64::INFINITY], &[f64::NEG_INFINITY]).is_close());
        assert!(!of(&[1.0], &[f64::INFINITY]).is_close());
        assert_eq!(of(&[nan], &[1.0]).nans, [1, 0]);
    }

    #[test]
    fn empty_tensors_do_not_differ() {
        let same = of(&[0.0, 0.0], &[0.0, 0.0]);
        assert_eq!((same.snr, same.cosine, same.max), (f64::INFINITY, 1.0, 0.0));
        assert_eq!(of(&[], &[]).count, 0);
        assert_eq!(of(&[1.0], &[0.0]).cosine, 0.0);
    }
}
