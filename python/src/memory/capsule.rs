//! DLPack capsules: imports and exports tensors.

use super::dlpack::{
    CPU, DataType, Managed, ManagedVersioned, READ_ONLY, TENSOR, Tensor, USED_TENSOR,
    USED_VERSIONED, VERSION, VERSIONED,
};
use super::{Foreign, Memory, Owner};
use crate::error::{invalid, unsupported};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyCapsule;
use std::ffi::CStr;
use std::ptr::{self, NonNull};
use std::sync::Arc;
use torchlet::core::TensorInfo;
use torchlet::core::layout::MAX_RANK;

/// An imported tensor; dropping it calls its deleter.
pub(super) enum Imported {
    Plain(NonNull<Managed>),
    Versioned(NonNull<ManagedVersioned>),
}

impl Drop for Imported {
    fn drop(&mut self) {
        match self {
            Imported::Plain(managed) => {
                // SAFETY: the capsule transferred the structure to us, and the deleter is called
                // once, as DLPack requires.
                unsafe {
                    if let Some(deleter) = managed.as_ref().deleter {
                        deleter(managed.as_ptr());
                    }
                }
            }
            Imported::Versioned(managed) => {
                // SAFETY: as above. The deleter's offset is the same in all versions.
                unsafe {
                    if let Some(deleter) = managed.as_ref().deleter {
                        deleter(managed.as_ptr());
                    }
                }
            }
        }
    }
}

/// Takes ownership of the pointer in a capsule of this name, and renames the capsule; `None` if the
/// name differs.
fn take<T>(capsule: &Bound<'_, PyCapsule>, name: &CStr, used: &'static CStr) -> Option<NonNull<T>> {
    // SAFETY: the object is a capsule and the names are C strings; the new one is static, as
    // capsules require.
    unsafe {
        if ffi::PyCapsule_IsValid(capsule.as_ptr(), name.as_ptr()) == 0 {
            return None;
        }
        let pointer = NonNull::new(ffi::PyCapsule_GetPointer(capsule.as_ptr(), name.as_ptr()))?;
        if ffi::PyCapsule_SetName(capsule.as_ptr(), used.as_ptr()) != 0 {
            return None;
        }
        Some(pointer.cast())
    }
}

/// Imports the tensor in a capsule, which is consumed.
pub(crate) fn import(capsule: &Bound<'_, PyCapsule>) -> PyResult<Foreign> {
    if let Some(managed) = take::<ManagedVersioned>(capsule, VERSIONED, USED_VERSIONED) {
        let keep = Imported::Versioned(managed);
        // SAFETY: a capsule of this name holds this structure, whose first fields, up to the
        // deleter, are the same in all versions.
        let version = unsafe { (*managed.as_ptr()).version };
        if version.major != VERSION.major {
            return Err(unsupported(format!("DLPack version {}.{}", version.major, version.minor)));
        }
        // SAFETY: as above, and the structure matches the major version.
        let (tensor, flags) = unsafe { (&managed.as_ref().tensor, managed.as_ref().flags) };
        return foreign(tensor, flags & READ_ONLY == 0, keep);
    }
    if let Some(managed) = take::<Managed>(capsule, TENSOR, USED_TENSOR) {
        let keep = Imported::Plain(managed);
        // SAFETY: a capsule of this name holds this structure, which lives until its deleter is
        // called.
        let tensor = unsafe { &managed.as_ref().tensor };
        return foreign(tensor, true, keep);
    }
    Err(invalid("the capsule has no DLPack tensor, or was used before".into()))
}

fn foreign(tensor: &Tensor, writable: bool, keep: Imported) -> PyResult<Foreign> {
    if !tensor.device.is_host() {
        let device = tensor.device.kind;
        return Err(unsupported(format!("a tensor on DLPack device {device}; move it to the CPU")));
    }
    let rank = usize::try_from(tensor.ndim).ok().filter(|rank| *rank <= MAX_RANK);
    let rank = rank.ok_or_else(|| {
        invalid(format!("a tensor with {} dims; at most {MAX_RANK} are supported", tensor.ndim))
    })?;
    let scalar_type = tensor.dtype.scalar_type();
    let scalar_type = scalar_type
        .ok_or_else(|| unsupported(format!("a tensor with elements of {:?}", tensor.dtype)))?;
    if rank > 0 && tensor.shape.is_null() {
        return Err(invalid("a DLPack tensor has no shape".into()));
    }
    // SAFETY: shape and strides, if present, have one element per dimension.
    let (sizes, strides) = unsafe {
        let list = |start: *mut i64| match rank {
            0 => Vec::new(),
            _ => std::slice::from_raw_parts(start, rank).to_vec(),
        };
        let strides = (!tensor.strides.is_null()).then(|| list(tensor.strides));
        (list(tensor.shape), strides)
    };
    let offset = usize::try_from(tensor.byte_offset)
        .map_err(|_| invalid("the byte offset of a DLPack tensor overflows".into()))?;
    let data = if tensor.data.is_null() {
        ptr::null_mut()
    } else {
        tensor.data.cast::<u8>().wrapping_add(offset)
    };
    let owner = Owner::Capsule { _keep: keep };
    Ok(Foreign { data, scalar_type, sizes, strides, writable, owner })
}

/// Contents of an exported capsule: the structure, the arrays it points to, and the memory.
struct Exported<M> {
    managed: M,
    _shape: Vec<i64>,
    _strides: Vec<i64>,
    _memory: Arc<Memory>,
}

/// Drops an export context.
fn drop_context<M>(context: *mut std::ffi::c_void) {
    if !context.is_null() {
        // SAFETY: the context came from `Box::into_raw` in `export`, with this type, and a deleter
        // is called once.
        drop(unsafe { Box::from_raw(context.cast::<Exported<M>>()) });
    }
}

unsafe extern "C" fn delete(managed: *mut Managed) {
    // SAFETY: DLPack calls the deleter with the structure that contains it.
    drop_context::<Managed>(unsafe { (*managed).context });
}

unsafe extern "C" fn delete_versioned(managed: *mut ManagedVersioned) {
    // SAFETY: as above.
    drop_context::<ManagedVersioned>(unsafe { (*managed).context });
}

/// Destructor of exported capsules: frees a tensor that was not consumed.
unsafe extern "C" fn destroy(capsule: *mut ffi::PyObject) {
    // SAFETY: Python calls it with a capsule from `export`; a consumed one has another name.
    unsafe {
        for name in [TENSOR, VERSIONED] {
            if ffi::PyCapsule_IsValid(capsule, name.as_ptr()) == 0 {
                continue;
            }
            let pointer = ffi::PyCapsule_GetPointer(capsule, name.as_ptr());
            match name == TENSOR {
                true => delete(pointer.cast()),
                false => delete_versioned(pointer.cast()),
            }
        }
    }
}

/// Exports a tensor as a capsule. Read-only memory requires the versioned structure, which has a
/// flag for it.
pub(crate) fn export<'py>(
    py: Python<'py>,
    info: &TensorInfo,
    memory: &Arc<Memory>,
    versioned: bool,
) -> PyResult<Bound<'py, PyAny>> {
    let dtype = DataType::of(info.scalar_type)
        .ok_or_else(|| unsupported(format!("dtype {} in DLPack", info.scalar_type)))?;
    let mut shape: Vec<i64> = info.sizes.iter().copied().map(i64::from).collect();
    let strides = info.strides();
    let strides = strides.iter().map(|&stride| i64::try_from(stride).unwrap_or(i64::MAX));
    let mut strides: Vec<i64> = strides.collect();
    let tensor = Tensor {
        data: memory.start().cast(),
        device: CPU,
        ndim: shape.len() as i32,
        dtype,
        // Moving a `Vec` does not move its elements.
        shape: shape.as_mut_ptr(),
        strides: strides.as_mut_ptr(),
        byte_offset: 0,
    };
    let (context, _memory) = (ptr::null_mut(), memory.clone());
    let (_shape, _strides) = (shape, strides);
    if versioned {
        let flags = if memory.is_writable() { 0 } else { READ_ONLY };
        let deleter = Some(delete_versioned as unsafe extern "C" fn(*mut ManagedVersioned));
        let managed = ManagedVersioned { version: VERSION, context, deleter, flags, tensor };
        let exported = Exported { managed, _shape, _strides, _memory };
        return capsule(py, exported, VERSIONED, |managed| &mut managed.context);
    }
    let deleter = Some(delete as unsafe extern "C" fn(*mut Managed));
    let managed = Managed { tensor, context, deleter };
    let exported = Exported { managed, _shape, _strides, _memory };
    capsule(py, exported, TENSOR, |managed| &mut managed.context)
}

/// Creates a capsule of this name, and stores the context that its deleter frees.
fn capsule<'py, M>(
    py: Python<'py>,
    exported: Exported<M>,
    name: &'static CStr,
    context: fn(&mut M) -> &mut *mut std::ffi::c_void,
) -> PyResult<Bound<'py, PyAny>> {
    let exported = Box::into_raw(Box::new(exported));
    // SAFETY: the box is alive, and not shared yet.
    let pointer = unsafe {
        *context(&mut (*exported).managed) = exported.cast();
        &raw mut (*exported).managed
    };
    // SAFETY: the pointer is not null and the name is static; the destructor knows the pointer's
    // type. The result is a new reference or null.
    unsafe {
        let capsule = ffi::PyCapsule_New(pointer.cast(), name.as_ptr(), Some(destroy));
        Bound::from_owned_ptr_or_err(py, capsule)
            .inspect_err(|_| drop_context::<M>(exported.cast()))
    }
}
