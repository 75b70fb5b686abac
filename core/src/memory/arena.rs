//! Bump allocator over caller-provided memory, and a matching size calculation.
//!
//! Arenas hold typed values, whose padding bytes are uninitialised, so their memory is never
//! exposed as `[u8]`: input memory is [`MaybeUninit`], and memory handed out as bytes is zeroed
//! first.

use core::mem::MaybeUninit;

/// Required alignment of arenas, planned buffers and scratch memory, in bytes.
///
/// With this alignment, the exact sizes in [`MemoryNeeds`](crate::MemoryNeeds) suffice.
pub const ARENA_ALIGN: usize = 16;

/// Bytes with the alignment that a method's memory needs, for statics: files in flash, planned
/// buffers, scratch memory.
///
/// ```
/// use torchlet_core::AlignedBytes;
/// static MODEL: &[u8] = &AlignedBytes(*b"bytes of a program").0;
/// let mut scratch = AlignedBytes([0u8; 4096]);
/// let memory: &mut [u8] = &mut scratch.0;
/// ```
#[derive(Debug, Clone)]
#[repr(C, align(16))]
pub struct AlignedBytes<B: ?Sized>(pub B);

/// An aligned block of 16 uninitialised bytes, for arenas.
///
/// ```
/// use torchlet_core::ArenaBlock;
/// let mut blocks = [ArenaBlock::UNINIT; 256];
/// assert_eq!(ArenaBlock::bytes(&mut blocks).len(), 4096);
/// ```
#[derive(Clone, Copy)]
#[repr(C, align(16))]
pub struct ArenaBlock([MaybeUninit<u8>; ARENA_ALIGN]);

impl ArenaBlock {
    /// An uninitialised block.
    pub const UNINIT: Self = ArenaBlock([MaybeUninit::uninit(); ARENA_ALIGN]);

    /// Memory of the blocks, for use as an arena, in whole or in part.
    pub fn bytes(blocks: &mut [ArenaBlock]) -> &mut [MaybeUninit<u8>] {
        let len = size_of_val(blocks);
        // SAFETY: the result borrows the blocks exclusively. A block is ARENA_ALIGN bytes without
        // padding (its size is asserted below), and as `MaybeUninit` they hold any value.
        unsafe { core::slice::from_raw_parts_mut(blocks.as_mut_ptr().cast(), len) }
    }

    /// Converts initialised memory to an arena. The memory cannot be used for anything else
    /// afterwards, since arenas contain uninitialised bytes; hence the `'static` lifetime.
    pub fn from_static(memory: &'static mut [u8]) -> &'static mut [MaybeUninit<u8>] {
        let (start, len) = (memory.as_mut_ptr(), memory.len());
        // SAFETY: `u8` and `MaybeUninit<u8>` have the same layout. The exclusive borrow is consumed
        // and lasts forever, so nothing can read these bytes as `u8` again, whatever is written to
        // them.
        unsafe { core::slice::from_raw_parts_mut(start.cast(), len) }
    }
}

const _: () = assert!(size_of::<ArenaBlock>() == ARENA_ALIGN);

impl core::fmt::Debug for ArenaBlock {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("ArenaBlock")
    }
}

/// Start and end offset of an allocation of `count` items of `size` bytes after `used` bytes,
/// aligned to `align` (a power of two, at most [`ARENA_ALIGN`]).
fn allocation_range(
    used: usize,
    size: usize,
    align: usize,
    count: usize,
) -> Option<(usize, usize)> {
    let start = used.checked_add(align - 1)? & !(align - 1);
    let end = size.checked_mul(count)?.checked_add(start)?;
    Some((start, end))
}

/// Computes the size that a sequence of [`Arena`] allocations needs.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct ArenaSize {
    used: Option<usize>,
}

impl ArenaSize {
    pub(crate) fn new() -> Self {
        ArenaSize { used: Some(0) }
    }

    /// Adds `count` items with this size and alignment.
    pub(crate) fn add_items(&mut self, (size, align): (usize, usize), count: usize) {
        self.used = self
            .used
            .and_then(|used| allocation_range(used, size, align, count))
            .map(|(_, end)| end);
    }

    pub(crate) fn add_bytes(&mut self, bytes: usize, align: usize) {
        self.add_items((bytes, align), 1);
    }

    /// Total size in bytes; `None` if it exceeds the address space.
    pub(crate) fn total(&self) -> Option<usize> {
        self.used
    }
}

/// Error: the arena is too small. `needed` is its minimum size, up to the end of the failed
/// request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Exhausted {
    pub(crate) needed: usize,
}

/// Bump allocator over the caller's memory.
#[derive(Debug)]
pub(crate) struct Arena<'m> {
    rest: &'m mut [MaybeUninit<u8>],
    used: usize,
}

impl<'m> Arena<'m> {
    /// Creates an arena; `None` if the memory does not start at a multiple of [`ARENA_ALIGN`].
    pub(crate) fn new(memory: &'m mut [MaybeUninit<u8>]) -> Option<Self> {
        if !memory.is_empty() && !memory.as_ptr().addr().is_multiple_of(ARENA_ALIGN) {
            return None;
        }
        Some(Arena { rest: memory, used: 0 })
    }

    /// Allocates `bytes` bytes at a multiple of `align`, a power of two up to [`ARENA_ALIGN`].
    pub(crate) fn allocate(
        &mut self,
        bytes: usize,
        align: usize,
    ) -> Result<&'m mut [MaybeUninit<u8>], Exhausted> {
        let (start, end) =
            allocation_range(self.used, bytes, align, 1).ok_or(Exhausted { needed: usize::MAX })?;
        let len = end - self.used;
        if len > self.rest.len() {
            return Err(Exhausted { needed: end });
        }
        let (head, rest) = core::mem::take(&mut self.rest).split_at_mut(len);
        self.rest = rest;
        let skip = start - self.used;
        self.used = end;
        Ok(head.get_mut(skip..).unwrap_or_default())
    }

    /// Allocates zeroed bytes.
    pub(crate) fn zeroed(&mut self, bytes: usize, align: usize) -> Result<&'m mut [u8], Exhausted> {
        let memory = self.allocate(bytes, align)?;
        memory.fill(MaybeUninit::new(0));
        let (start, len) = (memory.as_mut_ptr(), memory.len());
        // SAFETY: the memory is exclusively borrowed for 'm and was just filled, so every byte is
        // initialised. Nothing else gets it, since the arena hands out each range once.
        Ok(unsafe { core::slice::from_raw_parts_mut(start.cast(), len) })
    }

    /// Allocates a slice of `count` items, each created by `make`. Items are never dropped.
    pub(crate) fn slice<T>(
        &mut self,
        count: usize,
        make: impl Fn() -> T,
    ) -> Result<&'m mut [T], Exhausted> {
        let bytes = size_of::<T>().checked_mul(count).ok_or(Exhausted { needed: usize::MAX })?;
        let memory = self.allocate(bytes, align_of::<T>())?;
        if bytes == 0 {
            return Ok(&mut []);
        }
        let items = memory.as_mut_ptr().cast::<MaybeUninit<T>>();
        // SAFETY: `memory` is exclusively borrowed for 'm, has exactly `count * size_of::<T>()`
        // bytes and starts at a multiple of `align_of::<T>()`: `new` checked that the arena starts
        // at a multiple of ARENA_ALIGN, `allocation_range` aligns relative to that start, and no
        // type used here needs more (asserted below). `MaybeUninit` items need no initial value.
        let items: &'m mut [MaybeUninit<T>] =
            unsafe { core::slice::from_raw_parts_mut(items, count) };
        const { assert!(align_of::<T>() <= ARENA_ALIGN) };
        for item in items.iter_mut() {
            item.write(make());
        }
        // SAFETY: the loop above wrote every item; `MaybeUninit<T>` has the layout of `T`.
        Ok(unsafe { &mut *(core::ptr::from_mut(items) as *mut [T]) })
    }

    /// Moves `value` into the arena. The arena does not drop it; the caller must.
    pub(crate) fn place_value<T>(&mut self, value: T) -> Result<&'m mut T, Exhausted> {
        const { assert!(align_of::<T>() <= ARENA_ALIGN) };
        let memory = self.allocate(size_of::<T>(), align_of::<T>())?;
        let target = memory.as_mut_ptr().cast::<MaybeUninit<T>>();
        // SAFETY: as in `slice`: exclusively borrowed for 'm, large enough, aligned. For a
        // zero-sized T, the pointer may dangle, but it is non-null and, by `allocation_range`, a
        // multiple of T's alignment relative to an aligned start. The dangling pointer of an empty
        // arena is handled here.
        if size_of::<T>() == 0 && target.addr() % align_of::<T>() != 0 {
            let target = core::ptr::NonNull::<T>::dangling().as_ptr();
            core::mem::forget(value);
            // SAFETY: a zero-sized T is valid at any non-null aligned address; `value` was
            // forgotten, so this is the only owner.
            return Ok(unsafe { &mut *target });
        }
        // SAFETY: see above.
        let slot: &'m mut MaybeUninit<T> = unsafe { &mut *target };
        Ok(slot.write(value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const U64: (usize, usize) = (size_of::<u64>(), align_of::<u64>());
    const U16: (usize, usize) = (size_of::<u16>(), align_of::<u16>());

    #[test]
    fn arena_and_size_agree_to_the_byte() {
        let mut arena_size = ArenaSize::new();
        arena_size.add_bytes(3, 1);
        arena_size.add_items(U64, 2);
        arena_size.add_items(U16, 1);
        arena_size.add_bytes(5, 16);
        let total = arena_size.total().unwrap();
        let mut blocks = [ArenaBlock::UNINIT; 4];
        for len in [total, total - 1] {
            let mut arena = Arena::new(&mut ArenaBlock::bytes(&mut blocks)[..len]).unwrap();
            arena.allocate(3, 1).unwrap();
            arena.slice(2, || 1u64).unwrap();
            arena.slice(1, || 7u16).unwrap();
            let last = arena.zeroed(5, 16);
            assert_eq!(last.is_ok(), len == total);
            if let Err(exhausted) = last {
                assert_eq!(exhausted.needed, total);
            }
        }
    }

    #[test]
    fn size_overflow_yields_none() {
        let mut arena_size = ArenaSize::new();
        arena_size.add_items(U64, usize::MAX / 4);
        assert_eq!(arena_size.total(), None);
    }

    #[test]
    fn slices_hold_their_values() {
        let mut blocks = [ArenaBlock::UNINIT; 4];
        let mut arena = Arena::new(ArenaBlock::bytes(&mut blocks)).unwrap();
        let a = arena.slice(3, || 10u32).unwrap();
        let b = arena.place_value([1u8, 2, 3]).unwrap();
        a[1] += 1;
        assert_eq!((a as &[u32], *b), (&[10u32, 11, 10][..], [1, 2, 3]));
    }

    #[test]
    fn allocated_bytes_are_initialised() {
        // The old contents include padding bytes, which are uninitialised: Miri reports reading
        // them.
        let mut blocks = [ArenaBlock::UNINIT; 2];
        let mut arena = Arena::new(ArenaBlock::bytes(&mut blocks)).unwrap();
        arena.place_value((1u8, 2u32)).unwrap();
        let mut arena = Arena::new(ArenaBlock::bytes(&mut blocks)).unwrap();
        let sum: u32 = arena.zeroed(32, 1).unwrap().iter().map(|byte| u32::from(*byte)).sum();
        assert_eq!(sum, 0);
    }

    #[test]
    fn misaligned_memory_is_rejected() {
        let mut blocks = [ArenaBlock::UNINIT; 4];
        assert!(Arena::new(&mut ArenaBlock::bytes(&mut blocks)[1..]).is_none());
        assert!(Arena::new(&mut []).is_some());
    }
}
