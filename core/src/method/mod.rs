//! Loaded methods: resolved instructions over values in the caller's memory.
//!
//! The file is decoded into [`tables`]; [`prepare`] resolves them and computes the memory needs,
//! [`finish`] initialises the memory, and [`execute`] runs.

mod argmax;
mod calls;
mod execute;
pub use execute::Progress;
mod finish;
mod io;
mod lend;
pub use lend::{LentError, OutputMemory};
mod prepare;
pub use prepare::{ArenaUse, MemoryNeeds, Prepared};
mod resolve;
mod shared;
pub use shared::{Attached, SharedMethod};
mod state;
pub use state::StateInfo;
pub(crate) mod tables;
pub use tables::TableUse;

use crate::backend::{DelegateBox, RuntimeOption};
use crate::call::KnownOverlap;
use crate::data_map::DataMap;
use crate::kernel::{InvokeFn, Kernel, PackFn};
use crate::limits::Limits;
use crate::machine::Machine;
use crate::memory::region::Region;
use crate::meta::MethodMeta;
use crate::parallel::{Parallel, Serial};
use crate::runtime_features::{RuntimeFeatures, has};
use crate::tracer::EventTracer;
use crate::value::list_index;
use crate::values::Values;
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicBool, Ordering};

/// Memory of a method, borrowed from the caller for the method's lifetime.
///
/// [`MemoryNeeds`] and [`MethodMeta`] report the exact sizes. All memory must start at multiples of
/// [`ARENA_ALIGN`](crate::ARENA_ALIGN) bytes.
#[derive(Debug)]
pub struct MethodMemory<'m, 'b> {
    /// Memory for delegates, copied constants and packed weights: [`MemoryNeeds::arena`] bytes, for
    /// instance from [`ArenaBlock`](crate::ArenaBlock). For
    /// [`Program::load_method`](crate::Program::load_method) it also holds the tables:
    /// [`MemoryNeeds::whole_arena`] bytes.
    pub arena: &'m mut [MaybeUninit<u8>],
    /// Planned buffers for tensors, with the sizes of [`MethodMeta::planned_buffer_size`]. Loading
    /// moves the buffers out of the list and leaves empty slices.
    pub planned: &'b mut [&'m mut [u8]],
    /// Workspace for running kernels: [`MemoryNeeds::scratch`] bytes.
    pub scratch: &'m mut [u8],
}

/// Options for loading a method.
#[derive(Clone, Copy)]
#[non_exhaustive]
pub struct LoadOptions<'m> {
    /// External data, searched in order.
    pub data: &'m [DataMap<'m>],
    /// Threads for kernels. Serial by default.
    pub parallel: &'m dyn Parallel,
    /// Tracer that receives events.
    pub tracer: Option<&'m dyn EventTracer>,
    /// Settings for backends.
    pub backend_options: &'m [RuntimeOption<'m>],
    /// Resource limits of the program.
    pub limits: Limits,
    /// Cancellation flag: another thread sets it to true to cancel runs. A run ends before its next
    /// instruction; with the feature `std`, kernels also check it during an instruction.
    pub cancel: Option<&'m AtomicBool>,
    /// Machine that the method is prepared for.
    pub machine: Machine,
}

impl Default for LoadOptions<'_> {
    fn default() -> Self {
        LoadOptions {
            data: &[],
            parallel: &Serial,
            tracer: None,
            backend_options: &[],
            limits: Limits::default(),
            cancel: None,
            machine: Machine::Here,
        }
    }
}

impl<'m> LoadOptions<'m> {
    /// Sets the external data.
    #[must_use]
    pub fn with_data(self, data: &'m [DataMap<'m>]) -> Self {
        LoadOptions { data, ..self }
    }

    /// Sets the threads.
    #[must_use]
    pub fn with_parallel(self, parallel: &'m dyn Parallel) -> Self {
        LoadOptions { parallel, ..self }
    }

    /// Sets the tracer.
    #[must_use]
    pub fn with_tracer(self, tracer: &'m dyn EventTracer) -> Self {
        LoadOptions { tracer: Some(tracer), ..self }
    }

    /// Tracer for runs. Always `None` in baseline builds of `cargo xtask bench tracing`.
    pub(crate) fn run_tracer(&self) -> Option<&'m dyn EventTracer> {
        if cfg!(torchlet_untraced) { None } else { self.tracer }
    }

    /// Sets the backend options.
    #[must_use]
    pub fn with_backend_options(self, backend_options: &'m [RuntimeOption<'m>]) -> Self {
        LoadOptions { backend_options, ..self }
    }

    /// Sets the limits.
    #[must_use]
    pub fn with_limits(self, limits: Limits) -> Self {
        LoadOptions { limits, ..self }
    }

    /// Sets the cancellation flag.
    #[must_use]
    pub fn with_cancel(self, cancel: &'m AtomicBool) -> Self {
        LoadOptions { cancel: Some(cancel), ..self }
    }

    /// Sets the target machine, to compute the memory needs there.
    #[must_use]
    pub fn with_machine(self, machine: Machine) -> Self {
        LoadOptions { machine, ..self }
    }
}

/// State of the weights that a kernel packs once.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Packed<'m> {
    None,
    /// Size in bytes, and the function that packs the weights at load time.
    Pending(usize, PackFn),
    Ready(Region<'m>),
}

/// A resolved kernel call.
#[derive(Debug, Clone, Copy)]
pub(crate) struct KernelCall<'m> {
    kernel: &'m Kernel,
    /// Value indices of the arguments, one for each parameter of the kernel.
    args: &'m [[u8; 4]],
    invoke: InvokeFn,
    /// Bytes of scratch memory that the invoke function needs.
    scratch: usize,
    packed: Packed<'m>,
    /// Shapes or scalars can change: the call is prepared again before each invocation.
    dynamic: bool,
    known: KnownOverlap,
}

impl KernelCall<'_> {
    /// Runtime features that the call uses.
    fn uses(&self) -> RuntimeFeatures {
        let view = self.kernel.view().is_some();
        // Kernels can write scalars of any type.
        let variable = RuntimeFeatures::VARIABLE.union(RuntimeFeatures::FLOAT_SCALARS);
        let mut uses = if self.dynamic { variable } else { RuntimeFeatures::NONE };
        if view {
            uses = uses.union(RuntimeFeatures::VIEWS);
        } else if self.known != KnownOverlap::Disjoint {
            uses = uses.union(RuntimeFeatures::SHARING);
        }
        match self.packed {
            Packed::None => uses,
            _ => uses.union(RuntimeFeatures::PACKING),
        }
    }
}

/// A resolved instruction: indices are checked and kernels selected.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Instruction<'m> {
    Kernel(KernelCall<'m>),
    Delegate {
        delegate: usize,
        args: &'m [[u8; 4]],
    },
    /// Copies a scalar, or the shape and contents of a tensor.
    Move {
        from: usize,
        to: usize,
    },
    JumpFalse {
        condition: usize,
        destination: usize,
    },
    Nop,
}

impl Instruction<'_> {
    /// Value indices of the view that the call creates, and of the tensor that it views.
    fn view(&self) -> Option<(usize, usize)> {
        let Instruction::Kernel(call) = self else { return None };
        let value = |arg: usize| call.args.get(arg).map(|entry| list_index(*entry));
        let (out, input) = call.kernel.view()?;
        Some((value(out)?, value(input)?))
    }
}

/// A method that is ready to run: set inputs, execute, read outputs.
pub struct Method<'m> {
    meta: MethodMeta<'m>,
    values: Values<'m>,
    instructions: &'m [Instruction<'m>],
    delegates: &'m mut [Option<DelegateBox<'m>>],
    planned: &'m [Region<'m>],
    scratch: Region<'m>,
    options: LoadOptions<'m>,
    /// Index of the next instruction.
    position: usize,
    backward_jumps: u64,
    /// Whether the last reset, if any, succeeded.
    is_usable: bool,
    /// Whether planned memory contains another method's data. Atomic, since methods that share
    /// memory set it through `&self`.
    stale: AtomicBool,
}

const _: () = {
    const fn send<T: Send>() {}
    const fn sync<T: Sync>() {}
    send::<Method<'_>>();
    sync::<crate::Program<'_>>();
};

impl<'m> Method<'m> {
    /// Description of the method in its program.
    pub fn meta(&self) -> &MethodMeta<'m> {
        &self.meta
    }

    /// Records whether planned memory contains another method's data.
    fn mark_stale(&self, stale: bool) {
        self.stale.store(stale, Ordering::Relaxed);
    }
}

impl Drop for Method<'_> {
    fn drop(&mut self) {
        // The arena never drops its contents, and delegates own resources.
        if has(RuntimeFeatures::DELEGATES) {
            self.delegates.iter_mut().for_each(|delegate| drop(delegate.take()));
        }
    }
}

impl core::fmt::Debug for Method<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "Method({}, {} instructions)", self.meta.name(), self.instructions.len())
    }
}
