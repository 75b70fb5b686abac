//! Where an image ends, however it does.

#[cfg(feature = "rtt")]
use defmt_rtt as _;
#[cfg(feature = "semihosting")]
use defmt_semihosting as _;

/// Ends with success or failure, which an emulator or debugger gets to know.
#[cfg(feature = "semihosting")]
pub fn exit(success: bool) -> ! {
    use semihosting::process::ExitCode;
    let code = if success { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    code.exit_process()
}

/// Says whether it was a success, and stays there: nothing waits for the end of a board of its own.
#[cfg(not(feature = "semihosting"))]
pub fn exit(success: bool) -> ! {
    defmt::println!("success: {=bool}", success);
    loop {
        core::hint::spin_loop();
    }
}

/// A panic is a defect of the firmware. It does not say where: that would take the names of all
/// files into the flash.
#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    defmt::println!("panic");
    exit(false)
}
