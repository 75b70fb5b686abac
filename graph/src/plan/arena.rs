//! Memory allocator that knows the lifetime of each request: requests with disjoint lifetimes share
//! memory.

use alloc::vec::Vec;

/// Inclusive interval of execution steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lifetime {
    /// First step that uses the memory.
    pub first: usize,
    /// Last step that uses the memory.
    pub last: usize,
}

/// Allocated memory and its lifetime.
#[derive(Debug, Clone, Copy)]
pub(super) struct Taken {
    pub(super) start: usize,
    pub(super) end: usize,
    pub(super) lifetime: Lifetime,
}

/// Memory arena that places each request at the lowest offset that is free during the request's
/// whole lifetime. Requests in order of decreasing size usually give the smallest total.
#[derive(Debug, Clone)]
pub struct Arena {
    /// Sorted by start.
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

impl Arena {
    /// Creates an empty arena with offsets aligned to `align` bytes.
    pub fn new(align: usize) -> Self {
        Arena { taken: Vec::new(), align }
    }

    /// Creates an arena with these allocations.
    pub(super) fn with(mut taken: Vec<Taken>, align: usize) -> Self {
        taken.sort_unstable_by_key(|taken| taken.start);
        Arena { taken, align }
    }

    /// Allocates `size` bytes and returns their offset. Returns `None` on overflow.
    pub fn take(&mut self, size: usize, lifetime: Lifetime) -> Option<usize> {
        self.take_below(size, lifetime, usize::MAX)
    }

    /// Allocates `size` bytes that end at `limit` or before, and returns their offset. Returns
    /// `None` if there is no room.
    pub fn take_below(&mut self, size: usize, lifetime: Lifetime, limit: usize) -> Option<usize> {
        let mut start = 0usize;
        for other in self.taken.iter().filter(|other| other.lifetime.overlaps(&lifetime)) {
            if other.start >= start.checked_add(size)? {
                break;
            }
            start = start.max(other.end.checked_next_multiple_of(self.align)?);
        }
        let end = start.checked_add(size).filter(|end| *end <= limit)?;
        let at = self.taken.partition_point(|other| other.start < start);
        self.taken.insert(at, Taken { start, end, lifetime });
        Some(start)
    }

    /// Returns the end of the last allocation.
    pub fn end(&self) -> usize {
        self.taken.iter().map(|taken| taken.end).max().unwrap_or(0)
    }
}
