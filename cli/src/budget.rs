//! Memory for values whose sizes a file decides: inputs that are made up or read from test cases,
//! and images that are scaled.

use crate::failure::Failure;
use crate::terminal;
use std::fmt::Display;
use torchlet::Method;

/// What is left of `--memory-limit`.
#[derive(Debug)]
pub(crate) struct Budget {
    limit: u64,
    left: u64,
}

impl Budget {
    /// All of a limit in MiB.
    pub(crate) fn new(limit: u64) -> Self {
        let limit = limit.saturating_mul(1 << 20);
        Budget { limit, left: limit }
    }

    /// What a loaded method leaves of a limit in MiB.
    pub(crate) fn beside(method: &Method<'_>, limit: u64) -> Self {
        let mut budget = Budget::new(limit);
        budget.left = budget.left.saturating_sub(method.memory_bytes());
        budget
    }

    /// Counts bytes before they are allocated. `what` is for the error.
    pub(crate) fn take(&mut self, bytes: usize, what: impl Display) -> Result<(), Failure> {
        self.left = self.left.checked_sub(bytes as u64).ok_or_else(|| {
            let [needed, left, limit] =
                [bytes as u64, self.left, self.limit].map(terminal::bytes);
            Failure::new(format!(
                "{what} needs {needed} of memory, and {left} are left of {limit}; if you trust the file, \
                 raise the limit with --memory-limit"
            ))
        })?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn budgets_end() {
        let mut budget = Budget::new(1);
        budget.take(1 << 19, "input 0").unwrap();
        budget.take(1 << 19, "input 1").unwrap();
        budget.take(0, "input 2").unwrap();
        let error = budget.take(1, "input 3").unwrap_err().to_string();
        assert!(error.contains("input 3 needs 1 B") && error.contains("--memory-limit"), "{error}");
        assert!(Budget::new(u64::MAX).take(usize::MAX, "input 0").is_ok());
    }
}
