//! RISC-V: cycle counter as clock, and an exception handler that logs.

use crate::exit;
use riscv_rt::TrapFrame;

/// Starts the clock.
#[cfg(not(feature = "esp32c3"))]
pub fn start() {}

/// Cycles since start-up.
#[cfg(not(feature = "esp32c3"))]
pub fn ticks() -> u64 {
    riscv::register::mcycle::read64()
}

#[cfg(feature = "esp32c3")]
pub use esp32c3::{start, ticks};

/// The ESP32-C3 lacks the standard cycle counter and has its own instead.
#[cfg(feature = "esp32c3")]
mod esp32c3 {
    use core::arch::asm;

    /// Starts the cycle counter.
    pub fn start() {
        // SAFETY: the first register selects the counted event, the second starts the counter;
        // nothing else uses it.
        unsafe { asm!("csrw 0x7e0, {0}", "csrw 0x7e1, {0}", in(reg) 1) };
    }

    /// Cycles since start-up, modulo 2^32.
    pub fn ticks() -> u64 {
        let ticks: u32;
        // SAFETY: reads the counter.
        unsafe { asm!("csrr {}, 0x7e2", out(reg) ticks) };
        u64::from(ticks)
    }
}

/// Lower limit of the stack.
pub(crate) fn stack_end() -> usize {
    unsafe extern "C" {
        static __estack: u8;
    }
    (&raw const __estack).addr()
}

#[unsafe(export_name = "ExceptionHandler")]
extern "C" fn exception(_: &TrapFrame) -> ! {
    let cause = riscv::register::mcause::read().bits();
    defmt::println!("exception {=usize} at {=usize:#010x}", cause, riscv::register::mepc::read());
    exit(false)
}

#[unsafe(export_name = "DefaultHandler")]
extern "C" fn interrupt() -> ! {
    defmt::println!("an unexpected interrupt");
    exit(false)
}
