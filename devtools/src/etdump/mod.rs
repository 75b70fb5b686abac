//! ETDumps: the recording format of ExecuTorch's tools (identifier `ED00`).
//!
//! The fields are those of the public schema `etdump_schema_flatcc.fbs`. The stock Inspector reads
//! the result of [`write()`]. With an ETRecord, it identifies instructions by their index in the
//! exported file, so run programs as exported for that.

mod read;
mod write;

pub use read::{ReadError, read};
pub use write::{DelegateIds, write};

/// Event names of ExecuTorch.
mod names {
    pub(super) const CALL: &str = "native_call_";
    pub(super) const OPERATOR: &str = "OPERATOR_CALL";
    pub(super) const DELEGATE: &str = "DELEGATE_CALL";
    pub(super) const INIT: &str = "Method::init";
    pub(super) const LOAD: &str = "Program::load_method";
    pub(super) const EXECUTE: &str = "Method::execute";
    /// torchlet's own: ExecuTorch has no event for the initialisation of a delegate.
    pub(super) const DELEGATE_INIT: &str = "::init";
}

/// Type tags of values.
mod kinds {
    pub(super) const INT: i8 = 1;
    pub(super) const BOOL: i8 = 2;
    pub(super) const FLOAT: i8 = 3;
    pub(super) const DOUBLE: i8 = 4;
    pub(super) const TENSOR: i8 = 5;
    pub(super) const TENSOR_LIST: i8 = 6;
}

#[cfg(test)]
mod tests;
