//! A firmware that runs a program on what it finds in memory, and writes down the class. It is linked and measured, never run:
//! what a program takes in flash beside a board's own code.

#![no_std]
#![no_main]

use core::hint::black_box;
use core::ptr::write_volatile;
use cortex_m as _;
use torchlet::firmware::Error;

torchlet::program!(model);
use model::forward::Input0;

/// Where a sensor would put the input, and where the class goes: RAM of the board.
const INPUT: *const Input0 = 0x2003_0000 as *const Input0;
const CLASS: *mut usize = 0x2003_fffc as *mut usize;

fn classify() -> Result<usize, Error> {
    // SAFETY: an aligned address in the RAM of the board, which the compiler knows nothing of; the image is never run.
    let input = unsafe { &*black_box(INPUT) };
    let mut model = model::load()?;
    let output = model.forward(input)?.as_flattened();
    let largest = output
        .iter()
        .enumerate()
        .max_by(|a, b| a.1.partial_cmp(b.1).unwrap_or(core::cmp::Ordering::Equal));
    Ok(largest.map_or(0, |(class, _)| class))
}

#[cortex_m_rt::entry]
fn main() -> ! {
    let class = classify().unwrap_or(usize::MAX);
    // SAFETY: as above.
    unsafe { write_volatile(CLASS, class) };
    loop {}
}

/// The chip's own interrupts: as many as the Cortex-M4 of Arm's MPS2 board has. Without them, `cortex-m-rt` reserves 240.
#[unsafe(link_section = ".vector_table.interrupts")]
#[unsafe(no_mangle)]
static __INTERRUPTS: [unsafe extern "C" fn(); 32] = {
    unsafe extern "C" {
        fn DefaultHandler();
    }
    [DefaultHandler; 32]
};

#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    loop {}
}
