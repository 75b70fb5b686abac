//! Weights of an archive: raw storages, and tensors that are views of them.

use super::schema::{Payloads, SymInt, TensorMeta};
use super::zip::Archive;
use crate::budget::Computed;
use crate::error::Error;
use alloc::borrow::Cow;
use alloc::collections::BTreeSet;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::cell::RefCell;
use torchlet_core::ScalarType;
use torchlet_core::layout::MAX_RANK;

/// Values that the archive stores, with the folder of their data.
pub(super) struct Weights<'j, 'p> {
    archive: &'j Archive<'p>,
    folder: String,
    payloads: Payloads<'j>,
    computed: &'j Computed,
    /// Address, offset and size of contiguous views so far.
    seen: RefCell<BTreeSet<(usize, usize, Option<usize>)>>,
}

/// A stored tensor.
pub(super) struct Stored<'p> {
    pub(super) scalar_type: ScalarType,
    pub(super) sizes: Vec<usize>,
    pub(super) data: Cow<'p, [u8]>,
}

impl<'j, 'p> Weights<'j, 'p> {
    /// Parses the list of values in `folder`; `config` is its JSON text.
    ///
    /// # Errors
    /// The list is malformed.
    pub(super) fn new(
        archive: &'j Archive<'p>,
        folder: String,
        config: &'j [u8],
        computed: &'j Computed,
    ) -> Result<Self, Error> {
        let payloads = serde_json::from_slice(config);
        let payloads = payloads.map_err(|error| {
            Error::Invalid(format!("the list of weights in '{folder}': {error}"))
        })?;
        Ok(Weights { archive, folder, payloads, computed, seen: RefCell::default() })
    }

    /// Returns a tensor; `None` if the archive does not list it.
    ///
    /// # Errors
    /// The tensor is outside its storage, or pickled.
    pub(super) fn get(&self, name: &str) -> Result<Option<Stored<'p>>, Error> {
        let Some(payload) = self.payloads.config.get(name) else { return Ok(None) };
        let fail = |what: &str| Error::Invalid(format!("tensor '{name}' {what}"));
        if payload.use_pickle {
            return Err(Error::Unsupported(format!(
                "tensor '{name}' is pickled, as subclasses of `torch.Tensor` are"
            )));
        }
        let Some(meta) = &payload.tensor_meta else {
            return Err(Error::Unsupported(format!("constant '{name}', which is no tensor")));
        };
        let path = format!("{}{}", self.folder, payload.path_name);
        let storage = self.archive.get(&path)?;
        let storage = storage.ok_or_else(|| fail("has no data in the archive"))?;
        let view = View::of(meta).ok_or_else(|| fail("has invalid sizes or strides"))?;
        let Some(scalar_type) = scalar_type(meta.dtype) else {
            return Err(Error::Unsupported(format!("tensor '{name}' of dtype {}", meta.dtype)));
        };
        let element = scalar_type.size();
        // Written programs contain each contiguous view once.
        let range = (storage.as_ptr().addr(), view.offset, view.bytes(element));
        if view.is_contiguous() && self.seen.borrow_mut().insert(range) {
            self.computed.spend(view.bytes(element).unwrap_or(usize::MAX))?;
        }
        let data = view.read(storage, element, self.computed)?;
        let data = data.ok_or_else(|| fail("exceeds its data"))?;
        Ok(Some(Stored { scalar_type, sizes: view.sizes, data }))
    }
}

/// Returns the dtype of a number in the schema, which differs from the numbers in program files.
pub(super) fn scalar_type(number: u8) -> Option<ScalarType> {
    use ScalarType as S;
    Some(match number {
        1 => S::Byte,
        2 => S::Char,
        3 => S::Short,
        4 => S::Int,
        5 => S::Long,
        6 => S::Half,
        7 => S::Float,
        8 => S::Double,
        9 => S::ComplexHalf,
        10 => S::ComplexFloat,
        11 => S::ComplexDouble,
        12 => S::Bool,
        13 => S::BFloat16,
        28 => S::UInt16,
        29 => S::Float8E4M3FN,
        30 => S::Float8E5M2,
        31 => S::Float8E4M3FNUZ,
        32 => S::Float8E5M2FNUZ,
        34 => S::UInt32,
        35 => S::UInt64,
        _ => return None,
    })
}

/// Sizes, strides and offset in elements.
struct View {
    sizes: Vec<usize>,
    strides: Vec<usize>,
    offset: usize,
}

impl View {
    fn of(meta: &TensorMeta<'_>) -> Option<Self> {
        let known = |size: &SymInt<'_>| match size {
            SymInt::Int(size) => usize::try_from(*size).ok(),
            SymInt::Expr(_) => None,
        };
        let sizes: Vec<usize> = meta.sizes.iter().map(known).collect::<Option<_>>()?;
        let strides: Vec<usize> = meta.strides.iter().map(known).collect::<Option<_>>()?;
        let offset = known(&meta.storage_offset)?;
        (sizes.len() == strides.len() && sizes.len() <= MAX_RANK).then_some(View {
            sizes,
            strides,
            offset,
        })
    }

    /// The size of the elements together; `None` if it overflows.
    fn bytes(&self, element: usize) -> Option<usize> {
        self.sizes.iter().try_fold(element, |bytes, size| bytes.checked_mul(*size))
    }

    /// Whether the elements are in row-major order in the storage.
    fn is_contiguous(&self) -> bool {
        let mut expected = 1usize;
        self.sizes.iter().zip(&self.strides).rev().all(|(size, stride)| {
            let is = *size == 1 || *stride == expected;
            expected = expected.saturating_mul(*size);
            is
        })
    }

    /// Returns the elements in row-major order. `None` if one is outside the storage.
    ///
    /// # Errors
    /// The elements have to be copied, and exceed the budget.
    fn read<'p>(
        &self,
        storage: &'p [u8],
        element: usize,
        computed: &Computed,
    ) -> Result<Option<Cow<'p, [u8]>>, Error> {
        let (Some(bytes), Some(start)) = (self.bytes(element), self.offset.checked_mul(element))
        else {
            return Ok(None);
        };
        if bytes == 0 {
            return Ok(Some(Cow::Borrowed(&[])));
        }
        if self.is_contiguous() {
            let end = start.checked_add(bytes);
            return Ok(end.and_then(|end| storage.get(start..end)).map(Cow::Borrowed));
        }
        computed.spend(bytes)?;
        Ok(self.gather(storage, element, start, bytes).map(Cow::Owned))
    }

    /// Copies the elements, of `bytes` in total, in row-major order.
    fn gather(
        &self,
        storage: &[u8],
        element: usize,
        start: usize,
        bytes: usize,
    ) -> Option<Vec<u8>> {
        let mut gathered = Vec::with_capacity(bytes);
        let mut index = alloc::vec![0usize; self.sizes.len()];
        let mut at = start;
        while gathered.len() < bytes {
            gathered.extend_from_slice(storage.get(at..at.checked_add(element)?)?);
            // The next index, from the last dim on.
            for (dim, position) in index.iter_mut().enumerate().rev() {
                let (size, stride) = (*self.sizes.get(dim)?, *self.strides.get(dim)?);
                let step = stride.checked_mul(element)?;
                *position += 1;
                if *position < size {
                    at = at.checked_add(step)?;
                    break;
                }
                *position = 0;
                at = at.checked_sub(step.checked_mul(size - 1)?)?;
            }
        }
        Some(gathered)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    fn read(sizes: &[usize], strides: &[usize], offset: usize) -> Option<Vec<u8>> {
        let view = View { sizes: sizes.to_vec(), strides: strides.to_vec(), offset };
        let storage: Vec<u8> = (0..12).collect();
        let read = view.read(&storage, 2, &Computed::new());
        read.ok().flatten().map(Cow::into_owned)
    }

    #[test]
    fn views_are_gathered() {
        assert_eq!(read(&[2, 3], &[3, 1], 0), Some((0..12).collect()));
        assert_eq!(read(&[2], &[1], 3), Some(vec![6, 7, 8, 9]));
        assert_eq!(read(&[3, 2], &[1, 3], 0), Some(vec![0, 1, 6, 7, 2, 3, 8, 9, 4, 5, 10, 11]));
        assert_eq!(read(&[2, 2], &[0, 1], 4), Some(vec![8, 9, 10, 11, 8, 9, 10, 11]));
        assert_eq!(read(&[], &[], 5), Some(vec![10, 11]));
        assert_eq!(read(&[0, 5], &[5, 1], 9), Some(vec![]));
    }

    #[test]
    fn views_outside_their_storage_are_rejected() {
        assert_eq!(read(&[2], &[1], 5), None);
        assert_eq!(read(&[2, 2], &[5, 1], 0), None);
        assert_eq!(read(&[1 << 40], &[0], 0), None);
        assert_eq!(read(&[2], &[usize::MAX], 0), None);
        assert_eq!(read(&[], &[], usize::MAX), None);
    }
}
