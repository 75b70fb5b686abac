//! Cortex-M: SysTick as clock, and exception handlers that log.

use core::sync::atomic::{AtomicU32, Ordering};
use cortex_m::peripheral::SYST;
use cortex_m::peripheral::syst::SystClkSource;

/// SysTick counts down from here, 24 bits.
const RELOAD: u32 = 0x00ff_ffff;

/// Number of SysTick wraparounds.
static ROUNDS: AtomicU32 = AtomicU32::new(0);

/// Starts the clock.
pub fn start() {
    if let Some(mut peripherals) = cortex_m::Peripherals::take() {
        let clock = &mut peripherals.SYST;
        clock.set_clock_source(SystClkSource::Core);
        clock.set_reload(RELOAD);
        clock.clear_current();
        clock.enable_interrupt();
        clock.enable_counter();
    }
}

/// Processor clock ticks since start-up.
pub fn ticks() -> u64 {
    loop {
        let rounds = ROUNDS.load(Ordering::Relaxed);
        let left = SYST::get_current();
        // Otherwise the counter wrapped between the two reads.
        if rounds == ROUNDS.load(Ordering::Relaxed) {
            return u64::from(rounds) * u64::from(RELOAD + 1) + u64::from(RELOAD - left);
        }
    }
}

/// Lower limit of the stack.
pub(crate) fn stack_end() -> usize {
    unsafe extern "C" {
        static _stack_end: u8;
    }
    (&raw const _stack_end).addr()
}

#[cfg(feature = "handlers")]
mod handlers {
    use super::ROUNDS;
    use crate::exit;
    use core::sync::atomic::Ordering;
    use cortex_m_rt::{ExceptionFrame, exception};

    #[exception]
    fn SysTick() {
        // There is no other writer, and the smallest processors lack atomic read-modify-write.
        ROUNDS.store(ROUNDS.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
    }

    #[exception]
    unsafe fn HardFault(frame: &ExceptionFrame) -> ! {
        defmt::println!("hard fault at {=u32:#010x}", frame.pc());
        exit(false)
    }

    #[exception]
    unsafe fn DefaultHandler(number: i16) -> ! {
        defmt::println!("unexpected interrupt {=i16}", number);
        exit(false)
    }
}
