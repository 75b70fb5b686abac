//! The kind of a device.

/// The kind of processor that a device is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum DeviceKind {
    /// Software on the CPU.
    Cpu,
    /// Any other kind.
    Other,
    /// A virtual GPU of a virtual machine.
    Virtual,
    /// A GPU that shares memory with the CPU.
    Integrated,
    /// A GPU with dedicated memory.
    Discrete,
}

impl DeviceKind {
    /// Returns the approximate number of invocations that saturate such a device, if its cores are
    /// not known.
    pub fn busy_invocations(self) -> usize {
        match self {
            DeviceKind::Cpu => 1 << 7,
            DeviceKind::Integrated => 1 << 12,
            DeviceKind::Other | DeviceKind::Virtual | DeviceKind::Discrete => 1 << 16,
        }
    }
}
