//! What a method keeps from run to run.

use super::{torchlet_method, view, with_method};
use crate::fault::Fault;
use crate::pointer;
use crate::status::{run, torchlet_status, torchlet_text, value};
use crate::tensor::{torchlet_tensor_info, torchlet_tensor_mut};
use crate::values::torchlet_string;
use core::ffi::c_void;
use core::ptr;

/// A tensor of a method's state.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct torchlet_state {
    /// The index of its value, by which it is read and written.
    pub value: usize,
    /// Its name, where the exporter kept it; else its data is null.
    pub name: torchlet_string,
    /// What it is.
    pub info: torchlet_tensor_info,
    /// Whether it has memory; else some must be bound.
    pub bound: bool,
}

/// Number of tensors of a method's state outside of delegates.
///
/// # Safety
/// The rules at the head of `torchlet.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn torchlet_method_state_count(method: *const torchlet_method) -> usize {
    // SAFETY: the caller's promise.
    value(0, || Some(unsafe { view(method).ok()? }.state().count()))
}

/// A tensor of the state, counted from 0. The name belongs to the program.
///
/// # Safety
/// The rules at the head of `torchlet.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn torchlet_method_state(
    method: *const torchlet_method,
    index: usize,
    state: *mut torchlet_state,
    error: *const torchlet_text,
) -> torchlet_status {
    let body = || {
        // SAFETY: the caller's promise.
        let method = unsafe { view(method)? };
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
        // SAFETY: the caller's promise.
        unsafe { pointer::put(state, result, "state") }
    };
    // SAFETY: the caller's promise.
    unsafe { run(error, body) }
}

/// A tensor of the state in its place, by the index of its value, to be read or written. The place
/// is valid until another function uses the method.
///
/// # Safety
/// The rules at the head of `torchlet.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn torchlet_method_state_tensor(
    method: *mut torchlet_method,
    value: usize,
    tensor: *mut torchlet_tensor_mut,
    error: *const torchlet_text,
) -> torchlet_status {
    let body = || {
        // SAFETY: the caller's promise.
        unsafe {
            let found = with_method(method, |method| {
                let found = method.into_state_mut(value);
                Ok(torchlet_tensor_mut::of(
                    found.map_err(|error| Fault::StateTensor(value, error))?,
                ))
            })?;
            pointer::put(tensor, found, "tensor")
        }
    };
    // SAFETY: the caller's promise.
    unsafe { run(error, body) }
}

/// Lends memory to a tensor of the state that the exporter left to the caller. It is zeroed.
///
/// # Safety
/// The rules at the head of `torchlet.h`. The memory is the method's until it is closed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn torchlet_method_bind_state(
    method: *mut torchlet_method,
    value: usize,
    memory: *mut c_void,
    size: usize,
    error: *const torchlet_text,
) -> torchlet_status {
    let body = || {
        // SAFETY: the caller's promise.
        unsafe {
            let bytes = pointer::zeroed(memory, size, "memory")?;
            with_method(method, |mut method| {
                let result = method.bind_state(value, bytes);
                result.map_err(|error| Fault::StateTensor(value, error))
            })
        }
    };
    // SAFETY: the caller's promise.
    unsafe { run(error, body) }
}

/// A tensor that a delegate keeps from run to run.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct torchlet_delegate_state {
    /// The delegate, and the tensor there, by which it is read and written.
    pub delegate: usize,
    /// See `delegate`.
    pub number: usize,
    /// Its name in the model, where it is known; else its data is null.
    pub name: torchlet_string,
    /// What it is: in row-major order.
    pub info: torchlet_tensor_info,
}

/// Number of tensors that delegates of a method keep from run to run.
///
/// # Safety
/// The rules at the head of `torchlet.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn torchlet_method_delegate_state_count(
    method: *const torchlet_method,
) -> usize {
    // SAFETY: the caller's promise.
    value(0, || Some(unsafe { view(method).ok()? }.delegate_state().count()))
}

/// A tensor that a delegate keeps, counted from 0 over all delegates. The name belongs to the
/// method.
///
/// # Safety
/// The rules at the head of `torchlet.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn torchlet_method_delegate_state(
    method: *const torchlet_method,
    index: usize,
    state: *mut torchlet_delegate_state,
    error: *const torchlet_text,
) -> torchlet_status {
    let body = || {
        // SAFETY: the caller's promise.
        let method = unsafe { view(method)? };
        let count = method.delegate_state().count();
        let found = method.delegate_state().nth(index);
        let what = "state of delegates";
        let ([delegate, number], found) = found.ok_or(Fault::Index { what, index, count })?;
        let none = torchlet_string { data: ptr::null(), size: 0 };
        let name = found.name.map_or(none, torchlet_string::of);
        let info = torchlet_tensor_info::of(&found.info);
        let result = torchlet_delegate_state { delegate, number, name, info };
        // SAFETY: the caller's promise.
        unsafe { pointer::put(state, result, "state") }
    };
    // SAFETY: the caller's promise.
    unsafe { run(error, body) }
}

/// Copies a tensor that a delegate keeps to memory of exactly its size.
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
    error: *const torchlet_text,
) -> torchlet_status {
    let body = || {
        // SAFETY: the caller's promise.
        unsafe {
            let target = pointer::zeroed(into, size, "into")?;
            Ok(view(method)?.read_delegate_state([delegate, number], target)?)
        }
    };
    // SAFETY: the caller's promise.
    unsafe { run(error, body) }
}

/// Gives a tensor that a delegate keeps other contents, of exactly its size.
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
    error: *const torchlet_text,
) -> torchlet_status {
    let body = || {
        // SAFETY: the caller's promise.
        unsafe {
            let source = pointer::bytes(data, size, "data")?;
            with_method(method, |mut method| {
                Ok(method.write_delegate_state([delegate, number], source)?)
            })
        }
    };
    // SAFETY: the caller's promise.
    unsafe { run(error, body) }
}
