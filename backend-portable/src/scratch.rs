//! Typed views of scratch memory.

use torchlet_core::{Invoke, KernelError};

/// Number of bytes of `len` elements, for
/// [`Plan::with_scratch`](torchlet_core::Plan::with_scratch).
pub(crate) fn bytes_for(len: usize, element: usize) -> Result<usize, KernelError> {
    let bytes = len.checked_mul(element).filter(|bytes| *bytes <= isize::MAX as usize);
    bytes.ok_or(KernelError::unsupported("scratch memory larger than the address space"))
}

/// Returns the first `len` elements of the scratch memory that prepare requested. Can be called
/// once per invocation.
pub(crate) fn take<'c, T: bytemuck::Pod>(
    ctx: &mut Invoke<'c, '_>,
    len: usize,
) -> Result<&'c mut [T], KernelError> {
    take_from(&mut ctx.scratch(), len)
}

/// Splits `len` elements off the front of the remaining scratch memory.
pub(crate) fn take_from<'c, T: bytemuck::Pod>(
    left: &mut &'c mut [u8],
    len: usize,
) -> Result<&'c mut [T], KernelError> {
    if len == 0 {
        return Ok(&mut []);
    }
    let bytes = len.checked_mul(size_of::<T>()).and_then(|len| left.split_off_mut(..len));
    let elements = bytes.and_then(|bytes| bytemuck::try_cast_slice_mut(bytes).ok());
    elements
        .ok_or(KernelError::unsupported("internal error: scratch memory is smaller than requested"))
}
