//! Preparation of calls: kernels choose their plans for the exported shapes, and overlap of
//! arguments is determined.

use super::tables::Tables;
use super::{Instruction, KernelCall, Packed, Prepared};
use crate::arguments::Arguments;
use crate::call::{KnownOverlap, Prepare};
use crate::error::{InitError, KernelError};
use crate::limits::{Budget, Limit};
use crate::machine::Machine;
use crate::memory::ARENA_ALIGN;
use crate::memory::arena::ArenaSize;
use crate::memory::slot::Data;
use crate::overlap::Overlap;
use crate::runtime_features::{RuntimeFeatures, UNSUPPORTED_BY_IMAGE, has, may_share};
use crate::value::{Value, list_index};
use crate::values::{Roles, Values, flag};

impl<'m> Prepared<'m> {
    /// Checks that the total size of state tensors is within the limit for planned buffers: each is
    /// initialised separately, even if they overlap.
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

    /// Prepares every call, in order, and determines which tensors are state: those that are read
    /// before they are written, including reads of outputs by the caller.
    pub(super) fn prepare_calls(&mut self) -> Result<(), InitError> {
        let (threads, machine) = (self.options.parallel.threads(), self.options.machine);
        let Prepared { tables, options, arena, scratch, steps, .. } = self;
        let Tables { values, instructions, .. } = tables;
        let max_budget = values.len().saturating_mul(SEARCHES_PER_VALUE);
        let mut budget = max_budget;
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
                    mark_state(values, call.args, Roles::Params(call.kernel.params), &mut budget);
                }
                Instruction::Delegate { args, .. } if has(RuntimeFeatures::DELEGATES) => {
                    for entry in args.iter() {
                        mark_delegate_arg(values, list_index(*entry));
                    }
                }
                Instruction::Move { from, to } if has(RuntimeFeatures::CONTROL) => {
                    mark_value(values, *from, false, &mut budget);
                    values.mark(*to, flag::WRITTEN);
                }
                Instruction::JumpFalse { condition, .. } if has(RuntimeFeatures::CONTROL) => {
                    mark_value(values, *condition, false, &mut budget);
                }
                _ => {}
            }
        }
        for output in self.meta.plan.outputs()?.iter() {
            if let Ok(output) = usize::try_from(output?) {
                mark_value(values, output, false, &mut budget);
            }
        }
        *steps = steps.saturating_add((max_budget - budget) as u64);
        Ok(())
    }
}

/// Search budget per value, on average, for written tensors that cover another one. If it is
/// exhausted, a tensor may be treated as state although it is not.
const SEARCHES_PER_VALUE: usize = 256;

/// Number of tensors among the arguments of a call, including those in lists.
fn count_tensors(values: &Values<'_>, args: &[[u8; 4]]) -> u64 {
    args.iter().fold(0u64, |sum, entry| {
        let index = list_index(*entry);
        sum.saturating_add(match values.slot(index) {
            Some(_) => 1,
            None => values.tensor_list(index).map_or(0, |items| items.len() as u64),
        })
    })
}

/// Marks the planned tensors that a call reads before anything wrote them as state, and its outputs
/// as written.
fn mark_state(values: &mut Values<'_>, args: &[[u8; 4]], roles: Roles<'_>, budget: &mut usize) {
    for (arg, entry) in args.iter().enumerate().filter(|(arg, _)| !roles.is_scratch(*arg)) {
        mark_value(values, list_index(*entry), roles.is_out(arg), budget);
    }
}

/// Marks a value, or the tensors in a list, as read or written.
fn mark_value(values: &mut Values<'_>, index: usize, out: bool, budget: &mut usize) {
    match values.tensor_list(index) {
        Some(items) => {
            for item in items {
                mark_access(values, list_index(*item), out, budget);
            }
        }
        None => mark_access(values, index, out, budget),
    }
}

fn mark_access(values: &mut Values<'_>, index: usize, out: bool, budget: &mut usize) {
    let known = flag::WRITTEN | flag::DYNAMIC_VIEW | flag::STATE;
    let mark = match planned_range(values, index) {
        // Heuristic: which arguments a delegate reads is unknown, but results are rarely written
        // twice. If a delegate is the first to access a tensor and a kernel writes it later, the
        // delegate reads it and the kernel updates it for the next run.
        Some(_)
            if has(RuntimeFeatures::DELEGATES)
                && out
                && values.has(index, flag::DELEGATE_FIRST) =>
        {
            flag::WRITTEN | flag::STATE
        }
        _ if out => flag::WRITTEN,
        Some(range) if !values.has(index, known) => {
            match is_covered_by_written(values, index, range, budget) {
                true => flag::WRITTEN,
                false => flag::STATE,
            }
        }
        _ => return,
    };
    values.mark(index, mark);
}

/// Marks an argument of a delegate, or the tensors in it, as written. Records the tensors that no
/// instruction accessed before.
fn mark_delegate_arg(values: &mut Values<'_>, index: usize) {
    for item in values.tensor_list(index).unwrap_or_default() {
        mark_delegate_access(values, list_index(*item));
    }
    mark_delegate_access(values, index);
}

fn mark_delegate_access(values: &mut Values<'_>, index: usize) {
    let known = flag::WRITTEN | flag::DYNAMIC_VIEW | flag::STATE | flag::INTERFACE;
    let given = if values.has(index, known) { 0 } else { flag::DELEGATE_FIRST };
    values.mark(index, flag::WRITTEN | given);
}

/// Buffer, start and end offset of a planned tensor.
fn planned_range(values: &Values<'_>, index: usize) -> Option<(usize, usize, usize)> {
    let tensor = values.tensor(values.slot(index)?)?;
    let Data::Planned { buffer, offset } = tensor.data() else { return None };
    Some((buffer.into(), offset, offset.saturating_add(tensor.capacity())))
}

/// Whether a planned tensor lies inside an input or a written tensor. Exporters elide views and
/// plan the result over the viewed tensor, whose value index is usually slightly lower; the search
/// therefore runs backwards.
fn is_covered_by_written(
    values: &Values<'_>,
    index: usize,
    (buffer, start, end): (usize, usize, usize),
    budget: &mut usize,
) -> bool {
    let count = values.len();
    let mut other = index;
    for _ in 0..count.min(*budget) {
        *budget -= 1;
        other = other.checked_sub(1).unwrap_or(count - 1);
        if values.has(other, flag::WRITTEN)
            && planned_range(values, other)
                .is_some_and(|(found, from, to)| found == buffer && from <= start && end <= to)
        {
            return true;
        }
    }
    false
}

/// Whether scalars or shapes of a call's arguments can change between runs.
fn is_variable(values: &Values<'_>, args: &[[u8; 4]]) -> bool {
    let is_variable = |index: usize| values.has(index, flag::VARIABLE);
    args.iter().any(|entry| {
        let index = list_index(*entry);
        is_variable(index)
            || match values.value(index) {
                Some(Value::IntList(items)) if has(RuntimeFeatures::NUMERIC_LISTS) => items
                    .iter()
                    .any(|item| usize::try_from(i64::from_le_bytes(*item)).is_ok_and(is_variable)),
                Some(Value::TensorList(items, _)) if has(RuntimeFeatures::TENSOR_LISTS) => {
                    items.iter().any(|item| is_variable(list_index(*item)))
                }
                _ => false,
            }
    })
}

/// Prepares a call for the exported shapes. Returns the scratch memory that it needs.
#[inline(never)]
fn prepare_call<'m>(
    values: &mut Values<'m>,
    call: &mut KernelCall<'m>,
    (threads, machine): (usize, Machine),
    arena: &mut ArenaSize,
    steps: &mut u64,
) -> Result<usize, KernelError> {
    let kernel = call.kernel;
    call.dynamic = has(RuntimeFeatures::VARIABLE) && is_variable(values, call.args);
    if kernel.view().is_some() && !has(RuntimeFeatures::VIEWS) {
        return Err(KernelError::unsupported(UNSUPPORTED_BY_IMAGE));
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
                if !has(RuntimeFeatures::PACKING) {
                    return Err(KernelError::unsupported(UNSUPPORTED_BY_IMAGE));
                }
                arena.add_bytes(bytes, ARENA_ALIGN);
                call.packed = Packed::Pending(bytes, pack);
            }
        }
        // The call may work with other shapes and scalars; it is prepared again before it runs.
        Err(error)
            if has(RuntimeFeatures::VARIABLE) && call.dynamic && error.depends_on_values() =>
        {
            call.scratch = prepare.scratch_bound();
        }
        Err(error) => return Err(error),
    }
    analyse_overlap(values, call, steps)
}

/// Determines which arguments of a call overlap. Returns the scratch memory that the call needs,
/// including copies of inputs.
///
/// Separate from `prepare_call`, so that its stack frame is not live while kernels prepare.
#[inline(never)]
fn analyse_overlap<'m>(
    values: &mut Values<'m>,
    call: &mut KernelCall<'m>,
    steps: &mut u64,
) -> Result<usize, KernelError> {
    let kernel = call.kernel;
    if has(RuntimeFeatures::VIEWS) && kernel.view().is_some() {
        return Ok(call.scratch);
    }
    let roles = Roles::Params(kernel.params);
    let arguments = Arguments::new(values, call.args, kernel.params);
    let copies = if has(RuntimeFeatures::VIEWS) && arguments.has_dynamic_view() {
        // Overlap is only known at run time: reserve scratch memory for the worst case.
        arguments.possible_copies(roles)
    } else {
        let overlap: Overlap = arguments.overlap(roles, kernel.in_place())?;
        *steps = steps.saturating_add(overlap.steps);
        if !has(RuntimeFeatures::SHARING) && (overlap.in_place || !overlap.copies.is_empty()) {
            return Err(KernelError::unsupported(UNSUPPORTED_BY_IMAGE));
        }
        call.known = match (overlap.copies.is_empty(), overlap.in_place) {
            (false, _) => KnownOverlap::Unknown,
            (true, true) => KnownOverlap::InPlace,
            (true, false) => KnownOverlap::Disjoint,
        };
        overlap.copies
    };
    if !may_share() {
        return Ok(call.scratch);
    }
    let unaddressable = KernelError::scratch(usize::MAX, usize::MAX);
    arguments.scratch_with_copies(call.scratch, &copies).ok_or(unaddressable)
}
