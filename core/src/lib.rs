//! The torchlet runtime: parses ExecuTorch programs (`.pte`), lays out their values in memory that
//! the caller provides, and executes their instructions.
//!
//! The crate uses no heap, threads or operating system, and contains no operators: kernels and
//! backends are passed in through a [`Registry`]. It does no floating-point arithmetic. All input,
//! files above all, is untrusted: nothing in a file can make the runtime panic, read out of bounds
//! or allocate.
//!
//! ```text
//! bytes ── Program ── method_meta ──► exact sizes ──► the caller's memory
//!             └────── load_method(name, registry, memory) ──► Method ── execute
//! ```
//!
//! Start reading at [`Program`], continue with [`Method`], then [`Kernel`] and [`Backend`], the two
//! extension points. The file formats are in [`format`]. Memory safety rests on the modules
//! `memory`, `call`, `overlap` and `method::finish`, and on `DelegateBox` in `backend`.

#![cfg_attr(docsrs, feature(doc_cfg))]
#![no_std]
#![cfg_attr(
    not(test),
    warn(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)
)]

#[cfg(any(test, feature = "std"))]
extern crate std;

// Tensor data is borrowed from the file without byte swapping.
#[cfg(target_endian = "big")]
compile_error!(
    "torchlet uses tensor data in place, which is little-endian: \
     big-endian processors are not supported"
);

mod arguments;
mod backend;
mod bounded;
mod bundled;
mod call;
mod data_map;
mod dtype;
pub mod error;
mod exported;
mod file_tensor;
pub mod format;
mod kernel;
pub mod layout;
mod limits;
mod loader;
mod location;
mod log;
mod machine;
mod memory;
mod meta;
mod method;
mod overlap;
mod parallel;
mod param;
mod program;
mod recorder;
mod registry;
pub mod rules;
mod runtime_features;
mod tensor;
mod tracer;
mod value;
mod values;

pub use arguments::{Arguments, Ints, MAX_INTS};
pub use backend::{
    Backend, Delegate, DelegateBox, DelegateInfo, DelegateState, DeviceMemory, InitContext,
    OptionValue, Processed, Rates, RuntimeOption, delegate_size,
};
pub use bounded::{Bounded, CapacityError, IntoIter};
pub use bundled::{BundledProgram, TestCase, TestSuite};
pub use call::{DelegateCall, Invoke, Prepare};
pub use data_map::{Blob, DataMap};
pub use dtype::{Bool, Element, ScalarType};
pub use error::{
    DelegateError, ExecuteError, InitError, InputError, KernelError, KernelErrorKind, Message,
    ProgramError, ReadError,
};
pub use exported::{ExportedData, ExportedInstruction, ExportedTensor, ExportedValue};
pub use kernel::{Elements, InvokeFn, Kernel, KernelKey, PackFn, Plan, PrepareFn, is_less};
pub use layout::{ShapeDynamism, Sizes, TensorInfo};
pub use limits::{Limit, Limits};
pub use loader::DataLoader;
#[cfg(feature = "std")]
pub use loader::FileLoader;
pub use machine::{Machine, PointerWidth};
pub use memory::{ARENA_ALIGN, AlignedBytes, ArenaBlock, SharedMemory};
pub use meta::{InstructionName, MethodMeta, TensorMeta, ValueMeta};
pub use method::{
    ArenaUse, Attached, LentError, LoadOptions, MemoryNeeds, Method, MethodMemory, OutputMemory,
    Prepared, Progress, SharedMethod, StateInfo, TableUse,
};
pub use parallel::{Parallel, Serial, Uncancelled};
pub use param::Param;
pub use program::Program;
pub use recorder::{Clock, Record, RecordSlot, Recorder};
pub use registry::{MAX_BACKENDS, MAX_TABLES, Missing, OperatorName, Registry, RegistryError};
pub use runtime_features::RuntimeFeatures;
#[cfg(all(feature = "selected-features", feature = "std"))]
pub use runtime_features::select_features;
pub use tensor::{TensorMut, TensorRef, ValueRef};
pub use tracer::{
    Allocation, DelegateClock, DelegateEvent, Event, EventKind, EventTracer, OutputValue,
};
pub use value::Scalar;
