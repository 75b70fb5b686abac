//! Properties of tensors in the file.

use crate::format::Malformed;
use crate::format::program_schema::{AllocationDetails, TensorTable};
use crate::layout::TensorInfo;

/// Fully qualified name of a tensor, if the exporter kept it.
pub(crate) fn tensor_name<'p>(tensor: &TensorTable<'p>) -> Result<Option<&'p str>, Malformed> {
    match tensor.extra_tensor_info()? {
        Some(extra) => extra.fully_qualified_name(),
        None => Ok(None),
    }
}

/// Whether a tensor is constant, with data in the program or in external data.
pub(crate) fn is_constant(tensor: &TensorTable<'_>) -> bool {
    let allocated = tensor.allocation_info().is_ok_and(|info| info.is_some());
    let external = tensor
        .extra_tensor_info()
        .ok()
        .flatten()
        .is_some_and(|extra| extra.location().is_ok_and(|location| location == 1));
    let stored = tensor.data_buffer_idx().is_ok_and(|index| index > 0);
    !allocated && (stored || external)
}

/// Planned buffer and byte offset of a tensor; `None` if out of range.
pub(crate) fn planned_offset(
    allocation: &AllocationDetails<'_>,
) -> Result<Option<(usize, usize)>, Malformed> {
    // Buffer 0 of the file is reserved: file buffer n + 1 is the caller's buffer n.
    let buffer = usize::try_from(allocation.memory_id()?).ok().and_then(|id| id.checked_sub(1));
    let offset = u64::from(allocation.memory_offset_low()?)
        | u64::from(allocation.memory_offset_high()?) << 32;
    Ok(buffer.zip(usize::try_from(offset).ok()))
}

/// Dtype, bound shape and layout of a tensor in the file; `None` if invalid.
pub(crate) fn tensor_info(tensor: &TensorTable<'_>) -> Option<TensorInfo> {
    let sizes = tensor.sizes().ok()?;
    TensorInfo::checked(
        tensor.scalar_type().ok()?.into(),
        sizes.iter().map(|size| size.ok()),
        tensor.dim_order().ok()?.bytes(),
    )
}
