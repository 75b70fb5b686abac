//! The `torchlet` command: runs, explains, checks and measures exported PyTorch programs.
//!
//! It is a thin shell around the `torchlet` crate and knows no kernel or file format but those of its inputs (`.npy`,
//! images). Start reading at [`arguments`], which is also what `--help` shows; each command has a module of its name.

mod arguments;
mod bench;
mod bundle;
mod devices;
mod failure;
mod image_input;
mod inputs;
mod inspect;
mod lower;
mod model;
mod npy;
mod profile;
mod run;
mod size;
mod terminal;
mod verify;

use arguments::{Arguments, Command};
use clap::{CommandFactory, Parser};
use failure::Failure;
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let result = match &arguments.command {
        Command::Run(arguments) => run::run(arguments),
        Command::Inspect(arguments) => inspect::inspect(arguments),
        Command::Verify(arguments) => return verify::verify(arguments),
        Command::Lower(arguments) => lower::lower(arguments),
        Command::Size(arguments) => size::size(arguments),
        Command::Bench(arguments) => bench::bench(arguments),
        Command::Devices => {
            devices::devices();
            Ok(())
        }
        Command::Completions { shell } => {
            let mut command = Arguments::command();
            clap_complete::generate(*shell, &mut command, "torchlet", &mut std::io::stdout());
            Ok(())
        }
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            report(&failure);
            ExitCode::FAILURE
        }
    }
}

/// Says what went wrong, and the way out.
fn report(failure: &Failure) {
    let (error, reset) = (terminal::BAD, terminal::BAD.render_reset());
    anstream::eprintln!("{error}error:{reset} {failure}");
}
