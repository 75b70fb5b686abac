//! How far two values are from each other.

/// How far a value is from the one that it should be, element by element.
#[derive(Debug, Clone, Default, PartialEq)]
#[non_exhaustive]
pub struct Difference {
    /// Elements that were compared.
    pub count: usize,
    /// The largest distance; infinite where one is infinite and the other is not.
    pub max: f64,
    /// The mean distance, of elements where both are numbers.
    pub mean: f64,
    /// The ratio of signal to noise, in decibels; infinite where nothing differs.
    pub snr: f64,
    /// The cosine of the angle between the two; 1 where both are zero.
    pub cosine: f64,
    /// The root of the mean square of what is expected.
    pub scale: f64,
    /// Elements that are not a number, of what is found and of what is expected.
    pub nans: [usize; 2],
    /// Elements that are out of tolerance.
    pub mismatches: usize,
    /// The first of them: its index, what is found, and what is expected.
    pub first: Option<(usize, f64, f64)>,
}

impl Difference {
    /// Compares values of the same shape: an element is in tolerance if its distance is at most
    /// `atol` and `rtol` of what is expected. What is not a number, or infinite, has to be so on
    /// both sides.
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
            // What is no number, or infinite on one side, is out of any tolerance.
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
    fn figures_are_those_of_the_textbook() {
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
    fn what_is_no_number_is_expected_or_not() {
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
    fn nothing_differs_from_nothing() {
        let same = of(&[0.0, 0.0], &[0.0, 0.0]);
        assert_eq!((same.snr, same.cosine, same.max), (f64::INFINITY, 1.0, 0.0));
        assert_eq!(of(&[], &[]).count, 0);
        assert_eq!(of(&[1.0], &[0.0]).cosine, 0.0);
    }
}
