//! State that a method keeps between runs.

use super::{torchlet_method, view, with_method};
use crate::fault::Fault;
use crate::pointer;
use crate::status::{body, torchlet_error_message, torchlet_status, value};
use crate::tensor::{torchlet_tensor_info, torchlet_tensor_mut};
use crate::values::torchlet_string;
use core::ffi::c_void;
use core::ptr;

/// A state tensor of a method.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct torchlet_state {
    /// Index of the value, which identifies it when it is read or written.
    pub value: usize,
    /// Its name, if the exporter kept it; otherwise its data is null.
    pub name: torchlet_string,
    /// Type and shape.
    pub info: torchlet_tensor_info,
    /// Whether it has memory; otherwise the caller must bind some.
    pub bound: bool,
}

/// Number of state tensors of a method, excluding those of delegates.
///
/// # Safety
/// The rules at the head of `torchlet.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn torchlet_method_state_count(method: *const torchlet_method) -> usize {
    // SAFETY: guaranteed by the caller.
    value(0, || Some(unsafe { view(method).ok()? }.state().count()))
}

/// A state tensor, counted from 0. The name belongs to the program.
///
/// # Safety
/// The rules at the head of `torchlet.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn torchlet_method_state(
    method: *const torchlet_method,
    index: usize,
    state: *mut torchlet_state,
    error: *const torchlet_error_message,
) -> torchlet_status {
    body!(error, {
        let method = view(method)?;
        let count = method.state().count();
        let found = method.state().nth(index);
        let found = found.ok_or(Fault::Index { what: "state", index, count })?;
        let none = torchlet_string { data: ptr::null(), size: 0 };
        let result = torchlet_state {
            value: found.value,
            name: found.name.map_or(none, torchlet_string::of),
            info: torchlet_tensor_info::of(&found.info),
            bound: found.bound,
        };
        pointer::put(state, result, "state")
    })
}

/// A state tensor in the method's memory, by the index of its value, to be read or written. Its
/// data is valid until another function uses the method.
///
/// # Safety
/// The rules at the head of `torchlet.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn torchlet_method_state_tensor(
    method: *mut torchlet_method,
    value: usize,
    tensor: *mut torchlet_tensor_mut,
    error: *const torchlet_error_message,
) -> torchlet_status {
    body!(error, {
        let found = with_method(method, |method| {
            let found = method.into_state_mut(value);
            Ok(torchlet_tensor_mut::of(found.map_err(|error| Fault::StateTensor(value, error))?))
        })?;
        pointer::put(tensor, found, "tensor")
    })
}

/// Lends memory to an unplanned state tensor. The memory is zeroed.
///
/// # Safety
/// The rules at the head of `torchlet.h`. The memory belongs to the method until it is closed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn torchlet_method_bind_state(
    method: *mut torchlet_method,
    value: usize,
    memory: *mut c_void,
    size: usize,
    error: *const torchlet_error_message,
) -> torchlet_status {
    body!(error, {
        let bytes = pointer::zeroed(memory, size, "memory")?;
        with_method(method, |mut method| {
            let result = method.bind_state(value, bytes);
            result.map_err(|error| Fault::StateTensor(value, error))
        })
    })
}

/// A state tensor of a delegate.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct torchlet_delegate_state {
    /// Index of the delegate; with `number`, it identifies the tensor when it is read or written.
    pub delegate: usize,
    /// Index of the tensor within the delegate.
    pub number: usize,
    /// Its name in the model, if known; otherwise its data is null.
    pub name: torchlet_string,
    /// Type and shape, in row-major order.
    pub info: torchlet_tensor_info,
}

/// Number of state tensors of a method's delegates.
///
/// # Safety
/// The rules at the head of `torchlet.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn torchlet_method_delegate_state_count(
    method: *const torchlet_method,
) -> usize {
    // SAFETY: guaranteed by the caller.
    value(0, || Some(unsafe { view(method).ok()? }.delegate_state().count()))
}

/// A state tensor of a delegate, counted from 0 over all delegates. The name belongs to the method.
///
/// # Safety
/// The rules at the head of `torchlet.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn torchlet_method_delegate_state(
    method: *const torchlet_method,
    index: usize,
    state: *mut torchlet_delegate_state,
    error: *const torchlet_error_message,
) -> torchlet_status {
    body!(error, {
        let method = view(method)?;
        let count = method.delegate_state().count();
        let found = method.delegate_state().nth(index);
        let what = "state of delegates";
        let ([delegate, number], found) = found.ok_or(Fault::Index { what, index, count })?;
        let none = torchlet_string { data: ptr::null(), size: 0 };
        let name = found.name.map_or(none, torchlet_string::of);
        let info = torchlet_tensor_info::of(&found.info);
        let result = torchlet_delegate_state { delegate, number, name, info };
        pointer::put(state, result, "state")
    })
}

/// Copies a state tensor of a delegate to memory of exactly its size.
///
/// # Safety
/// The rules at the head of `torchlet.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn torchlet_method_read_delegate_state(
    method: *const torchlet_method,
    delegate: usize,
    number: usize,
    into: *mut c_void,
    size: usize,
    error: *const torchlet_error_message,
) -> torchlet_status {
    body!(error, {
        let target = pointer::zeroed(into, size, "into")?;
        Ok(view(method)?.read_delegate_state([delegate, number], target)?)
    })
}

/// Overwrites a state tensor of a delegate; `size` is exactly its size.
///
/// # Safety
/// The rules at the head of `torchlet.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn torchlet_method_write_delegate_state(
    method: *mut torchlet_method,
    delegate: usize,
    number: usize,
    data: *const c_void,
    size: usize,
    error: *const torchlet_error_message,
) -> torchlet_status {
    body!(error, {
        let source = pointer::bytes(data, size, "data")?;
        with_method(method, |mut method| {
            Ok(method.write_delegate_state([delegate, number], source)?)
        })
    })
}
