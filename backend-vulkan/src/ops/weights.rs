//! Weights in the order in which shaders read them: constant ones are made once, when a graph is compiled.

use super::join::pad;
use super::views::gather;
use crate::encoder::Encoder;
use crate::error::Error;
use crate::tensors::Operand;

/// Matrices as they are in memory: so many, of so many rows and columns.
#[derive(Debug, Clone, Copy)]
pub(super) struct Matrices {
    pub(super) count: usize,
    pub(super) rows: usize,
    pub(super) columns: usize,
}

/// What rows of transposed matrices are padded to, so that shaders can read so many elements from any multiple of them.
pub(super) const PITCH: usize = 8;

/// The matrices of a tensor, transposed: `count` matrices of `columns` rows of `rows` elements, each row padded with
/// zeros to [`PITCH`].
pub(super) fn transposed(
    e: &mut Encoder<'_, '_>,
    weight: &Operand,
    matrices: Matrices,
) -> Result<Operand, Error> {
    let Matrices { count, rows, columns } = matrices;
    let pitch = rows.next_multiple_of(PITCH);
    let size = weight.element.size();
    let numel = pitch.checked_mul(columns).and_then(|numel| numel.checked_mul(count));
    if numel.is_none_or(|numel| numel > i32::MAX as usize) {
        return Err(Error::unsupported("weights of more than 2^31 elements"));
    }
    if !e.is_kept(weight.id) {
        let compact = transposed_compactly(e, weight, matrices)?;
        let padded = e.temporary(weight.element, &[count, columns, pitch])?;
        pad(e, &compact, &padded, &[], 0.0)?;
        return Ok(padded);
    }
    let purpose = format!("transposed {count}x{rows}x{columns}");
    let transpose = match size {
        2 => transpose::<2>,
        4 => transpose::<4>,
        _ => return Err(Error::unsupported("weights of this type")),
    };
    let sizes = [count, columns, pitch];
    let make = move |source: &[u8], target: &mut [u8]| transpose(source, target, matrices, pitch);
    e.derived_later(weight.value, &purpose, weight.element, &sizes, make)
}

/// The matrices of a tensor that is computed, transposed without padding.
pub(super) fn transposed_compactly(
    e: &mut Encoder<'_, '_>,
    weight: &Operand,
    Matrices { count, rows, columns }: Matrices,
) -> Result<Operand, Error> {
    let sizes = [count, columns, rows];
    let compact = e.temporary(weight.element, &sizes)?;
    let strides = [rows * columns, 1, columns].map(|stride| stride as i64);
    gather(e, weight, &compact, &sizes, &strides, 0)?;
    Ok(compact)
}

/// Transposes matrices of elements of `SIZE` bytes, tile by tile.
fn transpose<const SIZE: usize>(
    source: &[u8],
    target: &mut [u8],
    matrices: Matrices,
    pitch: usize,
) {
    const TILE: usize = 32;
    let Matrices { count, rows, columns } = matrices;
    let (source, target) = (source.as_chunks::<SIZE>().0, target.as_chunks_mut::<SIZE>().0);
    let whole = rows * columns;
    if pitch != rows || source.len() < count * whole {
        target.fill([0; SIZE]);
    }
    if count == 0 || whole == 0 {
        return;
    }
    let pairs = source.chunks_exact(whole).zip(target.chunks_exact_mut(columns * pitch));
    for (source, target) in pairs.take(count) {
        for first_column in (0..columns).step_by(TILE) {
            for first_row in (0..rows).step_by(TILE) {
                for column in first_column..columns.min(first_column + TILE) {
                    for row in first_row..rows.min(first_row + TILE) {
                        target[column * pitch + row] = source[row * columns + column];
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_become_padded_columns() {
        let source: Vec<u8> = (0..2 * 3 * 2).flat_map(|value: u16| value.to_le_bytes()).collect();
        let mut target = vec![9; 2 * 2 * 8 * 2];
        transpose::<2>(&source, &mut target, Matrices { count: 2, rows: 3, columns: 2 }, 8);
        let values: Vec<u16> =
            target.as_chunks::<2>().0.iter().map(|value| u16::from_le_bytes(*value)).collect();
        let row = |a: u16, b: u16, c: u16| vec![a, b, c, 0, 0, 0, 0, 0];
        let expected = [row(0, 2, 4), row(1, 3, 5), row(6, 8, 10), row(7, 9, 11)].concat();
        assert_eq!(values, expected);
    }
}
