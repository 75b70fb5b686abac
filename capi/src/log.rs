//! Forwards log lines of the runtime to a callback.

use core::ffi::c_void;
use core::fmt::{self, Write};
use core::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

/// Receives a log line, not null-terminated, and its level: 1 error, 2 warning, 3 information, 4
/// debugging, 5 trace.
pub type torchlet_log_fn =
    Option<unsafe extern "C" fn(context: *mut c_void, level: u32, text: *const u8, size: usize)>;

static FUNCTION: AtomicUsize = AtomicUsize::new(0);
static CONTEXT: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());

struct Callback;

/// Maximum bytes of a line; longer lines are truncated.
const LINE: usize = 240;

/// A line under construction, truncated at a character boundary.
struct Line(heapless::String<LINE>);

impl Write for Line {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        text.chars().try_for_each(|character| self.0.push(character).map_err(|_| fmt::Error))
    }
}

impl log::Log for Callback {
    fn enabled(&self, _: &log::Metadata<'_>) -> bool {
        FUNCTION.load(Ordering::Acquire) != 0
    }

    fn log(&self, record: &log::Record<'_>) {
        let address = FUNCTION.load(Ordering::Acquire);
        // SAFETY: the address is 0, which is `None`, or that of such a function: only
        // `torchlet_set_log` stores one.
        let function = unsafe { core::mem::transmute::<usize, torchlet_log_fn>(address) };
        let Some(function) = function else { return };
        let mut line = Line(heapless::String::new());
        // An error only means that the line was truncated.
        let _ = line.write_fmt(*record.args());
        let (context, level) = (CONTEXT.load(Ordering::Acquire), record.level() as u32);
        // SAFETY: whoever set the callback guaranteed that it can be called with its context from
        // every thread.
        unsafe { function(context, level, line.0.as_ptr(), line.0.len()) }
    }

    fn flush(&self) {}
}

/// Sets the callback for log lines, replacing the previous one; null disables logging. It is global
/// to the process; set it before other threads use torchlet. Requires a library built with the
/// feature `log`.
///
/// # Safety
/// The rules at the head of `torchlet.h`. The callback can be called with its context from every
/// thread that uses torchlet.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn torchlet_set_log(function: torchlet_log_fn, context: *mut c_void) {
    CONTEXT.store(context, Ordering::Release);
    let address = function.map_or(0, |function| function as usize);
    FUNCTION.store(address, Ordering::Release);
    // An existing logger is kept: that of a Rust program that contains this library.
    #[cfg(target_has_atomic = "ptr")]
    let _ = log::set_logger(&Callback);
    // SAFETY: the caller guarantees that other threads do not use torchlet yet.
    #[cfg(not(target_has_atomic = "ptr"))]
    let _ = unsafe { log::set_logger_racy(&Callback) };
    #[cfg(target_has_atomic = "ptr")]
    log::set_max_level(log::LevelFilter::Trace);
    // SAFETY: as above.
    #[cfg(not(target_has_atomic = "ptr"))]
    unsafe {
        log::set_max_level_racy(log::LevelFilter::Trace)
    };
}
