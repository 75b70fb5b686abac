//! Discrete Fourier transforms of any length, over several dimensions.

mod operators;
mod transform;

pub use operators::*;
