//! Termination of an image.

#[cfg(feature = "rtt")]
use defmt_rtt as _;
#[cfg(feature = "semihosting")]
use defmt_semihosting as _;

/// Exits the emulator or debugger with success or failure.
#[cfg(feature = "semihosting")]
pub fn exit(success: bool) -> ! {
    use semihosting::process::ExitCode;
    let code = if success { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    code.exit_process()
}

/// Logs success or failure and loops: without semihosting, nothing waits for the program to end.
#[cfg(not(feature = "semihosting"))]
pub fn exit(success: bool) -> ! {
    defmt::println!("success: {=bool}", success);
    loop {
        core::hint::spin_loop();
    }
}

/// A panic is a defect of the firmware. The location is not logged, because the file names would
/// occupy flash.
#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    defmt::println!("panic");
    exit(false)
}
