//! Preparing a method: everything in its tables is resolved and checked, and what memory it needs is added up.
//!
//! This is the one path from a file to a method. It decides; [finishing](super::finish) carries out what was decided, with the
//! memory that was asked for here, so that needs cannot differ from what loading takes.

use super::tables::{Counts, PointerWidth, TableUse, Tables};
use super::{Instruction, KernelCall, LoadOptions, Method, MethodMemory, Packed};
use crate::arguments::{Arguments, elements};
use crate::call::{Invoke, Known, Prepare};
use crate::error::{InitError, KernelError, MemoryKind, Message};
use crate::format::Part;
use crate::format::program_schema::InstructionArgs;
use crate::kernel::{Kernel, Param};
use crate::layout::{ShapeDynamism, same_layout};
use crate::limits::{Budget, Limit, Limits};
use crate::memory::ARENA_ALIGN;
use crate::memory::arena::Measure;
use crate::memory::region::Region;
use crate::meta::{MethodMeta, tensor_name, to_index};
use crate::overlap::Overlap;
use crate::place::{lend_aligned, locate};
use crate::registry::{OperatorName, Registry};
use crate::tracer::{Event, EventKind, traced};
use crate::value::{Data, Home, Value, list_index};
use crate::values::{Roles, Values, flag};
use core::mem::MaybeUninit;

/// The exact memory that a method takes, beside its planned buffers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[non_exhaustive]
pub struct MemoryNeeds {
    /// Bytes of its tables, a multiple of [`ARENA_ALIGN`](crate::ARENA_ALIGN).
    pub tables: usize,
    /// Bytes of the method arena: delegates, constants that had to be copied, packed weights.
    pub arena: usize,
    /// Bytes of scratch memory.
    pub scratch: usize,
}

impl MemoryNeeds {
    /// Bytes of one arena for the tables and all else, as [`Program::load_method`](crate::Program::load_method) takes it.
    pub fn whole_arena(&self) -> usize {
        // Both fit into memory that was, or is to be, lent; where they do not fit together, nothing is long enough.
        self.tables.saturating_add(self.arena)
    }
}

/// A piece of a method's memory, for reports on where the bytes go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[non_exhaustive]
pub struct ArenaUse {
    /// Places of planned buffers, and values. Their lists stay in the file.
    pub values: usize,
    /// Tensors: shape, layout, place.
    pub tensors: usize,
    /// Instructions.
    pub instructions: usize,
    /// Delegates and what they allocate.
    pub delegates: usize,
    /// Constants that had to be copied out of the file.
    pub constants: usize,
    /// Weights that kernels packed.
    pub packed: usize,
}

/// A method that is resolved and checked, and waits for its memory.
///
/// ```text
/// let mut tables = ...;                       // meta.table_bytes() bytes
/// let prepared = meta.prepare(&mut tables, &registry, options)?;
/// let needs = prepared.needs();               // exact: nothing was reserved so far
/// let method = prepared.finish(memory)?;
/// ```
pub struct Prepared<'m> {
    pub(super) meta: MethodMeta<'m>,
    pub(super) tables: Tables<'m>,
    pub(super) options: LoadOptions<'m>,
    pub(super) registry: Registry<'m>,
    counts: Counts,
    /// The method arena, with what is known to be in it so far.
    arena: Measure,
    /// How much of it was taken when all delegates were, and when all constants were.
    delegates_end: usize,
    constants_end: usize,
    scratch: usize,
    steps: u64,
}

impl<'m> MethodMeta<'m> {
    /// Bytes of memory that [`prepare`](Self::prepare) takes for the method's tables.
    ///
    /// # Errors
    /// The file is malformed, or exceeds the limits.
    pub fn table_bytes(&self, limits: &Limits) -> Result<usize, InitError> {
        Ok(self.table_use(limits, PointerWidth::HERE)?.total())
    }

    /// What the method's tables take on a machine with pointers of this width, which may be another than this.
    ///
    /// # Errors
    /// As [`table_bytes`](Self::table_bytes).
    pub fn table_use(&self, limits: &Limits, width: PointerWidth) -> Result<TableUse, InitError> {
        self.counts(limits)?.table_use(width).ok_or(InitError::TooLarge)
    }

    /// Decodes the method into tables, resolves and checks all of it, and finds out what memory it needs.
    ///
    /// `tables` starts at a multiple of [`ARENA_ALIGN`](crate::ARENA_ALIGN) bytes and has
    /// [`table_bytes`](Self::table_bytes) of them.
    ///
    /// # Errors
    /// What is wrong or missing, and where.
    pub fn prepare(
        &self,
        tables: &'m mut [MaybeUninit<u8>],
        registry: &Registry<'m>,
        options: LoadOptions<'m>,
    ) -> Result<Prepared<'m>, InitError> {
        let counts = self.counts(&options.limits)?;
        self.check_missing(registry)?;
        self.prepare_counted(&counts, tables, registry, options)
    }

    #[inline(never)]
    fn prepare_counted(
        &self,
        counts: &Counts,
        tables: &'m mut [MaybeUninit<u8>],
        registry: &Registry<'m>,
        options: LoadOptions<'m>,
    ) -> Result<Prepared<'m>, InitError> {
        let mut prepared = Prepared {
            meta: *self,
            tables: Tables::decode(self, counts, tables)?,
            options,
            registry: *registry,
            counts: *counts,
            arena: Measure::new(),
            delegates_end: 0,
            constants_end: 0,
            scratch: 0,
            // One for each value, to begin with.
            steps: counts.values as u64,
        };
        prepared.resolve_all()?;
        Ok(prepared)
    }

    /// Fails if operators or backends are not registered, with as many of their names as fit.
    #[inline(never)]
    fn check_missing(&self, registry: &Registry<'_>) -> Result<(), InitError> {
        let missing = self.missing(registry);
        let (operators, backends) = (missing.operators().count(), missing.backends().count());
        if operators == 0 && backends == 0 {
            return Ok(());
        }
        let names = Message::new(format_args!("{missing}"));
        Err(InitError::Missing { operators, backends, names })
    }

    pub(crate) fn load(
        &self,
        registry: &Registry<'m>,
        memory: MethodMemory<'m, '_>,
        options: LoadOptions<'m>,
    ) -> Result<Method<'m>, InitError> {
        let event = Event { kind: EventKind::Load, name: self.name(), instruction: 0 };
        traced(options.tracer, &event, || {
            crate::log::debug!("loading method {}", self.name());
            let counts = self.counts(&options.limits)?;
            self.check_missing(registry)?;
            let table_use = counts.table_use(PointerWidth::HERE).ok_or(InitError::TooLarge)?;
            let (needed, available) = (table_use.total(), memory.arena.len());
            let (tables, arena) =
                memory.arena.split_at_mut_checked(needed).ok_or(InitError::MemoryTooSmall {
                    memory: MemoryKind::Tables,
                    needed,
                    available,
                })?;
            let prepared = self.prepare_counted(&counts, tables, registry, options)?;
            let whole = prepared.needs().whole_arena();
            if whole > available {
                let memory = MemoryKind::Arena;
                return Err(InitError::MemoryTooSmall { memory, needed: whole, available });
            }
            prepared.finish(MethodMemory { arena, ..memory })
        })
    }
}

impl<'m> Prepared<'m> {
    /// The method's description in its program.
    pub fn meta(&self) -> &MethodMeta<'m> {
        &self.meta
    }

    /// The exact memory that the method takes, beside its planned buffers: [`MethodMeta::planned_buffer_size`].
    pub fn needs(&self) -> MemoryNeeds {
        let (tables, arena) = (self.table_use().total(), self.arena_bytes());
        MemoryNeeds { tables, arena, scratch: self.scratch }
    }

    /// Bytes of the tables. They are there, so there is some number of them.
    fn table_use(&self) -> TableUse {
        self.counts.table_use(PointerWidth::HERE).unwrap_or_default()
    }

    /// Bytes of the method arena. A prepared method has some number of them: `resolve_all` saw to that.
    fn arena_bytes(&self) -> usize {
        self.arena.total().unwrap_or(usize::MAX)
    }

    /// What tables and arena are used for.
    pub fn arena_use(&self) -> ArenaUse {
        let TableUse { values, tensors, instructions, delegates } = self.table_use();
        ArenaUse {
            values,
            tensors,
            instructions,
            delegates: delegates.saturating_add(self.delegates_end),
            constants: self.constants_end.saturating_sub(self.delegates_end),
            packed: self.arena_bytes().saturating_sub(self.constants_end),
        }
    }

    /// How much work it was to prepare the method: steps of loops over what the file lists. It grows with the size of the file,
    /// whatever the file says; a test holds it to that.
    pub fn steps(&self) -> u64 {
        self.steps
    }
}

impl core::fmt::Debug for Prepared<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "Prepared({}, {:?})", self.meta.name(), self.needs())
    }
}

/// Stands in for the invoke function of a call that could not be prepared yet.
fn not_prepared(_: &mut Invoke<'_, '_>) -> Result<(), KernelError> {
    Err(KernelError::Unsupported { what: "the kernel was not prepared" })
}

/// The way to a prepared method, step by step, each of which adds to what is there.
impl<'m> Prepared<'m> {
    fn resolve_all(&mut self) -> Result<(), InitError> {
        self.delegates()?;
        self.delegates_end = self.arena.total().ok_or(InitError::TooLarge)?;
        self.places()?;
        self.constants_end = self.arena.total().ok_or(InitError::TooLarge)?;
        self.interface()?;
        self.resolve()?;
        self.views();
        self.kernels()?;
        self.state_bytes()?;
        self.arena.total().ok_or(InitError::TooLarge)?;
        Ok(())
    }

    /// Asks backends what memory their delegates take.
    fn delegates(&mut self) -> Result<(), InitError> {
        for index in 0..self.tables.delegates.len() {
            let info = self.meta.delegate_info(index, self.options.data)?;
            let backend = self.registry.backend(info.backend).ok_or(Part::Delegate.at(index))?;
            let bytes = backend.arena_bytes(&info).map_err(|source| InitError::Delegate {
                index,
                backend: backend.name(),
                source,
            })?;
            self.arena.bytes(bytes, ARENA_ALIGN);
            if info.processed.lend().is_none() {
                self.scratch = self.scratch.max(info.processed.size());
            }
        }
        Ok(())
    }

    /// Finds the data of every tensor.
    fn places(&mut self) -> Result<(), InitError> {
        let limits = &self.options.limits;
        let names = self.options.data.iter();
        let names = names.fold(0u64, |sum, map| sum.saturating_add(map.name_count() as u64));
        let mut lookups = Budget::new(limits, Limit::NameLookups);
        let mut constant_bytes = Budget::new(limits, Limit::ConstantBytes);
        let mut tensors = self.meta.tensors()?;
        while let Some(value) = tensors.next()? {
            let index = value.index;
            let name = tensor_name(&value.tensor)?;
            if value.tensor.extra_tensor_info()?.is_some() {
                // Comparing long names takes longer.
                let weight = 1 + name.map_or(0, str::len) as u64 / 64;
                lookups.take(names.saturating_mul(weight))?;
            }
            let target = self.tables.values.tensor_mut(value.slot).ok_or(Part::Value.at(index))?;
            let place = locate(&self.meta, self.options.data, value, target)?;
            let mut state = name.is_some();
            match (place.planned, place.stored) {
                (None, Some(blob)) => {
                    target.home = Home::Constant;
                    constant_bytes.take(target.capacity as u64)?;
                    match lend_aligned(&blob, target.alignment()) {
                        Some(bytes) => target.data = Data::At(Region::read_only(bytes)),
                        None => self.arena.bytes(target.capacity, ARENA_ALIGN),
                    }
                    state = false;
                }
                (Some((buffer, offset)), stored) => {
                    target.home = Home::Planned;
                    target.data = Data::Planned { buffer, offset };
                    state |= stored.is_some();
                }
                (None, None) => {}
            }
            if state {
                self.tables.values.mark(index, flag::STATE);
            }
        }
        Ok(())
    }

    /// Checks the indices of inputs and outputs, and marks numbers that the caller can set.
    fn interface(&mut self) -> Result<(), InitError> {
        let inputs = self.meta.plan.inputs()?;
        let outputs = self.meta.plan.outputs()?;
        let room = self.meta.program.flatbuffer_size() / 4;
        if inputs.len().saturating_add(outputs.len()) > room {
            return Err(Part::Shared.at(0).into());
        }
        for (position, index) in inputs.iter().enumerate() {
            let index = to_index(index?, Part::Input.at(position))?;
            let value = self.tables.values.value(index).ok_or(Part::Input.at(position))?;
            let numbers = if matches!(value, Value::Tensor(_)) { 0 } else { flag::VARIABLE };
            self.tables.values.mark(index, flag::INTERFACE | flag::WRITTEN | numbers);
        }
        for (position, index) in outputs.iter().enumerate() {
            let index = to_index(index?, Part::Output.at(position))?;
            self.tables.values.value(index).ok_or(Part::Output.at(position))?;
            self.tables.values.mark(index, flag::INTERFACE);
        }
        Ok(())
    }

    /// Resolves every instruction's operator, delegate and indices, and marks the values that instructions change.
    #[inline(never)]
    fn resolve(&mut self) -> Result<(), InitError> {
        let total = self.tables.instructions.len();
        // An argument takes four bytes of the file.
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
            if let InstructionArgs::Move { from, .. } = args {
                self.count_items(&[from.to_le_bytes()], &mut items)?;
            }
            self.steps = self.steps.saturating_add(list.len() as u64);
            self.resolve_one(index, chain_start, &args, list)?;
        }
        let Tables { values, instructions, .. } = &mut self.tables;
        for instruction in instructions.iter() {
            // What is moved on may be what was moved there, of another shape or layout.
            if let Instruction::Move { from, to } = *instruction
                && values.has(from, flag::MOVED)
            {
                values.mark(to, flag::VARIABLE);
            }
        }
        self.steps = self.steps.saturating_add(items);
        Ok(())
    }

    /// Adds the items of all lists among these values to those that were counted. Lists may be used several times, within reason.
    #[inline(never)]
    fn count_items(&self, args: &[[u8; 4]], items: &mut u64) -> Result<(), InitError> {
        *items = args.iter().fold(*items, |sum, entry| {
            let len = match self.tables.values.value(list_index(*entry)) {
                Some(Value::IntList(items) | Value::DoubleList(items)) => items.len(),
                Some(Value::TensorList(items, _)) => items.len(),
                Some(Value::BoolList(items)) => items.len(),
                _ => 0,
            };
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
        let count = self.tables.values.values.len();
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
                    .ok_or(fail("no kernel is registered for these types and layouts"))?;
                // Behind the declared arguments, files repeat the outputs as return values: no kernel sees those.
                let (expected, found) = (kernel.params.len(), args.len());
                let args = args.get(..expected).ok_or(InitError::Kernel {
                    instruction: index,
                    operator: kernel.name,
                    source: KernelError::ArgumentCount { expected, found },
                })?;
                for (param, entry) in kernel.params.iter().zip(args) {
                    if *param == Param::OutScalar {
                        self.tables.values.mark(list_index(*entry), flag::VARIABLE);
                    }
                }
                Instruction::Kernel(KernelCall {
                    kernel,
                    args,
                    invoke: not_prepared,
                    scratch: 0,
                    packed: Packed::None,
                    dynamic: false,
                    known: Known::Nothing,
                })
            }
            InstructionArgs::Delegate { delegate, .. } => {
                let delegate = usize::try_from(delegate)
                    .ok()
                    .filter(|delegate| *delegate < self.tables.delegates.len())
                    .ok_or(fail("the delegate's index is out of range"))?;
                for entry in args {
                    let value = list_index(*entry);
                    // Only the delegate knows which arguments it writes.
                    if !matches!(self.tables.values.value(value), Some(Value::Tensor(_))) {
                        self.tables.values.mark(value, flag::VARIABLE);
                    }
                }
                Instruction::Delegate { delegate, args }
            }
            InstructionArgs::Move { from, to } => {
                let (from, to) = (value_index(from)?, value_index(to)?);
                let varies = check_move(&self.tables.values, from, to)
                    .ok_or(fail("it moves a value onto one of another kind"))?;
                if varies {
                    self.tables.values.mark(to, flag::VARIABLE);
                }
                // What names a tensor, by itself or in a list, names another one from then on.
                if let Some(Value::Tensor(_) | Value::TensorList(..)) =
                    self.tables.values.value(from)
                {
                    self.tables.values.mark(to, flag::MOVED);
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
            // Memory that is not planned is the caller's, or another tensor's: there is nothing to give up.
            InstructionArgs::Free { value } => {
                value_index(value)?;
                Instruction::Nothing
            }
        };
        if let Some(slot) = self.tables.instructions.get_mut(index) {
            *slot = resolved;
        }
        Ok(())
    }

    /// The kernel of an operator for arguments of these types and layouts.
    #[inline(never)]
    fn find_kernel(
        &mut self,
        operator: &OperatorName<'m>,
        args: &'m [[u8; 4]],
    ) -> Option<&'m Kernel> {
        let arguments = Arguments::new(&mut self.tables.values, args, &[]);
        let tensor = |wanted: usize| {
            (0..args.len()).filter_map(|arg| arguments.tensor_slot(arg)).nth(wanted)
        };
        self.registry.find(operator, tensor)
    }

    /// Notes which tensors are views of others, where that holds whatever is run: then their memory is known from now on. If one
    /// of them is a view of this here and of that there, all are found when their calls run, and calls that take them look for
    /// themselves what they share.
    fn views(&mut self) {
        let Tables { values, instructions, .. } = &mut self.tables;
        let pairs = || instructions.iter().filter_map(|instruction| instruction.view());
        let mut fixed = true;
        for (out, input) in pairs() {
            fixed &= place_view(values, out, input);
        }
        if fixed {
            return;
        }
        for (out, _) in pairs() {
            values.mark(out, flag::MOVED);
            if let Some(tensor) = values.slot(out).and_then(|slot| values.tensor_mut(slot))
                && let Home::View(_) = tensor.home
            {
                tensor.home = Home::Caller;
            }
        }
    }

    /// Checks that state is as much as planned buffers may be: each tensor of it is initialised for itself.
    fn state_bytes(&self) -> Result<(), InitError> {
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
    fn kernels(&mut self) -> Result<(), InitError> {
        let threads = self.options.parallel.threads();
        let limit = self.options.limits.call_tensors;
        let Prepared { tables, arena, scratch, steps, .. } = self;
        let Tables { values, instructions, .. } = tables;
        let moved = largest_moved(values, instructions);
        for (index, instruction) in instructions.iter_mut().enumerate() {
            match instruction {
                Instruction::Kernel(call) => {
                    let operator = call.kernel.name;
                    let tensors = count_tensors(values, call.args);
                    if tensors > limit {
                        let (found, allowed) = (tensors, limit);
                        return Err(InitError::Limit { limit: Limit::CallTensors, found, allowed });
                    }
                    let needed = prepare_call(values, call, threads, moved, arena, steps).map_err(
                        |source| InitError::Kernel { instruction: index, operator, source },
                    )?;
                    *scratch = (*scratch).max(needed);
                    mark_state(values, call.args, Roles::Params(call.kernel.params));
                }
                Instruction::Delegate { args, .. } => mark_state(values, args, Roles::From(0)),
                Instruction::Move { from, to } => {
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

/// Notes that the tensor of value `out` is a view of that of `input`; false if that does not hold throughout.
fn place_view(values: &mut Values<'_>, out: usize, input: usize) -> bool {
    let (Some(out_slot), Some(input_slot)) = (values.slot(out), values.slot(input)) else {
        // Preparing the call fails, as it has arguments of other kinds.
        return true;
    };
    let root = match values.tensor(input_slot).map(|tensor| tensor.home) {
        Some(Home::View(root)) => root,
        _ => input_slot,
    };
    let home = values.tensor(out_slot).map(|tensor| tensor.home);
    let holds = match home {
        Some(Home::Caller) => !values.has(out, flag::WRITTEN | flag::VIEWED),
        Some(Home::View(other)) => other == root,
        _ => false,
    };
    let moved = values.has(input, flag::MOVED) || values.has(out, flag::MOVED);
    if !holds || moved || root == out_slot {
        return false;
    }
    if let Some(tensor) = values.tensor_mut(out_slot) {
        tensor.home = Home::View(root);
    }
    values.mark(input, flag::VIEWED);
    true
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

/// Whether a value may be moved onto another; if so, whether that makes the target's shape vary.
fn check_move(values: &Values<'_>, from: usize, to: usize) -> Option<bool> {
    let (from, to) = (values.value(from)?, values.value(to)?);
    match (from, to) {
        (Value::Tensor(from), Value::Tensor(to)) => {
            let (from, to) = (values.tensor(from)?, values.tensor(to)?);
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
    threads: usize,
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
    match (kernel.prepare)(&mut Prepare::new(arguments, false, threads)) {
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
