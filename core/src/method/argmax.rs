//! Running a method of one of whose outputs only the places of the largest numbers are wanted.

use super::{Instruction, Method, Progress};
use crate::backend::Delegate;
use crate::call::DelegateCall;
use crate::error::ExecuteError;
use crate::memory::region::Region;
use crate::memory::slot::Data;
use crate::tracer::{Event, EventKind, traced};
use crate::value::{Value, list_index};

/// A call of a delegate that an output comes from.
struct Source<'m> {
    instruction: usize,
    delegate: usize,
    args: &'m [[u8; 4]],
    /// Which of them is the output.
    arg: usize,
}

impl<'m> Method<'m> {
    /// As [`execute`](Self::execute), but of one output only where the largest number in each of
    /// its rows, of the last dimension, is: the first of equals; -1 in a row that has none larger
    /// than minus infinity. What is not a number is none. So a device need not give the output
    /// itself back, and the host need not look at it.
    ///
    /// The answer is how many of `indices` were written, one for each row; what the output has is
    /// of an earlier run then. It is `None` where the output was written instead: since it does not
    /// come from a delegate that [can do it](crate::Delegate::execute_argmax), since the method
    /// reads it again, or since somebody listens who wants to see it.
    ///
    /// # Errors
    /// As [`execute`](Self::execute), or there are more rows than `indices`.
    pub fn execute_argmax(
        &mut self,
        output: usize,
        indices: &mut [i32],
    ) -> Result<Option<usize>, ExecuteError> {
        let tracer = self.options.listener();
        let source = match tracer {
            Some(tracer) if tracer.wants_outputs() => None,
            _ => self.source_of(output),
        };
        let Some(source) = source else { return self.execute().map(|()| None) };
        let Source { instruction, delegate, args, arg } = source;
        let event = Event { kind: EventKind::Execute, name: self.meta.name(), instruction: 0 };
        traced(tracer, &event, || {
            (self.position, self.backward_jumps) = (0, 0);
            let mut found = None;
            loop {
                if self.position == instruction {
                    let fail = |name, source| ExecuteError { instruction, name, source };
                    self.check_runnable().map_err(|source| fail("", source))?;
                    self.position += 1;
                    let run = |delegate: &mut dyn Delegate, call: &mut DelegateCall<'_, '_>| {
                        delegate.execute_argmax(call, arg, indices)
                    };
                    let done = self.delegate(delegate, args, instruction, run);
                    found = done.map_err(|source| fail("delegate", source))?;
                } else if self.step()? == Progress::Ended {
                    return Ok(found);
                }
            }
        })
    }

    /// The call of a delegate that an output comes from, if nothing but the caller sees it then, in
    /// a method without jumps.
    fn source_of(&self, output: usize) -> Option<Source<'m>> {
        let value = self.output_value(output).ok()?;
        let region = self.memory_of(value)?;
        let others = (0..self.output_count()).filter(|other| *other != output);
        // What is given twice, or lies over what is, is seen as another output.
        let is_other = |other: usize| {
            self.output_value(other).is_ok_and(|other| self.touches(other, value, &region))
        };
        if others.into_iter().any(is_other) {
            return None;
        }
        let touches = |entry: &[u8; 4]| self.touches(list_index(*entry), value, &region);
        let mut source = None;
        for (instruction, call) in self.instructions.iter().enumerate().rev() {
            match call {
                Instruction::JumpFalse { .. } => return None,
                // What is before the call that makes it has another use for its memory.
                _ if source.is_some() => {}
                Instruction::Kernel(call) if call.args.iter().any(touches) => return None,
                Instruction::Move { from, to }
                    if [from, to].into_iter().any(|it| self.touches(*it, value, &region)) =>
                {
                    return None;
                }
                Instruction::Delegate { delegate, args } => {
                    let mut touching = args.iter().enumerate().filter(|(_, entry)| touches(entry));
                    let Some((arg, entry)) = touching.next() else { continue };
                    // An argument that is there twice is an input, too.
                    if list_index(*entry) != value || touching.next().is_some() {
                        return None;
                    }
                    source = Some(Source { instruction, delegate: *delegate, args, arg });
                }
                _ => {}
            }
        }
        source
    }

    /// Where a tensor's memory is, if that is known.
    fn memory_of(&self, value: usize) -> Option<Region<'m>> {
        match self.values.data(self.values.slot(value)?)?.1 {
            Data::At(region) => Some(region),
            _ => None,
        }
    }

    /// Whether a value, or one in the list that it is, may lie in this memory of the value `own`.
    fn touches(&self, value: usize, own: usize, region: &Region<'m>) -> bool {
        match self.values.value(value) {
            _ if value == own => true,
            Some(Value::Tensor(_)) => {
                self.memory_of(value).is_none_or(|memory| memory.overlaps(region))
            }
            Some(Value::TensorList(items, _)) => {
                items.iter().any(|item| self.touches_item(list_index(*item), own, region))
            }
            _ => false,
        }
    }

    /// The same of a tensor in a list, in which there are no lists.
    fn touches_item(&self, value: usize, own: usize, region: &Region<'m>) -> bool {
        let is_tensor = self.values.slot(value).is_some();
        value == own
            || (is_tensor && self.memory_of(value).is_none_or(|memory| memory.overlaps(region)))
    }
}
