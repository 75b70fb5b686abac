//! The C interface: its headers, programs in C and C++ that use it, firmware in C.

pub(crate) mod firmware;
mod header;
mod programs;

use anyhow::Result;

#[derive(clap::Args, Default)]
pub(crate) struct Options {
    /// Writes the headers and the list of kernels anew, in place of comparing and testing
    #[arg(long)]
    overwrite: bool,
    /// Runs the firmware in QEMU, in place of the rest
    #[arg(long)]
    firmware: bool,
    /// Takes what the firmware prints as the new expectation
    #[arg(long)]
    overwrite_firmware: bool,
}

pub(crate) fn run(options: &Options) -> Result<()> {
    if options.overwrite {
        return header::overwrite();
    }
    if options.firmware || options.overwrite_firmware {
        return firmware::run(options.overwrite_firmware);
    }
    header::compare()?;
    programs::run()
}
