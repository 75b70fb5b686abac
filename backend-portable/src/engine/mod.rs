//! The CPU engine: runs regions of a program's graph by plans that are built once.
//!
//! Portable kernels run one operator at a time, in the memory order of the file. The compiler
//! ([`torchlet_graph`]) delegates whole regions to this engine instead. When a method is loaded,
//! each call is lowered to steps of a plan ([`plan`]):
//!
//! - Geometry and instruction set are fixed.
//! - Weights are packed.
//! - Matrix multiplications and convolutions include the additions and clamps that a graph pass
//!   fused into them ([`epilogue`](torchlet_graph::passes::epilogue)).
//! - Convolutions run channels-last.
//! - Operators that only rearrange a tensor become strides ([`mod@view`]).
//! - Intermediate buffers get offsets in shared memory.
//!
//! The engine computes in `f32`; 16-bit tensors are rounded where they leave a region
//! ([`numbers`]). With dynamic shapes, the engine builds a plan per shape and caches the most
//! recent ones. Calls that it does not support ([`CpuTarget`] gives the reason) fall back to the
//! kernels.

mod arguments;
mod builder;
mod given;
mod lines;
mod numbers;
mod ops;
mod packed;
mod packer;
mod plan;
mod rates;
mod region;
mod target;
#[cfg(test)]
mod tests;
mod view;

pub use packer::WeightPacker;
pub use rates::kernel_rates;
pub use target::CpuTarget;

use packed::Packs;
use region::{Region, message};
use torchlet_core::{
    Backend, DelegateBox, DelegateError, DelegateInfo, InitContext, delegate_size,
};
use torchlet_graph::blob;

/// Backend name in programs.
pub const BACKEND_NAME: &str = "TorchletCpu";

/// Backend for regions that the compiler delegates to the CPU. Methods of one engine share packed
/// weights.
#[derive(Debug, Default)]
pub struct CpuEngine {
    packs: Packs,
}

impl CpuEngine {
    /// Creates an engine without packed weights.
    pub fn new() -> Self {
        Self::default()
    }
}

impl Backend for CpuEngine {
    fn name(&self) -> &'static str {
        BACKEND_NAME
    }

    fn arena_bytes(&self, _delegate: &DelegateInfo<'_>) -> Result<usize, DelegateError> {
        Ok(delegate_size::<Region<'_>>())
    }

    fn init<'m>(
        &'m self,
        context: &mut InitContext<'_, 'm>,
    ) -> Result<DelegateBox<'m>, DelegateError> {
        let invalid = |text: &dyn core::fmt::Display| DelegateError::InvalidData(message(text));
        let info = *context.info();
        let named = |key: &str| info.named_data(key);
        let graph = blob::read(context.processed().bytes(), &named);
        let graph = graph.map_err(|error| invalid(&error))?;
        let region = Region::new(graph, &self.packs, context.parallel());
        context.place(region.map_err(|why| DelegateError::Unsupported(message(&why)))?)
    }
}
