//! What language models add to PyTorch's operators: attention over caches of keys and values, and
//! recurrences with a state.
//!
//! These are ExecuTorch's own (`llama::`). Where an operator writes to a cache among its arguments,
//! that is declared as an output, and written where it lies; nothing is copied but what is new.

mod cache;
mod delta;
mod flash;
mod operators;

pub use cache::*;
pub use delta::*;
pub use operators::*;

use crate::shape::contiguous;
use torchlet_core::{Arguments, KernelError, TensorInfo};

/// A contiguous argument of four dimensions.
fn four(args: &Arguments, arg: usize) -> Result<TensorInfo, KernelError> {
    let info = args.info(arg)?;
    if info.rank() != 4 {
        return Err(KernelError::rank(arg, info.rank()));
    }
    contiguous(arg, &info)?;
    Ok(info)
}
