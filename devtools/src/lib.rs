//! What happens while programs load and run, recorded, written down, and added up.
//!
//! [`Recorder`] is an event tracer that keeps everything in order; what it has seen is a
//! [`Recording`]. All else takes recordings, wherever they come from:
//!
//! - [`etdump`] writes them as ExecuTorch's tools read them, and reads what the C++ runtime wrote;
//! - [`Profile`] adds them up, by operator and by call, over all runs;
//! - [`trace`] puts them on a time line for Perfetto and `chrome://tracing`, [`flame`] in folded
//!   stacks for flame graphs;
//! - [`Difference`] says how far two values are from each other.
//!
//! It knows events alone: no file format of programs, no kernel, no backend.

#![cfg_attr(docsrs, feature(doc_cfg))]

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
