//! What a machine has, for preparing calls.

use crate::compute::simd::Tier;
use torchlet_core::{Machine, Prepare};

/// The instruction set of the machine that a call is prepared for. What is packed and how much
/// scratch memory is asked for follows from it; when the call runs, it is that of this machine.
pub(crate) fn tier(ctx: &Prepare) -> Tier {
    if ctx.machine() == Machine::Here { Tier::detect() } else { Tier::SCALAR }
}
