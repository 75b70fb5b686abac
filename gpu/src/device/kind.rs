//! The kind of a device.

/// The kind of processor of a device.
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
