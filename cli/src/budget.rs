//! Memory budget for values whose sizes a file decides: generated inputs, test cases, scaled
//! images.

use crate::failure::Failure;
use crate::terminal;
use std::fmt::Display;
use torchlet::Method;

/// The unused rest of `--memory-limit`.
#[derive(Debug)]
pub(crate) struct Budget {
    limit: u64,
    left: u64,
}

impl Budget {
    /// A budget of `limit` MiB.
    pub(crate) fn new(limit: u64) -> Self {
        let limit = limit.saturating_mul(1 << 20);
        Budget { limit, left: limit }
    }

    /// The part of `limit` MiB that a loaded method leaves.
    pub(crate) fn beside(method: &Method<'_>, limit: u64) -> Self {
        let mut budget = Budget::new(limit);
        budget.left = budget.left.saturating_sub(method.memory_bytes());
        budget
    }

    /// Reserves bytes before they are allocated.
    ///
    /// # Errors
    ///
    /// If fewer bytes are left; `what` names their use in the message.
    pub(crate) fn take(&mut self, bytes: usize, what: impl Display) -> Result<(), Failure> {
        self.left = self.left.checked_sub(bytes as u64).ok_or_else(|| {
            let [needed, left, limit] = [bytes as u64, self.left, self.limit].map(terminal::bytes);
            Failure::new(format!(
                "{what} needs {needed} of memory, but only {left} of {limit} are left; if you \
                 trust the file, raise the limit with --memory-limit"
            ))
        })?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn budgets_are_enforced() {
        let mut budget = Budget::new(1);
        budget.take(1 << 19, "input 0").unwrap();
        budget.take(1 << 19, "input 1").unwrap();
        budget.take(0, "input 2").unwrap();
        let error = budget.take(1, "input 3").unwrap_err().to_string();
        assert!(error.contains("input 3 needs 1 B") && error.contains("--memory-limit"), "{error}");
        assert!(Budget::new(u64::MAX).take(usize::MAX, "input 0").is_ok());
    }
}
