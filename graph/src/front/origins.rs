//! Node ids of calls in graphs: ids of instructions first, then ids of the calls inside delegates.

use crate::graph::Graph;
use crate::method::{Instruction, Method};
use alloc::vec::Vec;

/// Origin of a call in the exported program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct CallOrigin {
    /// Index of the instruction; for a call in a delegate, of the instruction that calls the
    /// delegate.
    pub instruction: usize,
    /// Id that the exporter gave to the call inside the delegate; `None` for an instruction.
    pub part: Option<u32>,
}

impl CallOrigin {
    /// Origin of an instruction.
    pub(crate) fn of(instruction: usize) -> Self {
        CallOrigin { instruction, part: None }
    }
}

/// Calls in a method's delegates, by instruction index and exporter's id. The node ids of these
/// calls follow the node ids of the instructions, in this order.
#[derive(Debug)]
pub(crate) struct Origins {
    instructions: usize,
    calls: Vec<(usize, u32)>,
}

impl Origins {
    /// Collects the calls of a method, given the graphs of its delegates.
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

    /// Returns the node id of a call in the delegate that an instruction calls.
    pub(crate) fn number(&self, instruction: u32, part: u32) -> u32 {
        let index = usize::try_from(instruction).unwrap_or(usize::MAX);
        match self.calls.binary_search(&(index, part)) {
            Ok(place) => u32::try_from(self.instructions + place).unwrap_or(u32::MAX),
            Err(_) => instruction,
        }
    }

    /// Appends the origins of delegate calls to the origins of the instructions.
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
