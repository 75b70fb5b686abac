//! Lowers composite operators, which PyTorch decomposes into others. The rules follow PyTorch's
//! decompositions in meaning, and emit the calls that passes and targets know best.

pub(super) mod arrangement;
pub(super) mod attention;
pub(super) mod convolution;
pub(super) mod creation;
pub(super) mod diagonal;
pub(super) mod einsum;
pub(super) mod elementwise;
pub(super) mod factorization;
pub(super) mod fourier;
pub(super) mod indexing;
pub(super) mod linear;
pub(super) mod loss;
pub(super) mod matrices;
pub(super) mod normalization;
pub(super) mod pooling;
pub(super) mod recurrent;
pub(super) mod reduction;
pub(super) mod resize;
pub(super) mod sampling;
pub(super) mod shape;
pub(super) mod signal;
pub(super) mod special;
pub(super) mod statistics;

use super::Rule;
use super::builder::{Builder, Info, Size};
