//! The numbers that calls have in graphs: those of their instructions, and behind them those of the
//! calls in delegates.

use crate::graph::Graph;
use crate::method::{Instruction, Method};
use alloc::vec::Vec;

/// What of an exported program a call comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct CallOrigin {
    /// The instruction; of a call in a delegate, that of the delegate's call.
    pub instruction: usize,
    /// The number that the exporter gave a call in a delegate.
    pub part: Option<u32>,
}

impl CallOrigin {
    /// An instruction.
    pub(crate) fn of(instruction: usize) -> Self {
        CallOrigin { instruction, part: None }
    }
}

/// The calls in a method's delegates, by the instruction and the exporter's number. Their numbers
/// follow those of the instructions, in this order.
#[derive(Debug)]
pub(crate) struct Origins {
    instructions: usize,
    calls: Vec<(usize, u32)>,
}

impl Origins {
    /// Those of a method with these graphs in place of its delegates.
    pub(crate) fn of(method: &Method<'_>, delegates: &[Option<Graph<'_>>]) -> Self {
        let mut calls = Vec::new();
        for (index, instruction) in method.instructions.iter().enumerate() {
            let Instruction::Delegate { delegate, .. } = instruction else { continue };
            let Some(Some(graph)) = delegates.get(*delegate) else { continue };
            calls.extend(graph.nodes.iter().map(|node| (index, node.id)));
        }
        calls.sort_unstable();
        calls.dedup();
        Origins { instructions: method.instructions.len(), calls }
    }

    /// The number of a call in the delegate that an instruction calls.
    pub(crate) fn number(&self, instruction: u32, part: u32) -> u32 {
        let index = usize::try_from(instruction).unwrap_or(usize::MAX);
        match self.calls.binary_search(&(index, part)) {
            Ok(place) => u32::try_from(self.instructions + place).unwrap_or(u32::MAX),
            Err(_) => instruction,
        }
    }

    /// What each number stands for, where these are what the instructions stand for.
    pub(crate) fn behind(
        &self,
        mut instructions: Vec<Option<CallOrigin>>,
    ) -> Vec<Option<CallOrigin>> {
        for (index, part) in &self.calls {
            let call = instructions.get(*index).copied().flatten();
            instructions.push(call.map(|call| CallOrigin { part: Some(*part), ..call }));
        }
        instructions
    }
}
