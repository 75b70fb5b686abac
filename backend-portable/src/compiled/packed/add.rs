//! Addition.

use super::{Channel, kernels};
use crate::compiled::{Span, int8, int8_mut, parts};

/// Bits by which operands are shifted to the left before they are scaled.
pub const HEADROOM: u32 = 20;

/// Addition of quantized tensors of the same shape and memory order. The scale of the first operand
/// is a half, that of the operand with the larger scale.
#[derive(Debug)]
pub struct AddPacked {
    /// Offsets added to the operands (the negated zero points), at most 128.
    pub zeros: [i32; 2],
    /// Scale of the second operand.
    pub scale: Channel,
    /// Scale of the sum.
    pub result: Channel,
    /// Offset of the results.
    pub zero: i32,
    /// Operands, disjoint or the same.
    pub inputs: [Span; 2],
    /// Output.
    pub out: Span,
}

impl AddPacked {
    /// Runs the call.
    pub fn run(&self, memory: &mut [u8]) {
        let [a, b] = self.inputs;
        if a == b {
            let Some([a, out]) = parts(memory, [a, self.out]) else { return };
            kernels::add(self, [int8(a), int8(a)], int8_mut(out));
        } else {
            let Some([a, b, out]) = parts(memory, [a, b, self.out]) else { return };
            kernels::add(self, [int8(a), int8(b)], int8_mut(out));
        }
    }
}
