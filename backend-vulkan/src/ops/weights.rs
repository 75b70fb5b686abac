//! Constant weights in the order in which shaders read them: made once, when a graph is compiled.

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

/// The matrices of a constant tensor, transposed: `count` matrices of `columns` rows of `rows` elements, each row
/// padded with zeros to [`PITCH`]. `None` if the tensor is not constant.
pub(super) fn transposed(
    e: &mut Encoder<'_, '_>,
    weight: &Operand,
    matrices: Matrices,
) -> Result<Option<Operand>, Error> {
    let Matrices { count, rows, columns } = matrices;
    if e.device_data(weight.id).is_none() {
        return Ok(None);
    }
    let pitch = rows.next_multiple_of(PITCH);
    let size = weight.element.size();
    let numel = pitch
        .checked_mul(columns)
        .and_then(|numel| numel.checked_mul(count))
        .filter(|numel| *numel <= i32::MAX as usize)
        .ok_or_else(|| Error::unsupported("weights of more than 2^31 elements"))?;
    let purpose = format!("transposed {count}x{rows}x{columns}");
    let id = weight.id;
    e.derived(weight.value, &purpose, weight.element, &[count, columns, pitch], |e| {
        let bytes = e.device_data(id).unwrap_or_default();
        if bytes.len() < count * rows * columns * size {
            return Err(Error::invalid("a constant has too few bytes"));
        }
        let mut target = vec![0; numel * size];
        match size {
            2 => transpose::<2>(bytes, &mut target, matrices, pitch),
            4 => transpose::<4>(bytes, &mut target, matrices, pitch),
            _ => return Err(Error::unsupported("weights of this type")),
        }
        Ok(target)
    })
    .map(Some)
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
    if count == 0 || rows == 0 || columns == 0 {
        return;
    }
    let (source, target) = (source.as_chunks::<SIZE>().0, target.as_chunks_mut::<SIZE>().0);
    let pairs = source.chunks_exact(rows * columns).zip(target.chunks_exact_mut(columns * pitch));
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
        let mut target = vec![0; 2 * 2 * 8 * 2];
        transpose::<2>(&source, &mut target, Matrices { count: 2, rows: 3, columns: 2 }, 8);
        let values: Vec<u16> =
            target.as_chunks::<2>().0.iter().map(|value| u16::from_le_bytes(*value)).collect();
        let row = |a: u16, b: u16, c: u16| vec![a, b, c, 0, 0, 0, 0, 0];
        let expected = [row(0, 2, 4), row(1, 3, 5), row(6, 8, 10), row(7, 9, 11)].concat();
        assert_eq!(values, expected);
    }
}
