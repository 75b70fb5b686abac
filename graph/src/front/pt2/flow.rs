//! Jumps and copies between the calls of a graph, from which a method is made.
//!
//! The calls of subgraphs become calls of the one graph. [`Event`]s are jumps and copies between
//! calls: several branches write the same outputs, which calls of a graph cannot express. Calls and
//! events are numbered together, so that passes keep their order.

use crate::emit::Emitter;
use crate::error::Error;
use crate::graph::{Graph, Node, ValueId};
use crate::method::Instruction;
use crate::operators::Operator;
use alloc::borrow::ToOwned;
use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;

/// Jump target.
pub(super) type Label = usize;

/// What happens between calls.
pub(super) enum Event {
    Label(Label),
    Jump(Label),
    /// Jumps if a boolean is false.
    JumpFalse {
        condition: ValueId,
        to: Label,
    },
    /// Ends the run with an error if a boolean is false.
    Assert {
        condition: ValueId,
        message: ValueId,
    },
    Copy {
        from: ValueId,
        to: ValueId,
        /// An absent argument of the copy.
        none: ValueId,
    },
    /// Copies a tensor to an index of the first dim of another.
    Store {
        from: ValueId,
        to: ValueId,
        index: ValueId,
    },
    /// Jumps if a counter has reached a number.
    JumpAtEnd {
        counter: ValueId,
        count: ValueId,
        to: Label,
    },
    /// Increments a counter.
    Count(ValueId),
}

/// The events of a program, in order, with their numbers.
#[derive(Default)]
pub(super) struct Flow {
    events: Vec<(u32, Event)>,
    labels: usize,
}

impl Flow {
    /// Adds an event with a number between those of calls.
    pub(super) fn add(&mut self, number: u32, event: Event) {
        self.events.push((number, event));
    }

    /// Returns a new label.
    pub(super) fn label(&mut self) -> Label {
        self.labels += 1;
        self.labels
    }

    /// The values that events write.
    pub(super) fn written(&self) -> impl Iterator<Item = ValueId> + '_ {
        self.events.iter().filter_map(|(_, event)| match event {
            Event::Copy { to, .. } | Event::Store { to, .. } => Some(*to),
            _ => None,
        })
    }

    /// The values that events read.
    pub(super) fn read(&self) -> impl Iterator<Item = ValueId> + '_ {
        self.events.iter().flat_map(|(_, event)| match event {
            Event::JumpFalse { condition, .. } | Event::Assert { condition, .. } => {
                vec![*condition]
            }
            Event::Copy { from, .. } | Event::Store { from, .. } => vec![*from],
            Event::JumpAtEnd { count, .. } => vec![*count],
            Event::Label(_) | Event::Jump(_) | Event::Count(_) => Vec::new(),
        })
    }

    /// Emits the calls of a graph and the events between them.
    ///
    /// # Errors
    /// A method cannot represent a value.
    pub(super) fn emit<'p>(
        &self,
        emitter: &mut Emitter<'_, 'p>,
        graph: &Graph<'p>,
    ) -> Result<(), Error> {
        let mut labels = BTreeMap::new();
        let mut jumps = Vec::new();
        let mut events = self.events.iter().peekable();
        for node in &graph.nodes {
            while let Some((_, event)) = events.next_if(|(number, _)| *number < node.id) {
                emit(event, emitter, graph, &mut labels, &mut jumps)?;
            }
            emitter.emit(graph, node)?;
        }
        for (_, event) in events {
            emit(event, emitter, graph, &mut labels, &mut jumps)?;
        }
        for (at, label) in jumps {
            let to = labels.get(&label).copied();
            emitter.jump_to(at, to.ok_or_else(|| Error::invalid("a jump without a destination"))?);
        }
        Ok(())
    }
}

/// Emits an event. `labels` are the instructions at labels so far; `jumps` are the instructions
/// that jump to labels.
fn emit<'p>(
    event: &Event,
    emitter: &mut Emitter<'_, 'p>,
    graph: &Graph<'p>,
    labels: &mut BTreeMap<Label, usize>,
    jumps: &mut Vec<(usize, Label)>,
) -> Result<(), Error> {
    let mut jump_false = |emitter: &mut Emitter<'_, 'p>, condition: usize, label: Label| {
        jumps.push((emitter.len(), label));
        emitter.push(Instruction::JumpFalse { condition, destination: 0 });
    };
    match event {
        Event::Label(label) => {
            labels.insert(*label, emitter.len());
        }
        Event::Jump(label) => {
            let never = emitter.truth(false);
            jump_false(emitter, never, *label);
        }
        Event::JumpFalse { condition, to } => {
            let condition = emitter.value(graph, *condition)?;
            jump_false(emitter, condition, *to);
        }
        Event::Assert { condition, message } => {
            let (name, overload) = match graph.tensor(*condition) {
                Some(_) => ("aten::_assert_async", "msg"),
                None => ("aten::_assert_scalar", ""),
            };
            let args = [*condition, *message].map(|id| emitter.value(graph, id));
            let [condition, message] = args;
            kernel(emitter, name, overload, vec![condition?, message?]);
        }
        Event::Copy { from, to, none } if graph.tensor(*to).is_some() => {
            // The shape of the target varies only if the program says so.
            emitter.value(graph, *to)?;
            emitter.emit(graph, &Node::new(Operator::CLONE, vec![*from, *none, *to]))?;
        }
        Event::Copy { from, to, .. } => {
            let (from, to) = (emitter.value(graph, *from)?, emitter.value(graph, *to)?);
            emitter.push(Instruction::Move { from, to });
        }
        Event::Store { from, to, index } => {
            let args = [*to, *from, *index].map(|id| emitter.value(graph, id));
            let [to, from, index] = args;
            kernel(emitter, "executorch_prim::et_copy_index", "tensor", vec![to?, from?, index?]);
        }
        Event::JumpAtEnd { counter, count, to } => {
            let (counter, count) = (emitter.value(graph, *counter)?, emitter.value(graph, *count)?);
            let goes_on = emitter.truth(false);
            kernel(emitter, "executorch_prim::lt", "Scalar", vec![counter, count, goes_on]);
            jump_false(emitter, goes_on, *to);
        }
        Event::Count(counter) => {
            let (counter, one) = (emitter.value(graph, *counter)?, emitter.integer(1));
            kernel(emitter, "executorch_prim::add", "Scalar", vec![counter, one, counter]);
        }
    }
    Ok(())
}

fn kernel(emitter: &mut Emitter<'_, '_>, name: &str, overload: &str, args: Vec<usize>) {
    let (name, overload) = (name.to_owned(), overload.to_owned());
    emitter.push(Instruction::Kernel { name, overload, args });
}
