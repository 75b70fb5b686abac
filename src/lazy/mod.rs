//! Lazy tensors: PyTorch's operators as Rust methods, compiled before they run.
//!
//! ```
//! use torchlet::lazy::{Device, Tensor};
//!
//! let device = Device::cpu();
//! let x = Tensor::from_slice(&[2, 3], &[1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0])?.to(&device)?;
//! let w = Tensor::from_slice(&[3, 2], &[1.0f32, 0.0, 0.0, 1.0, 1.0, 1.0])?.to(&device)?;
//! // Recorded; nothing runs yet.
//! let y = (x.matmul(&w)? * 2.0 + 1.0).relu()?;
//! assert_eq!(y.shape(), [2, 2]);
//! // Compiled, and run.
//! assert_eq!(y.to_vec::<f32>()?, [9.0, 11.0, 21.0, 23.0]);
//! # Ok::<(), torchlet::Error>(())
//! ```
//!
//! - A [`Tensor`] records calls. Shapes and dtypes are inferred, with PyTorch's broadcasting and
//!   dtype promotion. Arguments that do not fit are errors of the call. Operators that a device
//!   lacks, elements such as indices that are out of range, and memory that a program exceeds are
//!   errors of the read.
//! - Reading a tensor compiles the calls that it depends on into one program, with the passes and
//!   fusion of [`Module`](crate::Module), and runs it. Results that other tensors of the caller
//!   need are computed in the same run, and kept.
//! - A [`Device`] keeps programs by their structure: a loop compiles in its first iteration only.
//!   Elements of tensors are inputs; numbers that are passed as arguments are part of the
//!   structure. [`Weights`] are compiled in: packed for the device once per program, not per run.
//! - Elements are in the memory of the host. A run on a GPU copies its inputs there and its results
//!   back.
//! - [`Graph::save`] writes recorded calls as a `.pte` program for any ExecuTorch runtime.
//!
//! Dynamic shapes, random operators, gradients, and operators whose result shapes depend on
//! elements (`nonzero`, masks as indices) are not supported.

mod arg;
mod arithmetic;
mod creation;
mod device;
mod graph;
mod handle;
mod index;
mod methods;
mod node;
mod program;
mod record;
mod results;
mod tensor;
#[cfg(feature = "safetensors")]
mod weights;

pub use arg::Arg;
pub use device::{Device, Stats};
pub use graph::Graph;
pub use index::{At, Index};
pub use tensor::Tensor;
#[cfg(feature = "safetensors")]
pub use weights::Weights;

/// Logs a line through the `log` crate; a no-op without the feature.
fn warn(line: &str) {
    #[cfg(feature = "log")]
    log::warn!("{line}");
    #[cfg(not(feature = "log"))]
    let _ = line;
}
