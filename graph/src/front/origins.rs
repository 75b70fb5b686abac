//! The numbers that calls have in graphs: those of their instructions, and behind them those of the calls in delegates.

use crate::graph::Graph;
use crate::method::{Instruction, Method};
use alloc::collections::BTreeMap;
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

/// The numbers of the calls in a method's delegates, by the instruction and the exporter's number. Instructions have their own.
#[derive(Debug, Clone, Default)]
pub(crate) struct Origins(BTreeMap<(usize, u32), u32>);

impl Origins {
    /// Those of a method with these graphs in place of its delegates.
    pub(crate) fn of(method: &Method<'_>, delegates: &[Option<Graph<'_>>]) -> Self {
        let mut numbers = BTreeMap::new();
        for (index, instruction) in method.instructions.iter().enumerate() {
            let Instruction::Delegate { delegate, .. } = instruction else { continue };
            let Some(Some(graph)) = delegates.get(*delegate) else { continue };
            for node in &graph.nodes {
                let next = method.instructions.len() + numbers.len();
                let next = u32::try_from(next).unwrap_or(u32::MAX);
                numbers.entry((index, node.id)).or_insert(next);
            }
        }
        Origins(numbers)
    }

    /// The number of a call in the delegate that an instruction calls.
    pub(crate) fn number(&self, instruction: u32, part: u32) -> u32 {
        let found = usize::try_from(instruction).ok().and_then(|it| self.0.get(&(it, part)));
        found.copied().unwrap_or(instruction)
    }

    /// What each number stands for, where these are what the instructions stand for.
    pub(crate) fn behind(
        self,
        mut instructions: Vec<Option<CallOrigin>>,
    ) -> Vec<Option<CallOrigin>> {
        let mut parts: Vec<(u32, Option<CallOrigin>)> = Vec::with_capacity(self.0.len());
        for ((index, part), number) in self.0 {
            let call = instructions.get(index).copied().flatten();
            parts.push((number, call.map(|call| CallOrigin { part: Some(part), ..call })));
        }
        parts.sort_unstable_by_key(|(number, _)| *number);
        instructions.extend(parts.into_iter().map(|(_, origin)| origin));
        instructions
    }
}
