//! Innermost loops with MVE ("Helium"), the vector extension of Cortex-M55 and similar processors.
//! This module is used where its loops are shorter than those with the DSP extension (`dsp/`),
//! which these processors also have.
//!
//! The compiler has no stable intrinsics for these instructions, and `asm!` has no vector register
//! class for them. Vector registers are therefore named, and both halves of each changed register
//! are declared as clobbered. Widening loads need addresses in the lower registers, and accumulated
//! dot products need even registers, so these are named, too. Loops count elements, and the
//! processor masks those after the last one (`dlstp`, `letp`), so nothing outside is accessed.

mod channels;
mod elementwise;
mod finish;
mod gemm;
mod pool;
mod rows;

pub(super) use channels::{add, eights, spread};
pub(super) use elementwise::{add_quantized, multiply_quantized};
pub(super) use finish::{finish_rows, requantize_per_channel, requantize_uniform};
pub(super) use gemm::{copy, copy_rows, sums};
pub(super) use pool::{TOGETHER, WIDTH, average, largest, max_in_place};
pub(super) use rows::four_rows;
