//! Static memory that can be taken once. Contains the only unsafe code of firmware modules.

use super::Error;
use core::cell::UnsafeCell;

/// Static memory that can be taken once, for the lifetime of the firmware.
///
/// ```
/// use torchlet::firmware::TakeOnce;
/// static SCRATCH: TakeOnce<[u8; 64]> = TakeOnce::new([0; 64]);
/// assert!(SCRATCH.take().is_ok());
/// assert!(SCRATCH.take().is_err());
/// ```
pub struct TakeOnce<M> {
    memory: UnsafeCell<M>,
    taken: Flag,
}

// SAFETY: the memory is only accessible through `take`, which gives it to a single caller. That
// caller may be on another thread, so `M` must be `Send`.
unsafe impl<M: Send> Sync for TakeOnce<M> {}

impl<M> TakeOnce<M> {
    /// Wraps initialised memory.
    pub const fn new(memory: M) -> Self {
        TakeOnce { memory: UnsafeCell::new(memory), taken: Flag::new() }
    }

    /// Takes the memory.
    ///
    /// # Errors
    /// The memory was taken before.
    #[allow(clippy::mut_from_ref, reason = "at most once per cell, ensured by the flag")]
    pub fn take(&'static self) -> Result<&'static mut M, Error> {
        if self.taken.set() {
            return Err(Error::Taken);
        }
        // SAFETY: the flag was clear before and is never cleared again, and it is set atomically
        // with respect to all threads and interrupts. This line is therefore reached once per cell,
        // and no other reference to its memory exists or will exist.
        Ok(unsafe { &mut *self.memory.get() })
    }
}

impl<M> core::fmt::Debug for TakeOnce<M> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("TakeOnce")
    }
}

#[cfg(target_has_atomic = "8")]
use atomic::Flag;
#[cfg(not(target_has_atomic = "8"))]
use section::Flag;

#[cfg(target_has_atomic = "8")]
mod atomic {
    use core::sync::atomic::{AtomicBool, Ordering};

    pub(super) struct Flag(AtomicBool);

    impl Flag {
        pub(super) const fn new() -> Self {
            Flag(AtomicBool::new(false))
        }

        /// Sets the flag, and returns its previous value.
        pub(super) fn set(&self) -> bool {
            self.0.swap(true, Ordering::AcqRel)
        }
    }
}

/// For processors without atomic exchange, such as Cortex-M0.
#[cfg(not(target_has_atomic = "8"))]
mod section {
    use core::cell::Cell;
    use critical_section::Mutex;

    pub(super) struct Flag(Mutex<Cell<bool>>);

    impl Flag {
        pub(super) const fn new() -> Self {
            Flag(Mutex::new(Cell::new(false)))
        }

        /// Sets the flag, and returns its previous value.
        pub(super) fn set(&self) -> bool {
            critical_section::with(|section| self.0.borrow(section).replace(true))
        }
    }
}
