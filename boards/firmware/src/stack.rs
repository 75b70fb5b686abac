//! How deep the stack gets: what is free of it is painted, and looked at later.

use crate::machine;
use core::ptr::{read_volatile, write_volatile};

/// What the unused stack is filled with.
const PAINT: u32 = 0xc0de_57ac;

/// What a caller and an interrupt may use of the stack between asking where it ends and painting
/// what lies below.
const MARGIN: usize = 512;

/// The most that is painted; more would be a defect, which shows as this many bytes.
const MOST: usize = 32 * 1024;

/// An address on the stack, lower than all that callers use.
#[inline(never)]
fn depth() -> usize {
    let here = 0u8;
    core::hint::black_box(&here) as *const u8 as usize
}

/// The free words of the stack that are painted, lowest first, as they are when this is called.
fn painted(depth: usize) -> impl Iterator<Item = *mut u32> {
    let lowest = machine::stack_end();
    let end = depth.saturating_sub(MARGIN) & !3;
    let start = lowest.max(end.saturating_sub(MOST)).next_multiple_of(4);
    (start..end).step_by(4).map(|address| address as *mut u32)
}

/// Paints what is free. Gives the depth to measure from.
pub fn paint() -> usize {
    let depth = depth();
    for word in painted(depth) {
        // SAFETY: between the end of the statics and the stack pointer, with a margin for what is
        // called here and for interrupts: nobody else knows of this memory.
        unsafe { write_volatile(word, PAINT) };
    }
    depth
}

/// Bytes of the stack that were used below the depth since it was painted there.
pub fn used(depth: usize) -> usize {
    // SAFETY: as in `paint`; words without a value were given one there.
    let clean = |word: &*mut u32| unsafe { read_volatile(*word) } == PAINT;
    let end = painted(depth).find(|word| !clean(word)).map_or(depth - MARGIN, |word| word as usize);
    depth - end
}
