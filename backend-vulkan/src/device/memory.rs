//! Counts the device memory in use, and limits it.

use crate::error::Error;
use std::sync::atomic::{AtomicU64, Ordering};
use torchlet_core::DeviceMemory;

/// Counts the bytes of all buffers of a device, up to a limit.
#[derive(Debug)]
pub(crate) struct Meter {
    used: AtomicU64,
    peak: AtomicU64,
    limit: u64,
}

impl Meter {
    /// Creates a meter with a limit.
    pub(crate) fn new(limit: Option<u64>) -> Self {
        Meter { used: AtomicU64::new(0), peak: AtomicU64::new(0), limit: limit.unwrap_or(u64::MAX) }
    }

    /// Adds bytes that are about to be allocated. Fails if the limit would be exceeded.
    pub(crate) fn add(&self, bytes: u64) -> Result<(), Error> {
        let grown = |used: u64| used.checked_add(bytes).filter(|used| *used <= self.limit);
        let before = self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, grown);
        let before = before.map_err(|used| {
            let limit = self.limit;
            Error::OutOfMemory(format!(
                "{bytes} bytes in addition to {used} bytes in use exceed the limit of {limit} bytes"
            ))
        })?;
        self.peak.fetch_max(before.saturating_add(bytes), Ordering::Relaxed);
        Ok(())
    }

    /// Subtracts bytes that were freed.
    pub(crate) fn remove(&self, bytes: u64) {
        self.used.fetch_sub(bytes, Ordering::Relaxed);
    }

    pub(crate) fn report(&self) -> DeviceMemory {
        DeviceMemory::new(self.used.load(Ordering::Relaxed), self.peak.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_limit_is_exact() {
        let meter = Meter::new(Some(100));
        meter.add(60).unwrap();
        assert!(meter.add(41).is_err());
        meter.add(40).unwrap();
        assert!(meter.add(u64::MAX).is_err());
        meter.remove(60);
        meter.add(10).unwrap();
        assert_eq!(meter.report(), DeviceMemory::new(50, 100));
    }
}
