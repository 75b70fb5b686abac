//! The C interface: headers, programs in C and C++, and firmware in C.

pub(crate) mod firmware;
mod header;
mod programs;

use anyhow::Result;

#[derive(clap::Args, Default)]
pub(crate) struct Options {
    /// Regenerate the headers and the list of kernels instead of testing
    #[arg(long)]
    overwrite: bool,
    /// Only run the firmware in QEMU
    #[arg(long)]
    firmware: bool,
    /// Record the firmware's output as the new expectation
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
