//! Inference as an Embassy task that yields to other tasks between instructions of the program.
//! Start reading at [`infer`].

#![no_std]
#![no_main]

use core::sync::atomic::{AtomicU32, Ordering};
use cortex_m as _;
use defmt::println;
use defmt_semihosting as _;
use embassy_executor::Spawner;
use embassy_futures::yield_now;
use firmware::stack;
use semihosting::process::ExitCode;
use torchlet::core::{AlignedBytes, Progress};
use torchlet::firmware::{Error, Nested};

torchlet::program!(digits);
use digits::forward::Input0;

/// An image of a handwritten 2 from outside the training set: values after a header of 128 bytes.
static IMAGE: AlignedBytes<[u8; 384]> =
    AlignedBytes(*include_bytes!("../../../tests/fixtures/digits/image_2.npy"));

/// Number of runs of the other task.
static BEATS: AtomicU32 = AtomicU32::new(0);

/// A task that must not wait for a whole inference.
#[embassy_executor::task]
async fn beat() {
    loop {
        BEATS.store(BEATS.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        yield_now().await;
    }
}

/// Runs the program once, one instruction at a time. Returns the number of instructions.
async fn infer() -> Result<u32, Error> {
    let depth = stack::paint();
    let mut model = digits::load()?;
    let Some(image) = Input0::from_bytes(&IMAGE.0[128..]) else {
        return Err(Error::Length { expected: size_of::<Input0>() / 4, found: 64 });
    };
    model.forward.set_inputs(image)?;
    let mut steps = 0;
    while model.forward.as_core().step()? == Progress::Stepped {
        steps += 1;
        yield_now().await;
    }
    let logits = model.forward.outputs()?.as_flattened();
    let mut bytes = logits.iter().flat_map(|logit| logit.to_le_bytes());
    let bytes: [u8; 40] = core::array::from_fn(|_| bytes.next().unwrap_or(0));
    println!("picture embassy: output 0 Float {=[u8]}", bytes);
    println!("picture embassy: stack {=usize}", stack::used(depth));
    Ok(steps)
}

#[embassy_executor::main]
async fn main(spawner: Spawner) {
    let beats = beat().map(|task| spawner.spawn(task));
    let steps = infer().await;
    let beaten = BEATS.load(Ordering::Relaxed);
    // Every fault is an error of one task, invisible to the others.
    let noticed = firmware::try_faults!(digits, IMAGE.0.split_at(128).1);
    let code = match (beats, steps) {
        (Ok(()), Ok(steps)) if noticed => {
            println!(
                "{=u32} instructions, and {=u32} runs of the other task between them",
                steps, beaten
            );
            // The first instruction runs before the other task has started.
            if steps > 1 && beaten + 1 >= steps { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
        (_, Err(error)) => {
            println!("error: {}", error);
            ExitCode::FAILURE
        }
        _ => ExitCode::FAILURE,
    };
    code.exit_process()
}

#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    println!("panic");
    ExitCode::FAILURE.exit_process()
}
