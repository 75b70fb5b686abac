//! Places of tensor data: ranges of memory that stay lent for the life of a method.
//!
//! A program may describe tensors that overlap, so no Rust reference to tensor data is kept. A
//! [`Region`] is an address range with permission; references are made for the time of one kernel
//! or delegate call, after that call's written ranges were compared with all others (see
//! [`calls`](crate::call)).

use core::marker::PhantomData;
use core::ptr::NonNull;

/// A range of memory that is lent for `'m`, to be read, or read and written.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Region<'m> {
    start: NonNull<u8>,
    len: usize,
    writable: bool,
    lent: PhantomData<&'m [u8]>,
}

// SAFETY: a region is as good as the borrow it was made from: `&'m [u8]` or `&'m mut [u8]`, both of
// which may move to and be shared with other threads. Access goes through `bytes` and `bytes_mut`,
// whose callers promise that no conflicting access exists, on any thread.
unsafe impl Send for Region<'_> {}
// SAFETY: see `Send`; a shared `Region` only tells its address and length without a further unsafe
// call.
unsafe impl Sync for Region<'_> {}

impl<'m> Region<'m> {
    /// Memory that is only read.
    pub(crate) fn read_only(bytes: &'m [u8]) -> Self {
        let start = NonNull::from(bytes).cast();
        Region { start, len: bytes.len(), writable: false, lent: PhantomData }
    }

    /// Memory that is read and written.
    pub(crate) fn writable(bytes: &'m mut [u8]) -> Self {
        let len = bytes.len();
        let start = NonNull::from(bytes).cast();
        Region { start, len, writable: true, lent: PhantomData }
    }

    /// Address, length, and whether it may be written: for those who keep them
    /// [apart](crate::memory::slot).
    pub(crate) fn split(self) -> (*mut u8, usize, bool) {
        (self.start.as_ptr(), self.len, self.writable)
    }

    /// The region again.
    ///
    /// # Safety
    /// The three parts are those of one region that was lent for `'m`.
    pub(crate) unsafe fn join(start: *mut u8, len: usize, writable: bool) -> Self {
        // SAFETY: the address of a region is never null.
        let start = unsafe { NonNull::new_unchecked(start) };
        Region { start, len, writable, lent: PhantomData }
    }

    /// No bytes, at an address aligned for every element type.
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

    /// `len` bytes from `offset`; `None` if they are not all inside.
    pub(crate) fn part(&self, offset: usize, len: usize) -> Option<Self> {
        if offset.checked_add(len)? > self.len {
            return None;
        }
        if len == 0 {
            return Some(Region { writable: self.writable, ..Region::empty() });
        }
        // SAFETY: `offset + len <= self.len` was just checked, so the result stays inside the
        // borrowed range that `start` was made from.
        let start = unsafe { self.start.add(offset) };
        Some(Region { start, len, ..*self })
    }

    /// Whether the two have bytes in common.
    pub(crate) fn overlaps(&self, other: &Region<'_>) -> bool {
        let (own, others) = (self.addr(), other.addr());
        own < others.saturating_add(other.len) && others < own.saturating_add(self.len)
    }

    /// The same memory, for a lifetime of the caller's choice.
    ///
    /// # Safety
    /// When the borrow that the region was made from ends, the result is gone, and all that was
    /// made of it.
    pub(crate) unsafe fn extend<'x>(self) -> Region<'x> {
        let Region { start, len, writable, .. } = self;
        Region { start, len, writable, lent: PhantomData }
    }

    /// The bytes, for reading.
    ///
    /// # Safety
    /// For as long as `'c`, nothing may write to these bytes, and `'c` must not outlast `'m`.
    pub(crate) unsafe fn bytes<'c>(&self) -> &'c [u8] {
        // SAFETY: start and length describe a range borrowed for 'm, initialised since it was a
        // slice of u8; the caller rules out writes and keeps 'c within 'm.
        unsafe { core::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }

    /// The bytes, for reading and writing; `None` if the region is read-only.
    ///
    /// # Safety
    /// For as long as `'c`, nothing else may read or write these bytes, and `'c` must not outlast
    /// `'m`.
    pub(crate) unsafe fn bytes_mut<'c>(&self) -> Option<&'c mut [u8]> {
        if !self.writable {
            return None;
        }
        // SAFETY: the range was borrowed mutably for 'm, as `writable` says; the caller rules out
        // any other access and keeps 'c within 'm.
        Some(unsafe { core::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) })
    }
    /// Copies the bytes of another region, which may overlap, to the front of this one; false if
    /// this one is read-only or smaller.
    ///
    /// # Safety
    /// No reference to bytes of either may exist, and nothing else may read or write them
    /// meanwhile.
    pub(crate) unsafe fn copy_from(&self, source: &Region<'_>) -> bool {
        if !self.writable || source.len > self.len {
            return false;
        }
        let (from, to) = (source.start.as_ptr(), self.start.as_ptr());
        // In pieces as long as one is from the other, which do not overlap: `copy` would be another
        // large function in firmware.
        let (distance, is_behind) = (from.addr().abs_diff(to.addr()), to.addr() > from.addr());
        let mut left = if distance == 0 { 0 } else { source.len };
        while left > 0 {
            let piece = left.min(distance);
            let at = if is_behind { left - piece } else { source.len - left };
            // SAFETY: both ranges are borrowed, this one mutably, as `writable` says, and hold
            // `source.len` initialised bytes, of which `at + piece` is at most; the pieces are
            // `distance` apart, and no longer. What earlier pieces wrote lies behind (or, from
            // front to back, in front of) what is left to be read. The caller rules out references
            // and other accesses.
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
    fn copies_what_overlaps() {
        for (from, to, len) in
            [(0, 3, 7), (3, 0, 7), (0, 1, 9), (1, 0, 9), (2, 2, 5), (0, 5, 5), (4, 0, 0)]
        {
            let mut bytes: [u8; 10] = core::array::from_fn(|index| index as u8);
            let mut expected = bytes;
            expected.copy_within(from..from + len, to);
            let whole = Region::writable(&mut bytes);
            let (source, target) = (whole.part(from, len).unwrap(), whole.part(to, len).unwrap());
            // SAFETY: `bytes` is borrowed by the regions, and by nothing else.
            assert!(unsafe { target.copy_from(&source) });
            assert_eq!(bytes, expected, "{len} bytes from {from} to {to}");
        }
    }
}
