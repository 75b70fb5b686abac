//! Vulkan objects: device, memory, pipelines, recordings. All calls into Vulkan are in this module.

mod buffer;
mod cache_file;
mod clock;
mod completion;
mod context;
mod cores;
mod extensions;
mod features;
mod foreign;
mod info;
mod instance;
mod limits;
mod memory;
mod options;
mod pipeline;
mod portability;
mod power;
mod queues;
mod recording;
mod timestamps;
mod tuning_results;
#[cfg(test)]
mod validation;
mod workarounds;

pub(crate) use buffer::{Buffer, MemoryKind};
pub(crate) use clock::Clock;
pub(crate) use context::{Context, chosen, listed};
pub(crate) use foreign::{
    Bound, ForeignCommand, ForeignPipeline, ForeignRecording, Image, ImageUses, SamplerConfig, Slot,
};
pub use info::{DeviceInfo, devices};
pub(crate) use options::Options;
pub use options::{
    DEVICE_VARIABLE, DISABLE_VARIABLE, MATRICES_VARIABLE, MEMORY_LIMIT_VARIABLE,
    PIPELINE_CACHE_VARIABLE, PREFETCH_VARIABLE, TIMEOUT_VARIABLE, TUNE_VARIABLE, UPLOAD_VARIABLE,
    Upload,
};
pub(crate) use recording::{Binding, Command, Recording, hand_over_uploads};
