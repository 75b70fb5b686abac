//! Data of a method's constants, in contiguous dim order.
//!
//! Constants in another dim order are copied. A file can refer to the same bytes from many values,
//! and each instruction run holds its own constants. So each run copies a constant once, and the
//! total of copied bytes is limited by the size of the file.

use crate::embed::external;
use crate::error::Error;
use crate::method::{Method, MethodTensor, MethodValue, TensorData};
use alloc::borrow::Cow;
use alloc::collections::BTreeSet;
use alloc::format;
use alloc::rc::Rc;
use alloc::vec;
use alloc::vec::Vec;
use core::cell::Cell;
use torchlet_core::{DataMap, ScalarType, TensorInfo};

/// Maximum number of copies of each constant byte: that many runs may read it.
const MAX_COPIES: usize = 16;
/// Number of bytes that may be copied regardless of file size, because all runs of a method read
/// the small constants.
const ALWAYS: usize = 1 << 20;

/// Address and layout (dtype, sizes, dim order) of a constant. Equal keys mean equal elements.
pub(super) type ConstantKey = (usize, ScalarType, Vec<i32>, Vec<u8>);

/// Remaining budget of constant bytes to copy, shared by several methods.
#[derive(Clone)]
pub(crate) struct Copies {
    left: Rc<Cell<usize>>,
}

impl Copies {
    /// Creates a budget that suffices for these methods.
    pub(crate) fn of(methods: &[Method<'_>]) -> Self {
        let left = permuted_bytes(methods).saturating_mul(MAX_COPIES).saturating_add(ALWAYS);
        Copies { left: Rc::new(Cell::new(left)) }
    }
}

/// The constants of a method.
pub(super) struct Constants<'p> {
    /// External data that the method references.
    pub(super) data: &'p [DataMap<'p>],
    pub(super) copies: Copies,
}

impl<'p> Constants<'p> {
    /// Returns the data of a constant as stored; `None` if it is missing.
    ///
    /// # Errors
    /// A file is malformed.
    pub(super) fn bytes(&self, tensor: &MethodTensor<'p>) -> Result<Option<Cow<'p, [u8]>>, Error> {
        let data = match &tensor.data {
            TensorData::Inside(bytes) => bytes.clone(),
            TensorData::Outside => match external(tensor, self.data)? {
                Some(bytes) => bytes,
                None => return Ok(None),
            },
            TensorData::None => return Ok(None),
        };
        // The stored data may be longer than the tensor.
        let bytes = tensor.info.nbytes();
        Ok(match data {
            Cow::Borrowed(data) => data.get(..bytes).map(Cow::Borrowed),
            Cow::Owned(mut data) => (data.len() >= bytes).then(|| {
                data.truncate(bytes);
                Cow::Owned(data)
            }),
        })
    }

    /// Returns the elements of a tensor in contiguous dim order.
    ///
    /// # Errors
    /// The copy exceeds the budget.
    pub(super) fn in_order(
        &self,
        data: Cow<'p, [u8]>,
        info: &TensorInfo,
    ) -> Result<Cow<'p, [u8]>, Error> {
        if info.is_contiguous() {
            return Ok(data);
        }
        let (bytes, left) = (info.nbytes(), self.copies.left.get());
        let rest = left.checked_sub(bytes).ok_or_else(|| {
            Error::Unsupported(format!(
                "copying constants with a permuted dim order beyond the limit: {info} has {bytes} \
                 bytes, {left} may still be copied"
            ))
        })?;
        self.copies.left.set(rest);
        Ok(Cow::Owned(copied_in_order(&data, info)))
    }
}

/// Returns the key of borrowed bytes; `None` if they need no copy.
pub(super) fn key(data: &[u8], info: &TensorInfo) -> Option<ConstantKey> {
    let lies = data.as_ptr().addr();
    let layout = (info.sizes.to_vec(), info.dim_order.to_vec());
    (!info.is_contiguous()).then_some((lies, info.scalar_type, layout.0, layout.1))
}

/// Returns the number of constant bytes in a non-contiguous dim order. Shared bytes count once.
fn permuted_bytes(methods: &[Method<'_>]) -> usize {
    let (mut lent, mut own, mut names) = (Vec::new(), 0usize, BTreeSet::new());
    for value in methods.iter().flat_map(|method| &method.values) {
        let MethodValue::Tensor(tensor) = value else { continue };
        if !tensor.is_constant() || tensor.info.is_contiguous() {
            continue;
        }
        let bytes = tensor.info.nbytes();
        match &tensor.data {
            TensorData::Inside(Cow::Borrowed(data)) => {
                let start = data.as_ptr().addr();
                lent.push((start, start.saturating_add(bytes.min(data.len()))));
            }
            TensorData::Inside(Cow::Owned(data)) => own = own.saturating_add(bytes.min(data.len())),
            TensorData::Outside if names.insert(tensor.name.as_deref()) => {
                own = own.saturating_add(bytes);
            }
            TensorData::Outside | TensorData::None => {}
        }
    }
    lent.sort_unstable();
    let mut covered = 0;
    for (start, end) in lent {
        own = own.saturating_add(end.saturating_sub(start.max(covered)));
        covered = covered.max(end);
    }
    own
}

fn copied_in_order(data: &[u8], info: &TensorInfo) -> Vec<u8> {
    let size = info.scalar_type.size();
    let strides = info.strides();
    let mut ordered = Vec::with_capacity(info.nbytes());
    let mut index = vec![0usize; info.rank()];
    for _ in 0..info.numel() {
        let place: usize = index.iter().zip(strides.iter()).map(|(at, stride)| at * stride).sum();
        ordered.extend_from_slice(data.get(place * size..(place + 1) * size).unwrap_or_default());
        for dim in (0..index.len()).rev() {
            index[dim] += 1;
            if index[dim] < info.size(dim) {
                break;
            }
            index[dim] = 0;
        }
    }
    ordered
}
