//! Tensor views for kernels, delegates and callers.

use crate::dtype::{Element, ScalarType};
use crate::error::KernelError;
use crate::layout::TensorInfo;
use core::ops::Deref;

/// A read-only tensor: dtype, shape, layout, and the bytes of its elements in memory order.
#[derive(Debug, Clone)]
pub struct TensorRef<'c> {
    info: TensorInfo,
    bytes: &'c [u8],
}

/// A writable tensor.
#[derive(Debug)]
pub struct TensorMut<'c> {
    info: TensorInfo,
    bytes: &'c mut [u8],
}

impl<'c> TensorRef<'c> {
    /// Creates a view of caller-supplied bytes; `None` unless their number matches the tensor's
    /// size exactly.
    pub fn new(info: TensorInfo, bytes: &'c [u8]) -> Option<Self> {
        (info.nbytes() == bytes.len()).then_some(TensorRef { info, bytes })
    }

    /// Creates a contiguous tensor over a slice of elements; `None` unless the lengths match.
    pub fn from_slice<T: Element>(sizes: &[i32], elements: &'c [T]) -> Option<Self> {
        let info = TensorInfo::contiguous(T::SCALAR_TYPE, sizes)?;
        TensorRef::new(info, bytemuck::cast_slice(elements))
    }

    /// Dtype, shape and layout.
    pub fn info(&self) -> &TensorInfo {
        &self.info
    }

    /// Bytes of the elements, in memory order.
    pub fn bytes(&self) -> &'c [u8] {
        self.bytes
    }

    /// Elements in memory order.
    ///
    /// # Errors
    /// The tensor's dtype is not `T`, or its bytes are not aligned for `T`.
    pub fn data<T: Element>(&self) -> Result<&'c [T], KernelError> {
        if self.info.scalar_type != T::SCALAR_TYPE {
            return Err(mismatch::<T>(self.info.scalar_type));
        }
        if self.bytes.is_empty() {
            return Ok(&[]);
        }
        bytemuck::try_cast_slice(self.bytes).map_err(|_| KernelError::alignment(T::SCALAR_TYPE))
    }
}

impl<'c> TensorMut<'c> {
    pub(crate) fn new(info: TensorInfo, bytes: &'c mut [u8]) -> Self {
        TensorMut { info, bytes }
    }

    /// Dtype, shape and layout.
    pub fn info(&self) -> &TensorInfo {
        &self.info
    }

    /// Bytes of the elements, in memory order.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        self.bytes
    }

    /// Bytes of the elements, in memory order, for the duration of the call.
    pub fn into_bytes(self) -> &'c mut [u8] {
        self.bytes
    }

    /// Elements in memory order.
    ///
    /// # Errors
    /// As [`TensorRef::data`].
    pub fn data_mut<T: Element>(&mut self) -> Result<&mut [T], KernelError> {
        typed_mut(self.info.scalar_type, self.bytes)
    }

    /// Elements in memory order, for the duration of the call.
    ///
    /// # Errors
    /// As [`TensorRef::data`].
    pub fn into_data<T: Element>(self) -> Result<&'c mut [T], KernelError> {
        typed_mut(self.info.scalar_type, self.bytes)
    }
}

fn mismatch<T: Element>(found: ScalarType) -> KernelError {
    KernelError::element_type(T::SCALAR_TYPE, found)
}

fn typed_mut<T: Element>(found: ScalarType, bytes: &mut [u8]) -> Result<&mut [T], KernelError> {
    if found != T::SCALAR_TYPE {
        return Err(mismatch::<T>(found));
    }
    if bytes.is_empty() {
        return Ok(&mut []);
    }
    bytemuck::try_cast_slice_mut(bytes).map_err(|_| KernelError::alignment(T::SCALAR_TYPE))
}

impl Deref for TensorRef<'_> {
    type Target = TensorInfo;
    fn deref(&self) -> &TensorInfo {
        &self.info
    }
}

impl Deref for TensorMut<'_> {
    type Target = TensorInfo;
    fn deref(&self) -> &TensorInfo {
        &self.info
    }
}

/// A value that is passed to or returned by a method.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum ValueRef<'c> {
    /// Absent optional.
    None,
    /// A number or boolean.
    Scalar(crate::value::Scalar),
    /// A string.
    String(&'c str),
    /// A tensor.
    Tensor(TensorRef<'c>),
    /// A list, by length; its items are read one by one.
    List(usize),
}

impl<'c> From<TensorRef<'c>> for ValueRef<'c> {
    fn from(tensor: TensorRef<'c>) -> Self {
        ValueRef::Tensor(tensor)
    }
}
impl From<crate::value::Scalar> for ValueRef<'_> {
    fn from(scalar: crate::value::Scalar) -> Self {
        ValueRef::Scalar(scalar)
    }
}
