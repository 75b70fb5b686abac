//! Memory that what is needed at different times shares.

use alloc::vec::Vec;

/// A time, in steps, with its first and its last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lifetime {
    /// The first step that needs it.
    pub first: usize,
    /// The last one.
    pub last: usize,
}

/// Memory that is taken for some time.
#[derive(Debug, Clone, Copy)]
pub(super) struct Taken {
    pub(super) start: usize,
    pub(super) end: usize,
    pub(super) lifetime: Lifetime,
}

/// Memory in which each request gets the lowest place that is free for as long as it lives. Those
/// who ask for the largest first get the least in all.
#[derive(Debug, Clone)]
pub struct Room {
    /// Sorted by where it starts.
    taken: Vec<Taken>,
    align: usize,
}

impl Lifetime {
    pub(super) fn overlaps(&self, other: &Self) -> bool {
        self.first <= other.last && other.first <= self.last
    }

    pub(super) fn include(&mut self, other: Self) {
        self.first = self.first.min(other.first);
        self.last = self.last.max(other.last);
    }

    pub(super) fn contains(&self, other: &Self) -> bool {
        self.first <= other.first && other.last <= self.last
    }
}

impl Room {
    /// Nothing is taken; places start at multiples of `align`.
    pub fn new(align: usize) -> Self {
        Room { taken: Vec::new(), align }
    }

    /// This much is taken already.
    pub(super) fn with(mut taken: Vec<Taken>, align: usize) -> Self {
        taken.sort_unstable_by_key(|taken| taken.start);
        Room { taken, align }
    }

    /// Takes so much for so long, and says where. `None` if there is no such number.
    pub fn take(&mut self, size: usize, lifetime: Lifetime) -> Option<usize> {
        let mut start = 0usize;
        for other in self.taken.iter().filter(|other| other.lifetime.overlaps(&lifetime)) {
            if other.start >= start.checked_add(size)? {
                break;
            }
            start = start.max(other.end.checked_next_multiple_of(self.align)?);
        }
        let end = start.checked_add(size)?;
        let at = self.taken.partition_point(|other| other.start < start);
        self.taken.insert(at, Taken { start, end, lifetime });
        Some(start)
    }

    /// Where the last place ends.
    pub fn end(&self) -> usize {
        self.taken.iter().map(|taken| taken.end).max().unwrap_or(0)
    }
}
