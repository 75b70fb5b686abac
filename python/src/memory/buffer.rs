//! The buffer protocol: imports buffers of other objects, exports tensors.

use super::{Foreign, Memory, Owner};
use crate::error::{invalid, unsupported};
use pyo3::exceptions::PyBufferError;
use pyo3::ffi;
use pyo3::prelude::*;
use std::ffi::{CStr, c_int};
use std::ptr;
use torchlet::core::layout::MAX_RANK;
use torchlet::core::{ScalarType, TensorInfo};

/// A buffer view, released on drop.
pub(super) struct Imported(Box<ffi::Py_buffer>);

// SAFETY: the view is only released, by a thread that is attached to the interpreter.
unsafe impl Send for Imported {}
// SAFETY: as above.
unsafe impl Sync for Imported {}

impl Drop for Imported {
    fn drop(&mut self) {
        // SAFETY: the view was filled by `PyObject_GetBuffer`, is released once, and has not moved
        // since.
        Python::attach(|_| unsafe { ffi::PyBuffer_Release(&mut *self.0) });
    }
}

/// Whether an object supports the buffer protocol.
pub(crate) fn is_buffer(object: &Bound<'_, PyAny>) -> bool {
    // SAFETY: the object is alive, and this thread is attached to the interpreter.
    unsafe { ffi::PyObject_CheckBuffer(object.as_ptr()) != 0 }
}

/// The element type of a `struct` format with this element size.
fn scalar_type(format: &str, size: usize) -> Option<ScalarType> {
    use ScalarType as S;
    let native = if cfg!(target_endian = "little") { '<' } else { '>' };
    let code = format.trim_start_matches(['@', '=', native]);
    let found = match (code, size) {
        ("?", 1) => S::Bool,
        ("b", 1) => S::Char,
        ("B", 1) => S::Byte,
        ("e", 2) => S::Half,
        ("f", 4) => S::Float,
        ("d", 8) => S::Double,
        ("Zf", 8) => S::ComplexFloat,
        ("Zd", 16) => S::ComplexDouble,
        ("h" | "i" | "l" | "q" | "n", 2) => S::Short,
        ("i" | "l" | "q" | "n", 4) => S::Int,
        ("l" | "q" | "n", 8) => S::Long,
        ("H" | "I" | "L" | "Q" | "N", 2) => S::UInt16,
        ("I" | "L" | "Q" | "N", 4) => S::UInt32,
        ("L" | "Q" | "N", 8) => S::UInt64,
        _ => return None,
    };
    Some(found)
}

/// The `struct` format of an element type, if one exists.
fn format_of(scalar_type: ScalarType) -> Option<&'static CStr> {
    use ScalarType as S;
    Some(match scalar_type {
        S::Bool => c"?",
        S::Char => c"b",
        S::Byte => c"B",
        S::Short => c"h",
        S::UInt16 => c"H",
        S::Int => c"i",
        S::UInt32 => c"I",
        S::Long => c"q",
        S::UInt64 => c"Q",
        S::Half => c"e",
        S::Float => c"f",
        S::Double => c"d",
        S::ComplexFloat => c"Zf",
        S::ComplexDouble => c"Zd",
        _ => return None,
    })
}

/// Imports the tensor in an object's buffer.
pub(crate) fn import(object: &Bound<'_, PyAny>) -> PyResult<Foreign> {
    let mut view = Box::new(ffi::Py_buffer::new());
    // SAFETY: the object is alive, this thread is attached, and the view is writable.
    if unsafe { ffi::PyObject_GetBuffer(object.as_ptr(), &mut *view, ffi::PyBUF_FULL_RO) } != 0 {
        return Err(PyErr::fetch(object.py()));
    }
    let keep = Imported(view);
    let view = &*keep.0;
    let rank = usize::try_from(view.ndim).ok().filter(|rank| *rank <= MAX_RANK);
    let rank = rank.ok_or_else(|| {
        invalid(format!("a buffer with {} dims; at most {MAX_RANK} are supported", view.ndim))
    })?;
    if !view.suboffsets.is_null() {
        return Err(unsupported("a buffer with suboffsets".into()));
    }
    let size = usize::try_from(view.itemsize).unwrap_or(0);
    let format = if view.format.is_null() {
        "B"
    } else {
        // SAFETY: a format is a C string that lives as long as the view.
        unsafe { CStr::from_ptr(view.format) }.to_str().unwrap_or("(not UTF-8)")
    };
    let scalar_type = scalar_type(format, size).ok_or_else(|| {
        unsupported(format!(
            "{size}-byte elements of the format {format:?}; convert the array to a dtype of PyTorch"
        ))
    })?;
    let list = |start: *mut ffi::Py_ssize_t| match start.is_null() || rank == 0 {
        true => None,
        // SAFETY: shape and strides, if present, have one element per dimension.
        false => Some(unsafe { std::slice::from_raw_parts(start, rank) }.to_vec()),
    };
    let sizes = match (list(view.shape), rank) {
        (Some(shape), _) => shape.into_iter().map(|size| size as i64).collect(),
        (None, 0) => Vec::new(),
        (None, _) => vec![(view.len / view.itemsize.max(1)) as i64],
    };
    let strides = match list(view.strides) {
        None => None,
        // Strides of buffers are in bytes.
        Some(strides) if strides.iter().all(|stride| stride % view.itemsize.max(1) == 0) => {
            Some(strides.into_iter().map(|stride| (stride / view.itemsize.max(1)) as i64).collect())
        }
        Some(_) => return Err(unsupported("a buffer whose elements overlap partially".into())),
    };
    let (data, writable) = (view.buf.cast(), view.readonly == 0);
    let owner = Owner::Buffer { _keep: keep };
    Ok(Foreign { data, scalar_type, sizes, strides, writable, owner })
}

/// Arrays that an exported view points to.
struct Lists {
    shape: Vec<ffi::Py_ssize_t>,
    strides: Vec<ffi::Py_ssize_t>,
}

/// Exports a tensor's memory.
///
/// # Safety
/// `view` is the argument of `__getbuffer__`, and `owner` the object that it was called on, which
/// owns `memory`.
pub(crate) unsafe fn export(
    owner: Bound<'_, PyAny>,
    info: &TensorInfo,
    memory: &Memory,
    view: *mut ffi::Py_buffer,
    flags: c_int,
) -> PyResult<()> {
    if view.is_null() {
        return Err(PyBufferError::new_err("the view is null"));
    }
    // SAFETY: the view is Python's, to be filled here; a null `obj` means that nothing is to be
    // released.
    unsafe { (*view).obj = ptr::null_mut() };
    let refuse = |why: &str| Err(PyBufferError::new_err(why.to_owned()));
    let Some(format) = format_of(info.scalar_type) else {
        return Err(PyBufferError::new_err(format!(
            "the buffer protocol has no {}; use DLPack (torch.from_dlpack), or `with_dtype` for \
             the bits",
            info.scalar_type
        )));
    };
    let asks = |flag: c_int| flags & flag == flag;
    if asks(ffi::PyBUF_WRITABLE) && !memory.is_writable() {
        return refuse("the tensor's memory is read-only");
    }
    if !asks(ffi::PyBUF_STRIDES) && !info.is_contiguous()
        || asks(ffi::PyBUF_C_CONTIGUOUS) && !info.is_contiguous()
    {
        return refuse("the tensor is not in row-major order");
    }
    let size = info.scalar_type.size();
    let signed = |number: usize| ffi::Py_ssize_t::try_from(number).unwrap_or(ffi::Py_ssize_t::MAX);
    let lists = Box::new(Lists {
        shape: (0..info.rank()).map(|dim| signed(info.size(dim))).collect(),
        strides: info.strides().iter().map(|&step| signed(step.saturating_mul(size))).collect(),
    });
    let f_contiguous = lists.shape.iter().filter(|size| **size > 1).count() <= 1;
    if asks(ffi::PyBUF_F_CONTIGUOUS) && !f_contiguous {
        return refuse("the tensor is not in column-major order");
    }
    let lists = Box::into_raw(lists);
    // SAFETY: the view is Python's, to be filled here. It points to memory of the owner, of which
    // it gets a reference, and to the lists, which `release` frees.
    unsafe {
        (*view).buf = memory.start().cast();
        (*view).obj = owner.into_ptr();
        (*view).len = signed(memory.len());
        (*view).itemsize = signed(size);
        (*view).readonly = c_int::from(!memory.is_writable());
        (*view).ndim = info.rank() as c_int;
        (*view).format = match asks(ffi::PyBUF_FORMAT) {
            true => format.as_ptr().cast_mut(),
            false => ptr::null_mut(),
        };
        (*view).shape = match asks(ffi::PyBUF_ND) {
            true => (*lists).shape.as_mut_ptr(),
            false => ptr::null_mut(),
        };
        (*view).strides = match asks(ffi::PyBUF_STRIDES) {
            true => (*lists).strides.as_mut_ptr(),
            false => ptr::null_mut(),
        };
        (*view).suboffsets = ptr::null_mut();
        (*view).internal = lists.cast();
    }
    Ok(())
}

/// Frees the arrays of [`export`].
///
/// # Safety
/// `view` was filled by `export`, and is released once.
pub(crate) unsafe fn release(view: *mut ffi::Py_buffer) {
    // SAFETY: guaranteed by the caller.
    let lists = unsafe { (*view).internal.cast::<Lists>() };
    if !lists.is_null() {
        // SAFETY: the pointer came from `Box::into_raw`.
        drop(unsafe { Box::from_raw(lists) });
    }
}
