//! What methods take, give and need.

use crate::fault::Fault;
use crate::handle::{self, handle};
use crate::pointer;
use crate::status::{run, torchlet_status, torchlet_text, value};
use crate::tensor::torchlet_tensor_info;
use crate::values::{TORCHLET_KIND_TENSOR, torchlet_string, torchlet_value, torchlet_value_data};
use core::mem::MaybeUninit;
use core::ptr;
use torchlet_core::{MethodMeta, ShapeDynamism, ValueMeta};

/// The description of a method, in memory of the caller. It need not be closed.
#[repr(C)]
pub struct torchlet_method_meta {
    opaque: u64,
    words: [MaybeUninit<usize>; 18],
}

handle!(torchlet_method_meta, MethodMeta<'static>, "the description of a method", 2);

/// What an input or output is.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct torchlet_value_meta {
    /// Its kind, and for numbers and text what they were at export. A tensor has type and shape, of
    /// a dynamic shape the bound, and no data.
    pub value: torchlet_value,
    /// Whether the shape of a tensor can change between runs.
    pub dynamic: bool,
    /// Whether a tensor has a place in planned memory. Else the caller binds memory to it, or it is
    /// constant.
    pub planned: bool,
    /// Whether the data of a tensor comes with the program.
    pub constant: bool,
    /// The name of a tensor, where the exporter kept it: that of a parameter or buffer. Else its
    /// data is null.
    pub name: torchlet_string,
}

impl torchlet_value_meta {
    fn of(meta: &ValueMeta<'_>) -> Self {
        let mut result = torchlet_value_meta {
            value: torchlet_value::none(),
            dynamic: false,
            planned: false,
            constant: false,
            name: torchlet_string { data: ptr::null(), size: 0 },
        };
        match meta {
            ValueMeta::Scalar(scalar) => result.value = torchlet_value::of_scalar(*scalar),
            ValueMeta::String(text) => result.value = torchlet_value::of_string(text),
            ValueMeta::List(length) => result.value = torchlet_value::of_list(*length),
            ValueMeta::Tensor(tensor) => {
                let info = torchlet_tensor_info::of(&tensor.info);
                let size = tensor.info.nbytes();
                let tensor_of = crate::tensor::torchlet_tensor { info, data: ptr::null(), size };
                let data = torchlet_value_data { tensor: tensor_of };
                result.value = torchlet_value { kind: TORCHLET_KIND_TENSOR, data };
                result.dynamic = tensor.dynamism != ShapeDynamism::Static;
                result.planned = tensor.planned;
                result.constant = tensor.constant;
                if let Some(name) = tensor.name {
                    result.name = torchlet_string::of(name);
                }
            }
            _ => {}
        }
        result
    }
}

/// Number of inputs.
///
/// # Safety
/// The rules at the head of `torchlet.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn torchlet_method_meta_input_count(
    meta: *const torchlet_method_meta,
) -> usize {
    // SAFETY: the caller's promise.
    value(0, || Some(unsafe { handle::get(meta).ok()? }.input_count()))
}

/// Number of outputs.
///
/// # Safety
/// The rules at the head of `torchlet.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn torchlet_method_meta_output_count(
    meta: *const torchlet_method_meta,
) -> usize {
    // SAFETY: the caller's promise.
    value(0, || Some(unsafe { handle::get(meta).ok()? }.output_count()))
}

/// What an input is.
///
/// # Safety
/// The rules at the head of `torchlet.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn torchlet_method_meta_input(
    meta: *const torchlet_method_meta,
    index: usize,
    result: *mut torchlet_value_meta,
    error: *const torchlet_text,
) -> torchlet_status {
    let body = || {
        // SAFETY: the caller's promise.
        let meta = unsafe { handle::get(meta)? };
        let count = meta.input_count();
        let found = meta.input(index)?.ok_or(Fault::Index { what: "input", index, count })?;
        // SAFETY: the caller's promise.
        unsafe { pointer::put(result, torchlet_value_meta::of(&found), "result") }
    };
    // SAFETY: the caller's promise.
    unsafe { run(error, body) }
}

/// What an output is.
///
/// # Safety
/// The rules at the head of `torchlet.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn torchlet_method_meta_output(
    meta: *const torchlet_method_meta,
    index: usize,
    result: *mut torchlet_value_meta,
    error: *const torchlet_text,
) -> torchlet_status {
    let body = || {
        // SAFETY: the caller's promise.
        let meta = unsafe { handle::get(meta)? };
        let count = meta.output_count();
        let found = meta.output(index)?.ok_or(Fault::Index { what: "output", index, count })?;
        // SAFETY: the caller's promise.
        unsafe { pointer::put(result, torchlet_value_meta::of(&found), "result") }
    };
    // SAFETY: the caller's promise.
    unsafe { run(error, body) }
}

/// Number of planned buffers that the method takes.
///
/// # Safety
/// The rules at the head of `torchlet.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn torchlet_method_meta_planned_count(
    meta: *const torchlet_method_meta,
) -> usize {
    // SAFETY: the caller's promise.
    value(0, || Some(unsafe { handle::get(meta).ok()? }.planned_buffer_count()))
}

/// Bytes of a planned buffer.
///
/// # Safety
/// The rules at the head of `torchlet.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn torchlet_method_meta_planned_size(
    meta: *const torchlet_method_meta,
    index: usize,
    size: *mut usize,
    error: *const torchlet_text,
) -> torchlet_status {
    let body = || {
        // SAFETY: the caller's promise.
        let meta = unsafe { handle::get(meta)? };
        let count = meta.planned_buffer_count();
        if index >= count {
            return Err(Fault::Index { what: "planned buffer", index, count });
        }
        let bytes = meta.planned_buffer_size(index)?;
        // SAFETY: the caller's promise.
        unsafe { pointer::put(size, bytes, "size") }
    };
    // SAFETY: the caller's promise.
    unsafe { run(error, body) }
}
