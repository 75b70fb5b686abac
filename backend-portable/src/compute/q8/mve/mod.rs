//! The innermost loops in the vector instructions of Cortex-M55 and its like (MVE, "Helium"), where
//! they are shorter than those of the DSP extension (`dsp/`), which such processors have, too.
//!
//! As there, the compiler has no stable names for the instructions, and no registers for vectors
//! among operands of `asm!`: vectors are named, and the halves of those that change are declared as
//! clobbered. Loads that widen take addresses from the lower registers, and sums of products go to
//! registers of even numbers: these are named, too. Loops count elements, and the processor masks
//! what is behind the last one (`dlstp`, `letp`), so that nothing is read or written outside.

mod channels;
mod elementwise;
mod finish;
mod pool;
mod product;
mod rows;

pub(super) use channels::{add, eights, spread};
pub(super) use elementwise::{add_codes, multiply_codes};
pub(super) use finish::{finish_alike, finish_each, finish_rows};
pub(super) use pool::{TOGETHER, WIDTH, average, keep_larger, largest};
pub(super) use product::{copy, copy_rows, sums};
pub(super) use rows::four_rows;
