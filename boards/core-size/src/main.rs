//! A firmware image that uses all features of `torchlet-core`, with a minimal backend and operator,
//! so that its size is that of the crate. It is linked and measured, never run.
//!
//! With the feature `empty`, the image does not contain the crate: only the entry point and the
//! compiler's `memcpy`, `memmove`, `memset` and `memcmp`, which every firmware contains.

#![no_std]
#![no_main]

#[cfg(not(feature = "empty"))]
mod whole;

use core::mem::MaybeUninit;
use core::ptr::read_volatile;
#[cfg(not(feature = "empty"))]
use whole::run;

/// A value that the optimiser cannot know.
#[inline(never)]
fn anything() -> u32 {
    // SAFETY: an aligned address in the RAM of every Cortex-M; the image is never run.
    unsafe { read_volatile(0x2000_0000 as *const u32) }
}

/// Memory for arenas, unknown to the optimiser.
#[inline(never)]
fn arena() -> &'static mut [MaybeUninit<u8>] {
    // SAFETY: as in `anything`.
    unsafe { core::slice::from_raw_parts_mut(anything() as *mut _, anything() as usize) }
}

/// Memory unknown to the optimiser.
#[inline(never)]
fn memory() -> &'static mut [u8] {
    // SAFETY: as in `anything`.
    unsafe { core::slice::from_raw_parts_mut(anything() as *mut u8, anything() as usize) }
}

/// The memory routines that firmware contains without the crate.
#[cfg(feature = "empty")]
fn run() -> Option<()> {
    let (from, to) = (memory(), memory());
    let both = from.len().min(to.len());
    to.get_mut(..both)?.copy_from_slice(from.get(..both)?);
    to.copy_within(both.checked_sub(anything() as usize)?.., 0);
    from.fill(anything() as u8);
    arena().fill(MaybeUninit::new(0));
    (*from == *to).then_some(())
}

/// Entry point of the image.
#[unsafe(no_mangle)]
pub extern "C" fn _start() -> ! {
    loop {
        run();
    }
}

#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    loop {}
}
