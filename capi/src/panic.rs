//! Panics on machines without operating system.
//!
//! None is known that outside data can cause. Should there be one, the firmware's function is
//! called, if it set one, and must not return; else the processor executes an undefined
//! instruction, so that the firmware's handler of faults runs.

use core::ffi::c_char;
use core::panic::PanicInfo;
use core::sync::atomic::{AtomicUsize, Ordering};

/// What is called when torchlet panics: with the file and line of its source.
pub type torchlet_panic_handler =
    Option<unsafe extern "C" fn(file: *const c_char, size: usize, line: u32)>;

static HANDLER: AtomicUsize = AtomicUsize::new(0);

/// Sets the function that is called if torchlet panics, which takes a defect of it. It gets the
/// name of the source file, without null byte, and the line; it must not return. Without one, an
/// undefined instruction is executed. Only in libraries for machines without operating system.
#[unsafe(no_mangle)]
pub extern "C" fn torchlet_set_panic_handler(handler: torchlet_panic_handler) {
    let address = handler.map_or(0, |handler| handler as usize);
    HANDLER.store(address, Ordering::Relaxed);
}

#[panic_handler]
fn panic(info: &PanicInfo<'_>) -> ! {
    let address = HANDLER.load(Ordering::Relaxed);
    // SAFETY: the address is 0, which is `None`, or that of such a function: only the function
    // above stores one.
    let handler = unsafe { core::mem::transmute::<usize, torchlet_panic_handler>(address) };
    if let Some(handler) = handler {
        let (file, line) = info.location().map_or(("", 0), |at| (at.file(), at.line()));
        // SAFETY: whoever set it said that it can be called.
        unsafe { handler(file.as_ptr().cast(), file.len(), line) };
    }
    trap()
}

fn trap() -> ! {
    loop {
        // SAFETY: an undefined instruction has no effect on memory; the processor's handler of
        // faults takes over.
        #[cfg(any(target_arch = "arm", target_arch = "aarch64"))]
        unsafe {
            core::arch::asm!("udf #0")
        }
        // SAFETY: as above.
        #[cfg(any(target_arch = "riscv32", target_arch = "riscv64"))]
        unsafe {
            core::arch::asm!("unimp")
        }
    }
}
