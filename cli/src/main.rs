//! The `torchlet` command.

use std::process::ExitCode;

fn main() -> ExitCode {
    ExitCode::from(torchlet_cli::run_command(std::env::args_os()))
}
