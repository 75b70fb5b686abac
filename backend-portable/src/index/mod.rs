//! Indexing operators: gather, scatter, embedding and the like.
//!
//! Every index value is checked before anything is moved, so an index out of range is an error and
//! writes nothing. Indices are `int32` or `int64`. As in PyTorch, only `aten::index` and
//! `aten::index_put` support negative indices.

mod advanced;
mod bags;
mod gradients;
mod masked;
mod reading;
mod reducing;
mod writing;

pub use advanced::*;
pub use bags::*;
pub use gradients::*;
pub use masked::*;
pub use reading::*;
pub use reducing::*;
pub use writing::*;

use crate::number::unsupported;
use crate::shape::bad;
use crate::walk::Steps;
use torchlet_core::layout::MAX_RANK;
use torchlet_core::{KernelError, ScalarType, TensorInfo, TensorRef};

/// The values of an index tensor, in memory order.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Indices<'c> {
    I32(&'c [i32]),
    I64(&'c [i64]),
}

impl<'c> Indices<'c> {
    /// Returns the indices in argument `arg`, after checking that all are in `first..size`.
    pub(crate) fn checked(
        tensor: &TensorRef<'c>,
        arg: usize,
        first: i64,
        size: usize,
    ) -> Result<Self, KernelError> {
        let size = i64::try_from(size).unwrap_or(i64::MAX);
        let (indices, inside) = match tensor.scalar_type {
            ScalarType::Int => {
                let values = tensor.data::<i32>()?;
                let inside = values.iter().all(|&at| (first..size).contains(&i64::from(at)));
                (Indices::I32(values), inside)
            }
            _ => {
                let values = tensor.data::<i64>()?;
                (Indices::I64(values), values.iter().all(|at| (first..size).contains(at)))
            }
        };
        if inside { Ok(indices) } else { Err(bad(arg, "an index is out of range for its dim")) }
    }

    /// The value at a position; zero if out of range.
    #[inline(always)]
    pub(crate) fn at(&self, position: isize) -> i64 {
        let position = position as usize;
        match self {
            Indices::I32(values) => values.get(position).map_or(0, |&value| value.into()),
            Indices::I64(values) => values.get(position).copied().unwrap_or(0),
        }
    }

    /// The value at a position times a stride.
    #[inline(always)]
    pub(crate) fn offset(&self, position: isize, stride: isize) -> isize {
        (self.at(position) as isize).wrapping_mul(stride)
    }
}

/// Checks the type of an index tensor.
pub(crate) fn index_type(arg: usize, info: &TensorInfo) -> Result<(), KernelError> {
    match info.scalar_type {
        ScalarType::Int | ScalarType::Long => Ok(()),
        found => Err(unsupported(arg, found)),
    }
}

/// The stride of a dim as `isize`; 1 for zero-dim tensors.
pub(crate) fn stride(info: &TensorInfo, dim: usize) -> isize {
    info.strides().get(dim).map_or(1, |&stride| stride as isize)
}

/// Strides by dim, with base 0.
pub(crate) fn steps(of: impl Fn(usize) -> isize) -> Steps {
    let mut strides = [0; MAX_RANK];
    for (dim, stride) in strides.iter_mut().enumerate() {
        *stride = of(dim);
    }
    Steps { strides, base: 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn indices_are_checked() {
        let longs = [0i64, 2, -3];
        let tensor = TensorRef::from_slice(&[3], &longs).unwrap();
        assert!(Indices::checked(&tensor, 0, -3, 3).is_ok());
        assert!(Indices::checked(&tensor, 0, 0, 3).is_err());
        assert!(Indices::checked(&tensor, 0, -3, 2).is_err());
        let ints = [i32::MAX];
        let tensor = TensorRef::from_slice(&[1], &ints).unwrap();
        assert!(Indices::checked(&tensor, 0, 0, 3).is_err());
        assert_eq!(Indices::I32(&ints).at(-1), 0);
    }
}
