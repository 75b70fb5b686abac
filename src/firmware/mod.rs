//! Programs embedded in a firmware image: run-time support for [`program!`](crate::program) and the
//! code that `torchlet-build` generates.
//!
//! The build script analyses the program: its kernels, the memory that each method needs on the
//! target machine, and the types of inputs and outputs. [`program!`](crate::program) turns the
//! result into a module. Its `load` function returns a model in static memory, whose methods accept
//! and return nested arrays.
//!
//! ```ignore
//! // build.rs
//! fn main() -> Result<(), torchlet_build::Error> {
//!     torchlet_build::Program::new("digits.pte").write()
//! }
//!
//! // main.rs
//! torchlet::program!(digits);
//!
//! fn classify(image: &[[[[f32; 8]; 8]; 1]; 1]) -> Result<f32, torchlet::firmware::Error> {
//!     let mut model = digits::load()?;
//!     let logits = model.forward(image)?;
//!     Ok(logits[0][2])
//! }
//! ```
//!
//! Start reading at [`Memory`] and [`TakeOnce`].

#[cfg(all(feature = "small-mem", target_arch = "arm", target_os = "none", not(feature = "std")))]
mod copying;
mod error;
mod io;
mod nested;
mod once;

pub use error::Error;
#[doc(no_inline)]
pub use half::{bf16, f16};
pub use io::{output, scalar, set_input, set_scalar, set_tensor, tensor};
pub use nested::Nested;
pub use once::TakeOnce;

use core::mem::MaybeUninit;
use torchlet_core::{
    Attached, LoadOptions, Method, MethodMemory, Program, Registry, SharedMemory, SharedMethod,
};

/// Declares a module for each program that the build script prepared:
/// `torchlet::program!(digits);`, with optional attributes and visibility before the name. Requires
/// the feature `portable`.
///
/// An image has a single `program!`, which lists all its programs: they share the [element
/// types](https://docs.rs/torchlet-build) that kernels are compiled for.
#[macro_export]
macro_rules! program {
    ($($(#[$attribute:meta])* $visibility:vis $name:ident),+ $(,)?) => {
        $(
            $(#[$attribute])*
            #[allow(dead_code, unreachable_pub, reason = "not every image uses every item")]
            $visibility mod $name {
                ::core::include!(::core::concat!(
                    ::core::env!("OUT_DIR"), "/", ::core::stringify!($name), ".rs"
                ));
            }
        )+

        /// Items shared by all programs of this image.
        #[allow(dead_code, reason = "not every image uses every generated item")]
        pub(crate) mod torchlet_image {
            ::core::include!(::core::concat!(::core::env!("OUT_DIR"), "/torchlet_image.rs"));
        }
    };
}

/// Static memory of a method, borrowed forever.
///
/// The generated `memory()` function of a method returns its statics. Firmware that wants some of
/// them elsewhere, such as a planned buffer in another RAM, provides its own. Memory passed to a
/// failed load is lost; to retry, call [`Program::load_method`] with borrowed memory instead.
#[derive(Debug)]
pub struct Memory<const PLANNED: usize, const LENT: usize> {
    /// For tables, constants that cannot be used in place, and packed weights.
    pub arena: &'static mut [MaybeUninit<u8>],
    /// For tensors: one buffer per buffer of the exporter's memory plan. Empty if programs share
    /// them.
    pub planned: [&'static mut [u8]; PLANNED],
    /// Scratch memory of kernels. Empty if programs share it.
    pub scratch: &'static mut [u8],
    /// For inputs, outputs and state that the exporter left to the caller.
    pub lent: [&'static mut [u8]; LENT],
}

/// Tensor whose memory the exporter left to the caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum Lent {
    /// Input with this index.
    Input(usize),
    /// Output with this index.
    Output(usize),
    /// State tensor with this value index.
    State(usize),
}

/// Loads a method into its own memory.
///
/// # Errors
/// A kernel is missing, the memory is too small, or the program is malformed.
pub fn load<const PLANNED: usize, const LENT: usize>(
    program: &Program<'static>,
    name: &str,
    registry: &Registry<'static>,
    mut memory: Memory<PLANNED, LENT>,
    lent: [Lent; LENT],
    options: LoadOptions<'static>,
) -> Result<Method<'static>, Error> {
    let Memory { arena, scratch, .. } = memory;
    let memory_of_method = MethodMemory { arena, planned: &mut memory.planned, scratch };
    let mut method = program.load_method(name, registry, memory_of_method, options)?;
    for (place, bytes) in lent.into_iter().zip(memory.lent) {
        bind(&mut method.attached(), place, bytes)?;
    }
    Ok(method)
}

/// Loads a method into planned and scratch memory shared with other methods.
///
/// # Errors
/// As [`load`], or the method cannot share this memory.
pub fn load_shared<const LENT: usize>(
    program: &Program<'static>,
    name: &str,
    registry: &Registry<'static>,
    shared: &mut SharedMemory<'static>,
    memory: Memory<0, LENT>,
    lent: [Lent; LENT],
    options: LoadOptions<'static>,
) -> Result<SharedMethod<'static>, Error> {
    let meta = program.method_meta(name)?;
    let needed = meta.table_bytes(&options.limits)?;
    let available = memory.arena.len();
    let Some((tables, arena)) = memory.arena.split_at_mut_checked(needed) else {
        return Err(Error::TooSmall { needed, available });
    };
    let mut method = meta.prepare(tables, registry, options)?.finish_shared(shared, arena)?;
    for (place, bytes) in lent.into_iter().zip(memory.lent) {
        bind(&mut method.attach(shared)?, place, bytes)?;
    }
    Ok(method)
}

fn bind(
    method: &mut Attached<'_, 'static>,
    place: Lent,
    bytes: &'static mut [u8],
) -> Result<(), Error> {
    Ok(match place {
        Lent::Input(index) => method.bind_input(index, bytes),
        Lent::Output(index) => method.bind_output(index, bytes),
        Lent::State(value) => method.bind_state(value, bytes),
    }?)
}
