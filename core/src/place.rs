//! Where the data of a tensor is, by what the file says.

use crate::data_map::{Blob, DataMap};
use crate::error::{InitError, Message, ProgramError};
use crate::format::program_schema::{AllocationDetails, TensorTable};
use crate::format::{Malformed, Part};
use crate::layout::{TensorInfo, same_layout};
use crate::meta::tensor_name;
use crate::method::tables::tensor_info;
use crate::program::Program;

/// Where the data of a tensor is.
#[derive(Debug, Clone)]
pub(crate) enum Place<'p> {
    /// In the program or in external data.
    Constant(Blob<'p>, TensorInfo),
    /// In planned memory: buffer and offset, and the data that it starts with, if any.
    Planned { buffer: usize, offset: usize, initial: Option<Blob<'p>>, info: TensorInfo },
    /// Nowhere yet: the caller binds memory, or an instruction does.
    Unplanned,
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
) -> Result<Place<'p>, PlaceError> {
    let info =
        tensor_info(tensor).ok_or(PlaceError::Value("its type, shape or layout is not valid"))?;
    if tensor.storage_offset()? != 0 {
        return Err(PlaceError::Value("its storage offset is not zero"));
    }
    let extra = tensor.extra_tensor_info()?;
    let external = match extra {
        Some(extra) => extra.location()? == 1,
        None => false,
    };
    let entry = usize::try_from(tensor.data_buffer_idx()?)
        .map_err(|_| PlaceError::Value("its data index is out of range"))?;
    let allocation = tensor.allocation_info()?;
    let stored = if external {
        Some(find_external(data, tensor, &info)?)
    } else if entry == 0 {
        None
    } else if allocation.is_some() {
        let table = match extra {
            Some(extra) => extra.mutable_data_segments_idx()?,
            None => 0,
        };
        Some(program.initial_data(table, entry, info.nbytes())?)
    } else {
        Some(program.constant(entry, info.nbytes())?)
    };
    let Some(allocation) = allocation else {
        return Ok(match stored {
            Some(blob) => Place::Constant(blob, info),
            None => Place::Unplanned,
        });
    };
    let range = PlaceError::Value("its place in planned memory is out of range");
    let (buffer, offset) = planned_place(&allocation)?.ok_or(range)?;
    Ok(Place::Planned { buffer, offset, initial: stored, info })
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
    info: &TensorInfo,
) -> Result<Blob<'p>, PlaceError> {
    let unnamed = Part::ExternalName.at(0);
    let name = tensor_name(tensor)?.ok_or(unnamed)?;
    let (map, blob) = Program::external(data, name)?
        .ok_or(PlaceError::External("not found; pass the .ptd file that has it"))?;
    if let Some(layout) = map.layout(name)? {
        let same = layout.scalar_type == info.scalar_type
            && layout.sizes == info.sizes
            && same_layout(&info.sizes, &layout.dim_order, &info.dim_order);
        if !same {
            return Err(PlaceError::External("type, shape or layout differs from the program's"));
        }
    }
    blob.part(0, info.nbytes()).ok_or(PlaceError::External("is shorter than the tensor"))
}

/// Whether constant data must be copied to be used: its storage cannot lend it, or lends it misaligned.
pub(crate) fn must_copy(blob: &Blob<'_>, info: &TensorInfo) -> bool {
    match blob.lend() {
        Some(bytes) => {
            !bytes.is_empty() && bytes.as_ptr().addr() % info.scalar_type.size().min(8) != 0
        }
        None => true,
    }
}
