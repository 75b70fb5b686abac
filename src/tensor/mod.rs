//! [`Tensor`]: a tensor that owns its elements.

mod compare;
mod create;
mod display;
mod layout;
#[cfg(feature = "ndarray")]
mod ndarray;
mod number;

pub use compare::Comparison;

use crate::buffer::Buffer;
use crate::error::{Error, TensorError};
use std::fmt;
use std::sync::Arc;
use torchlet_core::layout::{DimOrder, Strides, strides_of};
use torchlet_core::{Bool, Element, ScalarType, TensorInfo, TensorRef};

/// A tensor with dtype, shape, memory layout and elements.
///
/// Clones share their elements until one of them is written (copy on write).
///
/// ```
/// # use torchlet::Tensor;
/// let tensor = Tensor::from_slice(&[2, 3], &[1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0])?;
/// assert_eq!(tensor.shape(), [2, 3]);
/// assert_eq!(tensor.as_slice::<f32>()?[4], 5.0);
/// # Ok::<(), torchlet::Error>(())
/// ```
#[derive(Clone)]
pub struct Tensor {
    layout: Arc<Layout>,
    data: Arc<Buffer>,
}

/// Dtype, shape and memory layout.
#[derive(Clone)]
struct Layout {
    info: TensorInfo,
    /// The sizes of `info` as `usize`. None is negative.
    shape: Strides,
}

impl Layout {
    fn new(info: TensorInfo) -> Arc<Self> {
        let shape = info.sizes.iter().map(|&size| usize::try_from(size).unwrap_or(0)).collect();
        Arc::new(Layout { info, shape })
    }
}

impl Tensor {
    fn with_info(info: TensorInfo, data: Buffer) -> Self {
        Tensor { layout: Layout::new(info), data: Arc::new(data) }
    }

    /// Element type.
    pub fn scalar_type(&self) -> ScalarType {
        self.layout.info.scalar_type
    }

    /// Size of each dim.
    pub fn shape(&self) -> &[usize] {
        &self.layout.shape
    }

    /// Number of dims.
    pub fn rank(&self) -> usize {
        self.layout.shape.len()
    }

    /// Number of elements.
    pub fn numel(&self) -> usize {
        self.layout.info.numel()
    }

    /// Dims from outermost to innermost in memory.
    pub fn dim_order(&self) -> &[u8] {
        &self.layout.info.dim_order
    }

    /// Stride of each dim, in elements.
    pub fn strides(&self) -> Vec<usize> {
        strides_of(&self.layout.info.sizes, &self.layout.info.dim_order).iter().copied().collect()
    }

    /// Dtype, shape and memory layout.
    pub fn info(&self) -> &TensorInfo {
        &self.layout.info
    }

    /// Whether the elements are in row-major order.
    pub fn is_contiguous(&self) -> bool {
        self.layout.info.is_contiguous()
    }

    /// Bytes of the elements, in memory order.
    pub fn bytes(&self) -> &[u8] {
        self.data.bytes()
    }

    /// Bytes of the elements, in memory order. Copies them first if they are shared.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        Arc::make_mut(&mut self.data).bytes_mut()
    }

    fn check_type<T: Element>(&self) -> Result<(), TensorError> {
        let (expected, found) = (T::SCALAR_TYPE, self.layout.info.scalar_type);
        if expected == found { Ok(()) } else { Err(TensorError::ScalarType { expected, found }) }
    }

    /// Elements in memory order, for any layout.
    ///
    /// # Errors
    /// The tensor has another element type.
    pub fn memory<T: Element>(&self) -> Result<&[T], Error> {
        self.check_type::<T>()?;
        Ok(bytemuck::cast_slice(self.bytes()))
    }

    /// Elements in memory order, for any layout. Copies them first if they are shared.
    ///
    /// # Errors
    /// The tensor has another element type.
    pub fn memory_mut<T: Element>(&mut self) -> Result<&mut [T], Error> {
        self.check_type::<T>()?;
        Ok(bytemuck::cast_slice_mut(self.bytes_mut()))
    }

    /// Elements in row-major order.
    ///
    /// # Errors
    /// The tensor has another element type, or is not contiguous; use [`to_vec`](Self::to_vec)
    /// then.
    pub fn as_slice<T: Element>(&self) -> Result<&[T], Error> {
        if !self.is_contiguous() {
            return Err(TensorError::NotContiguous.into());
        }
        self.memory()
    }

    /// Elements in row-major order. Copies them first if they are shared.
    ///
    /// # Errors
    /// As [`as_slice`](Self::as_slice).
    pub fn as_mut_slice<T: Element>(&mut self) -> Result<&mut [T], Error> {
        if !self.is_contiguous() {
            return Err(TensorError::NotContiguous.into());
        }
        self.memory_mut()
    }

    /// Copies the elements in row-major order, for any layout.
    ///
    /// # Errors
    /// The tensor has another element type.
    pub fn to_vec<T: Element>(&self) -> Result<Vec<T>, Error> {
        self.check_type::<T>()?;
        Ok(self.to_contiguous()?.memory::<T>()?.to_vec())
    }

    /// Copies the elements of a bool tensor in row-major order.
    ///
    /// # Errors
    /// The tensor has another element type.
    pub fn to_bools(&self) -> Result<Vec<bool>, Error> {
        Ok(self.to_vec::<Bool>()?.into_iter().map(Bool::get).collect())
    }

    /// Converts the elements of any real dtype to `f64`, in row-major order.
    ///
    /// # Errors
    /// The dtype is not integer, floating-point or bool.
    pub fn to_f64_vec(&self) -> Result<Vec<f64>, Error> {
        self.numbers("conversion to f64")?
            .map(|number| number.real().ok_or_else(|| self.unsupported("conversion to f64").into()))
            .collect()
    }

    /// Returns the only element.
    ///
    /// # Errors
    /// The tensor has another element type, or not exactly one element.
    pub fn item<T: Element>(&self) -> Result<T, Error> {
        match self.memory::<T>()? {
            [item] => Ok(*item),
            all => {
                let shape = self.layout.shape.to_vec();
                Err(TensorError::Length { shape, expected: all.len(), found: 1 }.into())
            }
        }
    }

    /// Row-major index of the first maximum. NaN elements are ignored. `None` if the tensor has no
    /// other elements.
    ///
    /// # Errors
    /// The dtype is not integer, floating-point or bool.
    pub fn argmax(&self) -> Result<Option<usize>, Error> {
        let mut best: Option<(usize, f64)> = None;
        for (index, value) in self.to_f64_vec()?.into_iter().enumerate() {
            if !value.is_nan() && best.is_none_or(|(_, largest)| value > largest) {
                best = Some((index, value));
            }
        }
        Ok(best.map(|(index, _)| index))
    }

    /// Borrows the tensor as a [`TensorRef`], which kernels and the core runtime use.
    pub fn as_tensor_ref(&self) -> TensorRef<'_> {
        match TensorRef::new(self.layout.info.clone(), self.bytes()) {
            Some(tensor) => tensor,
            None => unreachable!("a tensor has as many bytes as its type and shape say"),
        }
    }

    fn unsupported(&self, operation: &'static str) -> TensorError {
        TensorError::Unsupported { scalar_type: self.layout.info.scalar_type, operation }
    }
}

impl TryFrom<&TensorRef<'_>> for Tensor {
    type Error = Error;

    /// Copies the elements.
    fn try_from(tensor: &TensorRef<'_>) -> Result<Self, Error> {
        Ok(Tensor::with_info(tensor.info().clone(), Buffer::copy_of(tensor.bytes())?))
    }
}

impl PartialEq for Tensor {
    /// Compares dtype, shape and elements; layouts may differ. NaN is not equal to NaN.
    fn eq(&self, other: &Self) -> bool {
        if self.layout.info.scalar_type != other.layout.info.scalar_type
            || self.shape() != other.shape()
        {
            return false;
        }
        match (self.numbers(""), other.numbers("")) {
            (Ok(mut a), Ok(mut b)) => loop {
                match (a.next(), b.next()) {
                    (None, None) => return true,
                    (a, b) if a == b => {}
                    _ => return false,
                }
            },
            // Dtypes without arithmetic are compared bytewise.
            _ => match (self.to_contiguous(), other.to_contiguous()) {
                (Ok(a), Ok(b)) => a.bytes() == b.bytes(),
                _ => false,
            },
        }
    }
}

impl fmt::Debug for Tensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tensor({})", self.layout.info)
    }
}

/// Converts to a dim order, after checking that `dims` is a permutation.
fn dim_order_of(dims: &[u8], rank: usize) -> Result<DimOrder, TensorError> {
    let valid = dims.len() == rank && torchlet_core::layout::is_permutation(dims);
    let error = || TensorError::DimOrder { dim_order: dims.to_vec() };
    if !valid {
        return Err(error());
    }
    DimOrder::from_slice(dims).map_err(|_| error())
}
