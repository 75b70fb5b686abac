//! Preparing calls: kernels decide for the shapes in the file, and what arguments share is found
//! out.

use super::tables::Tables;
use super::{Instruction, KernelCall, Packed, Prepared};
use crate::arguments::Arguments;
use crate::call::{Known, Prepare};
use crate::error::{InitError, KernelError};
use crate::limits::{Budget, Limit};
use crate::machine::Machine;
use crate::memory::ARENA_ALIGN;
use crate::memory::arena::Measure;
use crate::memory::slot::Data;
use crate::overlap::Overlap;
use crate::uses::{OUTSIDE, Uses, has, may_share};
use crate::value::{Value, list_index};
use crate::values::{Roles, Values, flag};

impl<'m> Prepared<'m> {
    /// Checks that state is as much as planned buffers may be: each tensor of it is initialised for
    /// itself.
    pub(super) fn state_bytes(&self) -> Result<(), InitError> {
        let values = &self.tables.values;
        let mut bytes = Budget::new(&self.options.limits, Limit::PlannedBytes);
        for index in 0..values.len() {
            if values.has(index, flag::STATE)
                && let Some(slot) = values.slot(index)
                && let Some(tensor) = values.tensor(slot)
                && tensor.is_planned()
            {
                bytes.take(tensor.capacity() as u64)?;
            }
        }
        Ok(())
    }

    /// Prepares every call, in order, and finds out which tensors are state: those that are read
    /// before they are written, if only by the caller.
    pub(super) fn kernels(&mut self) -> Result<(), InitError> {
        let (threads, machine) = (self.options.parallel.threads(), self.options.machine);
        let Prepared { tables, options, arena, scratch, steps, .. } = self;
        let Tables { values, instructions, .. } = tables;
        let most = values.len().saturating_mul(LOOKS);
        let mut looks = most;
        for (index, instruction) in instructions.iter_mut().enumerate() {
            match instruction {
                Instruction::Kernel(call) => {
                    let operator = call.kernel.name;
                    options.limits.check(Limit::CallTensors, count_tensors(values, call.args))?;
                    let context = (threads, machine);
                    let needed =
                        prepare_call(values, call, context, arena, steps).map_err(|source| {
                            InitError::Kernel { instruction: index, operator, source }
                        })?;
                    *scratch = (*scratch).max(needed);
                    mark_state(values, call.args, Roles::Params(call.kernel.params), &mut looks);
                }
                Instruction::Delegate { args, .. } if has(Uses::DELEGATES) => {
                    for entry in args.iter() {
                        mark_given(values, list_index(*entry));
                    }
                }
                Instruction::Move { from, to } if has(Uses::CONTROL) => {
                    mark_value(values, *from, false, &mut looks);
                    values.mark(*to, flag::WRITTEN);
                }
                Instruction::JumpFalse { condition, .. } if has(Uses::CONTROL) => {
                    mark_value(values, *condition, false, &mut looks);
                }
                _ => {}
            }
        }
        for output in self.meta.plan.outputs()?.iter() {
            if let Ok(output) = usize::try_from(output?) {
                mark_value(values, output, false, &mut looks);
            }
        }
        *steps = steps.saturating_add((most - looks) as u64);
        Ok(())
    }
}

/// How often each value may be looked at, on average, to find out what lies over what was written.
/// Where that does not suffice, a tensor that may be none counts as state.
const LOOKS: usize = 256;

/// Tensors among the arguments of a call, those in lists included.
fn count_tensors(values: &Values<'_>, args: &[[u8; 4]]) -> u64 {
    args.iter().fold(0u64, |sum, entry| {
        let index = list_index(*entry);
        sum.saturating_add(match values.slot(index) {
            Some(_) => 1,
            None => values.tensor_list(index).map_or(0, |items| items.len() as u64),
        })
    })
}

/// Marks planned tensors that a call reads before anything wrote them as state, and what it writes
/// as written.
fn mark_state(values: &mut Values<'_>, args: &[[u8; 4]], roles: Roles<'_>, looks: &mut usize) {
    for (arg, entry) in args.iter().enumerate().filter(|(arg, _)| !roles.is_scratch(*arg)) {
        mark_value(values, list_index(*entry), roles.is_out(arg), looks);
    }
}

/// Marks a value that is read or written, or the tensors in it.
fn mark_value(values: &mut Values<'_>, index: usize, out: bool, looks: &mut usize) {
    match values.tensor_list(index) {
        Some(items) => {
            for item in items {
                mark_access(values, list_index(*item), out, looks);
            }
        }
        None => mark_access(values, index, out, looks),
    }
}

fn mark_access(values: &mut Values<'_>, index: usize, out: bool, looks: &mut usize) {
    let known = flag::WRITTEN | flag::FLOATING | flag::STATE;
    let mark = match place(values, index) {
        // Nobody says what of its arguments a delegate reads, but results are seldom written twice:
        // what a delegate was the first to be given, and a kernel writes, the delegate reads, and
        // the kernel replaces for the next run.
        Some(_) if has(Uses::DELEGATES) && out && values.has(index, flag::GIVEN) => {
            flag::WRITTEN | flag::STATE
        }
        _ if out => flag::WRITTEN,
        Some(place) if !values.has(index, known) => {
            match lies_over_written(values, index, place, looks) {
                true => flag::WRITTEN,
                false => flag::STATE,
            }
        }
        _ => return,
    };
    values.mark(index, mark);
}

/// Marks an argument of a delegate as written, or the tensors in it, and those that nothing was
/// given before it.
fn mark_given(values: &mut Values<'_>, index: usize) {
    for item in values.tensor_list(index).unwrap_or_default() {
        mark_one_given(values, list_index(*item));
    }
    mark_one_given(values, index);
}

fn mark_one_given(values: &mut Values<'_>, index: usize) {
    let known = flag::WRITTEN | flag::FLOATING | flag::STATE | flag::INTERFACE;
    let given = if values.has(index, known) { 0 } else { flag::GIVEN };
    values.mark(index, flag::WRITTEN | given);
}

/// The buffer of a planned tensor, and where it starts and ends there.
fn place(values: &Values<'_>, index: usize) -> Option<(usize, usize, usize)> {
    let tensor = values.tensor(values.slot(index)?)?;
    let Data::Planned { buffer, offset } = tensor.data() else { return None };
    Some((buffer.into(), offset, offset.saturating_add(tensor.capacity())))
}

/// Whether a planned tensor lies where an input does, or something that was written: exporters
/// leave out views, and plan their results over what they are views of, whose values come a little
/// before.
fn lies_over_written(
    values: &Values<'_>,
    index: usize,
    (buffer, start, end): (usize, usize, usize),
    looks: &mut usize,
) -> bool {
    let count = values.len();
    let mut other = index;
    for _ in 0..count.min(*looks) {
        *looks -= 1;
        other = other.checked_sub(1).unwrap_or(count - 1);
        if values.has(other, flag::WRITTEN)
            && place(values, other)
                .is_some_and(|(found, from, to)| found == buffer && from <= start && end <= to)
        {
            return true;
        }
    }
    false
}

/// Whether numbers or shapes of a call's arguments can differ from run to run.
fn is_variable(values: &Values<'_>, args: &[[u8; 4]]) -> bool {
    let varies = |index: usize| values.has(index, flag::VARIABLE);
    args.iter().any(|entry| {
        let index = list_index(*entry);
        varies(index)
            || match values.value(index) {
                Some(Value::IntList(items)) if has(Uses::NUMBER_LISTS) => items
                    .iter()
                    .any(|item| usize::try_from(i64::from_le_bytes(*item)).is_ok_and(varies)),
                Some(Value::TensorList(items, _)) if has(Uses::TENSOR_LISTS) => {
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
    call.dynamic = has(Uses::VARIABLE) && is_variable(values, call.args);
    if kernel.view().is_some() && !has(Uses::VIEWS) {
        return Err(KernelError::unsupported(OUTSIDE));
    }
    let arguments = Arguments::new(values, call.args, kernel.params);
    arguments.check_kinds()?;
    for (arg, param) in kernel.params.iter().enumerate() {
        if param.is_out() && arguments.is_constant(arg) {
            return Err(KernelError::read_only(arg));
        }
    }
    let mut prepare = Prepare::new(arguments, false, threads, machine);
    match (kernel.prepare)(&mut prepare) {
        Ok(plan) => {
            call.invoke = plan.invoke;
            call.scratch = plan.scratch;
            if let Some((bytes, pack)) = plan.packed {
                if !has(Uses::PACKING) {
                    return Err(KernelError::unsupported(OUTSIDE));
                }
                arena.bytes(bytes, ARENA_ALIGN);
                call.packed = Packed::Due(bytes, pack);
            }
        }
        // With other shapes and numbers it may work; it is prepared again before it runs.
        Err(error) if has(Uses::VARIABLE) && call.dynamic && error.depends_on_values() => {
            call.scratch = prepare.scratch_bound();
        }
        Err(error) => return Err(error),
    }
    shared_memory(values, call, steps)
}

/// Finds out what the arguments of a call share. Returns the scratch memory that it takes, with
/// copies of inputs in it.
///
/// It is apart from what prepares the call, so that kernels have the stack that this takes.
#[inline(never)]
fn shared_memory<'m>(
    values: &mut Values<'m>,
    call: &mut KernelCall<'m>,
    steps: &mut u64,
) -> Result<usize, KernelError> {
    let kernel = call.kernel;
    if has(Uses::VIEWS) && kernel.view().is_some() {
        return Ok(call.scratch);
    }
    let roles = Roles::Params(kernel.params);
    let arguments = Arguments::new(values, call.args, kernel.params);
    let copies = if has(Uses::VIEWS) && arguments.may_float() {
        // What is shared is known when the call runs: there is room for the worst.
        arguments.possible_copies(roles)
    } else {
        let overlap: Overlap = arguments.overlap(roles, kernel.in_place())?;
        *steps = steps.saturating_add(overlap.steps);
        if !has(Uses::SHARING) && (overlap.in_place || !overlap.copies.is_empty()) {
            return Err(KernelError::unsupported(OUTSIDE));
        }
        call.known = match (overlap.copies.is_empty(), overlap.in_place) {
            (false, _) => Known::Nothing,
            (true, true) => Known::InPlace,
            (true, false) => Known::Disjoint,
        };
        overlap.copies
    };
    if !may_share() {
        return Ok(call.scratch);
    }
    let unaddressable = KernelError::scratch(usize::MAX, usize::MAX);
    arguments.scratch_with_copies(call.scratch, &copies).ok_or(unaddressable)
}
