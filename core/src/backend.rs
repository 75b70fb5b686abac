//! Backends: executors for the parts of a model that were lowered to them.
//!
//! A [`Backend`] creates a [`Delegate`] from the bytes that its exporter wrote; the delegate runs
//! each time the method calls it. Backends are listed in the [`Registry`](crate::Registry) that a
//! method is loaded with.

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

/// An executor for lowered parts of models.
pub trait Backend: Sync {
    /// Name that programs refer to, such as `VulkanBackend`.
    fn name(&self) -> &'static str;

    /// Checks whether the backend works on this machine.
    ///
    /// # Errors
    /// The reason why not: no driver, no device.
    fn is_available(&self) -> Result<(), DelegateError> {
        Ok(())
    }

    /// Usage of device memory by this backend's delegates; `None` if they use none or it is not
    /// tracked.
    fn device_memory(&self) -> Option<DeviceMemory> {
        None
    }

    /// Estimated speed of the processor, for the cost model that chooses among processors. Must not
    /// require opening the device. `None` if unknown.
    fn rates(&self) -> Option<Rates> {
        None
    }

    /// Bytes of the method arena that [`init`](Backend::init) needs for this delegate, including
    /// its placement ([`delegate_size`]). Called before anything is allocated.
    ///
    /// # Errors
    /// The processed bytes are not valid for this backend.
    fn arena_bytes(&self, delegate: &DelegateInfo<'_>) -> Result<usize, DelegateError>;

    /// Creates a delegate: parses the processed bytes, compiles, uploads. The delegate may borrow
    /// the backend.
    ///
    /// # Errors
    /// The delegate cannot run here; loading the method fails.
    fn init<'m>(
        &'m self,
        context: &mut InitContext<'_, 'm>,
    ) -> Result<DelegateBox<'m>, DelegateError>;
}

/// Estimated speed of a processor, for the cost model. Accurate within a factor of two, which
/// suffices to choose among processors that differ by more.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rates {
    /// Throughput of fp32 matrix multiplications and convolutions, in operations per second.
    pub operations: f64,
    /// Bandwidth of the processor's own memory (reads and writes), in bytes per second.
    pub bytes: f64,
    /// Overhead of each call, in seconds.
    pub call: f64,
    /// Overhead of each region, in seconds, however small the region is.
    pub region: f64,
    /// Transfer rate between host memory and the processor's memory, in bytes per second; infinite
    /// if they are the same.
    pub transfer: f64,
    /// Whether the processor compiles regions as a whole: views and element-wise epilogues are then
    /// free.
    pub fuses: bool,
    /// Whether this is a software implementation of a device that runs on the CPU.
    pub emulated: bool,
}

/// Usage of device memory.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeviceMemory {
    /// Bytes in use.
    pub used: u64,
    /// Peak usage in bytes.
    pub peak: u64,
}

impl DeviceMemory {
    /// Creates a usage record from current and peak bytes.
    pub const fn new(used: u64, peak: u64) -> Self {
        DeviceMemory { used, peak }
    }
}

/// A lowered part of a model, ready to run.
pub trait Delegate: Send {
    /// Runs the delegate: reads inputs, writes outputs.
    ///
    /// # Errors
    /// An argument does not fit, or the device failed.
    fn execute(&mut self, call: &mut DelegateCall<'_, '_>) -> Result<(), DelegateError>;

    /// Runs the delegate, but reduces one output (argument `arg` of the call) to the argmax of each
    /// row, with the semantics of [`Method::execute_argmax`](crate::Method::execute_argmax).
    /// Returns the number of rows. Any delegate may return `None` instead, after writing the output
    /// like [`execute`](Self::execute).
    ///
    /// # Errors
    /// As [`execute`](Self::execute), or the output has more rows than `indices`.
    fn execute_argmax(
        &mut self,
        call: &mut DelegateCall<'_, '_>,
        arg: usize,
        indices: &mut [i32],
    ) -> Result<Option<usize>, DelegateError> {
        let _ = (arg, indices);
        self.execute(call).map(|()| None)
    }

    /// Resets the state that is kept between runs, such as a KV cache.
    ///
    /// # Errors
    /// The device failed.
    fn reset(&mut self) -> Result<(), DelegateError> {
        Ok(())
    }

    /// Describes a state tensor that is kept between runs and exposed to callers, numbered from 0;
    /// `None` if out of range.
    fn state(&self, _number: usize) -> Option<DelegateState<'_>> {
        None
    }

    /// Copies a state tensor to `target`, which has its size, in row-major order.
    ///
    /// # Errors
    /// The state tensor does not exist, `target` has another size, or the device failed.
    fn read_state(&self, _number: usize, _target: &mut [u8]) -> Result<(), DelegateError> {
        no_state()
    }

    /// Overwrites a state tensor.
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
    Err(DelegateError::Unsupported(Message::from("access to delegate state")))
}

/// A tensor that a delegate keeps between runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DelegateState<'d> {
    /// Name in the model, if known.
    pub name: Option<&'d str>,
    /// Dtype and shape; elements are row-major.
    pub info: TensorInfo,
}

/// Bytes of the method arena that a delegate of type `D` occupies.
pub const fn delegate_size<D: Delegate>() -> usize {
    // Delegates are placed at multiples of ARENA_ALIGN.
    size_of::<D>()
}

/// Description of a delegate in its program.
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

    /// Name of the method that contains the delegate.
    pub fn method(&self) -> &'p str {
        self.method
    }

    /// Index within the method.
    pub fn index(&self) -> usize {
        self.index
    }

    /// The delegate's serialised data, in the backend's own format. Bytes that storage
    /// [lends](Blob::lend) stay valid for the lifetime of the program; otherwise they must be read.
    pub fn processed(&self) -> Blob<'p> {
        self.processed
    }

    /// Compile specs: key-value pairs from the exporter.
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

    /// Looks up named data: in the program first, then in the external data that the method is
    /// loaded with.
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

/// Context for creating a delegate.
pub struct InitContext<'c, 'm> {
    pub(crate) info: DelegateInfo<'m>,
    pub(crate) processed: Processed<'c, 'm>,
    pub(crate) arena: &'c mut Arena<'m>,
    pub(crate) options: &'c [RuntimeOption<'c>],
    pub(crate) parallel: &'m dyn Parallel,
    pub(crate) tracer: Option<&'c dyn EventTracer>,
}

/// Processed bytes of a delegate, with their lifetime.
#[derive(Debug, Clone, Copy)]
pub enum Processed<'c, 'm> {
    /// Valid for the lifetime of the method: borrowed from the program's storage.
    Lent(&'m [u8]),
    /// Valid until `init` returns: read into scratch memory. A delegate must copy the bytes that it
    /// needs later.
    Temporary(&'c [u8]),
}

impl<'c, 'm: 'c> Processed<'c, 'm> {
    /// Returns the bytes of either variant.
    pub fn bytes(self) -> &'c [u8] {
        match self {
            Processed::Lent(bytes) => bytes,
            Processed::Temporary(bytes) => bytes,
        }
    }
}

/// A load-time setting for a backend, from the caller instead of the file.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RuntimeOption<'o> {
    /// Name of the backend.
    pub backend: &'o str,
    /// Name of the option.
    pub key: &'o str,
    /// Value of the option.
    pub value: OptionValue<'o>,
}

/// The value of a [`RuntimeOption`].
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub enum OptionValue<'o> {
    /// A boolean.
    Bool(bool),
    /// An integer.
    Int(i64),
    /// A string.
    String(&'o str),
}

fn exhausted(_: Exhausted) -> DelegateError {
    DelegateError::OutOfMemory(Message::from("the method arena is exhausted"))
}

impl<'c, 'm> InitContext<'c, 'm> {
    /// Description of the delegate in its program.
    pub fn info(&self) -> &DelegateInfo<'m> {
        &self.info
    }

    /// The processed bytes. Core keeps no copy, so a delegate that does not keep them needs no
    /// cleanup.
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

    /// Allocates zeroed memory with the lifetime of the method, at a multiple of 16 bytes.
    ///
    /// # Errors
    /// The arena is exhausted: [`Backend::arena_bytes`] returned too little.
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
        self.arena.allocate(0, crate::memory::ARENA_ALIGN).map_err(exhausted)?;
        let delegate: &'m mut D = self.arena.place_value(delegate).map_err(exhausted)?;
        Ok(DelegateBox::new(delegate))
    }

    /// Threads for use during the lifetime of the method.
    pub fn parallel(&self) -> &'m dyn Parallel {
        self.parallel
    }

    /// Reports an event during compilation to the tracer, if any.
    pub fn trace(&self, event: &DelegateEvent<'_>) {
        if let Some(tracer) = self.tracer {
            tracer.delegate_event(event);
        }
    }

    /// Whether a tracer receives events from [`trace`](Self::trace).
    pub fn is_traced(&self) -> bool {
        self.tracer.is_some()
    }
}

/// A delegate in the method arena, dropped with the method.
pub struct DelegateBox<'m> {
    delegate: NonNull<dyn Delegate + 'm>,
    owner: PhantomData<&'m mut (dyn Delegate + 'm)>,
}

// SAFETY: the box owns a delegate, which is `Send`, through an exclusive borrow of the arena.
unsafe impl Send for DelegateBox<'_> {}

impl<'m> DelegateBox<'m> {
    fn new<D: Delegate + 'm>(delegate: &'m mut D) -> Self {
        let delegate: NonNull<dyn Delegate + 'm> = NonNull::from(delegate);
        DelegateBox { delegate, owner: PhantomData }
    }

    pub(crate) fn get(&self) -> &(dyn Delegate + 'm) {
        // SAFETY: as in `get_mut`; while this borrow of the box lasts, no exclusive one exists.
        unsafe { self.delegate.as_ref() }
    }

    pub(crate) fn get_mut(&mut self) -> &mut (dyn Delegate + 'm) {
        // SAFETY: the pointer comes from a `&'m mut` that this box consumed, so nothing else refers
        // to the delegate, and the delegate is alive until the box drops it.
        unsafe { self.delegate.as_mut() }
    }
}

impl Drop for DelegateBox<'_> {
    fn drop(&mut self) {
        // SAFETY: the delegate was moved into the arena, which never drops its contents. This box
        // is the only owner and cannot be used after this call.
        unsafe { self.delegate.drop_in_place() }
    }
}

impl core::fmt::Debug for DelegateBox<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("DelegateBox")
    }
}
