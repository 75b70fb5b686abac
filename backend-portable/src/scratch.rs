//! Typed views of scratch memory.

use torchlet_core::{Invoke, KernelError};

/// Bytes for `len` elements, for [`Plan::with_scratch`](torchlet_core::Plan::with_scratch).
pub(crate) fn bytes_for(len: usize, element: usize) -> Result<usize, KernelError> {
    let bytes = len.checked_mul(element).filter(|bytes| *bytes <= isize::MAX as usize);
    bytes.ok_or(KernelError::unsupported("more scratch memory than can be addressed"))
}

/// The first `len` elements of the scratch memory, of which prepare asked for enough; can be taken
/// once.
pub(crate) fn take<'c, T: bytemuck::Pod>(
    ctx: &mut Invoke<'c, '_>,
    len: usize,
) -> Result<&'c mut [T], KernelError> {
    take_from(&mut ctx.scratch(), len)
}

/// The first `len` elements of what is left of the scratch memory.
pub(crate) fn take_from<'c, T: bytemuck::Pod>(
    left: &mut &'c mut [u8],
    len: usize,
) -> Result<&'c mut [T], KernelError> {
    if len == 0 {
        return Ok(&mut []);
    }
    let bytes = len.checked_mul(size_of::<T>()).and_then(|len| left.split_off_mut(..len));
    let elements = bytes.and_then(|bytes| bytemuck::try_cast_slice_mut(bytes).ok());
    elements.ok_or(KernelError::unsupported("less scratch memory than was asked for"))
}
