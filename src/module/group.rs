//! Methods that are loaded together, with the memory that they live in.

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
    Allocation, Attached, Event, EventKind, InitError, Method, MethodMemory, Prepared,
    SharedMemory, SharedMethod,
};

/// What methods are loaded for.
#[derive(Clone)]
pub(super) struct Setting {
    pub(super) environment: Arc<Environment>,
    /// Runs end while it is true.
    pub(super) cancel: Arc<AtomicBool>,
}

/// A method to be loaded, of one of several modules.
pub(super) struct Request {
    /// Which of them.
    pub(super) module: usize,
    pub(super) setting: Setting,
    pub(super) name: String,
    pub(super) options: MethodOptions,
}

/// All that loaded methods borrow from: what they share with others, and memory of their own.
struct Ground {
    members: Vec<Member>,
    /// Allocated when the methods are prepared.
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

    /// Tells the tracer, if there is one, of memory that was set aside.
    fn tell(&self, allocations: &[Allocation<'_>]) {
        let Some(tracer) = self.environment().tracer(&self.request.options) else { return };
        for allocation in allocations.iter().filter(|allocation| allocation.bytes > 0) {
            tracer.allocated(allocation);
        }
    }

    /// Bytes that backends use on devices; looked at where somebody listens.
    fn device_memory(&self) -> u64 {
        match self.environment().tracer(&self.request.options) {
            Some(_) => self.environment().device_memory().used,
            None => 0,
        }
    }
}

/// The memory that methods say they need when they are prepared.
struct Memory {
    /// Bytes that count against the limit.
    total: u64,
    /// Bytes of planned and scratch memory.
    shared: u64,
    allocations: [Allocation<'static>; 2],
    scratch: MutBorrow<Buffer>,
    planned: MutBorrow<Vec<Buffer>>,
    own: Vec<OwnMemory>,
}

/// The memory of one method alone.
struct OwnMemory {
    arena: MutBorrow<ArenaMemory>,
    /// For inputs and outputs without a place in the plan.
    inputs: MutBorrow<Vec<Option<Buffer>>>,
    outputs: MutBorrow<Vec<Option<Buffer>>>,
    /// For state without a place in the plan, by value index.
    state: MutBorrow<Vec<(usize, Buffer)>>,
    allocations: [Allocation<'static>; 3],
}

/// Loaded methods: one with planned memory of its own, or several that use the same in turn.
enum Methods<'g> {
    One(Method<'g>),
    Several { methods: Vec<SharedMethod<'g>>, memory: SharedMemory<'g> },
}

self_cell!(
    struct Loaded {
        owner: Ground,
        #[not_covariant]
        dependent: Methods,
    }
);

/// One or several loaded methods. Those that share planned memory are loaded together, since
/// loading gives state its first values.
pub(super) struct Group {
    entries: Vec<Entry>,
    loaded: Loaded,
}

/// What the facade keeps of a loaded method.
pub(super) struct Entry {
    /// Which module it is of.
    module: usize,
    pub(super) name: String,
    pub(super) signature: Signature,
    /// Inputs that stay set from call to call.
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

    /// Gives a method the memory that the exporter left to the caller.
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

/// Tells a tracer of loading, which takes several steps.
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

impl Ground {
    fn new(requests: Vec<Request>) -> Result<Self, Error> {
        let members = requests.into_iter().map(|request| {
            let environment = &request.setting.environment;
            let tables = environment.tables(&environment.method_meta(&request.name)?)?;
            Ok(Member { request, tables: MutBorrow::new(tables) })
        });
        let members = members.collect::<Result<_, Error>>()?;
        Ok(Ground { members, memory: OnceCell::new() })
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
        self.tell_of_memory(memory);
        let before: Vec<_> = self.members.iter().map(Member::device_memory).collect();
        let methods = Self::finish(prepared, memory, entries)?;
        for (member, before) in self.members.iter().zip(before) {
            let bytes = member.device_memory().saturating_sub(before);
            member.tell(&[Allocation { allocator: "device memory", bytes }]);
        }
        Ok(methods)
    }

    /// Loads what was prepared into its memory.
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

    /// Tells tracers of memory on the host. What methods share is told to the first.
    fn tell_of_memory(&self, memory: &Memory) {
        for (number, (member, own)) in self.members.iter().zip(&memory.own).enumerate() {
            if number == 0 {
                member.tell(&memory.allocations);
            }
            member.tell(&own.allocations);
        }
    }

    /// The memory that the methods need: planned and scratch memory once, large enough for each.
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
    /// Who listens to a method.
    pub(super) fn tracer(&self, index: usize) -> Option<&SharedTracer> {
        let member = self.loaded.borrow_owner().members.get(index)?;
        member.environment().tracer(&member.request.options)
    }

    /// Loads methods; several share planned memory.
    pub(super) fn load(requests: Vec<Request>) -> Result<Self, Error> {
        let entries = requests.iter().map(|Request { module, setting, name, .. }| {
            let meta = setting.environment.method_meta(name)?;
            let signature = Signature::of(&meta).map_err(|error| Error::of_load(name, error))?;
            let preset = signature.inputs.iter().map(|_| Value::None).collect();
            Ok(Entry { module: *module, name: name.clone(), signature, preset })
        });
        let entries = entries.collect::<Result<Vec<_>, Error>>()?;
        let ground = Ground::new(requests)?;
        let loaded = Loaded::try_new(ground, |ground| ground.build(&entries))?;
        Ok(Group { entries, loaded })
    }

    /// Bytes of all memory of the methods.
    pub(super) fn memory_bytes(&self) -> u64 {
        self.loaded.borrow_owner().memory.get().map_or(0, |memory| memory.total)
    }

    /// Fails if copies of so many bytes, beside the memory of the methods, exceed the limit of a
    /// method.
    pub(super) fn check_copies(&self, index: usize, bytes: u64) -> Result<(), Error> {
        let Some(member) = self.loaded.borrow_owner().members.get(index) else { return Ok(()) };
        let needed = self.memory_bytes().saturating_add(bytes);
        member.environment().check_memory(&member.request.name, needed)
    }

    /// Bytes of planned and scratch memory, which the methods use in turn.
    pub(super) fn shared_bytes(&self) -> u64 {
        self.loaded.borrow_owner().memory.get().map_or(0, |memory| memory.shared)
    }

    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.entries.iter().map(|entry| entry.name.as_str())
    }

    /// The method of this name of a module, if it is one of these.
    pub(super) fn position(&self, module: usize, name: &str) -> Option<usize> {
        self.entries.iter().position(|entry| entry.module == module && entry.name == name)
    }

    /// The methods that are of the same module as one of them.
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

    /// Looks at a method.
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

    /// Uses a method.
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

/// Cannot happen: a group has as many methods as entries.
const NOT_LOADED: InitError = InitError::Shared { what: "it is not loaded" };
