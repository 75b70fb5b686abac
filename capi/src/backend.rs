//! Backends written in C.

use crate::call::torchlet_call;
use crate::fault::Fault;
use crate::pointer;
use crate::status::{
    TORCHLET_DELEGATE_MEMORY_ALLOCATION_FAILED, TORCHLET_INTERNAL, TORCHLET_NOT_FOUND, TORCHLET_OK,
    run, torchlet_status, value,
};
use crate::values::torchlet_string;
use core::ffi::{c_char, c_void};
use core::ptr;
use torchlet_core::error::Message;
use torchlet_core::{
    ARENA_ALIGN, Backend, Delegate, DelegateBox, DelegateCall, DelegateError, DelegateInfo,
    InitContext, delegate_size,
};

/// A delegate as the program describes it. It is there as long as the function that gets it runs.
pub struct torchlet_delegate_info(DelegateInfo<'static>);

/// A delegate in the making. It is there as long as the function that gets it runs.
pub struct torchlet_delegate_init {
    context: *mut InitContext<'static, 'static>,
    info: torchlet_delegate_info,
}

/// Whether the backend can work here: `TORCHLET_OK`, or why not.
pub type torchlet_backend_available_fn = Option<unsafe extern "C" fn(context: *mut c_void) -> u32>;
/// Bytes that `init` is going to allocate from the method's arena, each allocation rounded up to a
/// multiple of 16.
pub type torchlet_backend_arena_fn = Option<
    unsafe extern "C" fn(
        context: *mut c_void,
        info: *const torchlet_delegate_info,
        bytes: *mut usize,
    ) -> u32,
>;
/// Makes a delegate: looks at the processed bytes, allocates, and leaves a pointer of its own in
/// `delegate`.
pub type torchlet_backend_init_fn = Option<
    unsafe extern "C" fn(
        context: *mut c_void,
        init: *mut torchlet_delegate_init,
        delegate: *mut *mut c_void,
    ) -> u32,
>;
/// Runs a delegate: says what is input (`torchlet_call_split`), reads inputs, writes outputs.
pub type torchlet_backend_execute_fn = Option<
    unsafe extern "C" fn(
        context: *mut c_void,
        delegate: *mut c_void,
        call: *mut torchlet_call,
    ) -> u32,
>;
/// Makes a delegate forget the state that it keeps between runs.
pub type torchlet_backend_reset_fn =
    Option<unsafe extern "C" fn(context: *mut c_void, delegate: *mut c_void) -> u32>;
/// Frees what a delegate holds outside of the arena.
pub type torchlet_backend_destroy_fn =
    Option<unsafe extern "C" fn(context: *mut c_void, delegate: *mut c_void)>;

/// A backend that is written in C: it runs parts of models that were lowered for it. Its functions
/// can be called from every thread that uses methods with it; one delegate is used by one thread at
/// a time.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct torchlet_backend {
    /// The name that programs call it by. It must stay.
    pub name: *const c_char,
    /// What the functions get.
    pub context: *mut c_void,
    /// May be null.
    pub available: torchlet_backend_available_fn,
    /// May be null, for backends that allocate nothing from the arena.
    pub arena: torchlet_backend_arena_fn,
    /// Makes delegates.
    pub init: torchlet_backend_init_fn,
    /// Runs them.
    pub execute: torchlet_backend_execute_fn,
    /// May be null.
    pub reset: torchlet_backend_reset_fn,
    /// May be null.
    pub destroy: torchlet_backend_destroy_fn,
}

// SAFETY: whoever adds a backend to a registry promises that its functions can be called from every
// thread.
unsafe impl Sync for torchlet_backend {}
// SAFETY: as above.
unsafe impl Send for torchlet_backend {}

impl torchlet_backend {
    /// Checks that it has what it must have.
    ///
    /// # Safety
    /// The name is null or text that stays.
    pub(crate) unsafe fn check(&self) -> Result<(), Fault> {
        // SAFETY: the caller's promise.
        unsafe { pointer::text(self.name, "backend->name")? };
        self.init.ok_or(Fault::Null("backend->init"))?;
        self.execute.ok_or(Fault::Null("backend->execute"))?;
        Ok(())
    }
}

/// The error that a code of a C function stands for.
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
    // SAFETY: the lifetime is not true, and nobody keeps the result for longer than a function of C
    // runs.
    torchlet_delegate_info(unsafe {
        core::mem::transmute::<DelegateInfo<'_>, DelegateInfo<'static>>(*info)
    })
}

impl Backend for torchlet_backend {
    fn name(&self) -> &'static str {
        // SAFETY: `check` was promised that the name stays.
        unsafe { pointer::text(self.name, "name") }.unwrap_or("")
    }

    fn is_available(&self) -> Result<(), DelegateError> {
        let Some(available) = self.available else { return Ok(()) };
        // SAFETY: whoever added the backend promised that its functions can be called; so below.
        checked(unsafe { available(self.context) }, "the backend in C says so")
    }

    fn arena_bytes(&self, info: &DelegateInfo<'_>) -> Result<usize, DelegateError> {
        let mut bytes = 0;
        if let Some(arena) = self.arena {
            let info = info_of(info);
            // SAFETY: see `is_available`; both pointers outlive the call.
            let status = unsafe { arena(self.context, &info, &mut bytes) };
            checked(status, "its bytes of the arena, says the backend in C")?;
        }
        let whole = bytes.checked_next_multiple_of(ARENA_ALIGN);
        let whole = whole.and_then(|bytes| bytes.checked_add(delegate_size::<CDelegate>()));
        whole.ok_or(DelegateError::OutOfMemory(Message::from("more than can be addressed")))
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
        checked(status, "this delegate, says the backend in C")?;
        context.place(CDelegate { backend: *self, state })
    }
}

/// A delegate that a backend in C made.
struct CDelegate {
    backend: torchlet_backend,
    state: *mut c_void,
}

// SAFETY: the backend's functions can be called from every thread, by the promise of whoever added
// it.
unsafe impl Send for CDelegate {}

impl Delegate for CDelegate {
    fn execute(&mut self, call: &mut DelegateCall<'_, '_>) -> Result<(), DelegateError> {
        let Some(execute) = self.backend.execute else {
            return Err(DelegateError::Unavailable(Message::from("the backend has no execute")));
        };
        let (status, error) = torchlet_call::delegating(call, |call| {
            // SAFETY: see `is_available`; the call outlives this one.
            unsafe { execute(self.backend.context, self.state, call) }
        });
        match error {
            Some(error) if status != TORCHLET_OK => Err(error.into()),
            _ => checked(status, "the delegate in C failed"),
        }
    }

    fn reset(&mut self) -> Result<(), DelegateError> {
        let Some(reset) = self.backend.reset else { return Ok(()) };
        // SAFETY: see `is_available`.
        checked(unsafe { reset(self.backend.context, self.state) }, "the delegate in C failed")
    }
}

impl Drop for CDelegate {
    fn drop(&mut self) {
        if let Some(destroy) = self.backend.destroy {
            // SAFETY: see `is_available`; the delegate is not used any more.
            unsafe { destroy(self.backend.context, self.state) }
        }
    }
}

/// Bytes that the exporter made of the delegate's part of the model.
///
/// # Safety
/// The rules at the head of `torchlet.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn torchlet_delegate_info_size(info: *const torchlet_delegate_info) -> usize {
    // SAFETY: the caller's promise.
    value(0, || Some(unsafe { info.as_ref()? }.0.processed().size()))
}

/// Copies some of those bytes.
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
        // SAFETY: the caller's promise.
        unsafe {
            let info = pointer::get(info, "info")?;
            Ok(info.0.processed().read(offset, pointer::zeroed(into, size, "into")?)?)
        }
    };
    // SAFETY: there is no text.
    unsafe { run(ptr::null(), body) }
}

/// A value that the exporter added under a key (a compile spec). It is there as long as the
/// program.
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
        // SAFETY: the caller's promise.
        let (info, key) = unsafe { (pointer::get(info, "info")?, pointer::text(key, "key")?) };
        for spec in info.0.compile_specs() {
            let (name, value) = spec?;
            if name == key {
                found = true;
                // SAFETY: the caller's promise.
                unsafe {
                    pointer::put(size, value.len(), "size")?;
                    pointer::put(data, value.as_ptr().cast(), "data")?;
                }
                break;
            }
        }
        Ok(())
    };
    // SAFETY: there is no text.
    let status = unsafe { run(ptr::null(), body) };
    if status == TORCHLET_OK && !found { TORCHLET_NOT_FOUND } else { status }
}

/// The name of the method that the delegate is part of.
///
/// # Safety
/// The rules at the head of `torchlet.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn torchlet_delegate_info_method(
    info: *const torchlet_delegate_info,
) -> torchlet_string {
    let none = torchlet_string { data: ptr::null(), size: 0 };
    // SAFETY: the caller's promise.
    value(none, || Some(torchlet_string::of(unsafe { info.as_ref()? }.0.method())))
}

/// The delegate as the program describes it.
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
    // SAFETY: the caller's promise.
    unsafe { &raw const (*init).info }
}

/// The processed bytes, and whether they stay as long as the method (`lent`), or until `init`
/// returns.
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
        // SAFETY: the caller's promise; the context is there as long as `init` is.
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
    // SAFETY: there is no text.
    unsafe { run(ptr::null(), body) }
}

/// Takes memory from the method's arena, at a multiple of 16: zeroed, and there as long as the
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
        // SAFETY: the caller's promise; the context is there as long as `init` is.
        unsafe {
            let context = pointer::get(init.cast_const(), "init")?.context;
            let taken = (*context).allocate(bytes)?;
            pointer::put(memory, taken.as_mut_ptr().cast(), "memory")
        }
    };
    // SAFETY: there is no text.
    unsafe { run(ptr::null(), body) }
}
