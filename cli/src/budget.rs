//! Memory budget for values whose sizes a file decides: generated inputs, input files, test cases,
//! scaled images.

use crate::failure::Failure;
use crate::terminal;
use std::fmt::Display;
use std::path::Path;
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

    /// Reads a file, whose size counts against the budget.
    pub(crate) fn read(&mut self, path: &Path) -> Result<Vec<u8>, Failure> {
        let name = format!("'{}'", path.display());
        let fail = |error| Failure::new(format!("{name}: {error}"));
        let size = std::fs::metadata(path).map_err(fail)?.len();
        self.take(usize::try_from(size).unwrap_or(usize::MAX), &name)?;
        // Pipes have no size, and files can grow.
        let most = size.saturating_add(self.left);
        let bytes = torchlet_cache::read_at_most(path, most).map_err(fail)?;
        self.take(bytes.len().saturating_sub(usize::try_from(size).unwrap_or(usize::MAX)), &name)?;
        Ok(bytes)
    }
}

/// Maximum size of a text file, in bytes.
pub(crate) const MAX_TEXT: u64 = 16 << 20;
/// Maximum size of an image file, in bytes.
pub(crate) const MAX_IMAGE: u64 = 256 << 20;
/// Maximum size of a recording: an ETDump, its values, an ETRecord, a saved profile.
pub(crate) const MAX_RECORDING: u64 = 4 << 30;

/// Reads a file of at most `most` bytes. (A device can have no end.)
pub(crate) fn read_file(path: &Path, most: u64) -> Result<Vec<u8>, Failure> {
    torchlet_cache::read_at_most(path, most).map_err(|error| unreadable(path, &error))
}

/// Reads a text file: labels, a schema, or settings.
pub(crate) fn read_text(path: &Path) -> Result<String, Failure> {
    let bytes = read_file(path, MAX_TEXT)?;
    String::from_utf8(bytes).map_err(|error| unreadable(path, &error))
}

fn unreadable(path: &Path, why: &dyn Display) -> Failure {
    Failure::new(format!("cannot read '{}': {why}", path.display()))
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

    #[test]
    fn files_count_before_they_are_read() {
        let path = std::env::temp_dir().join(format!("torchlet-budget-{}", std::process::id()));
        std::fs::File::create(&path).unwrap().set_len(3 << 19).unwrap();
        let error = Budget::new(1).read(&path).unwrap_err().to_string();
        assert!(error.contains("--memory-limit"), "{error}");
        let mut budget = Budget::new(2);
        assert_eq!(budget.read(&path).unwrap().len(), 3 << 19);
        assert_eq!(budget.left, 1 << 19);
        std::fs::remove_file(&path).unwrap();
    }
}
