//! RISC-V: the counter of cycles as the clock, and a handler that says what happened.

use crate::exit;
use riscv_rt::TrapFrame;

/// Starts the clock.
#[cfg(not(feature = "esp32c3"))]
pub(crate) fn start() {}

/// Cycles since the start.
#[cfg(not(feature = "esp32c3"))]
pub(crate) fn ticks() -> u64 {
    riscv::register::mcycle::read64()
}

#[cfg(feature = "esp32c3")]
pub(crate) use esp32c3::{start, ticks};

/// A counter of its own, in the place of the one of the architecture, which it lacks.
#[cfg(feature = "esp32c3")]
mod esp32c3 {
    use core::arch::asm;

    /// Counts cycles from here on.
    pub(crate) fn start() {
        // SAFETY: the first register of the counter chooses what is counted, the second lets it
        // run; nobody else uses it.
        unsafe { asm!("csrw 0x7e0, {0}", "csrw 0x7e1, {0}", in(reg) 1) };
    }

    /// Cycles since the start, modulo 2^32.
    pub(crate) fn ticks() -> u64 {
        let ticks: u32;
        // SAFETY: reads the counter.
        unsafe { asm!("csrr {}, 0x7e2", out(reg) ticks) };
        u64::from(ticks)
    }
}

/// Where the stack must not grow beyond.
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
    defmt::println!("an interrupt that nobody expects");
    exit(false)
}
