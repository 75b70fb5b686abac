//! Tensors in C: type, shape, dim order, and a pointer.

use crate::fault::Fault;
use crate::pointer;
use crate::status::{body, torchlet_error_message, torchlet_status, value};
use core::ffi::c_void;
use torchlet_core::layout::{DimOrder, MAX_RANK, Sizes, checked_nbytes, is_permutation};
use torchlet_core::{ScalarType, TensorInfo, TensorMut, TensorRef};

/// Maximum rank of a tensor.
pub const TORCHLET_MAX_RANK: usize = 16;

const _: () = assert!(TORCHLET_MAX_RANK == MAX_RANK);

/// The element type of a tensor, with PyTorch's values.
pub type torchlet_scalar_type = i8;

/// `uint8_t`.
pub const TORCHLET_BYTE: torchlet_scalar_type = 0;
/// `int8_t`.
pub const TORCHLET_CHAR: torchlet_scalar_type = 1;
/// `int16_t`.
pub const TORCHLET_SHORT: torchlet_scalar_type = 2;
/// `int32_t`.
pub const TORCHLET_INT: torchlet_scalar_type = 3;
/// `int64_t`.
pub const TORCHLET_LONG: torchlet_scalar_type = 4;
/// IEEE 754 half precision (fp16).
pub const TORCHLET_HALF: torchlet_scalar_type = 5;
/// `float`.
pub const TORCHLET_FLOAT: torchlet_scalar_type = 6;
/// `double`.
pub const TORCHLET_DOUBLE: torchlet_scalar_type = 7;
/// A byte, 0 or 1.
pub const TORCHLET_BOOL: torchlet_scalar_type = 11;
/// bfloat16, the upper 16 bits of a `float`.
pub const TORCHLET_BFLOAT16: torchlet_scalar_type = 15;
/// `uint16_t`.
pub const TORCHLET_UINT16: torchlet_scalar_type = 27;
/// `uint32_t`.
pub const TORCHLET_UINT32: torchlet_scalar_type = 28;
/// `uint64_t`.
pub const TORCHLET_UINT64: torchlet_scalar_type = 29;

/// Type, shape and dim order of a tensor.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct torchlet_tensor_info {
    /// The element type.
    pub scalar_type: torchlet_scalar_type,
    /// Dim order: dimensions from outermost to innermost in memory; 0, 1, 2 ... for row-major
    /// order.
    pub dim_order: [u8; TORCHLET_MAX_RANK],
    /// Number of dimensions.
    pub rank: usize,
    /// The size of each dimension.
    pub sizes: [i32; TORCHLET_MAX_RANK],
}

/// A read-only tensor.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct torchlet_tensor {
    /// Type, shape and dim order.
    pub info: torchlet_tensor_info,
    /// The elements in memory order.
    pub data: *const c_void,
    /// Size of the data in bytes.
    pub size: usize,
}

/// A mutable tensor.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct torchlet_tensor_mut {
    /// Type, shape and dim order.
    pub info: torchlet_tensor_info,
    /// The elements in memory order.
    pub data: *mut c_void,
    /// Size of the data in bytes.
    pub size: usize,
}

impl torchlet_tensor_info {
    /// Rank 0 and an invalid type.
    pub(crate) fn empty() -> Self {
        torchlet_tensor_info {
            scalar_type: torchlet_scalar_type::MAX,
            dim_order: [0; TORCHLET_MAX_RANK],
            rank: 0,
            sizes: [0; TORCHLET_MAX_RANK],
        }
    }

    pub(crate) fn of(info: &TensorInfo) -> Self {
        let mut result = torchlet_tensor_info {
            scalar_type: info.scalar_type as torchlet_scalar_type,
            dim_order: [0; TORCHLET_MAX_RANK],
            rank: info.rank(),
            sizes: [0; TORCHLET_MAX_RANK],
        };
        for (target, size) in result.sizes.iter_mut().zip(info.sizes.iter()) {
            *target = *size;
        }
        for (target, dim) in result.dim_order.iter_mut().zip(info.dim_order.iter()) {
            *target = *dim;
        }
        result
    }

    pub(crate) fn sizes(&self) -> Result<&[i32], Fault> {
        self.sizes.get(..self.rank).ok_or(Fault::Argument("a tensor has more than 16 dims"))
    }

    /// Converts to the type of the core library, if consistent.
    pub(crate) fn checked(&self) -> Result<TensorInfo, Fault> {
        let scalar_type = ScalarType::from_number(self.scalar_type.into())
            .ok_or(Fault::Argument("a tensor has an unknown dtype"))?;
        let sizes = self.sizes()?;
        let dim_order = self.dim_order.get(..self.rank).unwrap_or_default();
        if !is_permutation(dim_order) {
            return Err(Fault::Argument(
                "the dim order of a tensor is not a permutation; torchlet_tensor_info_init sets \
                 a valid one",
            ));
        }
        checked_nbytes(scalar_type, sizes)
            .ok_or(Fault::Argument("a tensor has a negative size or exceeds the address space"))?;
        // Both have at most `MAX_RANK` items.
        let too_many = |_| Fault::Argument("a tensor has more than 16 dims");
        Ok(TensorInfo {
            scalar_type,
            sizes: Sizes::from_slice(sizes).map_err(too_many)?,
            dim_order: DimOrder::from_slice(dim_order)
                .map_err(|_| Fault::Argument("a tensor has more than 16 dims"))?,
        })
    }
}

impl torchlet_tensor {
    pub(crate) fn of(tensor: &TensorRef<'_>) -> Self {
        let bytes = tensor.bytes();
        let info = torchlet_tensor_info::of(tensor.info());
        torchlet_tensor { info, data: bytes.as_ptr().cast(), size: bytes.len() }
    }

    /// Converts to the type of the core library, if consistent.
    ///
    /// # Safety
    /// `data` points to `size` bytes that outlive the result and are not written meanwhile.
    pub(crate) unsafe fn checked<'a>(&self) -> Result<TensorRef<'a>, Fault> {
        let info = self.info.checked()?;
        // SAFETY: guaranteed by the caller.
        let bytes = unsafe { pointer::bytes(self.data, self.size, "the data of a tensor")? };
        let (needed, available) = (info.nbytes(), bytes.len());
        TensorRef::new(info, bytes).ok_or(Fault::TensorSize { needed, available })
    }
}

impl torchlet_tensor_mut {
    pub(crate) fn of(tensor: TensorMut<'_>) -> Self {
        let info = torchlet_tensor_info::of(tensor.info());
        let bytes = tensor.into_bytes();
        torchlet_tensor_mut { info, data: bytes.as_mut_ptr().cast(), size: bytes.len() }
    }
}

fn row_major(
    scalar_type: torchlet_scalar_type,
    sizes: &[i32],
) -> Result<torchlet_tensor_info, Fault> {
    let mut result = torchlet_tensor_info {
        scalar_type,
        dim_order: core::array::from_fn(|dim| dim as u8),
        rank: sizes.len(),
        sizes: [0; TORCHLET_MAX_RANK],
    };
    for (target, size) in result.sizes.iter_mut().zip(sizes) {
        *target = *size;
    }
    result.checked()?;
    Ok(result)
}

/// Initializes the description of a row-major tensor.
///
/// # Safety
/// The rules at the head of `torchlet.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn torchlet_tensor_info_init(
    info: *mut torchlet_tensor_info,
    scalar_type: torchlet_scalar_type,
    sizes: *const i32,
    rank: usize,
    error: *const torchlet_error_message,
) -> torchlet_status {
    body!(error, {
        let sizes = pointer::items(sizes, rank, "sizes")?;
        let result = row_major(scalar_type, sizes)?;
        pointer::put(info, result, "info")
    })
}

/// Size of a tensor's data in bytes; 0 if the description is inconsistent.
///
/// # Safety
/// The rules at the head of `torchlet.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn torchlet_tensor_info_nbytes(info: *const torchlet_tensor_info) -> usize {
    // SAFETY: guaranteed by the caller.
    value(0, || Some(unsafe { pointer::get(info, "info").ok()? }.checked().ok()?.nbytes()))
}

/// Number of elements of a tensor; 0 if the description is inconsistent.
///
/// # Safety
/// The rules at the head of `torchlet.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn torchlet_tensor_info_numel(info: *const torchlet_tensor_info) -> usize {
    // SAFETY: guaranteed by the caller.
    value(0, || Some(unsafe { pointer::get(info, "info").ok()? }.checked().ok()?.numel()))
}

/// Size of an element in bytes; 0 for an unknown type.
#[unsafe(no_mangle)]
pub extern "C" fn torchlet_scalar_type_size(scalar_type: torchlet_scalar_type) -> usize {
    ScalarType::from_number(scalar_type.into()).map_or(0, ScalarType::size)
}

/// Initializes a row-major tensor over data of the caller. `size` must match the shape exactly.
///
/// # Safety
/// The rules at the head of `torchlet.h`. The data must stay valid as long as the tensor is used.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn torchlet_tensor_init(
    tensor: *mut torchlet_tensor,
    scalar_type: torchlet_scalar_type,
    sizes: *const i32,
    rank: usize,
    data: *const c_void,
    size: usize,
    error: *const torchlet_error_message,
) -> torchlet_status {
    body!(error, {
        let sizes = pointer::items(sizes, rank, "sizes")?;
        let info = row_major(scalar_type, sizes)?;
        let result = torchlet_tensor { info, data, size };
        result.checked()?;
        pointer::put(tensor, result, "tensor")
    })
}
