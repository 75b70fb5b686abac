//! What a platform can add: a clock and a log. Core asks for neither; it runs without both.

/// A clock, for tracers.
pub trait Clock: Sync {
    /// Ticks since some fixed moment; never goes back.
    fn ticks(&self) -> u64;

    /// Nanoseconds per tick, as a fraction.
    fn nanoseconds_per_tick(&self) -> (u64, u64);
}

/// The clock of the operating system, in nanoseconds.
#[cfg(feature = "std")]
#[derive(Debug, Clone, Copy)]
pub struct SystemClock {
    start: std::time::Instant,
}

#[cfg(feature = "std")]
impl Default for SystemClock {
    fn default() -> Self {
        SystemClock { start: std::time::Instant::now() }
    }
}

#[cfg(feature = "std")]
impl Clock for SystemClock {
    fn ticks(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    fn nanoseconds_per_tick(&self) -> (u64, u64) {
        (1, 1)
    }
}

/// Logs one line at debug level through `defmt` or `log`, or not at all.
macro_rules! debug {
    ($($arg:tt)*) => {{
        #[cfg(feature = "log")]
        log::debug!($($arg)*);
        #[cfg(all(feature = "defmt", not(feature = "log")))]
        defmt::debug!($($arg)*);
        #[cfg(not(any(feature = "defmt", feature = "log")))]
        if false {
            let _ = core::format_args!($($arg)*);
        }
    }};
}
pub(crate) use debug;
