//! Backends: what runs the parts of a model that were lowered for them.
//!
//! A [`Backend`] makes a [`Delegate`] from the bytes that its exporter wrote; the delegate then
//! runs whenever the method calls it. Backends are named in the [`Registry`](crate::Registry) that
//! a method is loaded with.

use crate::call::DelegateCall;
use crate::data_map::{Blob, DataMap};
use crate::error::{DelegateError, Message, ProgramError};
use crate::format::flatbuffer::Vector;
use crate::format::program_schema::CompileSpecTable;
use crate::layout::TensorInfo;
use crate::memory::arena::{Arena, Exhausted};
use crate::parallel::Parallel;
use crate::program::Program;
use crate::tracer::{DelegateEvent, EventTracer};
use core::marker::PhantomData;
use core::ptr::NonNull;

/// A way to run lowered parts of models.
pub trait Backend: Sync {
    /// The name that programs call it by, such as `VulkanBackend`.
    fn name(&self) -> &'static str;

    /// Whether it can work here, or why not.
    ///
    /// # Errors
    /// The reason: no driver, no device.
    fn is_available(&self) -> Result<(), DelegateError> {
        Ok(())
    }

    /// The memory of its own, on a device, that its delegates use; `None` if they use none, or it
    /// does not count.
    fn device_memory(&self) -> Option<DeviceMemory> {
        None
    }

    /// How fast what it runs on is, where it can say; devices need not be opened for that. It is
    /// asked by who chooses among processors.
    fn rates(&self) -> Option<Rates> {
        None
    }

    /// Bytes of the method arena that [`init`](Backend::init) will take for this delegate,
    /// placement included. It is asked before anything is reserved. [`delegate_size`] gives the
    /// bytes of a delegate placed alone.
    ///
    /// # Errors
    /// The processed bytes are not what the backend understands.
    fn arena_bytes(&self, delegate: &DelegateInfo<'_>) -> Result<usize, DelegateError>;

    /// Makes a delegate: reads the processed bytes, compiles, uploads. The delegate may borrow the
    /// backend.
    ///
    /// # Errors
    /// The delegate cannot be run here; the method is not loaded then.
    fn init<'m>(
        &'m self,
        context: &mut InitContext<'_, 'm>,
    ) -> Result<DelegateBox<'m>, DelegateError>;
}

/// How fast a processor is, roughly: within a factor of two, which is enough to choose among those
/// that differ by more.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rates {
    /// Arithmetic operations in a second, in products and convolutions of 32-bit floating point.
    pub operations: f64,
    /// Bytes that it reads and writes in a second, in its own memory.
    pub bytes: f64,
    /// Seconds that each call takes beyond that.
    pub call: f64,
    /// Seconds from the start of a region to its end, however small it is.
    pub region: f64,
    /// Bytes in a second from the memory of kernels to its own, and back; infinite where these are
    /// one.
    pub transfer: f64,
    /// Whether it sees regions as a whole: then views, and element-wise calls behind others, take
    /// no time of their own.
    pub fuses: bool,
    /// Whether it is a device by name, but software on the CPU.
    pub emulated: bool,
}

/// Memory on a device.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeviceMemory {
    /// Bytes in use.
    pub used: u64,
    /// The most bytes that were in use at a time.
    pub peak: u64,
}

impl DeviceMemory {
    /// So many bytes in use, and at most so many at a time.
    pub const fn new(used: u64, peak: u64) -> Self {
        DeviceMemory { used, peak }
    }
}

/// A lowered part of a model, ready to run.
pub trait Delegate: Send {
    /// Runs it: reads its inputs, writes its outputs.
    ///
    /// # Errors
    /// An argument does not fit, or the device failed.
    fn execute(&mut self, call: &mut DelegateCall<'_, '_>) -> Result<(), DelegateError>;

    /// Runs it, but gives of one output, argument `arg` of the call, only where the largest number
    /// of each row is, as [`Method::execute_argmax`](crate::Method::execute_argmax) says it. The
    /// answer is how many rows there are; or `None`, which all delegates may give: then the output
    /// was written, as by [`execute`](Self::execute).
    ///
    /// # Errors
    /// As [`execute`](Self::execute), or there are more rows than `indices`.
    fn execute_argmax(
        &mut self,
        call: &mut DelegateCall<'_, '_>,
        arg: usize,
        indices: &mut [i32],
    ) -> Result<Option<usize>, DelegateError> {
        let _ = (arg, indices);
        self.execute(call).map(|()| None)
    }

    /// Forgets the state that it keeps between runs, such as a KV cache.
    ///
    /// # Errors
    /// The device failed.
    fn reset(&mut self) -> Result<(), DelegateError> {
        Ok(())
    }

    /// A tensor that it keeps between runs and shows to callers, by number from 0 on; `None` behind
    /// the last.
    fn state(&self, _number: usize) -> Option<DelegateState<'_>> {
        None
    }

    /// Copies such a tensor to memory of its size, in the order of its dimensions.
    ///
    /// # Errors
    /// There is none of this number, the memory is of another size, or the device failed.
    fn read_state(&self, _number: usize, _target: &mut [u8]) -> Result<(), DelegateError> {
        no_state()
    }

    /// Gives such a tensor other contents.
    ///
    /// # Errors
    /// As [`read_state`](Self::read_state).
    fn write_state(&mut self, _number: usize, _source: &[u8]) -> Result<(), DelegateError> {
        no_state()
    }
}

#[cold]
#[inline(never)]
fn no_state() -> Result<(), DelegateError> {
    Err(DelegateError::Unsupported(Message::from("no state")))
}

/// A tensor that a delegate keeps between runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DelegateState<'d> {
    /// Its name in the model, where it is known.
    pub name: Option<&'d str>,
    /// Type and shape; its elements are in the order of its dimensions.
    pub info: TensorInfo,
}

/// Bytes of the method arena that placing a delegate of type `D` takes.
pub const fn delegate_size<D: Delegate>() -> usize {
    // Delegates are placed at multiples of ARENA_ALIGN.
    size_of::<D>()
}

/// A delegate as the program describes it.
#[derive(Debug, Clone, Copy)]
pub struct DelegateInfo<'p> {
    pub(crate) backend: &'p str,
    pub(crate) method: &'p str,
    pub(crate) index: usize,
    pub(crate) processed: Blob<'p>,
    pub(crate) compile_specs: Vector<'p, CompileSpecTable<'p>>,
    pub(crate) program: Program<'p>,
    pub(crate) data: &'p [DataMap<'p>],
}

impl<'p> DelegateInfo<'p> {
    /// The name of the backend.
    pub fn backend(&self) -> &'p str {
        self.backend
    }

    /// The name of the method that it is part of.
    pub fn method(&self) -> &'p str {
        self.method
    }

    /// Its number within the method.
    pub fn index(&self) -> usize {
        self.index
    }

    /// What the exporter made of the model's part, for the backend alone to understand. Bytes that
    /// storage [lends](Blob::lend) stay valid as long as the program; others are read.
    pub fn processed(&self) -> Blob<'p> {
        self.processed
    }

    /// Keys and values that the exporter added.
    ///
    /// # Errors
    /// The file is malformed.
    pub fn compile_specs(
        &self,
    ) -> impl Iterator<Item = Result<(&'p str, &'p [u8]), ProgramError>> + use<'p> {
        self.compile_specs.iter().map(|spec| {
            let spec = spec?;
            Ok((spec.key()?.unwrap_or(""), spec.value()?.bytes()))
        })
    }

    /// Data of this name: from the program, else from the external data that the method is loaded
    /// with.
    ///
    /// # Errors
    /// A file is malformed.
    pub fn named_data(&self, key: &str) -> Result<Option<Blob<'p>>, ProgramError> {
        if let Some(data) = self.program.named_data(key)? {
            return Ok(Some(data));
        }
        for map in self.data {
            if let Some(data) = map.get(key)? {
                return Ok(Some(data));
            }
        }
        Ok(None)
    }
}

/// What a backend gets to make a delegate.
pub struct InitContext<'c, 'm> {
    pub(crate) info: DelegateInfo<'m>,
    pub(crate) processed: Processed<'c, 'm>,
    pub(crate) arena: &'c mut Arena<'m>,
    pub(crate) options: &'c [RuntimeOption<'c>],
    pub(crate) parallel: &'m dyn Parallel,
    pub(crate) tracer: Option<&'c dyn EventTracer>,
}

/// The processed bytes of a delegate, and how long they stay.
#[derive(Debug, Clone, Copy)]
pub enum Processed<'c, 'm> {
    /// As long as the method: they lie in the program's storage.
    Lent(&'m [u8]),
    /// Until `init` returns: they were read into scratch memory. A delegate copies what it keeps.
    Temporary(&'c [u8]),
}

impl<'c, 'm: 'c> Processed<'c, 'm> {
    /// The bytes, wherever they are.
    pub fn bytes(self) -> &'c [u8] {
        match self {
            Processed::Lent(bytes) => bytes,
            Processed::Temporary(bytes) => bytes,
        }
    }
}

/// A setting for a backend that comes from the caller at load, not from the file.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RuntimeOption<'o> {
    /// The backend that it is for.
    pub backend: &'o str,
    /// Its name.
    pub key: &'o str,
    /// Its value.
    pub value: OptionValue<'o>,
}

/// The value of a [`RuntimeOption`].
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub enum OptionValue<'o> {
    /// A switch.
    Bool(bool),
    /// A number.
    Int(i64),
    /// A text.
    String(&'o str),
}

fn exhausted(_: Exhausted) -> DelegateError {
    DelegateError::OutOfMemory(Message::from("method arena"))
}

impl<'c, 'm> InitContext<'c, 'm> {
    /// The delegate as the program describes it.
    pub fn info(&self) -> &DelegateInfo<'m> {
        &self.info
    }

    /// The processed bytes. A delegate that does not keep them frees them by doing nothing: core
    /// holds no copy.
    pub fn processed(&self) -> Processed<'c, 'm> {
        self.processed
    }

    /// The caller's options for this backend.
    pub fn options(&self) -> impl Iterator<Item = (&'c str, OptionValue<'c>)> + use<'c, 'm> {
        let backend = self.info.backend;
        let options = self.options;
        options
            .iter()
            .filter(move |option| option.backend == backend)
            .map(|option| (option.key, option.value))
    }

    /// Memory that lives as long as the method, zeroed, at a multiple of 16 bytes.
    ///
    /// # Errors
    /// The arena has no more: [`Backend::arena_bytes`] asked for too little.
    pub fn allocate(&mut self, bytes: usize) -> Result<&'m mut [u8], DelegateError> {
        self.arena.zeroed(bytes, crate::memory::ARENA_ALIGN).map_err(exhausted)
    }

    /// Moves the delegate into the method arena.
    ///
    /// # Errors
    /// As [`allocate`](Self::allocate).
    pub fn place<D: Delegate + 'm>(
        &mut self,
        delegate: D,
    ) -> Result<DelegateBox<'m>, DelegateError> {
        self.arena.take(0, crate::memory::ARENA_ALIGN).map_err(exhausted)?;
        let place: &'m mut D = self.arena.place_value(delegate).map_err(exhausted)?;
        Ok(DelegateBox::new(place))
    }

    /// How to use several threads, for as long as the method lives.
    pub fn parallel(&self) -> &'m dyn Parallel {
        self.parallel
    }

    /// Tells the tracer, if there is one, of an event while compiling.
    pub fn trace(&self, event: &DelegateEvent<'_>) {
        if let Some(tracer) = self.tracer {
            tracer.delegate_event(event);
        }
    }

    /// Whether anybody listens to [`trace`](Self::trace).
    pub fn is_traced(&self) -> bool {
        self.tracer.is_some()
    }
}

/// A delegate in the method arena, dropped with the method.
pub struct DelegateBox<'m> {
    delegate: NonNull<dyn Delegate + 'm>,
    owner: PhantomData<&'m mut (dyn Delegate + 'm)>,
}

// SAFETY: it owns a delegate, which is `Send`, through an exclusive borrow of the arena.
unsafe impl Send for DelegateBox<'_> {}

impl<'m> DelegateBox<'m> {
    fn new<D: Delegate + 'm>(place: &'m mut D) -> Self {
        let delegate: NonNull<dyn Delegate + 'm> = NonNull::from(place);
        DelegateBox { delegate, owner: PhantomData }
    }

    pub(crate) fn get(&self) -> &(dyn Delegate + 'm) {
        // SAFETY: as in `get_mut`; while this borrow of the box lasts, there is no exclusive one.
        unsafe { self.delegate.as_ref() }
    }

    pub(crate) fn get_mut(&mut self) -> &mut (dyn Delegate + 'm) {
        // SAFETY: the pointer comes from a `&'m mut` that this box consumed, so nothing else refers
        // to the delegate, and it is alive until the box drops it.
        unsafe { self.delegate.as_mut() }
    }
}

impl Drop for DelegateBox<'_> {
    fn drop(&mut self) {
        // SAFETY: the delegate was moved into the arena, which never drops its contents; this box
        // is its only owner and is gone after this.
        unsafe { self.delegate.drop_in_place() }
    }
}

impl core::fmt::Debug for DelegateBox<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("DelegateBox")
    }
}
