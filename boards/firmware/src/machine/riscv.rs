//! RISC-V: the counter of cycles as the clock, and a handler that says what happened.

use crate::exit;
use riscv_rt::TrapFrame;

pub(crate) fn start() {}

/// Cycles since the start.
pub(crate) fn ticks() -> u64 {
    riscv::register::mcycle::read64()
}

/// Where the stack must not grow beyond.
pub(crate) fn stack_end() -> usize {
    unsafe extern "C" {
        static __estack: u8;
    }
    (&raw const __estack).addr()
}

#[unsafe(export_name = "ExceptionHandler")]
fn exception(_: &TrapFrame) -> ! {
    let cause = riscv::register::mcause::read().bits();
    defmt::println!("exception {=usize} at {=usize:#010x}", cause, riscv::register::mepc::read());
    exit(false)
}

#[unsafe(export_name = "DefaultHandler")]
fn interrupt() -> ! {
    defmt::println!("an interrupt that nobody expects");
    exit(false)
}
