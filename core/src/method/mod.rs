//! A loaded method: resolved instructions over values in the caller's memory.
//!
//! The file is decoded into [`tables`], all of which [`prepare`] resolves, so that it knows what
//! memory is needed; [`finish`] fills that memory, and [`execute`] runs.

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
use crate::call::Known;
use crate::data_map::DataMap;
use crate::kernel::{InvokeFn, Kernel, PackFn};
use crate::limits::Limits;
use crate::machine::Machine;
use crate::memory::region::Region;
use crate::meta::MethodMeta;
use crate::parallel::{Parallel, Serial};
use crate::tracer::EventTracer;
use crate::uses::{Uses, has};
use crate::value::list_index;
use crate::values::Values;
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicBool, Ordering};

/// The memory of a method, lent by the caller for as long as the method lives.
///
/// [`MemoryNeeds`] and [`MethodMeta`] tell the exact sizes. All must start at multiples of
/// [`ARENA_ALIGN`](crate::ARENA_ALIGN) bytes.
#[derive(Debug)]
pub struct MethodMemory<'m, 'b> {
    /// For delegates, copied constants and packed weights: [`MemoryNeeds::arena`] bytes.
    /// [`ArenaBlock`](crate::ArenaBlock) makes such memory. For
    /// [`Program::load_method`](crate::Program::load_method) it holds the tables, too:
    /// [`MemoryNeeds::whole_arena`] bytes.
    pub arena: &'m mut [MaybeUninit<u8>],
    /// For tensors: one buffer for each [`MethodMeta::planned_buffer_size`]. Only the list is given
    /// back after loading, and holds empty buffers then.
    pub planned: &'b mut [&'m mut [u8]],
    /// For kernels while they run: [`MemoryNeeds::scratch`] bytes.
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
    /// What the program may ask for.
    pub limits: Limits,
    /// Cancels runs while it is true: another thread sets it. A run ends before its next
    /// instruction; with the standard library also inside one, where the kernel asks.
    pub cancel: Option<&'m AtomicBool>,
    /// What the method is prepared for.
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

    /// Who is told of runs. Builds that `cargo xtask bench tracing` compares with leave the
    /// question out.
    pub(crate) fn listener(&self) -> Option<&'m dyn EventTracer> {
        if cfg!(torchlet_untraced) { None } else { self.tracer }
    }

    /// With settings for backends.
    #[must_use]
    pub fn with_backend_options(self, backend_options: &'m [RuntimeOption<'m>]) -> Self {
        LoadOptions { backend_options, ..self }
    }

    /// With other limits.
    #[must_use]
    pub fn with_limits(self, limits: Limits) -> Self {
        LoadOptions { limits, ..self }
    }

    /// With a switch that cancels runs.
    #[must_use]
    pub fn with_cancel(self, cancel: &'m AtomicBool) -> Self {
        LoadOptions { cancel: Some(cancel), ..self }
    }

    /// To be told what a method needs on another machine.
    #[must_use]
    pub fn with_machine(self, machine: Machine) -> Self {
        LoadOptions { machine, ..self }
    }
}

/// Weights that a kernel packs once.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Packed<'m> {
    None,
    /// As many bytes are to be filled by this function.
    Due(usize, PackFn),
    Ready(Region<'m>),
}

/// A call of a kernel, resolved.
#[derive(Debug, Clone, Copy)]
pub(crate) struct KernelCall<'m> {
    kernel: &'m Kernel,
    /// As many as the kernel declares.
    args: &'m [[u8; 4]],
    invoke: InvokeFn,
    /// Bytes of scratch memory that the invoke function takes.
    scratch: usize,
    packed: Packed<'m>,
    /// Shapes or scalars can change: prepare before each invocation.
    dynamic: bool,
    known: Known,
}

impl KernelCall<'_> {
    /// What the call makes use of.
    fn uses(&self) -> Uses {
        let view = self.kernel.view().is_some();
        // Kernels make numbers of any kind.
        let variable = Uses::VARIABLE.and(Uses::FRACTIONS);
        let mut uses = if self.dynamic { variable } else { Uses::NONE };
        if view {
            uses = uses.and(Uses::VIEWS);
        } else if self.known != Known::Disjoint {
            uses = uses.and(Uses::SHARING);
        }
        match self.packed {
            Packed::None => uses,
            _ => uses.and(Uses::PACKING),
        }
    }
}

/// An instruction, resolved: indices are checked, kernels chosen.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Instruction<'m> {
    Kernel(KernelCall<'m>),
    Delegate {
        delegate: usize,
        args: &'m [[u8; 4]],
    },
    /// A number becomes what another is; a tensor gets shape and contents of another.
    Move {
        from: usize,
        to: usize,
    },
    JumpFalse {
        condition: usize,
        destination: usize,
    },
    Nothing,
}

impl Instruction<'_> {
    /// The values that a call makes a view, and a view of.
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
    /// The next instruction.
    position: usize,
    backward_jumps: u64,
    /// The last reset, if any, succeeded.
    is_usable: bool,
    /// What lies in planned memory is another method's. Whoever looks at a method that shares
    /// memory sets it, without changing it.
    stale: AtomicBool,
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

    /// Notes whether what lies in planned memory is another method's.
    fn mark_stale(&self, stale: bool) {
        self.stale.store(stale, Ordering::Relaxed);
    }
}

impl Drop for Method<'_> {
    fn drop(&mut self) {
        // The arena drops nothing; delegates own resources.
        if has(Uses::DELEGATES) {
            self.delegates.iter_mut().for_each(|delegate| drop(delegate.take()));
        }
    }
}

impl core::fmt::Debug for Method<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "Method({}, {} instructions)", self.meta.name(), self.instructions.len())
    }
}
