//! Optional logging.

/// Logs a line at debug level through `log` or `defmt`; a no-op without these features.
macro_rules! debug {
    ($($arg:tt)*) => {{
        #[cfg(feature = "log")]
        ::log::debug!($($arg)*);
        #[cfg(all(feature = "defmt", not(feature = "log")))]
        ::defmt::debug!($($arg)*);
        #[cfg(not(any(feature = "defmt", feature = "log")))]
        if false {
            let _ = core::format_args!($($arg)*);
        }
    }};
}
pub(crate) use debug;
