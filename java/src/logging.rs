//! The newest log lines of the runtime, which Java reads. On Android, they also go to the system
//! log.

use log::{LevelFilter, Log, Metadata, Record};
use std::collections::VecDeque;
use std::sync::{Mutex, Once, PoisonError};

/// Number of lines that are kept.
const MAX_LINES: usize = 64;

struct Lines(Mutex<VecDeque<String>>);

static LINES: Lines = Lines(Mutex::new(VecDeque::new()));

impl Log for Lines {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("torchlet")
    }

    fn log(&self, record: &Record<'_>) {
        if !self.enabled(record.metadata()) {
            return;
        }
        let line = format!("{}: {}", record.level(), record.args());
        #[cfg(target_os = "android")]
        crate::logcat::write(record.level(), &line);
        let mut lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if lines.len() == MAX_LINES {
            lines.pop_front();
        }
        lines.push_back(line);
    }

    fn flush(&self) {}
}

/// Begins to keep log lines, unless that was done.
pub(crate) fn start() {
    static START: Once = Once::new();
    START.call_once(|| {
        // No other logger can be set in this library.
        if log::set_logger(&LINES).is_ok() {
            log::set_max_level(LevelFilter::Debug);
        }
    });
}

/// The newest lines, oldest first.
pub(crate) fn lines() -> Vec<String> {
    LINES.0.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect()
}
