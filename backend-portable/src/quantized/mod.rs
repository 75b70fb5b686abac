//! Quantized numbers: `value = (number - zero_point) * scale`, with PyTorch's rounding (half to
//! even).
//!
//! The operators are those of `quantized_decomposed`, which quantize and dequantize explicitly
//! around floating-point operators, and read quantized tables of embeddings and weights; and those
//! of [`cortex_m`], which compute with the integers.

mod affine;
pub mod cortex_m;
mod fake;
mod parameters;
mod weights;

pub use affine::*;
pub use fake::*;
pub use parameters::*;
pub use weights::*;
