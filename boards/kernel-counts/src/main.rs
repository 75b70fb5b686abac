//! Counts the instructions of the integer kernels on an emulated Cortex-M4, layer by layer: those of MLPerf Tiny's networks. Products and
//! convolutions are computed a second time in plain loops, without the instructions of the DSP extension, and must give the same codes.
//!
//! `cargo run --release` prints a line for each: its name, instructions, and a hash of its codes.

#![no_std]
#![no_main]

mod layers;
mod memory;

use cortex_m as _;
use cortex_m::peripheral::syst::SystClkSource;
use semihosting::println;
use semihosting::process::ExitCode;

/// Instructions of a tick of the timer: it runs at 25 MHz, and instructions take a nanosecond.
const TICK: u32 = 40;

/// Counts instructions.
struct Counter(cortex_m::peripheral::SYST);

impl Counter {
    fn new(mut timer: cortex_m::peripheral::SYST) -> Self {
        timer.set_clock_source(SystClkSource::Core);
        timer.set_reload(0xff_ffff);
        timer.clear_current();
        timer.enable_counter();
        Counter(timer)
    }

    fn count(&self, run: impl FnOnce()) -> u32 {
        let _ = &self.0;
        let before = cortex_m::peripheral::SYST::get_current();
        run();
        let after = cortex_m::peripheral::SYST::get_current();
        (before.wrapping_sub(after) & 0xff_ffff) * TICK
    }
}

fn hash(codes: &[i8]) -> u32 {
    codes
        .iter()
        .fold(0x811c_9dc5, |hash, &code| (hash ^ u32::from(code as u8)).wrapping_mul(0x0100_0193))
}

#[cortex_m_rt::entry]
fn main() -> ! {
    let Some(peripherals) = cortex_m::Peripherals::take() else { ExitCode::FAILURE.exit_process() };
    let counter = Counter::new(peripherals.SYST);
    let mut memory = memory::take();
    let mut failed = false;
    for layer in layers::LAYERS {
        memory.fill(layer);
        let count = counter.count(|| layer.run(&mut memory, true));
        let codes = hash(&memory.out[..layer.out_len()]);
        layer.run(&mut memory, false);
        let same = codes == hash(&memory.out[..layer.out_len()]);
        println!("{:28} {count:10} {codes:08x}{}", layer.name, if same { "" } else { " differs" });
        failed |= !same;
    }
    let code = if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS };
    code.exit_process()
}

#[panic_handler]
fn panic(info: &core::panic::PanicInfo<'_>) -> ! {
    println!("{info}");
    ExitCode::FAILURE.exit_process()
}
