//! Values that start as nothing, and are set by instructions.
//!
//! Exporters write nothing where a number is to be. What reads such a value may be in another run
//! than what sets it, and may also be an instruction that takes nothing for an answer: it is a
//! number only where it surely was set before.

use super::vocabulary::{Meaning, Vocabulary};
use crate::graph::Graph;
use crate::method::{Instruction, Method, MethodValue};
use alloc::collections::BTreeSet;

/// Values that start as nothing and that something sets.
#[derive(Debug, Default)]
pub(super) struct Optional {
    /// Those that instructions of graphs set, to an integer.
    numbers: BTreeSet<usize>,
    /// Those that can be something else.
    others: BTreeSet<usize>,
}

impl Optional {
    /// Those of a method, of whose delegates these graphs are known.
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

    /// Whether a value is a number once it was set.
    pub(super) fn is_number(&self, value: usize) -> bool {
        self.numbers.contains(&value) && !self.others.contains(&value)
    }

    /// Whether it is known of each value that started as nothing what an instruction finds it to
    /// be.
    pub(super) fn are_known(&self, instruction: &Instruction, set: &Set<'_, '_>) -> bool {
        let read = inputs(instruction, set.delegates, set.vocabulary);
        absent(set.method, read).all(|value| {
            let stays = !self.numbers.contains(&value) && !self.others.contains(&value);
            let is_number = self.is_number(value) && set.before.contains(&value);
            stays || is_number || set.inside.contains(&value)
        })
    }
}

/// The values that started as nothing and have been set, from instruction to instruction.
pub(super) struct Set<'m, 'p> {
    method: &'m Method<'p>,
    delegates: &'m [Option<Graph<'p>>],
    vocabulary: &'m Vocabulary,
    has_jumps: bool,
    /// By the present run.
    inside: BTreeSet<usize>,
    /// By any instruction.
    before: BTreeSet<usize>,
}

impl<'m, 'p> Set<'m, 'p> {
    /// None yet.
    pub(super) fn new(
        method: &'m Method<'p>,
        delegates: &'m [Option<Graph<'p>>],
        vocabulary: &'m Vocabulary,
    ) -> Self {
        let has_jumps = method.has_jumps();
        let (inside, before) = (BTreeSet::new(), BTreeSet::new());
        Set { method, delegates, vocabulary, has_jumps, inside, before }
    }

    /// The run ends in front of the next instruction.
    pub(super) fn ends_run(&mut self) {
        self.inside.clear();
    }

    /// An instruction has run, as part of a run or on its own.
    pub(super) fn passes(&mut self, instruction: &Instruction, is_inside: bool) {
        let (set, _) = results(instruction, self.delegates, self.vocabulary);
        if is_inside {
            self.inside.extend(absent(self.method, set));
        } else {
            self.ends_run();
        }
        // What jumps pass by may not have been set.
        if !self.has_jumps {
            self.before.extend(absent(self.method, set));
        }
    }
}

/// The values of these that start as nothing.
fn absent<'v>(method: &'v Method<'_>, values: &'v [usize]) -> impl Iterator<Item = usize> + 'v {
    let is_absent = |value: &usize| matches!(method.values.get(*value), Some(MethodValue::None));
    values.iter().flat_map(|value| method.with_items(*value)).filter(is_absent)
}

/// The arguments of an instruction that it may set, and whether it sets numbers among them to
/// integers whenever it runs.
fn results<'i>(
    instruction: &'i Instruction,
    delegates: &[Option<Graph<'_>>],
    vocabulary: &Vocabulary,
) -> (&'i [usize], bool) {
    let (args, from, count, is_known) = match instruction {
        Instruction::Kernel { name, overload, args } => match vocabulary.meaning(name, overload) {
            Some(Meaning::Functional { inputs, outputs, .. }) => (args, inputs, outputs, true),
            Some(Meaning::View) => (args, 2, 1, true),
            Some(Meaning::Copy | Meaning::InPlace(..)) => (args, 0, 1, false),
            Some(Meaning::UpdateCache | Meaning::UpdateCacheAt) => (args, 1, 1, false),
            Some(Meaning::UpdateCachesAndAttend) => (args, 3, usize::MAX, false),
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

/// The arguments of an instruction that it reads before it sets any.
fn inputs<'i>(
    instruction: &'i Instruction,
    delegates: &[Option<Graph<'_>>],
    vocabulary: &Vocabulary,
) -> &'i [usize] {
    let (args, count) = match instruction {
        Instruction::Kernel { name, overload, args } => (
            args,
            match vocabulary.meaning(name, overload) {
                Some(Meaning::Functional { inputs, .. }) => inputs,
                Some(Meaning::View) => 2,
                Some(
                    Meaning::Copy
                    | Meaning::InPlace(..)
                    | Meaning::UpdateCache
                    | Meaning::UpdateCacheAt
                    | Meaning::UpdateCachesAndAttend,
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
