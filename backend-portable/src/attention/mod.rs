//! ExecuTorch's operators for language models (`llama::`): attention over KV caches, and
//! recurrences with a state.
//!
//! A cache that an operator updates is declared as an output and written in place; only new
//! positions are copied.
//!
//! Programs that the compiler gave several sequences have caches with a slot for each
//! (`torchlet::slots_*`).

mod cache;
mod delta;
mod flash;
mod operators;
mod slots;

pub use cache::*;
pub use delta::*;
pub use operators::*;
pub use slots::*;

use crate::shape::contiguous;
use torchlet_core::{Arguments, KernelError, TensorInfo};

/// Returns the shape of an argument, after checking that it is a contiguous tensor of this rank.
fn contiguous_of_rank(
    args: &Arguments,
    arg: usize,
    rank: usize,
) -> Result<TensorInfo, KernelError> {
    let info = args.info(arg)?;
    if info.rank() != rank {
        return Err(KernelError::rank(arg, info.rank()));
    }
    contiguous(arg, &info)?;
    Ok(info)
}

/// Returns the shape of an argument, after checking that it is a contiguous tensor of rank 4.
fn four(args: &Arguments, arg: usize) -> Result<TensorInfo, KernelError> {
    contiguous_of_rank(args, arg, 4)
}
