//! AArch64 at exception level 1: the system counter as the clock, the map of the memory, and
//! handlers that say what happened.

use crate::exit;
use aarch64_rt::{ExceptionHandlers, InitialPagetable, RegisterStateRef, exception_handlers};
use core::arch::asm;

/// Devices in the first GiB, memory in the second, as the machine `virt` of QEMU has them.
const MAP: [usize; 512] = {
    const VALID: usize = 1;
    const MEMORY: usize = 1 << 2;
    const INNER_SHAREABLE: usize = 3 << 8;
    const ACCESSED: usize = 1 << 10;
    const NO_USER_CODE: usize = 1 << 54;
    let mut map = [0; 512];
    map[0] = VALID | ACCESSED | NO_USER_CODE;
    map[1] = 0x4000_0000 | VALID | MEMORY | INNER_SHAREABLE | ACCESSED;
    map
};
aarch64_rt::initial_pagetable!(InitialPagetable(MAP));

pub(crate) fn start() {}

/// Ticks of the system counter.
pub(crate) fn ticks() -> u64 {
    let ticks;
    // SAFETY: reads a counter; the barrier is there so that it is not read before what comes before
    // it.
    unsafe { asm!("isb", "mrs {}, cntvct_el0", out(reg) ticks, options(nostack)) };
    ticks
}

/// Where the stack must not grow beyond.
pub(crate) fn stack_end() -> usize {
    unsafe extern "C" {
        static boot_stack_begin: u8;
    }
    (&raw const boot_stack_begin).addr()
}

struct Handlers;
exception_handlers!(Handlers);

fn fault(kind: &str, state: &RegisterStateRef<'_>) -> ! {
    defmt::println!("{=str} at {=usize:#x}", kind, state.elr);
    exit(false)
}

impl ExceptionHandlers for Handlers {
    extern "C" fn sync_current(state: RegisterStateRef<'_>) {
        fault("exception", &state)
    }

    extern "C" fn irq_current(state: RegisterStateRef<'_>) {
        fault("an interrupt that nobody expects", &state)
    }

    extern "C" fn fiq_current(state: RegisterStateRef<'_>) {
        fault("a fast interrupt that nobody expects", &state)
    }

    extern "C" fn serror_current(state: RegisterStateRef<'_>) {
        fault("a system error", &state)
    }
}

struct OneCore;
critical_section::set_impl!(OneCore);

// SAFETY: one core runs, and masked interrupts leave it to the caller.
unsafe impl critical_section::Impl for OneCore {
    unsafe fn acquire() -> u64 {
        let before;
        // SAFETY: masks interrupts, after reading what was masked. The compiler moves no memory
        // access across it.
        unsafe { asm!("mrs {}, daif", "msr daifset, #0b1111", out(reg) before, options(nostack)) };
        before
    }

    unsafe fn release(before: u64) {
        // SAFETY: masks what was masked when it was acquired.
        unsafe { asm!("msr daif, {}", in(reg) before, options(nostack)) };
    }
}
