//! The CPU engine: regions of a program's graph, prepared once and then run without decisions.
//!
//! Portable kernels run one operator after the other, in the order of elements that the file has.
//! The compiler ([`torchlet_graph`]) gives this engine whole regions instead. When a method is
//! loaded, each call becomes steps of a plan ([`plan`]): geometry and instruction set are settled,
//! weights are packed, limits go into the products before them, convolutions have channels
//! innermost, what only rearranges a tensor becomes strides ([`mod@view`]), and all memory in
//! between has its place.
//!
//! It computes in `f32`, and what has 16 bits outside is rounded where it leaves a region
//! ([`numbers`]). Where shapes vary, there is a plan for each that it is called with; the last few
//! are kept. What it does not take ([`CpuTarget`] says why) stays with the kernels.

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

/// What programs call this backend.
pub const BACKEND_NAME: &str = "TorchletCpu";

/// The backend for regions that the compiler makes for the CPU. Methods of one engine share the
/// weights that they packed.
#[derive(Debug, Default)]
pub struct CpuEngine {
    packs: Packs,
}

impl CpuEngine {
    /// An engine that has packed nothing yet.
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
