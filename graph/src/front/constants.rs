//! The data of a method's constants, with their dimensions in order.
//!
//! Those whose dimensions are in another order in the file are copied. A file can name the same
//! bytes in many values, and each run holds constants of its own: copies are made once for each
//! place and run, and limited by what the file has.

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

/// How often each byte of the constants can be copied: as many runs may read them.
const MOST_COPIES: usize = 16;
/// What can be copied however few bytes there are: small constants are read by all runs of a
/// method.
const ALWAYS: usize = 1 << 20;

/// Where the bytes of a constant lie, and how they are to be read. What is equal in all of this has
/// the same elements.
pub(super) type Place = (usize, ScalarType, Vec<i32>, Vec<u8>);

/// How many bytes of constants may still be copied, for all methods that share it.
#[derive(Clone)]
pub(crate) struct Copies {
    left: Rc<Cell<usize>>,
}

impl Copies {
    /// As many as these methods can need.
    pub(crate) fn of(methods: &[Method<'_>]) -> Self {
        let left = permuted_bytes(methods).saturating_mul(MOST_COPIES).saturating_add(ALWAYS);
        Copies { left: Rc::new(Cell::new(left)) }
    }
}

/// The constants of a method.
pub(super) struct Constants<'p> {
    /// The external data that it names.
    pub(super) data: &'p [DataMap<'p>],
    pub(super) copies: Copies,
}

impl<'p> Constants<'p> {
    /// The data of a constant as its file has it; `None` if nobody has it.
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
        // Files may have more bytes than the tensor.
        let bytes = tensor.info.nbytes();
        Ok(match data {
            Cow::Borrowed(data) => data.get(..bytes).map(Cow::Borrowed),
            Cow::Owned(mut data) => (data.len() >= bytes).then(|| {
                data.truncate(bytes);
                Cow::Owned(data)
            }),
        })
    }

    /// The elements of a tensor with its dimensions in order.
    ///
    /// # Errors
    /// More would be copied than the file can need.
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
                "constants with permuted dimensions that would be copied too often: {left} bytes may still be, {info} has {bytes}"
            ))
        })?;
        self.copies.left.set(rest);
        Ok(Cow::Owned(copied_in_order(&data, info)))
    }
}

/// Where bytes that a file lends lie, if they are to be copied.
pub(super) fn place(data: &[u8], info: &TensorInfo) -> Option<Place> {
    let lies = data.as_ptr().addr();
    let layout = (info.sizes.to_vec(), info.dim_order.to_vec());
    (!info.is_contiguous()).then_some((lies, info.scalar_type, layout.0, layout.1))
}

/// Bytes of the constants whose dimensions are not in order, each counted once however many values
/// name it.
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
