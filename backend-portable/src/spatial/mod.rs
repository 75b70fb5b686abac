//! Operators over space: convolutions, poolings, resampling.
//!
//! They see tensors as [`Picture`]s: batch, channels and up to three spatial dimensions with a stride each, whatever
//! the dim order and with or without a batch dimension. The shapes come from [`torchlet_core::rules::window`].

mod convolution;
mod convolve_plain;
mod picture;
mod pool;
mod pool_operators;

pub use convolution::CONVOLUTION_OUT;
pub use pool_operators::*;

use torchlet_core::Kernel;

/// The kernels of this family.
pub const KERNELS: &[Kernel] = &[
    CONVOLUTION_OUT,
    AVG_POOL1D_OUT,
    AVG_POOL2D_OUT,
    AVG_POOL3D_OUT,
    MAX_POOL2D_WITH_INDICES_OUT,
    MAX_POOL3D_WITH_INDICES_OUT,
    ADAPTIVE_AVG_POOL2D_OUT,
    ADAPTIVE_AVG_POOL3D_OUT,
    ADAPTIVE_MAX_POOL2D_OUT,
    ADAPTIVE_MAX_POOL3D_OUT,
];
