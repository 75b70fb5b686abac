//! AArch64 at exception level 1: system counter as clock, page table, and exception handlers that
//! log.

use crate::exit;
use aarch64_rt::{ExceptionHandlers, InitialPagetable, RegisterStateRef, exception_handlers};
use core::arch::asm;

/// Devices in the first GiB, memory in the second, as on QEMU's `virt` machine.
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

pub fn start() {}

/// Ticks of the system counter.
pub fn ticks() -> u64 {
    let ticks;
    // SAFETY: reads a counter. The barrier prevents it from being read early.
    unsafe { asm!("isb", "mrs {}, cntvct_el0", out(reg) ticks, options(nostack)) };
    ticks
}

/// Lower limit of the stack.
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
        fault("an unexpected interrupt", &state)
    }

    extern "C" fn fiq_current(state: RegisterStateRef<'_>) {
        fault("an unexpected fast interrupt", &state)
    }

    extern "C" fn serror_current(state: RegisterStateRef<'_>) {
        fault("a system error", &state)
    }
}

struct OneCore;
critical_section::set_impl!(OneCore);

// SAFETY: there is one core, and masking interrupts gives the caller exclusive access.
unsafe impl critical_section::Impl for OneCore {
    unsafe fn acquire() -> u64 {
        let before;
        // SAFETY: reads the interrupt mask, then masks all interrupts. The compiler does not move
        // memory accesses across it.
        unsafe { asm!("mrs {}, daif", "msr daifset, #0b1111", out(reg) before, options(nostack)) };
        before
    }

    unsafe fn release(before: u64) {
        // SAFETY: restores the mask that `acquire` read.
        unsafe { asm!("msr daif, {}", in(reg) before, options(nostack)) };
    }
}
