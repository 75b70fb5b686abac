//! Preparing calls: kernels decide for the shapes in the file, and what arguments share is found out.

use super::tables::Tables;
use super::{Instruction, KernelCall, Packed, Prepared};
use crate::arguments::Arguments;
use crate::call::{Known, Prepare};
use crate::error::{InitError, KernelError};
use crate::layout::ShapeDynamism;
use crate::limits::{Budget, Limit};
use crate::machine::Machine;
use crate::memory::ARENA_ALIGN;
use crate::memory::arena::Measure;
use crate::overlap::Overlap;
use crate::value::{Home, Value, list_index};
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
        let moved = largest_moved(values, instructions);
        for (index, instruction) in instructions.iter_mut().enumerate() {
            match instruction {
                Instruction::Kernel(call) => {
                    let operator = call.kernel.name;
                    options.limits.check(Limit::CallTensors, count_tensors(values, call.args))?;
                    let context = (threads, machine);
                    let needed = prepare_call(values, call, context, moved, arena, steps).map_err(
                        |source| InitError::Kernel { instruction: index, operator, source },
                    )?;
                    *scratch = (*scratch).max(needed);
                    mark_state(values, call.args, Roles::Params(call.kernel.params));
                }
                Instruction::Delegate { args, .. } => mark_state(values, args, Roles::From(0)),
                Instruction::Move { from, to } | Instruction::Copy { from, to, .. } => {
                    mark_value(values, *from, false);
                    values.mark(*to, flag::WRITTEN);
                }
                Instruction::JumpFalse { condition, .. } => mark_value(values, *condition, false),
                Instruction::Nothing => {}
            }
        }
        for output in self.meta.plan.outputs()?.iter() {
            if let Ok(output) = usize::try_from(output?) {
                mark_value(values, output, false);
            }
        }
        Ok(())
    }
}

/// Bytes of the largest tensor that is moved onto a smaller one.
fn largest_moved(values: &Values<'_>, instructions: &[Instruction<'_>]) -> usize {
    let capacity =
        |index| values.slot(index).and_then(|slot| values.tensor(slot)).map(|t| t.capacity);
    let moves = instructions.iter().filter_map(|instruction| match *instruction {
        Instruction::Move { from, to } => capacity(from).filter(|from| Some(*from) > capacity(to)),
        _ => None,
    });
    moves.max().unwrap_or(0)
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

/// Marks planned tensors that a call reads before anything wrote them as state, and what it writes as written.
fn mark_state(values: &mut Values<'_>, args: &[[u8; 4]], roles: Roles<'_>) {
    for (arg, entry) in args.iter().enumerate() {
        mark_value(values, list_index(*entry), roles.is_out(arg));
    }
}

/// Marks a value that is read or written, or the tensors in it.
fn mark_value(values: &mut Values<'_>, index: usize, out: bool) {
    match values.value(index) {
        Some(Value::TensorList(items, _)) => {
            for item in items {
                mark_access(values, list_index(*item), out);
            }
        }
        _ => mark_access(values, index, out),
    }
}

fn mark_access(values: &mut Values<'_>, index: usize, out: bool) {
    if out {
        values.mark(index, flag::WRITTEN);
    } else if !values.has(index, flag::WRITTEN | flag::MOVED)
        && let Some(slot) = values.slot(index)
        && values.tensor(slot).is_some_and(|tensor| tensor.home == Home::Planned)
    {
        values.mark(index, flag::STATE);
    }
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
    moved: usize,
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
    let copies = if arguments.may_move() {
        // What is shared is known when the call runs: there is room for the worst.
        arguments.possible_copies(roles, moved)
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
    arguments.scratch_with_copies(call.scratch, &copies, moved).ok_or(unaddressable)
}
