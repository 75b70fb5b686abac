//! Front ends: convert methods and delegate blobs to graphs.

mod constants;
pub(crate) mod delegate;
mod header;
pub(crate) mod joined;
mod numbers;
mod optional;
mod origins;
mod program;
mod vocabulary;
pub mod vulkan;
pub mod xnnpack;

pub(crate) use constants::Copies;
pub use origins::CallOrigin;
pub(crate) use origins::Origins;
pub use program::{FrontEnd, Run};
pub(crate) use vocabulary::Access;
pub use vocabulary::{KernelSemantics, Vocabulary};
