//! A loaded method: resolved instructions over values in the caller's memory.

mod execute;
pub use execute::Progress;
mod io;
mod load;

use crate::arguments::ArgumentSource;
use crate::backend::{DelegateBox, RuntimeOption};
use crate::data_map::DataMap;
use crate::kernel::{InvokeFn, Kernel};
use crate::memory::region::Region;
use crate::meta::MethodMeta;
use crate::parallel::{Parallel, Serial};
use crate::tracer::EventTracer;
use crate::values::Values;

/// The memory of a method, lent by the caller for as long as the method lives.
///
/// [`MethodMeta`] tells the exact sizes. All must start at multiples of
/// [`ARENA_ALIGN`](crate::ARENA_ALIGN) bytes.
#[derive(Debug)]
pub struct MethodMemory<'m, 'b> {
    /// For what the method is made of: [`MemoryNeeds::arena`](crate::MemoryNeeds::arena) bytes.
    pub arena: &'m mut [u8],
    /// For tensors: one buffer for each [`MethodMeta::planned_buffer_size`]. Only the list is given back after loading,
    /// and holds empty buffers then.
    pub planned: &'b mut [&'m mut [u8]],
    /// For kernels while they run: [`MemoryNeeds::scratch`](crate::MemoryNeeds::scratch) bytes.
    pub scratch: &'m mut [u8],
}

/// What else a method is loaded with.
#[derive(Clone, Copy)]
#[non_exhaustive]
pub struct LoadOptions<'m> {
    /// External data, searched in order.
    pub data: &'m [DataMap<'m>],
    /// How kernels use several threads. Serial by default.
    pub parallel: &'m dyn Parallel,
    /// Who is told of events.
    pub tracer: Option<&'m dyn EventTracer>,
    /// Settings for backends.
    pub backend_options: &'m [RuntimeOption<'m>],
}

impl Default for LoadOptions<'_> {
    fn default() -> Self {
        LoadOptions { data: &[], parallel: &Serial, tracer: None, backend_options: &[] }
    }
}

impl<'m> LoadOptions<'m> {
    /// With external data.
    #[must_use]
    pub fn with_data(self, data: &'m [DataMap<'m>]) -> Self {
        LoadOptions { data, ..self }
    }

    /// With threads.
    #[must_use]
    pub fn with_parallel(self, parallel: &'m dyn Parallel) -> Self {
        LoadOptions { parallel, ..self }
    }

    /// With a tracer.
    #[must_use]
    pub fn with_tracer(self, tracer: &'m dyn EventTracer) -> Self {
        LoadOptions { tracer: Some(tracer), ..self }
    }

    /// With settings for backends.
    #[must_use]
    pub fn with_backend_options(self, backend_options: &'m [RuntimeOption<'m>]) -> Self {
        LoadOptions { backend_options, ..self }
    }
}

/// A call of a kernel, resolved.
#[derive(Debug, Clone, Copy)]
pub(crate) struct KernelCall<'m> {
    kernel: &'m Kernel,
    args: &'m [[u8; 4]],
    invoke: InvokeFn,
    packed: Option<Region<'m>>,
    /// Shapes or scalars can change: prepare before each invocation.
    dynamic: bool,
    /// What it writes shares no memory with what it reads, and never will.
    disjoint: bool,
}

/// An instruction, resolved: indices are checked, kernels chosen.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Instruction<'m> {
    Kernel(KernelCall<'m>),
    Delegate { delegate: usize, args: &'m [[u8; 4]] },
    Move { from: usize, to: usize },
    JumpFalse { condition: usize, destination: usize },
    Free { value: usize },
}

/// The number of backward jumps that one execution may take, unless set otherwise.
pub const DEFAULT_JUMP_LIMIT: u64 = 10_000_000;

/// A method that is ready to run: set inputs, execute, read outputs.
pub struct Method<'m> {
    meta: MethodMeta<'m>,
    values: Values<'m>,
    instructions: &'m [Instruction<'m>],
    delegates: &'m mut [Option<DelegateBox<'m>>],
    planned: &'m [Region<'m>],
    scratch: Region<'m>,
    options: LoadOptions<'m>,
    /// The next instruction.
    position: usize,
    backward_jumps: u64,
    jump_limit: u64,
}

const _: () = {
    const fn send<T: Send>() {}
    const fn sync<T: Sync>() {}
    send::<Method<'_>>();
    sync::<crate::Program<'_>>();
};

impl<'m> Method<'m> {
    /// The method's description in its program.
    pub fn meta(&self) -> &MethodMeta<'m> {
        &self.meta
    }

    /// Sets how many backward jumps one execution may take before it fails: loops of a malicious program end.
    pub fn set_jump_limit(&mut self, limit: u64) {
        self.jump_limit = limit;
    }

    fn arguments<'c>(
        values: &'c mut Values<'m>,
        call: &KernelCall<'m>,
    ) -> crate::Arguments<'c, 'm> {
        let source = ArgumentSource::Loaded { values, args: call.args };
        crate::Arguments::new(source, call.kernel.params)
    }
}

impl Drop for Method<'_> {
    fn drop(&mut self) {
        // The arena drops nothing; delegates own resources.
        for delegate in self.delegates.iter_mut() {
            drop(delegate.take());
        }
    }
}

impl core::fmt::Debug for Method<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "Method({}, {} instructions)", self.meta.name(), self.instructions.len())
    }
}
