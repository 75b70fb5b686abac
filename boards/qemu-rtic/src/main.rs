//! Inference as an RTIC task of the lowest priority. Urgent tasks interrupt it, even within an
//! instruction of the program. Start reading at [`app`].

#![no_std]
#![no_main]

use defmt::println;
use defmt_semihosting as _;
use firmware::stack;
use semihosting::process::ExitCode;
use torchlet::core::AlignedBytes;
use torchlet::firmware::{Error, Nested};

torchlet::program!(digits);
use digits::forward::Input0;

/// An image of a handwritten 2 from outside the training set: values after a header of 128 bytes.
static IMAGE: AlignedBytes<[u8; 384]> =
    AlignedBytes(*include_bytes!("../../../tests/fixtures/digits/image_2.npy"));

#[rtic::app(device = lm3s6965, dispatchers = [SSI0])]
mod app {
    use super::{IMAGE, digits, finish, log_errors, run};
    use cortex_m::peripheral::syst::SystClkSource;

    /// Period of the urgent task in processor clock ticks.
    const PERIOD: u32 = 10_000;

    #[shared]
    struct Shared {
        beats: u32,
    }

    #[local]
    struct Local {
        model: Option<digits::Model>,
    }

    #[init]
    fn init(context: init::Context) -> (Shared, Local) {
        let mut clock = context.core.SYST;
        clock.set_clock_source(SystClkSource::Core);
        clock.set_reload(PERIOD);
        clock.clear_current();
        clock.enable_interrupt();
        clock.enable_counter();
        let model = log_errors(digits::load());
        if infer::spawn().is_err() {
            finish(false);
        }
        (Shared { beats: 0 }, Local { model })
    }

    /// Runs the program once, then injects faults.
    #[task(priority = 1, local = [model], shared = [beats])]
    async fn infer(mut context: infer::Context) {
        let before = context.shared.beats.lock(|beats| *beats);
        let result = context.local.model.as_mut().and_then(|model| log_errors(run(model)));
        let between = context.shared.beats.lock(|beats| *beats) - before;
        defmt::println!("{=u32} urgent tasks during the run", between);
        let noticed = firmware::try_faults!(digits, IMAGE.0.split_at(128).1);
        finish(result.is_some() && between > 0 && noticed);
    }

    /// A task that must not wait for an inference, nor for a single instruction of it.
    #[task(binds = SysTick, priority = 2, shared = [beats])]
    fn beat(mut context: beat::Context) {
        context.shared.beats.lock(|beats| *beats += 1);
    }
}

/// Runs the program on the image and logs its outputs.
fn run(model: &mut digits::Model) -> Result<(), Error> {
    let depth = stack::paint();
    let Some(image) = Input0::from_bytes(&IMAGE.0[128..]) else {
        return Err(Error::Length { expected: size_of::<Input0>() / 4, found: 64 });
    };
    let logits = model.forward(image)?.as_flattened();
    let mut bytes = logits.iter().flat_map(|logit| logit.to_le_bytes());
    let bytes: [u8; 40] = core::array::from_fn(|_| bytes.next().unwrap_or(0));
    println!("picture rtic: output 0 Float {=[u8]}", bytes);
    println!("picture rtic: stack {=usize}", stack::used(depth));
    Ok(())
}

fn log_errors<T>(result: Result<T, Error>) -> Option<T> {
    result.inspect_err(|error| println!("error: {}", error)).ok()
}

fn finish(success: bool) -> ! {
    let code = if success { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    code.exit_process()
}

#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    println!("panic");
    finish(false)
}
