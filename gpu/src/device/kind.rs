//! The kind of a device.

use std::time::Duration;

/// The default timeout of a run on a GPU.
const TIMEOUT: Duration = Duration::from_secs(60);

/// The kind of processor of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum DeviceKind {
    /// A software implementation on the CPU, such as lavapipe.
    Cpu,
    /// Any other kind of processor.
    Other,
    /// A virtual GPU of a virtual machine.
    Virtual,
    /// A GPU that shares memory with the CPU.
    Integrated,
    /// A GPU with dedicated memory.
    Discrete,
}

impl DeviceKind {
    /// Returns the timeout of a run: the one that was asked for, where zero disables it, else the
    /// default.
    pub fn timeout(self, asked: Option<Duration>) -> Duration {
        match (asked, self) {
            (Some(Duration::ZERO), _) => Duration::MAX,
            (Some(timeout), _) => timeout,
            // Software devices may need any amount of time.
            (None, DeviceKind::Cpu) => Duration::MAX,
            (None, _) => TIMEOUT,
        }
    }
}
