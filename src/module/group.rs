//! Groups of methods that are loaded together, with the memory that they borrow from.
//!
//! A loaded method borrows from its file, registry and buffers. [`Loaded`] is a self-referential
//! cell: [`GroupStorage`] owns these, and [`Methods`] are the borrowing methods.

use super::environment::{Environment, SharedTracer};
use super::method::{MemoryReport, MethodOptions, input_error, output_error};
use super::signature::{Signature, Slot};
use crate::buffer::{ArenaMemory, Buffer};
use crate::error::Error;
use crate::value::Value;
use self_cell::{MutBorrow, self_cell};
use std::cell::OnceCell;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use torchlet_core::{
    Allocation, Attached, Event, EventKind, ExecuteError, InitError, Method, MethodMemory,
    Prepared, SharedMemory, SharedMethod,
};

/// Environment of a module's methods, with its cancel flag.
#[derive(Clone)]
pub(super) struct Setting {
    pub(super) environment: Arc<Environment>,
    /// Cancels runs while true.
    pub(super) cancel: Arc<AtomicBool>,
}

/// Request to load a method of one of several modules.
pub(super) struct Request {
    /// Index of the module.
    pub(super) module: usize,
    pub(super) setting: Setting,
    pub(super) name: String,
    pub(super) options: MethodOptions,
}

/// Owner of everything that loaded methods borrow from: shared resources and their own memory.
struct GroupStorage {
    members: Vec<Member>,
    /// Allocated after the methods are prepared.
    memory: OnceCell<Memory>,
}

/// A method to be loaded, with memory for its tables.
struct Member {
    request: Request,
    tables: MutBorrow<ArenaMemory>,
}

impl Member {
    fn environment(&self) -> &Environment {
        &self.request.setting.environment
    }

    /// Reports allocations to the tracer, if one is set.
    fn report_allocations(&self, allocations: &[Allocation<'_>]) {
        let Some(tracer) = self.environment().tracer(&self.request.options) else { return };
        for allocation in allocations.iter().filter(|allocation| allocation.bytes > 0) {
            tracer.allocated(allocation);
        }
    }

    /// Device memory in use by the backends, in bytes. Queried only if a tracer is set.
    fn device_memory(&self) -> u64 {
        match self.environment().tracer(&self.request.options) {
            Some(_) => self.environment().device_memory().used,
            None => 0,
        }
    }
}

/// Memory of prepared methods, in the sizes that they report.
struct Memory {
    /// Bytes that count towards the memory limit.
    total: u64,
    /// Bytes of planned and scratch memory.
    shared: u64,
    allocations: [Allocation<'static>; 2],
    scratch: MutBorrow<Buffer>,
    planned: MutBorrow<Vec<Buffer>>,
    own: Vec<OwnMemory>,
}

/// Memory of a single method.
struct OwnMemory {
    arena: MutBorrow<ArenaMemory>,
    /// For inputs and outputs outside planned memory.
    inputs: MutBorrow<Vec<Option<Buffer>>>,
    outputs: MutBorrow<Vec<Option<Buffer>>>,
    /// For state outside planned memory, with its value index.
    state: MutBorrow<Vec<(usize, Buffer)>>,
    allocations: [Allocation<'static>; 3],
}

/// Loaded methods: a single one with its own planned memory, or several that share it.
enum Methods<'g> {
    One(Method<'g>),
    Several { methods: Vec<SharedMethod<'g>>, memory: SharedMemory<'g> },
}

self_cell!(
    struct Loaded {
        owner: GroupStorage,
        #[not_covariant]
        dependent: Methods,
    }
);

/// One or several loaded methods. Methods that share planned memory are loaded together, because
/// loading initialises their state.
pub(super) struct Group {
    entries: Vec<Entry>,
    loaded: Loaded,
}

/// Metadata of a loaded method.
pub(super) struct Entry {
    /// Index of its module.
    module: usize,
    pub(super) name: String,
    pub(super) signature: Signature,
    /// Inputs that stay set between calls.
    pub(super) preset: Vec<Value>,
}

impl OwnMemory {
    fn allocate(prepared: &Prepared<'_>, signature: &Signature) -> Result<Self, Error> {
        let unplanned = |slots: &[Slot]| -> Result<Vec<Option<Buffer>>, Error> {
            slots
                .iter()
                .map(|slot| slot.unplanned_bytes().map(Buffer::zeroed).transpose())
                .collect()
        };
        let state = prepared.state().filter(|state| !state.bound);
        let state = state.map(|state| Ok((state.value, Buffer::zeroed(state.info.nbytes())?)));
        let state = state.collect::<Result<Vec<_>, Error>>()?;
        let (inputs, outputs) = (unplanned(&signature.inputs)?, unplanned(&signature.outputs)?);
        let arena = prepared.needs().arena;
        let bytes = |buffer: &Buffer| buffer.bytes().len() as u64;
        let outside = inputs.iter().chain(&outputs).flatten().map(bytes).sum();
        let kept = state.iter().map(|(_, buffer)| bytes(buffer)).sum();
        let allocations =
            [("arena", arena as u64), ("inputs and outputs", outside), ("state", kept)];
        Ok(OwnMemory {
            arena: MutBorrow::new(ArenaMemory::new(arena)?),
            inputs: MutBorrow::new(inputs),
            outputs: MutBorrow::new(outputs),
            state: MutBorrow::new(state),
            allocations: allocations.map(|(allocator, bytes)| Allocation { allocator, bytes }),
        })
    }

    /// Binds the memory that the exporter left to the caller.
    fn bind<'g>(&'g self, name: &str, method: &mut Attached<'_, 'g>) -> Result<(), Error> {
        for (index, buffer) in self.inputs.borrow_mut().iter_mut().enumerate() {
            if let Some(buffer) = buffer.as_mut().filter(|_| method.input_is_unbound(index)) {
                method
                    .bind_input(index, buffer.bytes_mut())
                    .map_err(|source| input_error(name, index, "", source))?;
            }
        }
        for (index, buffer) in self.outputs.borrow_mut().iter_mut().enumerate() {
            if let Some(buffer) = buffer.as_mut().filter(|_| method.output_is_unbound(index)) {
                method
                    .bind_output(index, buffer.bytes_mut())
                    .map_err(|source| output_error(name, index, source))?;
            }
        }
        for (value, buffer) in self.state.borrow_mut().iter_mut() {
            method
                .bind_state(*value, buffer.bytes_mut())
                .map_err(|source| input_error(name, *value, "memory for state", source))?;
        }
        Ok(())
    }
}

/// Tracer event that spans all steps of loading a method.
struct LoadEvent<'t> {
    options: &'t MethodOptions,
    environment: &'t Environment,
    name: &'t str,
    token: Option<u64>,
}

impl<'t> LoadEvent<'t> {
    fn begin(member: &'t Member) -> Self {
        let Request { name, options, .. } = &member.request;
        let environment = member.environment();
        let mut event = LoadEvent { options, environment, name, token: None };
        let tracer = environment.tracer(options);
        event.token = tracer.map(|tracer| tracer.begin(&event.event()));
        event
    }

    fn event(&self) -> Event<'t> {
        Event { kind: EventKind::Load, name: self.name, instruction: 0 }
    }
}

impl Drop for LoadEvent<'_> {
    fn drop(&mut self) {
        if let (Some(tracer), Some(token)) = (self.environment.tracer(self.options), self.token) {
            tracer.end(&self.event(), token);
        }
    }
}

impl GroupStorage {
    fn new(requests: Vec<Request>) -> Result<Self, Error> {
        let members = requests.into_iter().map(|request| {
            let environment = &request.setting.environment;
            let tables = environment.tables(&environment.method_meta(&request.name)?)?;
            Ok(Member { request, tables: MutBorrow::new(tables) })
        });
        let members = members.collect::<Result<_, Error>>()?;
        Ok(GroupStorage { members, memory: OnceCell::new() })
    }

    /// Loads the methods into this memory.
    fn build(&self, entries: &[Entry]) -> Result<Methods<'_>, Error> {
        let _events: Vec<_> = self.members.iter().map(LoadEvent::begin).collect();
        let mut prepared = Vec::new();
        for member in &self.members {
            let Request { setting, name, options, .. } = &member.request;
            let options = member.environment().options(options, &setting.cancel);
            let tables = member.tables.borrow_mut();
            prepared.push(member.environment().prepare(name, tables, options)?);
        }
        let memory = self.allocate(&prepared, entries)?;
        let memory = self.memory.get_or_init(|| memory);
        self.report_memory(memory);
        let before: Vec<_> = self.members.iter().map(Member::device_memory).collect();
        let methods = Self::finish(prepared, memory, entries)?;
        for (member, before) in self.members.iter().zip(before) {
            let bytes = member.device_memory().saturating_sub(before);
            member.report_allocations(&[Allocation { allocator: "device memory", bytes }]);
        }
        Ok(methods)
    }

    /// Completes loading of prepared methods in their memory.
    fn finish<'g>(
        mut prepared: Vec<Prepared<'g>>,
        memory: &'g Memory,
        entries: &[Entry],
    ) -> Result<Methods<'g>, Error> {
        let mut planned: Vec<&mut [u8]> =
            memory.planned.borrow_mut().iter_mut().map(Buffer::bytes_mut).collect();
        let scratch = memory.scratch.borrow_mut().bytes_mut();
        if let [own] = memory.own.as_slice()
            && let (Some(prepared), Some(entry)) = (prepared.pop(), entries.first())
        {
            let of_load = |error: InitError| Error::of_load(&entry.name, error);
            let arena = own.arena.borrow_mut().bytes();
            let lent = MethodMemory { arena, planned: &mut planned, scratch };
            let mut method = prepared.finish(lent).map_err(of_load)?;
            own.bind(&entry.name, &mut method.attached())?;
            return Ok(Methods::One(method));
        }
        let first = entries.first().map_or("", |entry| &entry.name);
        let mut shared = SharedMemory::new(&mut planned, scratch)
            .map_err(|error| Error::of_load(first, error))?;
        let mut methods = Vec::new();
        for ((prepared, own), entry) in prepared.into_iter().zip(&memory.own).zip(entries) {
            let of_load = |error: InitError| Error::of_load(&entry.name, error);
            let arena = own.arena.borrow_mut().bytes();
            let mut method = prepared.finish_shared(&mut shared, arena).map_err(of_load)?;
            own.bind(&entry.name, &mut method.attach(&mut shared).map_err(of_load)?)?;
            methods.push(method);
        }
        Ok(Methods::Several { methods, memory: shared })
    }

    /// Reports host memory to the tracers. Shared memory is reported for the first method only.
    fn report_memory(&self, memory: &Memory) {
        for (number, (member, own)) in self.members.iter().zip(&memory.own).enumerate() {
            if number == 0 {
                member.report_allocations(&memory.allocations);
            }
            member.report_allocations(&own.allocations);
        }
    }

    /// Allocates the memory of the methods. They share planned and scratch memory in the maximum
    /// size.
    fn allocate(&self, prepared: &[Prepared<'_>], entries: &[Entry]) -> Result<Memory, Error> {
        let mut planned: Vec<usize> = Vec::new();
        let (mut scratch, mut total) = (0, 0u64);
        for prepared in prepared {
            let report = MemoryReport::of(prepared)?;
            total = total.saturating_add(report.own());
            scratch = scratch.max(report.scratch);
            planned.resize(planned.len().max(report.planned.len()), 0);
            for (size, needed) in planned.iter_mut().zip(report.planned) {
                *size = needed.max(*size);
            }
        }
        let shared =
            planned.iter().fold(scratch as u64, |sum, size| sum.saturating_add(*size as u64));
        let total = total.saturating_add(shared);
        for member in &self.members {
            member.environment().check_memory(&member.request.name, total)?;
        }
        let own = prepared.iter().zip(entries);
        let own = own.map(|(prepared, entry)| OwnMemory::allocate(prepared, &entry.signature));
        let planned = planned.into_iter().map(Buffer::zeroed);
        let allocations =
            [("planned memory", shared - scratch as u64), ("scratch memory", scratch as u64)];
        Ok(Memory {
            total,
            shared,
            allocations: allocations.map(|(allocator, bytes)| Allocation { allocator, bytes }),
            scratch: MutBorrow::new(Buffer::zeroed(scratch)?),
            planned: MutBorrow::new(planned.collect::<Result<_, _>>()?),
            own: own.collect::<Result<_, _>>()?,
        })
    }
}

impl Group {
    /// Tracer of a method.
    pub(super) fn tracer(&self, index: usize) -> Option<&SharedTracer> {
        let member = self.loaded.borrow_owner().members.get(index)?;
        member.environment().tracer(&member.request.options)
    }

    /// What a failed instruction of a method asserts, if it is an assertion.
    pub(super) fn assertion(&self, index: usize, error: &ExecuteError) -> Option<String> {
        if !error.name.starts_with("aten::_assert") {
            return None;
        }
        let member = self.loaded.borrow_owner().members.get(index)?;
        let meta = member.environment().method_meta(&self.entry(index).name).ok()?;
        meta.instruction_text(error.instruction).ok()?.map(String::from)
    }

    /// Loads methods. Several methods share planned memory.
    pub(super) fn load(requests: Vec<Request>) -> Result<Self, Error> {
        let entries = requests.iter().map(|Request { module, setting, name, .. }| {
            let meta = setting.environment.method_meta(name)?;
            let signature = Signature::of(&meta).map_err(|error| Error::of_load(name, error))?;
            let preset = signature.inputs.iter().map(|_| Value::None).collect();
            Ok(Entry { module: *module, name: name.clone(), signature, preset })
        });
        let entries = entries.collect::<Result<Vec<_>, Error>>()?;
        let storage = GroupStorage::new(requests)?;
        let loaded = Loaded::try_new(storage, |storage| storage.build(&entries))?;
        Ok(Group { entries, loaded })
    }

    /// Total memory of the methods in bytes.
    pub(super) fn memory_bytes(&self) -> u64 {
        self.loaded.borrow_owner().memory.get().map_or(0, |memory| memory.total)
    }

    /// Returns an error if copies of `bytes` bytes, in addition to the memory of the methods,
    /// exceed the memory limit.
    pub(super) fn check_copies(&self, index: usize, bytes: u64) -> Result<(), Error> {
        let Some(member) = self.loaded.borrow_owner().members.get(index) else { return Ok(()) };
        let needed = self.memory_bytes().saturating_add(bytes);
        member.environment().check_memory(&member.request.name, needed)
    }

    /// Bytes of planned and scratch memory, which the methods share.
    pub(super) fn shared_bytes(&self) -> u64 {
        self.loaded.borrow_owner().memory.get().map_or(0, |memory| memory.shared)
    }

    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.entries.iter().map(|entry| entry.name.as_str())
    }

    /// Index of a module's method in this group.
    pub(super) fn position(&self, module: usize, name: &str) -> Option<usize> {
        self.entries.iter().position(|entry| entry.module == module && entry.name == name)
    }

    /// Indices of all methods of the same module as the one at `index`, itself included.
    pub(super) fn siblings(&self, index: usize) -> Vec<usize> {
        let module = self.entry(index).module;
        let entries = self.entries.iter().enumerate();
        entries.filter(|(_, entry)| entry.module == module).map(|(index, _)| index).collect()
    }

    pub(super) fn entry(&self, index: usize) -> &Entry {
        &self.entries[index]
    }

    pub(super) fn entry_mut(&mut self, index: usize) -> &mut Entry {
        &mut self.entries[index]
    }

    fn of_load(&self, index: usize) -> impl Fn(InitError) -> Error + use<> {
        let name = self.entry(index).name.clone();
        move |error| Error::of_load(&name, error)
    }

    /// Accesses a method.
    pub(super) fn with<'s, R>(
        &'s self,
        index: usize,
        look: impl FnOnce(&'s Method<'_>) -> R,
    ) -> Result<R, Error> {
        self.loaded
            .with_dependent(|_, methods| match methods {
                Methods::One(method) => Ok(look(method)),
                Methods::Several { methods, memory } => {
                    let method = methods.get(index).ok_or(NOT_LOADED)?;
                    method.view(memory).map(look)
                }
            })
            .map_err(self.of_load(index))
    }

    /// Accesses a method mutably.
    pub(super) fn with_mut<'s, R>(
        &'s mut self,
        index: usize,
        work: impl FnOnce(Attached<'s, '_>) -> R,
    ) -> Result<R, Error> {
        let of_load = self.of_load(index);
        self.loaded
            .with_dependent_mut(|_, methods| match methods {
                Methods::One(method) => Ok(work(method.attached())),
                Methods::Several { methods, memory } => {
                    let method = methods.get_mut(index).ok_or(NOT_LOADED)?;
                    method.attach(memory).map(work)
                }
            })
            .map_err(of_load)
    }
}

/// Unreachable: a group has as many methods as entries.
const NOT_LOADED: InitError = InitError::Shared { what: "it is not loaded" };
