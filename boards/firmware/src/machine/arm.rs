//! Cortex-M: SysTick as the clock, and handlers that say what happened.

use core::sync::atomic::{AtomicU32, Ordering};
use cortex_m::peripheral::SYST;
use cortex_m::peripheral::syst::SystClkSource;

/// SysTick counts down from here, 24 bits.
const RELOAD: u32 = 0x00ff_ffff;

/// How often it got there.
static ROUNDS: AtomicU32 = AtomicU32::new(0);

pub(crate) fn start() {
    if let Some(mut peripherals) = cortex_m::Peripherals::take() {
        let clock = &mut peripherals.SYST;
        clock.set_clock_source(SystClkSource::Core);
        clock.set_reload(RELOAD);
        clock.clear_current();
        clock.enable_interrupt();
        clock.enable_counter();
    }
}

/// Ticks of the processor's clock since the start.
pub(crate) fn ticks() -> u64 {
    loop {
        let rounds = ROUNDS.load(Ordering::Relaxed);
        let left = SYST::get_current();
        // Otherwise it came round between the two.
        if rounds == ROUNDS.load(Ordering::Relaxed) {
            return u64::from(rounds) * u64::from(RELOAD + 1) + u64::from(RELOAD - left);
        }
    }
}

/// Where the stack must not grow beyond.
pub(crate) fn stack_end() -> usize {
    unsafe extern "C" {
        static _stack_end: u8;
    }
    (&raw const _stack_end).addr()
}

#[cfg(feature = "start")]
mod handlers {
    use super::ROUNDS;
    use crate::exit;
    use core::sync::atomic::Ordering;
    use cortex_m_rt::{ExceptionFrame, exception};

    #[exception]
    fn SysTick() {
        // Nobody else writes it, and exchanging values is more than the smallest processors can.
        ROUNDS.store(ROUNDS.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
    }

    #[exception]
    unsafe fn HardFault(frame: &ExceptionFrame) -> ! {
        defmt::println!("hard fault at {=u32:#010x}", frame.pc());
        exit(false)
    }

    #[exception]
    unsafe fn DefaultHandler(number: i16) -> ! {
        defmt::println!("interrupt {=i16} that nobody expects", number);
        exit(false)
    }
}
