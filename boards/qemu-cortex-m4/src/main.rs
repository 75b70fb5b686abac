//! A trained classifier of handwritten digits on a Cortex-M4, without an operating system or a
//! heap: the image has no global allocator, so it would not link if anything in it allocated.
//!
//! The build script analyses the program and generates the module `model`: the file for the flash,
//! where its weights are used in place, static memory of exactly the required sizes, and its
//! kernels. Logs go through `defmt` to the host, which compares them with its own results
//! (`cargo xtask board`). Start reading at [`classify`].

#![no_std]
#![no_main]

use cortex_m as _;
use defmt::println;
use defmt_semihosting as _;
use semihosting::process::ExitCode;
use torchlet::core::AlignedBytes;
use torchlet::firmware::{Error, Nested};

torchlet::program!(model);
use model::forward::{ARENA, Input0, PLANNED, SCRATCH};

/// An image of a handwritten 2 from outside the training set: values after a header of 128 bytes.
static IMAGE: AlignedBytes<[u8; 384]> =
    AlignedBytes(*include_bytes!("../../../tests/fixtures/digits/image_2.npy"));

/// Loads the program and runs it on the image.
fn classify() -> Result<(), Error> {
    println!(
        "program: {=usize} bytes, {=usize} kernels",
        model::PROGRAM.len(),
        model::KERNELS.len()
    );
    println!("arena: {=usize} bytes", ARENA);
    println!("planned: {} bytes", PLANNED);
    println!("scratch: {=usize} bytes", SCRATCH);
    let Some(image) = Input0::from_bytes(&IMAGE.0[128..]) else {
        return Err(Error::Length { expected: size_of::<Input0>() / 4, found: 64 });
    };
    let mut model = model::load()?;
    let logits = model.forward(image)?.as_flattened();
    let mut class = 0;
    for (index, logit) in logits.iter().enumerate() {
        println!("logit {=usize}: {=f32}", index, *logit);
        if *logit > logits[class] {
            class = index;
        }
    }
    println!("class: {=usize}", class);
    Ok(())
}

#[cortex_m_rt::entry]
fn main() -> ! {
    let result = classify();
    if let Err(error) = &result {
        println!("error: {}", error);
    }
    let code = if result.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    code.exit_process()
}

#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    // The location is not logged, because the file names would occupy flash.
    println!("panic");
    ExitCode::FAILURE.exit_process()
}
