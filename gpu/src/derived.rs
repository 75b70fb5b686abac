//! Constants computed when a graph is compiled: scalars, weights in the layouts that shaders read,
//! folded normalisation factors, and zero-initialised memory.
//!
//! [`Derived`] describes the computation completely: only it and the bytes of the constants that it
//! names are inputs. It therefore serves as the cache key of the result.

mod normed;

pub(crate) use normed::Normed;

use crate::error::Error;
use crate::tensors::{TensorId, padded_bytes};
use std::borrow::Cow;
use torchlet_shaders::Element;

/// A computation of a constant: everything that its bytes depend on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Derived {
    /// A scalar, as a tensor of one element.
    Number(Number),
    /// A transposed copy of a constant's matrices.
    Transposed(Transposed),
    /// Quantized 4-bit values, two per byte.
    Nibbles(Nibbles),
    /// Rows of quantized 8-bit values in groups of 16, each row followed by its sum in a group of
    /// its own.
    Packed(Packed),
    /// The scale of a batch norm, folded from its weight and variance.
    Scale(BatchNorm),
    /// The shift of a batch norm.
    Shift(BatchNorm),
    /// Weights of a linear layer, transposed, padded, and multiplied by the weight of the preceding
    /// norm.
    NormedWeights(Normed),
    /// Column sums for a GEMM with a fused layer norm.
    NormedColumns(Normed),
    /// The bias of a linear layer with a fused layer norm, including the contribution of the norm's
    /// bias.
    NormedShifts(Normed),
    /// A lookup table from quantized 8-bit values to their values at another scale.
    Recoding(Recoding),
    /// Zero-initialised persistent memory for a tensor whose own memory does not persist between
    /// runs.
    Beside(Beside),
    /// Scratch memory that several calls use one after the other.
    Shared(Shared),
}

/// A scalar in one of the types that shaders accept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Number {
    Int(i32),
    /// The bits of a 32-bit float.
    Float(u32),
}

/// Requantization of 8-bit values: dequantize, clamp, quantize at another scale. All fields are the
/// bits of 32-bit floats.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Recoding {
    /// Scale and zero point of the input (`from`) and of the output (`to`). The output scale is
    /// stored as its reciprocal.
    pub(crate) from: [u32; 2],
    pub(crate) to: [u32; 2],
    pub(crate) clamp: [u32; 2],
    /// The lowest and highest quantized output value.
    pub(crate) bounds: [u32; 2],
}

impl Recoding {
    /// Describes a requantization from the scale and zero point `from` to `to`. Values are clamped
    /// to `clamp` before quantization and to `bounds` after it.
    pub(crate) fn new(from: [f64; 2], to: [f64; 2], clamp: [f64; 2], bounds: [f64; 2]) -> Self {
        let bits = |numbers: [f64; 2]| numbers.map(|number| (number as f32).to_bits());
        let to = bits([1.0 / to[0], to[1]]);
        Recoding { from: bits(from), to, clamp: bits(clamp), bounds: bits(bounds) }
    }

    /// Returns the quantized output for each input from -128 to 127. Rounding and NaN handling
    /// match the requantization shaders.
    fn codes(&self) -> impl Iterator<Item = u8> {
        let Recoding { from, to, clamp, bounds } = *self;
        let numbers = |bits: [u32; 2]| bits.map(f32::from_bits);
        let ([scale, zero], [inverse, to_zero]) = (numbers(from), numbers(to));
        let (clamp, bounds) = (numbers(clamp), numbers(bounds));
        // NaN passes through the clamps. NaN and values beyond 32 bits become the least integer;
        // only the lowest byte of the integer is kept, which is 0.
        let within = |number: f32, [low, high]: [f32; 2]| match number.is_nan() {
            true => number,
            false => number.max(low).min(high),
        };
        (i8::MIN..=i8::MAX).map(move |code| {
            let number = within((f32::from(code) - zero) * scale, clamp);
            let code = within((number * inverse).round_ties_even() + to_zero, bounds);
            let fits = code.abs() < 2_147_483_648.0;
            if fits { code as i32 as u8 } else { 0 }
        })
    }
}

/// The constant tensor that a derived constant is computed from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Source {
    pub(crate) id: TensorId,
    pub(crate) element: Element,
}

/// The number of matrices, and the rows and columns of each, in source order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Matrices {
    pub(crate) count: usize,
    pub(crate) rows: usize,
    pub(crate) columns: usize,
}

/// The transposed copy of [`Matrices`]: `count` matrices of `columns` rows of `rows` elements, each
/// row padded with zeros to a multiple of [`PITCH`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Transposed {
    pub(crate) source: Source,
    pub(crate) matrices: Matrices,
}

/// Rows of 4-bit values from -8 to 7, with an even number of values per row. Each value is stored
/// plus 8, two per byte, the first one in the low bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Nibbles {
    pub(crate) source: Source,
    pub(crate) rows: usize,
    pub(crate) columns: usize,
}

/// Rows of 8-bit values from -128 to 127, `pitch` bytes apart. Each row starts with `parts` runs of
/// `codes` values; the rest of the row is unused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Rows {
    pub(crate) count: usize,
    pub(crate) pitch: usize,
    pub(crate) parts: usize,
    pub(crate) codes: usize,
}

/// The used values of [`Rows`], with each run padded to a multiple of [`GROUP`] and each row
/// followed by the sum of its values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Packed {
    pub(crate) source: Source,
    pub(crate) rows: Rows,
}

/// The parameters of a batch norm.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct BatchNorm {
    pub(crate) weight: Option<Source>,
    pub(crate) bias: Option<Source>,
    pub(crate) mean: Source,
    pub(crate) variance: Source,
    pub(crate) channels: usize,
    /// The bits of a 32-bit float.
    pub(crate) epsilon: u32,
}

/// Zero-initialised persistent memory with room for the largest size of `tensor`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Beside {
    pub(crate) tensor: TensorId,
    pub(crate) element: Element,
    pub(crate) numel: usize,
}

/// Zero-initialised scratch memory in groups of four values: `counts` groups of counters, which
/// each call resets to zero, and `shares` further groups, for partial results. Calls with the same
/// sizes share it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Shared {
    pub(crate) counts: usize,
    pub(crate) shares: usize,
}

/// Rows of transposed matrices are padded to a multiple of this many elements, so that shaders can
/// load eight elements at once.
pub(crate) const PITCH: usize = 8;

/// The number of 8-bit values that shaders load at once, from an offset that is a multiple of it.
pub(crate) const GROUP: usize = 16;

/// A function that returns the bytes of a constant that is not derived.
pub(crate) type Bytes<'c> = dyn Fn(TensorId) -> Result<Cow<'c, [u8]>, Error> + 'c;

impl Matrices {
    /// Returns the padded row length of the transposed matrices.
    pub(crate) fn pitch(&self) -> usize {
        self.rows.next_multiple_of(PITCH)
    }
}

impl Derived {
    pub(crate) fn element(&self) -> Element {
        match self {
            Derived::Number(Number::Int(_)) => Element::I32,
            Derived::Number(Number::Float(_))
            | Derived::Scale(_)
            | Derived::Shift(_)
            | Derived::NormedColumns(_)
            | Derived::NormedShifts(_) => Element::F32,
            Derived::NormedWeights(_) => Element::F16,
            Derived::Transposed(transposed) => transposed.source.element,
            Derived::Nibbles(nibbles) => nibbles.source.element,
            Derived::Packed(packed) => packed.source.element,
            Derived::Beside(beside) => beside.element,
            Derived::Recoding(_) => Element::I8,
            Derived::Shared(_) => Element::F32,
        }
    }

    pub(crate) fn sizes(&self) -> Vec<usize> {
        match self {
            Derived::Number(_) => Vec::new(),
            Derived::Transposed(Transposed { matrices, .. })
            | Derived::NormedWeights(Normed { matrices, .. }) => {
                vec![matrices.count, matrices.columns, matrices.pitch()]
            }
            Derived::NormedColumns(Normed { matrices, .. }) => {
                vec![normed::HEAD.saturating_add(matrices.pitch())]
            }
            Derived::NormedShifts(normed) => vec![normed.matrices.rows],
            Derived::Nibbles(nibbles) => vec![nibbles.rows, nibbles.columns / 2],
            Derived::Packed(Packed { rows, .. }) => vec![rows.count, rows.packed()],
            Derived::Scale(norm) | Derived::Shift(norm) => vec![norm.channels],
            Derived::Recoding(_) => vec![1 << 8],
            Derived::Beside(beside) => vec![beside.numel],
            Derived::Shared(shared) => vec![shared.counts.saturating_add(shared.shares), 4],
        }
    }

    /// Returns the number of bytes that [`make`](Self::make) writes; `usize::MAX` on overflow.
    pub(crate) fn bytes(&self) -> usize {
        let numel = self.sizes().into_iter().try_fold(1usize, usize::checked_mul);
        match self {
            Derived::Beside(beside) => {
                usize::try_from(padded_bytes(beside.element, beside.numel)).unwrap_or(usize::MAX)
            }
            _ => numel
                .and_then(|numel| numel.checked_mul(self.element().size()))
                .unwrap_or(usize::MAX),
        }
    }

    /// Returns the granularity in bytes: the constant can be computed in pieces that are multiples
    /// of it.
    pub(crate) fn grain(&self) -> usize {
        match self {
            Derived::Number(_) | Derived::Scale(_) | Derived::Shift(_) | Derived::Recoding(_) => {
                self.bytes()
            }
            Derived::Packed(packed) => packed.rows.packed(),
            Derived::Transposed(Transposed { matrices, .. })
            | Derived::NormedWeights(Normed { matrices, .. }) => {
                matrices.pitch().saturating_mul(self.element().size())
            }
            Derived::NormedColumns(_) | Derived::NormedShifts(_) => 4,
            Derived::Nibbles(_) | Derived::Beside(_) | Derived::Shared(_) => 1,
        }
    }

    /// Writes bytes from the offset `from` on, a multiple of [`grain`](Self::grain), until `target`
    /// is full.
    pub(crate) fn make(&self, of: &Bytes<'_>, from: usize, target: &mut [u8]) -> Result<(), Error> {
        match self {
            Derived::Number(Number::Int(number)) => fill(target, [number.to_le_bytes()]),
            Derived::Number(Number::Float(bits)) => fill(target, [bits.to_le_bytes()]),
            Derived::Transposed(Transposed { source, matrices }) => {
                let bytes = of(source.id)?;
                let first = from.checked_div(self.grain()).unwrap_or(0);
                match source.element.size() {
                    2 => transpose::<2>(&bytes, target, *matrices, first),
                    4 => transpose::<4>(&bytes, target, *matrices, first),
                    _ => {
                        return Err(Error::unsupported(format!(
                            "weights of type {:?}; expected 2 or 4 bytes per element",
                            source.element
                        )));
                    }
                }
            }
            Derived::NormedWeights(normed) => {
                normed.weights(of, from.checked_div(self.grain()).unwrap_or(0), target)?;
            }
            Derived::NormedColumns(normed) => normed.columns(of, from / 4, target)?,
            Derived::NormedShifts(normed) => normed.shifts(of, from / 4, target)?,
            Derived::Nibbles(nibbles) => {
                let bytes = of(nibbles.source.id)?;
                let pairs = bytes.as_chunks::<2>().0.iter().skip(from);
                for (target, [first, second]) in target.iter_mut().zip(pairs) {
                    *target = (first.wrapping_add(8) & 15) | (second.wrapping_add(8) << 4);
                }
            }
            Derived::Packed(Packed { source, rows }) => {
                let bytes = of(source.id)?;
                let first = from.checked_div(self.grain()).unwrap_or(0);
                target.fill(0);
                let targets = target.chunks_exact_mut(rows.packed());
                for (target, row) in targets.zip(rows.of(&bytes, first)) {
                    let (codes, sum) = target.split_at_mut(rows.packed() - GROUP);
                    let parts = row.chunks(rows.codes.max(1));
                    for (target, part) in codes.chunks_mut(rows.padded().max(1)).zip(parts) {
                        if let Some(target) = target.get_mut(..part.len()) {
                            target.copy_from_slice(part);
                        }
                    }
                    let total: i32 = row.iter().map(|code| i32::from(code.cast_signed())).sum();
                    fill(sum, [total.to_le_bytes()]);
                }
            }
            Derived::Scale(norm) => {
                let scale = norm.scale(of)?;
                fill(target, scale.into_iter().map(f32::to_le_bytes));
            }
            Derived::Shift(norm) => {
                let bias = floats(norm.bias, norm.channels, 0.0, of)?;
                let mean = floats(Some(norm.mean), norm.channels, 0.0, of)?;
                let shift = |((bias, mean), scale): ((f32, f32), f32)| bias - mean * scale;
                let shifts = bias.into_iter().zip(mean).zip(norm.scale(of)?).map(shift);
                fill(target, shifts.map(f32::to_le_bytes));
            }
            Derived::Recoding(recoding) => {
                target.iter_mut().zip(recoding.codes()).for_each(|(slot, code)| *slot = code);
            }
            Derived::Beside(_) | Derived::Shared(_) => target.fill(0),
        }
        Ok(())
    }
}

impl Rows {
    /// Returns the number of values of a run, padded to whole groups.
    pub(crate) fn padded(&self) -> usize {
        self.codes.next_multiple_of(GROUP)
    }

    /// Returns the bytes of a packed row, including its sum.
    pub(crate) fn packed(&self) -> usize {
        self.parts.saturating_mul(self.padded()).saturating_add(GROUP)
    }

    /// Returns the used values of the rows from `first` on.
    fn of<'b>(&self, bytes: &'b [u8], first: usize) -> impl Iterator<Item = &'b [u8]> {
        let count = self.parts.saturating_mul(self.codes);
        let rows = bytes.chunks(self.pitch.max(1)).take(self.count).skip(first);
        rows.map(move |row| row.get(..count).unwrap_or(row))
    }
}

impl BatchNorm {
    fn scale(&self, of: &Bytes<'_>) -> Result<Vec<f32>, Error> {
        let weight = floats(self.weight, self.channels, 1.0, of)?;
        let variance = floats(Some(self.variance), self.channels, 1.0, of)?;
        let epsilon = f32::from_bits(self.epsilon);
        let scale = |(weight, variance): (f32, f32)| weight / (variance + epsilon).sqrt();
        Ok(weight.into_iter().zip(variance).map(scale).collect())
    }
}

/// Reads a parameter of `count` values as floats; without a source, all are `default`.
fn floats(
    source: Option<Source>,
    count: usize,
    default: f32,
    of: &Bytes<'_>,
) -> Result<Vec<f32>, Error> {
    let Some(Source { id, element }) = source else { return Ok(vec![default; count]) };
    let bytes = of(id)?;
    let floats: Vec<f32> = match element {
        Element::F32 => {
            bytes.as_chunks::<4>().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect()
        }
        Element::F16 => {
            let halves = bytes.as_chunks::<2>().0.iter();
            halves.map(|bytes| half::f16::from_le_bytes(*bytes).to_f32()).collect()
        }
        _ => {
            return Err(Error::Invalid(format!(
                "parameter {id}: expected floating point, found {element:?}"
            )));
        }
    };
    if floats.len() == count {
        Ok(floats)
    } else {
        Err(Error::Invalid(format!(
            "parameter {id}: expected {count} elements, found {}",
            floats.len()
        )))
    }
}

/// Writes elements of four bytes.
fn fill(target: &mut [u8], elements: impl IntoIterator<Item = [u8; 4]>) {
    for (target, element) in target.as_chunks_mut::<4>().0.iter_mut().zip(elements) {
        *target = element;
    }
}

/// Transposes matrices of `SIZE`-byte elements, tile by tile. Fills `target` with rows of the
/// result, from row `first` on, counted over all matrices.
fn transpose<const SIZE: usize>(
    source: &[u8],
    target: &mut [u8],
    matrices: Matrices,
    first: usize,
) {
    const TILE: usize = 32;
    let (Matrices { count, rows, columns }, pitch) = (matrices, matrices.pitch());
    let (source, mut target) = (source.as_chunks::<SIZE>().0, target.as_chunks_mut::<SIZE>().0);
    let whole = rows * columns;
    if pitch != rows || source.len() < count * whole {
        target.fill([0; SIZE]);
    }
    if whole == 0 {
        return;
    }
    let mut at = first;
    while let Some(source) = source.chunks_exact(whole).take(count).nth(at / columns) {
        let begin = at % columns;
        let taken = (columns - begin).min(target.len() / pitch);
        if taken == 0 {
            break;
        }
        let (part, rest) = target.split_at_mut(taken * pitch);
        for first_column in (0..taken).step_by(TILE) {
            for first_row in (0..rows).step_by(TILE) {
                for column in first_column..taken.min(first_column + TILE) {
                    for row in first_row..rows.min(first_row + TILE) {
                        part[column * pitch + row] = source[row * columns + begin + column];
                    }
                }
            }
        }
        (target, at) = (rest, at + taken);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transpose_pads_rows() {
        let source: Vec<u8> = (0..2 * 3 * 2).flat_map(|value: u16| value.to_le_bytes()).collect();
        let derived = Derived::Transposed(Transposed {
            source: Source { id: 0, element: Element::F16 },
            matrices: Matrices { count: 2, rows: 3, columns: 2 },
        });
        let mut target = vec![9; derived.bytes()];
        derived.make(&|_| Ok(source[..].into()), 0, &mut target).unwrap();
        let values: Vec<u16> =
            target.as_chunks::<2>().0.iter().map(|value| u16::from_le_bytes(*value)).collect();
        let row = |a: u16, b: u16, c: u16| vec![a, b, c, 0, 0, 0, 0, 0];
        let expected = [row(0, 2, 4), row(1, 3, 5), row(6, 8, 10), row(7, 9, 11)].concat();
        assert_eq!(values, expected);
    }

    #[test]
    fn int4_values_share_bytes() {
        let codes = [-8i8, 7, 0, -1, 3, -3, 1, 2].map(i8::cast_unsigned);
        let source = Source { id: 0, element: Element::I8 };
        let derived = Derived::Nibbles(Nibbles { source, rows: 2, columns: 4 });
        assert_eq!((derived.sizes(), derived.bytes()), (vec![2, 2], 4));
        let mut target = vec![9; 4];
        derived.make(&|_| Ok(codes[..].into()), 0, &mut target).unwrap();
        assert_eq!(target, [0xf0, 0x78, 0x5b, 0xa9]);
    }

    #[test]
    fn packed_rows_are_padded_and_have_sums() {
        // Two rows, each with two runs of three values and one unused value.
        let codes: Vec<u8> = (-7i8..7).map(i8::cast_unsigned).collect();
        let source = Source { id: 0, element: Element::I8 };
        let rows = Rows { count: 2, pitch: 7, parts: 2, codes: 3 };
        let derived = Derived::Packed(Packed { source, rows });
        let mut target = vec![9; derived.bytes()];
        derived.make(&|_| Ok(codes[..].into()), 0, &mut target).unwrap();
        let padded = |first: usize| [&codes[first..first + 3], &[0; 13]].concat();
        let sum = |sum: i32| [&sum.to_le_bytes()[..], &[0; 12]].concat();
        let first = [padded(0), padded(3), sum(-7 - 6 - 5 - 4 - 3 - 2)].concat();
        let second = [padded(7), padded(10), sum(1 + 2 + 3 + 4 + 5)].concat();
        assert_eq!(target, [first, second].concat());
    }

    #[test]
    fn pieces_equal_the_whole() {
        let bytes: Vec<u8> = (0..4 * 70 * 45).map(|at: u32| (at * 7 % 251) as u8).collect();
        let of = |_| Ok(bytes[..].into());
        let source = Source { id: 0, element: Element::F32 };
        let matrices = Matrices { count: 3, rows: 70, columns: 15 };
        let nibbles =
            Nibbles { source: Source { id: 0, element: Element::I8 }, rows: 45, columns: 280 };
        let rows = Rows { count: 50, pitch: 252, parts: 7, codes: 35 };
        let packed = Packed { source: nibbles.source, rows };
        for (derived, rows) in [
            (Derived::Transposed(Transposed { source, matrices }), 7),
            (Derived::Transposed(Transposed { source, matrices }), 15),
            (Derived::Transposed(Transposed { source, matrices }), 32),
            (Derived::Nibbles(nibbles), 999),
            (Derived::Packed(packed), 7),
        ] {
            let mut whole = vec![9; derived.bytes()];
            derived.make(&of, 0, &mut whole).unwrap();
            let mut target = vec![8; derived.bytes()];
            let piece = rows * derived.grain();
            for (number, target) in target.chunks_mut(piece).enumerate() {
                derived.make(&of, number * piece, target).unwrap();
            }
            assert_eq!(target, whole, "{rows}");
        }
    }

    #[test]
    fn recoding_changes_scale() {
        let recoding = Recoding::new([0.5, 3.0], [0.25, -10.0], [-1.0, 6.0], [-128.0, 12.0]);
        let derived = Derived::Recoding(recoding);
        assert_eq!((derived.bytes(), derived.grain()), (256, 256));
        let mut target = vec![99; 256];
        derived.make(&|_| Err(Error::invalid("no source")), 0, &mut target).unwrap();
        let code = |code: i8| target[(i16::from(code) + 128) as usize].cast_signed();
        // Bounds beyond a byte, and NaN.
        let odd = |to: [f64; 2]| {
            let unbounded = [f64::NEG_INFINITY, f64::INFINITY];
            let recoding = Recoding::new([1.0, 0.0], to, unbounded, [0.0, 255.0]);
            recoding.codes().collect::<Vec<u8>>()
        };
        assert_eq!(odd([0.5, 0.0])[128 + 100], 200);
        assert_eq!(odd([0.0, 0.0])[128], 0);
        // Clamped to -1: quantized -14. One half: quantized -8. From input 5.5 on: quantized 12.
        assert_eq!([code(-128), code(2), code(3), code(4)], [-14, -12, -10, -8]);
        assert_eq!([code(13), code(14), code(127)], [10, 12, 12]);
    }

    #[test]
    fn batch_norm_scale_and_shift() {
        let floats = |values: [f32; 2]| values.map(f32::to_le_bytes).concat();
        let constants = [floats([2.0, 3.0]), floats([0.5, -1.0]), floats([1.0, 4.0])];
        let source = |id| Source { id, element: Element::F32 };
        let norm = BatchNorm {
            weight: None,
            bias: Some(source(0)),
            mean: source(1),
            variance: source(2),
            channels: 2,
            epsilon: 0.0f32.to_bits(),
        };
        let made = |derived: Derived| {
            let mut target = vec![0; derived.bytes()];
            derived.make(&|id| Ok(constants[id][..].into()), 0, &mut target)?;
            Ok::<_, Error>(target)
        };
        assert_eq!(made(Derived::Scale(norm)).unwrap(), floats([1.0, 0.5]));
        assert_eq!(made(Derived::Shift(norm)).unwrap(), floats([1.5, 3.5]));
        assert!(made(Derived::Scale(BatchNorm { channels: 3, ..norm })).is_err());
    }
}
