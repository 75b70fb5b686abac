//! Resolution of instructions: looks up kernels, checks indices, and marks the values that
//! instructions change.

use super::tables::Tables;
use super::{Instruction, KernelCall, Packed, Prepared};
use crate::arguments::{Arguments, elements};
use crate::call::{Invoke, KnownOverlap};
use crate::error::{InitError, KernelError};
use crate::format::Part;
use crate::format::program_schema::InstructionArgs;
use crate::kernel::Kernel;
use crate::limits::Limit;
use crate::memory::slot::StorageKind;
use crate::meta::to_index;
use crate::param::Param;
use crate::registry::OperatorName;
use crate::runtime_features::{RuntimeFeatures, UNSUPPORTED_BY_IMAGE, has};
use crate::value::{Value, list_index};
use crate::values::{Values, flag};
use core::mem::discriminant;

/// Placeholder invoke function of a call that could not be prepared yet.
fn not_prepared(_: &mut Invoke<'_, '_>) -> Result<(), KernelError> {
    Err(KernelError::unsupported("the kernel was not prepared"))
}

impl<'m> Prepared<'m> {
    /// Resolves operator, delegate and indices of every instruction, and marks the values that
    /// instructions change.
    pub(super) fn resolve_instructions(&mut self) -> Result<(), InitError> {
        let total = self.tables.instructions.len();
        // An argument occupies four bytes of the file.
        let mut arguments_left = self.meta.program.flatbuffer_size() / 4;
        let mut items = 0u64;
        self.count_items(elements(self.meta.plan.outputs()?.bytes()), &mut items)?;
        let mut file = self.meta.instructions()?;
        for index in 0..total {
            let malformed = Part::Instruction.at(index);
            let (chain_start, args) = file.advance()?.ok_or(malformed)?;
            let list = match &args {
                InstructionArgs::Kernel { args, .. } | InstructionArgs::Delegate { args, .. } => {
                    elements(args.bytes())
                }
                _ => &[],
            };
            let left = arguments_left.checked_sub(list.len());
            arguments_left = left.ok_or(Part::Shared.at(index))?;
            self.count_items(list, &mut items)?;
            self.steps = self.steps.saturating_add(list.len() as u64);
            self.resolve_one(index, chain_start, &args, list)?;
        }
        self.steps = self.steps.saturating_add(items);
        Ok(())
    }

    /// Adds the [items](Value::items) of all lists and strings among these values to `items`. Lists
    /// may be used several times, up to a total that is proportional to the file size.
    #[inline(never)]
    fn count_items(&self, args: &[[u8; 4]], items: &mut u64) -> Result<(), InitError> {
        if !has(RuntimeFeatures::NUMERIC_LISTS)
            && !has(RuntimeFeatures::TENSOR_LISTS)
            && !has(RuntimeFeatures::STRINGS)
        {
            return Ok(());
        }
        *items = args.iter().fold(*items, |sum, entry| {
            let value = self.tables.values.value(list_index(*entry));
            let len = value.map_or(0, |value| value.items());
            sum.saturating_add(len as u64)
        });
        if *items > self.meta.program.flatbuffer_size() as u64 {
            return Err(Part::Shared.at(0).into());
        }
        self.options.limits.check(Limit::ListItems, *items)
    }

    fn resolve_one(
        &mut self,
        index: usize,
        chain_start: usize,
        instruction: &InstructionArgs<'m>,
        args: &'m [[u8; 4]],
    ) -> Result<(), InitError> {
        let total = self.tables.instructions.len();
        let fail = |what| InitError::Instruction { index, what };
        let count = self.tables.values.len();
        let out_of_range = || fail("a value index is out of range");
        if args.iter().any(|entry| list_index(*entry) >= count) {
            return Err(out_of_range());
        }
        let value_index = |index: i32| {
            let index = usize::try_from(index).ok().filter(|index| *index < count);
            index.ok_or_else(out_of_range)
        };
        let resolved = match *instruction {
            InstructionArgs::Kernel { operator, .. } => {
                let operator = to_index(operator, Part::Instruction.at(index))?;
                let operator = self.meta.operator(operator)?;
                let kernel = self
                    .find_kernel(&operator, args)
                    .ok_or(fail("no kernel for these dtypes and dim orders"))?;
                // After the declared arguments, files repeat the outputs as return values, which
                // kernels ignore.
                let (expected, found) = (kernel.params.len(), args.len());
                let args = args.get(..expected).ok_or(InitError::Kernel {
                    instruction: index,
                    operator: kernel.name,
                    source: KernelError::argument_count(expected, found),
                })?;
                for (param, entry) in kernel.params.iter().zip(args) {
                    if *param == Param::OutScalar {
                        self.tables.values.mark(list_index(*entry), flag::VARIABLE);
                    } else if param.is_out() {
                        self.mark_written(list_index(*entry))?;
                    }
                }
                Instruction::Kernel(KernelCall {
                    kernel,
                    args,
                    invoke: not_prepared,
                    scratch: 0,
                    packed: Packed::None,
                    dynamic: false,
                    known: KnownOverlap::Unknown,
                })
            }
            InstructionArgs::Delegate { delegate, .. } if has(RuntimeFeatures::DELEGATES) => {
                let delegate = usize::try_from(delegate)
                    .ok()
                    .filter(|delegate| *delegate < self.tables.delegates.len())
                    .ok_or(fail("the delegate index is out of range"))?;
                for entry in args {
                    let value = list_index(*entry);
                    // Only the delegate knows which arguments it writes.
                    if self.tables.values.slot(value).is_none() {
                        self.tables.values.mark(value, flag::VARIABLE);
                    }
                }
                Instruction::Delegate { delegate, args }
            }
            InstructionArgs::Move { from, to } if has(RuntimeFeatures::CONTROL) => {
                let (from, to) = (value_index(from)?, value_index(to)?);
                let values = &mut self.tables.values;
                if !can_move(values, from, to) {
                    return Err(fail("a move between values of different types or dim orders"));
                }
                if values.slot(to).is_none() {
                    values.mark(to, flag::VARIABLE);
                }
                self.mark_written(to)?;
                Instruction::Move { from, to }
            }
            InstructionArgs::JumpFalse { condition, destination }
                if has(RuntimeFeatures::CONTROL) =>
            {
                let destination = usize::try_from(destination)
                    .ok()
                    .and_then(|destination| destination.checked_add(chain_start))
                    .filter(|destination| *destination <= total)
                    .ok_or(fail("the jump target is out of range"))?;
                Instruction::JumpFalse { condition: value_index(condition)?, destination }
            }
            // Nothing to release: unplanned memory belongs to the caller or to another tensor.
            InstructionArgs::Free { value } => {
                value_index(value)?;
                Instruction::Nop
            }
            _ => return Err(fail(UNSUPPORTED_BY_IMAGE)),
        };
        if let Some(slot) = self.tables.instructions.get_mut(index) {
            *slot = resolved;
        }
        Ok(())
    }

    /// Marks a written tensor as state if it has data in the file but is not memory-planned: it is
    /// not a constant. An image without unplanned state rejects the call when it runs.
    fn mark_written(&mut self, index: usize) -> Result<(), InitError> {
        if !has(RuntimeFeatures::UNPLANNED_STATE) {
            return Ok(());
        }
        let Tables { values, .. } = &mut self.tables;
        let items = values.tensor_list(index).into_iter().flatten().map(|item| list_index(*item));
        for index in items.chain([index]) {
            if values.slot(index).is_some() && self.meta.is_constant(index)? {
                values.mark(index, flag::STATE);
            }
        }
        Ok(())
    }

    /// Finds the kernel of an operator for the dtypes and layouts of the arguments.
    fn find_kernel(
        &mut self,
        operator: &OperatorName<'m>,
        args: &'m [[u8; 4]],
    ) -> Option<&'m Kernel> {
        let arguments = Arguments::new(&mut self.tables.values, args, &[]);
        let tensor = |wanted: usize| {
            (0..args.len()).filter_map(|arg| arguments.tensor_argument(arg)).nth(wanted)
        };
        self.registry.find(operator, tensor)
    }

    /// Records which tensor each view refers to, if that is the same in every run: the memory of
    /// the view is then known at load time. If any view refers to different tensors at different
    /// times, all views are resolved at run time, and calls with views check for overlap each time.
    pub(super) fn resolve_views(&mut self) {
        if !has(RuntimeFeatures::VIEWS) {
            return;
        }
        let Tables { values, instructions, .. } = &mut self.tables;
        let pairs = || instructions.iter().filter_map(|instruction| instruction.view());
        let mut fixed = true;
        for (out, input) in pairs() {
            fixed &= record_view(values, out, input);
        }
        if fixed {
            return;
        }
        for (out, _) in pairs() {
            values.mark(out, flag::DYNAMIC_VIEW);
            if let Some(tensor) = values.slot(out).and_then(|slot| values.tensor_mut(slot))
                && let StorageKind::View(_) = tensor.storage_kind()
            {
                tensor.set_view(None);
            }
        }
    }
}

/// Records that the tensor of value `out` is a view of that of `input`. Returns false if `out` is
/// not always a view of the same tensor.
fn record_view(values: &mut Values<'_>, out: usize, input: usize) -> bool {
    let (Some(out_slot), Some(input_slot)) = (values.slot(out), values.slot(input)) else {
        // Preparing the call reports the wrong argument kinds.
        return true;
    };
    let root = match values.tensor(input_slot).map(|tensor| tensor.storage_kind()) {
        Some(StorageKind::View(root)) => root,
        _ => input_slot,
    };
    let storage = values.tensor(out_slot).map(|tensor| tensor.storage_kind());
    let is_fixed = match storage {
        Some(StorageKind::Caller) => !values.has(out, flag::WRITTEN | flag::VIEWED),
        Some(StorageKind::View(other)) => other == root,
        _ => false,
    };
    if !is_fixed || root == out_slot {
        return false;
    }
    if let Some(tensor) = values.tensor_mut(out_slot) {
        tensor.set_view(Some(root));
    }
    values.mark(input, flag::VIEWED);
    true
}

/// Whether a value can be moved to another: a scalar, or a tensor, whose contents are copied.
///
/// ExecuTorch makes the target an alias of the source's memory instead. But exporters plan the
/// branches of one `torch.cond` over those of the next, which would then overwrite the results of
/// the first.
fn can_move(values: &Values<'_>, from: usize, to: usize) -> bool {
    match (values.value(from), values.value(to)) {
        (Some(Value::Tensor(from)), Some(Value::Tensor(to))) => {
            let (Some(from), Some(to)) = (values.tensor(from), values.tensor(to)) else {
                return false;
            };
            from.scalar_type == to.scalar_type
                && from.dim_order().len() == to.dim_order().len()
                && from.has_order(to.dim_order())
        }
        // A moved list could be longer than the one that was counted.
        (Some(from), Some(to)) => !to.is_list() && discriminant(&from) == discriminant(&to),
        _ => false,
    }
}
