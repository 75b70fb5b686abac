//! Sorting that ends soon after the run is cancelled.

use crate::compute::split::is_cancelled;
use torchlet_core::Parallel;

/// Maximum number of entries that are sorted without a check: some milliseconds.
const MAX_UNCHECKED: usize = 1 << 18;
/// Number of entries that are compared between two checks: about a millisecond.
const BLOCK: usize = 1 << 20;
/// Number of entries of which the median separates a partition.
const SAMPLE: usize = 63;

/// Sorts entries; if the run is cancelled, leaves them in any order. Few entries, and all on
/// firmware, are left to the standard library. More are partitioned until they are few, with checks
/// between blocks. Entries must be distinct, as those with positions are: equal ones would not be
/// separated.
pub(super) fn sort<E: Copy + Ord>(parallel: &dyn Parallel, entries: &mut [E]) {
    if cfg!(feature = "std") && entries.len() > MAX_UNCHECKED {
        if !are_sorted(parallel, entries) {
            partitions(parallel, entries, 2 * entries.len().ilog2());
        }
    } else {
        entries.sort_unstable();
    }
}

/// Whether entries are in order already, or the run is cancelled.
fn are_sorted<E: Ord>(parallel: &dyn Parallel, entries: &[E]) -> bool {
    // Blocks overlap by one entry.
    let mut rest = entries;
    while let Some((_, behind)) = rest.split_first().filter(|(_, behind)| !behind.is_empty()) {
        if is_cancelled(parallel) {
            return true;
        }
        let (block, _) = rest.split_at(rest.len().min(BLOCK + 1));
        if !block.is_sorted() {
            return false;
        }
        rest = behind.get(block.len() - 2..).unwrap_or_default();
    }
    true
}

/// Sorts entries by partitioning them at most `depth` times: unlucky medians end in the standard
/// library's sort, which has no worst case of its own.
fn partitions<E: Copy + Ord>(parallel: &dyn Parallel, mut entries: &mut [E], mut depth: u32) {
    while entries.len() > MAX_UNCHECKED && depth > 0 {
        depth -= 1;
        let Some(middle) = partition(parallel, entries) else { return };
        let (low, high) = core::mem::take(&mut entries).split_at_mut(middle);
        let (short, long) = if low.len() < high.len() { (low, high) } else { (high, low) };
        partitions(parallel, short, depth);
        entries = long;
    }
    if !is_cancelled(parallel) {
        entries.sort_unstable();
    }
}

/// Moves the entries below a median to the front, and returns their number; `None` if the run is
/// cancelled.
fn partition<E: Copy + Ord>(parallel: &dyn Parallel, entries: &mut [E]) -> Option<usize> {
    let mut sample = [*entries.first()?; SAMPLE];
    // Strides that are multiples of a row or a power of two would follow patterns in the data.
    let step = ((entries.len() / SAMPLE) | 1).wrapping_mul(0x9e37_79b1);
    for (number, slot) in sample.iter_mut().enumerate() {
        *slot = *entries.get(number.wrapping_mul(step) % entries.len())?;
    }
    sample.sort_unstable();
    let pivot = *sample.get(SAMPLE / 2)?;
    let mut lower = 0;
    for start in (0..entries.len()).step_by(BLOCK) {
        if is_cancelled(parallel) {
            return None;
        }
        for at in start..entries.len().min(start + BLOCK) {
            // Entries from `lower` to `at` are not below the pivot. Swapping always avoids branches
            // that processors cannot predict.
            let is_lower = entries.get(at).is_some_and(|entry| *entry < pivot);
            entries.swap(lower, at);
            lower += usize::from(is_lower);
        }
    }
    Some(lower)
}

#[cfg(all(test, feature = "std"))]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::vec::Vec;

    /// Reports cancellation from a given check on.
    struct Checks {
        asked: AtomicUsize,
        cancel_at: usize,
    }

    impl Parallel for Checks {
        fn threads(&self) -> usize {
            1
        }

        fn run(&self, count: usize, task: &(dyn Fn(usize) + Sync)) {
            (0..count).for_each(task);
        }

        fn is_cancelled(&self) -> bool {
            self.asked.fetch_add(1, Ordering::Relaxed) >= self.cancel_at
        }
    }

    fn checks(cancel_at: usize) -> Checks {
        Checks { asked: 0.into(), cancel_at }
    }

    #[test]
    fn entries_in_any_order_are_sorted() {
        const COUNT: u64 = 3 << 20;
        let orders: [fn(u64) -> u64; 5] = [
            |at| at,
            |at| COUNT - at,
            |at| at.wrapping_mul(0x9e37_79b9_7f4a_7c15),
            // Few keys, made distinct by positions.
            |at| (at * 37 % 5) << 32 | at,
            |at| if at == 7 { COUNT } else { at },
        ];
        for order in orders {
            let mut entries: Vec<u64> = (0..COUNT).map(order).collect();
            let mut expected = entries.clone();
            expected.sort_unstable();
            let parallel = checks(usize::MAX);
            sort(&parallel, &mut entries);
            assert!(entries == expected);
            assert!(parallel.asked.into_inner() >= 3);
        }
    }

    #[test]
    fn cancelled_sorts_keep_all_entries() {
        let entries: Vec<u64> = (0..1u64 << 20).map(|at| at.wrapping_mul(0x9e37_79b9)).collect();
        let whole = checks(usize::MAX);
        sort(&whole, &mut entries.clone());
        for cancel_at in 0..whole.asked.into_inner() {
            let mut cancelled = entries.clone();
            let parallel = checks(cancel_at);
            sort(&parallel, &mut cancelled);
            assert!(parallel.asked.into_inner() <= cancel_at + 20);
            cancelled.sort_unstable();
            let mut expected = entries.clone();
            expected.sort_unstable();
            assert!(cancelled == expected);
        }
    }
}
