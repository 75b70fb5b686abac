//! Changes of memory layout and shape.

use super::{Layout, Tensor, dim_order_of};
use crate::buffer::Buffer;
use crate::error::{Error, TensorError};
use std::sync::Arc;
use torchlet_core::TensorInfo;
use torchlet_core::layout::{
    DimOrder, Sizes, Strides, channels_last_order, contiguous_order, same_layout, strides_of,
};

/// Memory offsets of a tensor's elements, in row-major order.
pub(super) struct Positions {
    shape: Strides,
    strides: Strides,
    index: Strides,
    position: usize,
    left: usize,
}

impl Positions {
    fn new(shape: &Strides, strides: Strides, count: usize) -> Self {
        let index = shape.iter().map(|_| 0).collect();
        Positions { shape: shape.clone(), strides, index, position: 0, left: count }
    }
}

impl Iterator for Positions {
    type Item = usize;

    fn next(&mut self) -> Option<usize> {
        self.left = self.left.checked_sub(1)?;
        let current = self.position;
        for dim in (0..self.shape.len()).rev() {
            self.index[dim] += 1;
            self.position += self.strides[dim];
            if self.index[dim] < self.shape[dim] {
                break;
            }
            self.position -= self.strides[dim] * self.shape[dim];
            self.index[dim] = 0;
        }
        Some(current)
    }
}

impl Tensor {
    pub(super) fn positions(&self) -> Positions {
        let strides = strides_of(&self.layout.info.sizes, &self.layout.info.dim_order);
        Positions::new(&self.layout.shape, strides, self.numel())
    }

    /// Returns the tensor with its elements in row-major order. Shares the elements if they already
    /// are.
    ///
    /// # Errors
    /// The copy cannot be allocated.
    pub fn to_contiguous(&self) -> Result<Tensor, Error> {
        self.to_dim_order(&contiguous_order(self.rank()))
    }

    /// Returns the tensor in channels-last layout: batch, spatial dims, channels.
    ///
    /// # Errors
    /// The tensor does not have 3 to 5 dims, or the copy cannot be allocated.
    pub fn to_channels_last(&self) -> Result<Tensor, Error> {
        let order = channels_last_order(self.rank())
            .ok_or_else(|| TensorError::Shape { shape: self.layout.shape.to_vec() })?;
        self.to_dim_order(&order)
    }

    /// Returns the tensor with its elements in the given dim order, from outermost to innermost.
    /// Shares the elements if they already are.
    ///
    /// # Errors
    /// `dim_order` is not a permutation of the dims, or the copy cannot be allocated.
    pub fn to_dim_order(&self, dim_order: &[u8]) -> Result<Tensor, Error> {
        let dim_order = dim_order_of(dim_order, self.rank())?;
        if same_layout(&self.layout.info.sizes, &self.layout.info.dim_order, &dim_order) {
            let mut same = self.clone();
            Arc::make_mut(&mut same.layout).info.dim_order = dim_order;
            return Ok(same);
        }
        let mut data = Buffer::zeroed(self.bytes().len())?;
        self.copy_to(&dim_order, data.bytes_mut());
        Ok(Tensor::with_info(TensorInfo { dim_order, ..self.layout.info.clone() }, data))
    }

    /// Writes the elements in another dim order. Writes to the target are sequential.
    fn copy_to(&self, dim_order: &DimOrder, target: &mut [u8]) {
        let own = strides_of(&self.layout.info.sizes, &self.layout.info.dim_order);
        let pick = |values: &Strides| -> Strides {
            dim_order.iter().map(|&dim| values[usize::from(dim)]).collect()
        };
        let positions = Positions::new(&pick(&self.layout.shape), pick(&own), self.numel());
        let size = self.layout.info.scalar_type.size();
        let source = self.bytes();
        for (to, from) in target.chunks_exact_mut(size).zip(positions) {
            to.copy_from_slice(&source[from * size..][..size]);
        }
    }

    /// Returns the same elements, in row-major order, with another shape.
    ///
    /// # Errors
    /// The shape has a different number of elements, or the copy cannot be allocated.
    pub fn reshape(&self, shape: &[usize]) -> Result<Tensor, Error> {
        let info = super::create::info_of(self.layout.info.scalar_type, shape)?;
        if info.numel() != self.numel() {
            let (expected, found) = (info.numel(), self.numel());
            return Err(TensorError::Length { shape: shape.to_vec(), expected, found }.into());
        }
        let data = self.to_contiguous()?.data;
        Ok(Tensor { layout: Layout::new(info), data })
    }

    /// Returns the tensor with permuted dims: dim `n` of the result is dim `dims[n]` of this
    /// tensor. Elements are shared.
    ///
    /// # Errors
    /// `dims` is not a permutation of the dims.
    pub fn permute(&self, dims: &[u8]) -> Result<Tensor, Error> {
        let dims = dim_order_of(dims, self.rank())?;
        let place = |dim: u8| dims.iter().position(|&other| other == dim).unwrap_or(0) as u8;
        let sizes: Sizes =
            dims.iter().map(|&dim| self.layout.info.sizes[usize::from(dim)]).collect();
        let dim_order = self.layout.info.dim_order.iter().map(|&dim| place(dim)).collect();
        let info = TensorInfo { scalar_type: self.layout.info.scalar_type, sizes, dim_order };
        Ok(Tensor { layout: Layout::new(info), data: self.data.clone() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counting(shape: &[usize]) -> Tensor {
        let numel = shape.iter().product::<usize>();
        Tensor::from_vec(shape, (0..numel as i32).collect()).unwrap()
    }

    #[test]
    fn layouts_keep_the_elements() {
        let tensor = counting(&[2, 3, 4, 5]);
        for order in [[0, 2, 3, 1], [3, 2, 1, 0], [1, 0, 3, 2]] {
            let other = tensor.to_dim_order(&order).unwrap();
            assert_eq!(other.dim_order(), order);
            assert_ne!(other.bytes(), tensor.bytes());
            assert_eq!(other, tensor);
            assert_eq!(other.to_vec::<i32>().unwrap(), tensor.as_slice::<i32>().unwrap());
            let back = other.to_channels_last().unwrap().to_contiguous().unwrap();
            assert_eq!(back.as_slice::<i32>().unwrap(), tensor.as_slice::<i32>().unwrap());
        }
        let last = tensor.to_channels_last().unwrap();
        // Neighbours in memory are channels: their distance in row-major order is 20.
        assert_eq!(last.memory::<i32>().unwrap()[..4], [0, 20, 40, 1]);
        assert!(last.as_slice::<i32>().is_err());
    }

    #[test]
    fn same_layouts_share_elements() {
        let tensor = counting(&[1, 1, 4, 4]);
        assert_eq!(tensor.to_channels_last().unwrap().bytes().as_ptr(), tensor.bytes().as_ptr());
    }

    #[test]
    fn permute_shares_elements() {
        let tensor = counting(&[2, 3]);
        let turned = tensor.permute(&[1, 0]).unwrap();
        assert_eq!((turned.shape(), turned.strides()), (&[3, 2][..], [1, 3].to_vec()));
        assert_eq!(turned.to_vec::<i32>().unwrap(), [0, 3, 1, 4, 2, 5]);
        assert_eq!(turned.permute(&[1, 0]).unwrap(), tensor);
        assert!(tensor.permute(&[0, 0]).is_err());
        let three = counting(&[2, 3, 4]).permute(&[2, 0, 1]).unwrap();
        assert_eq!(three.shape(), [4, 2, 3]);
        assert_eq!(three.to_vec::<i32>().unwrap()[..3], [0, 4, 8]);
    }

    #[test]
    fn reshape_uses_logical_order() {
        let turned = counting(&[2, 3]).permute(&[1, 0]).unwrap().reshape(&[6]).unwrap();
        assert_eq!(turned.as_slice::<i32>().unwrap(), [0, 3, 1, 4, 2, 5]);
        assert!(turned.reshape(&[5]).is_err());
    }

    #[test]
    fn empty_and_zero_dimensional() {
        let empty = counting(&[2, 0, 3, 1]);
        assert_eq!(empty.to_channels_last().unwrap().to_vec::<i32>().unwrap(), [0i32; 0]);
        let scalar = Tensor::scalar(7i64).unwrap();
        assert_eq!(scalar.to_contiguous().unwrap().item::<i64>().unwrap(), 7);
    }
}
