//! Preparing calls: kernels decide for the shapes in the file, and what arguments share is found out.

use super::tables::Tables;
use super::{Instruction, KernelCall, Packed, Prepared};
use crate::arguments::Arguments;
use crate::call::{Known, Prepare};
use crate::error::{InitError, KernelError};
use crate::format::flatbuffer::Vector;
use crate::layout::ShapeDynamism;
use crate::limits::{Budget, Limit};
use crate::machine::Machine;
use crate::memory::ARENA_ALIGN;
use crate::memory::arena::Measure;
use crate::overlap::Overlap;
use crate::value::{Data, Home, Value, list_index};
use crate::values::{Roles, Values, flag};

impl<'m> Prepared<'m> {
    /// Checks that state is as much as planned buffers may be: each tensor of it is initialised for itself.
    pub(super) fn state_bytes(&self) -> Result<(), InitError> {
        let Values { values, flags, tensors } = &self.tables.values;
        let mut bytes = Budget::new(&self.options.limits, Limit::PlannedBytes);
        for (value, flags) in values.iter().zip(flags.iter()) {
            if let Value::Tensor(slot) = value
                && flags & flag::STATE != 0
                && let Some(tensor) = tensors.get(*slot as usize)
                && tensor.home == Home::Planned
            {
                bytes.take(tensor.capacity as u64)?;
            }
        }
        Ok(())
    }

    /// Prepares every call, in order, and finds out which tensors are state: those that are read before they are written, if only by
    /// the caller.
    pub(super) fn kernels(&mut self) -> Result<(), InitError> {
        let (threads, machine) = (self.options.parallel.threads(), self.options.machine);
        let Prepared { tables, options, arena, scratch, steps, .. } = self;
        let Tables { values, instructions, .. } = tables;
        let inputs = self.meta.plan.inputs()?;
        let most = steps.saturating_mul(LOOKS);
        let mut looks = most;
        for index in 0..instructions.len() {
            let (earlier, rest) = instructions.split_at_mut(index);
            let Some(instruction) = rest.first_mut() else { break };
            if let Instruction::Kernel(call) = instruction {
                let operator = call.kernel.name;
                options.limits.check(Limit::CallTensors, count_tensors(values, call.args))?;
                let context = (threads, machine);
                let needed = prepare_call(values, call, context, arena, steps)
                    .map_err(|source| InitError::Kernel { instruction: index, operator, source })?;
                *scratch = (*scratch).max(needed);
            }
            let mut history = History { values, earlier, inputs: &inputs, looks: &mut looks };
            instruction.each_access(&mut |value, access| history.note(value, access));
        }
        let outputs = self.meta.plan.outputs()?;
        let earlier: &[_] = instructions;
        let mut history = History { values, earlier, inputs: &inputs, looks: &mut looks };
        for output in outputs.iter() {
            if let Ok(output) = usize::try_from(output?) {
                history.note(output, Access::Read);
            }
        }
        *steps = steps.saturating_add(most.saturating_sub(looks));
        Ok(())
    }
}

/// How often an argument may be looked at, on average, to find out what was written before it is read. Where that does not suffice,
/// a tensor that may be none counts as state.
const LOOKS: u64 = 64;

/// What an instruction does to a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Access {
    Read,
    Write,
}

impl Instruction<'_> {
    /// Tells of each value that the instruction reads or writes.
    fn each_access(&self, note: &mut dyn FnMut(usize, Access)) {
        let access = |is_out| if is_out { Access::Write } else { Access::Read };
        match *self {
            Instruction::Kernel(ref call) => {
                for (param, entry) in call.kernel.params.iter().zip(call.args) {
                    note(list_index(*entry), access(param.is_out()));
                }
            }
            // Only the delegate knows which arguments it writes.
            Instruction::Delegate { args, .. } => {
                args.iter().for_each(|entry| note(list_index(*entry), Access::Write));
            }
            Instruction::Move { from, to } => {
                note(from, Access::Read);
                note(to, Access::Write);
            }
            Instruction::JumpFalse { condition, .. } => note(condition, Access::Read),
            Instruction::Nothing => {}
        }
    }
}

/// What happened before an instruction.
struct History<'h, 'm> {
    values: &'h mut Values<'m>,
    earlier: &'h [Instruction<'m>],
    inputs: &'h Vector<'m, i32>,
    looks: &'h mut u64,
}

impl History<'_, '_> {
    /// Marks what is written, and planned tensors that are read before anything wrote them as state; those in a list, too.
    fn note(&mut self, index: usize, access: Access) {
        match self.values.value(index) {
            Some(Value::TensorList(items, _)) => {
                items.iter().for_each(|item| self.note_one(list_index(*item), access));
            }
            _ => self.note_one(index, access),
        }
    }

    fn note_one(&mut self, index: usize, access: Access) {
        if access == Access::Read {
            let slot = self.values.slot(index).and_then(|slot| self.values.tensor(slot));
            let planned = slot.is_some_and(|tensor| tensor.home == Home::Planned);
            if !planned || self.values.has(index, flag::WRITTEN | flag::FLOATING | flag::STATE) {
                return;
            }
            if !self.was_written(index) {
                return self.values.mark(index, flag::STATE);
            }
        }
        self.values.mark(index, flag::WRITTEN);
    }

    /// Whether an input or what an earlier instruction wrote lies where this planned tensor does: exporters leave out views, and plan
    /// their results over what they are views of.
    fn was_written(&mut self, index: usize) -> bool {
        let values = &*self.values;
        let place = |index| {
            let tensor = values.tensor(values.slot(index)?)?;
            let Data::Planned { buffer, offset } = tensor.data else { return None };
            Some((buffer, offset, offset.saturating_add(tensor.capacity)))
        };
        let Some((buffer, start, end)) = place(index) else { return false };
        let covers = |index| {
            place(index)
                .is_some_and(|(other, from, to)| other == buffer && from <= start && end <= to)
        };
        let covers_any = |looks: &mut u64, index| match values.value(index) {
            Some(Value::TensorList(items, _)) => {
                *looks = looks.saturating_sub(items.len() as u64);
                items.iter().any(|item| covers(list_index(*item)))
            }
            _ => {
                *looks = looks.saturating_sub(1);
                covers(index)
            }
        };
        let looks = &mut *self.looks;
        let mut found = false;
        for instruction in self.earlier.iter().rev() {
            instruction.each_access(&mut |index, access| {
                found |= access == Access::Write && *looks > 0 && covers_any(looks, index);
            });
            *looks = looks.saturating_sub(1);
            if found || *looks == 0 {
                return found;
            }
        }
        let mut inputs = self.inputs.iter().map_while(Result::ok);
        inputs.any(|input| {
            *looks > 0 && usize::try_from(input).is_ok_and(|input| covers_any(looks, input))
        })
    }
}

/// Tensors among the arguments of a call, those in lists included.
fn count_tensors(values: &Values<'_>, args: &[[u8; 4]]) -> u64 {
    args.iter().fold(0u64, |sum, entry| {
        sum.saturating_add(match values.value(list_index(*entry)) {
            Some(Value::Tensor(_)) => 1,
            Some(Value::TensorList(items, _)) => items.len() as u64,
            _ => 0,
        })
    })
}

/// Whether numbers or shapes of a call's arguments can differ from run to run.
fn is_variable(values: &Values<'_>, args: &[[u8; 4]]) -> bool {
    let varies = |index: usize| {
        let slot = values.slot(index).and_then(|slot| values.tensor(slot));
        values.has(index, flag::VARIABLE)
            || slot.is_some_and(|slot| slot.dynamism != ShapeDynamism::Static)
    };
    args.iter().any(|entry| {
        let index = list_index(*entry);
        varies(index)
            || match values.value(index) {
                Some(Value::IntList(items)) => items
                    .iter()
                    .any(|item| usize::try_from(i64::from_le_bytes(*item)).is_ok_and(varies)),
                Some(Value::TensorList(items, _)) => {
                    items.iter().any(|item| varies(list_index(*item)))
                }
                _ => false,
            }
    })
}

/// Prepares one call for the shapes in the file. Returns the scratch memory that it takes.
#[inline(never)]
fn prepare_call<'m>(
    values: &mut Values<'m>,
    call: &mut KernelCall<'m>,
    (threads, machine): (usize, Machine),
    arena: &mut Measure,
    steps: &mut u64,
) -> Result<usize, KernelError> {
    let kernel = call.kernel;
    call.dynamic = is_variable(values, call.args);
    let arguments = Arguments::new(values, call.args, kernel.params);
    arguments.check_kinds()?;
    for (arg, param) in kernel.params.iter().enumerate() {
        if param.is_out() && arguments.is_constant(arg) {
            return Err(KernelError::ReadOnly { arg });
        }
    }
    match (kernel.prepare)(&mut Prepare::new(arguments, false, threads, machine)) {
        Ok(plan) => {
            call.invoke = plan.invoke;
            call.scratch = plan.scratch;
            if let Some((bytes, pack)) = plan.packed {
                arena.bytes(bytes, ARENA_ALIGN);
                call.packed = Packed::Due(bytes, pack);
            }
        }
        // With other shapes and numbers it may work; it is prepared again before it runs.
        Err(error) if call.dynamic && error.depends_on_values() => {}
        Err(error) => return Err(error),
    }
    if kernel.view().is_some() {
        return Ok(call.scratch);
    }
    let roles = Roles::Params(kernel.params);
    let arguments = Arguments::new(values, call.args, kernel.params);
    let copies = if arguments.may_float() {
        // What is shared is known when the call runs: there is room for the worst.
        arguments.possible_copies(roles)
    } else {
        let overlap: Overlap = arguments.overlap(roles, kernel.in_place())?;
        *steps = steps.saturating_add(overlap.steps);
        call.known = match (overlap.copies.is_empty(), overlap.in_place) {
            (false, _) => Known::Nothing,
            (true, true) => Known::InPlace,
            (true, false) => Known::Disjoint,
        };
        overlap.copies
    };
    let unaddressable = KernelError::Scratch { needed: usize::MAX, available: usize::MAX };
    arguments.scratch_with_copies(call.scratch, &copies).ok_or(unaddressable)
}
