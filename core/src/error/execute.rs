//! Errors of running a method.

use super::{DelegateError, KernelError, code};
use core::fmt;

/// Cause of a failed instruction.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[non_exhaustive]
pub enum InstructionError {
    /// A kernel failed.
    Kernel(KernelError),
    /// A delegate failed.
    Delegate(DelegateError),
    /// The condition of a jump is not a boolean.
    Condition,
    /// More backward jumps than [`Limits::backward_jumps`](crate::Limits::backward_jumps) allows.
    JumpLimit,
    /// The run was [cancelled](crate::LoadOptions::cancel).
    Cancelled,
    /// The last reset failed: the method must be reset again.
    Unusable,
    /// Another method used the shared memory after an input was set or the run began.
    Stale,
}

/// A method failed while running.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct ExecuteError {
    /// The instruction's index.
    pub instruction: usize,
    /// Name of the operator or backend; empty if not applicable.
    pub name: &'static str,
    /// Cause of the failure.
    pub source: InstructionError,
}

impl ExecuteError {
    /// Corresponding ExecuTorch error code.
    pub fn code(&self) -> u32 {
        match &self.source {
            InstructionError::Kernel(error) => error.code(),
            InstructionError::Delegate(error) => error.code(),
            InstructionError::Condition => code::INVALID_PROGRAM,
            InstructionError::JumpLimit => code::OUT_OF_RESOURCES,
            InstructionError::Cancelled | InstructionError::Unusable | InstructionError::Stale => {
                code::INVALID_STATE
            }
        }
    }
}

impl fmt::Display for ExecuteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "instruction {}", self.instruction)?;
        if !self.name.is_empty() {
            write!(f, ", {}", self.name)?;
        }
        match &self.source {
            InstructionError::Kernel(error) => write!(f, ": {error}"),
            InstructionError::Delegate(error) => write!(f, ": {error}"),
            InstructionError::Condition => f.write_str(": the jump condition is not a boolean"),
            InstructionError::JumpLimit => f.write_str(
                ": more backward jumps than Limits::backward_jumps; raise it if you trust the file",
            ),
            InstructionError::Cancelled => f.write_str(": the run was cancelled"),
            InstructionError::Unusable => {
                f.write_str(": the last reset failed; reset the method again")
            }
            InstructionError::Stale => f.write_str(
                ": another method used the shared memory; \
                 set all inputs again, and run from the start",
            ),
        }
    }
}

impl core::error::Error for ExecuteError {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        match &self.source {
            InstructionError::Kernel(error) => Some(error),
            InstructionError::Delegate(error) => Some(error),
            _ => None,
        }
    }
}
