//! Typed views of scratch memory.

use torchlet_core::{Element, Invoke, KernelError};

/// Bytes for `len` elements, for [`Plan::with_scratch`](torchlet_core::Plan::with_scratch).
pub(crate) fn bytes_for(len: usize, element: usize) -> Result<usize, KernelError> {
    let bytes = len.checked_mul(element).filter(|bytes| *bytes <= isize::MAX as usize);
    bytes.ok_or(KernelError::Unsupported { what: "more scratch memory than can be addressed" })
}

/// The first `len` elements of the scratch memory, of which prepare asked for enough; can be taken once.
pub(crate) fn take<'c, T: Element>(
    ctx: &mut Invoke<'c, '_>,
    len: usize,
) -> Result<&'c mut [T], KernelError> {
    view(ctx.scratch(), len)
}

/// The first `len` elements of memory.
pub(crate) fn view<T: bytemuck::Pod>(
    bytes: &mut [u8],
    len: usize,
) -> Result<&mut [T], KernelError> {
    let less = KernelError::Unsupported { what: "less scratch memory than was asked for" };
    if len == 0 {
        return Ok(&mut []);
    }
    let bytes = len.checked_mul(size_of::<T>()).and_then(|len| bytes.get_mut(..len));
    bytes.and_then(|bytes| bytemuck::try_cast_slice_mut(bytes).ok()).ok_or(less)
}
