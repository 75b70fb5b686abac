//! Quantized operators: `value = (quantized - zero_point) * scale`, with PyTorch's rounding (half
//! to even).
//!
//! The `quantized_decomposed` operators quantize and dequantize explicitly around floating-point
//! operators, and read quantized embedding tables and weights. The [`cortex_m`] operators compute
//! in integers.

pub(crate) mod affine;
pub mod cortex_m;
mod fake;
mod parameters;
mod weights;

pub use affine::*;
pub use fake::*;
pub use parameters::*;
pub use weights::*;
