//! Basic blocks of a method, and a backward search over its control flow.

use crate::method::{Instruction, Method};
use alloc::collections::BTreeSet;
use alloc::vec;
use alloc::vec::Vec;

/// Basic blocks of a method: maximal sequences of instructions without jumps into or out of them.
/// The last block is empty and marks the end of the method, where outputs are read.
pub(crate) struct Blocks {
    /// First instruction of each block, in order.
    leaders: Vec<usize>,
    /// Predecessors of each block.
    before: Vec<Vec<usize>>,
    /// Remaining steps of all searches. A malicious file could require a quadratic number.
    steps: usize,
}

/// Limit on the number of steps for one method. No exported program comes close.
const MAX_STEPS: usize = 1 << 24;

impl Blocks {
    pub(crate) fn of(method: &Method<'_>) -> Self {
        let mut leaders = BTreeSet::from([0, method.instructions.len()]);
        let mut jumps = Vec::new();
        for (at, instruction) in method.instructions.iter().enumerate() {
            if let Instruction::JumpFalse { destination, .. } = instruction {
                leaders.extend([at + 1, *destination]);
                jumps.push((at, *destination));
            }
        }
        let leaders: Vec<usize> = leaders.into_iter().collect();
        let follows = |at: usize| at.checked_sub(1).into_iter().collect();
        let before = (0..leaders.len()).map(follows).collect();
        let mut blocks = Blocks { leaders, before, steps: MAX_STEPS };
        for (at, destination) in jumps {
            let [from, to] = [at, destination].map(|at| blocks.of_instruction(at));
            if let Some(before) = blocks.before.get_mut(to) {
                before.push(from);
            }
        }
        blocks
    }

    /// Returns the block of an instruction.
    pub(crate) fn of_instruction(&self, at: usize) -> usize {
        self.leaders.partition_point(|leader| *leader <= at).saturating_sub(1)
    }

    /// Returns the block at the end of the method.
    pub(crate) fn end(&self) -> usize {
        self.leaders.len().saturating_sub(1)
    }

    /// Visits the predecessors of a block, and continues with the predecessors of each block for
    /// which `is_open` returns true. Returns whether the search reached the start of the method.
    /// With `again`, the search continues from there at the end of the previous run. Returns `None`
    /// if the step limit is exceeded.
    pub(crate) fn search_back(
        &mut self,
        block: usize,
        again: bool,
        mut is_open: impl FnMut(usize) -> bool,
    ) -> Option<bool> {
        let (mut seen, mut next) = (BTreeSet::new(), vec![block]);
        let mut reaches_start = false;
        let end = self.end();
        while let Some(at) = next.pop() {
            reaches_start |= at == 0;
            let previous_run = (again && at == 0).then_some(end);
            let before = self.before.get(at).into_iter().flatten().copied();
            for before in before.chain(previous_run) {
                self.steps = self.steps.checked_sub(1)?;
                if is_open(before) && seen.insert(before) {
                    next.push(before);
                }
            }
        }
        Some(reaches_start)
    }
}
