//! Log lines for Android's system log, which `adb logcat` shows.

use log::Level;
use std::ffi::{CString, c_char, c_int};

#[link(name = "log")]
unsafe extern "C" {
    fn __android_log_write(priority: c_int, tag: *const c_char, text: *const c_char) -> c_int;
}

/// Writes a line.
pub(crate) fn write(level: Level, line: &str) {
    // `android_LogPriority`.
    let priority = match level {
        Level::Error => 6,
        Level::Warn => 5,
        Level::Info => 4,
        Level::Debug => 3,
        Level::Trace => 2,
    };
    let Ok(text) = CString::new(line.replace('\0', " ")) else { return };
    // SAFETY: both texts end with a zero byte and outlive the call, which copies them.
    unsafe { __android_log_write(priority, c"torchlet".as_ptr(), text.as_ptr()) };
}
