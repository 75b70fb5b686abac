//! Lowers composite operators, which PyTorch decomposes into others. The rules follow PyTorch's
//! decompositions in meaning, and emit the calls that passes and targets know best.

pub(super) mod attention;
pub(super) mod convolution;
pub(super) mod creation;
pub(super) mod einsum;
pub(super) mod elementwise;
pub(super) mod fourier;
pub(super) mod indexing;
pub(super) mod linear;
pub(super) mod normalization;
pub(super) mod pooling;
pub(super) mod recurrent;
pub(super) mod reduction;
pub(super) mod resize;
pub(super) mod shape;

use super::Rule;
use super::builder::{Builder, Info, Size};
