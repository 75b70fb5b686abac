//! What was found when programs were measured on a device, and the file in which it is remembered.

use super::cache_file::CacheFile;
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Which of several ways to compute something is the best: a hash of what is computed and of the ways that there are, so that an
/// answer is never taken for that to another question.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Question(u64);

impl Question {
    /// The question that this text asks.
    pub(crate) fn of(text: &str) -> Self {
        // FNV-1a.
        let step = |sum: u64, byte: u8| (sum ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        Question(text.bytes().fold(0xcbf2_9ce4_8422_2325, step))
    }
}

/// The best way that was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Best {
    /// Its number among the ways.
    pub(crate) way: u8,
    /// Whether all ways were measured.
    pub(crate) is_final: bool,
}

/// The answers for one device.
pub(crate) struct Found {
    known: Mutex<HashMap<Question, Best>>,
    file: Option<CacheFile>,
}

/// The bytes of an answer in the file: the question, and the number of the way.
const ENTRY: usize = 9;

impl Found {
    /// With what `file` remembers.
    pub(crate) fn new(file: Option<CacheFile>) -> Self {
        let bytes = file.as_ref().and_then(CacheFile::read).unwrap_or_default();
        let entry = |[question @ .., way]: &[u8; ENTRY]| {
            let question = Question(u64::from_le_bytes(*question));
            (question, Best { way: *way, is_final: true })
        };
        let known = bytes.as_chunks().0.iter().map(entry).collect();
        Found { known: Mutex::new(known), file }
    }

    /// All answers.
    pub(crate) fn all(&self) -> HashMap<Question, Best> {
        self.lock().clone()
    }

    /// Keeps more of them, also in the file, if all ways were measured. That they cannot be written is no error: they are found
    /// again the next time.
    pub(crate) fn keep(&self, more: impl IntoIterator<Item = (Question, Best)>) {
        let mut known = self.lock();
        known.extend(more);
        let Some(file) = &self.file else { return };
        let mut all: Vec<(Question, u8)> = known
            .iter()
            .filter(|(_, best)| best.is_final)
            .map(|(question, best)| (*question, best.way))
            .collect();
        all.sort_unstable();
        let entry = |(question, way): &(Question, u8)| {
            question.0.to_le_bytes().into_iter().chain([*way]).collect::<Vec<u8>>()
        };
        let bytes: Vec<u8> = all.iter().flat_map(entry).collect();
        let _ = file.write(&bytes);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Question, Best>> {
        // A panic elsewhere cannot have left what is locked half-changed.
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::super::cache_file::{CacheKey, Holds};
    use super::*;

    #[test]
    fn final_answers_are_remembered() {
        let key = CacheKey { vendor: 1, device: 2, driver: 3, uuid: [4; 16] };
        let folder = std::env::temp_dir().join(format!("torchlet-found-{}", std::process::id()));
        let file = || Some(CacheFile::new(&folder, key, Holds::Choices));
        let [a, b] = ["a", "b"].map(Question::of);
        let first = Found::new(file());
        assert!(first.all().is_empty());
        let best = |way, is_final| Best { way, is_final };
        first.keep([(a, best(3, true)), (b, best(1, false))]);
        assert_eq!(first.all().len(), 2);
        let second = Found::new(file());
        assert_eq!(second.all().into_iter().collect::<Vec<_>>(), [(a, best(3, true))]);
        second.keep([(a, best(0, true)), (b, best(2, true))]);
        assert_eq!(
            Found::new(file()).all(),
            HashMap::from([(a, best(0, true)), (b, best(2, true))])
        );
        let _ = std::fs::remove_dir_all(&folder);
    }
}
