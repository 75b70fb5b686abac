//! How long something takes, by the clock and in processor time.

use std::fmt;
use std::time::{Duration, Instant};

/// Runs from its start. Its processor time is that of the programs which we started and whose end
/// we waited for.
pub(super) struct Watch {
    start: Instant,
    used: Duration,
}

impl Watch {
    pub(super) fn start() -> Self {
        Watch { start: Instant::now(), used: used_by_children() }
    }
}

impl fmt::Display for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let wall = self.start.elapsed().as_secs_f64();
        let used = used_by_children().saturating_sub(self.used).as_secs_f64();
        write!(f, "{wall:>7.1} s, of processors {used:>7.1} s")
    }
}

/// User and system time of the programs that have ended, and of those that they waited for.
#[cfg(unix)]
fn used_by_children() -> Duration {
    use nix::sys::resource::{UsageWho, getrusage};
    let Ok(usage) = getrusage(UsageWho::RUSAGE_CHILDREN) else { return Duration::ZERO };
    let times = [usage.user_time(), usage.system_time()];
    let micros =
        times.iter().map(|time| i128::from(time.tv_sec()) * 1_000_000 + i128::from(time.tv_usec()));
    Duration::from_micros(u64::try_from(micros.sum::<i128>()).unwrap_or(0))
}

/// Not known elsewhere.
#[cfg(not(unix))]
fn used_by_children() -> Duration {
    Duration::ZERO
}
