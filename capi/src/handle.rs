//! Handles: Rust values in memory of C.
//!
//! A handle consists of a tag and storage. The tag identifies the type of the stored value, which
//! detects handles that were never opened or are closed. It also records whether the handle is in
//! use: if two tasks run a method at once, the second is refused. Stored values do not refer to
//! themselves, so handles can be moved as bytes, as C++ does.

use crate::fault::Fault;
use core::mem::{MaybeUninit, offset_of};
use core::sync::atomic::{AtomicU32, Ordering};

/// A handle type.
///
/// # Safety
/// The type has the layout of [`Room`] with `WORDS` words.
pub(crate) unsafe trait Handle: Sized {
    /// Type of the stored value.
    type Inner;
    /// Name in error messages.
    const NAME: &'static str;
    /// Type-specific part of the tag: unique and even.
    const KIND: u32;
}

/// Part of the tag that all handles share.
const MARK: u32 = 0x746f_7263;

/// Added to the kind while the handle is in use.
const IN_USE: u32 = 1;

/// Layout of a handle.
#[repr(C)]
pub(crate) struct Room<I> {
    mark: u32,
    /// The kind, plus `IN_USE` if applicable.
    state: u32,
    inner: MaybeUninit<I>,
}

/// Declares a handle type, and checks that its words have room for the stored value.
macro_rules! handle {
    ($handle:ident, $inner:ty, $name:literal, $mark:literal) => {
        const _: () = {
            use $crate::handle::{Handle, Room};
            assert!(
                size_of::<Room<$inner>>() <= size_of::<$handle>(),
                "the handle is too small: increase its word count"
            );
            assert!(align_of::<Room<$inner>>() <= align_of::<$handle>());
            // SAFETY: sizes and alignments are compared above, and no code accesses the fields of
            // the handle type itself.
            unsafe impl Handle for $handle {
                type Inner = $inner;
                const NAME: &'static str = $name;
                const KIND: u32 = $mark << 16;
            }
        };
    };
}
pub(crate) use handle;

fn check<H: Handle>(handle: *const H) -> Result<*const Room<H::Inner>, Fault> {
    if handle.is_null() {
        return Err(Fault::Null(H::NAME));
    }
    if !handle.is_aligned() {
        return Err(Fault::Misaligned(H::NAME));
    }
    Ok(handle.cast())
}

/// Stores a value in a handle, and tags it. The old contents are not dropped.
///
/// # Safety
/// `handle` is null, or points to memory for a handle that nothing else accesses meanwhile.
pub(crate) unsafe fn open<H: Handle>(handle: *mut H, inner: H::Inner) -> Result<(), Fault> {
    let room = check(handle)?.cast_mut();
    // SAFETY: guaranteed by the caller; a room fits into a handle.
    unsafe {
        room.write(Room { mark: MARK, state: H::KIND, inner: MaybeUninit::new(inner) });
    }
    Ok(())
}

/// The state word of a handle.
///
/// # Safety
/// The handle is valid as long as the result is used.
unsafe fn state_of<'a, I>(room: *const Room<I>) -> &'a AtomicU32 {
    // SAFETY: guaranteed by the caller; all functions but `open` and `close` access the field as an
    // atomic only. Handles are writable memory of C.
    unsafe { AtomicU32::from_ptr((&raw const (*room).state).cast_mut()) }
}

fn marked<H: Handle>(handle: *const H) -> Result<*const H::Inner, Fault> {
    let room = check(handle)?;
    // SAFETY: all callers are guaranteed a valid handle, and its tag is plain data. It may be
    // uninitialized if C has just reserved the memory. Neither C compilers nor ours can see across
    // the call, so the read yields an arbitrary value.
    let (mark, state) =
        unsafe { ((&raw const (*room).mark).read(), state_of(room).load(Ordering::Acquire)) };
    if mark != MARK || state & !IN_USE != H::KIND {
        return Err(Fault::Handle(H::NAME));
    }
    if state != H::KIND {
        return Err(Fault::InUse(H::NAME));
    }
    Ok(room.cast::<u8>().wrapping_add(offset_of!(Room<H::Inner>, inner)).cast())
}

/// Exclusive use of an open handle, until dropped.
pub(crate) struct Using<H: Handle>(*mut Room<H::Inner>);

impl<H: Handle> Using<H> {
    /// The stored value.
    pub(crate) fn inner(&mut self) -> &mut H::Inner {
        let inner = self.0.cast::<u8>().wrapping_add(offset_of!(Room<H::Inner>, inner));
        // SAFETY: `enter` found the handle open and marked it as in use, so all other uses are
        // refused.
        unsafe { &mut *inner.cast() }
    }
}

impl<H: Handle> Drop for Using<H> {
    fn drop(&mut self) {
        // SAFETY: the handle is valid, as guaranteed by the caller of `enter`.
        unsafe { state_of(self.0) }.store(H::KIND, Ordering::Release);
    }
}

/// Uses an open handle exclusively: until the result is dropped, other uses are refused.
///
/// # Safety
/// `handle` is null, or points to a handle that outlives the result.
pub(crate) unsafe fn enter<H: Handle>(handle: *mut H) -> Result<Using<H>, Fault> {
    marked(handle)?;
    let room = handle.cast::<Room<H::Inner>>();
    // SAFETY: guaranteed by the caller, here and below.
    let state = unsafe { state_of(room) };
    #[cfg(target_has_atomic = "32")]
    state
        .compare_exchange(H::KIND, H::KIND | IN_USE, Ordering::Acquire, Ordering::Relaxed)
        .map_err(|_| Fault::InUse(H::NAME))?;
    // Processors without atomic exchange have a single core. An interrupt between the check of the
    // tag and this store has finished when execution continues here. Tasks that a timer preempts
    // must hold a lock of their own.
    #[cfg(not(target_has_atomic = "32"))]
    state.store(H::KIND | IN_USE, Ordering::Relaxed);
    Ok(Using(room))
}

/// The value in an open handle.
///
/// # Safety
/// `handle` is null, or points to a handle that outlives the result and is not changed meanwhile.
pub(crate) unsafe fn get<'a, H: Handle>(handle: *const H) -> Result<&'a H::Inner, Fault> {
    let inner = marked(handle)?;
    // SAFETY: the tag shows that `open` stored a value here, or in a handle whose bytes were moved
    // here.
    Ok(unsafe { &*inner })
}

/// The value in an open handle; `None` for a null pointer.
///
/// # Safety
/// As [`get`].
pub(crate) unsafe fn optional<'a, H: Handle>(
    handle: *const H,
) -> Result<Option<&'a H::Inner>, Fault> {
    if handle.is_null() {
        return Ok(None);
    }
    // SAFETY: guaranteed by the caller.
    unsafe { get(handle) }.map(Some)
}

/// The mutable value in an open handle.
///
/// # Safety
/// As [`get`], and nothing else uses the handle meanwhile.
pub(crate) unsafe fn get_mut<'a, H: Handle>(handle: *mut H) -> Result<&'a mut H::Inner, Fault> {
    let inner = marked(handle)?.cast_mut();
    // SAFETY: as in `get`; the caller guarantees exclusive access.
    Ok(unsafe { &mut *inner })
}

/// Drops the value in a handle, and clears its tag. Does nothing if the handle is not open, or in
/// use.
///
/// # Safety
/// As [`get_mut`].
pub(crate) unsafe fn close<H: Handle>(handle: *mut H) {
    let Ok(inner) = marked(handle) else { return };
    let room = handle.cast::<Room<H::Inner>>();
    // SAFETY: the tag shows that the handle has a value; it is cleared first, so the value is
    // dropped once.
    unsafe {
        (&raw mut (*room).mark).write(0);
        inner.cast_mut().drop_in_place();
    }
}
