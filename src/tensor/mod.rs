//! Tensors that own their elements.

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

/// A tensor: an element type, a shape, a memory layout, and elements.
///
/// Elements are shared between clones until one of them is written, so that cloning is cheap.
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

/// Type, shape and memory layout.
#[derive(Clone)]
struct Layout {
    info: TensorInfo,
    /// The sizes of `info`, none of which is negative, as Rust counts.
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

    /// The type of the elements.
    pub fn scalar_type(&self) -> ScalarType {
        self.layout.info.scalar_type
    }

    /// The size of each dimension.
    pub fn shape(&self) -> &[usize] {
        &self.layout.shape
    }

    /// Number of dimensions.
    pub fn rank(&self) -> usize {
        self.layout.shape.len()
    }

    /// Number of elements.
    pub fn numel(&self) -> usize {
        self.layout.info.numel()
    }

    /// The dimensions from outermost to innermost in memory.
    pub fn dim_order(&self) -> &[u8] {
        &self.layout.info.dim_order
    }

    /// The distance in elements between neighbours of each dimension.
    pub fn strides(&self) -> Vec<usize> {
        strides_of(&self.layout.info.sizes, &self.layout.info.dim_order).iter().copied().collect()
    }

    /// Type, shape and layout in one.
    pub fn info(&self) -> &TensorInfo {
        &self.layout.info
    }

    /// Whether the elements lie in row-major order.
    pub fn is_contiguous(&self) -> bool {
        self.layout.info.is_contiguous()
    }

    /// The elements in memory order, as bytes.
    pub fn bytes(&self) -> &[u8] {
        self.data.bytes()
    }

    /// The elements in memory order, as bytes.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        Arc::make_mut(&mut self.data).bytes_mut()
    }

    fn check_type<T: Element>(&self) -> Result<(), TensorError> {
        let (expected, found) = (T::SCALAR_TYPE, self.layout.info.scalar_type);
        if expected == found { Ok(()) } else { Err(TensorError::ScalarType { expected, found }) }
    }

    /// The elements in memory order, whatever the layout.
    ///
    /// # Errors
    /// They are of another type.
    pub fn memory<T: Element>(&self) -> Result<&[T], Error> {
        self.check_type::<T>()?;
        Ok(bytemuck::cast_slice(self.bytes()))
    }

    /// The elements in memory order, whatever the layout, for writing.
    ///
    /// # Errors
    /// They are of another type.
    pub fn memory_mut<T: Element>(&mut self) -> Result<&mut [T], Error> {
        self.check_type::<T>()?;
        Ok(bytemuck::cast_slice_mut(self.bytes_mut()))
    }

    /// The elements in row-major order.
    ///
    /// # Errors
    /// They are of another type, or lie in another order; then see [`to_vec`](Self::to_vec).
    pub fn as_slice<T: Element>(&self) -> Result<&[T], Error> {
        if !self.is_contiguous() {
            return Err(TensorError::NotContiguous.into());
        }
        self.memory()
    }

    /// The elements in row-major order, for writing.
    ///
    /// # Errors
    /// As [`as_slice`](Self::as_slice).
    pub fn as_mut_slice<T: Element>(&mut self) -> Result<&mut [T], Error> {
        if !self.is_contiguous() {
            return Err(TensorError::NotContiguous.into());
        }
        self.memory_mut()
    }

    /// A copy of the elements in row-major order, whatever the layout.
    ///
    /// # Errors
    /// They are of another type.
    pub fn to_vec<T: Element>(&self) -> Result<Vec<T>, Error> {
        self.check_type::<T>()?;
        Ok(self.to_contiguous()?.memory::<T>()?.to_vec())
    }

    /// The elements of a bool tensor in row-major order.
    ///
    /// # Errors
    /// They are of another type.
    pub fn to_bools(&self) -> Result<Vec<bool>, Error> {
        Ok(self.to_vec::<Bool>()?.into_iter().map(Bool::get).collect())
    }

    /// The elements of any real type as numbers, in row-major order.
    ///
    /// # Errors
    /// The type is not one of integers, floating-point numbers or truth values.
    pub fn to_f64_vec(&self) -> Result<Vec<f64>, Error> {
        self.numbers("conversion to f64")?
            .map(|number| number.real().ok_or_else(|| self.unsupported("conversion to f64").into()))
            .collect()
    }

    /// The only element.
    ///
    /// # Errors
    /// It is of another type, or there is not exactly one.
    pub fn item<T: Element>(&self) -> Result<T, Error> {
        match self.memory::<T>()? {
            [item] => Ok(*item),
            all => {
                let shape = self.layout.shape.to_vec();
                Err(TensorError::Length { shape, expected: all.len(), found: 1 }.into())
            }
        }
    }

    /// The index of the largest element in row-major order; of the first, if there are several.
    /// Elements that are not numbers (NaN) are passed over. `None` for a tensor without elements.
    ///
    /// # Errors
    /// The type is not one of integers, floating-point numbers or truth values.
    pub fn argmax(&self) -> Result<Option<usize>, Error> {
        let mut best: Option<(usize, f64)> = None;
        for (index, value) in self.to_f64_vec()?.into_iter().enumerate() {
            if !value.is_nan() && best.is_none_or(|(_, largest)| value > largest) {
                best = Some((index, value));
            }
        }
        Ok(best.map(|(index, _)| index))
    }

    /// A view, as kernels and the core runtime take it.
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
    /// Whether type, shape and elements are equal; layouts may differ. Elements that are not
    /// numbers (NaN) differ from themselves.
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
            // Types without arithmetic are equal where their bytes are.
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

/// As a dim order, where it is one.
fn dim_order_of(dims: &[u8], rank: usize) -> Result<DimOrder, TensorError> {
    let valid = dims.len() == rank && torchlet_core::layout::is_permutation(dims);
    let error = || TensorError::DimOrder { dim_order: dims.to_vec() };
    if !valid {
        return Err(error());
    }
    DimOrder::from_slice(dims).map_err(|_| error())
}
