//! Autotuning results of a device, and the file in which they are stored.

use super::cache_file::CacheFile;
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use torchlet_gpu::device::{TuningKey, TuningResult};
use torchlet_gpu::matrix_units;

/// The autotuning results for one device.
pub(crate) struct TuningResults {
    known: Mutex<HashMap<TuningKey, TuningResult>>,
    file: Option<CacheFile>,
}

/// The size of a result in the file, in bytes: question, best variant, share, number of variants
/// tried.
const ENTRY: usize = 14;

/// Parses results from the bytes of a file.
fn entries(bytes: &[u8]) -> impl Iterator<Item = (TuningKey, TuningResult)> {
    bytes.as_chunks::<ENTRY>().0.iter().map(
        |[a, b, c, d, e, f, g, h, variant, share @ .., tried]| {
            let question = u64::from_le_bytes([*a, *b, *c, *d, *e, *f, *g, *h]);
            let share = f32::from_le_bytes(*share);
            (
                TuningKey::from_hash(question),
                TuningResult { variant: *variant, share, tried: *tried },
            )
        },
    )
}

impl TuningResults {
    /// Loads the results that `file` stores.
    pub(crate) fn new(file: Option<CacheFile>) -> Self {
        let bytes = file.as_ref().and_then(CacheFile::read).unwrap_or_default();
        TuningResults { known: Mutex::new(entries(&bytes).collect()), file }
    }

    /// Returns all known results.
    pub(crate) fn all(&self) -> HashMap<TuningKey, TuningResult> {
        self.lock().clone()
    }

    /// Adds results. Also merges them into the file, which may have results of other processes. A
    /// write error is ignored: the results will be measured again.
    pub(crate) fn keep(&self, more: impl IntoIterator<Item = (TuningKey, TuningResult)>) {
        let mut known = self.lock();
        known.extend(more);
        let Some(file) = &self.file else { return };
        for (question, best) in entries(&file.read().unwrap_or_default()) {
            let own = known.entry(question).or_insert(best);
            if own.tried < best.tried {
                *own = best;
            }
        }
        let mut all: Vec<(TuningKey, TuningResult)> = known.iter().map(|(a, b)| (*a, *b)).collect();
        all.sort_unstable_by_key(|(question, _)| *question);
        let mut bytes = Vec::with_capacity(all.len() * ENTRY);
        for (question, best) in all {
            bytes.extend(question.hash().to_le_bytes());
            bytes.push(best.variant);
            bytes.extend(best.share.to_le_bytes());
            bytes.push(best.tried);
        }
        let _ = file.write(&bytes);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<TuningKey, TuningResult>> {
        // Poisoning can be ignored: a panic cannot leave the guarded data half-changed.
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns whether programs use matrix units on a newly opened device: `true` if the benchmark is
/// disabled, else the stored result; unset if no result is stored.
pub(crate) fn known_matrix_units(asks: bool, found: &TuningResults) -> OnceLock<bool> {
    match found.all().get(&matrix_units::question()) {
        _ if !asks => OnceLock::from(true),
        Some(best) => OnceLock::from(matrix_units::favours_units(best)),
        None => OnceLock::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::cache_file::{CacheKey, Holds};
    use super::*;

    #[test]
    fn tuning_results_are_stored() {
        let key = CacheKey { vendor: 1, device: 2, driver: 3, uuid: [4; 16] };
        let folder = std::env::temp_dir().join(format!("torchlet-found-{}", std::process::id()));
        let file = || Some(CacheFile::new(&folder, key, Holds::Choices));
        let [a, b] = ["a", "b"].map(TuningKey::of);
        let [first, second] = [TuningResults::new(file()), TuningResults::new(file())];
        assert!(first.all().is_empty());
        let best = |variant, tried| TuningResult { variant, share: 0.5, tried };
        first.keep([(a, best(3, 4))]);
        // Another process with fewer measurements for the same question does not overwrite the
        // result.
        second.keep([(a, best(1, 2)), (b, best(0, 1))]);
        let expected = HashMap::from([(a, best(3, 4)), (b, best(0, 1))]);
        assert_eq!(second.all(), expected);
        assert_eq!(TuningResults::new(file()).all(), expected);
        let _ = std::fs::remove_dir_all(&folder);
    }

    #[test]
    fn benchmark_result_applies_to_later_loads() {
        for (times, expected) in [([10, 50], true), ([90, 50], false)] {
            let found = TuningResults::new(None);
            assert_eq!(known_matrix_units(true, &found).get(), None, "not measured yet");
            found.keep([(matrix_units::question(), matrix_units::answer(times))]);
            assert_eq!(known_matrix_units(true, &found).get(), Some(&expected));
            // If the benchmark is disabled, matrix units are kept.
            assert_eq!(known_matrix_units(false, &found).get(), Some(&true));
        }
    }
}
