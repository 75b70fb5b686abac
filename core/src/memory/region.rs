//! Places of tensor data: ranges of memory that stay lent for the life of a method.
//!
//! A program may describe tensors that overlap, so no Rust reference to tensor data is kept. A [`Region`]
//! is an address range with permission; references are made for the time of one kernel or delegate
//! call, after that call's written ranges were compared with all others (see
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

// SAFETY: a region is as good as the borrow it was made from: `&'m [u8]` or `&'m mut [u8]`, both of which may
// move to and be shared with other threads. Access goes through `bytes` and `bytes_mut`, whose callers
// promise that no conflicting access exists, on any thread.
unsafe impl Send for Region<'_> {}
// SAFETY: see `Send`; a shared `Region` only tells its address and length without a further unsafe call.
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
        // SAFETY: `offset + len <= self.len` was just checked, so the result stays inside the borrowed
        // range that `start` was made from.
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
    /// When the borrow that the region was made from ends, the result is gone, and all that was made of it.
    pub(crate) unsafe fn extend<'x>(self) -> Region<'x> {
        let Region { start, len, writable, .. } = self;
        Region { start, len, writable, lent: PhantomData }
    }

    /// The bytes, for reading.
    ///
    /// # Safety
    /// For as long as `'c`, nothing may write to these bytes, and `'c` must not outlast `'m`.
    pub(crate) unsafe fn bytes<'c>(&self) -> &'c [u8] {
        // SAFETY: start and length describe a range borrowed for 'm, initialised since it was a slice of u8;
        // the caller rules out writes and keeps 'c within 'm.
        unsafe { core::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }

    /// The bytes, for reading and writing; `None` if the region is read-only.
    ///
    /// # Safety
    /// For as long as `'c`, nothing else may read or write these bytes, and `'c` must not outlast `'m`.
    pub(crate) unsafe fn bytes_mut<'c>(&self) -> Option<&'c mut [u8]> {
        if !self.writable {
            return None;
        }
        // SAFETY: the range was borrowed mutably for 'm, as `writable` says; the caller rules out any
        // other access and keeps 'c within 'm.
        Some(unsafe { core::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) })
    }
    /// Copies the bytes of another region, which may overlap, to the front of this one; false if this one is read-only or smaller.
    ///
    /// # Safety
    /// No reference to bytes of either may exist, and nothing else may read or write them meanwhile.
    pub(crate) unsafe fn copy_from(&self, source: &Region<'_>) -> bool {
        if !self.writable || source.len > self.len {
            return false;
        }
        // SAFETY: both ranges are borrowed, this one mutably, as `writable` says, and hold `source.len` initialised bytes; they may
        // overlap, which `copy` allows. The caller rules out references and other accesses.
        unsafe { core::ptr::copy(source.start.as_ptr(), self.start.as_ptr(), source.len) };
        true
    }
}
