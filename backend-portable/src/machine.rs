//! Properties of the machine that a call is prepared for.

use crate::compute::simd::Tier;
use torchlet_core::{Machine, Prepare};

/// Instruction set of the machine that a call is prepared for. It determines the layout of packed
/// weights and the scratch size. At run time, it is the instruction set of the running machine.
pub(crate) fn tier(ctx: &Prepare) -> Tier {
    if ctx.machine() == Machine::Here { Tier::detect() } else { Tier::SCALAR }
}
