//! Programs that are part of a firmware image: what [`program!`](crate::program) and the code that
//! `torchlet-build` writes stand on.
//!
//! A build script looks at the program and writes down what it finds: the file, the kernels that it
//! calls, how much memory each method takes on the machine that is built for, the types of inputs
//! and outputs. [`program!`](crate::program) makes a module of that, whose `load` takes the memory,
//! which is static, and gives a model; its methods take and give nested arrays.
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
//! Start reading at [`Memory`] and [`Once`].

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
pub use once::Once;

use core::mem::MaybeUninit;
use torchlet_core::{
    Attached, LoadOptions, Method, MethodMemory, Program, Registry, SharedMemory, SharedMethod,
};

/// Makes a module of each program that the build script wrote down: `torchlet::program!(digits);`,
/// with attributes and a visibility before the name. It takes the feature `portable`. An image has
/// one `program!`, which names all its programs: they share what
/// [types](https://docs.rs/torchlet-build) kernels are compiled for.
#[macro_export]
macro_rules! program {
    ($($(#[$attribute:meta])* $visibility:vis $name:ident),+ $(,)?) => {
        $(
            $(#[$attribute])*
            #[allow(dead_code, reason = "not every image uses all there is to know of its programs")]
            $visibility mod $name {
                ::core::include!(::core::concat!(
                    ::core::env!("OUT_DIR"), "/", ::core::stringify!($name), ".rs"
                ));
            }
        )+

        /// What the programs of this image have in common.
        #[allow(dead_code, reason = "as above")]
        pub(crate) mod torchlet_image {
            ::core::include!(::core::concat!(::core::env!("OUT_DIR"), "/torchlet_image.rs"));
        }
    };
}

/// The memory of a method: static, and lent for good.
///
/// What `memory()` of a method's module gives is the statics that go with it. Firmware that wants
/// some of it elsewhere, such as a planned buffer in another RAM, replaces that. Memory that a
/// failed load was given stays taken: firmware that would try again lends it to
/// [`Program::load_method`] instead.
#[derive(Debug)]
pub struct Memory<const PLANNED: usize, const LENT: usize> {
    /// For tables, constants that cannot be used where they lie, and packed weights.
    pub arena: &'static mut [MaybeUninit<u8>],
    /// For tensors: a buffer for each that the exporter planned. None, where programs share them.
    pub planned: [&'static mut [u8]; PLANNED],
    /// For kernels while they run. None, where programs share it.
    pub scratch: &'static mut [u8],
    /// For inputs, outputs and state that the exporter left to the caller.
    pub lent: [&'static mut [u8]; LENT],
}

/// What the exporter left to the caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum Lent {
    /// The input of this index.
    Input(usize),
    /// The output of this index.
    Output(usize),
    /// The state that is the value of this index.
    State(usize),
}

/// Loads a method into memory of its own.
///
/// # Errors
/// What is wrong or missing, and where.
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

/// Loads a method into planned and scratch memory that it uses in turn with others.
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
