//! Elapsed time and processor time.

use std::fmt;
use std::time::{Duration, Instant};

/// Measures from its start. Processor time is that of child processes that have ended.
pub(super) struct Stopwatch {
    start: Instant,
    used: Duration,
}

impl Stopwatch {
    pub(super) fn start() -> Self {
        Stopwatch { start: Instant::now(), used: used_by_children() }
    }
}

impl fmt::Display for Stopwatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let wall = self.start.elapsed().as_secs_f64();
        let used = used_by_children().saturating_sub(self.used).as_secs_f64();
        write!(f, "{wall:>7.1} s, processor time {used:>7.1} s")
    }
}

/// User and system time of all ended child processes and their descendants.
#[cfg(unix)]
fn used_by_children() -> Duration {
    use nix::sys::resource::{UsageWho, getrusage};
    let Ok(usage) = getrusage(UsageWho::RUSAGE_CHILDREN) else { return Duration::ZERO };
    let times = [usage.user_time(), usage.system_time()];
    let micros =
        times.iter().map(|time| i128::from(time.tv_sec()) * 1_000_000 + i128::from(time.tv_usec()));
    Duration::from_micros(u64::try_from(micros.sum::<i128>()).unwrap_or(0))
}

/// Not available on other systems.
#[cfg(not(unix))]
fn used_by_children() -> Duration {
    Duration::ZERO
}
