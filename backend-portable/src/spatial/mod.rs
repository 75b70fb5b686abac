//! Spatial operators: convolution, pooling, resampling.
//!
//! They treat tensors as images: batch, channels and up to three spatial dims with a stride each,
//! for any dim order and with or without a batch dim. Shapes come from
//! [`torchlet_core::rules::window`].

mod backward;
mod columns;
mod convolution;
mod convolve_plain;
pub(crate) mod feature_map;
mod fractional;
mod grid;
mod grid_backward;
mod pad_backward;
pub(crate) mod pool;
mod pool_backward;
mod pool_operators;
pub(crate) mod resample;
mod resample_backward;
mod sample;
#[cfg(test)]
mod tests;

pub use backward::*;
pub use columns::*;
pub use convolution::{CONVOLUTION, CONVOLUTION_OUT};
pub use fractional::*;
pub use grid::*;
pub use grid_backward::*;
pub use pad_backward::*;
pub use pool_backward::*;
pub use pool_operators::*;
pub use resample::*;
pub use resample_backward::*;
