//! Operators over space: convolutions, poolings, resampling.
//!
//! They see tensors as pictures: batch, channels and up to three spatial dimensions with a stride each, whatever
//! the dim order and with or without a batch dimension. The shapes come from [`torchlet_core::rules::window`].

mod backward;
mod convolution;
mod convolve_plain;
mod grid;
pub(crate) mod picture;
pub(crate) mod pool;
mod pool_operators;
mod resample;
mod sample;
#[cfg(test)]
mod tests;

pub use backward::*;
pub use convolution::CONVOLUTION_OUT;
pub use grid::GRID_SAMPLER_2D_OUT;
pub use pool_operators::*;
pub use resample::*;

use torchlet_core::Kernel;

/// The kernels of this family.
pub const KERNELS: &[Kernel] = &[
    CONVOLUTION_OUT,
    CONVOLUTION_BACKWARD_OUT,
    MAX_POOL2D_WITH_INDICES_BACKWARD_GRAD_INPUT,
    AVG_POOL1D_OUT,
    AVG_POOL2D_OUT,
    AVG_POOL3D_OUT,
    MAX_POOL2D_WITH_INDICES_OUT,
    MAX_POOL3D_WITH_INDICES_OUT,
    ADAPTIVE_AVG_POOL2D_OUT,
    ADAPTIVE_AVG_POOL3D_OUT,
    ADAPTIVE_MAX_POOL2D_OUT,
    ADAPTIVE_MAX_POOL3D_OUT,
    GRID_SAMPLER_2D_OUT,
    UPSAMPLE_BICUBIC2D_VEC_OUT,
    UPSAMPLE_BILINEAR2D_AA_OUT,
    UPSAMPLE_BILINEAR2D_VEC_OUT,
    UPSAMPLE_NEAREST2D_VEC_OUT,
];
