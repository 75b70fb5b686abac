//! The transform of one line. If all prime factors of its length are small, a mixed-radix FFT;
//! otherwise Bluestein's algorithm, which convolves with a chirp and uses FFTs of a power of two.

use crate::elementwise::complex::{Complex, multiply};
use crate::real::Real;
use core::f64::consts::PI;

/// Largest radix of the mixed-radix FFT.
const MAX_RADIX: usize = 31;

/// The transform of lines of one length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Transform {
    length: usize,
    /// Length of Bluestein's convolution, if used.
    convolution: Option<usize>,
}

impl Transform {
    /// Returns `None` for lengths that are too large.
    pub(super) fn new(length: usize) -> Option<Self> {
        // Bluestein's convolution is at most four times as long, and its table and workspace are
        // twice that length.
        if length == 0 || length > isize::MAX as usize / 1024 {
            return None;
        }
        let mut rest = length;
        while rest > 1 {
            let factor = smallest_factor(rest);
            if factor > MAX_RADIX {
                return Some(Transform {
                    length,
                    convolution: Some((2 * length).next_power_of_two()),
                });
            }
            rest /= factor;
        }
        Some(Transform { length, convolution: None })
    }

    /// The transform that needs the most memory, among all lengths up to this one.
    pub(super) fn with_most_memory(length: usize) -> Option<Self> {
        let convolution = Self::new(length).map(|_| (2 * length).next_power_of_two());
        convolution.map(|long| Transform { length, convolution: Some(long) })
    }

    /// Complex values in the table that all lines share.
    pub(super) fn table_len(&self) -> usize {
        match self.convolution {
            // Roots of unity, the chirp, and its spectrum.
            Some(long) => long + self.length + long,
            None => self.length,
        }
    }

    /// Complex values of workspace for a line, in addition to the line itself.
    pub(super) fn workspace_len(&self) -> usize {
        match self.convolution {
            Some(long) => 2 * long,
            None => self.length,
        }
    }

    /// Fills the table.
    pub(super) fn tabulate<C: Real>(&self, table: &mut [Complex<C>], workspace: &mut [Complex<C>]) {
        let Some(long) = self.convolution else {
            return roots(table);
        };
        let Some((all, rest)) = table.split_at_mut_checked(long) else { return };
        let Some((chirp, spectrum)) = rest.split_at_mut_checked(self.length) else { return };
        roots(all);
        let twice = 2 * self.length as u128;
        for (index, slot) in chirp.iter_mut().enumerate() {
            // The square is reduced modulo the period, because large angles would lose precision.
            let square = (index as u128 * index as u128 % twice) as f64;
            *slot = unit(-PI * square / self.length as f64);
        }
        spectrum.fill([C::default(); 2]);
        for (index, &[re, im]) in chirp.iter().enumerate() {
            for at in [index, (long - index) % long] {
                if let Some(slot) = spectrum.get_mut(at) {
                    *slot = [re, -im];
                }
            }
        }
        let Some((other, _)) = workspace.split_at_mut_checked(long) else { return };
        by_factors(spectrum, other, all);
        // Normalization of the inverse transform, included in the table.
        let scale = C::real(1.0) / C::count(long);
        for value in spectrum {
            *value = value.map(|part| part * scale);
        }
    }

    /// `line[k] = Σ line[j] · e^(-2πi·jk/n)`
    pub(super) fn run<C: Real>(
        &self,
        line: &mut [Complex<C>],
        table: &[Complex<C>],
        workspace: &mut [Complex<C>],
    ) {
        let Some(long) = self.convolution else {
            return by_factors(line, workspace, table);
        };
        let Some((all, rest)) = table.split_at_checked(long) else { return };
        let Some((chirp, spectrum)) = rest.split_at_checked(self.length) else { return };
        let Some((values, rest)) = workspace.split_at_mut_checked(long) else { return };
        values.fill([C::default(); 2]);
        for ((slot, value), chirp) in values.iter_mut().zip(&*line).zip(chirp) {
            *slot = multiply(*value, *chirp);
        }
        by_factors(values, rest, all);
        for (value, factor) in values.iter_mut().zip(spectrum) {
            // The forward transform with the parts exchanged before and after is the inverse one.
            let [re, im] = multiply(*value, *factor);
            *value = [im, re];
        }
        by_factors(values, rest, all);
        for ((slot, [im, re]), chirp) in line.iter_mut().zip(&*values).zip(chirp) {
            *slot = multiply([*re, *im], *chirp);
        }
    }
}

/// The smallest factor of a number above 1. Four counts as a factor.
fn smallest_factor(number: usize) -> usize {
    if number.is_multiple_of(4) {
        return 4;
    }
    (2..=MAX_RADIX).find(|factor| number.is_multiple_of(*factor)).unwrap_or(number)
}

fn unit<C: Real>(angle: f64) -> Complex<C> {
    [C::real(libm::cos(angle)), C::real(libm::sin(angle))]
}

/// Roots of unity `e^(-2πi·k/n)`.
fn roots<C: Real>(table: &mut [Complex<C>]) {
    let length = table.len();
    for (index, slot) in table.iter_mut().enumerate() {
        // The angle is reduced to an eighth of the circle, where sine and cosine are exact at the
        // ends.
        let eighth = 8 * index / length.max(1);
        let rest = (8 * index) as f64 / length as f64 - eighth as f64;
        let [c, s] = match eighth % 2 {
            0 => [libm::cos(rest * PI / 4.0), libm::sin(rest * PI / 4.0)],
            _ => [libm::sin((1.0 - rest) * PI / 4.0), libm::cos((1.0 - rest) * PI / 4.0)],
        };
        let [re, im] = match eighth / 2 % 4 {
            0 => [c, -s],
            1 => [-s, -c],
            2 => [-c, s],
            _ => [s, c],
        };
        *slot = [C::real(re), C::real(im)];
    }
}

/// Mixed-radix FFT (Stockham): each pass alternates between two buffers, and the result ends up in
/// the first. `roots` has as many elements as `line`.
fn by_factors<C: Real>(line: &mut [Complex<C>], other: &mut [Complex<C>], roots: &[Complex<C>]) {
    let length = line.len();
    let Some(other) = other.get_mut(..length) else { return };
    if roots.len() != length {
        return;
    }
    let (mut from, mut to) = (line, other);
    let (mut rest, mut stride, mut is_home) = (length, 1, true);
    while rest > 1 {
        let factor = smallest_factor(rest);
        rest /= factor;
        pass(from, to, roots, Pass { factor, rest, stride });
        stride *= factor;
        (from, to) = (to, from);
        is_home = !is_home;
    }
    if !is_home {
        to.copy_from_slice(from);
    }
}

/// One pass: elements `rest * stride` apart are transformed together, then multiplied with twiddle
/// factors.
#[derive(Debug, Clone, Copy)]
struct Pass {
    factor: usize,
    rest: usize,
    stride: usize,
}

fn pass<C: Real>(from: &[Complex<C>], to: &mut [Complex<C>], roots: &[Complex<C>], pass: Pass) {
    let Pass { factor, rest, stride } = pass;
    let root = |at: usize| roots.get(at % roots.len().max(1)).copied().unwrap_or_default();
    for (turn, to) in to.chunks_exact_mut(factor * stride).take(rest).enumerate() {
        let turns: [Complex<C>; MAX_RADIX] = core::array::from_fn(|t| {
            if t < factor { root(turn * t * stride) } else { Default::default() }
        });
        for lane in 0..stride {
            let at =
                |r: usize| from.get(lane + stride * (turn + rest * r)).copied().unwrap_or_default();
            let mut put = |t: usize, value: Complex<C>| {
                if let Some(slot) = to.get_mut(lane + stride * t) {
                    *slot = if t == 0 { value } else { multiply(value, turns[t]) };
                }
            };
            match factor {
                2 => {
                    let (a, b) = (at(0), at(1));
                    put(0, plus(a, b));
                    put(1, minus(a, b));
                }
                4 => {
                    let (a, b, c, d) = (at(0), at(1), at(2), at(3));
                    let (even, odd) = (plus(a, c), plus(b, d));
                    let (x, [y_re, y_im]) = (minus(a, c), minus(b, d));
                    // Multiplication with -i.
                    let y = [y_im, -y_re];
                    put(0, plus(even, odd));
                    put(1, plus(x, y));
                    put(2, minus(even, odd));
                    put(3, minus(x, y));
                }
                _ => {
                    let values: [Complex<C>; MAX_RADIX] =
                        core::array::from_fn(
                            |r| if r < factor { at(r) } else { Default::default() },
                        );
                    let step = roots.len() / factor;
                    for t in 0..factor {
                        let mut sum = values[0];
                        for (r, value) in values.iter().enumerate().take(factor).skip(1) {
                            sum = plus(sum, multiply(*value, root(r * t % factor * step)));
                        }
                        put(t, sum);
                    }
                }
            }
        }
    }
}

#[inline(always)]
fn plus<C: Real>([a, b]: Complex<C>, [c, d]: Complex<C>) -> Complex<C> {
    [a + c, b + d]
}

#[inline(always)]
fn minus<C: Real>([a, b]: Complex<C>, [c, d]: Complex<C>) -> Complex<C> {
    [a - c, b - d]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn transformed(line: &[Complex<f64>]) -> Vec<Complex<f64>> {
        let transform = Transform::new(line.len()).unwrap();
        let mut table = vec![[0.0; 2]; transform.table_len()];
        let mut workspace = vec![[0.0; 2]; transform.workspace_len()];
        transform.tabulate(&mut table, &mut workspace);
        let mut line = line.to_vec();
        transform.run(&mut line, &table, &mut workspace);
        line
    }

    /// Compares with the definition.
    #[test]
    fn all_lengths_are_transformed() {
        for length in (1..=70).chain([97, 121, 128, 210, 331, 512]) {
            let line: Vec<Complex<f64>> = (0..length)
                .map(|i| [(i * i % 17) as f64 - 8.0, (i * 7 % 13) as f64 - 6.0])
                .collect();
            let found = transformed(&line);
            for (k, found) in found.iter().enumerate() {
                let mut sum = [0.0; 2];
                for (j, value) in line.iter().enumerate() {
                    let angle = -2.0 * PI * (j * k % length) as f64 / length as f64;
                    sum = plus(sum, multiply(*value, [angle.cos(), angle.sin()]));
                }
                for part in 0..2 {
                    let error = (sum[part] - found[part]).abs();
                    assert!(error < 1e-9 * length as f64, "{length}: {k}: {error}");
                }
            }
        }
    }

    #[test]
    fn with_most_memory_bounds_all_shorter_lengths() {
        let largest = Transform::with_most_memory(300).unwrap();
        for length in 1..=300 {
            let own = Transform::new(length).unwrap();
            assert!(own.table_len() <= largest.table_len(), "{length}");
            assert!(own.workspace_len() <= largest.workspace_len(), "{length}");
        }
        assert_eq!(Transform::with_most_memory(usize::MAX), None);
    }

    #[test]
    fn excessive_lengths_are_rejected() {
        assert_eq!(Transform::new(0), None);
        assert_eq!(Transform::new(usize::MAX), None);
    }
}
