//! GPU plans: compiles a graph into dispatches over typed buffers.
//!
//! Operators (`ops`) encode a graph into steps, which are dispatches over tensors
//! ([`encode`](mod@encode)). Tensors are placed in memory by their lifetimes ([`memory_plan`]), and
//! constants are derived in the layouts that shaders read ([`constants`]). What a plan depends on of
//! a device is plain data ([`device`]). No GPU API is used: a backend allocates the buffers, creates
//! the pipelines and records the dispatches.

#![cfg_attr(docsrs, feature(doc_cfg))]
#![cfg_attr(not(test), warn(clippy::unwrap_used, clippy::expect_used, clippy::panic))]
#![allow(rustdoc::private_intra_doc_links)]

mod bfloat16;
mod bounds;
pub mod choices;
pub mod constants;
pub mod derived;
pub mod device;
pub mod encode;
pub mod encoder;
mod error;
pub mod ids;
pub mod memory_plan;
pub mod ops;
pub mod passes;
pub mod prefetch;
pub mod rates;
mod stages;
pub mod state;
pub mod state_tensors;
pub mod steps;
mod summary;
mod support;
pub mod tensors;
pub mod transfer;
pub mod varying;
pub mod warmup;
pub mod weights;

pub use error::Error;
pub use passes::run as fuse;
pub use summary::{GraphSummary, OperatorSummary, summarize};
pub use support::Support;
