//! Weights in the layouts that shaders read. They are derived once if they are constant, otherwise
//! in every run.

use super::join::pad;
use super::views::gather;
use crate::derived::{Derived, Matrices, Transposed};
use crate::encoder::Encoder;
use crate::error::Error;
use crate::tensors::Operand;

/// Returns the transposed matrices of a tensor: `count` matrices of `columns` rows of `rows`
/// elements, each row padded with zeros to [`PITCH`](crate::derived::PITCH).
pub(super) fn transposed(
    e: &mut Encoder<'_, '_>,
    weight: &Operand,
    matrices: Matrices,
) -> Result<Operand, Error> {
    let Matrices { count, columns, .. } = matrices;
    let pitch = matrices.pitch();
    let numel = pitch.checked_mul(columns).and_then(|numel| numel.checked_mul(count));
    if numel.is_none_or(|numel| numel > i32::MAX as usize) {
        return Err(Error::unsupported(format!(
            "weights of shape {:?}, with more than 2^31 - 1 padded elements",
            weight.sizes
        )));
    }
    if let Some(source) = e.constant(weight.id) {
        if !matches!(source.element.size(), 2 | 4) {
            return Err(Error::unsupported(format!(
                "weights of type {:?}; expected 2 or 4 bytes per element",
                source.element
            )));
        }
        return e.derived(Derived::Transposed(Transposed { source, matrices }));
    }
    let compact = transposed_compactly(e, weight, matrices)?;
    let padded = e.temporary(weight.element, &[count, columns, pitch])?;
    pad(e, &compact, &padded, &[], 0.0)?;
    Ok(padded)
}

/// Emits the transposition of a computed tensor's matrices, without padding.
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
