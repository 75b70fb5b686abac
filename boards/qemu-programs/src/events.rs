//! Events of runs, recorded in a static array with the board's clock and logged through
//! semihosting.

use crate::Failed;
use core::sync::atomic::{AtomicBool, Ordering::Relaxed};
use cortex_m::peripheral::{Peripherals, SYST, syst::SystClkSource};
use torchlet::core::{Clock, EventKind, RecordSlot, Recorder};

/// SysTick, which QEMU emulates; on a chip, the DWT cycle counter works as well. It counts down
/// with 24 bits, shifted to the upper bits here so that it wraps like a word.
struct Ticks;

const RANGE: u32 = 0x00FF_FFFF;
const LOWER: u32 = RANGE.leading_zeros();

impl Clock for Ticks {
    fn ticks(&self) -> u32 {
        (RANGE - SYST::get_current()) << LOWER
    }
}

static SLOTS: [RecordSlot; 64] = [RecordSlot::EMPTY; 64];
static RECORDER: Recorder<'static> = Recorder::new(&Ticks, &SLOTS);
static STARTED: AtomicBool = AtomicBool::new(false);

/// The recorder, with its clock running.
pub(crate) fn recorder() -> &'static Recorder<'static> {
    if !STARTED.load(Relaxed)
        && let Some(mut peripherals) = Peripherals::take()
    {
        peripherals.SYST.set_clock_source(SystClkSource::Core);
        peripherals.SYST.set_reload(RANGE);
        peripherals.SYST.clear_current();
        peripherals.SYST.enable_counter();
        STARTED.store(true, Relaxed);
    }
    &RECORDER
}

/// Logs the recorded events. Fails unless they belong to this many runs, each at least as long as
/// the sum of its operators.
pub(crate) fn drain(runs: usize) -> Result<(), Failed> {
    let (mut found, mut whole, mut inside) = (0, 0, 0u32);
    for record in RECORDER.records() {
        defmt::println!(
            "event: {} {=u32} at {=u32}: {=u32} ticks",
            record.kind,
            record.instruction,
            record.start >> LOWER,
            record.ticks >> LOWER
        );
        match record.kind {
            EventKind::Execute => {
                if inside > whole {
                    return Err(Failed::Differs("operators that last longer than their run"));
                }
                (found, whole, inside) = (found + 1, record.ticks, 0);
            }
            EventKind::Operator => inside += record.ticks,
            _ => {}
        }
    }
    let is_sound = found == runs && whole > 0 && inside > 0 && inside <= whole;
    if is_sound && RECORDER.missed() == 0 { Ok(()) } else { Err(Failed::Differs("the events")) }
}
