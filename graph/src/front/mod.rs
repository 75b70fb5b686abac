//! Front-ends: from what files hold to graphs.

pub(crate) mod delegate;
mod numbers;
mod program;
mod vocabulary;
pub mod vulkan;

pub use program::{FrontEnd, Run};
pub use vocabulary::{Meaning, Vocabulary};
