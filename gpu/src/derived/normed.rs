//! Derived constants for GEMMs with a fused layer norm of their input rows.
//!
//! A linear layer after a layer norm computes, for each column,
//! `(x · w' - mean(x) * sum(w')) / deviation(x) + b'`. Here `w'` are the weights of the layer times
//! the weights of the norm, and `b'` is the bias of the layer plus the contribution of the norm's
//! bias. The subtracted term must match the excess of `x · w'` exactly, also for large means;
//! therefore the sums are those of the weights after rounding. 32-bit sums lose one digit if a mean
//! is about ten thousand deviations; in that case, the fp16 rows have lost that digit already.

use super::{Bytes, Matrices, Source, fill, floats, transpose};
use crate::error::Error;
use half::f16;
use half::slice::HalfFloatSliceExt;

/// A linear layer with `matrices.rows` columns, after a norm over `matrices.columns` elements. The
/// weights are fp16: with other types, the GEMM would lose digits for large means.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Normed {
    pub(crate) weight: Source,
    pub(crate) matrices: Matrices,
    pub(crate) bias: Option<Source>,
    /// Weight and bias of the norm.
    pub(crate) norm: [Option<Source>; 2],
    /// The bits of a 32-bit float.
    pub(crate) epsilon: u32,
}

/// The number of values before the column sums: epsilon, the factor that undoes the scaling of the
/// weights, and two unused values.
pub(crate) const HEAD: usize = 4;

/// The number of rows that are scaled at a time.
const ROWS: usize = 32;
/// The number of fp16 values that are converted at a time, and the bytes of each.
const AT_ONCE: usize = 256;
const SIZE: usize = 2;

impl Normed {
    /// Returns the factor for the weights of each input element, and the factor that undoes their
    /// common scaling. That scaling is a power of two that makes all factors at most one: no weight
    /// grows, and few become so small that they lose bits.
    fn factors(&self, of: &Bytes<'_>) -> Result<(Vec<f32>, f32), Error> {
        let mut factors = floats(self.norm[0], self.matrices.columns, 1.0, of)?;
        let most = factors.iter().fold(0.0f32, |most, factor| most.max(factor.abs()));
        let mut over = 1.0f32;
        if most.is_normal() {
            while over < most {
                over *= 2.0;
            }
            while over * 0.5 >= most {
                over *= 0.5;
            }
        }
        factors.iter_mut().for_each(|factor| *factor /= over);
        Ok((factors, over))
    }

    /// Writes rows of the transposed weights, each multiplied by its factor, starting with row
    /// `first`.
    pub(super) fn weights(
        &self,
        of: &Bytes<'_>,
        first: usize,
        target: &mut [u8],
    ) -> Result<(), Error> {
        let (factors, _) = self.factors(of)?;
        let bytes = of(self.weight.id)?;
        let row = self.matrices.pitch().saturating_mul(SIZE).max(1);
        let factors = factors.get(first..).unwrap_or_default();
        // Works on a few rows at a time in host memory: reading the target may be slow.
        let mut some = vec![0; row.saturating_mul(ROWS).min(target.len())];
        let (mut numbers, mut halves) = ([0.0; AT_ONCE], [f16::ZERO; AT_ONCE]);
        let targets = target.chunks_mut(row.saturating_mul(ROWS)).zip(factors.chunks(ROWS));
        for (number, (target, factors)) in targets.enumerate() {
            let (some, _) = some.split_at_mut(target.len());
            transpose::<SIZE>(&bytes, some, self.matrices, first + number * ROWS);
            for (row, factor) in some.chunks_mut(row).zip(factors) {
                for part in row.chunks_mut(AT_ONCE * SIZE) {
                    let numbers = read(part, &mut numbers);
                    numbers.iter_mut().for_each(|number| *number *= factor);
                    let halves = rounded(numbers, &mut halves).iter();
                    let targets = part.as_chunks_mut().0.iter_mut();
                    targets.zip(halves).for_each(|(to, half)| *to = half.to_le_bytes());
                }
            }
            target.copy_from_slice(some);
        }
        Ok(())
    }

    /// Writes the column constants, starting with index `first`: [`HEAD`] values, then the sum of
    /// each column.
    pub(super) fn columns(
        &self,
        of: &Bytes<'_>,
        first: usize,
        target: &mut [u8],
    ) -> Result<(), Error> {
        let (factors, over) = self.factors(of)?;
        let head = [f32::from_bits(self.epsilon), over, 0.0, 0.0];
        let of_head = head.iter().copied().skip(first).take(target.len() / 4);
        let (begin, rest) = target.split_at_mut(of_head.len() * 4);
        fill(begin, of_head.map(f32::to_le_bytes));
        let columns = (first.saturating_sub(HEAD), rest.len() / 4);
        let sums = self.sums(of, columns, &factors, |terms| {
            rounded(terms, &mut [f16::ZERO; AT_ONCE]).convert_to_f32_slice(terms);
        })?;
        rest.fill(0);
        fill(rest, sums.into_iter().map(f32::to_le_bytes));
        Ok(())
    }

    /// Writes the shift of each column, starting with column `first`.
    pub(super) fn shifts(
        &self,
        of: &Bytes<'_>,
        first: usize,
        target: &mut [u8],
    ) -> Result<(), Error> {
        let count = target.len() / 4;
        let bias = floats(self.bias, self.matrices.rows, 0.0, of)?.into_iter().skip(first);
        let sums = match self.norm[1] {
            Some(_) => {
                let shifts = floats(self.norm[1], self.matrices.columns, 0.0, of)?;
                self.sums(of, (first, count), &shifts, |_| {})?
            }
            None => vec![0.0; count],
        };
        fill(target, bias.zip(sums).map(|(bias, sum)| (bias + sum).to_le_bytes()));
        Ok(())
    }

    /// Returns the sums of weights times `numbers`, for `count` columns starting with `first`.
    /// `change` may modify the terms before they are added.
    fn sums(
        &self,
        of: &Bytes<'_>,
        (first, count): (usize, usize),
        numbers: &[f32],
        change: impl Fn(&mut [f32]),
    ) -> Result<Vec<f32>, Error> {
        /// The number of independent partial sums.
        const BESIDE: usize = 16;
        let bytes = of(self.weight.id)?;
        let columns = bytes.chunks_exact(self.matrices.columns.saturating_mul(SIZE).max(1));
        let mut weights = [0.0; AT_ONCE];
        let mut sum_of = |column: &[u8]| {
            let mut sums = [0.0; BESIDE];
            for (part, numbers) in column.chunks(AT_ONCE * SIZE).zip(numbers.chunks(AT_ONCE)) {
                let terms = read(part, &mut weights);
                terms.iter_mut().zip(numbers).for_each(|(term, number)| *term *= number);
                change(terms);
                for some in terms.chunks(BESIDE) {
                    sums.iter_mut().zip(some).for_each(|(sum, term)| *sum += term);
                }
            }
            sums.iter().sum()
        };
        let taken = columns.take(self.matrices.rows).skip(first).take(count);
        Ok(taken.map(&mut sum_of).collect())
    }
}

/// Converts at most [`AT_ONCE`] floats to fp16.
fn rounded<'h>(numbers: &[f32], halves: &'h mut [f16; AT_ONCE]) -> &'h [f16] {
    let (halves, _) = halves.split_at_mut(numbers.len().min(AT_ONCE));
    halves.convert_from_f32_slice(numbers);
    halves
}

/// Converts the bytes of at most [`AT_ONCE`] fp16 values to floats.
fn read<'n>(bytes: &[u8], numbers: &'n mut [f32; AT_ONCE]) -> &'n mut [f32] {
    let count = (bytes.len() / SIZE).min(AT_ONCE);
    let (numbers, _) = numbers.split_at_mut(count);
    let halves = &mut [f16::ZERO; AT_ONCE];
    let (halves, _) = halves.split_at_mut(count);
    let found = bytes.as_chunks().0.iter().map(|half| f16::from_le_bytes(*half));
    halves.iter_mut().zip(found).for_each(|(half, found)| *half = found);
    halves.convert_to_f32_slice(numbers);
    numbers
}

#[cfg(test)]
mod tests {
    use super::super::Derived;
    use super::*;
    use torchlet_shaders::Element;

    /// Two columns of three fp16 weights after a norm whose largest weight is 6.
    fn normed(constants: &[Vec<u8>; 4], make: fn(Normed) -> Derived) -> Vec<u8> {
        let half = |id| Source { id, element: Element::F16 };
        let normed = Normed {
            weight: half(0),
            matrices: Matrices { count: 1, rows: 2, columns: 3 },
            bias: Some(half(1)),
            norm: [Some(half(2)), Some(half(3))],
            epsilon: 1e-5f32.to_bits(),
        };
        let derived = make(normed);
        let mut target = vec![9; derived.bytes()];
        derived.make(&|id| Ok(constants[id][..].into()), 0, &mut target).unwrap();
        // Computing the constants in pieces gives the same bytes.
        let mut pieces = vec![8; derived.bytes()];
        for (number, piece) in pieces.chunks_mut(derived.grain()).enumerate() {
            let first = number * derived.grain();
            derived.make(&|id| Ok(constants[id][..].into()), first, piece).unwrap();
        }
        assert_eq!(pieces, target);
        target
    }

    #[test]
    fn weights_are_scaled_and_columns_summed() {
        let halves = |numbers: &[f32]| {
            let bytes = |number: &f32| f16::from_f32(*number).to_le_bytes();
            numbers.iter().flat_map(bytes).collect::<Vec<u8>>()
        };
        let constants = [
            halves(&[1.0, 2.0, 0.333, -1.0, 0.5, 4.0]),
            halves(&[10.0, 20.0]),
            halves(&[6.0, -2.0, 0.777]),
            halves(&[1.0, 0.0, -3.0]),
        ];
        let weights = normed(&constants, Derived::NormedWeights);
        let weights: Vec<f32> =
            weights.as_chunks().0.iter().map(|half| f16::from_le_bytes(*half).to_f32()).collect();
        // The largest factor, 6, is between 4 and 8, so all factors are divided by 8.
        let third = f16::from_f32(0.333).to_f32() * f16::from_f32(0.777).to_f32() / 8.0;
        let third = f16::from_f32(third).to_f32();
        let last = f16::from_f32(f16::from_f32(0.777).to_f32() / 2.0).to_f32();
        let row = |first: f32, second: f32| vec![first, second, 0., 0., 0., 0., 0., 0.];
        let expected = [row(0.75, -0.75), row(-0.5, -0.125), row(third, last)].concat();
        assert_eq!(weights, expected);
        let floats = |bytes: Vec<u8>| {
            let floats = bytes.as_chunks().0.iter().map(|it| f32::from_le_bytes(*it));
            floats.collect::<Vec<f32>>()
        };
        let columns = floats(normed(&constants, Derived::NormedColumns));
        assert_eq!(columns[..4], [1e-5, 8.0, 0.0, 0.0]);
        assert_eq!(columns[4..], row(0.25 + third, -0.875 + last));
        let shifts = floats(normed(&constants, Derived::NormedShifts));
        let third = f16::from_f32(0.333).to_f32();
        assert_eq!(shifts, [10.0 + 1.0 - 3.0 * third, 20.0 - 1.0 - 12.0]);
    }
}
