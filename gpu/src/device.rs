//! Everything about a device that a plan depends on, as plain data: its kind, cores, limits and
//! optional features, and the measured answers to tuning questions.

mod cores;
mod features;
mod kind;
mod limits;
mod pipeline;
mod profile;
mod question;

pub use cores::Cores;
pub(crate) use cores::{is_parallel, processors};
pub use features::{CooperativeMatrix, DeviceFeature, DeviceFeatures, MatrixElement};
pub use kind::DeviceKind;
pub(crate) use limits::MAX_GROUPS;
pub use limits::{DeviceLimits, Limits, MAX_INVOCATIONS, NEEDED_BUFFERS};
pub use pipeline::PipelineKey;
pub use profile::Profile;
pub(crate) use profile::{DispatchProfile, GemmProfile};
pub use question::{TuningKey, TuningResult};

/// The properties of a device that a plan depends on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Device {
    /// The kind, which selects the tuned constants.
    pub kind: DeviceKind,
    /// The optional features that plans may use.
    pub features: DeviceFeatures,
    /// The limits that plans respect.
    pub limits: Limits,
    /// The number of invocations that saturate the device.
    pub busy: usize,
    /// The maximum bytes of one memory allocation.
    pub allocation: u64,
    /// The number of processors (SMs or compute units), if known.
    pub processors: Option<usize>,
}
