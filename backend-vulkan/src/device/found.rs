//! What was found when programs were measured on a device, and the file in which it is remembered.

use super::cache_file::CacheFile;
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Which of several ways to compute something is the best: a hash of what is computed and of the
/// ways that there are, so that an answer is never taken for that to another question.
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
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Best {
    /// Its number among the ways.
    pub(crate) way: u8,
    /// What it takes of the time of the first way.
    pub(crate) share: f32,
    /// How many ways were measured, from the first one on.
    pub(crate) tried: u8,
}

/// The answers for one device.
pub(crate) struct Found {
    known: Mutex<HashMap<Question, Best>>,
    file: Option<CacheFile>,
}

/// The bytes of an answer in the file: the question, then the best way, its share, how many were
/// tried.
const ENTRY: usize = 14;

/// The answers in a file's bytes.
fn entries(bytes: &[u8]) -> impl Iterator<Item = (Question, Best)> {
    bytes.as_chunks::<ENTRY>().0.iter().map(|[a, b, c, d, e, f, g, h, way, share @ .., tried]| {
        let question = u64::from_le_bytes([*a, *b, *c, *d, *e, *f, *g, *h]);
        let share = f32::from_le_bytes(*share);
        (Question(question), Best { way: *way, share, tried: *tried })
    })
}

impl Found {
    /// With what `file` remembers.
    pub(crate) fn new(file: Option<CacheFile>) -> Self {
        let bytes = file.as_ref().and_then(CacheFile::read).unwrap_or_default();
        Found { known: Mutex::new(entries(&bytes).collect()), file }
    }

    /// All answers.
    pub(crate) fn all(&self) -> HashMap<Question, Best> {
        self.lock().clone()
    }

    /// Keeps more of them, also in the file, beside what others wrote there meanwhile. That they
    /// cannot be written is no error: they are found again the next time.
    pub(crate) fn keep(&self, more: impl IntoIterator<Item = (Question, Best)>) {
        let mut known = self.lock();
        known.extend(more);
        let Some(file) = &self.file else { return };
        for (question, best) in entries(&file.read().unwrap_or_default()) {
            let own = known.entry(question).or_insert(best);
            if own.tried < best.tried {
                *own = best;
            }
        }
        let mut all: Vec<(Question, Best)> = known.iter().map(|(a, b)| (*a, *b)).collect();
        all.sort_unstable_by_key(|(question, _)| *question);
        let mut bytes = Vec::with_capacity(all.len() * ENTRY);
        for (question, best) in all {
            bytes.extend(question.0.to_le_bytes());
            bytes.push(best.way);
            bytes.extend(best.share.to_le_bytes());
            bytes.push(best.tried);
        }
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
    fn answers_are_remembered() {
        let key = CacheKey { vendor: 1, device: 2, driver: 3, uuid: [4; 16] };
        let folder = std::env::temp_dir().join(format!("torchlet-found-{}", std::process::id()));
        let file = || Some(CacheFile::new(&folder, key, Holds::Choices));
        let [a, b] = ["a", "b"].map(Question::of);
        let [first, second] = [Found::new(file()), Found::new(file())];
        assert!(first.all().is_empty());
        let best = |way, tried| Best { way, share: 0.5, tried };
        first.keep([(a, best(3, 4))]);
        // Another process, which did not get as far with the same, does not undo it.
        second.keep([(a, best(1, 2)), (b, best(0, 1))]);
        let expected = HashMap::from([(a, best(3, 4)), (b, best(0, 1))]);
        assert_eq!(second.all(), expected);
        assert_eq!(Found::new(file()).all(), expected);
        let _ = std::fs::remove_dir_all(&folder);
    }
}
