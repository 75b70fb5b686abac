//! A bump allocator over bytes that the caller lends, and the arithmetic that predicts its use.

use core::mem::MaybeUninit;

/// The alignment that arenas, planned buffers and scratch memory must have, in bytes.
///
/// With it, the exact sizes that [`MethodMeta`](crate::MethodMeta) reports are enough.
pub const ARENA_ALIGN: usize = 16;

/// Bytes with the alignment that arenas need, for use in statics.
///
/// ```
/// use torchlet_core::AlignedBytes;
/// static MODEL: &[u8] = &AlignedBytes(*b"bytes of a program").0;
/// let mut arena = AlignedBytes([0u8; 4096]);
/// let memory: &mut [u8] = &mut arena.0;
/// ```
#[derive(Debug, Clone)]
#[repr(C, align(16))]
pub struct AlignedBytes<B: ?Sized>(pub B);

/// The place of the next `count` items of `size` bytes aligned to `align` (a power of two, at most
/// [`ARENA_ALIGN`]), and the place behind them.
fn place(used: usize, size: usize, align: usize, count: usize) -> Option<(usize, usize)> {
    let start = used.checked_add(align - 1)? & !(align - 1);
    let end = size.checked_mul(count)?.checked_add(start)?;
    Some((start, end))
}

/// Adds up the bytes that the same calls on an [`Arena`] would take.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Measure {
    used: Option<usize>,
}

impl Measure {
    pub(crate) fn new() -> Self {
        Measure { used: Some(0) }
    }

    pub(crate) fn slice<T>(&mut self, count: usize) {
        self.bytes(size_of::<T>().saturating_mul(count), align_of::<T>());
        if size_of::<T>().checked_mul(count).is_none() {
            self.used = None;
        }
    }

    pub(crate) fn bytes(&mut self, bytes: usize, align: usize) {
        self.used = self.used.and_then(|used| place(used, bytes, align, 1)).map(|(_, end)| end);
    }

    /// Bytes in all; `None` if more than can be addressed.
    pub(crate) fn total(&self) -> Option<usize> {
        self.used
    }
}

/// Not enough is left: the arena would have to hold this many bytes up to the end of the request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Exhausted {
    pub(crate) needed: usize,
}

/// Hands out parts of the caller's bytes, in order.
#[derive(Debug)]
pub(crate) struct Arena<'m> {
    rest: &'m mut [u8],
    used: usize,
}

impl<'m> Arena<'m> {
    /// `None` if the bytes do not start at a multiple of [`ARENA_ALIGN`].
    pub(crate) fn new(bytes: &'m mut [u8]) -> Option<Self> {
        if !bytes.is_empty() && !bytes.as_ptr().addr().is_multiple_of(ARENA_ALIGN) {
            return None;
        }
        Some(Arena { rest: bytes, used: 0 })
    }

    /// The next `bytes` bytes at a multiple of `align`, a power of two up to [`ARENA_ALIGN`].
    pub(crate) fn bytes(&mut self, bytes: usize, align: usize) -> Result<&'m mut [u8], Exhausted> {
        let (start, end) =
            place(self.used, bytes, align, 1).ok_or(Exhausted { needed: usize::MAX })?;
        let take = end - self.used;
        if take > self.rest.len() {
            return Err(Exhausted { needed: end });
        }
        let (head, rest) = core::mem::take(&mut self.rest).split_at_mut(take);
        self.rest = rest;
        let skip = start - self.used;
        self.used = end;
        Ok(head.get_mut(skip..).unwrap_or_default())
    }

    /// A slice of `count` items, each made by `fill` from its index. Items are never dropped.
    pub(crate) fn slice<T, E: From<Exhausted>>(
        &mut self,
        count: usize,
        mut fill: impl FnMut(usize) -> Result<T, E>,
    ) -> Result<&'m mut [T], E> {
        let bytes = size_of::<T>().checked_mul(count).ok_or(Exhausted { needed: usize::MAX })?;
        let memory = self.bytes(bytes, align_of::<T>())?;
        if bytes == 0 {
            return Ok(&mut []);
        }
        let items = memory.as_mut_ptr().cast::<MaybeUninit<T>>();
        // SAFETY: `memory` is exclusively borrowed for 'm, has exactly `count * size_of::<T>()` bytes and
        // starts at a multiple of `align_of::<T>()`: `new` checked that the arena starts at a
        // multiple of ARENA_ALIGN, `place` aligns relative to that start, and no type used here needs more
        // (asserted below). `MaybeUninit` items need no initial value.
        let items: &'m mut [MaybeUninit<T>] =
            unsafe { core::slice::from_raw_parts_mut(items, count) };
        const { assert!(align_of::<T>() <= ARENA_ALIGN) };
        for (index, item) in items.iter_mut().enumerate() {
            item.write(fill(index)?);
        }
        // SAFETY: the loop above wrote every item; `MaybeUninit<T>` has the layout of `T`.
        Ok(unsafe { &mut *(core::ptr::from_mut(items) as *mut [T]) })
    }

    /// Moves `value` into the arena. It is not dropped with the arena; the caller sees to that.
    pub(crate) fn place_value<T>(&mut self, value: T) -> Result<&'m mut T, Exhausted> {
        const { assert!(align_of::<T>() <= ARENA_ALIGN) };
        let memory = self.bytes(size_of::<T>(), align_of::<T>())?;
        let place = memory.as_mut_ptr().cast::<MaybeUninit<T>>();
        // SAFETY: as in `slice`: exclusively borrowed for 'm, large enough, aligned. For a zero-sized T the
        // pointer may dangle, but it is still non-null and, by `place`, a multiple of T's alignment
        // relative to an aligned start; an empty arena's dangling pointer is handled here.
        if size_of::<T>() == 0 && place.addr() % align_of::<T>() != 0 {
            let place = core::ptr::NonNull::<T>::dangling().as_ptr();
            core::mem::forget(value);
            // SAFETY: a zero-sized T is valid at any non-null aligned address; `value` was forgotten, so this
            // is the only owner.
            return Ok(unsafe { &mut *place });
        }
        // SAFETY: see above.
        let slot: &'m mut MaybeUninit<T> = unsafe { &mut *place };
        Ok(slot.write(value))
    }

    /// Bytes handed out so far, gaps for alignment included.
    pub(crate) fn used(&self) -> usize {
        self.used
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arena_and_measure_agree_to_the_byte() {
        let mut measure = Measure::new();
        measure.bytes(3, 1);
        measure.slice::<u64>(2);
        measure.slice::<u16>(1);
        measure.bytes(5, 16);
        let total = measure.total().unwrap();
        let mut memory = AlignedBytes([0u8; 64]);
        for size in [total, total - 1] {
            let mut arena = Arena::new(&mut memory.0[..size]).unwrap();
            arena.bytes(3, 1).unwrap();
            arena.slice::<u64, Exhausted>(2, |i| Ok(i as u64)).unwrap();
            arena.slice::<u16, Exhausted>(1, |_| Ok(7)).unwrap();
            let last = arena.bytes(5, 16);
            assert_eq!(last.is_ok(), size == total);
            if let Err(exhausted) = last {
                assert_eq!(exhausted.needed, total);
            }
        }
    }

    #[test]
    fn slices_hold_what_was_put_in() {
        let mut memory = AlignedBytes([0xffu8; 64]);
        let mut arena = Arena::new(&mut memory.0).unwrap();
        let a = arena.slice::<u32, Exhausted>(3, |i| Ok(i as u32 * 10)).unwrap();
        let b = arena.place_value([1u8, 2, 3]).unwrap();
        a[1] += 1;
        assert_eq!((a as &[u32], *b), (&[0u32, 11, 20][..], [1, 2, 3]));
    }

    #[test]
    fn misaligned_memory_is_refused() {
        let mut memory = AlignedBytes([0u8; 64]);
        assert!(Arena::new(&mut memory.0[1..]).is_none());
        assert!(Arena::new(&mut []).is_some());
    }
}
