//! Panics on targets without an operating system.
//!
//! No panic is known that outside data can cause. If one occurs, the firmware's handler is called,
//! if set; it must not return. Otherwise an undefined instruction is executed, so that the
//! firmware's fault handler runs.

use core::ffi::c_char;
use core::panic::PanicInfo;
use core::sync::atomic::{AtomicUsize, Ordering};

/// Called when torchlet panics, with file and line of its source.
pub type torchlet_panic_handler =
    Option<unsafe extern "C" fn(file: *const c_char, size: usize, line: u32)>;

static HANDLER: AtomicUsize = AtomicUsize::new(0);

/// Sets the function to call if torchlet panics, which only a bug in torchlet can cause. It
/// receives the source file's name, not null-terminated, and the line; it must not return. Without
/// one, an undefined instruction is executed. Only in libraries for targets without an operating
/// system.
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
        // SAFETY: whoever set the handler guaranteed that it can be called.
        unsafe { handler(file.as_ptr().cast(), file.len(), line) };
    }
    trap()
}

fn trap() -> ! {
    loop {
        // SAFETY: an undefined instruction has no effect on memory; the processor's fault handler
        // takes over.
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
