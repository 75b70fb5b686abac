//! Loading: from the file's description to resolved instructions.

use super::{DEFAULT_JUMP_LIMIT, Instruction, KernelCall, LoadOptions, Method, MethodMemory};
use crate::arguments::elements;
use crate::backend::{InitContext, Processed};
use crate::call::{Invoke, Prepare, Resources};
use crate::error::{InitError, KernelError, MemoryKind};
use crate::format::flatbuffer::Malformed;
use crate::format::program_schema::{EValue, InstructionArgs};
use crate::kernel::{Kernel, Param, Plan};
use crate::layout::{ShapeDynamism, same_layout};
use crate::memory::ARENA_ALIGN;
use crate::memory::arena::{Arena, Exhausted};
use crate::memory::region::Region;
use crate::meta::{MethodMeta, to_index};
use crate::place::{Place, locate, must_copy};
use crate::registry::Registry;
use crate::tracer::{Event, EventKind, traced};
use crate::value::{TensorSlot, Value, list_index};
use crate::values::{Roles, Values};

/// An error of a step that takes arena memory.
enum Step<'m> {
    Exhausted(Exhausted),
    Other(InitError<'m>),
}

impl From<Exhausted> for Step<'_> {
    fn from(exhausted: Exhausted) -> Self {
        Step::Exhausted(exhausted)
    }
}
impl<'m, E: Into<InitError<'m>>> From<E> for Step<'m> {
    fn from(error: E) -> Self {
        Step::Other(error.into())
    }
}

/// What is known of a value while loading: whether instructions or the caller change it.
const VARIABLE: u8 = 1;

impl<'m> Method<'m> {
    pub(crate) fn load(
        meta: &MethodMeta<'m>,
        registry: &'m Registry<'m>,
        memory: MethodMemory<'m, '_>,
        options: LoadOptions<'m>,
    ) -> Result<Self, InitError<'m>> {
        let event = Event { kind: EventKind::Load, name: meta.name(), instruction: 0 };
        traced(options.tracer, &event, || {
            crate::platform::debug!("loading method {}", meta.name());
            let missing = meta.missing(registry);
            if !missing.is_empty() {
                return Err(InitError::Missing(missing));
            }
            let available = memory.arena.len();
            let (memory, fallback, available) = match Self::build(meta, registry, memory, options) {
                Ok(method) => return Ok(method),
                Err(Step::Exhausted(exhausted)) => (MemoryKind::Arena, exhausted.needed, available),
                Err(Step::Other(InitError::MemoryTooSmall {
                    memory: MemoryKind::Scratch,
                    needed,
                    available,
                })) => (MemoryKind::Scratch, needed, available),
                Err(Step::Other(error)) => return Err(error),
            };
            // Name the whole need, not that of the step that failed.
            let needs = meta.memory_needs(registry, options.data, options.parallel.threads());
            let needed = needs.map_or(fallback, |needs| match memory {
                MemoryKind::Scratch => needs.scratch,
                _ => needs.arena,
            });
            Err(InitError::MemoryTooSmall { memory, needed, available })
        })
    }

    fn build(
        meta: &MethodMeta<'m>,
        registry: &'m Registry<'m>,
        memory: MethodMemory<'m, '_>,
        options: LoadOptions<'m>,
    ) -> Result<Self, Step<'m>> {
        meta.check_unfolded()?;
        let misaligned = |memory| InitError::MemoryMisaligned { memory };
        let mut arena = Arena::new(memory.arena).ok_or_else(|| misaligned(MemoryKind::Arena))?;
        let planned = planned_regions(meta, memory.planned, &mut arena)?;
        if !memory.scratch.is_empty() && !memory.scratch.as_ptr().addr().is_multiple_of(ARENA_ALIGN)
        {
            return Err(misaligned(MemoryKind::Scratch).into());
        }

        let file_values = meta.plan.values()?;
        let mut tensor_count = 0u32;
        let values = arena.slice(file_values.len(), |index| {
            decode_value(meta, index, &mut tensor_count).map_err(Step::from)
        })?;
        let flags = arena.slice::<u8, Step<'m>>(file_values.len(), |_| Ok(0))?;
        let tensors = build_tensors(meta, tensor_count as usize, &mut arena)?;

        // The method exists from here on, so that an error drops the delegates that were made.
        let instructions = arena
            .slice::<Instruction<'m>, Step<'m>>(meta.instruction_count(), |_| {
                Ok(Instruction::Free { value: 0 })
            })?;
        let delegates = arena.slice::<_, Step<'m>>(meta.delegate_count(), |_| Ok(None))?;
        let mut method = Method {
            meta: *meta,
            values: Values { values, tensors },
            instructions: &[],
            delegates,
            planned,
            scratch: Region::writable(memory.scratch),
            options,
            position: 0,
            backward_jumps: 0,
            jump_limit: DEFAULT_JUMP_LIMIT,
        };
        method.init_delegates(registry, &mut arena)?;
        method.place_tensors(Some(&mut arena))?;
        method.check_interface(flags)?;
        let fixed = method.resolve(registry, instructions, flags)?;
        for (index, instruction) in instructions.iter_mut().enumerate() {
            if let Instruction::Kernel(call) = instruction {
                method
                    .prepare_kernel(call, flags, fixed, &mut arena)
                    .map_err(|error| error.of_instruction(index, call.kernel))?;
            }
        }
        method.instructions = instructions;
        crate::platform::debug!("method arena: {} bytes used", arena.used());
        Ok(method)
    }

    fn init_delegates(
        &mut self,
        registry: &'m Registry<'m>,
        arena: &mut Arena<'m>,
    ) -> Result<(), Step<'m>> {
        for index in 0..self.delegates.len() {
            let info = self.meta.delegate(index, self.options.data)?;
            let backend_name = info.backend;
            let wrap = |source| InitError::Delegate { index, backend: backend_name, source };
            let backend = registry
                .backend(backend_name)
                .ok_or_else(|| InitError::Missing(self.meta.missing(registry)))?;
            backend.is_available().map_err(wrap)?;
            let bytes = backend.arena_bytes(&info).map_err(wrap)?;
            let own = arena.bytes(bytes, ARENA_ALIGN)?;
            let mut own = Arena::new(own).ok_or(InitError::TooLarge)?;
            let processed = match info.processed.lend() {
                Some(bytes) => Processed::Lent(bytes),
                None => {
                    let needed = info.processed.size();
                    let available = self.scratch.len();
                    let region = self.scratch.part(0, needed).ok_or(InitError::MemoryTooSmall {
                        memory: MemoryKind::Scratch,
                        needed,
                        available,
                    })?;
                    // SAFETY: nothing runs while the method is loaded, so the scratch memory is not in use;
                    // the reference ends before this function uses it again.
                    let bytes = unsafe { region.bytes_mut() }.unwrap_or_default();
                    info.processed.read(0, bytes)?;
                    Processed::Temporary(bytes)
                }
            };
            let event =
                Event { kind: EventKind::DelegateInit, name: backend_name, instruction: index };
            let mut context = InitContext {
                info,
                processed,
                arena: &mut own,
                options: self.options.backend_options,
                parallel: self.options.parallel,
                tracer: self.options.tracer,
            };
            let delegate =
                traced(self.options.tracer, &event, || backend.init(&mut context)).map_err(wrap)?;
            if let Some(slot) = self.delegates.get_mut(index) {
                *slot = Some(delegate);
            }
        }
        Ok(())
    }

    /// Gives tensors their places and initial data. With an arena, constants are placed too: at load, not
    /// when the method is reset.
    fn place_tensors(&mut self, mut arena: Option<&mut Arena<'m>>) -> Result<(), Step<'m>> {
        for region in self.planned {
            // SAFETY: no call is running (`&mut self`), so no reference to planned memory exists.
            if let Some(bytes) = unsafe { region.bytes_mut() } {
                bytes.fill(0);
            }
        }
        let mut slot = 0u32;
        for (index, value) in self.meta.plan.values()?.iter().enumerate() {
            let EValue::Tensor(tensor) = value?.value()? else { continue };
            let place = locate(&self.meta.program, self.options.data, &tensor)
                .map_err(|error| error.at(&tensor, index))?;
            let range =
                InitError::Value { index, what: "its place in planned memory is out of range" };
            let Some(target) = self.values.tensor_mut(slot) else { return Err(range.into()) };
            slot += 1;
            match (place, arena.as_deref_mut()) {
                (Place::Constant(blob, info), Some(arena)) => {
                    target.constant = true;
                    target.data = Some(if must_copy(&blob, &info) {
                        let copy = arena.bytes(info.nbytes(), ARENA_ALIGN)?;
                        blob.read(0, copy)?;
                        Region::read_only(copy)
                    } else {
                        Region::read_only(blob.lend().unwrap_or_default())
                    });
                }
                (Place::Planned { buffer, offset, initial, info }, _) => {
                    let Some(region) = self
                        .planned
                        .get(buffer)
                        .and_then(|planned| planned.part(offset, target.capacity))
                    else {
                        return Err(range.into());
                    };
                    if !region.addr().is_multiple_of(info.scalar_type.size().min(8)) {
                        let what = "its place in planned memory is not aligned for its type";
                        return Err(InitError::Value { index, what }.into());
                    }
                    target.data = Some(region);
                    if let Some(blob) = initial {
                        // SAFETY: no call is running (`&mut self`), and this is the only reference to planned
                        // memory in this function.
                        let bytes = unsafe { region.bytes_mut() }.unwrap_or_default();
                        let stored = info.nbytes();
                        blob.read(0, bytes.get_mut(..stored).unwrap_or_default())?;
                    }
                }
                // State that the caller bound memory to starts from zero again.
                (Place::Unplanned, None) => {
                    let state = crate::meta::tensor_name(&tensor)?.is_some();
                    // SAFETY: no call is running (`&mut self`), so no reference to tensor data exists.
                    let bytes =
                        target.data.filter(|_| state).and_then(|data| unsafe { data.bytes_mut() });
                    if let Some(bytes) = bytes {
                        bytes.fill(0);
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Checks the indices of inputs and outputs, and marks numbers that the caller can set.
    fn check_interface(&self, flags: &mut [u8]) -> Result<(), Step<'m>> {
        for index in self.meta.plan.inputs()?.iter() {
            let index = to_index(index?, "input index")?;
            let value = self.values.value(index);
            let flag =
                flags.get_mut(index).ok_or(Malformed { what: "input index", offset: index })?;
            if !matches!(value, Some(Value::Tensor(_))) {
                *flag |= VARIABLE;
            }
        }
        for index in self.meta.plan.outputs()?.iter() {
            let index = to_index(index?, "output index")?;
            if index >= flags.len() {
                return Err(Malformed { what: "output index", offset: index }.into());
            }
        }
        Ok(())
    }

    /// Resolves every instruction's operator, delegate and indices, and marks the values that instructions
    /// change. Returns whether no tensor ever changes its place.
    fn resolve(
        &self,
        registry: &'m Registry<'m>,
        instructions: &mut [Instruction<'m>],
        flags: &mut [u8],
    ) -> Result<bool, Step<'m>> {
        let total = instructions.len();
        let mut fixed = true;
        let mut file = self.meta.instructions()?;
        for (index, slot) in instructions.iter_mut().enumerate() {
            let malformed = Malformed { what: "instruction", offset: index };
            let (chain_start, args) = file.next().ok_or(malformed)??;
            let fail = |what| InitError::Instruction { index, what };
            let value_index = |index: i32| -> Result<usize, InitError<'m>> {
                usize::try_from(index)
                    .ok()
                    .filter(|index| self.values.value(*index).is_some())
                    .ok_or(fail("a value index is out of range"))
            };
            *slot = match args {
                InstructionArgs::Kernel { operator, args } => {
                    let operator = self.meta.operator(to_index(operator, "operator index")?)?;
                    let kernel =
                        self.meta.find_kernel(registry, operator, args)?.ok_or_else(|| {
                            fail("no kernel is registered for these types and layouts")
                        })?;
                    let args: &'m [[u8; 4]] = elements(args.bytes());
                    for (arg, entry) in args.iter().enumerate() {
                        let value = value_index(list_index(*entry))?;
                        let written = kernel.params.get(arg) == Some(&Param::OutScalar);
                        if written && let Some(flag) = flags.get_mut(value) {
                            *flag |= VARIABLE;
                        }
                    }
                    fixed &= !kernel.aliases;
                    let invoke = not_prepared;
                    let (packed, dynamic, disjoint) = (None, false, false);
                    Instruction::Kernel(KernelCall {
                        kernel,
                        args,
                        invoke,
                        packed,
                        dynamic,
                        disjoint,
                    })
                }
                InstructionArgs::Delegate { delegate, args } => {
                    let delegate = usize::try_from(delegate)
                        .ok()
                        .filter(|delegate| *delegate < self.delegates.len())
                        .ok_or(fail("the delegate's index is out of range"))?;
                    let args: &'m [[u8; 4]] = elements(args.bytes());
                    for entry in args {
                        let value = value_index(list_index(*entry))?;
                        // Only the delegate knows which arguments it writes.
                        if !matches!(self.values.value(value), Some(Value::Tensor(_)))
                            && let Some(flag) = flags.get_mut(value)
                        {
                            *flag |= VARIABLE;
                        }
                    }
                    Instruction::Delegate { delegate, args }
                }
                InstructionArgs::Move { from, to } => {
                    let (from, to) = (value_index(from)?, value_index(to)?);
                    fixed &= !matches!(self.values.value(from), Some(Value::Tensor(_)));
                    let varies = self
                        .check_move(from, to)
                        .ok_or(fail("it moves a value onto one of another kind"))?;
                    if varies && let Some(flag) = flags.get_mut(to) {
                        *flag |= VARIABLE;
                    }
                    Instruction::Move { from, to }
                }
                InstructionArgs::JumpFalse { condition, destination } => {
                    let destination = usize::try_from(destination)
                        .ok()
                        .and_then(|destination| destination.checked_add(chain_start))
                        .filter(|destination| *destination <= total)
                        .ok_or(fail("the jump's destination is out of range"))?;
                    Instruction::JumpFalse { condition: value_index(condition)?, destination }
                }
                InstructionArgs::Free { value } => Instruction::Free { value: value_index(value)? },
            };
        }
        Ok(fixed)
    }

    /// Whether a value may be moved onto another; if so, whether that makes the target's shape vary.
    fn check_move(&self, from: usize, to: usize) -> Option<bool> {
        let (from, to) = (self.values.value(from)?, self.values.value(to)?);
        match (from, to) {
            (Value::Tensor(from), Value::Tensor(to)) => {
                let (from, to) = (self.values.tensor(from)?, self.values.tensor(to)?);
                let compatible = from.scalar_type == to.scalar_type
                    && from.sizes.len() == to.sizes.len()
                    && (from.dim_order == to.dim_order
                        || same_layout(from.sizes, from.dim_order, to.dim_order));
                compatible.then(|| {
                    from.sizes != to.sizes
                        || from.dim_order != to.dim_order
                        || from.dynamism != ShapeDynamism::Static
                })
            }
            (from, to) => (from.type_name() == to.type_name()).then_some(true),
        }
    }

    fn is_variable(&self, args: &[[u8; 4]], flags: &[u8]) -> bool {
        let varies = |index: i64| {
            let index = usize::try_from(index).unwrap_or(usize::MAX);
            let flagged = flags.get(index).is_some_and(|flag| flag & VARIABLE != 0);
            let slot = self.values.slot(index).and_then(|slot| self.values.tensor(slot));
            flagged || slot.is_some_and(|slot| slot.dynamism != ShapeDynamism::Static)
        };
        args.iter().any(|entry| {
            let index = i64::from(list_index(*entry));
            let value = usize::try_from(index).ok().and_then(|index| self.values.value(index));
            varies(index)
                || match value {
                    Some(Value::IntList(items)) => {
                        items.iter().any(|item| varies(i64::from_le_bytes(*item)))
                    }
                    Some(Value::TensorList(items, _)) => {
                        items.iter().any(|item| varies(list_index(*item).into()))
                    }
                    _ => false,
                }
        })
    }

    fn prepare_kernel(
        &mut self,
        call: &mut KernelCall<'m>,
        flags: &[u8],
        fixed: bool,
        arena: &mut Arena<'m>,
    ) -> Result<(), KernelStep<'m>> {
        call.dynamic = self.is_variable(call.args, flags);
        let threads = self.options.parallel.threads();
        // The bounds in the file decide what is packed and how much scratch there must be, as they did when
        // the needs were computed; the loaded values are the same ones at this point.
        let arguments = Self::arguments(&mut self.values, call);
        arguments.check_kinds()?;
        let plan = (call.kernel.prepare)(&mut Prepare::new(arguments, false, threads));
        let plan: Plan = match plan {
            Ok(plan) => plan,
            // With other shapes and numbers it may work; it is prepared again before it runs.
            Err(error) if call.dynamic && error.depends_on_values() => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        call.invoke = plan.invoke;
        let arguments = Self::arguments(&mut self.values, call);
        let shared = arguments.shared_inputs(Roles::Params(call.kernel.params));
        // Where tensors change their places, what is shared is looked for at each call instead.
        let shared = if fixed { shared? } else { shared.unwrap_or_default() };
        let needed = arguments.scratch_with_copies(plan.scratch, &shared).unwrap_or(usize::MAX);
        let available = self.scratch.len();
        if needed > available {
            return Err(KernelStep::Scratch { needed, available });
        }
        call.disjoint = fixed && shared.is_empty();
        if let Some((bytes, pack)) = plan.packed {
            let packed = arena.bytes(bytes, ARENA_ALIGN)?;
            packed.fill(0);
            let resources =
                Resources { scratch: self.scratch, packed: None, parallel: self.options.parallel };
            let (args, disjoint) = (call.args, call.disjoint);
            let mut invoke = Invoke::new(&mut self.values, args, call.kernel, disjoint, resources)?;
            pack(&mut invoke, packed)?;
            call.packed = Some(Region::read_only(packed));
        }
        Ok(())
    }
}

/// An error while preparing a kernel.
enum KernelStep<'m> {
    Kernel(KernelError),
    Scratch { needed: usize, available: usize },
    Step(Step<'m>),
}

impl From<KernelError> for KernelStep<'_> {
    fn from(error: KernelError) -> Self {
        KernelStep::Kernel(error)
    }
}
impl From<Exhausted> for KernelStep<'_> {
    fn from(exhausted: Exhausted) -> Self {
        KernelStep::Step(Step::Exhausted(exhausted))
    }
}

impl<'m> KernelStep<'m> {
    fn of_instruction(self, instruction: usize, kernel: &'m Kernel) -> Step<'m> {
        Step::Other(match self {
            KernelStep::Kernel(source) => {
                InitError::Kernel { instruction, operator: kernel.name, source }
            }
            KernelStep::Scratch { needed, available } => {
                InitError::MemoryTooSmall { memory: MemoryKind::Scratch, needed, available }
            }
            KernelStep::Step(step) => return step,
        })
    }
}

/// Stands in for the invoke function of a call that could not be prepared yet.
fn not_prepared(_: &mut Invoke<'_, '_>) -> Result<(), KernelError> {
    Err(KernelError::Unsupported { what: "the kernel was not prepared" })
}

fn planned_regions<'m>(
    meta: &MethodMeta<'m>,
    buffers: &mut [&'m mut [u8]],
    arena: &mut Arena<'m>,
) -> Result<&'m [Region<'m>], Step<'m>> {
    let (expected, found) = (meta.planned_buffer_count(), buffers.len());
    if expected != found {
        return Err(InitError::PlannedBuffers { expected, found }.into());
    }
    let mut buffers = buffers.iter_mut();
    let regions = arena.slice(expected, |index| {
        let bytes: &'m mut [u8] = match buffers.next() {
            Some(buffer) => core::mem::take(buffer),
            None => &mut [],
        };
        let memory = MemoryKind::Planned(index);
        let (needed, available) = (meta.planned_buffer_size(index)?, bytes.len());
        if available < needed {
            return Err(InitError::MemoryTooSmall { memory, needed, available }.into());
        }
        if needed > 0 && !bytes.as_ptr().addr().is_multiple_of(ARENA_ALIGN) {
            return Err(InitError::MemoryMisaligned { memory }.into());
        }
        Ok::<_, Step<'m>>(Region::writable(bytes.get_mut(..needed).unwrap_or_default()))
    })?;
    Ok(regions)
}

/// A value as the file has it; tensors get slots in order.
fn decode_value<'m>(
    meta: &MethodMeta<'m>,
    index: usize,
    tensor_count: &mut u32,
) -> Result<Value<'m>, Malformed> {
    let malformed = Malformed { what: "value", offset: index };
    let values = meta.plan.values()?;
    Ok(match values.get(index)?.ok_or(malformed)?.value()? {
        EValue::None => Value::None,
        EValue::Int(value) => Value::Int(value),
        EValue::Bool(value) => Value::Bool(value),
        EValue::Double(value) => Value::Double(value),
        EValue::String(value) => Value::String(value),
        EValue::Tensor(_) => {
            let slot = *tensor_count;
            *tensor_count = slot.checked_add(1).ok_or(malformed)?;
            Value::Tensor(slot)
        }
        EValue::IntList(items) => Value::IntList(elements(items.bytes())),
        EValue::DoubleList(items) => Value::DoubleList(elements(items.bytes())),
        EValue::BoolList(items) => Value::BoolList(items.bytes()),
        EValue::TensorList(items) => Value::TensorList(elements(items.bytes()), false),
        EValue::OptionalTensorList(items) => Value::TensorList(elements(items.bytes()), true),
    })
}

/// The tensors of a method with their shapes, without data yet.
fn build_tensors<'m>(
    meta: &MethodMeta<'m>,
    count: usize,
    arena: &mut Arena<'m>,
) -> Result<&'m mut [TensorSlot<'m>], Step<'m>> {
    let mut file = meta.plan.values()?.iter().enumerate();
    let mut ranks = 0usize;
    let slots = arena.slice(count, |_| {
        loop {
            let end = Malformed { what: "value", offset: 0 };
            let (index, value) = file.next().ok_or(end)?;
            let EValue::Tensor(tensor) = value?.value()? else { continue };
            let invalid = |what| InitError::Value { index, what };
            let info = crate::arguments::tensor_info(&tensor)
                .ok_or(invalid("its type, shape or layout is not valid"))?;
            ranks += info.rank();
            return Ok::<_, Step<'m>>(TensorSlot {
                scalar_type: info.scalar_type,
                dynamism: ShapeDynamism::from_number(tensor.shape_dynamism()?)
                    .ok_or(invalid("its shape dynamism is unknown"))?,
                constant: false,
                sizes: &mut [],
                dim_order: tensor.dim_order()?.bytes(),
                capacity: info.nbytes(),
                data: None,
            });
        }
    })?;
    let mut sizes = arena.slice::<i32, Step<'m>>(ranks, |_| Ok(0))?;
    let mut slot_iter = slots.iter_mut();
    for value in meta.plan.values()?.iter() {
        let EValue::Tensor(tensor) = value?.value()? else { continue };
        let shape = tensor.sizes()?;
        let (own, rest) = core::mem::take(&mut sizes).split_at_mut(shape.len());
        sizes = rest;
        for (target, size) in own.iter_mut().zip(shape.iter()) {
            *target = size?;
        }
        if let Some(slot) = slot_iter.next() {
            slot.sizes = own;
        }
    }
    Ok(slots)
}

impl<'m> Method<'m> {
    /// Forgets everything that runs left behind: planned memory is zeroed and gets its initial data again,
    /// values and shapes become those of the file, delegates forget their state. Inputs must be set again.
    ///
    /// # Errors
    /// The storage cannot be read any more, or a delegate failed.
    pub fn reset(&mut self) -> Result<(), InitError<'m>> {
        self.position = 0;
        self.backward_jumps = 0;
        let mut tensor_count = 0;
        for index in 0..self.values.values.len() {
            let value = decode_value(&self.meta, index, &mut tensor_count)?;
            if let Some(target) = self.values.values.get_mut(index) {
                *target = value;
            }
        }
        let mut slots = self.values.tensors.iter_mut();
        for value in self.meta.plan.values()?.iter() {
            let EValue::Tensor(tensor) = value?.value()? else { continue };
            if let Some(slot) = slots.next() {
                for (target, size) in slot.sizes.iter_mut().zip(tensor.sizes()?.iter()) {
                    *target = size?;
                }
            }
        }
        self.place_tensors(None).map_err(|step| match step {
            Step::Other(error) => error,
            Step::Exhausted(_) => InitError::TooLarge,
        })?;
        for (index, delegate) in self.delegates.iter_mut().enumerate() {
            let backend = self.meta.delegate_backend(index).unwrap_or("");
            if let Some(delegate) = delegate {
                delegate.get_mut().reset().map_err(|source| InitError::Delegate {
                    index,
                    backend,
                    source,
                })?;
            }
        }
        Ok(())
    }
}
