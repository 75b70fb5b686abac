//! Counts the instructions of the integer kernels on an emulated Cortex-M, for each layer of the
//! MLPerf Tiny networks. Matrix multiplications and convolutions are also computed in plain loops
//! without special instructions, and must yield the same values. So must another library's kernels
//! if one is linked (`peer`).
//!
//! `cargo xtask bench layers` runs this and converts the printed ticks to instructions.

#![no_std]
#![no_main]

mod layers;
mod memory;
#[cfg(peer)]
mod peer;

use cortex_m as _;
use cortex_m::peripheral::syst::SystClkSource;
use semihosting::println;
use semihosting::process::ExitCode;

/// Counts processor clock ticks.
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
        before.wrapping_sub(after) & 0xff_ffff
    }
}

fn hash(values: &[i8]) -> u32 {
    values
        .iter()
        .fold(0x811c_9dc5, |hash, &value| (hash ^ u32::from(value as u8)).wrapping_mul(0x0100_0193))
}

#[cortex_m_rt::entry]
fn main() -> ! {
    let Some(peripherals) = cortex_m::Peripherals::take() else { ExitCode::FAILURE.exit_process() };
    let counter = Counter::new(peripherals.SYST);
    let mut memory = memory::take();
    let mut failed = false;
    for layer in layers::LAYERS {
        let name = layer.name;
        memory.fill(layer);
        let ticks = counter.count(|| layer.run(&mut memory, true));
        let expected = hash(&memory.out[..layer.out_len()]);
        println!("{name}: own {ticks}");
        memory.out.fill(0);
        layer.run(&mut memory, false);
        if expected != hash(&memory.out[..layer.out_len()]) {
            println!("{name}: differs from plain loops");
            failed = true;
        }
        #[cfg(peer)]
        {
            memory.out.fill(0);
            let Some(mut peer) = peer::Peer::prepare(layer, memory) else {
                println!("{name}: the peer needs more memory than available");
                ExitCode::FAILURE.exit_process()
            };
            let mut succeeded = false;
            let ticks = counter.count(|| succeeded = peer.run());
            println!("{name}: peer {ticks}");
            if !succeeded || expected != hash(&memory.out[..layer.out_len()]) {
                println!("{name}: differs from the peer");
                failed = true;
            }
        }
    }
    let code = if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS };
    code.exit_process()
}

#[panic_handler]
fn panic(info: &core::panic::PanicInfo<'_>) -> ! {
    println!("{info}");
    ExitCode::FAILURE.exit_process()
}
