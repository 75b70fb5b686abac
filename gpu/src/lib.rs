//! GPU plans: compiles a graph into dispatches over named buffers, for any GPU API.
//!
//! [`rewrite`] fuses the calls of a graph for a [device](device::Device). [`Plan::new`] encodes the
//! graph: each operator emits steps, which are dispatches over tensors ([`encode`](fn@encode)), and
//! the memory planner assigns memory to tensors by their lifetimes ([`memory_plan`]). A backend
//! allocates the buffers of the [`Plan`], uploads its [constants], creates its pipelines, and
//! records the commands that a [`Scheduler`] creates from the steps.
//!
//! A [`Plan`] holds everything that does not change from run to run; shapes and integers are in
//! [`State`]. When only integers change, [`Replay`] encodes the affected calls again and returns
//! their new parameters. When shapes change, the whole graph is encoded and scheduled again. The
//! device properties that a plan depends on are plain data ([`device`]). Properties that have to be
//! measured are questions that a backend answers ([`tuning`]). This crate uses no GPU API.

#![cfg_attr(docsrs, feature(doc_cfg))]
#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::unwrap_used, clippy::expect_used, clippy::panic))]
#![allow(rustdoc::private_intra_doc_links)]

mod bfloat16;
mod bounds;
mod calls;
mod choices;
mod commands;
pub mod constants;
mod copies;
mod delegate;
mod derived;
pub mod device;
mod encode;
mod encoder;
mod error;
mod ids;
mod labels;
pub mod matrix_units;
pub mod memory_plan;
mod ops;
mod passes;
mod plan;
mod pool;
mod prediction;
mod prefetch;
mod read;
mod reads;
mod replay;
mod schedule;
mod search;
mod shapes;
mod sharing;
mod stages;
mod staging;
mod state;
mod state_tensors;
mod steps;
mod support;
mod target;
mod tasks;
mod tensors;
pub mod transfer;
pub mod tuning;
mod varying;
mod warmup;
mod weights;

pub use calls::arguments;
pub use choices::Choices;
pub use commands::{Binding, BufferId, Command};
pub use delegate::{ErrorOf, GraphDelegate, Session};
pub use encode::encode;
pub use error::Error;
pub use labels::Label;
pub use passes::run as fuse;
pub use plan::{Encoded, Plan, PlanOptions, Updates, rewrite};
pub use pool::{DevicePool, OpenDevice};
pub use prefetch::OUTPUT_BYTES as PREFETCH_OUTPUT_BYTES;
pub use read::read;
pub use reads::Reads;
pub use replay::Replay;
pub use schedule::{Schedule, Scheduler};
pub use search::{Search, SearchRequest};
pub use shapes::Shapes;
pub use sharing::{Holder, SharedWeight, SharedWeights};
pub use staging::Staging;
pub use state::State;
pub use state_tensors::{StateTensor, state_tensors};
pub use steps::Step;
pub use support::{Support, supports};
pub use target::GpuTarget;
pub use tasks::{Task, run_tasks};
pub use tensors::{TensorId, element_of};
pub use weights::Weight;
