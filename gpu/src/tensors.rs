//! Tensors as shaders see them: id, element type, shape.

use crate::error::Error;
use torchlet_core::ScalarType;
use torchlet_graph::graph::ValueId;
use torchlet_shaders::Element;

/// The index of a tensor: its value id, or a higher index for tensors that operators added.
pub type TensorId = usize;

/// Maps a scalar type to its element type on the device: 64-bit types are narrowed, as the exporter
/// does, and `bfloat16` is widened.
///
/// # Errors
/// The type has no element type on the device.
pub fn element_of(scalar_type: ScalarType) -> Result<Element, Error> {
    Ok(match scalar_type {
        ScalarType::Float | ScalarType::Double | ScalarType::BFloat16 => Element::F32,
        ScalarType::Half => Element::F16,
        ScalarType::Int | ScalarType::Long => Element::I32,
        ScalarType::Byte => Element::U8,
        ScalarType::Char => Element::I8,
        ScalarType::Bool => Element::Bool,
        other => return Err(Error::unsupported(format!("dtype {other} on a GPU"))),
    })
}

/// Returns the bytes of `numel` elements in device memory, including padding.
pub(crate) fn padded_bytes(element: Element, numel: usize) -> u64 {
    (numel.next_multiple_of(4) * element.size()).next_multiple_of(16).max(16) as u64
}

/// The element type, sizes and id of a tensor argument.
#[derive(Debug, Clone)]
pub(crate) struct Operand {
    pub(crate) id: TensorId,
    pub(crate) value: ValueId,
    pub(crate) element: Element,
    pub(crate) sizes: Vec<usize>,
}

impl Operand {
    pub(crate) fn numel(&self) -> usize {
        self.sizes.iter().product()
    }

    pub(crate) fn rank(&self) -> usize {
        self.sizes.len()
    }

    /// Returns the size of dim `dim`; 1 if the tensor has fewer dims.
    pub(crate) fn size(&self, dim: usize) -> usize {
        self.sizes.get(dim).copied().unwrap_or(1)
    }

    /// Normalizes a dim index, which may be negative to count from the end.
    pub(crate) fn dim(&self, dim: i64) -> Result<usize, Error> {
        torchlet_core::rules::normalize_dim(dim, self.rank()).ok_or_else(|| {
            Error::Invalid(format!(
                "dim {dim} is out of range for a tensor of {} dims",
                self.rank()
            ))
        })
    }

    /// Returns the row-major strides of the tensor's shape.
    pub(crate) fn strides(&self) -> Vec<usize> {
        strides(&self.sizes)
    }
}

/// Returns the row-major strides of a shape.
pub(crate) fn strides(sizes: &[usize]) -> Vec<usize> {
    let mut strides = vec![1; sizes.len()];
    let mut step = 1;
    for (stride, size) in strides.iter_mut().zip(sizes).rev() {
        *stride = step;
        step *= size.max(&1);
    }
    strides
}

/// Converts a size to 32 bits, as shaders use it.
pub(crate) fn u32_of(number: usize) -> Result<u32, Error> {
    u32::try_from(number).map_err(|_| {
        Error::unsupported(format!("a size or offset of {number}; the limit is 2^32 - 1"))
    })
}

/// Returns the number of elements of a shape, if it fits into 32 bits.
pub(crate) fn numel_of(sizes: &[usize]) -> Result<usize, Error> {
    let product = sizes.iter().try_fold(1u32, |product, size| {
        u32::try_from((*size).max(1)).ok().and_then(|size| product.checked_mul(size))
    });
    if product.is_none() {
        return Err(Error::unsupported(format!(
            "a tensor of shape {sizes:?}; the limit is 2^32 - 1 elements"
        )));
    }
    Ok(sizes.iter().product())
}
