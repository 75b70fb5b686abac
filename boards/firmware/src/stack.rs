//! Measures stack depth by stack painting: fills the unused stack with a pattern that is checked
//! later.

use crate::machine;
use core::ptr::{read_volatile, write_volatile};

/// Fill pattern of the unused stack.
const PAINT: u32 = 0xc0de_57ac;

/// Stack that a caller and an interrupt may use between measuring the depth and painting below it.
const MARGIN: usize = 512;

/// Maximum number of painted bytes. Using more would be a defect, and is reported as this many.
const MAX_PAINTED: usize = 32 * 1024;

/// An address on the stack below all that callers use.
#[inline(never)]
fn depth() -> usize {
    let here = 0u8;
    core::hint::black_box(&here) as *const u8 as usize
}

/// The painted words of the unused stack, lowest first.
fn painted(depth: usize) -> impl Iterator<Item = *mut u32> {
    let lowest = machine::stack_end();
    let end = depth.saturating_sub(MARGIN) & !3;
    let start = lowest.max(end.saturating_sub(MAX_PAINTED)).next_multiple_of(4);
    (start..end).step_by(4).map(|address| address as *mut u32)
}

/// Paints the unused stack. Returns the depth to measure from.
pub fn paint() -> usize {
    let depth = depth();
    for word in painted(depth) {
        // SAFETY: between the end of the statics and the stack pointer, with a margin for called
        // functions and interrupts; nothing else uses this memory.
        unsafe { write_volatile(word, PAINT) };
    }
    depth
}

/// Bytes of stack used below `depth` since it was painted.
pub fn used(depth: usize) -> usize {
    // SAFETY: as in `paint`, which also initialized these words.
    let clean = |word: &*mut u32| unsafe { read_volatile(*word) } == PAINT;
    let end = painted(depth).find(|word| !clean(word)).map_or(depth - MARGIN, |word| word as usize);
    depth - end
}
