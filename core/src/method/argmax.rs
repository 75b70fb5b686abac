//! Running a method with argmax over one of its outputs.

use super::{Instruction, Method, Progress};
use crate::backend::Delegate;
use crate::call::DelegateCall;
use crate::error::ExecuteError;
use crate::memory::region::Region;
use crate::memory::slot::Data;
use crate::tracer::{Event, EventKind, traced};
use crate::value::{Value, list_index};

/// The delegate call that produces an output.
struct ProducingCall<'m> {
    instruction: usize,
    delegate: usize,
    args: &'m [[u8; 4]],
    /// Argument index of the output.
    arg: usize,
}

impl<'m> Method<'m> {
    /// Like [`execute`](Self::execute), but computes only the argmax of one output over its last
    /// dim. The device then need not return the output itself, and the host need not read it.
    ///
    /// Each row yields the index of its first maximum. NaN is ignored; a row without a value above
    /// minus infinity yields -1.
    ///
    /// Returns the number of rows, each with an entry in `indices`; the output itself keeps its
    /// contents from an earlier run. Returns `None` if the output was written instead, because
    ///
    /// - it is not produced by a delegate that [supports argmax](crate::Delegate::execute_argmax),
    /// - the method reads it again, or
    /// - a tracer wants to see it.
    ///
    /// # Errors
    /// As [`execute`](Self::execute), or the output has more rows than `indices`.
    pub fn execute_argmax(
        &mut self,
        output: usize,
        indices: &mut [i32],
    ) -> Result<Option<usize>, ExecuteError> {
        let tracer = self.options.run_tracer();
        let producer = match tracer {
            Some(tracer) if tracer.wants_outputs() => None,
            _ => self.producer_of(output),
        };
        let Some(producer) = producer else { return self.execute().map(|()| None) };
        let ProducingCall { instruction, delegate, args, arg } = producer;
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

    /// The delegate call that produces an output, if afterwards only the caller reads the output
    /// and the method has no jumps.
    fn producer_of(&self, output: usize) -> Option<ProducingCall<'m>> {
        let value = self.output_value(output).ok()?;
        let region = self.memory_of(value)?;
        let others = (0..self.output_count()).filter(|other| *other != output);
        // Whether another output depends on the elements of this one, because it is the same value
        // or overlaps its memory.
        let is_other = |other: usize| {
            self.output_value(other).is_ok_and(|other| self.touches(other, value, &region))
        };
        if others.into_iter().any(is_other) {
            return None;
        }
        let touches = |entry: &[u8; 4]| self.touches(list_index(*entry), value, &region);
        let mut producer = None;
        for (instruction, call) in self.instructions.iter().enumerate().rev() {
            match call {
                Instruction::JumpFalse { .. } => return None,
                // An earlier instruction that touches the memory uses it for another value.
                _ if producer.is_some() => {}
                Instruction::Kernel(call) if call.args.iter().any(touches) => return None,
                Instruction::Move { from, to }
                    if [from, to].into_iter().any(|it| self.touches(*it, value, &region)) =>
                {
                    return None;
                }
                Instruction::Delegate { delegate, args } => {
                    let mut touching = args.iter().enumerate().filter(|(_, entry)| touches(entry));
                    let Some((arg, entry)) = touching.next() else { continue };
                    // The argument occurs twice, so it is also an input.
                    if list_index(*entry) != value || touching.next().is_some() {
                        return None;
                    }
                    producer = Some(ProducingCall { instruction, delegate: *delegate, args, arg });
                }
                _ => {}
            }
        }
        producer
    }

    /// Memory of a tensor, if known.
    fn memory_of(&self, value: usize) -> Option<Region<'m>> {
        match self.values.data(self.values.slot(value)?)?.1 {
            Data::At(region) => Some(region),
            _ => None,
        }
    }

    /// Whether a value, or an item of a list, may overlap `region`, which is the memory of value
    /// `own`.
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

    /// Like [`touches`](Self::touches), for a tensor in a list. Lists are not nested.
    fn touches_item(&self, value: usize, own: usize, region: &Region<'m>) -> bool {
        let is_tensor = self.values.slot(value).is_some();
        value == own
            || (is_tensor && self.memory_of(value).is_none_or(|memory| memory.overlaps(region)))
    }
}
