//! Discrete Fourier transforms, of any length and over several dimensions.

mod operators;
mod transform;

pub use operators::*;
