//! Arguments of a call, for kernels and backends implemented in C.

use crate::fault::Fault;
use crate::pointer;
use crate::status::{
    TORCHLET_INVALID_ARGUMENT, TORCHLET_NOT_SUPPORTED, TORCHLET_OK, run, torchlet_status, value,
};
use crate::tensor::{torchlet_tensor, torchlet_tensor_info, torchlet_tensor_mut};
use crate::values::{torchlet_string, torchlet_value};
use core::ffi::{c_char, c_void};
use core::ptr;
use torchlet_core::{Arguments, DelegateCall, Invoke, KernelError, Prepare, Scalar, ValueRef};

/// A call of a kernel or delegate. It is valid until the callback that receives it returns.
/// Arguments are numbered from 0, in the order of the operator's schema.
pub struct torchlet_call {
    phase: Phase,
    /// The error of the last function that failed: the callback returns its status, to which this
    /// adds the details.
    error: Option<KernelError>,
}

/// The call of the core library. It is valid only while `preparing`, `invoking` or `delegating`
/// runs, so the lifetimes are not the true ones.
#[derive(Clone, Copy)]
enum Phase {
    Prepare(*mut Prepare<'static, 'static>),
    Invoke(*mut Invoke<'static, 'static>),
    Delegate(*mut DelegateCall<'static, 'static>),
}

impl torchlet_call {
    fn with(
        phase: Phase,
        body: impl FnOnce(*mut torchlet_call) -> torchlet_status,
    ) -> Result<(), KernelError> {
        let mut call = torchlet_call { phase, error: None };
        let status = body(&raw mut call);
        match (status, call.error) {
            (TORCHLET_OK, _) => Ok(()),
            (status, Some(error)) if error.code() == status => Err(error),
            _ => Err(KernelError::unsupported("the C kernel rejected the call")),
        }
    }

    pub(crate) fn preparing(
        call: &mut Prepare<'_, '_>,
        body: impl FnOnce(*mut torchlet_call) -> torchlet_status,
    ) -> Result<(), KernelError> {
        torchlet_call::with(Phase::Prepare(ptr::from_mut(call).cast()), body)
    }

    pub(crate) fn invoking(
        call: &mut Invoke<'_, '_>,
        body: impl FnOnce(*mut torchlet_call) -> torchlet_status,
    ) -> Result<(), KernelError> {
        torchlet_call::with(Phase::Invoke(ptr::from_mut(call).cast()), body)
    }

    /// Runs the callback of a delegate. Returns its status, and the details of an error with that
    /// status.
    pub(crate) fn delegating(
        call: &mut DelegateCall<'_, '_>,
        body: impl FnOnce(*mut torchlet_call) -> torchlet_status,
    ) -> (torchlet_status, Option<KernelError>) {
        let phase = Phase::Delegate(ptr::from_mut(call).cast());
        let mut call = torchlet_call { phase, error: None };
        let status = body(&raw mut call);
        (status, call.error.filter(|error| error.code() == status))
    }

    fn arguments(&self) -> &Arguments<'static, 'static> {
        // SAFETY: `self` exists only while the core call does, which is not used otherwise
        // meanwhile.
        unsafe {
            match self.phase {
                Phase::Prepare(call) => &*call,
                Phase::Invoke(call) => &*call,
                Phase::Delegate(call) => (*call).arguments(),
            }
        }
    }

    fn invoke(&mut self) -> Result<&mut Invoke<'static, 'static>, Fault> {
        match self.phase {
            // SAFETY: as in `arguments`.
            Phase::Invoke(call) => Ok(unsafe { &mut *call }),
            Phase::Prepare(_) => {
                Err(Fault::State("the data of tensors is not available in prepare"))
            }
            Phase::Delegate(_) => Err(Fault::State("call torchlet_call_split first")),
        }
    }
}

/// Runs the body of a function on a call, and stores its error.
///
/// # Safety
/// `call` is null, or the pointer that a callback received.
unsafe fn on(
    call: *mut torchlet_call,
    body: impl FnOnce(&mut torchlet_call) -> Result<(), Fault>,
) -> torchlet_status {
    let body = || {
        if call.is_null() {
            return Err(Fault::Null("the call"));
        }
        // SAFETY: guaranteed by the caller; the call is not used otherwise meanwhile.
        let call = unsafe { &mut *call };
        let result = body(call);
        if let Err(Fault::Kernel(error)) = &result {
            call.error = Some(error.clone());
        }
        result
    };
    // SAFETY: no error text is passed.
    unsafe { run(ptr::null(), body) }
}

/// A C string that stays valid, such as a literal.
///
/// # Safety
/// `text` is null, or such a string.
unsafe fn literal(text: *const c_char) -> &'static str {
    // SAFETY: guaranteed by the caller.
    unsafe { pointer::text(text, "text") }.unwrap_or("rejected by the C kernel")
}

/// Reports that an argument is invalid, and why; returns the status for the callback to return.
///
/// # Safety
/// The rules at the head of `torchlet.h`. The text must stay valid forever, like a literal.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn torchlet_call_fail(
    call: *mut torchlet_call,
    arg: usize,
    text: *const c_char,
) -> torchlet_status {
    // SAFETY: guaranteed by the caller.
    unsafe {
        let what = literal(text);
        on(call, |_| Err(KernelError::argument(arg, what).into()))
    };
    TORCHLET_INVALID_ARGUMENT
}

/// Reports that something is not supported; returns the status for the callback to return.
///
/// # Safety
/// As `torchlet_call_fail`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn torchlet_call_unsupported(
    call: *mut torchlet_call,
    text: *const c_char,
) -> torchlet_status {
    // SAFETY: guaranteed by the caller.
    unsafe {
        let what = literal(text);
        on(call, |_| Err(KernelError::unsupported(what).into()))
    };
    TORCHLET_NOT_SUPPORTED
}

/// Number of arguments: inputs and outputs of a delegate call, or the declared parameters of a
/// kernel.
///
/// # Safety
/// The rules at the head of `torchlet.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn torchlet_call_argument_count(call: *const torchlet_call) -> usize {
    value(0, || {
        // SAFETY: guaranteed by the caller.
        let call = unsafe { call.as_ref()? };
        Some(match call.phase {
            // SAFETY: as in `arguments`.
            Phase::Delegate(call) => unsafe { (*call).len() },
            _ => call.arguments().params().len(),
        })
    })
}

/// Declares the first `inputs` arguments of a delegate call to be inputs, the others outputs. Must
/// be called once, before inputs and outputs are accessed.
///
/// # Safety
/// The rules at the head of `torchlet.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn torchlet_call_split(
    call: *mut torchlet_call,
    inputs: usize,
) -> torchlet_status {
    let body = |call: &mut torchlet_call| {
        let Phase::Delegate(delegate) = call.phase else {
            return Err(Fault::State(
                "torchlet_call_split is for calls of delegates, once per call",
            ));
        };
        // SAFETY: as in `arguments`.
        let invoke = unsafe { (*delegate).split(inputs)? };
        call.phase = Phase::Invoke(ptr::from_mut(invoke));
        Ok(())
    };
    // SAFETY: guaranteed by the caller.
    unsafe { on(call, body) }
}

/// Whether an argument is None.
///
/// # Safety
/// The rules at the head of `torchlet.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn torchlet_call_is_none(call: *const torchlet_call, arg: usize) -> bool {
    // SAFETY: guaranteed by the caller.
    value(false, || Some(unsafe { call.as_ref()? }.arguments().is_none(arg)))
}

/// Whether a tensor is constant, so that it can be packed.
///
/// # Safety
/// The rules at the head of `torchlet.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn torchlet_call_is_constant(call: *const torchlet_call, arg: usize) -> bool {
    // SAFETY: guaranteed by the caller.
    value(false, || Some(unsafe { call.as_ref()? }.arguments().is_constant(arg)))
}

/// Type, shape and dim order of a tensor, input or output.
///
/// # Safety
/// The rules at the head of `torchlet.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn torchlet_call_info(
    call: *mut torchlet_call,
    arg: usize,
    info: *mut torchlet_tensor_info,
) -> torchlet_status {
    // SAFETY: guaranteed by the caller.
    unsafe {
        on(call, |call| {
            let found = torchlet_tensor_info::of(&call.arguments().info(arg)?);
            pointer::put(info, found, "info")
        })
    }
}

/// Type, shape and dim order of a tensor in a list.
///
/// # Safety
/// The rules at the head of `torchlet.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn torchlet_call_list_info(
    call: *mut torchlet_call,
    arg: usize,
    position: usize,
    info: *mut torchlet_tensor_info,
) -> torchlet_status {
    // SAFETY: guaranteed by the caller.
    unsafe {
        on(call, |call| {
            let found = call.arguments().list_info(arg, position)?;
            let found = found
                .ok_or(KernelError::argument(arg, "expected a tensor in the list, found None"))?;
            pointer::put(info, torchlet_tensor_info::of(&found), "info")
        })
    }
}

/// A scalar, string or None, without conversion.
///
/// # Safety
/// The rules at the head of `torchlet.h`. A string is valid as long as the method.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn torchlet_call_value(
    call: *mut torchlet_call,
    arg: usize,
    result: *mut torchlet_value,
) -> torchlet_status {
    // SAFETY: guaranteed by the caller.
    unsafe {
        on(call, |call| {
            let arguments = call.arguments();
            let found = match arguments.optional_string(arg) {
                Ok(None) => ValueRef::None,
                Ok(Some(text)) => ValueRef::String(text),
                Err(_) => ValueRef::Scalar(arguments.scalar(arg)?),
            };
            pointer::put(result, torchlet_value::of(&found), "result")
        })
    }
}

/// An integer argument.
///
/// # Safety
/// The rules at the head of `torchlet.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn torchlet_call_int(
    call: *mut torchlet_call,
    arg: usize,
    result: *mut i64,
) -> torchlet_status {
    // SAFETY: guaranteed by the caller.
    unsafe { on(call, |call| pointer::put(result, call.arguments().int(arg)?, "result")) }
}

/// A floating-point argument; integers are converted.
///
/// # Safety
/// The rules at the head of `torchlet.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn torchlet_call_float(
    call: *mut torchlet_call,
    arg: usize,
    result: *mut f64,
) -> torchlet_status {
    // SAFETY: guaranteed by the caller.
    unsafe { on(call, |call| pointer::put(result, call.arguments().float(arg)?, "result")) }
}

/// A boolean argument.
///
/// # Safety
/// The rules at the head of `torchlet.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn torchlet_call_bool(
    call: *mut torchlet_call,
    arg: usize,
    result: *mut bool,
) -> torchlet_status {
    // SAFETY: guaranteed by the caller.
    unsafe { on(call, |call| pointer::put(result, call.arguments().bool(arg)?, "result")) }
}

/// A string argument. It is valid as long as the method.
///
/// # Safety
/// The rules at the head of `torchlet.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn torchlet_call_string(
    call: *mut torchlet_call,
    arg: usize,
    result: *mut torchlet_string,
) -> torchlet_status {
    // SAFETY: guaranteed by the caller.
    unsafe {
        on(call, |call| {
            let text = call.arguments().optional_string(arg)?;
            let text = text.ok_or(KernelError::argument(arg, "expected a string, found None"))?;
            pointer::put(result, torchlet_string::of(text), "result")
        })
    }
}

/// The length of a list; a single integer counts as a list of one.
///
/// # Safety
/// The rules at the head of `torchlet.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn torchlet_call_list_length(
    call: *mut torchlet_call,
    arg: usize,
    result: *mut usize,
) -> torchlet_status {
    // SAFETY: guaranteed by the caller.
    unsafe { on(call, |call| pointer::put(result, call.arguments().list_len(arg)?, "result")) }
}

/// An integer in a list.
///
/// # Safety
/// The rules at the head of `torchlet.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn torchlet_call_list_int(
    call: *mut torchlet_call,
    arg: usize,
    position: usize,
    result: *mut i64,
) -> torchlet_status {
    // SAFETY: guaranteed by the caller.
    unsafe {
        on(call, |call| pointer::put(result, call.arguments().list_int(arg, position)?, "result"))
    }
}

/// A floating-point value in a list.
///
/// # Safety
/// The rules at the head of `torchlet.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn torchlet_call_list_float(
    call: *mut torchlet_call,
    arg: usize,
    position: usize,
    result: *mut f64,
) -> torchlet_status {
    // SAFETY: guaranteed by the caller.
    unsafe {
        on(call, |call| pointer::put(result, call.arguments().list_float(arg, position)?, "result"))
    }
}

/// A boolean in a list.
///
/// # Safety
/// The rules at the head of `torchlet.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn torchlet_call_list_bool(
    call: *mut torchlet_call,
    arg: usize,
    position: usize,
    result: *mut bool,
) -> torchlet_status {
    // SAFETY: guaranteed by the caller.
    unsafe {
        on(call, |call| pointer::put(result, call.arguments().list_bool(arg, position)?, "result"))
    }
}

/// Sets the shape of an output: while a call is prepared, or, if the shape depends on data, before
/// the output is accessed.
///
/// # Safety
/// The rules at the head of `torchlet.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn torchlet_call_resize(
    call: *mut torchlet_call,
    arg: usize,
    sizes: *const i32,
    rank: usize,
) -> torchlet_status {
    // SAFETY: guaranteed by the caller.
    unsafe {
        on(call, |call| {
            let sizes = pointer::items(sizes, rank, "sizes")?;
            match call.phase {
                // As in `arguments`.
                Phase::Prepare(prepare) => (*prepare).resize(arg, sizes)?,
                _ => call.invoke()?.resize(arg, sizes)?,
            }
            Ok(())
        })
    }
}

/// Sets the shape of an output in a list, while a call is prepared.
///
/// # Safety
/// The rules at the head of `torchlet.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn torchlet_call_list_resize(
    call: *mut torchlet_call,
    arg: usize,
    position: usize,
    sizes: *const i32,
    rank: usize,
) -> torchlet_status {
    // SAFETY: guaranteed by the caller.
    unsafe {
        on(call, |call| {
            let sizes = pointer::items(sizes, rank, "sizes")?;
            let Phase::Prepare(prepare) = call.phase else {
                return Err(Fault::State("outputs in a list can be resized in prepare only"));
            };
            // As in `arguments`.
            Ok((*prepare).resize_item(arg, position, sizes)?)
        })
    }
}

/// An input tensor. Its data is valid as long as the call.
///
/// # Safety
/// The rules at the head of `torchlet.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn torchlet_call_input(
    call: *mut torchlet_call,
    arg: usize,
    tensor: *mut torchlet_tensor,
) -> torchlet_status {
    // SAFETY: guaranteed by the caller.
    unsafe {
        on(call, |call| {
            let found = call.invoke()?.tensor(arg)?;
            pointer::put(tensor, torchlet_tensor::of(&found), "tensor")
        })
    }
}

/// An input tensor in a list.
///
/// # Safety
/// The rules at the head of `torchlet.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn torchlet_call_list_input(
    call: *mut torchlet_call,
    arg: usize,
    position: usize,
    tensor: *mut torchlet_tensor,
) -> torchlet_status {
    // SAFETY: guaranteed by the caller.
    unsafe {
        on(call, |call| {
            let found = call.invoke()?.list_tensor(arg, position)?;
            let found = found
                .ok_or(KernelError::argument(arg, "expected a tensor in the list, found None"))?;
            pointer::put(tensor, torchlet_tensor::of(&found), "tensor")
        })
    }
}

/// A mutable output tensor. Each can be accessed once, in the order of the arguments.
///
/// # Safety
/// The rules at the head of `torchlet.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn torchlet_call_output(
    call: *mut torchlet_call,
    arg: usize,
    tensor: *mut torchlet_tensor_mut,
) -> torchlet_status {
    // SAFETY: guaranteed by the caller.
    unsafe {
        on(call, |call| {
            let found = call.invoke()?.out(arg)?;
            pointer::put(tensor, torchlet_tensor_mut::of(found), "tensor")
        })
    }
}

/// A mutable output tensor in a list. Each can be accessed once, in order.
///
/// # Safety
/// The rules at the head of `torchlet.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn torchlet_call_list_output(
    call: *mut torchlet_call,
    arg: usize,
    position: usize,
    tensor: *mut torchlet_tensor_mut,
) -> torchlet_status {
    // SAFETY: guaranteed by the caller.
    unsafe {
        on(call, |call| {
            let found = call.invoke()?.list_out(arg, position)?;
            pointer::put(tensor, torchlet_tensor_mut::of(found), "tensor")
        })
    }
}

/// Writes a scalar output; the value's kind selects its type.
///
/// # Safety
/// The rules at the head of `torchlet.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn torchlet_call_set_value(
    call: *mut torchlet_call,
    arg: usize,
    result: *const torchlet_value,
) -> torchlet_status {
    // SAFETY: guaranteed by the caller.
    unsafe {
        on(call, |call| {
            let scalar: Scalar = match pointer::get(result, "result")?.checked()? {
                ValueRef::Scalar(scalar) => scalar,
                _ => {
                    return Err(Fault::Argument(
                        "expected an integer, a float or a boolean as the output",
                    ));
                }
            };
            Ok(call.invoke()?.set_scalar(arg, scalar)?)
        })
    }
}

/// The scratch memory: at least as many bytes as planned, aligned to 16 bytes. Can be accessed
/// once.
///
/// # Safety
/// The rules at the head of `torchlet.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn torchlet_call_scratch(
    call: *mut torchlet_call,
    data: *mut *mut c_void,
    size: *mut usize,
) -> torchlet_status {
    // SAFETY: guaranteed by the caller.
    unsafe {
        on(call, |call| {
            let scratch = call.invoke()?.scratch();
            pointer::put(size, scratch.len(), "size")?;
            pointer::put(data, scratch.as_mut_ptr().cast(), "data")
        })
    }
}

/// The memory that the kernel's pack callback filled.
///
/// # Safety
/// The rules at the head of `torchlet.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn torchlet_call_packed(
    call: *mut torchlet_call,
    data: *mut *const c_void,
    size: *mut usize,
) -> torchlet_status {
    // SAFETY: guaranteed by the caller.
    unsafe {
        on(call, |call| {
            let packed = call.invoke()?.packed();
            pointer::put(size, packed.len(), "size")?;
            pointer::put(data, packed.as_ptr().cast(), "data")
        })
    }
}
