//! Where the data of a tensor is, by what the file says.

use crate::data_map::{Blob, DataMap};
use crate::error::{InitError, Message, ProgramError};
use crate::format::program_schema::{AllocationDetails, TensorTable};
use crate::format::{Malformed, Part};
use crate::layout::same_layout;
use crate::meta::tensor_name;
use crate::program::Program;
use crate::value::TensorSlot;

/// Where the data of a tensor is.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place<'p> {
    /// In planned memory: buffer and offset.
    pub(crate) planned: Option<(usize, usize)>,
    /// In the program or in external data: all of a constant, or what a planned tensor starts with.
    pub(crate) stored: Option<Blob<'p>>,
}

/// Why a tensor's data cannot be found.
#[derive(Debug, Clone, Copy)]
pub(crate) enum PlaceError {
    Program(ProgramError),
    Value(&'static str),
    External(&'static str),
}

impl<E: Into<ProgramError>> From<E> for PlaceError {
    fn from(error: E) -> Self {
        PlaceError::Program(error.into())
    }
}

impl PlaceError {
    /// The error with the place where it happened.
    #[cold]
    pub(crate) fn at(self, tensor: &TensorTable<'_>, index: usize) -> InitError {
        match self {
            PlaceError::Program(error) => InitError::Program(error),
            PlaceError::Value(what) => InitError::Value { index, what },
            PlaceError::External(what) => {
                let name = tensor_name(tensor).ok().flatten().unwrap_or("");
                InitError::ExternalData { name: Message::new(format_args!("{name}")), what }
            }
        }
    }
}

/// Finds the data of a tensor, and checks that there is as much as the tensor has.
///
/// The rules are the schema's: data is constant without allocation, mutable with; entry 0 of the constants
/// means none; external data is found by the tensor's name.
pub(crate) fn locate<'p>(
    program: &Program<'p>,
    data: &'p [DataMap<'p>],
    tensor: &TensorTable<'p>,
    slot: &TensorSlot<'_>,
) -> Result<Place<'p>, PlaceError> {
    if tensor.storage_offset()? != 0 {
        return Err(PlaceError::Value("its storage offset is not zero"));
    }
    let (mut is_external, mut table) = (false, 0);
    if let Some(extra) = tensor.extra_tensor_info()? {
        is_external = extra.location()? == 1;
        table = extra.mutable_data_segments_idx()?;
    }
    let entry = tensor.data_buffer_idx()? as usize;
    let allocation = tensor.allocation_info()?;
    let stored = if is_external {
        Some(find_external(data, tensor, slot)?)
    } else if entry == 0 {
        None
    } else if allocation.is_some() {
        Some(program.initial_data(table, entry, slot.capacity)?)
    } else {
        Some(program.constant(entry, slot.capacity)?)
    };
    let range = PlaceError::Value("its place in planned memory is out of range");
    let planned = match allocation {
        Some(allocation) => Some(planned_place(&allocation)?.ok_or(range)?),
        None => None,
    };
    Ok(Place { planned, stored })
}

/// Buffer and offset of a tensor in planned memory; `None` if there is no such place.
pub(crate) fn planned_place(
    allocation: &AllocationDetails<'_>,
) -> Result<Option<(usize, usize)>, Malformed> {
    // Buffer 0 of the file is reserved; the caller's first is the file's second.
    let buffer = usize::try_from(allocation.memory_id()?).ok().and_then(|id| id.checked_sub(1));
    let offset = u64::from(allocation.memory_offset_low()?)
        | u64::from(allocation.memory_offset_high()?) << 32;
    Ok(buffer.zip(usize::try_from(offset).ok()))
}

fn find_external<'p>(
    data: &'p [DataMap<'p>],
    tensor: &TensorTable<'p>,
    slot: &TensorSlot<'_>,
) -> Result<Blob<'p>, PlaceError> {
    let name = tensor_name(tensor)?.ok_or(Part::ExternalName.at(0))?;
    let (map, blob) = Program::external(data, name)?
        .ok_or(PlaceError::External("not found; pass the .ptd file that has it"))?;
    if let Some(layout) = map.layout(name)? {
        let same = layout.scalar_type == slot.scalar_type
            && layout.sizes == *slot.sizes
            && same_layout(slot.sizes, &layout.dim_order, slot.dim_order);
        if !same {
            return Err(PlaceError::External("type, shape or layout differs from the program's"));
        }
    }
    blob.part(0, slot.capacity).ok_or(PlaceError::External("is shorter than the tensor"))
}

/// The bytes of a constant where they lie; `None` if they must be copied to be used, as the storage cannot lend them, or lends them
/// misaligned.
pub(crate) fn lend_aligned<'p>(blob: &Blob<'p>, align: usize) -> Option<&'p [u8]> {
    let bytes = blob.lend()?;
    (bytes.is_empty() || bytes.as_ptr().addr().is_multiple_of(align)).then_some(bytes)
}
