//! Method values that are initially `None` and written by instructions.
//!
//! Exporters write `None` for integers that are computed later. The reader of such a value may be
//! in another run than its writer, or may accept `None` as an argument. So the value counts as an
//! integer only if it was certainly written before.

use super::vocabulary::{KernelSemantics, Vocabulary};
use crate::graph::Graph;
use crate::method::{Instruction, Method, MethodValue};
use alloc::collections::BTreeSet;

/// Values that are initially `None` and written later.
#[derive(Debug, Default)]
pub(super) struct Optional {
    /// Values that instructions of graphs set to integers.
    numbers: BTreeSet<usize>,
    /// Values that may become something other than an integer.
    others: BTreeSet<usize>,
}

impl Optional {
    /// Collects the values of a method, given the known graphs of its delegates.
    pub(super) fn of(
        method: &Method<'_>,
        delegates: &[Option<Graph<'_>>],
        vocabulary: &Vocabulary,
    ) -> Self {
        let mut optional = Optional::default();
        optional.others.extend(absent(method, &method.inputs));
        for instruction in &method.instructions {
            let (values, is_known) = results(instruction, delegates, vocabulary);
            let set = if is_known { &mut optional.numbers } else { &mut optional.others };
            set.extend(absent(method, values));
        }
        optional
    }

    /// Whether a value is an integer after it was written.
    pub(super) fn is_number(&self, value: usize) -> bool {
        self.numbers.contains(&value) && !self.others.contains(&value)
    }

    /// Whether the state of each initially absent value that an instruction reads is known.
    pub(super) fn are_known(&self, instruction: &Instruction, set: &Set<'_, '_>) -> bool {
        let read = inputs(instruction, set.delegates, set.vocabulary);
        absent(set.method, read).all(|value| {
            let stays = !self.numbers.contains(&value) && !self.others.contains(&value);
            let is_number = self.is_number(value) && set.before.contains(&value);
            stays || is_number || set.inside.contains(&value)
        })
    }
}

/// Tracks which initially absent values have been written, instruction by instruction.
pub(super) struct Set<'m, 'p> {
    method: &'m Method<'p>,
    delegates: &'m [Option<Graph<'p>>],
    vocabulary: &'m Vocabulary,
    has_jumps: bool,
    /// Values written by the current run.
    inside: BTreeSet<usize>,
    /// Values written by any instruction.
    before: BTreeSet<usize>,
}

impl<'m, 'p> Set<'m, 'p> {
    /// Creates a tracker with no values written.
    pub(super) fn new(
        method: &'m Method<'p>,
        delegates: &'m [Option<Graph<'p>>],
        vocabulary: &'m Vocabulary,
    ) -> Self {
        let has_jumps = method.has_jumps();
        let (inside, before) = (BTreeSet::new(), BTreeSet::new());
        Set { method, delegates, vocabulary, has_jumps, inside, before }
    }

    /// Ends the run before the next instruction.
    pub(super) fn ends_run(&mut self) {
        self.inside.clear();
    }

    /// Records an instruction, as part of a run or on its own.
    pub(super) fn passes(&mut self, instruction: &Instruction, is_inside: bool) {
        let (set, _) = results(instruction, self.delegates, self.vocabulary);
        if is_inside {
            self.inside.extend(absent(self.method, set));
        } else {
            self.ends_run();
        }
        // A jump may have skipped the write.
        if !self.has_jumps {
            self.before.extend(absent(self.method, set));
        }
    }
}

/// Returns those values, list items included, that are initially `None`.
fn absent<'v>(method: &'v Method<'_>, values: &'v [usize]) -> impl Iterator<Item = usize> + 'v {
    let is_absent = |value: &usize| matches!(method.values.get(*value), Some(MethodValue::None));
    values.iter().flat_map(|value| method.with_items(*value)).filter(is_absent)
}

/// Returns the arguments that an instruction may write, and whether it always sets the scalars
/// among them to integers.
fn results<'i>(
    instruction: &'i Instruction,
    delegates: &[Option<Graph<'_>>],
    vocabulary: &Vocabulary,
) -> (&'i [usize], bool) {
    let (args, from, count, is_known) = match instruction {
        Instruction::Kernel { name, overload, args } => match vocabulary.meaning(name, overload) {
            Some(KernelSemantics::Functional { inputs, outputs, .. }) => {
                (args, inputs, outputs, true)
            }
            Some(KernelSemantics::View) => (args, 2, 1, true),
            Some(KernelSemantics::Copy | KernelSemantics::InPlace(..)) => (args, 0, 1, false),
            Some(KernelSemantics::UpdateCache | KernelSemantics::UpdateCacheAt) => {
                (args, 1, 1, false)
            }
            Some(KernelSemantics::UpdateCachesAndAttend) => (args, 3, usize::MAX, false),
            None => (args, vocabulary.first_number(name, overload), usize::MAX, false),
        },
        Instruction::Delegate { delegate, args } => {
            match delegates.get(*delegate).and_then(Option::as_ref) {
                Some(graph) => (args, graph.inputs.len(), graph.outputs.len(), true),
                None => (args, 0, usize::MAX, false),
            }
        }
        Instruction::Move { to, .. } => return (core::slice::from_ref(to), false),
        Instruction::JumpFalse { .. } | Instruction::Free { .. } => return (&[], true),
    };
    let rest = args.get(from..).unwrap_or_default();
    (rest.get(..count).unwrap_or(rest), is_known)
}

/// Returns the arguments that an instruction reads before it writes any.
fn inputs<'i>(
    instruction: &'i Instruction,
    delegates: &[Option<Graph<'_>>],
    vocabulary: &Vocabulary,
) -> &'i [usize] {
    let (args, count) = match instruction {
        Instruction::Kernel { name, overload, args } => (
            args,
            match vocabulary.meaning(name, overload) {
                Some(KernelSemantics::Functional { inputs, .. }) => inputs,
                Some(KernelSemantics::View) => 2,
                Some(
                    KernelSemantics::Copy
                    | KernelSemantics::InPlace(..)
                    | KernelSemantics::UpdateCache
                    | KernelSemantics::UpdateCacheAt
                    | KernelSemantics::UpdateCachesAndAttend,
                )
                | None => usize::MAX,
            },
        ),
        Instruction::Delegate { delegate, args } => {
            let graph = delegates.get(*delegate).and_then(Option::as_ref);
            (args, graph.map_or(usize::MAX, |graph| graph.inputs.len()))
        }
        _ => return &[],
    };
    args.get(..count).unwrap_or(args)
}
