//! The kind of a device.

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
