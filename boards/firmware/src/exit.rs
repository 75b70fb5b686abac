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

/// A panic is a defect of the firmware: it says where, without the machinery that formats the rest.
#[panic_handler]
fn panic(info: &core::panic::PanicInfo<'_>) -> ! {
    match info.location() {
        Some(place) => defmt::println!("panic at {=str}:{=u32}", place.file(), place.line()),
        None => defmt::println!("panic"),
    }
    exit(false)
}
