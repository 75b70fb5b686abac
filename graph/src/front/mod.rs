//! Front ends: convert methods and delegate blobs to graphs.

mod constants;
mod convolution;
pub(crate) mod delegate;
mod formats;
mod header;
pub(crate) mod joined;
pub(crate) mod kernels;
mod numbers;
mod optional;
mod origins;
mod program;
#[cfg(feature = "pt2")]
pub(crate) mod pt2;
#[cfg(feature = "lazy")]
pub mod recorded;
mod summary;
pub mod vgf;
mod vocabulary;
pub mod vulkan;
pub mod xnnpack;

pub(crate) use constants::Copies;
pub use delegate::{is_exported_for_device, runs_only_compiled};
pub use formats::summarize;
pub use origins::CallOrigin;
pub(crate) use origins::Origins;
pub use program::{FrontEnd, Run};
pub use summary::Summary;
pub(crate) use vocabulary::Access;
pub use vocabulary::{KernelSemantics, Vocabulary};
pub(crate) use vulkan::{Argument, Bound};
