//! Foreign tensors: used in place if dense, otherwise copied.

use super::{Memory, Owner};
use crate::error::{Failure, invalid};
use pyo3::prelude::*;
use std::ptr::NonNull;
use std::sync::Arc;
use torchlet::core::layout::{DimOrder, Sizes, channels_last_order, contiguous_order, strides_of};
use torchlet::core::{ScalarType, TensorInfo};

/// A tensor in foreign memory.
pub(crate) struct Foreign {
    /// Address of the first element.
    pub(super) data: *mut u8,
    pub(super) scalar_type: ScalarType,
    pub(super) sizes: Vec<i64>,
    /// In elements; `None` means row-major.
    pub(super) strides: Option<Vec<i64>>,
    pub(super) writable: bool,
    pub(super) owner: Owner,
}

impl Foreign {
    /// Converts to a tensor: in place if its elements are dense, otherwise as a copy.
    pub(crate) fn adopt(self) -> PyResult<(TensorInfo, Arc<Memory>)> {
        let too_large = || invalid(format!("a tensor of shape {:?} is too large", self.sizes));
        let sizes: Option<Vec<i32>> =
            self.sizes.iter().map(|&size| i32::try_from(size).ok()).collect();
        let sizes = sizes.ok_or_else(too_large)?;
        let mut info = TensorInfo::contiguous(self.scalar_type, &sizes).ok_or_else(too_large)?;
        let len = info.nbytes();
        if len == 0 {
            return Ok((info, Memory::copy_of(&[]).ok_or_else(|| Failure::out_of_memory(0))?));
        }
        let start = NonNull::new(self.data)
            .ok_or_else(|| invalid("a non-empty tensor has a null pointer".into()))?;
        if let Some(strides) = &self.strides {
            match dense_order(&info.sizes, strides) {
                Some(order) => info.dim_order = order,
                None => {
                    let size = self.scalar_type.size();
                    let memory = gather(start, &self.sizes, strides, size)?;
                    return Ok((info, Arc::new(memory)));
                }
            }
        }
        let memory = Memory::lent(start, len, self.writable, self.owner);
        Ok((info, Arc::new(memory)))
    }
}

/// The dim order of dense elements with these strides; `None` if they have gaps.
fn dense_order(sizes: &Sizes, strides: &[i64]) -> Option<DimOrder> {
    let rank = sizes.len();
    let fits = |order: &DimOrder| {
        let dense = strides_of(sizes, order);
        let mut dims = sizes.iter().zip(dense.iter()).zip(strides);
        // The stride of a dim of size 1 is irrelevant.
        dims.all(|((&size, &dense), &stride)| size == 1 || i64::try_from(dense) == Ok(stride))
    };
    let mut sorted: Vec<u8> = (0..rank as u8).collect();
    sorted.sort_by_key(|&dim| std::cmp::Reverse(strides.get(usize::from(dim)).copied()));
    let candidates = [
        Some(contiguous_order(rank)),
        channels_last_order(rank),
        DimOrder::from_slice(&sorted).ok(),
    ];
    candidates.into_iter().flatten().find(fits)
}

/// Copies elements with any strides to row-major order.
fn gather(start: NonNull<u8>, sizes: &[i64], strides: &[i64], size: usize) -> PyResult<Memory> {
    let unusable = || invalid(format!("strides {strides:?} of shape {sizes:?} exceed the memory"));
    let step = i64::try_from(size).map_err(|_| unusable())?;
    // Byte strides; offsets of all elements must not overflow.
    let strides: Option<Vec<i64>> = strides.iter().map(|stride| stride.checked_mul(step)).collect();
    let strides = strides.ok_or_else(unusable)?;
    let mut reach = 0i64;
    for (&size, &stride) in sizes.iter().zip(&strides) {
        let far = stride.checked_abs().and_then(|stride| stride.checked_mul(size - 1));
        reach = far.and_then(|far| reach.checked_add(far)).ok_or_else(unusable)?;
    }
    isize::try_from(reach).map_err(|_| unusable())?;
    let count = sizes.iter().product::<i64>() as usize;
    let memory =
        Memory::zeroed(count * size).ok_or_else(|| Failure::out_of_memory(count * size))?;
    let mut index = vec![0i64; sizes.len()];
    let mut offset = 0i64;
    for element in 0..count {
        // SAFETY: the lender guarantees that elements of these sizes and strides exist; the offset
        // belongs to an index within the sizes, and does not exceed `reach`. The target has `count`
        // elements of `size` bytes, and is not shared yet.
        unsafe {
            let from = start.as_ptr().offset(offset as isize);
            memory.start.as_ptr().add(element * size).copy_from_nonoverlapping(from, size);
        }
        for dim in (0..sizes.len()).rev() {
            index[dim] += 1;
            offset += strides[dim];
            if index[dim] < sizes[dim] {
                break;
            }
            offset -= strides[dim] * sizes[dim];
            index[dim] = 0;
        }
    }
    Ok(memory)
}
