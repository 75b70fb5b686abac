//! The tensors of a compiled graph: their current shapes, and where their data is.

use crate::constants::Contents;
use crate::error::Error;
use crate::ir::ValueId;
use torchlet_core::ScalarType;
use torchlet_shaders::Element;

/// The index of a tensor: that of its value, or beyond all values for what operators add.
pub(crate) type TensorId = usize;

/// Where the data of a tensor is.
#[derive(Debug, Clone)]
pub(crate) enum Storage {
    /// In memory that tensors take turns to use.
    Planned,
    /// In memory of its own that keeps its contents between runs, with these to begin with.
    Constant(Contents),
    /// The memory of another tensor.
    Alias(TensorId),
}

/// A tensor on the device. Elements are in row-major order.
#[derive(Debug, Clone)]
pub(crate) struct DeviceTensor {
    pub(crate) element: Element,
    pub(crate) sizes: Vec<usize>,
    pub(crate) storage: Storage,
}

/// How a host type is kept on the device: 64-bit types are narrowed, as the exporter does.
pub(crate) fn element_of(scalar_type: ScalarType) -> Result<Element, Error> {
    Ok(match scalar_type {
        ScalarType::Float | ScalarType::Double => Element::F32,
        ScalarType::Half => Element::F16,
        ScalarType::Int | ScalarType::Long => Element::I32,
        ScalarType::Byte => Element::U8,
        ScalarType::Char => Element::I8,
        ScalarType::Bool => Element::Bool,
        other => return Err(Error::unsupported(format!("element type {other}"))),
    })
}

impl DeviceTensor {
    pub(crate) fn numel(&self) -> usize {
        self.sizes.iter().product()
    }

    /// Bytes in memory: whole groups of four elements, so that shaders can read and write four at a time.
    pub(crate) fn bytes(&self) -> u64 {
        padded_bytes(self.element, self.numel())
    }
}

/// Bytes of so many elements in device memory.
pub(crate) fn padded_bytes(element: Element, numel: usize) -> u64 {
    (numel.next_multiple_of(4) * element.size()).next_multiple_of(16).max(16) as u64
}

/// The element type, sizes and identity of a tensor argument.
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

    /// Size of dimension `dim`, 1 where there is none.
    pub(crate) fn size(&self, dim: usize) -> usize {
        self.sizes.get(dim).copied().unwrap_or(1)
    }

    /// A dimension that may count from the end.
    pub(crate) fn dim(&self, dim: i64) -> Result<usize, Error> {
        torchlet_core::rules::normalize_dim(dim, self.rank()).ok_or_else(|| {
            Error::Invalid(format!("dimension {dim} of a tensor of {} dimensions", self.rank()))
        })
    }

    /// Row-major strides.
    pub(crate) fn strides(&self) -> Vec<usize> {
        strides(&self.sizes)
    }
}

/// Row-major strides.
pub(crate) fn strides(sizes: &[usize]) -> Vec<usize> {
    let mut strides = vec![1; sizes.len()];
    let mut step = 1;
    for (stride, size) in strides.iter_mut().zip(sizes).rev() {
        *stride = step;
        step *= size.max(&1);
    }
    strides
}
