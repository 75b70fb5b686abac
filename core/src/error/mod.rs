//! Errors: one type per operation, each with location and remedy.
//!
//! Every error type has a `code()` method that returns ExecuTorch's numeric code for the same
//! condition, for interoperability with its C++ runtime.

mod delegate;
mod execute;
mod init;
mod input;
mod kernel;
mod message;
mod program;

pub use delegate::DelegateError;
pub use execute::{ExecuteError, InstructionError};
pub use init::{InitError, MemoryKind};
pub use input::InputError;
pub use kernel::{KernelError, KernelErrorKind, ShapeNote};
pub use message::Message;
pub use program::{ProgramError, ReadError};

/// ExecuTorch's numeric error codes (`runtime/core/error.h`).
pub mod code {
    #![allow(missing_docs, reason = "the names are ExecuTorch's")]
    pub const INTERNAL: u32 = 0x01;
    pub const INVALID_STATE: u32 = 0x02;
    pub const NOT_SUPPORTED: u32 = 0x10;
    pub const INVALID_ARGUMENT: u32 = 0x12;
    pub const INVALID_TYPE: u32 = 0x13;
    pub const OPERATOR_MISSING: u32 = 0x14;
    pub const REGISTRATION_EXCEEDING_MAX_KERNELS: u32 = 0x15;
    pub const REGISTRATION_ALREADY_REGISTERED: u32 = 0x16;
    pub const NOT_FOUND: u32 = 0x20;
    pub const MEMORY_ALLOCATION_FAILED: u32 = 0x21;
    pub const ACCESS_FAILED: u32 = 0x22;
    pub const INVALID_PROGRAM: u32 = 0x23;
    pub const INVALID_EXTERNAL_DATA: u32 = 0x24;
    pub const OUT_OF_RESOURCES: u32 = 0x25;
    pub const DELEGATE_INVALID_COMPATIBILITY: u32 = 0x30;
    pub const DELEGATE_MEMORY_ALLOCATION_FAILED: u32 = 0x31;
    pub const DELEGATE_INVALID_HANDLE: u32 = 0x32;
}
