//! Backends implemented in C.

use crate::call::torchlet_call;
use crate::fault::Fault;
use crate::pointer;
use crate::status::{
    TORCHLET_DELEGATE_MEMORY_ALLOCATION_FAILED, TORCHLET_INTERNAL, TORCHLET_NOT_FOUND, TORCHLET_OK,
    run, torchlet_status, value,
};
use crate::tensor::torchlet_tensor_info;
use crate::values::torchlet_string;
use core::ffi::{c_char, c_void};
use core::ptr;
use torchlet_core::error::Message;
use torchlet_core::{
    ARENA_ALIGN, Backend, Delegate, DelegateBox, DelegateCall, DelegateError, DelegateInfo,
    DelegateState, InitContext, delegate_size,
};

/// The description of a delegate in the program. It is valid until the callback that receives it
/// returns.
pub struct torchlet_delegate_info(DelegateInfo<'static>);

/// Context for initializing a delegate. It is valid until the callback that receives it returns.
pub struct torchlet_delegate_init {
    context: *mut InitContext<'static, 'static>,
    info: torchlet_delegate_info,
}

/// Returns `TORCHLET_OK` if the backend is available, else the reason.
pub type torchlet_backend_available_fn = Option<unsafe extern "C" fn(context: *mut c_void) -> u32>;
/// Writes the number of bytes that `init` will allocate from the method's arena, with each
/// allocation rounded up to a multiple of 16.
pub type torchlet_backend_arena_fn = Option<
    unsafe extern "C" fn(
        context: *mut c_void,
        info: *const torchlet_delegate_info,
        bytes: *mut usize,
    ) -> u32,
>;
/// Initializes a delegate: reads the processed bytes, allocates memory, and stores a pointer to its
/// own data in `delegate`.
pub type torchlet_backend_init_fn = Option<
    unsafe extern "C" fn(
        context: *mut c_void,
        init: *mut torchlet_delegate_init,
        delegate: *mut *mut c_void,
    ) -> u32,
>;
/// Executes a delegate: splits the arguments into inputs and outputs (`torchlet_call_split`), reads
/// inputs, writes outputs.
pub type torchlet_backend_execute_fn = Option<
    unsafe extern "C" fn(
        context: *mut c_void,
        delegate: *mut c_void,
        call: *mut torchlet_call,
    ) -> u32,
>;
/// Resets the state that a delegate keeps between runs.
pub type torchlet_backend_reset_fn =
    Option<unsafe extern "C" fn(context: *mut c_void, delegate: *mut c_void) -> u32>;
/// Describes a state tensor of a delegate by index, counted from 0: type and shape, in row-major
/// order, and its name in the model, or null. The name must stay valid as long as the delegate.
/// Returns `TORCHLET_NOT_FOUND` if `number` is out of range.
pub type torchlet_backend_state_fn = Option<
    unsafe extern "C" fn(
        context: *mut c_void,
        delegate: *mut c_void,
        number: usize,
        name: *mut torchlet_string,
        info: *mut torchlet_tensor_info,
    ) -> u32,
>;
/// Copies a state tensor to memory of its exact size.
pub type torchlet_backend_read_state_fn = Option<
    unsafe extern "C" fn(
        context: *mut c_void,
        delegate: *mut c_void,
        number: usize,
        into: *mut c_void,
        size: usize,
    ) -> u32,
>;
/// Overwrites a state tensor; `size` is its exact size.
pub type torchlet_backend_write_state_fn = Option<
    unsafe extern "C" fn(
        context: *mut c_void,
        delegate: *mut c_void,
        number: usize,
        data: *const c_void,
        size: usize,
    ) -> u32,
>;
/// Frees the resources that a delegate holds outside the arena.
pub type torchlet_backend_destroy_fn =
    Option<unsafe extern "C" fn(context: *mut c_void, delegate: *mut c_void)>;

/// A backend implemented in C, which executes the delegates that were lowered for it. Its callbacks
/// can be called from every thread that uses methods with it; each delegate is used by one thread
/// at a time.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct torchlet_backend {
    /// The backend's id in programs. The string must stay valid.
    pub name: *const c_char,
    /// First argument of all callbacks.
    pub context: *mut c_void,
    /// May be null.
    pub available: torchlet_backend_available_fn,
    /// May be null for backends that do not allocate from the arena.
    pub arena: torchlet_backend_arena_fn,
    /// Initializes delegates. Required.
    pub init: torchlet_backend_init_fn,
    /// Executes delegates. Required.
    pub execute: torchlet_backend_execute_fn,
    /// May be null.
    pub reset: torchlet_backend_reset_fn,
    /// May be null.
    pub destroy: torchlet_backend_destroy_fn,
    /// May be null for delegates without state, or if the state need not be saved.
    pub state: torchlet_backend_state_fn,
    /// Required if `state` is not null.
    pub read_state: torchlet_backend_read_state_fn,
    /// Required if `state` is not null.
    pub write_state: torchlet_backend_write_state_fn,
}

// SAFETY: whoever registers a backend guarantees that its callbacks can be called from every
// thread.
unsafe impl Sync for torchlet_backend {}
// SAFETY: as above.
unsafe impl Send for torchlet_backend {}

impl torchlet_backend {
    /// Checks that all required members are set.
    ///
    /// # Safety
    /// The name is null or a string that stays valid.
    pub(crate) unsafe fn check(&self) -> Result<(), Fault> {
        // SAFETY: guaranteed by the caller.
        unsafe { pointer::text(self.name, "backend->name")? };
        self.init.ok_or(Fault::Null("backend->init"))?;
        self.execute.ok_or(Fault::Null("backend->execute"))?;
        if self.state.is_some() {
            self.read_state.ok_or(Fault::Null("backend->read_state"))?;
            self.write_state.ok_or(Fault::Null("backend->write_state"))?;
        }
        Ok(())
    }
}

/// Converts the status of a callback to an error.
fn delegate_error(status: torchlet_status, what: &'static str) -> DelegateError {
    let message = Message::from(what);
    match status {
        TORCHLET_NOT_FOUND => DelegateError::Unavailable(message),
        TORCHLET_DELEGATE_MEMORY_ALLOCATION_FAILED => DelegateError::OutOfMemory(message),
        TORCHLET_INTERNAL => DelegateError::Device(message),
        _ => DelegateError::Unsupported(message),
    }
}

fn checked(status: torchlet_status, what: &'static str) -> Result<(), DelegateError> {
    if status == TORCHLET_OK { Ok(()) } else { Err(delegate_error(status, what)) }
}

fn info_of(info: &DelegateInfo<'_>) -> torchlet_delegate_info {
    // SAFETY: the extended lifetime is never used: the result is dropped after the callback, which
    // may not keep it.
    torchlet_delegate_info(unsafe {
        core::mem::transmute::<DelegateInfo<'_>, DelegateInfo<'static>>(*info)
    })
}

impl Backend for torchlet_backend {
    fn name(&self) -> &'static str {
        // SAFETY: the caller of `check` guaranteed that the name stays valid.
        unsafe { pointer::text(self.name, "name") }.unwrap_or("")
    }

    fn is_available(&self) -> Result<(), DelegateError> {
        let Some(available) = self.available else { return Ok(()) };
        // SAFETY: whoever registered the backend guaranteed that its callbacks can be called; the
        // same holds below.
        checked(unsafe { available(self.context) }, "reported by the C backend")
    }

    fn arena_bytes(&self, info: &DelegateInfo<'_>) -> Result<usize, DelegateError> {
        let mut bytes = 0;
        if let Some(arena) = self.arena {
            let info = info_of(info);
            // SAFETY: see `is_available`; both pointers outlive the call.
            let status = unsafe { arena(self.context, &info, &mut bytes) };
            checked(status, "the C backend reported no arena size")?;
        }
        let whole = bytes.checked_next_multiple_of(ARENA_ALIGN);
        let whole = whole.and_then(|bytes| bytes.checked_add(delegate_size::<CDelegate>()));
        whole.ok_or(DelegateError::OutOfMemory(Message::from(
            "the arena size exceeds the address space",
        )))
    }

    fn init<'m>(
        &'m self,
        context: &mut InitContext<'_, 'm>,
    ) -> Result<DelegateBox<'m>, DelegateError> {
        let Some(init) = self.init else {
            return Err(DelegateError::Unavailable(Message::from("the backend has no init")));
        };
        let mut state = ptr::null_mut();
        let mut making = torchlet_delegate_init {
            info: info_of(context.info()),
            context: ptr::from_mut(context).cast(),
        };
        // SAFETY: see `is_available`; both pointers outlive the call.
        let status = unsafe { init(self.context, &mut making, &mut state) };
        checked(status, "the C backend rejected the delegate")?;
        context.place(CDelegate { backend: *self, state })
    }
}

/// A delegate of a backend implemented in C.
struct CDelegate {
    backend: torchlet_backend,
    state: *mut c_void,
}

// SAFETY: whoever registered the backend guaranteed that its callbacks can be called from every
// thread.
unsafe impl Send for CDelegate {}

impl Delegate for CDelegate {
    fn execute(&mut self, call: &mut DelegateCall<'_, '_>) -> Result<(), DelegateError> {
        let Some(execute) = self.backend.execute else {
            return Err(DelegateError::Unavailable(Message::from("the backend has no execute")));
        };
        let (status, error) = torchlet_call::delegating(call, |call| {
            // SAFETY: see `is_available`; `call` outlives the callback.
            unsafe { execute(self.backend.context, self.state, call) }
        });
        match error {
            Some(error) if status != TORCHLET_OK => Err(error.into()),
            _ => checked(status, FAILED),
        }
    }

    fn reset(&mut self) -> Result<(), DelegateError> {
        let Some(reset) = self.backend.reset else { return Ok(()) };
        // SAFETY: see `is_available`.
        checked(unsafe { reset(self.backend.context, self.state) }, FAILED)
    }

    fn state(&self, number: usize) -> Option<DelegateState<'_>> {
        let state = self.backend.state?;
        let mut name = torchlet_string { data: ptr::null(), size: 0 };
        let mut info = torchlet_tensor_info::empty();
        // SAFETY: see `is_available`; the results outlive the callback.
        let status =
            unsafe { state(self.backend.context, self.state, number, &mut name, &mut info) };
        if status != TORCHLET_OK {
            return None;
        }
        // SAFETY: the backend guarantees that the name is null or a string that stays valid.
        let name = unsafe { pointer::bytes(name.data.cast(), name.size, "name") };
        let name = name.ok().and_then(|name| core::str::from_utf8(name).ok());
        let name = name.filter(|name| !name.is_empty());
        Some(DelegateState { name, info: info.checked().ok()? })
    }

    fn read_state(&self, number: usize, target: &mut [u8]) -> Result<(), DelegateError> {
        let read = self.backend.read_state.ok_or_else(stateless)?;
        self.fits(number, target.len())?;
        let (into, size) = (target.as_mut_ptr().cast(), target.len());
        // SAFETY: see `is_available`; the memory outlives the call.
        checked(unsafe { read(self.backend.context, self.state, number, into, size) }, FAILED)
    }

    fn write_state(&mut self, number: usize, source: &[u8]) -> Result<(), DelegateError> {
        let write = self.backend.write_state.ok_or_else(stateless)?;
        self.fits(number, source.len())?;
        let (data, size) = (source.as_ptr().cast(), source.len());
        // SAFETY: see `is_available`; the memory outlives the call.
        checked(unsafe { write(self.backend.context, self.state, number, data, size) }, FAILED)
    }
}

const FAILED: &str = "the C delegate failed";

#[cold]
fn stateless() -> DelegateError {
    DelegateError::Unsupported(Message::from("state that the C delegate lacks"))
}

impl CDelegate {
    /// Checks that a buffer has the exact size of a state tensor.
    fn fits(&self, number: usize, size: usize) -> Result<(), DelegateError> {
        let info = self.state(number).ok_or_else(stateless)?.info;
        if info.nbytes() == size {
            return Ok(());
        }
        Err(DelegateError::Unsupported(Message::from("a buffer of another size than the state")))
    }
}

impl Drop for CDelegate {
    fn drop(&mut self) {
        if let Some(destroy) = self.backend.destroy {
            // SAFETY: see `is_available`; the delegate is not used afterwards.
            unsafe { destroy(self.backend.context, self.state) }
        }
    }
}

/// Size of the delegate's processed bytes, the payload that the exporter wrote.
///
/// # Safety
/// The rules at the head of `torchlet.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn torchlet_delegate_info_size(info: *const torchlet_delegate_info) -> usize {
    // SAFETY: guaranteed by the caller.
    value(0, || Some(unsafe { info.as_ref()? }.0.processed().size()))
}

/// Copies a range of the processed bytes.
///
/// # Safety
/// The rules at the head of `torchlet.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn torchlet_delegate_info_read(
    info: *const torchlet_delegate_info,
    offset: usize,
    into: *mut c_void,
    size: usize,
) -> torchlet_status {
    let body = || {
        // SAFETY: guaranteed by the caller.
        unsafe {
            let info = pointer::get(info, "info")?;
            Ok(info.0.processed().read(offset, pointer::zeroed(into, size, "into")?)?)
        }
    };
    // SAFETY: no error text is passed.
    unsafe { run(ptr::null(), body) }
}

/// The value of a compile spec by key. It is valid as long as the program.
///
/// # Safety
/// The rules at the head of `torchlet.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn torchlet_delegate_info_compile_spec(
    info: *const torchlet_delegate_info,
    key: *const c_char,
    data: *mut *const c_void,
    size: *mut usize,
) -> torchlet_status {
    let mut found = false;
    let body = || {
        // SAFETY: guaranteed by the caller.
        let (info, key) = unsafe { (pointer::get(info, "info")?, pointer::text(key, "key")?) };
        for spec in info.0.compile_specs() {
            let (name, value) = spec?;
            if name == key {
                found = true;
                // SAFETY: guaranteed by the caller.
                unsafe {
                    pointer::put(size, value.len(), "size")?;
                    pointer::put(data, value.as_ptr().cast(), "data")?;
                }
                break;
            }
        }
        Ok(())
    };
    // SAFETY: no error text is passed.
    let status = unsafe { run(ptr::null(), body) };
    if status == TORCHLET_OK && !found { TORCHLET_NOT_FOUND } else { status }
}

/// Name of the method that contains the delegate.
///
/// # Safety
/// The rules at the head of `torchlet.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn torchlet_delegate_info_method(
    info: *const torchlet_delegate_info,
) -> torchlet_string {
    let none = torchlet_string { data: ptr::null(), size: 0 };
    // SAFETY: guaranteed by the caller.
    value(none, || Some(torchlet_string::of(unsafe { info.as_ref()? }.0.method())))
}

/// The description of the delegate in the program.
///
/// # Safety
/// The rules at the head of `torchlet.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn torchlet_delegate_init_info(
    init: *const torchlet_delegate_init,
) -> *const torchlet_delegate_info {
    if init.is_null() {
        return ptr::null();
    }
    // SAFETY: guaranteed by the caller.
    unsafe { &raw const (*init).info }
}

/// The processed bytes. `lent` tells whether they stay valid as long as the method, or only until
/// `init` returns.
///
/// # Safety
/// The rules at the head of `torchlet.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn torchlet_delegate_init_processed(
    init: *const torchlet_delegate_init,
    data: *mut *const c_void,
    size: *mut usize,
    lent: *mut bool,
) -> torchlet_status {
    let body = || {
        // SAFETY: guaranteed by the caller; the context is valid as long as `init`.
        unsafe {
            let context = pointer::get(init, "init")?.context;
            let processed = (*context).processed();
            let stays = matches!(processed, torchlet_core::Processed::Lent(_));
            let bytes = processed.bytes();
            pointer::put(size, bytes.len(), "size")?;
            pointer::put(lent, stays, "lent")?;
            pointer::put(data, bytes.as_ptr().cast(), "data")
        }
    };
    // SAFETY: no error text is passed.
    unsafe { run(ptr::null(), body) }
}

/// Allocates zeroed memory from the method's arena, aligned to 16 bytes. It is valid as long as the
/// method.
///
/// # Safety
/// The rules at the head of `torchlet.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn torchlet_delegate_init_allocate(
    init: *mut torchlet_delegate_init,
    bytes: usize,
    memory: *mut *mut c_void,
) -> torchlet_status {
    let body = || {
        // SAFETY: guaranteed by the caller; the context is valid as long as `init`.
        unsafe {
            let context = pointer::get(init.cast_const(), "init")?.context;
            let taken = (*context).allocate(bytes)?;
            pointer::put(memory, taken.as_mut_ptr().cast(), "memory")
        }
    };
    // SAFETY: no error text is passed.
    unsafe { run(ptr::null(), body) }
}
