//! Memory of the layers, filled with values that depend only on the layer.

use crate::layers::Layer;
use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicBool, Ordering};

/// Buffers of the layers.
#[repr(C, align(16))]
pub struct Memory {
    pub workspace: [i16; 16 * 1024],
    pub input: [i8; 128 * 1024],
    pub second: [i8; 128 * 1024],
    pub out: [i8; 128 * 1024],
    pub multipliers: [i32; 1024],
    pub shifts: [i32; 1024],
    pub bias: [i32; 1024],
}

struct Static(UnsafeCell<Memory>, AtomicBool);

// SAFETY: `take` returns the memory only once.
unsafe impl Sync for Static {}

static MEMORY: Static = Static(
    UnsafeCell::new(Memory {
        workspace: [0; 16 * 1024],
        input: [0; 128 * 1024],
        second: [0; 128 * 1024],
        out: [0; 128 * 1024],
        multipliers: [0; 1024],
        shifts: [0; 1024],
        bias: [0; 1024],
    }),
    AtomicBool::new(false),
);

/// The memory; panics the second time.
pub fn take() -> &'static mut Memory {
    assert!(!MEMORY.1.swap(true, Ordering::Relaxed), "memory is already taken");
    // SAFETY: the flag was not set before, so no other reference exists.
    unsafe { &mut *MEMORY.0.get() }
}

impl Memory {
    /// Fills buffers with the same values in each run, from a linear congruential generator.
    pub fn fill(&mut self, layer: &Layer) {
        let mut state = 1u32;
        let mut next = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            state >> 8
        };
        for code in self.input.iter_mut().chain(&mut self.second) {
            *code = next() as i8;
        }
        self.multipliers.fill_with(|| 0x4000_0000 + (next() % 0x4000_0000) as i32);
        self.shifts.fill_with(|| layer.shift - (next() % 3) as i32);
        self.bias.fill_with(|| (next() % 2000) as i32 - 1000);
    }
}
