//! Memory regions of tensor data, borrowed for the lifetime of a method.
//!
//! A program may describe overlapping tensors, so no Rust reference to tensor data is kept. A
//! [`Region`] is an address range with an access permission. References exist only during one
//! kernel or delegate call, after the ranges that the call writes were compared with all others
//! (see [`call`](crate::call)).

use core::marker::PhantomData;
use core::ptr::NonNull;

/// A memory range borrowed for `'m`, either read-only or writable.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Region<'m> {
    start: NonNull<u8>,
    len: usize,
    writable: bool,
    lent: PhantomData<&'m [u8]>,
}

// SAFETY: a region stands for the borrow that it was created from: `&'m [u8]` or `&'m mut [u8]`,
// which both may be sent to and shared with other threads. Access goes through `bytes` and
// `bytes_mut`, whose callers guarantee that no conflicting access exists on any thread.
unsafe impl Send for Region<'_> {}
// SAFETY: see `Send`; without a further unsafe call, a shared `Region` only exposes its address and
// length.
unsafe impl Sync for Region<'_> {}

impl<'m> Region<'m> {
    /// Creates a read-only region.
    pub(crate) fn read_only(bytes: &'m [u8]) -> Self {
        let start = NonNull::from(bytes).cast();
        Region { start, len: bytes.len(), writable: false, lent: PhantomData }
    }

    /// Creates a writable region.
    pub(crate) fn writable(bytes: &'m mut [u8]) -> Self {
        let len = bytes.len();
        let start = NonNull::from(bytes).cast();
        Region { start, len, writable: true, lent: PhantomData }
    }

    /// Splits into address, length and write permission, for [compact
    /// storage](crate::memory::slot).
    pub(crate) fn split(self) -> (*mut u8, usize, bool) {
        (self.start.as_ptr(), self.len, self.writable)
    }

    /// Inverse of [`split`](Self::split).
    ///
    /// # Safety
    /// The arguments are the parts of one region that is borrowed for `'m`.
    pub(crate) unsafe fn join(start: *mut u8, len: usize, writable: bool) -> Self {
        // SAFETY: the address of a region is never null.
        let start = unsafe { NonNull::new_unchecked(start) };
        Region { start, len, writable, lent: PhantomData }
    }

    /// An empty region, at an address aligned for every element type.
    pub(crate) fn empty() -> Self {
        let start = NonNull::<u128>::dangling().cast();
        Region { start, len: 0, writable: true, lent: PhantomData }
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn addr(&self) -> usize {
        self.start.as_ptr().addr()
    }

    /// Sub-region of `len` bytes at `offset`; `None` if out of range.
    pub(crate) fn part(&self, offset: usize, len: usize) -> Option<Self> {
        if offset.checked_add(len)? > self.len {
            return None;
        }
        if len == 0 {
            return Some(Region { writable: self.writable, ..Region::empty() });
        }
        // SAFETY: `offset + len <= self.len` was just checked, so the result stays inside the
        // borrowed range that `start` was created from.
        let start = unsafe { self.start.add(offset) };
        Some(Region { start, len, ..*self })
    }

    /// Whether the regions have bytes in common.
    pub(crate) fn overlaps(&self, other: &Region<'_>) -> bool {
        let (own, others) = (self.addr(), other.addr());
        own < others.saturating_add(other.len) && others < own.saturating_add(self.len)
    }

    /// Changes the lifetime of the region.
    ///
    /// # Safety
    /// The result and everything derived from it must be gone when the original borrow ends.
    pub(crate) unsafe fn extend<'x>(self) -> Region<'x> {
        let Region { start, len, writable, .. } = self;
        Region { start, len, writable, lent: PhantomData }
    }

    /// Borrows the bytes for reading.
    ///
    /// # Safety
    /// During `'c`, nothing may write to these bytes, and `'c` must not outlast `'m`.
    pub(crate) unsafe fn bytes<'c>(&self) -> &'c [u8] {
        // SAFETY: start and length describe a range borrowed for 'm, initialised since it was a
        // slice of u8. The caller rules out writes and keeps 'c within 'm.
        unsafe { core::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }

    /// Borrows the bytes for reading and writing; `None` if the region is read-only.
    ///
    /// # Safety
    /// During `'c`, nothing else may read or write these bytes, and `'c` must not outlast `'m`.
    pub(crate) unsafe fn bytes_mut<'c>(&self) -> Option<&'c mut [u8]> {
        if !self.writable {
            return None;
        }
        // SAFETY: the range was borrowed mutably for 'm, as `writable` records. The caller rules
        // out any other access and keeps 'c within 'm.
        Some(unsafe { core::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) })
    }
    /// Copies the bytes of another region, which may overlap, to the start of this one. Returns
    /// false if this region is read-only or smaller.
    ///
    /// # Safety
    /// No reference to bytes of either region may exist, and nothing else may read or write them
    /// during the call.
    pub(crate) unsafe fn copy_from(&self, source: &Region<'_>) -> bool {
        if !self.writable || source.len > self.len {
            return false;
        }
        let (from, to) = (source.start.as_ptr(), self.start.as_ptr());
        // Copies non-overlapping pieces, no longer than the distance between the regions: `copy`
        // (memmove) would link another large function into firmware.
        let (distance, is_behind) = (from.addr().abs_diff(to.addr()), to.addr() > from.addr());
        let mut left = if distance == 0 { 0 } else { source.len };
        while left > 0 {
            let piece = left.min(distance);
            let at = if is_behind { left - piece } else { source.len - left };
            // SAFETY: both ranges are borrowed, this one mutably, as `writable` records, and hold
            // `source.len` initialised bytes; `at + piece` is at most `source.len`. The two pieces
            // are `distance` bytes apart and at most that long, so they do not overlap. Earlier
            // pieces wrote only bytes behind (or, when copying forward, in front of) the remaining
            // source bytes. The caller rules out references and other accesses.
            unsafe { core::ptr::copy_nonoverlapping(from.add(at), to.add(at), piece) };
            left -= piece;
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_overlapping_regions() {
        for (from, to, len) in
            [(0, 3, 7), (3, 0, 7), (0, 1, 9), (1, 0, 9), (2, 2, 5), (0, 5, 5), (4, 0, 0)]
        {
            let mut bytes: [u8; 10] = core::array::from_fn(|index| index as u8);
            let mut expected = bytes;
            expected.copy_within(from..from + len, to);
            let whole = Region::writable(&mut bytes);
            let (source, target) = (whole.part(from, len).unwrap(), whole.part(to, len).unwrap());
            // SAFETY: `bytes` is borrowed only by the regions.
            assert!(unsafe { target.copy_from(&source) });
            assert_eq!(bytes, expected, "{len} bytes from {from} to {to}");
        }
    }
}
