//! The target of a GEMV's rows in memory, and their rotation.

use super::quantized::Weighted;
use crate::tensors::Operand;
use torchlet_shaders::RotaryPush;

/// The forms of rotation, with the values that shaders use.
pub(super) const NEIGHBOURS: u32 = 0;
pub(super) const HALVES: u32 = 1;
pub(super) const COMBINED: u32 = 2;
const NONE: u32 = 3;

/// The target of a GEMV's rows, and the rotation to apply to them.
pub(super) struct Placing<'p> {
    /// The form of rotation, and the cosines and sines; `None` if rows are not rotated.
    pub(super) rotation: Option<(u32, [&'p Operand; 2])>,
    /// The push constants of the rotation shader, which also describe the target.
    pub(super) push: RotaryPush,
    pub(super) out: &'p Operand,
}

impl Placing<'_> {
    pub(super) fn form(&self) -> u32 {
        self.rotation.map_or(NONE, |(form, _)| form)
    }

    pub(super) fn angles(&self) -> Option<[&Operand; 2]> {
        self.rotation.map(|(_, angles)| angles)
    }

    /// Whether the two elements of a rotated pair are half a head apart.
    pub(super) fn in_pairs(&self) -> bool {
        self.form() == HALVES
    }

    /// Whether the GEMV kernel supports this target and rotation for the result of `it`.
    pub(super) fn fits(&self, it: &Weighted) -> bool {
        let push = &self.push;
        let [row, positions] = [push.heads.checked_mul(push.depth), Some(push.positions)]
            .map(|count| count.map_or(0, |count| count as usize));
        let by_four =
            [push.depth, push.rotated, push.out_start].iter().all(|it| it.is_multiple_of(4));
        let rotates = self.rotation.is_none_or(|(form, angles)| {
            angles.iter().all(|angle| angle.element.is_floating())
                && (form != HALVES || (push.rotated == push.depth && push.depth.is_multiple_of(8)))
        });
        row == it.n
            && positions > 0
            && it.m.is_multiple_of(positions)
            && (push.out_batch.is_multiple_of(4) || it.m == positions)
            && by_four
            && rotates
            && self.out.element.is_floating()
    }
}
