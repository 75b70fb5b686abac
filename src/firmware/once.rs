//! Static memory that is taken once. The only unsafe code of firmware modules is here.

use super::Error;
use core::cell::UnsafeCell;

/// Memory that is taken once, for as long as the firmware runs.
///
/// ```
/// use torchlet::firmware::Once;
/// static SCRATCH: Once<[u8; 64]> = Once::new([0; 64]);
/// assert!(SCRATCH.take().is_ok());
/// assert!(SCRATCH.take().is_err());
/// ```
pub struct Once<M> {
    memory: UnsafeCell<M>,
    taken: Flag,
}

// SAFETY: the memory is reached through `take` alone, which gives it to one caller, who may be
// another thread: hence `Send`.
unsafe impl<M: Send> Sync for Once<M> {}

impl<M> Once<M> {
    /// Memory with this in it.
    pub const fn new(memory: M) -> Self {
        Once { memory: UnsafeCell::new(memory), taken: Flag::new() }
    }

    /// The memory.
    ///
    /// # Errors
    /// It was taken before.
    #[allow(clippy::mut_from_ref, reason = "once for each cell, which the flag sees to")]
    pub fn take(&'static self) -> Result<&'static mut M, Error> {
        if self.taken.set() {
            return Err(Error::Taken);
        }
        // SAFETY: the flag was not set before and is never cleared, and setting it is one step for
        // all threads and interrupts. So this is passed once for each cell, and no other reference
        // to its memory exists or will.
        Ok(unsafe { &mut *self.memory.get() })
    }
}

impl<M> core::fmt::Debug for Once<M> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Once")
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

        /// Sets the flag, and gives what it was.
        pub(super) fn set(&self) -> bool {
            self.0.swap(true, Ordering::AcqRel)
        }
    }
}

/// For processors that cannot exchange a value in one step, such as Cortex-M0.
#[cfg(not(target_has_atomic = "8"))]
mod section {
    use core::cell::Cell;
    use critical_section::Mutex;

    pub(super) struct Flag(Mutex<Cell<bool>>);

    impl Flag {
        pub(super) const fn new() -> Self {
            Flag(Mutex::new(Cell::new(false)))
        }

        /// Sets the flag, and gives what it was.
        pub(super) fn set(&self) -> bool {
            critical_section::with(|section| self.0.borrow(section).replace(true))
        }
    }
}
