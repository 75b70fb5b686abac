//! Location of tensor data, as specified by the file.

use crate::arguments::elements;
use crate::data_map::{Blob, DataMap};
use crate::error::{InitError, Message};
use crate::file_tensor::{planned_offset, tensor_name};
use crate::format::flat_tensor_schema::TensorLayoutTable;
use crate::format::program_schema::{AllocationDetails, TensorTable};
use crate::format::{Malformed, Part};
use crate::layout::{is_permutation, same_layout};
use crate::meta::{MethodMeta, TensorValue};
use crate::program::Program;
use crate::runtime_features::{RuntimeFeatures, UNSUPPORTED_BY_IMAGE, has};
use crate::values::Tensor;

/// Location of a tensor's data.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DataLocation<'p> {
    /// Planned buffer and byte offset.
    pub(crate) planned: Option<(usize, usize)>,
    /// Data in the program or in external data: the contents of a constant, or the initial contents
    /// of a planned tensor.
    pub(crate) stored: Option<Blob<'p>>,
}

/// Why a tensor's data cannot be located.
#[derive(Debug, Clone, Copy)]
enum LocationError {
    Malformed(Malformed),
    Value(&'static str),
    External(&'static str),
}

impl From<Malformed> for LocationError {
    fn from(malformed: Malformed) -> Self {
        LocationError::Malformed(malformed)
    }
}

impl LocationError {
    /// Adds the tensor's value index or name.
    #[cold]
    fn at(self, value: &TensorValue<'_>) -> InitError {
        match self {
            LocationError::Malformed(malformed) => malformed.into(),
            LocationError::Value(what) => InitError::Value { index: value.index, what },
            LocationError::External(what) => {
                let name = tensor_name(&value.tensor).ok().flatten().unwrap_or("");
                InitError::ExternalData { name: Message::new(format_args!("{name}")), what }
            }
        }
    }
}

/// Locates the data of a tensor and checks its size.
///
/// The schema defines the rules: data without an allocation is constant, data with one is mutable;
/// constant entry 0 means no data; external data is looked up by the tensor's name.
pub(crate) fn locate<'p>(
    meta: &MethodMeta<'p>,
    data: &'p [DataMap<'p>],
    value: &TensorValue<'p>,
    slot: &Tensor<'_, '_>,
) -> Result<DataLocation<'p>, InitError> {
    let stored = match stored(&meta.program, data, &value.tensor, slot) {
        Ok(stored) => stored,
        Err(error) => return Err(error.at(value)),
    };
    let planned = match value.tensor.allocation_info()? {
        None => None,
        Some(allocation) => match planned(meta, &allocation, slot)? {
            Ok(offset) => Some(offset),
            Err(what) => return Err(InitError::Value { index: value.index, what }),
        },
    };
    Ok(DataLocation { planned, stored })
}

/// Data stored in a file for the tensor.
fn stored<'p>(
    program: &Program<'p>,
    data: &'p [DataMap<'p>],
    tensor: &TensorTable<'p>,
    slot: &Tensor<'_, '_>,
) -> Result<Option<Blob<'p>>, LocationError> {
    if tensor.storage_offset()? != 0 {
        return Err(LocationError::Value("expected a storage offset of 0"));
    }
    let mut table = 0;
    if let Some(extra) = tensor.extra_tensor_info()? {
        if extra.location()? == 1 {
            return match has(RuntimeFeatures::EXTERNAL_DATA) {
                true => find_external(data, tensor, slot).map(Some),
                false => Err(LocationError::External(UNSUPPORTED_BY_IMAGE)),
            };
        }
        table = extra.mutable_data_segments_idx()?;
    }
    let entry = tensor.data_buffer_idx()? as usize;
    if entry == 0 {
        return Ok(None);
    }
    Ok(Some(match tensor.allocation_info()? {
        Some(_) => program.initial_data(table, entry, slot.capacity())?,
        None => program.constant(entry, slot.capacity())?,
    }))
}

/// Planned buffer and byte offset of a tensor, or an error text.
fn planned(
    meta: &MethodMeta<'_>,
    allocation: &AllocationDetails<'_>,
    slot: &Tensor<'_, '_>,
) -> Result<Result<(usize, usize), &'static str>, Malformed> {
    let inside = planned_offset(allocation)?.filter(|(buffer, offset)| {
        let end = offset.checked_add(slot.capacity());
        meta.planned_size(*buffer).is_ok_and(|size| end.is_some_and(|end| end <= size))
    });
    Ok(match inside {
        // Buffers start at multiples of ARENA_ALIGN, which exceeds every element alignment.
        Some((buffer, offset)) if offset.is_multiple_of(slot.alignment()) => Ok((buffer, offset)),
        Some(_) => Err("the planned offset is misaligned"),
        None => Err("planned offset out of range"),
    })
}

fn find_external<'p>(
    data: &'p [DataMap<'p>],
    tensor: &TensorTable<'p>,
    slot: &Tensor<'_, '_>,
) -> Result<Blob<'p>, LocationError> {
    let name = tensor_name(tensor)?.ok_or(Part::ExternalName.at(0))?;
    for map in data {
        let Some(entry) = map.entry(name)? else { continue };
        let blob = map.segment(&entry)?;
        if let Some(layout) = entry.tensor_layout()?
            && !is_layout_of(&layout, slot)?
        {
            return Err(LocationError::External(
                "its dtype, shape or dim order differs from the program's",
            ));
        }
        return blob
            .part(0, slot.capacity())
            .ok_or(LocationError::External("shorter than the tensor"));
    }
    Err(LocationError::External("not found; pass the .ptd file that contains it"))
}

/// Whether the tensor layout in a data file matches dtype, shape and dim order of the tensor.
fn is_layout_of(layout: &TensorLayoutTable<'_>, slot: &Tensor<'_, '_>) -> Result<bool, Malformed> {
    let sizes: &[[u8; 4]] = elements(layout.sizes()?.bytes());
    let dim_order = layout.dim_order()?.bytes();
    let bound = slot.bound();
    Ok(layout.scalar_type()? == slot.scalar_type as i8
        && sizes.len() == bound.len()
        && sizes.iter().zip(&bound).all(|(a, b)| i32::from_le_bytes(*a) == *b)
        && dim_order.len() == sizes.len()
        && is_permutation(dim_order)
        && same_layout(&bound, dim_order, slot.dim_order()))
}

/// Borrows the bytes of a constant in place; `None` if they must be copied, since the storage
/// cannot lend them, or lends them misaligned.
pub(crate) fn lend_aligned<'p>(blob: &Blob<'p>, align: usize) -> Option<&'p [u8]> {
    let bytes = blob.lend()?;
    (bytes.is_empty() || bytes.as_ptr().addr().is_multiple_of(align)).then_some(bytes)
}
