//! Discrete Fourier transforms of any length, over several dims.

mod operators;
mod transform;

pub use operators::*;
