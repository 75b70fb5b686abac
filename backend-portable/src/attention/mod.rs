//! ExecuTorch's operators for language models (`llama::`): attention over KV caches, and
//! recurrences with a state.
//!
//! A cache that an operator updates is declared as an output and written in place; only new
//! positions are copied.

mod cache;
mod delta;
mod flash;
mod operators;

pub use cache::*;
pub use delta::*;
pub use operators::*;

use crate::shape::contiguous;
use torchlet_core::{Arguments, KernelError, TensorInfo};

/// Returns the shape of an argument, after checking that it is a contiguous tensor of rank 4.
fn four(args: &Arguments, arg: usize) -> Result<TensorInfo, KernelError> {
    let info = args.info(arg)?;
    if info.rank() != 4 {
        return Err(KernelError::rank(arg, info.rank()));
    }
    contiguous(arg, &info)?;
    Ok(info)
}
