//! Errors of the C interface.

use crate::status::{
    TORCHLET_END_OF_METHOD, TORCHLET_INTERNAL, TORCHLET_INVALID_ARGUMENT, TORCHLET_INVALID_STATE,
    TORCHLET_MEMORY_ALLOCATION_FAILED, torchlet_status,
};
use core::fmt;
use torchlet_core::error::InitError;
use torchlet_core::{
    DelegateError, ExecuteError, InputError, KernelError, LentError, ProgramError, RegistryError,
};

#[cfg_attr(not(feature = "messages"), allow(dead_code, reason = "only read for messages"))]
pub(crate) enum Fault {
    /// A pointer is null.
    Null(&'static str),
    /// A pointer is not aligned for what it points to.
    Misaligned(&'static str),
    /// A size exceeds that of any object.
    Huge(&'static str),
    /// A handle was never opened, or is closed.
    Handle(&'static str),
    /// A handle is in use by another task.
    InUse(&'static str),
    /// A handle is open, but in the wrong state for the call.
    State(&'static str),
    /// A string is not UTF-8.
    Utf8(&'static str),
    /// Another error of an argument.
    Argument(&'static str),
    /// A buffer is too small.
    TooSmall {
        what: &'static str,
        needed: usize,
        available: usize,
    },
    /// The size of a tensor's data does not match its shape.
    TensorSize {
        needed: usize,
        available: usize,
    },
    /// An index is out of range.
    Index {
        what: &'static str,
        index: usize,
        count: usize,
    },
    /// No instruction is left to execute.
    End,
    #[cfg(feature = "std")]
    Panic,
    Program(ProgramError),
    Init(InitError),
    Input(usize, InputError),
    Output(usize, InputError),
    StateTensor(usize, InputError),
    Execute(ExecuteError),
    Lent(LentError),
    Kernel(KernelError),
    Delegate(DelegateError),
    Registry(RegistryError),
    #[cfg(feature = "std")]
    Module(std::boxed::Box<torchlet::Error>),
}

impl Fault {
    pub(crate) fn code(&self) -> torchlet_status {
        match self {
            Fault::Handle(_) | Fault::InUse(_) | Fault::State(_) => TORCHLET_INVALID_STATE,
            Fault::Null(_)
            | Fault::Misaligned(_)
            | Fault::Huge(_)
            | Fault::Utf8(_)
            | Fault::Argument(_)
            | Fault::TensorSize { .. }
            | Fault::Index { .. } => TORCHLET_INVALID_ARGUMENT,
            Fault::TooSmall { .. } => TORCHLET_MEMORY_ALLOCATION_FAILED,
            Fault::End => TORCHLET_END_OF_METHOD,
            #[cfg(feature = "std")]
            Fault::Panic => TORCHLET_INTERNAL,
            Fault::Program(error) => error.code(),
            Fault::Init(error) => error.code(),
            Fault::Input(_, error) | Fault::Output(_, error) | Fault::StateTensor(_, error) => {
                error.code()
            }
            Fault::Execute(error) => error.code(),
            Fault::Lent(error) => error.code(),
            Fault::Kernel(error) => error.code(),
            Fault::Delegate(error) => error.code(),
            Fault::Registry(error) => error.code(),
            #[cfg(feature = "std")]
            Fault::Module(error) => error.code(),
        }
        // Errors must never have the status of success.
        .max(TORCHLET_INTERNAL)
    }
}

/// Formats the error message.
#[cfg(feature = "messages")]
pub(crate) fn describe(fault: &Fault, f: &mut dyn fmt::Write) -> fmt::Result {
    match fault {
        Fault::Null(what) => write!(f, "{what} is null"),
        Fault::Misaligned(what) => write!(f, "{what} is not aligned for its type"),
        Fault::Huge(what) => write!(f, "the size of {what} exceeds the largest object size"),
        Fault::Handle(what) => write!(
            f,
            "{what} is not open: it was never opened, opening it failed, or it was closed"
        ),
        Fault::InUse(what) => write!(
            f,
            "{what} is in use by another task or by an outer call; hold a lock from setting the \
             inputs to reading the outputs, or load one method per task"
        ),
        Fault::State(what) => f.write_str(what),
        Fault::Utf8(what) => write!(f, "{what} is not UTF-8"),
        Fault::Argument(what) => f.write_str(what),
        Fault::TooSmall { what, needed, available } => {
            write!(f, "{what} has {available} bytes, expected at least {needed}")
        }
        Fault::TensorSize { needed, available } => {
            write!(f, "the data of a tensor has {available} bytes, its shape requires {needed}")
        }
        Fault::Index { what, index, count } => {
            write!(f, "{what} {index} is out of range: the count is {count}")
        }
        Fault::End => f.write_str("the method has no more instructions"),
        #[cfg(feature = "std")]
        Fault::Panic => f.write_str("internal error: torchlet panicked"),
        Fault::Program(error) => write!(f, "{error}"),
        Fault::Init(error) => write!(f, "{error}"),
        Fault::Input(index, error) => write!(f, "input {index}: {error}"),
        Fault::Output(index, error) => write!(f, "output {index}: {error}"),
        Fault::StateTensor(value, error) => write!(f, "state of value {value}: {error}"),
        Fault::Execute(error) => write!(f, "{error}"),
        Fault::Lent(error) => write!(f, "{error}"),
        Fault::Kernel(error) => write!(f, "{error}"),
        Fault::Delegate(error) => write!(f, "{error}"),
        Fault::Registry(error) => write!(f, "{error}"),
        #[cfg(feature = "std")]
        Fault::Module(error) => write!(f, "{error}"),
    }
}

/// Writes only the status name: without the feature `messages`, no formatting code is linked.
#[cfg(not(feature = "messages"))]
pub(crate) fn describe(fault: &Fault, f: &mut dyn fmt::Write) -> fmt::Result {
    f.write_str(crate::status::name(fault.code()).to_str().unwrap_or(""))
}

macro_rules! from {
    ($($error:ident => $fault:ident,)*) => {
        $(impl From<$error> for Fault {
            fn from(error: $error) -> Self {
                Fault::$fault(error)
            }
        })*
    };
}
from! {
    ProgramError => Program,
    InitError => Init,
    ExecuteError => Execute,
    LentError => Lent,
    KernelError => Kernel,
    DelegateError => Delegate,
    RegistryError => Registry,
}

#[cfg(feature = "std")]
impl From<torchlet::Error> for Fault {
    fn from(error: torchlet::Error) -> Self {
        Fault::Module(std::boxed::Box::new(error))
    }
}
