//! Developer tools: records the events of loading and running programs, and evaluates them.
//!
//! [`Recorder`] is an event tracer that stores all events in order, as a [`Recording`]. The rest of
//! the crate evaluates recordings from any source:
//!
//! - [`etdump`] reads and writes the format of ExecuTorch's tools and of its C++ runtime;
//! - [`Profile`] sums up times by operator and by call, over all runs;
//! - [`trace`] exports timelines for Perfetto and `chrome://tracing`, [`flame`] folded stacks for
//!   flame graphs;
//! - [`Difference`] compares two values numerically.
//!
//! The crate only depends on events, not on program file formats, kernels or backends.

#![cfg_attr(docsrs, feature(doc_cfg))]
#![forbid(unsafe_code)]

mod difference;
pub mod etdump;
pub mod flame;
mod profile;
mod recorder;
mod recording;
pub mod trace;

pub use difference::Difference;
pub use profile::{Profile, ProfileError, Row, Statistics};
pub use recorder::Recorder;
pub use recording::{
    AllocationRecord, Event, Kind, Location, Recording, Run, RunKind, ValueKind, ValueRecord,
};
