//! Metadata of methods: inputs, outputs, memory.

use crate::fault::Fault;
use crate::handle::{self, handle};
use crate::pointer;
use crate::status::{body, torchlet_error_message, torchlet_status, value};
use crate::tensor::torchlet_tensor_info;
use crate::values::{TORCHLET_KIND_TENSOR, torchlet_string, torchlet_value, torchlet_value_data};
use core::mem::MaybeUninit;
use core::ptr;
use torchlet_core::{MethodMeta, ShapeDynamism, ValueMeta};

/// Metadata of a method, in memory of the caller. It need not be closed.
#[repr(C)]
pub struct torchlet_method_meta {
    opaque: u64,
    words: [MaybeUninit<usize>; 18],
}

handle!(torchlet_method_meta, MethodMeta<'static>, "the description of a method", 2);

/// Metadata of an input or output.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct torchlet_value_meta {
    /// Its kind, and for scalars and strings the exported value. A tensor has type and shape (the
    /// upper bound of a dynamic shape), and no data.
    pub value: torchlet_value,
    /// Whether the shape of a tensor can change between runs.
    pub dynamic: bool,
    /// Whether a tensor is in planned memory. Otherwise it is constant, or the caller must bind
    /// memory.
    pub planned: bool,
    /// Whether the data of a tensor is in the program.
    pub constant: bool,
    /// The name of a parameter or buffer, if the exporter kept it; otherwise its data is null.
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
    // SAFETY: guaranteed by the caller.
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
    // SAFETY: guaranteed by the caller.
    value(0, || Some(unsafe { handle::get(meta).ok()? }.output_count()))
}

/// Metadata of an input.
///
/// # Safety
/// The rules at the head of `torchlet.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn torchlet_method_meta_input(
    meta: *const torchlet_method_meta,
    index: usize,
    result: *mut torchlet_value_meta,
    error: *const torchlet_error_message,
) -> torchlet_status {
    body!(error, {
        let meta = handle::get(meta)?;
        let count = meta.input_count();
        let found = meta.input(index)?.ok_or(Fault::Index { what: "input", index, count })?;
        pointer::put(result, torchlet_value_meta::of(&found), "result")
    })
}

/// Metadata of an output.
///
/// # Safety
/// The rules at the head of `torchlet.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn torchlet_method_meta_output(
    meta: *const torchlet_method_meta,
    index: usize,
    result: *mut torchlet_value_meta,
    error: *const torchlet_error_message,
) -> torchlet_status {
    body!(error, {
        let meta = handle::get(meta)?;
        let count = meta.output_count();
        let found = meta.output(index)?.ok_or(Fault::Index { what: "output", index, count })?;
        pointer::put(result, torchlet_value_meta::of(&found), "result")
    })
}

/// Number of planned buffers that the method requires.
///
/// # Safety
/// The rules at the head of `torchlet.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn torchlet_method_meta_planned_count(
    meta: *const torchlet_method_meta,
) -> usize {
    // SAFETY: guaranteed by the caller.
    value(0, || Some(unsafe { handle::get(meta).ok()? }.planned_buffer_count()))
}

/// Size of a planned buffer in bytes.
///
/// # Safety
/// The rules at the head of `torchlet.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn torchlet_method_meta_planned_size(
    meta: *const torchlet_method_meta,
    index: usize,
    size: *mut usize,
    error: *const torchlet_error_message,
) -> torchlet_status {
    body!(error, {
        let meta = handle::get(meta)?;
        let count = meta.planned_buffer_count();
        if index >= count {
            return Err(Fault::Index { what: "planned buffer", index, count });
        }
        let bytes = meta.planned_buffer_size(index)?;
        pointer::put(size, bytes, "size")
    })
}
