//! Log lines of the runtime, for a function of the caller's.

use core::ffi::c_void;
use core::fmt::{self, Write};
use core::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

/// Gets a line of a log, without null byte behind it, and its level: 1 error, 2 warning, 3
/// information, 4 debugging, 5 trace.
pub type torchlet_log_fn =
    Option<unsafe extern "C" fn(context: *mut c_void, level: u32, text: *const u8, size: usize)>;

static FUNCTION: AtomicUsize = AtomicUsize::new(0);
static CONTEXT: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());

struct Callback;

/// The bytes of a line; what is longer is cut.
const LINE: usize = 240;

/// A line in the making, cut at the end of a character.
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
        // An error only says that the line was cut.
        let _ = line.write_fmt(*record.args());
        let (context, level) = (CONTEXT.load(Ordering::Acquire), record.level() as u32);
        // SAFETY: whoever set it promised that it can be called with its context, from every
        // thread.
        unsafe { function(context, level, line.0.as_ptr(), line.0.len()) }
    }

    fn flush(&self) {}
}

/// Sets the function that gets the runtime's log lines, in place of the one before; null for none.
/// It is one for all of the process; set it before other threads use torchlet. In libraries that
/// were built with the feature `log`.
///
/// # Safety
/// The rules at the head of `torchlet.h`. The function can be called with its context from every
/// thread that uses torchlet.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn torchlet_set_log(function: torchlet_log_fn, context: *mut c_void) {
    CONTEXT.store(context, Ordering::Release);
    let address = function.map_or(0, |function| function as usize);
    FUNCTION.store(address, Ordering::Release);
    // Where a logger is set already, it stays: that of a Rust program that this is part of.
    #[cfg(target_has_atomic = "ptr")]
    let _ = log::set_logger(&Callback);
    // SAFETY: other threads do not use torchlet yet, by the caller's promise.
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
