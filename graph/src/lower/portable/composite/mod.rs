//! Lowers composite operators, which PyTorch decomposes into others. The rules follow PyTorch's
//! decompositions in meaning, and emit the calls that passes and targets know best.
//!
//! Most exporters decompose these operators. Rules that only programs of PyTorch's own export and
//! lazy tensors need are left out of firmware.

#[cfg(any(feature = "pt2", feature = "lazy"))]
pub(super) mod arrangement;
pub(super) mod attention;
pub(super) mod convolution;
pub(super) mod creation;
#[cfg(any(feature = "pt2", feature = "lazy"))]
pub(super) mod diagonal;
pub(super) mod einsum;
pub(super) mod elementwise;
#[cfg(any(feature = "pt2", feature = "lazy"))]
pub(super) mod factorization;
pub(super) mod fourier;
pub(super) mod indexing;
pub(super) mod linear;
#[cfg(any(feature = "pt2", feature = "lazy"))]
pub(super) mod loss;
#[cfg(any(feature = "pt2", feature = "lazy"))]
pub(super) mod matrices;
pub(super) mod normalization;
pub(super) mod pooling;
pub(super) mod recurrent;
pub(super) mod reduction;
pub(super) mod resize;
#[cfg(any(feature = "pt2", feature = "lazy"))]
pub(super) mod sampling;
pub(super) mod shape;
#[cfg(any(feature = "pt2", feature = "lazy"))]
pub(super) mod signal;
#[cfg(any(feature = "pt2", feature = "lazy"))]
pub(super) mod special;
#[cfg(any(feature = "pt2", feature = "lazy"))]
pub(super) mod statistics;

use super::Rule;
use super::builder::{Builder, Info, Size};
