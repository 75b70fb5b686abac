//! Inputs and outputs of a method.

use super::{torchlet_buffer, torchlet_method, view, with_method};
use crate::fault::Fault;
use crate::pointer;
use crate::status::{body, torchlet_error_message, torchlet_status, value};
use crate::tensor::{torchlet_tensor, torchlet_tensor_info, torchlet_tensor_mut};
use crate::values::torchlet_value;
use core::ffi::c_void;
use torchlet_core::{OutputMemory, TensorRef};

/// Number of inputs of a loaded method.
///
/// # Safety
/// The rules at the head of `torchlet.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn torchlet_method_input_count(method: *const torchlet_method) -> usize {
    // SAFETY: guaranteed by the caller.
    value(0, || Some(unsafe { view(method).ok()? }.input_count()))
}

/// Number of outputs of a loaded method.
///
/// # Safety
/// The rules at the head of `torchlet.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn torchlet_method_output_count(method: *const torchlet_method) -> usize {
    // SAFETY: guaranteed by the caller.
    value(0, || Some(unsafe { view(method).ok()? }.output_count()))
}

/// Copies a value into an input. A tensor must have the exported type and dim order, and the
/// exported shape, or one within the bounds if that is dynamic.
///
/// # Safety
/// The rules at the head of `torchlet.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn torchlet_method_set_input(
    method: *mut torchlet_method,
    index: usize,
    input: *const torchlet_value,
    error: *const torchlet_error_message,
) -> torchlet_status {
    body!(error, {
        let input = pointer::get(input, "input")?.checked()?;
        with_method(method, |mut method| {
            let result = method.set_input(index, &input);
            result.map_err(|error| Fault::Input(index, error))
        })
    })
}

/// Copies a tensor into an input.
///
/// # Safety
/// The rules at the head of `torchlet.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn torchlet_method_set_input_tensor(
    method: *mut torchlet_method,
    index: usize,
    tensor: *const torchlet_tensor,
    error: *const torchlet_error_message,
) -> torchlet_status {
    body!(error, {
        let tensor = pointer::get(tensor, "tensor")?.checked()?;
        with_method(method, |mut method| {
            let result = method.set_input_tensor(index, &tensor);
            result.map_err(|error| Fault::Input(index, error))
        })
    })
}

/// Sets the shape of a dynamic input for the next run, before it is written in place.
///
/// # Safety
/// The rules at the head of `torchlet.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn torchlet_method_resize_input(
    method: *mut torchlet_method,
    index: usize,
    sizes: *const i32,
    rank: usize,
    error: *const torchlet_error_message,
) -> torchlet_status {
    body!(error, {
        let sizes = pointer::items(sizes, rank, "sizes")?;
        with_method(method, |mut method| {
            let result = method.resize_input(index, sizes);
            result.map_err(|error| Fault::Input(index, error))
        })
    })
}

/// A mutable input tensor in the method's memory, to be written without a copy. Its data is valid
/// until another function uses the method.
///
/// # Safety
/// The rules at the head of `torchlet.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn torchlet_method_input_tensor(
    method: *mut torchlet_method,
    index: usize,
    tensor: *mut torchlet_tensor_mut,
    error: *const torchlet_error_message,
) -> torchlet_status {
    body!(error, {
        let found = with_method(method, |method| {
            let found = method.into_input_mut(index);
            Ok(torchlet_tensor_mut::of(found.map_err(|error| Fault::Input(index, error))?))
        })?;
        pointer::put(tensor, found, "tensor")
    })
}

/// An output of the last run. Its data is valid until another function changes the method.
///
/// # Safety
/// The rules at the head of `torchlet.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn torchlet_method_output(
    method: *const torchlet_method,
    index: usize,
    output: *mut torchlet_value,
    error: *const torchlet_error_message,
) -> torchlet_status {
    body!(error, {
        let found = view(method)?.output(index);
        let found = found.map_err(|error| Fault::Output(index, error))?;
        pointer::put(output, torchlet_value::of(&found), "output")
    })
}

/// A tensor output of the last run. Its data is valid until another function changes the method.
///
/// # Safety
/// The rules at the head of `torchlet.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn torchlet_method_output_tensor(
    method: *const torchlet_method,
    index: usize,
    tensor: *mut torchlet_tensor,
    error: *const torchlet_error_message,
) -> torchlet_status {
    body!(error, {
        let found = view(method)?.output(index);
        let found = found.map_err(|error| Fault::Output(index, error))?;
        let torchlet_core::ValueRef::Tensor(found) = found else {
            let error = torchlet_core::InputError::Kind { expected: "tensor", found: "value" };
            return Err(Fault::Output(index, error));
        };
        pointer::put(tensor, torchlet_tensor::of(&found), "tensor")
    })
}

/// Whether an input needs memory to be bound before the method runs, because the exporter did not
/// plan it.
///
/// # Safety
/// The rules at the head of `torchlet.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn torchlet_method_input_is_unbound(
    method: *const torchlet_method,
    index: usize,
) -> bool {
    value(false, || {
        // SAFETY: guaranteed by the caller.
        Some(unsafe { view(method).ok()? }.input_is_unbound(index))
    })
}

/// Whether an output has no memory. It may get some during the run; otherwise the caller must bind
/// some.
///
/// # Safety
/// The rules at the head of `torchlet.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn torchlet_method_output_is_unbound(
    method: *const torchlet_method,
    index: usize,
) -> bool {
    value(false, || {
        // SAFETY: guaranteed by the caller.
        Some(unsafe { view(method).ok()? }.output_is_unbound(index))
    })
}

/// Lends memory to an unplanned input. It must be set, or written in place, before each run.
///
/// # Safety
/// The rules at the head of `torchlet.h`. The memory belongs to the method until it is closed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn torchlet_method_bind_input(
    method: *mut torchlet_method,
    index: usize,
    memory: *mut c_void,
    size: usize,
    error: *const torchlet_error_message,
) -> torchlet_status {
    body!(error, {
        let bytes = pointer::zeroed(memory, size, "memory")?;
        with_method(method, |mut method| {
            let result = method.bind_input(index, bytes);
            result.map_err(|error| Fault::Input(index, error))
        })
    })
}

/// Lends memory to an unplanned output.
///
/// # Safety
/// The rules at the head of `torchlet.h`. The memory belongs to the method until it is closed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn torchlet_method_bind_output(
    method: *mut torchlet_method,
    index: usize,
    memory: *mut c_void,
    size: usize,
    error: *const torchlet_error_message,
) -> torchlet_status {
    body!(error, {
        let bytes = pointer::zeroed(memory, size, "memory")?;
        with_method(method, |mut method| {
            let result = method.bind_output(index, bytes);
            result.map_err(|error| Fault::Output(index, error))
        })
    })
}

/// Maximum number of inputs and of outputs in `torchlet_method_execute_into`.
const MAX_LENT: usize = 16;

/// Sets the first inputs, executes the method, and copies the first outputs, all of them tensors,
/// to memory of the caller. `infos` receives their types and shapes, and can be null. Unplanned
/// tensors are read and written in that memory directly, without a copy.
///
/// # Safety
/// The rules at the head of `torchlet.h`. Inputs and outputs do not overlap.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn torchlet_method_execute_into(
    method: *mut torchlet_method,
    inputs: *const torchlet_tensor,
    input_count: usize,
    outputs: *const torchlet_buffer,
    output_count: usize,
    infos: *mut torchlet_tensor_info,
    error: *const torchlet_error_message,
) -> torchlet_status {
    body!(error, {
        let many = || Fault::Argument("memory can be lent to at most 16 inputs and 16 outputs");
        let mut lent: heapless::Vec<(usize, TensorRef<'_>), MAX_LENT> = heapless::Vec::new();
        let mut targets: heapless::Vec<OutputMemory<'_>, MAX_LENT> = heapless::Vec::new();
        let inputs = pointer::items(inputs, input_count, "inputs")?;
        for (index, tensor) in inputs.iter().enumerate() {
            lent.push((index, tensor.checked()?)).map_err(|_| many())?;
        }
        let outputs = pointer::items(outputs, output_count, "outputs")?;
        for (index, buffer) in outputs.iter().enumerate() {
            let bytes = pointer::zeroed(buffer.data, buffer.size, "an output")?;
            targets.push(OutputMemory::new(index, bytes)).map_err(|_| many())?;
        }
        with_method(method, |mut method| Ok(method.execute_into(&lent, &mut targets)?))?;
        if !infos.is_null() {
            for (index, output) in targets.iter().enumerate() {
                let tensor = output.tensor();
                let tensor = tensor.ok_or(Fault::State("an output is not a tensor"))?;
                let info = torchlet_tensor_info::of(tensor.info());
                pointer::put(infos.add(index), info, "infos")?;
            }
        }
        Ok(())
    })
}
