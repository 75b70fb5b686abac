//! Finishing a prepared method: assigns memory, creates delegates, copies constants, packs weights.

use super::{Instruction, KernelCall, Method, MethodMemory, Packed, Prepared};
use crate::backend::{InitContext, Processed};
use crate::call::{Invoke, KnownOverlap, Resources};
use crate::error::{InitError, MemoryKind};
use crate::format::Part;
use crate::location::locate;
use crate::machine::Machine;
use crate::memory::arena::{Arena, Exhausted};
use crate::memory::region::Region;
use crate::memory::slot::Data;
use crate::memory::{ARENA_ALIGN, SharedMemory, check_lent};
use crate::method::shared::SharedMethod;
use crate::parallel::{Parallel, Uncancelled};
use crate::registry::Registry;
use crate::runtime_features::{RuntimeFeatures, UNSUPPORTED_BY_IMAGE, has};
use crate::tracer::{Event, EventKind, traced};
use crate::value::Value;
use crate::values::flag;
use core::sync::atomic::AtomicBool;

impl<'m> Prepared<'m> {
    /// Creates the method with its own memory.
    ///
    /// # Errors
    /// A buffer is too small or misaligned, the storage failed, or a backend rejected a delegate.
    pub fn finish(self, memory: MethodMemory<'m, '_>) -> Result<Method<'m>, InitError> {
        let (expected, found) = (self.tables.planned.len(), memory.planned.len());
        if expected != found {
            return Err(InitError::PlannedBuffers { expected, found });
        }
        let buffers = self.tables.planned.iter_mut().zip(memory.planned.iter_mut());
        for (index, (region, buffer)) in buffers.enumerate() {
            let bytes = core::mem::take(buffer);
            let kind = MemoryKind::Planned(index);
            let needed = self.meta.planned_size(index)?;
            check_lent(bytes, needed, kind)?;
            let bytes = bytes.get_mut(..needed).unwrap_or_default();
            bytes.fill(0);
            *region = Region::writable(bytes);
        }
        check_lent(memory.scratch, self.needs().scratch, MemoryKind::Scratch)?;
        self.build(memory.arena, Region::writable(memory.scratch))
    }

    /// Creates the method in planned and scratch memory that it shares with other methods: see
    /// [`SharedMemory`].
    ///
    /// # Errors
    /// As [`finish`](Self::finish), or the method cannot share this memory.
    pub fn finish_shared(
        self,
        shared: &mut SharedMemory<'m>,
        arena: &'m mut [core::mem::MaybeUninit<u8>],
    ) -> Result<SharedMethod<'m>, InitError> {
        let members = shared.members();
        let result = self.finish_admitted(shared, arena);
        if result.is_err() {
            shared.restore(members);
        }
        result.map(SharedMethod::new)
    }

    fn finish_admitted(
        self,
        shared: &mut SharedMemory<'m>,
        arena: &'m mut [core::mem::MaybeUninit<u8>],
    ) -> Result<Method<'m>, InitError> {
        if !has(RuntimeFeatures::SHARED_MEMORY) {
            return Err(InitError::Shared { what: UNSUPPORTED_BY_IMAGE });
        }
        let needed = self.needs().scratch;
        let scratch = shared.admit(&self.meta, &self.tables, needed)?;
        for (index, region) in self.tables.planned.iter_mut().enumerate() {
            *region = shared.part(index, self.meta.planned_size(index)?)?;
        }
        self.build(arena, scratch)
    }

    #[inline(never)]
    fn build(
        self,
        arena: &'m mut [core::mem::MaybeUninit<u8>],
        scratch: Region<'m>,
    ) -> Result<Method<'m>, InitError> {
        let Prepared { meta, tables, options, registry, .. } = self;
        if options.machine != Machine::Here {
            return Err(InitError::OtherMachine);
        }
        let memory = MemoryKind::Arena;
        let available = arena.len();
        let mut arena = Arena::new(arena).ok_or(InitError::MemoryMisaligned { memory })?;
        // The method exists from here on, so that an error drops the delegates created so far.
        let mut method = Method {
            meta,
            values: tables.values,
            instructions: &[],
            delegates: tables.delegates,
            planned: tables.planned,
            scratch,
            options,
            position: 0,
            backward_jumps: 0,
            is_usable: true,
            stale: AtomicBool::new(false),
        };
        let result = method.fill(&registry, tables.instructions, &mut arena);
        match result {
            Ok(()) => Ok(method),
            Err(FinishError::Init(error)) => Err(error),
            Err(FinishError::Exhausted(exhausted)) => {
                let needed = exhausted.needed;
                Err(InitError::MemoryTooSmall { memory, needed, available })
            }
        }
    }
}

/// Why a method cannot be finished.
enum FinishError {
    Exhausted(Exhausted),
    Init(InitError),
}

impl From<Exhausted> for FinishError {
    fn from(exhausted: Exhausted) -> Self {
        FinishError::Exhausted(exhausted)
    }
}
impl<E: Into<InitError>> From<E> for FinishError {
    fn from(error: E) -> Self {
        FinishError::Init(error.into())
    }
}

impl<'m> Method<'m> {
    /// Allocates in the same order as the size calculation.
    fn fill(
        &mut self,
        registry: &Registry<'m>,
        instructions: &'m mut [Instruction<'m>],
        arena: &mut Arena<'m>,
    ) -> Result<(), FinishError> {
        if has(RuntimeFeatures::DELEGATES) {
            self.make_delegates(registry, arena)?;
        }
        self.place_tensors(Some(arena))?;
        for (index, instruction) in instructions.iter_mut().enumerate() {
            if has(RuntimeFeatures::PACKING)
                && let Instruction::Kernel(call) = instruction
            {
                self.pack(index, call, arena)?;
            }
        }
        self.instructions = instructions;
        if !has(RuntimeFeatures::VARIABLE) {
            return Ok(());
        }
        let cells = arena.slice(self.values.cell_count(), || Value::None)?;
        self.values.move_to_cells(cells);
        Ok(())
    }

    fn make_delegates(
        &mut self,
        registry: &Registry<'m>,
        arena: &mut Arena<'m>,
    ) -> Result<(), FinishError> {
        for index in 0..self.delegates.len() {
            let info = self.meta.delegate_info(index, self.options.data)?;
            let backend = registry.backend(info.backend).ok_or(Part::Delegate.at(index))?;
            let name = backend.name();
            let wrap = |source| InitError::Delegate { index, backend: name, source };
            backend.is_available().map_err(wrap)?;
            let bytes = backend.arena_bytes(&info).map_err(wrap)?;
            let own = arena.allocate(bytes, ARENA_ALIGN)?;
            let mut own = Arena::new(own).ok_or(InitError::TooLarge)?;
            let processed = match info.processed.lend() {
                Some(bytes) => Processed::Lent(bytes),
                None => {
                    let (needed, available) = (info.processed.size(), self.scratch.len());
                    let memory = MemoryKind::Scratch;
                    let too_small = InitError::MemoryTooSmall { memory, needed, available };
                    let region = self.scratch.part(0, needed).ok_or(too_small)?;
                    // SAFETY: no method that uses this scratch memory is running: this one is being
                    // created, and methods that share the memory run only while they hold the
                    // `SharedMemory` that the caller holds. The reference ends before this function
                    // uses the memory again.
                    let bytes = unsafe { region.bytes_mut() }.unwrap_or_default();
                    info.processed.read(0, bytes)?;
                    Processed::Temporary(bytes)
                }
            };
            let event = Event { kind: EventKind::DelegateInit, name, instruction: index };
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

    /// Assigns memory to tensors, and initial data to state. With an arena (at load, not on reset),
    /// also copies constants that cannot be borrowed.
    fn place_tensors(&mut self, mut arena: Option<&mut Arena<'m>>) -> Result<(), FinishError> {
        let mut tensors = self.meta.tensors()?;
        while let Some(value) = tensors.next()? {
            let index = value.index;
            let is_state = self.values.has(index, flag::STATE);
            let tensor = self.values.tensor(value.slot).ok_or(Part::Value.at(index))?;
            let capacity = tensor.capacity();
            let location = locate(&self.meta, self.options.data, value, &tensor)?;
            let target = self.values.tensor_mut(value.slot).ok_or(Part::Value.at(index))?;
            match (location.planned, location.stored, arena.as_deref_mut()) {
                (None, Some(blob), Some(arena)) if matches!(target.data(), Data::None) => {
                    let copy = arena.zeroed(capacity, ARENA_ALIGN)?;
                    blob.read(0, copy)?;
                    target.set_data(Some(Region::read_only(copy)));
                }
                // Unplanned state.
                (None, Some(blob), Some(arena))
                    if has(RuntimeFeatures::UNPLANNED_STATE) && target.is_planned() =>
                {
                    let own = arena.zeroed(capacity, ARENA_ALIGN)?;
                    blob.read(0, own)?;
                    target.set_data(Some(Region::writable(own)));
                }
                (None, Some(blob), None)
                    if has(RuntimeFeatures::UNPLANNED_STATE) && target.is_planned() =>
                {
                    if let Data::At(region) = target.data() {
                        // SAFETY: no call is running (`&mut self`), so no reference to tensor data
                        // exists.
                        blob.read(0, unsafe { region.bytes_mut() }.unwrap_or_default())?;
                    }
                }
                (Some((buffer, offset)), stored, _) => {
                    let region = self.planned.get(buffer);
                    let region = region.and_then(|planned| planned.part(offset, capacity));
                    let what = "planned offset out of range";
                    let region = region.ok_or(InitError::Value { index, what })?;
                    target.set_data(Some(region));
                    if is_state || stored.is_some() {
                        // SAFETY: no call is running (`&mut self`, and see `make_delegates` for
                        // shared memory), and this is the only reference to planned memory in this
                        // function.
                        let bytes = unsafe { region.bytes_mut() }.unwrap_or_default();
                        match stored {
                            Some(blob) => blob.read(0, bytes)?,
                            None => bytes.fill(0),
                        }
                    }
                }
                // State in caller-bound memory restarts from zero.
                (None, None, None) if is_state => {
                    if let Data::At(region) = target.data() {
                        // SAFETY: no call is running (`&mut self`), so no reference to tensor data
                        // exists.
                        if let Some(bytes) = unsafe { region.bytes_mut() } {
                            bytes.fill(0);
                        }
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn pack(
        &mut self,
        instruction: usize,
        call: &mut KernelCall<'m>,
        arena: &mut Arena<'m>,
    ) -> Result<(), FinishError> {
        let Packed::Pending(bytes, pack) = call.packed else { return Ok(()) };
        let packed = arena.zeroed(bytes, ARENA_ALIGN)?;
        let parallel = Uncancelled(self.options.parallel);
        let resources = self.resources(call.scratch, None, &parallel);
        let (args, kernel) = (call.args, call.kernel);
        // In-place calls check the overlap again: now that memory is bound, a pack function may
        // read inputs.
        let known =
            if call.known == KnownOverlap::InPlace { KnownOverlap::Unknown } else { call.known };
        Invoke::new(&mut self.values, args, kernel, known, resources)
            .and_then(|mut invoke| pack(&mut invoke, packed))
            .map_err(|source| InitError::Kernel { instruction, operator: kernel.name, source })?;
        call.packed = Packed::Ready(Region::read_only(packed));
        Ok(())
    }

    pub(super) fn resources<'c>(
        &self,
        scratch_needed: usize,
        packed: Option<Region<'m>>,
        parallel: &'c dyn Parallel,
    ) -> Resources<'c, 'm> {
        Resources { scratch: self.scratch, scratch_needed, packed, parallel }
    }

    /// Resets everything that runs changed: planned memory is zeroed, state gets its initial data,
    /// scalars and shapes return to those of the file, and delegates reset their state. Inputs must
    /// be set again.
    ///
    /// If the reset fails, the method refuses to run until a reset succeeds.
    ///
    /// # Errors
    /// The storage failed, or a delegate failed.
    pub fn reset(&mut self) -> Result<(), InitError> {
        self.reset_memory(true)
    }

    /// Like [`reset`](Self::reset), but zeroes planned memory only if no other method shares it
    /// (`alone`).
    pub(super) fn reset_memory(&mut self, alone: bool) -> Result<(), InitError> {
        self.is_usable = false;
        self.position = 0;
        self.backward_jumps = 0;
        self.values.reset();
        for region in self.planned.iter().filter(|_| alone) {
            // SAFETY: no call is running (`&mut self`), so no reference to planned memory exists.
            if let Some(bytes) = unsafe { region.bytes_mut() } {
                bytes.fill(0);
            }
        }
        self.place_tensors(None).map_err(|error| match error {
            FinishError::Init(error) => error,
            FinishError::Exhausted(_) => InitError::TooLarge,
        })?;
        for (index, delegate) in self.delegates.iter_mut().enumerate() {
            if has(RuntimeFeatures::DELEGATES)
                && let Some(delegate) = delegate
            {
                delegate.get_mut().reset().map_err(|source| InitError::Delegate {
                    index,
                    backend: "",
                    source,
                })?;
            }
        }
        self.is_usable = true;
        Ok(())
    }
}
