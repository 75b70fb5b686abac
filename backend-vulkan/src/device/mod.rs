//! Vulkan objects: the device that work runs on, its memory, its pipelines. All calls into Vulkan are below this module.

mod buffer;
mod context;
mod instance;
mod pipeline;
mod recording;
mod timestamps;

pub(crate) use buffer::{Buffer, MemoryKind};
pub(crate) use context::Context;
pub use instance::{DeviceInfo, DeviceKind, devices};
pub(crate) use pipeline::PipelineKey;
pub(crate) use recording::{Binding, Command, Recording};
pub(crate) use timestamps::Clock;
