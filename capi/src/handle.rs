//! Handles: values of Rust in memory of C.
//!
//! A handle is a mark, and room. The mark says what lies in the room, so that a handle that was
//! never opened, or was closed, is told from one that can be used; and whether it is in use, so
//! that of two tasks that run a method at once the second is refused. What lies there does not
//! refer to itself: handles can be moved as bytes, as C++ does.

use crate::fault::Fault;
use core::mem::{MaybeUninit, offset_of};
use core::sync::atomic::{AtomicU32, Ordering};

/// A type of handle.
///
/// # Safety
/// The type is [`Room`] with `WORDS` words, and nothing else.
pub(crate) unsafe trait Handle: Sized {
    /// What lies in it.
    type Inner;
    /// What it is called in texts of errors.
    const NAME: &'static str;
    /// Its part of the mark: differs from those of all other types, and is even.
    const KIND: u32;
}

/// The part of the mark that all handles have.
const MARK: u32 = 0x746f_7263;

/// What is added to the kind while the handle is in use.
const IN_USE: u32 = 1;

/// What handles consist of.
#[repr(C)]
pub(crate) struct Room<I> {
    mark: u32,
    /// The kind, and whether it is in use.
    state: u32,
    inner: MaybeUninit<I>,
}

/// Declares that a type is a handle: that its words have room for what is to lie in it.
macro_rules! handle {
    ($handle:ident, $inner:ty, $name:literal, $mark:literal) => {
        const _: () = {
            use $crate::handle::{Handle, Room};
            assert!(size_of::<Room<$inner>>() <= size_of::<$handle>(), "more words are needed");
            assert!(align_of::<Room<$inner>>() <= align_of::<$handle>());
            // SAFETY: the sizes and alignments were compared above, and the fields are without
            // meaning of their own.
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

/// Puts a value into a handle, and marks it. Whatever was there is forgotten.
///
/// # Safety
/// A pointer that is not null points to memory for a handle, which nobody else touches meanwhile.
pub(crate) unsafe fn open<H: Handle>(handle: *mut H, inner: H::Inner) -> Result<(), Fault> {
    let room = check(handle)?.cast_mut();
    // SAFETY: the caller's promise; a room fits into a handle.
    unsafe {
        room.write(Room { mark: MARK, state: H::KIND, inner: MaybeUninit::new(inner) });
    }
    Ok(())
}

/// Where the kind of a handle is, and whether it is in use.
///
/// # Safety
/// There is a handle, for as long as the result is used.
unsafe fn state_of<'a, I>(room: *const Room<I>) -> &'a AtomicU32 {
    // SAFETY: the caller's promise; the field is a word, which all but `open` and `close` use as
    // an atomic one. Handles are memory that C has reserved to be written.
    unsafe { AtomicU32::from_ptr((&raw const (*room).state).cast_mut()) }
}

fn marked<H: Handle>(handle: *const H) -> Result<*const H::Inner, Fault> {
    let room = check(handle)?;
    // SAFETY: all callers are promised that there is a handle; its mark is plain data. It may have
    // no value yet, if C has just reserved the memory: C compilers and ours, which see no more than
    // a call of the other, take what is there for some value.
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

/// An open handle that nobody else can use as long as this is there.
pub(crate) struct Using<H: Handle>(*mut Room<H::Inner>);

impl<H: Handle> Using<H> {
    /// What lies in it.
    pub(crate) fn inner(&mut self) -> &mut H::Inner {
        let inner = self.0.cast::<u8>().wrapping_add(offset_of!(Room<H::Inner>, inner));
        // SAFETY: `enter` found the handle open, and marked it as in use: all others are refused.
        unsafe { &mut *inner.cast() }
    }
}

impl<H: Handle> Drop for Using<H> {
    fn drop(&mut self) {
        // SAFETY: the handle is there, as the caller of `enter` promised.
        unsafe { state_of(self.0) }.store(H::KIND, Ordering::Release);
    }
}

/// Uses an open handle: until that ends, everybody else is refused.
///
/// # Safety
/// A pointer that is not null points to a handle that outlives the result.
pub(crate) unsafe fn enter<H: Handle>(handle: *mut H) -> Result<Using<H>, Fault> {
    marked(handle)?;
    let room = handle.cast::<Room<H::Inner>>();
    // SAFETY: the caller's promise, here and below.
    let state = unsafe { state_of(room) };
    #[cfg(target_has_atomic = "32")]
    state
        .compare_exchange(H::KIND, H::KIND | IN_USE, Ordering::Acquire, Ordering::Relaxed)
        .map_err(|_| Fault::InUse(H::NAME))?;
    // Such processors have one core. An interrupt between the look at the mark and this has ended
    // when we go on; between tasks that take turns by a timer, a lock is the caller's.
    #[cfg(not(target_has_atomic = "32"))]
    state.store(H::KIND | IN_USE, Ordering::Relaxed);
    Ok(Using(room))
}

/// What lies in an open handle.
///
/// # Safety
/// A pointer that is not null points to a handle that outlives the result, and that nobody changes
/// meanwhile.
pub(crate) unsafe fn get<'a, H: Handle>(handle: *const H) -> Result<&'a H::Inner, Fault> {
    let inner = marked(handle)?;
    // SAFETY: the mark says that `open` put a value here, or elsewhere, from where its bytes were
    // moved.
    Ok(unsafe { &*inner })
}

/// What lies in an open handle, if the pointer is not null.
///
/// # Safety
/// As [`get`].
pub(crate) unsafe fn optional<'a, H: Handle>(
    handle: *const H,
) -> Result<Option<&'a H::Inner>, Fault> {
    if handle.is_null() {
        return Ok(None);
    }
    // SAFETY: the caller's promise.
    unsafe { get(handle) }.map(Some)
}

/// What lies in an open handle, to be changed.
///
/// # Safety
/// As [`get`], and nobody else uses the handle meanwhile.
pub(crate) unsafe fn get_mut<'a, H: Handle>(handle: *mut H) -> Result<&'a mut H::Inner, Fault> {
    let inner = marked(handle)?.cast_mut();
    // SAFETY: as in `get`, exclusively by the caller's promise.
    Ok(unsafe { &mut *inner })
}

/// Drops what lies in a handle, and takes its mark away. A handle that is not open, or in use, is
/// left alone.
///
/// # Safety
/// As [`get_mut`].
pub(crate) unsafe fn close<H: Handle>(handle: *mut H) {
    let Ok(inner) = marked(handle) else { return };
    let room = handle.cast::<Room<H::Inner>>();
    // SAFETY: the mark says that there is a value; it is gone before the value is, so that it is
    // dropped once.
    unsafe {
        (&raw mut (*room).mark).write(0);
        inner.cast_mut().drop_in_place();
    }
}
