//! A firmware image that runs a program on input in memory and stores the class. It is linked and
//! measured, never run, to determine the flash size of a program without the board's own code.

#![no_std]
#![no_main]

#[cfg_attr(target_arch = "arm", path = "start/arm.rs")]
#[cfg_attr(target_arch = "riscv32", path = "start/riscv.rs")]
mod start;

use core::hint::black_box;
use core::ptr::write_volatile;
use torchlet::firmware::Error;

torchlet::program!(model);
use model::forward::Input0;

/// Addresses of the input, which a sensor would write, and of the class, in the board's RAM.
const INPUT: *const Input0 = start::RAM as *const Input0;
const CLASS: *mut usize = (start::RAM + 0xfff0) as *mut usize;

fn classify() -> Result<usize, Error> {
    // SAFETY: an aligned address in the RAM of the board, unknown to the compiler; the image is
    // never run.
    let input = unsafe { &*black_box(INPUT) };
    let mut model = model::load()?;
    let output = model.forward(input)?.as_flattened();
    let argmax = output
        .iter()
        .enumerate()
        .max_by(|a, b| a.1.partial_cmp(b.1).unwrap_or(core::cmp::Ordering::Equal));
    Ok(argmax.map_or(0, |(class, _)| class))
}

/// Main function of a board.
fn run() -> ! {
    let class = classify().unwrap_or(usize::MAX);
    // SAFETY: as above.
    unsafe { write_volatile(CLASS, class) };
    loop {}
}

#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    loop {}
}
